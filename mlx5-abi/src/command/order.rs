//! Whether what messages bring is written in order, the whole of each: the device says whether it can tell, a queue pair's
//! context whether it is so.
//!
//! Source: rdma-core `providers/mlx5/mlx5_ifc.h`, `mlx5_ifc_cmd_hca_cap_bits.qp_data_in_order` and
//! `mlx5_ifc_qpc_bits.data_in_order`.

use crate::field::Field;

/// In [`GeneralCaps`](crate::caps::general::GeneralCaps): contexts of queue pairs tell it.
pub const CAP: Field<256> = Field::new(0x0c, 29, 29);

/// In a [`QpContext`](crate::command::qp::context::QpContext): it is so.
pub const QPC: Field<232> = Field::new(0x08, 5, 5);

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit offsets as the header's structures give them.
    #[test]
    fn they_stand_where_the_headers_structures_have_them() {
        assert_eq!([CAP.bit(), QPC.bit()], [0x62, 0x5a]);
    }
}
