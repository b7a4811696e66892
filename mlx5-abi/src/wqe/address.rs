use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where a datagram goes.
///
/// With RoCE `rmac` and the fields after it hold the peer's MAC, class, hop limit and GID, and `rlid` the UDP source
/// port. All 48 bytes stand in an entry whose `dqp_dct` has [`EXTENDED_UD_AV`] set, the first 16 alone otherwise.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_av`; Linux `include/linux/mlx5/qp.h`,
/// `struct mlx5_av`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct AddressVector {
    /// The peer's queue key in the upper half, or the key of a dynamic connection in all of it.
    pub key: U64,
    /// [`EXTENDED_UD_AV`] and the peer's queue number.
    pub dqp_dct: U32,
    /// Static rate (bits 7 to 4) and service level.
    pub stat_rate_sl: u8,
    /// Force loopback (bit 7) and path bits.
    pub fl_mlid: u8,
    /// The peer's LID; with RoCE over UDP the source port.
    pub rlid: U16,
    /// Reserved.
    pub reserved0: [u8; 4],
    /// The peer's MAC.
    pub rmac: [u8; 6],
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// [`GRH_PRESENT`], index of the own GID (bits 27 to 20) and flow label.
    pub grh_gid_fl: U32,
    /// The peer's GID.
    pub rgid: [u8; 16],
}

const _: () = assert!(size_of::<AddressVector>() == 48);
const _: () = assert!(offset_of!(AddressVector, rlid) == 14 && offset_of!(AddressVector, rmac) == 20);
const _: () = assert!(offset_of!(AddressVector, grh_gid_fl) == 28 && offset_of!(AddressVector, rgid) == 32);

/// In `dqp_dct`: the vector is whole. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_EXTENDED_UD_AV`.
pub const EXTENDED_UD_AV: u32 = 1 << 31;

/// In `grh_gid_fl`: there is a global header. Source: rdma-core `providers/mlx5/verbs.c`, where an address handle is
/// made.
pub const GRH_PRESENT: u32 = 1 << 30;

impl AddressVector {
    /// The peer's queue key.
    #[must_use]
    #[inline]
    pub const fn qkey(&self) -> u32 {
        (self.key.get() >> 32) as u32
    }

    /// The peer's queue number.
    #[must_use]
    #[inline]
    pub const fn qpn(&self) -> u32 {
        self.dqp_dct.get() & 0xff_ffff
    }
}
