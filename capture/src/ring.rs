//! The ring of frames: many lcores put records in, one reader in another process takes them out. Nobody waits for anybody.
//!
//! ```text
//!   | tail | counters of each interface | stamps: a word a block | blocks of 64 bytes ...                  |
//!                                         ^                        ^
//!   a record: blocks in a row, in order of reservation; the stamp of its first block is 2 * (position + 1) once it is whole,
//!   one more where its frame was not sent after all. Positions count blocks and run free.
//! ```
//!
//! An lcore reserves the records of a burst by one compare-and-swap on a head that the reader cannot see, writes them, and stamps them. The
//! stamps are apart from the frames, so that no byte of a frame can pass for one. What has no room is dropped and counted.
//!
//! The records of frames that were not sent after all are the last of their burst, and are given back: the head goes back to where they
//! begin, unless another lcore has reserved room behind them meanwhile. Then they are stamped as void, and take up room until the reader has
//! passed over them. So a tx queue that takes nothing, however often it is tried, costs copies and no room.

mod memory;
mod reader;
mod writer;

pub use memory::Layout;
#[cfg(all(test, loom))]
pub(crate) use memory::Words;
pub use reader::{Damaged, Reader, Record};
pub use writer::{BURST_MAX, Interface, Passage, Reserved, Writer};

/// Most interfaces of one capture.
pub const INTERFACES_MAX: usize = if cfg!(loom) { 1 } else { 64 };

const BLOCK_WORDS: usize = 8;

/// Words of a record before its frame: time, lengths, and where it passed.
const HEAD_WORDS: usize = 3;

/// Blocks of a record with so many bytes of a frame.
fn blocks(bytes: usize) -> usize {
    (HEAD_WORDS * 8 + bytes).div_ceil(BLOCK_WORDS * 8)
}

/// The stamp of a record that is whole.
fn stamp(position: u64) -> u64 {
    position.wrapping_add(1).wrapping_mul(2)
}

/// The frame was not sent after all.
const VOID: u64 = 1;

/// What became of the frames of an interface since the capture began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the ring.
    pub captured: u64,
    /// Refused by the filter.
    pub filtered: u64,
    /// Accepted by the filter, and dropped: the ring had no room.
    pub dropped: u64,
}

#[cfg(all(test, not(loom)))]
mod tests;
