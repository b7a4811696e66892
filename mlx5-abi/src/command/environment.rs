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
