use std::mem::offset_of;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How many [`MiniCqe`] stand in one array, in the place of one completion. Source: Linux
/// `include/linux/mlx5/device.h`, `MLX5_MINI_CQE_ARRAY_SIZE`.
pub const MINIS: usize = 8;

/// A completion compressed to 8 bytes; the rest stands in the title.
///
/// Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_mini_cqe8`; DPDK `drivers/common/mlx5/mlx5_prm.h`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct MiniCqe {
    /// What the completion queue's [`MiniFormat`] says.
    pub head: [u8; 4],
    /// Bytes, as in the full completion; with [`MiniFormat::FlowTagStride`] the tag's bits 23 to 16 on top.
    pub byte_cnt: U32,
}

const _: () = assert!(size_of::<MiniCqe>() == 8 && offset_of!(MiniCqe, byte_cnt) == 4);
const _: () = assert!(size_of::<[MiniCqe; MINIS]>() == size_of::<super::Cqe64>());

/// What the first half of a [`MiniCqe`] holds: `mini_cqe_res_format` of the completion queue, and above these two bits
/// `mini_cqe_res_format_ext`.
///
/// Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_CQE_RESP_FORMAT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MiniFormat {
    /// The hash.
    Hash = 0,
    /// The checksum.
    Checksum = 1,
    /// The low half of the steering rule's tag, and the stride.
    FlowTagStride = 2,
    /// The checksum, and the stride.
    ChecksumStride = 3,
    /// The types of the headers of layers 3 and 4, as in the full completion's `l4_l3_hdr_type`, and the stride.
    HeaderStride = 4,
}

impl MiniFormat {
    /// The format with this code.
    #[must_use]
    pub const fn of(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Hash),
            1 => Some(Self::Checksum),
            2 => Some(Self::FlowTagStride),
            3 => Some(Self::ChecksumStride),
            4 => Some(Self::HeaderStride),
            _ => None,
        }
    }
}

impl MiniCqe {
    /// Format [`Hash`](MiniFormat::Hash).
    #[must_use]
    #[inline]
    pub const fn with_hash(hash: u32, byte_cnt: u32) -> Self {
        Self { head: hash.to_be_bytes(), byte_cnt: U32::new(byte_cnt) }
    }

    /// Formats [`Checksum`](MiniFormat::Checksum) and [`ChecksumStride`](MiniFormat::ChecksumStride).
    #[must_use]
    #[inline]
    pub const fn with_checksum(checksum: u16, stride: u16, byte_cnt: u32) -> Self {
        let (sum, stride) = (checksum.to_be_bytes(), stride.to_be_bytes());
        Self { head: [sum[0], sum[1], stride[0], stride[1]], byte_cnt: U32::new(byte_cnt) }
    }

    /// Format [`FlowTagStride`](MiniFormat::FlowTagStride): a tag of 24 bits, fewer than 2^24 bytes.
    #[must_use]
    #[inline]
    pub const fn with_flow_tag(tag: u32, stride: u16, bytes: u32) -> Self {
        let (tag, stride) = (tag.to_be_bytes(), stride.to_be_bytes());
        let byte_cnt = (tag[1] as u32) << 24 | bytes & 0xff_ffff;
        Self { head: [tag[2], tag[3], stride[0], stride[1]], byte_cnt: U32::new(byte_cnt) }
    }

    /// Format [`HeaderStride`](MiniFormat::HeaderStride).
    #[must_use]
    #[inline]
    pub const fn with_headers(types: u8, stride: u16, byte_cnt: u32) -> Self {
        let stride = stride.to_be_bytes();
        Self { head: [types, 0, stride[0], stride[1]], byte_cnt: U32::new(byte_cnt) }
    }

    /// The types of headers.
    #[must_use]
    #[inline]
    pub const fn header_types(&self) -> u8 {
        self.head[0]
    }

    /// The hash.
    #[must_use]
    #[inline]
    pub const fn rx_hash(&self) -> u32 {
        u32::from_be_bytes(self.head)
    }

    /// The checksum.
    #[must_use]
    #[inline]
    pub const fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// The first stride.
    #[must_use]
    #[inline]
    pub const fn stride_index(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// The tag.
    #[must_use]
    #[inline]
    pub const fn flow_tag(&self) -> u32 {
        (self.byte_cnt.get() >> 24) << 16 | self.checksum() as u32
    }

    /// The bytes where the tag stands on top of them.
    #[must_use]
    #[inline]
    pub const fn bytes_below_tag(&self) -> u32 {
        self.byte_cnt.get() & 0xff_ffff
    }

    /// A sender's: index of the entry that is done.
    #[must_use]
    #[inline]
    pub const fn wqe_counter(&self) -> u16 {
        self.checksum()
    }
}
