//! Work queue entries: what software puts into a send or receive ring.
//!
//! A send ring is made of blocks of 64 bytes, an entry of *segments* of 16 bytes that begin with a [`Control`] segment
//! and wrap round the ring's end at segment borders. `Control` says how many segments there are; the next entry begins
//! at the next block.
//!
//! ```text
//!  one frame            Control | Ethernet (header inline ...) | Data | Data ...
//!  segmented (TSO)      Control | Ethernet (headers inline)    | Data ...            opcode TSO, mss set
//!  many frames (eMPW)   Control | Ethernet (no header)         | Data or inline, one for each frame ...
//!  RDMA write           Control | RemoteAddress | Data or inline ...
//!  compare and swap     Control | RemoteAddress | Atomic | Data (where the old value goes)
//!  datagram             Control | AddressVector | Data ...
//!  memory key (UMR)     Control | UmrControl | MkeyContext | entries of the translation ...
//!  signatures            ... | translation | Bsf, then Control | SetPsv            see [`signature`]
//!  nothing (NOP)        Control
//! ```
//!
//! Receive entries are [`Data`] segments, as many as the ring's stride holds; of a shared or striding ring with a
//! [`NextSegment`] before them.

mod address;
mod control;
pub mod copy;
mod data;
mod ethernet;
mod memory;
mod remote;
pub mod signature;

pub use address::{AddressVector, EXTENDED_UD_AV, GRH_PRESENT};
pub use control::{Completion, Control, Fence, SIGNATURE_OFF, SOLICITED};
pub use data::{Data, INLINE, INVALID_LKEY, InlineHeader, NextSegment, StridingReceive, inline_segments};
pub use ethernet::{Ethernet, INSERT_SVLAN, INSERT_VLAN, checksum, parse};
pub use memory::{
    Klm, MkeyContext, RepeatBlock, RepeatEntry, TRANSLATION_ALIGN, UmrControl, mkey_access, mkey_flag,
    mkey_mask, umr_flag,
};
pub use remote::{Atomic, MaskedAtomic, RemoteAddress, Xrc};

/// Bytes of a segment, the unit of an entry's length. Source: Linux `include/linux/mlx5/qp.h`, `MLX5_SEND_WQE_DS`.
pub const SEGMENT_BYTES: usize = 16;

/// Bytes of a send ring's block. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_SEND_WQE_BB`.
pub const BLOCK_BYTES: usize = 64;

/// Segments an entry can have at most: its length is given in six bits. Source: DPDK
/// `drivers/common/mlx5/mlx5_prm.h`, `MLX5_DSEG_MAX`.
pub const SEGMENTS_MAX: usize = 63;

/// How many blocks an entry of so many segments occupies.
#[must_use]
#[inline]
pub const fn blocks(segments: usize) -> usize {
    segments.div_ceil(BLOCK_BYTES / SEGMENT_BYTES)
}

#[cfg(test)]
mod tests;
