//! A count of one thread's that others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count with one writer at a time; any thread may read it, and sees it grow until it wraps.
///
/// Hot: a load and a store, no locked instruction. Of two threads that add at once one is lost. Who counts on a path of its own puts it on
/// a cache line of its own too.
///
/// ```
/// use pollux_eal::counter::Counter;
///
/// let packets = Counter::default();
/// packets.add(32);
/// assert_eq!(packets.get(), 32);
/// ```
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A count of 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds. Only the writer calls this, so that load and store need not be one operation.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Returns the count.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
