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
//!
//! A completion queue can have the enhanced layout instead ([`layout::ENHANCED`]). There every entry, whatever it is, says
//! in the byte before the last which pass of the ring it belongs to, in place of the owner bit ([`Validity::ENHANCED`]), so
//! that nothing need be marked. A title is a plain entry, the last one before the packets that have most in common with it;
//! each array stands at the index of its first packet, has at most [`ENHANCED_MINIS`], and in its last two bytes how many
//! they are:
//!
//! ```text
//!   index     i        i + 1 ..            i + 1 + n ..          n, m: 1 to 7
//!           | title  | array of n, holes | array of m, holes | plain or array
//!
//!   array: | mini 0 | ... | mini 6 | unused, 6 bytes | pass | n - 1: 4 bits | format 3 | .. |
//! ```
//!
//! Source: DPDK `drivers/net/mlx5/mlx5_rx.c`, `mlx5_rx_poll_len`, `drivers/common/mlx5/mlx5_common.h`,
//! `check_cqe_iteration`.

mod entry;
mod error;
mod mini;
mod signature;
mod validity;

pub use entry::{Cqe64, Cqe128, FLAGS_GRH, Layer3, Layer4, Strides, format, lro, packet, part, rss, status};
pub use error::CqeError;
pub use mini::{MINIS, MiniCqe, MiniFormat};
pub use signature::{CqeSignature, signature_domain, signature_error};
pub use validity::Validity;

/// The owner bit of an entry's last byte. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_CQE_OWNER_MASK`.
pub const OWNER: u8 = 1;

/// What software writes into the last byte of every entry of a fresh ring: opcode
/// [`INVALID`](crate::opcode::completion::INVALID), owned by the adapter.
pub const FRESH: u8 = crate::opcode::completion::INVALID << 4 | OWNER;

/// What software writes into the byte before the last of every entry of a fresh ring: the pass before the first. Source:
/// DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_CQE_VIC_INIT`.
pub const FRESH_PASS: u8 = 0xff;

/// Most packets in an array of the enhanced layout. Source: DPDK's commit 02a6195cbe.
pub const ENHANCED_MINIS: usize = 7;

/// Values of `cqe_compression_layout`. Source: Linux `include/linux/mlx5/device.h`, `MLX5_CQE_COMPRESS_LAYOUT_*`.
pub mod layout {
    /// A title and its arrays are one entry; owner bits.
    pub const BASIC: u32 = 0;
    /// Each array is an entry; passes of the ring.
    pub const ENHANCED: u32 = 1;
}

/// Packets in an array of the enhanced layout with this last byte. Source: DPDK `drivers/common/mlx5/mlx5_prm.h`,
/// `MLX5_CQE_NUM_MINIS`.
#[must_use]
#[inline]
pub const fn enhanced_minis(op_own: u8) -> u32 {
    (op_own >> 4) as u32 + 1
}

#[cfg(test)]
mod tests;
