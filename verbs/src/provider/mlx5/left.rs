//! What the half of a receive queue that posts leaves to whoever destroys the device's queue, which may be later.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use pollux_mlx5_common::dbrec::DoorbellRecord;

/// The memory of a receive queue, a zone or a ring in one, and what is posted to it.
pub(super) struct Parts<P, M> {
    pub(super) producer: P,
    pub(super) memory: M,
    pub(super) record: DoorbellRecord,
    /// Kept as long as the device may reach what is posted.
    pub(super) _kept: Box<dyn Send>,
}

impl<P, M: fmt::Debug> fmt::Debug for Parts<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// The place for them.
pub(super) struct Left<P, M>(Mutex<Option<Parts<P, M>>>);

impl<P, M: fmt::Debug> fmt::Debug for Left<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Left").field(&self.0).finish()
    }
}

impl<P, M> Default for Left<P, M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<P, M> Left<P, M> {
    /// The half that posts is gone.
    pub(super) fn leave(&self, parts: Option<Parts<P, M>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// The device's queue was destroyed: `let_go` has what is posted go home, and the memory goes. Or it was not, and may still
    /// use all of it: then it stays for good.
    pub(super) fn release(&mut self, destroyed: bool, let_go: impl FnOnce(&P)) {
        let parts = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match parts {
            Some(parts) if destroyed => let_go(&parts.producer),
            parts => std::mem::forget(parts),
        }
    }
}
