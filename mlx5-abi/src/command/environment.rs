//! What went wrong around a function's vport (QUERY_VNIC_ENV).

use crate::layout::layouts;

layouts! {
    /// Asks for the counters of a vport.
    QueryVnicEnvIn = "query_vnic_env_in" [16] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
    }

    /// The counters.
    QueryVnicEnvOut = "query_vnic_env_out" [528] {
        VPORT_ENV: run(0x10, 512),
    }

    /// Counters, each there if a bit of [`GeneralCaps`](crate::caps::general::GeneralCaps) says so. What they count: Linux
    /// `Documentation/networking/devlink/mlx5.rst`, "vnic reporter".
    VnicEnvironment = "vnic_diagnostic_statistics" [512] {
        /// Queues in error now.
        TOTAL_ERROR_QUEUES: field(0x04, 31, 0),
        /// Changes to the priority of send queues.
        SEND_QUEUE_PRIORITY_UPDATE_FLOW: field(0x08, 31, 0),
        /// Packets that no flow rule wanted.
        NIC_RECEIVE_STEERING_DISCARD: wide(0x10, 63, 0),
        RECEIVE_DISCARD_VPORT_DOWN: wide(0x18, 63, 0),
        TRANSMIT_DISCARD_VPORT_DOWN: wide(0x20, 63, 0),
        /// Events that found their queue full.
        ASYNC_EQ_OVERRUN: field(0x28, 31, 0),
        COMP_EQ_OVERRUN: field(0x2c, 31, 0),
        /// Commands that were refused.
        INVALID_COMMAND: field(0x34, 31, 0),
        QUOTA_EXCEEDED_COMMAND: field(0x38, 31, 0),
        INTERNAL_RQ_OUT_OF_BUFFER: field(0x3c, 31, 0),
        /// Completion queues that ran over.
        CQ_OVERRUN: field(0x40, 31, 0),
        ETH_WQE_TOO_SMALL: field(0x44, 31, 0),
    }
}

/// Counters of packets that steering gave up, which Linux has from 6.5 on.
///
/// Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_cmd_hca_cap_bits.vnic_env_cnt_steering_fail` and
/// `mlx5_ifc_vnic_diagnostic_statistics_bits`; `drivers/net/ethernet/mellanox/mlx5/core/diag/reporter_vnic.c`.
pub mod steering_failures {
    use crate::field::{Field, Wide};

    /// In [`GeneralCaps`](crate::caps::general::GeneralCaps): they are counted.
    pub const CAP: Field<256> = Field::new(0x64, 8, 8);
    /// In a [`VnicEnvironment`](super::VnicEnvironment): packets that the function was to send.
    pub const GENERATED: Wide<512> = Wide::new(0x60, 63, 0);
    /// There: packets that it received.
    pub const HANDLED: Wide<512> = Wide::new(0x68, 63, 0);
}
