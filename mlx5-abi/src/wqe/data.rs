use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::SEGMENT_BYTES;

/// A piece of memory to send from or to receive into.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_data_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Data {
    /// Bytes, 1 to 2^31, which is written as 0; bit 31 set makes the segment an [`InlineHeader`].
    pub byte_count: U32,
    /// Key of the memory.
    pub lkey: U32,
    /// Its address as the key knows it.
    pub addr: U64,
}

const _: () = assert!(size_of::<Data>() == 16 && offset_of!(Data, lkey) == 4 && offset_of!(Data, addr) == 8);

impl Data {
    /// A piece of memory, of up to 2^31 bytes.
    #[must_use]
    #[inline]
    pub const fn new(bytes: u32, lkey: u32, addr: u64) -> Self {
        debug_assert!(bytes <= 1 << 31);
        Self { byte_count: U32::new(bytes & !INLINE), lkey: U32::new(lkey), addr: U64::new(addr) }
    }

    /// The same bytes as two words, which two stores write; `lkey_be` as the device reads it, `addr` as the key knows it.
    #[must_use]
    #[inline]
    pub const fn words(bytes: u32, lkey_be: u32, addr: u64) -> [u64; 2] {
        [((bytes as u64) << 32 | lkey_be.to_be() as u64).to_be(), addr.to_be()]
    }

    /// Bytes of the piece, 1 to 2^31. The highest bit of `byte_count` is no part of them: in a receive entry it asks for padding in
    /// front of a packet.
    /// Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`, `mlx5e_alloc_rq`, and `include/linux/mlx5/qp.h`,
    /// `MLX5_INLINE_SEG`, of which `MLX5_HW_START_PADDING` is another name. That 0 stands for 2^31: rdma-core
    /// `providers/mlx5/qp.c`, which leaves pieces without bytes out.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> u64 {
        match self.byte_count.get() & !INLINE {
            0 => 1 << 31,
            bytes => bytes as u64,
        }
    }
}

/// In `byte_count`: the bytes themselves follow, not a pointer. Source: rdma-core `providers/mlx5/mlx5dv.h`,
/// `MLX5_INLINE_SEG`.
pub const INLINE: u32 = 1 << 31;

/// The key that ends a receive entry's list early. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_INVALID_LKEY`.
pub const INVALID_LKEY: u32 = 0x100;

/// Head of data that stand in the entry itself; they follow at once and fill up whole segments.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_inl_data_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct InlineHeader {
    /// Bytes, with [`INLINE`] set.
    pub byte_count: U32,
}

const _: () = assert!(size_of::<InlineHeader>() == 4);

impl InlineHeader {
    /// The head of so many bytes.
    #[must_use]
    #[inline]
    pub const fn new(bytes: u32) -> Self {
        Self { byte_count: U32::new(bytes | INLINE) }
    }

    /// How many bytes follow.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> u32 {
        self.byte_count.get() & !INLINE
    }
}

/// How many segments inline data of so many bytes take, head included.
#[must_use]
#[inline]
pub const fn inline_segments(bytes: usize) -> usize {
    (size_of::<InlineHeader>() + bytes).div_ceil(SEGMENT_BYTES)
}

/// Before the data of a receive entry whose ring is linked or striding.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_srq_next_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct NextSegment {
    /// Reserved.
    pub reserved0: [u8; 2],
    /// Index of the entry after this one.
    pub next_wqe_index: U16,
    /// Check byte, where the queue asks for one.
    pub signature: u8,
    /// Reserved.
    pub reserved1: [u8; 11],
}

const _: () = assert!(size_of::<NextSegment>() == 16 && offset_of!(NextSegment, next_wqe_index) == 2);

/// Receive entry of a striding ring: one piece of memory that many packets share, stride by stride.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_mprq_wqe`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct StridingReceive {
    /// The link, unused in a cyclic ring.
    pub next: NextSegment,
    /// The memory.
    pub data: Data,
}

const _: () = assert!(size_of::<StridingReceive>() == 32 && offset_of!(StridingReceive, data) == 16);
