//! Structures and values that attributes of the driver's calls carry.

use std::mem::offset_of;

use super::described::described;

described! {
    /// Head of what is read from a file of asynchronous commands; the answer follows.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`, `struct mlx5_ib_uapi_devx_async_cmd_hdr`.
    AsyncCommand = "mlx5_ib_uapi_devx_async_cmd_hdr" {
        /// What the user called the command.
        wr_id: u64,
    }
}

const _: () = assert!(size_of::<AsyncCommand>() == 8 && offset_of!(AsyncCommand, wr_id) == 0);

described! {
    /// Head of what is read from a file of device events; the event entry may follow.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`, `struct mlx5_ib_uapi_devx_async_event_hdr`.
    AsyncEvent = "mlx5_ib_uapi_devx_async_event_hdr" {
        /// What the user called the subscription.
        cookie: u64,
    }
}

const _: () = assert!(size_of::<AsyncEvent>() == 8 && offset_of!(AsyncEvent, cookie) == 0);

described! {
    /// A steering register's value.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`, `struct mlx5_ib_uapi_reg`.
    Register = "mlx5_ib_uapi_reg" {
        /// The value.
        value: u32,
        /// Which bits of it count.
        mask: u32,
    }
}

const _: () = assert!(size_of::<Register>() == 8 && offset_of!(Register, mask) == 4);

described! {
    /// Facts about a port.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`, `struct mlx5_ib_uapi_query_port`.
    QueryPort = "mlx5_ib_uapi_query_port" {
        /// Which of them count.
        flags: u64,
        /// The virtual port.
        vport: u16,
        /// Its function.
        vport_vhca_id: u16,
        /// The function that owns the embedded switch.
        esw_owner_vhca_id: u16,
        /// Reserved.
        reserved0: u16,
        /// Where its receive steering stands.
        vport_steering_icm_rx: u64,
        /// Where its send steering stands.
        vport_steering_icm_tx: u64,
        /// The register that names it.
        reg_c0: Register,
    }
}

const _: () = assert!(size_of::<QueryPort>() == 40 && offset_of!(QueryPort, reg_c0) == 32);

/// What a UAR page is for. Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`, `enum mlx5_ib_uapi_uar_alloc_type`.
pub mod uar_type {
    /// Write combining, for BlueFlame.
    pub const BF: u64 = 0;
    /// Not cached, for doorbells alone.
    pub const NC: u64 = 1;
}

/// Tables of flow matchers. Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`, `enum mlx5_ib_uapi_flow_table_type`.
pub mod flow_table {
    /// What is received.
    pub const NIC_RX: u64 = 0;
    /// What is sent.
    pub const NIC_TX: u64 = 1;
    /// The embedded switch.
    pub const FDB: u64 = 2;
    /// RDMA packets received.
    pub const RDMA_RX: u64 = 3;
    /// RDMA packets sent.
    pub const RDMA_TX: u64 = 4;
}

/// What becomes of a packet's headers. Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`,
/// `enum mlx5_ib_uapi_flow_action_packet_reformat_type`; Linux `include/uapi/rdma/mlx5_user_ioctl_verbs.h`, the same.
pub mod packet_reformat {
    /// A tunnel's headers off.
    pub const L2_TUNNEL_TO_L2: u64 = 0;
    /// A tunnel's headers in front of a frame.
    pub const L2_TO_L2_TUNNEL: u64 = 1;
    /// A tunnel's headers off, a frame's header in front of the packet.
    pub const L3_TUNNEL_TO_L2: u64 = 2;
    /// The frame's header off, a tunnel's in front of the packet.
    pub const L2_TO_L3_TUNNEL: u64 = 3;
}

/// Kinds of device memory. Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`, `enum mlx5_ib_uapi_dm_type`.
pub mod device_memory {
    /// Memory for users.
    pub const MEMIC: u64 = 0;
    /// Of steering.
    pub const STEERING_SW_ICM: u64 = 1;
    /// Of header changes.
    pub const HEADER_MODIFY_SW_ICM: u64 = 2;
    /// Of their patterns.
    pub const HEADER_MODIFY_PATTERN_SW_ICM: u64 = 3;
}

/// Of a file of device events. Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_verbs.h`, `enum mlx5_ib_uapi_devx_create_event_channel_flags`.
pub mod event_channel {
    /// Heads only.
    pub const OMIT_DATA: u32 = 1 << 0;
}
