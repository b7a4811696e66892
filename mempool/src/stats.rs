//! What a pool counts.

use std::sync::atomic::Ordering;

use crate::shared::Shared;

/// Statistics of a pool since its creation, all counted off the fast path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Objects in the pool.
    pub capacity: usize,
    /// Free objects, in the backend or a cache.
    pub available: usize,
    /// Objects in the caches of all slots.
    pub cached: usize,
    /// Number of cache refills from the backend.
    pub refills: u64,
    /// Number of cache flushes to the backend.
    pub flushes: u64,
    /// Number of allocations that failed for lack of objects.
    pub failures: u64,
    /// Objects that came back when all were home: somebody gave one back twice through the unsafe API. A back end of
    /// [`RingRts`](crate::Backend::RingRts), which has room for more, does not notice before that is full too.
    pub overflows: u64,
    /// Objects allocated, in debug mode.
    pub taken: u64,
    /// Objects freed, in debug mode.
    pub given: u64,
    /// Faults detected, in debug mode.
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
