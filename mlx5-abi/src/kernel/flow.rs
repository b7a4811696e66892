//! What the driver adds to a flow rule of the common calls: which numbers of a set of counters stand where.

use std::mem::offset_of;

use super::described::described;

described! {
    /// The head of the driver's part of a rule; [`CountersData`] follow.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_flow`.
    CreateFlow = "mlx5_ib_create_flow" {
        /// How many [`CountersData`] follow: none or one, as Linux `drivers/infiniband/hw/mlx5/fs.c`, `mlx5_ib_create_flow` has it.
        ncounters_data: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () = assert!(size_of::<CreateFlow>() == 8 && offset_of!(CreateFlow, reserved) == 4);

described! {
    /// A list of [`CounterPlace`].
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_flow_counters_data`.
    CountersData = "mlx5_ib_flow_counters_data" {
        /// Address of the first.
        counters_data: u64,
        /// How many.
        ncounters: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () = assert!(size_of::<CountersData>() == 16 && offset_of!(CountersData, ncounters) == 8);

described! {
    /// Which number stands at which place when the set is read.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_flow_counters_desc`.
    CounterPlace = "mlx5_ib_flow_counters_desc" {
        /// One of [`counter`].
        description: u32,
        /// The place.
        index: u32,
    }
}

const _: () = assert!(size_of::<CounterPlace>() == 8 && offset_of!(CounterPlace, index) == 4);

/// What is counted. Source: rdma-core `libibverbs/verbs.h`, `enum ibv_counter_description`.
pub mod counter {
    /// Packets.
    pub const PACKETS: u32 = 0;
    /// Bytes.
    pub const BYTES: u32 = 1;
}
