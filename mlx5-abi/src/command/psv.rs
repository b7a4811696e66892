//! Signature variables (PSV): what the signatures of a key's domain begin from. Entries of queues set them
//! ([`SetPsv`](crate::wqe::signature::SetPsv)); keys name them ([`Bsf`](crate::wqe::signature::Bsf)).
//!
//! Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/mr.c`, `mlx5_core_create_psv`; rdma-core `providers/mlx5/mlx5.c`,
//! `mlx5_create_psv`.

use crate::layout::layouts;

layouts! {
    /// Creates up to four PSVs in a protection domain.
    CreatePsvIn = "create_psv_in" [16] {
        NUM_PSV: field(0x08, 31, 28),
        PD: field(0x08, 23, 0),
    }

    /// Their indices.
    CreatePsvOut = "create_psv_out" [32] {
        PSV0_INDEX: field(0x10, 23, 0),
        PSV1_INDEX: field(0x14, 23, 0),
        PSV2_INDEX: field(0x18, 23, 0),
        PSV3_INDEX: field(0x1c, 23, 0),
    }

    /// Destroys a PSV.
    DestroyPsvIn = "destroy_psv_in" [16] {
        PSVN: field(0x08, 23, 0),
    }
}

/// PSVs that one command creates at most. Source: Linux `include/linux/mlx5/device.h`, `MLX5_MAX_PSVS`; the fields of
/// [`CreatePsvOut`].
pub const PSVS_MAX: u32 = 4;

/// In [`GeneralCaps`](crate::caps::general::GeneralCaps), beside `SHO`: which signatures there are.
///
/// Source: rdma-core `providers/mlx5/mlx5_ifc.h`, `mlx5_ifc_cmd_hca_cap_bits`, and `providers/mlx5/verbs.c`, `get_hca_sig_caps`.
pub mod cap {
    use crate::field::Field;

    /// CRC64 of XP10.
    pub const CRC64_XP10: Field<256> = Field::new(0x28, 24, 24);
    /// CRC32C.
    pub const CRC32C: Field<256> = Field::new(0x28, 23, 23);
    /// Blocks of 4048 bytes.
    pub const BLOCK_4048: Field<256> = Field::new(0x3c, 15, 15);
    /// Completions say which signature mismatched. Without, rdma-core has no signatures at all.
    pub const DOMAIN_AND_TYPE: Field<256> = Field::new(0x90, 31, 31);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit offsets as the header's structures give them.
    #[test]
    fn the_capabilities_stand_where_the_headers_structures_have_them() {
        assert_eq!([cap::CRC64_XP10.bit(), cap::CRC32C.bit()], [0x147, 0x148]);
        assert_eq!([cap::BLOCK_4048.bit(), cap::DOMAIN_AND_TYPE.bit()], [0x1f0, 0x480]);
    }
}
