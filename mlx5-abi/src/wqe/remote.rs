use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The peer's memory that an RDMA read, write or atomic is about.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_raddr_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct RemoteAddress {
    /// Its address as the key knows it.
    pub raddr: U64,
    /// Its key.
    pub rkey: U32,
    /// Reserved.
    pub reserved: U32,
}

const _: () = assert!(size_of::<RemoteAddress>() == 16 && offset_of!(RemoteAddress, rkey) == 8);

impl RemoteAddress {
    /// The peer's memory at `raddr` under `rkey`.
    #[must_use]
    #[inline]
    pub const fn new(raddr: u64, rkey: u32) -> Self {
        Self { raddr: U64::new(raddr), rkey: U32::new(rkey), reserved: U32::ZERO }
    }
}

/// Operands of an atomic of 8 bytes.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `struct mlx5_wqe_atomic_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Atomic {
    /// The value to store, or to add.
    pub swap_add: U64,
    /// The value that must be there; 0 when adding.
    pub compare: U64,
}

const _: () = assert!(size_of::<Atomic>() == 16 && offset_of!(Atomic, compare) == 8);

/// Operands of an atomic that leaves bits out.
///
/// Source: rdma-core `providers/mlx5/wqe.h`, `struct mlx5_wqe_masked_atomic_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct MaskedAtomic {
    /// The value to store, or to add.
    pub swap_add: U64,
    /// The value that must be there.
    pub compare: U64,
    /// Which bits are stored; when adding, where carries stop.
    pub swap_add_mask: U64,
    /// Which bits are compared.
    pub compare_mask: U64,
}

const _: () = assert!(size_of::<MaskedAtomic>() == 32 && offset_of!(MaskedAtomic, swap_add_mask) == 16);

/// The peer's shared receive queue, in entries of an XRC send queue.
///
/// Source: rdma-core `providers/mlx5/wqe.h`, `struct mlx5_wqe_xrc_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Xrc {
    /// Its number.
    pub xrc_srqn: U32,
    /// Reserved.
    pub reserved: [u8; 12],
}

const _: () = assert!(size_of::<Xrc>() == 16);
