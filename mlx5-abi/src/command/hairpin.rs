//! Where the memory of hairpin queues is, beside the device: what the device says of it, and what contexts ask for.
//!
//! Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `mlx5_ifc_cmd_hca_cap_2_bits`, `mlx5_ifc_rqc_bits`, `mlx5_ifc_sqc_bits`,
//! `MLX5_RQC_HAIRPIN_DATA_BUFFER_TYPE_*`, `MLX5_SQC_HAIRPIN_WQ_BUFFER_TYPE_*`; Linux's header leaves it out.

use crate::field::Field;

/// In [`GeneralCaps2`](crate::caps::general::GeneralCaps2): blocks of an entry of a send queue's ring in host memory, as logarithm.
pub const SQ_WQE_BB_SIZE: Field<256> = Field::new(0x2c, 28, 24);
/// In [`GeneralCaps2`](crate::caps::general::GeneralCaps2): the ring of a send queue can be in host memory.
pub const SQ_WQ_IN_HOST_MEM: Field<256> = Field::new(0x2c, 23, 23);
/// In [`GeneralCaps2`](crate::caps::general::GeneralCaps2): the data of a receive queue can have memory of its own.
pub const DATA_BUFFER_LOCKED: Field<256> = Field::new(0x2c, 22, 22);

/// In a [`RqContext`](crate::command::rq::RqContext): where its data is.
pub const DATA_BUFFER_TYPE: Field<240> = Field::new(0x00, 10, 8);
/// In a [`SqContext`](crate::command::sq::SqContext): where its ring is.
pub const WQ_BUFFER_TYPE: Field<240> = Field::new(0x00, 10, 8);

/// Of both: in the device's memory, which other things share.
pub const INTERNAL_BUFFER: u32 = 0x0;
/// Of a receive queue: in the device's memory, for it alone.
pub const LOCKED_INTERNAL_BUFFER: u32 = 0x1;
/// Of a send queue: in host memory.
pub const HOST_MEMORY: u32 = 0x1;
