//! When the moderation timer of a completion queue starts, changed while the queue works: whether the device can, and which bit of
//! MODIFY_CQ asks for it. The mode is `cq_period_mode` of a [`CqContext`](super::cq::CqContext).
//!
//! Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_cmd_hca_cap_bits.cq_period_mode_modify` and
//! `MLX5_CQ_PERIOD_MODE_START_FROM_*`, `include/linux/mlx5/cq.h`, `MLX5_CQ_MODIFY_PERIOD_MODE`; rdma-core
//! `providers/mlx5/mlx5_ifc.h` for the capability.

use crate::field::Field;

/// In [`GeneralCaps`](crate::caps::general::GeneralCaps): it can.
pub const CAP: Field<256> = Field::new(0x44, 28, 28);

/// In MODIFY_CQ's mask: the mode.
pub const PART: u32 = 1 << 4;

/// From the first completion that waits for an event.
pub const FROM_EVENT: u32 = 0x0;

/// From the last completion: each starts it anew. Source: Linux `include/linux/dim.h`, `enum dim_cq_period_mode`.
pub const FROM_COMPLETION: u32 = 0x1;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bit offset as the headers' structures give it.
    #[test]
    fn it_stands_where_the_headers_structures_have_it() {
        assert_eq!(CAP.bit(), 0x223);
    }
}
