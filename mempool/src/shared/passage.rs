//! Times in which objects move between caches and back end, when their sum is not to be trusted. See [`Shared`](super::Shared).

use crossbeam_utils::CachePadded;
use pollux_atomic::{AtomicU64, Ordering, fence};

use crate::order;

/// How often such a time began in a pool, and how often one ended.
pub(crate) struct Passages {
    entered: CachePadded<AtomicU64>,
    left: CachePadded<AtomicU64>,
}

/// Marks such a time: from when it is made until it is dropped, which is the last touch of the pool.
pub(crate) struct Passage<'a>(&'a Passages);

impl Default for Passages {
    fn default() -> Self {
        let none = || CachePadded::new(AtomicU64::new(0));
        Self { entered: none(), left: none() }
    }
}

impl Passages {
    pub(crate) fn enter(&self) -> Passage<'_> {
        self.entered.fetch_add(1, order::passage_enter());
        Passage(self)
    }

    /// Whether `holds`, and no passage was open before that was looked at, and none was entered until after it.
    pub(crate) fn none_while(&self, holds: impl FnOnce() -> bool) -> bool {
        // SeqCst with the closed mark: a thread that leaves either is seen here to have left, or sees after leaving that
        // the pool is closed and tries again itself.
        let left = self.left.load(order::passage_left());
        if self.entered.load(Ordering::SeqCst) != left || !holds() {
            return false;
        }
        // A passage whose effect `holds` has seen was entered before that effect was published (Release in its
        // stores, this fence after our loads), so it shows here.
        fence(Ordering::Acquire);
        self.entered.load(Ordering::Acquire) == left
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, order::passage_leave());
    }
}
