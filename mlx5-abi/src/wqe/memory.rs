use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How a memory key is changed by an entry (UMR); the key is the [`Control`](super::Control) segment's `imm`.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_umr_ctrl_seg`; Linux `include/linux/mlx5/qp.h`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct UmrControl {
    /// A mask of [`umr_flag`].
    pub flags: u8,
    /// Reserved.
    pub reserved0: [u8; 3],
    /// Units of 16 bytes of translation that follow or are pointed to.
    pub klm_octowords: U16,
    /// Where in the key's translation they go; without [`umr_flag::TRANSLATION_OFFSET`] the size of the signature part.
    pub translation_offset: U16,
    /// What of the context is written: a mask of [`mkey_mask`].
    pub mkey_mask: U64,
    /// Upper bits of the offset, where the device has them.
    pub xlt_offset_47_16: U32,
    /// Reserved.
    pub reserved1: [u8; 28],
}

const _: () = assert!(size_of::<UmrControl>() == 48);
const _: () = assert!(offset_of!(UmrControl, klm_octowords) == 4 && offset_of!(UmrControl, mkey_mask) == 8);

/// Bits of `flags`. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_WQE_UMR_CTRL_FLAG_*`; Linux `include/linux/mlx5/device.h`,
/// `MLX5_UMR_*`.
pub mod umr_flag {
    /// The translation stands in the entry; a data segment points to it otherwise.
    pub const INLINE: u8 = 1 << 7;
    /// Fail if the key is free. Linux calls it `MLX5_UMR_CHECK_FREE`, and the next one `MLX5_UMR_CHECK_NOT_FREE`.
    pub const CHECK_NOT_FREE: u8 = 1 << 6;
    /// Fail unless the key is free.
    pub const CHECK_FREE: u8 = 1 << 5;
    /// `translation_offset` counts.
    pub const TRANSLATION_OFFSET: u8 = 1 << 4;
    /// Fail unless the key is bound to this queue pair.
    pub const CHECK_QPN: u8 = 1 << 3;
}

/// Bits of `mkey_mask`. Source: Linux `include/linux/mlx5/device.h`, `MLX5_MKEY_MASK_*`.
pub mod mkey_mask {
    /// Length.
    pub const LEN: u64 = 1 << 0;
    /// Page size.
    pub const PAGE_SIZE: u64 = 1 << 1;
    /// Start address.
    pub const START_ADDR: u64 = 1 << 6;
    /// Protection domain.
    pub const PD: u64 = 1 << 7;
    /// Remote invalidation.
    pub const EN_RINVAL: u64 = 1 << 8;
    /// The count of errors of signatures that is waited for.
    pub const EN_SIGERR: u64 = 1 << 9;
    /// Signature part.
    pub const BSF_EN: u64 = 1 << 12;
    /// Variable part of the key.
    pub const KEY: u64 = 1 << 13;
    /// Queue pair.
    pub const QPN: u64 = 1 << 14;
    /// Local read.
    pub const LR: u64 = 1 << 17;
    /// Local write.
    pub const LW: u64 = 1 << 18;
    /// Remote read.
    pub const RR: u64 = 1 << 19;
    /// Remote write.
    pub const RW: u64 = 1 << 20;
    /// Atomic.
    pub const A: u64 = 1 << 21;
    /// Relaxed ordering of writes.
    pub const RELAXED_ORDERING_WRITE: u64 = 1 << 25;
    /// Whether it is free.
    pub const FREE: u64 = 1 << 29;
    /// Relaxed ordering of reads.
    pub const RELAXED_ORDERING_READ: u64 = 1 << 47;
}

/// A memory key's context as an entry writes it. The same bytes as
/// [`command::mkey::MkeyContext`](crate::command::mkey::MkeyContext).
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_mkey_context_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct MkeyContext {
    /// [`mkey_flag::FREE`] or nothing.
    pub free: u8,
    /// Reserved.
    pub reserved1: u8,
    /// A mask of [`mkey_access`]; the kind of translation in the low two bits.
    pub access_flags: u8,
    /// Start of page and further kinds of translation.
    pub sf: u8,
    /// Queue pair it is bound to (bits 31 to 8, all ones: any) and variable part of the key.
    pub qpn_mkey: U32,
    /// Reserved.
    pub reserved2: U32,
    /// Flags and protection domain (bits 23 to 0).
    pub flags_pd: U32,
    /// First address.
    pub start_addr: U64,
    /// Bytes.
    pub len: U64,
    /// Size of the signature part in units of 16 bytes.
    pub bsf_octword_size: U32,
    /// Reserved.
    pub reserved3: [U32; 4],
    /// Size of the translation in units of 16 bytes.
    pub translations_octword_size: U32,
    /// Reserved.
    pub reserved4: [u8; 3],
    /// Page size, base-2 logarithm.
    pub log_page_size: u8,
    /// Reserved.
    pub reserved: U32,
}

const _: () = assert!(size_of::<MkeyContext>() == 64);
const _: () = assert!(offset_of!(MkeyContext, flags_pd) == 12 && offset_of!(MkeyContext, start_addr) == 16);
const _: () = assert!(offset_of!(MkeyContext, translations_octword_size) == 52);
const _: () = assert!(offset_of!(MkeyContext, log_page_size) == 59);

/// In `free`. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_WQE_MKEY_CONTEXT_FREE`.
pub mod mkey_flag {
    /// The key stands for nothing.
    pub const FREE: u8 = 1 << 6;
}

/// In `access_flags`. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*`.
pub mod mkey_access {
    /// Local read.
    pub const LOCAL_READ: u8 = 1 << 2;
    /// Local write.
    pub const LOCAL_WRITE: u8 = 1 << 3;
    /// Remote read.
    pub const REMOTE_READ: u8 = 1 << 4;
    /// Remote write.
    pub const REMOTE_WRITE: u8 = 1 << 5;
    /// Remote atomic.
    pub const ATOMIC: u8 = 1 << 6;
}

/// A translation in an entry ends on a multiple of so many bytes. Source: Linux `include/linux/mlx5/device.h`,
/// `MLX5_UMR_MTT_ALIGNMENT`.
pub const TRANSLATION_ALIGN: usize = 0x40;

/// One piece of an indirect key.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_umr_klm_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Klm {
    /// Bytes; nothing where all pieces have one size.
    pub byte_count: U32,
    /// Key of the piece.
    pub mkey: U32,
    /// Address under that key.
    pub address: U64,
}

const _: () = assert!(size_of::<Klm>() == 16 && offset_of!(Klm, address) == 8);

/// Head of a repeating pattern of pieces.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_umr_repeat_block_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct RepeatBlock {
    /// Bytes of one turn.
    pub byte_count: U32,
    /// Marks the pattern (0x400).
    pub op: U32,
    /// Turns.
    pub repeat_count: U32,
    /// Reserved.
    pub reserved: U16,
    /// [`RepeatEntry`]s that follow.
    pub num_ent: U16,
}

const _: () = assert!(size_of::<RepeatBlock>() == 16 && offset_of!(RepeatBlock, num_ent) == 14);

/// One piece of a repeating pattern.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_umr_repeat_ent_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct RepeatEntry {
    /// Bytes from one turn to the next.
    pub stride: U16,
    /// Bytes taken.
    pub byte_count: U16,
    /// Key.
    pub memkey: U32,
    /// Address under that key.
    pub va: U64,
}

const _: () = assert!(size_of::<RepeatEntry>() == 16 && offset_of!(RepeatEntry, va) == 8);
