//! Frames that were received and that software cannot see yet: a processor may have loaded the bytes before the completion's
//! owner bit, unless a barrier stands between. By seed: see [`Visibility`].
//!
//! What RDMA writes is no part of this: programs wait for it at the memory itself, with no completion and no barrier.

use std::cell::RefCell;

use super::visibility::Visibility;
use crate::memory::{Host, Unreachable};
use crate::random::Random;

/// What is on its way.
#[derive(Debug, Default)]
pub(crate) struct Late {
    waiting: RefCell<Vec<(u64, Vec<u8>)>>,
    /// There while anything is late at all.
    random: RefCell<Option<Random>>,
}

impl Late {
    pub(super) fn set(&self, visibility: Visibility) {
        self.random.replace(match visibility {
            Visibility::AnyOrder(seed) => Some(Random::new(!seed)),
            Visibility::AtOnce | Visibility::ReadyWordFirst => None,
        });
    }

    /// Writes now or later.
    #[inline]
    pub(crate) fn write(&self, host: &dyn Host, at: u64, from: &[u8]) -> Result<(), Unreachable> {
        match &mut *self.random.borrow_mut() {
            None => host.write(at, from),
            Some(random) => {
                self.settle_at(host, at, from.len());
                if random.below(2) == 0 {
                    return host.write(at, from);
                }
                // What cannot be written is told of at once.
                host.read(at, &mut vec![0; from.len()])?;
                self.waiting.borrow_mut().push((at, from.to_vec()));
                Ok(())
            }
        }
    }

    /// The device itself sees what it wrote, in order.
    #[inline]
    pub(crate) fn settle_at(&self, host: &dyn Host, at: u64, bytes: usize) {
        let meets = |(other, theirs): &(u64, Vec<u8>)| {
            at.wrapping_sub(*other) < theirs.len() as u64 || other.wrapping_sub(at) < bytes as u64
        };
        if self.waiting.borrow().iter().any(meets) {
            self.settle(host);
        }
    }

    /// All is visible.
    pub(crate) fn settle(&self, host: &dyn Host) {
        for (at, bytes) in self.waiting.take() {
            // What cannot be written now is a place that was unpinned.
            let _ = host.write(at, &bytes);
        }
    }

    /// After a reset.
    pub(super) fn forget(&self) {
        self.waiting.take();
    }
}
