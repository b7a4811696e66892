//! For tests: functions that are called at each store to a range of registers.
//!
//! Observers are found by address, not by thread, because a queue may be moved to another lcore than the test's; addresses
//! of living mappings are unique in the process, so tests that run side by side do not meet.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A store that has been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Where.
    pub address: usize,
    /// Which bytes, as they now stand there: 4, 8 or 64.
    pub bytes: &'a [u8],
}

type Observer = Arc<dyn Fn(Store<'_>) + Send + Sync>;

struct Entry {
    id: usize,
    range: Range<usize>,
    observer: Observer,
}

static OBSERVERS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// How many there are, so that without any a store takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Holds an observer in place; dropping it ends the observation. A call that is under way on another thread then may
/// still finish.
#[derive(Debug)]
#[must_use = "dropping it ends the observation"]
pub struct Observation {
    id: usize,
}

/// Has `observer` called after each store to an address in `range`, on the thread that made it. It may itself store,
/// observe and end observations.
///
/// # Panics
/// When another observer has part of the range: a register belongs to one device.
pub fn observe(range: Range<usize>, observer: impl Fn(Store<'_>) + Send + Sync + 'static) -> Observation {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut observers = locked();
    let overlap = observers.iter().any(|old| old.range.start < range.end && range.start < old.range.end);
    assert!(!overlap, "{range:x?} is observed already");
    observers.push(Entry { id, range, observer: Arc::new(observer) });
    COUNT.store(observers.len(), Ordering::Release);
    Observation { id }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let mut observers = locked();
        let at = observers.iter().position(|entry| entry.id == self.id);
        let ended = at.map(|at| observers.swap_remove(at));
        COUNT.store(observers.len(), Ordering::Release);
        // What the observer owns may have a destructor that comes back here.
        drop(observers);
        drop(ended);
    }
}

#[inline(always)]
pub(super) fn stored(address: usize, bytes: &[u8]) {
    if COUNT.load(Ordering::Acquire) > 0 {
        call(Store { address, bytes });
    }
}

#[cold]
fn call(store: Store<'_>) {
    let found = locked()
        .iter()
        .find(|entry| entry.range.contains(&store.address))
        .map(|entry| Arc::clone(&entry.observer));
    // Called without the lock, so that it may use this module itself.
    if let Some(observer) = found {
        observer(store);
    }
}

fn locked() -> MutexGuard<'static, Vec<Entry>> {
    OBSERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}
