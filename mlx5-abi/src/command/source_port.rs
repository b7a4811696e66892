//! Changing the UDP source port of a connected queue pair that sends: whether the device can, and which bit of RTS2RTS asks
//! for it. The port stands in the primary path.
//!
//! Source: rdma-core `providers/mlx5/mlx5_ifc.h`, `mlx5_ifc_cmd_hca_cap_bits.rts2rts_qp_udp_sport`,
//! `mlx5_ifc_rts2rts_qp_in_bits.opt_param_mask_95_32`, `MLX5_QPC_OPT_MASK_32_UDP_SPORT`; `providers/mlx5/mlx5.c`,
//! `_mlx5dv_modify_qp_udp_sport`.

use crate::field::{Field, Wide};

/// In [`GeneralCaps`](crate::caps::general::GeneralCaps): it can.
pub const CAP: Field<256> = Field::new(0x28, 14, 14);

/// In a [`TransitionIn`](crate::command::qp::TransitionIn) of RTS2RTS: further parts that are changed.
pub const MORE_PARTS: Wide<272> = Wide::new(0x108, 63, 0);

/// Of those: the port.
pub const PART: u64 = 1 << 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit offsets as the header's structures give them.
    #[test]
    fn they_stand_where_the_headers_structures_have_them() {
        assert_eq!((CAP.bit(), MORE_PARTS.bit()), (0x151, 0x840));
    }
}
