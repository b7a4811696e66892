//! Where what stands in the shared memory.

use super::{BLOCK_WORDS, INTERFACES_MAX};
use pollux_atomic::AtomicU64;

#[cfg(not(loom))]
pub(super) type Memory = pollux_eal::region::SharedWords;
#[cfg(loom)]
pub(super) type Memory = std::sync::Arc<Words>;

/// What stands for shared memory in models: loom's atomics.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Words(pub(crate) Vec<AtomicU64>);

#[cfg(loom)]
impl Words {
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// The reader's position, on a cache line of its own.
const TAIL: usize = 0;
/// Counters of the interfaces, a cache line each.
const COUNTS: usize = 8;
const STAMPS: usize = COUNTS + INTERFACES_MAX * 8;

/// How large a ring is. Both sides are told; neither reads it from the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    blocks: usize,
}

impl Layout {
    /// Smallest ring: it holds any frame.
    pub const BYTES_MIN: usize = 1 << 20;
    /// Largest ring.
    pub const BYTES_MAX: usize = 256 << 20;

    /// A ring of `bytes` bytes of frames, headers included; none unless that is a power of two from [`BYTES_MIN`](Self::BYTES_MIN) to
    /// [`BYTES_MAX`](Self::BYTES_MAX).
    #[must_use]
    pub fn of_bytes(bytes: usize) -> Option<Self> {
        let right = bytes.is_power_of_two() && (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes);
        right.then(|| Self::of_blocks(bytes / (BLOCK_WORDS * 8)))
    }

    /// A power of two.
    pub(crate) fn of_blocks(blocks: usize) -> Self {
        Self { blocks }
    }

    pub(super) fn blocks(self) -> usize {
        self.blocks
    }

    /// Words of memory, all told.
    #[must_use]
    pub fn words(self) -> usize {
        STAMPS + self.blocks * (1 + BLOCK_WORDS)
    }

    pub(super) fn tail(self, words: &[AtomicU64]) -> &AtomicU64 {
        &words[TAIL]
    }

    /// Captured, filtered, dropped.
    pub(super) fn counts(self, words: &[AtomicU64], interface: usize) -> &[AtomicU64] {
        let at = COUNTS + interface.min(INTERFACES_MAX - 1) * 8;
        &words[at..at + 3]
    }

    #[inline]
    pub(super) fn stamp(self, words: &[AtomicU64], position: u64) -> &AtomicU64 {
        &words[STAMPS + self.slot(position)]
    }

    /// The blocks.
    #[inline]
    pub(super) fn data(self, words: &[AtomicU64]) -> &[AtomicU64] {
        &words[STAMPS + self.blocks..]
    }

    #[inline]
    pub(super) fn slot(self, position: u64) -> usize {
        position as usize & (self.blocks - 1)
    }
}
