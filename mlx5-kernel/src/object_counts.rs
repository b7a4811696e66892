//! How many objects there are and were.

use std::sync::atomic::AtomicU64;

/// How many objects the programs of a device made, all contexts together.
#[derive(Debug, Default)]
pub(crate) struct ObjectCounts {
    pub(crate) made: AtomicU64,
    /// Those that are there.
    pub(crate) living: AtomicU64,
}
