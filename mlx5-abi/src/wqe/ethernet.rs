use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Second segment of an Ethernet entry: what the adapter does to the frame, and the start of its inline header.
///
/// The inline header begins in the last two bytes here and runs on in the segments after, which it fills up: of a
/// header of 18 bytes the last 16 are the next segment.
///
/// Source: Linux `include/linux/mlx5/qp.h`, `struct mlx5_wqe_eth_seg`; rdma-core `providers/mlx5/mlx5dv.h`; DPDK
/// `drivers/common/mlx5/mlx5_prm.h`, `struct mlx5_wqe_eseg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Ethernet {
    /// Where the outer layer 4 header begins, in units of 2 bytes, where software has parsed the frame.
    pub swp_outer_l4_offset: u8,
    /// Where the outer layer 3 header begins.
    pub swp_outer_l3_offset: u8,
    /// Where the inner layer 4 header begins.
    pub swp_inner_l4_offset: u8,
    /// Where the inner layer 3 header begins.
    pub swp_inner_l3_offset: u8,
    /// Checksums to fill in: a mask of [`checksum`].
    pub cs_flags: u8,
    /// What the headers are where software has parsed the frame: a mask of [`parse`].
    pub swp_flags: u8,
    /// Payload bytes of a packet when the adapter cuts the frame up (TSO); 0 otherwise.
    pub mss: U16,
    /// What steering of sent frames matches as metadata.
    pub flow_table_metadata: U32,
    /// Bytes of inline header; or [`INSERT_VLAN`], then the tag stands in `inline_hdr_start`.
    pub inline_hdr_sz: U16,
    /// First two bytes of the inline header, or the VLAN tag to insert.
    pub inline_hdr_start: [u8; 2],
}

const _: () = assert!(size_of::<Ethernet>() == 16);
const _: () = assert!(offset_of!(Ethernet, cs_flags) == 4 && offset_of!(Ethernet, mss) == 6);
const _: () =
    assert!(offset_of!(Ethernet, inline_hdr_sz) == 12 && offset_of!(Ethernet, inline_hdr_start) == 14);

/// Bits of `cs_flags`. Source: Linux `include/linux/mlx5/qp.h`, `MLX5_ETH_WQE_L3_CSUM` and its neighbours.
pub mod checksum {
    /// IPv4 header inside a tunnel.
    pub const L3_INNER: u8 = 1 << 4;
    /// TCP or UDP inside a tunnel.
    pub const L4_INNER: u8 = 1 << 5;
    /// IPv4 header.
    pub const L3: u8 = 1 << 6;
    /// TCP or UDP.
    pub const L4: u8 = 1 << 7;
}

/// Bits of `swp_flags`. Source: Linux `include/linux/mlx5/qp.h`, `MLX5_ETH_WQE_SWP_*`.
pub mod parse {
    /// The inner layer 3 is IPv6, not IPv4.
    pub const INNER_L3_IPV6: u8 = 1 << 0;
    /// The inner layer 4 is UDP, not TCP.
    pub const INNER_L4_UDP: u8 = 1 << 1;
    /// The outer layer 3 is IPv6, not IPv4.
    pub const OUTER_L3_IPV6: u8 = 1 << 4;
    /// The outer layer 4 is UDP, not TCP.
    pub const OUTER_L4_UDP: u8 = 1 << 5;
}

/// In `inline_hdr_sz`: no inline header; the adapter inserts a VLAN tag. Source: Linux `include/linux/mlx5/qp.h`,
/// `MLX5_ETH_WQE_INSERT_VLAN`.
pub const INSERT_VLAN: u16 = 1 << 15;

/// Beside [`INSERT_VLAN`]: the tag is a service tag (0x88a8). Source: Linux `include/linux/mlx5/qp.h`,
/// `MLX5_ETH_WQE_SVLAN`.
pub const INSERT_SVLAN: u16 = 1 << 0;

impl Ethernet {
    /// The same bytes as two words, which two stores write. `offsets`: the four places of headers, as they stand.
    #[must_use]
    #[inline]
    pub const fn words(
        offsets: [u8; 4],
        cs_flags: u8,
        swp_flags: u8,
        mss: u16,
        inline: u16,
        start: [u8; 2],
    ) -> [u64; 2] {
        let head = (u32::from_be_bytes(offsets) as u64) << 32
            | (cs_flags as u64) << 24
            | (swp_flags as u64) << 16
            | mss as u64;
        let tail = (inline as u64) << 16 | u16::from_be_bytes(start) as u64;
        [head.to_be(), tail.to_be()]
    }

    /// The tag to insert, if there is one.
    #[must_use]
    #[inline]
    pub const fn vlan(&self) -> Option<u16> {
        if self.inline_hdr_sz.get() & INSERT_VLAN == 0 {
            None
        } else {
            Some(u16::from_be_bytes(self.inline_hdr_start))
        }
    }

    /// Bytes of inline header; 0 where a tag is inserted.
    #[must_use]
    #[inline]
    pub const fn inline_bytes(&self) -> usize {
        let size = self.inline_hdr_sz.get();
        if size & INSERT_VLAN == 0 { size as usize } else { 0 }
    }
}
