//! The records of a kind of object, as long as the objects are there, and what those that are gone had counted.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::locked;
use crate::WcStatus;

/// Number of statuses that are counted apart; any other counts as [`WcStatus::GENERAL_ERR`].
const STATUSES: usize = 24;

/// A count for each status.
type Counts = [u64; STATUSES];

/// Completions with an error, by status. Written by who polls, in the path of errors alone.
#[derive(Debug, Default)]
pub(crate) struct Errors([AtomicU64; STATUSES]);

impl Errors {
    /// Counts a completion, unless it is a success.
    #[cold]
    #[inline(never)]
    pub(crate) fn count(&self, status: WcStatus) {
        if status != WcStatus::SUCCESS {
            let known = if usize::from(status.0) < STATUSES { status } else { WcStatus::GENERAL_ERR };
            self.0[usize::from(known.0)].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        std::array::from_fn(|status| self.0[status].load(Ordering::Relaxed))
    }
}

/// Statuses that were counted, with their counts.
pub(super) fn counted(errors: &Counts) -> Vec<(WcStatus, u64)> {
    let all = (0..).map(WcStatus).zip(errors.iter().copied());
    all.filter(|(_, count)| *count > 0).collect()
}

/// What objects count, of those that are gone too.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) errors: Counts,
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.errors.iter_mut().zip(other.errors).for_each(|(total, one)| *total += one);
    }
}

/// What a list knows of each object, and what the object leaves to the totals of its context.
pub(crate) trait Record {
    /// What its kind calls it by.
    fn number(&self) -> u64;

    fn totals(&self) -> Totals {
        Totals::default()
    }
}

#[derive(Debug)]
struct Entries<T> {
    living: Vec<Arc<T>>,
    gone: Totals,
}

/// The records of one kind.
#[derive(Debug)]
pub(crate) struct List<T>(Mutex<Entries<T>>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Mutex::new(Entries { living: Vec::new(), gone: Totals::default() }))
    }
}

impl<T: Record> List<T> {
    /// Lists an object, until the answer is dropped: before the object's rings go.
    pub(crate) fn add(self: &Arc<Self>, record: T) -> Listed<T> {
        let record = Arc::new(record);
        locked(&self.0).living.push(Arc::clone(&record));
        Listed { list: Arc::clone(self), record }
    }

    pub(super) fn each<V>(&self, view: impl Fn(&T) -> V) -> Vec<V> {
        locked(&self.0).living.iter().map(|record| view(record)).collect()
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.0).living.len()
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.each(T::number)
    }

    /// The view of the first object of that number: under the lock, as all of these, since its rings may be gone behind it.
    pub(super) fn find<V>(&self, number: u64, view: impl Fn(&T) -> V) -> Option<V> {
        locked(&self.0).living.iter().find(|record| record.number() == number).map(|record| view(record))
    }

    pub(super) fn totals(&self) -> Totals {
        let entries = locked(&self.0);
        let mut totals = entries.gone;
        entries.living.iter().for_each(|record| totals.add(&record.totals()));
        totals
    }
}

/// A record in its list.
#[derive(Debug)]
pub(crate) struct Listed<T: Record> {
    list: Arc<List<T>>,
    record: Arc<T>,
}

impl<T: Record> Deref for Listed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.record
    }
}

impl<T: Record> Drop for Listed<T> {
    fn drop(&mut self) {
        let mut entries = locked(&self.list.0);
        entries.gone.add(&self.record.totals());
        entries.living.retain(|record| !Arc::ptr_eq(record, &self.record));
    }
}
