//! What a pool counts.

use std::sync::atomic::Ordering;

use crate::shared::Shared;

/// What a pool counted since it was made. All of it is counted off the fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Objects in the pool.
    pub capacity: usize,
    /// Objects at home: in the back end or a cache.
    pub available: usize,
    /// Objects in the caches of all slots.
    pub cached: usize,
    /// Times that a cache was filled from the back end.
    pub refills: u64,
    /// Times that a cache was emptied to the back end.
    pub flushes: u64,
    /// Gets that failed because there were not enough objects.
    pub failures: u64,
    /// Objects that came back when all were home: somebody gave one back twice through an unsafe door. A back end of
    /// [`RingRts`](crate::Backend::RingRts), which has room for more, does not notice before that is full too.
    pub overflows: u64,
    /// Objects taken out, in debug mode.
    pub taken: u64,
    /// Objects given back, in debug mode.
    pub given: u64,
    /// Misuse caught, in debug mode.
    pub faults: u64,
}

pub(crate) fn stats(shared: &Shared) -> PoolStats {
    let watched = |figure: fn(&crate::audit::Watch) -> &std::sync::atomic::AtomicU64| {
        shared.watch.as_ref().map_or(0, |watch| figure(watch).load(Ordering::Relaxed))
    };
    let caches = shared.caches();
    PoolStats {
        capacity: shared.capacity,
        available: shared.at_home(),
        cached: caches.len(),
        refills: caches.sum(|cache| cache.refills.load(Ordering::Relaxed)),
        flushes: caches.sum(|cache| cache.flushes.load(Ordering::Relaxed)),
        failures: caches.sum(|cache| cache.failures.load(Ordering::Relaxed))
            + shared.shared_failures.load(Ordering::Relaxed),
        overflows: shared.overflows.load(Ordering::Relaxed),
        taken: watched(|watch| &watch.taken),
        given: watched(|watch| &watch.given),
        faults: watched(|watch| &watch.fault_count),
    }
}
