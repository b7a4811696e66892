//! What the adapter does for RDMA: RoCE, atomics, paging on demand.

use crate::layout::layouts;

layouts! {
    /// Versions of RoCE, UDP ports, the size of the address table.
    RoceCaps = "roce_cap" [256] {
        ROCE_APM: field(0x00, 31, 31),
        SW_R_ROCE_SRC_UDP_PORT: field(0x00, 27, 27),
        FL_RC_QP_WHEN_ROCE_DISABLED: field(0x00, 26, 26),
        FL_RC_QP_WHEN_ROCE_ENABLED: field(0x00, 25, 25),
        QP_TS_FORMAT: field(0x00, 1, 0),
        L3_TYPE: field(0x10, 19, 16),
        ROCE_VERSION: field(0x10, 7, 0),
        R_ROCE_DEST_UDP_PORT: field(0x14, 15, 0),
        R_ROCE_MAX_SRC_UDP_PORT: field(0x18, 31, 16),
        R_ROCE_MIN_SRC_UDP_PORT: field(0x18, 15, 0),
        ROCE_ADDRESS_TABLE_SIZE: field(0x1c, 15, 0),
    }

    /// Which atomics, of which sizes.
    AtomicCaps = "atomic_caps" [256] {
        ATOMIC_REQ_8B_ENDIANNESS_MODE as "atomic_req_8B_endianness_mode": field(0x08, 31, 30),
        SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1 as "supported_atomic_req_8B_endianness_mode_1": field(0x08, 25, 25),
        ATOMIC_OPERATIONS: field(0x10, 15, 0),
        ATOMIC_SIZE_QP: field(0x14, 15, 0),
        ATOMIC_SIZE_DC: field(0x18, 15, 0),
    }

    /// How much memory the device lends, and where its BAR has it.
    DeviceMemoryCaps = "device_mem_cap" [256] {
        MEMIC: field(0x00, 31, 31),
        LOG_MIN_MEMIC_ALLOC_SIZE: field(0x04, 20, 16),
        LOG_MAX_MEMIC_ADDR_ALIGNMENT: field(0x04, 7, 0),
        MEMIC_BAR_START_ADDR: wide(0x08, 63, 0),
        MEMIC_BAR_SIZE: field(0x10, 31, 0),
        MAX_MEMIC_SIZE: field(0x14, 31, 0),
    }

    /// Which services may fault pages in.
    OdpCaps = "odp_cap" [256] {
        SIG: field(0x08, 31, 31),
        RC_ODP_CAPS: field(0x10, 31, 0),
        UC_ODP_CAPS: field(0x14, 31, 0),
        UD_ODP_CAPS: field(0x18, 31, 0),
        XRC_ODP_CAPS: field(0x1c, 31, 0),
        DC_ODP_CAPS: field(0x20, 31, 0),
    }

    /// Rate limits.
    QosCaps = "qos_cap" [256] {
        PACKET_PACING: field(0x00, 31, 31),
        PACKET_PACING_BURST_BOUND: field(0x00, 26, 26),
        PACKET_PACING_TYPICAL_SIZE: field(0x00, 25, 25),
        PACKET_PACING_UID: field(0x00, 20, 20),
        PACKET_PACING_MAX_RATE: field(0x08, 31, 0),
        PACKET_PACING_MIN_RATE: field(0x0c, 31, 0),
        PACKET_PACING_RATE_TABLE_SIZE: field(0x10, 15, 0),
    }
}

/// Bits of `roce_version`. Source: Linux `include/linux/mlx5/device.h`, `MLX5_ROCE_VERSION_*_CAP`.
pub mod version {
    /// By Ethernet type.
    pub const V1: u32 = 1 << 0;
    /// Over UDP.
    pub const V2: u32 = 1 << 2;
}

/// Bits of `l3_type`. Source: Linux `include/linux/mlx5/device.h`, `MLX5_ROCE_L3_TYPE_*_CAP`.
pub mod l3 {
    /// IPv4.
    pub const IPV4: u32 = 1 << 1;
    /// IPv6.
    pub const IPV6: u32 = 1 << 2;
}

/// Bits of `atomic_operations`. Source: Linux `include/linux/mlx5/driver.h`, `MLX5_ATOMIC_OPS_*`.
pub mod atomic {
    /// Compare and swap.
    pub const COMPARE_SWAP: u32 = 1 << 0;
    /// Fetch and add.
    pub const FETCH_ADD: u32 = 1 << 1;
    /// Compare and swap with masks.
    pub const EXTENDED_COMPARE_SWAP: u32 = 1 << 2;
    /// Fetch and add with masks.
    pub const EXTENDED_FETCH_ADD: u32 = 1 << 3;
    /// In `atomic_req_8B_endianness_mode`: operands in memory are in the host's order. Source: Linux
    /// `include/linux/mlx5/driver.h`, `MLX5_ATOMIC_REQ_MODE_HOST_ENDIANNESS`.
    pub const HOST_ENDIANNESS: u32 = 1;
    /// In `atomic_size_qp`: operands of 8 bytes. Source: Linux `include/linux/mlx5/device.h`,
    /// `MLX5_ATOMIC_SIZE_QP_8BYTES`.
    pub const BYTES_8: u32 = 1 << 3;
}
