//! Versions of a table: one writer publishes them, readers take the newest between bursts, and the writer learns which of the old ones
//! nobody reads any more (quiescent-state reclamation, as DPDK's `rte_rcu_qsbr`, without its fence: a reader says that it has passed by a
//! store, and only after a change).

use pollux_atomic::AtomicU64;

#[cfg(loom)]
use loom::sync::{Arc, Mutex};
#[cfg(not(loom))]
use std::sync::{Arc, Mutex};

use crate::order;

/// Two cache lines: the processor fetches lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Lines(AtomicU64);

/// The version that is published, and the readers.
#[derive(Debug)]
pub(crate) struct Versions {
    published: Lines,
    /// What each reader said last: it reads no version before that any more.
    seats: Mutex<Vec<Arc<Lines>>>,
}

impl Versions {
    /// Version 0 is published.
    pub(crate) fn new() -> Self {
        Self { published: Lines(AtomicU64::new(0)), seats: Mutex::new(Vec::new()) }
    }

    /// Publishes a version that is above all earlier ones: readers that pass from now on read it.
    pub(crate) fn publish(&self, version: u64) {
        self.published.0.store(version, order::version_publish());
    }

    /// The oldest version that a reader may be reading; the largest number where there is no reader.
    pub(crate) fn oldest(&self) -> u64 {
        let seats = self.seats.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        seats.iter().map(|seat| seat.0.load(order::seat_read())).min().unwrap_or(u64::MAX)
    }

    /// A reader of the newest version. What `oldest` says afterwards counts it.
    pub(crate) fn seat(&self) -> Seat {
        let mut seats = self.seats.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let version = self.published.0.load(order::version_take());
        let seat = Arc::new(Lines(AtomicU64::new(version)));
        seats.push(Arc::clone(&seat));
        Seat { seat, version }
    }

    /// A reader that has read its last.
    pub(crate) fn leave(&self, seat: &Seat) {
        let mut seats = self.seats.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        seats.retain(|other| !Arc::ptr_eq(other, &seat.seat));
    }
}

/// A reader's place among those that the writer heeds.
#[derive(Debug)]
pub(crate) struct Seat {
    seat: Arc<Lines>,
    version: u64,
}

impl Seat {
    /// The newest version; what was read of earlier ones is done with. Hot: a load and a branch.
    #[inline(always)]
    pub(crate) fn pass(&mut self, versions: &Versions) -> u64 {
        let version = versions.published.0.load(order::version_take());
        if version != self.version {
            self.seat.0.store(version, order::seat_pass());
            self.version = version;
        }
        version
    }
}
