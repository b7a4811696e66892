//! Has all lcores begin at once, when the last of them has been launched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;

/// Whether it is time. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start(Arc<CachePadded<AtomicBool>>);

impl Start {
    pub(crate) fn give(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_given(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
