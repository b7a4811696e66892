//! A thread's end of a table that changes: it reads one version until it passes.

use std::sync::Arc;

use crate::version::{Seat, Versions};

/// What a table's writer and readers share.
pub(crate) trait Shared {
    fn versions(&self) -> &Versions;
}

/// A reader of what `S` holds.
#[derive(Debug)]
pub(crate) struct VersionReader<S: Shared> {
    shared: Arc<S>,
    seat: Seat,
}

impl<S: Shared> VersionReader<S> {
    /// A reader of the newest version.
    pub(crate) fn new(shared: &Arc<S>) -> Self {
        Self { seat: shared.versions().seat(), shared: Arc::clone(shared) }
    }

    /// Takes the newest version.
    #[inline(always)]
    pub(crate) fn pass(&mut self) -> (&S, u64) {
        let version = self.seat.pass(self.shared.versions());
        (&self.shared, version)
    }
}

impl<S: Shared> Clone for VersionReader<S> {
    /// A reader that begins with the newest version.
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl<S: Shared> Drop for VersionReader<S> {
    fn drop(&mut self) {
        self.shared.versions().leave(&self.seat);
    }
}
