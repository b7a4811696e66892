//! Completion queue entries: what the adapter writes into a completion ring.
//!
//! An entry is 64 bytes, or 128 of which the last 64 are the entry. Its last byte tells whose it is: an entry at a
//! free-running index belongs to software when its owner bit equals the parity of the pass, that is bit
//! `log2(entries)` of the index, and its opcode is not [`INVALID`](crate::opcode::completion::INVALID). It is read
//! last by the adapter's rules of writing, first by ours of reading.
//!
//! ```text
//!   op_own:  7    4 3    2     1          0
//!           | opcode | format | solicited | owner |
//!
//!   format 0  nothing inline     the entry as it is
//!   format 1  up to 32 bytes of payload in the entry
//!   format 2  up to 64 bytes of payload in the entry before (128-byte entries) or in this one
//!   format 3  compressed: a title, byte_cnt packets in arrays of 8 MiniCqe after it
//! ```
//!
//! Compressed, `n` packets take the place of `n` entries: the title at index `i` gives what they have in common; the
//! first array of [`MiniCqe`] stands at `i + 1`, the next ones at `i + 8`, `i + 16`, ...; the entry after them all is at
//! `i + n`. Software marks the places as invalid before it gives them back.

mod entry;
mod error;
mod mini;

pub use entry::{Cqe64, Cqe128, FLAGS_GRH, Layer3, Layer4, Strides, format, packet, rss, status};
pub use error::CqeError;
pub use mini::{MINIS, MiniCqe, MiniFormat};

/// The owner bit of an entry's last byte. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_CQE_OWNER_MASK`.
pub const OWNER: u8 = 1;

/// What software writes into the last byte of every entry of a fresh ring: opcode
/// [`INVALID`](crate::opcode::completion::INVALID), owned by the adapter.
pub const FRESH: u8 = crate::opcode::completion::INVALID << 4 | OWNER;

/// Whether an entry with this last byte is ready at the free-running `index` of a ring of `1 << log_entries`.
///
/// ```
/// use pollux_mlx5_abi::cqe::{FRESH, is_ready};
///
/// assert!(!is_ready(FRESH, 0, 8));        // nothing was written yet
/// assert!(is_ready(0x20, 0, 8));          // first pass: owner bit 0
/// assert!(!is_ready(0x20, 256, 8));       // second pass: that is the first one's
/// assert!(is_ready(0x21, 256, 8));
/// ```
#[must_use]
#[inline]
pub const fn is_ready(op_own: u8, index: u32, log_entries: u8) -> bool {
    op_own >> 4 != crate::opcode::completion::INVALID && op_own & OWNER == (index >> log_entries & 1) as u8
}

#[cfg(test)]
mod tests;
