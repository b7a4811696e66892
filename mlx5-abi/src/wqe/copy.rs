//! Work that copies memory on the device (MMO), without a peer: a control segment, [`Metadata`], then a
//! [`Data`](super::Data) segment for where from and one for where to.
//!
//! Source: rdma-core `providers/mlx5/wqe.h`, `struct mlx5_mmo_wqe`, and `providers/mlx5/qp.c`, `mlx5_wr_memcpy`; DPDK
//! `drivers/common/mlx5/mlx5_prm.h`, `struct mlx5_gga_wqe`, `MLX5_OPC_MOD_MMO_DMA`. The capabilities: rdma-core
//! `providers/mlx5/mlx5_ifc.h`, `mlx5_ifc_cmd_hca_cap_bits`.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::field::Field;

/// Modifier of the opcode: plain copying.
pub const MODIFIER: u8 = 1;

/// In [`GeneralCaps`](crate::caps::general::GeneralCaps): send queues copy memory.
pub const CAP: Field<256> = Field::new(0x28, 12, 12);
/// In [`GeneralCaps`](crate::caps::general::GeneralCaps): bytes at most, base-2 logarithm.
pub const LOG_BYTES_MAX: Field<256> = Field::new(0x0c, 20, 16);

/// Where the device may keep notes on the work.
///
/// Source: rdma-core `providers/mlx5/wqe.h`, `struct mlx5_mmo_metadata_seg`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Metadata {
    /// Zero for copying.
    pub mmo_control_31_0: U32,
    /// Key of the notes' memory.
    pub local_key: U32,
    /// Its address under that key.
    pub local_address: U64,
}

const _: () = assert!(size_of::<Metadata>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit offsets as the header's structures give them.
    #[test]
    fn the_capabilities_stand_where_the_headers_structures_have_them() {
        assert_eq!((CAP.bit(), LOG_BYTES_MAX.bit()), (0x153, 0x6b));
    }
}
