//! What the adapter does for Ethernet frames.

use crate::layout::layouts;

layouts! {
    /// Checksums, segmentation, inline header, hashing, tunnels.
    EthernetCaps = "per_protocol_networking_offload_caps" [256] {
        CSUM_CAP: field(0x00, 31, 31),
        VLAN_CAP: field(0x00, 30, 30),
        LRO_CAP: field(0x00, 29, 29),
        LRO_PSH_FLAG: field(0x00, 28, 28),
        LRO_TIME_STAMP: field(0x00, 27, 27),
        WQE_VLAN_INSERT: field(0x00, 24, 24),
        SELF_LB_EN_MODIFIABLE: field(0x00, 23, 23),
        MAX_LSO_CAP: field(0x00, 20, 16),
        MULTI_PKT_SEND_WQE: field(0x00, 15, 14),
        WQE_INLINE_MODE: field(0x00, 13, 12),
        RSS_IND_TBL_CAP: field(0x00, 11, 8),
        REG_UMR_SQ: field(0x00, 7, 7),
        SCATTER_FCS: field(0x00, 6, 6),
        ENHANCED_MULTI_PKT_SEND_WQE: field(0x00, 5, 5),
        TUNNEL_LSO_CONST_OUT_IP_ID: field(0x00, 4, 4),
        TUNNEL_LRO_GRE: field(0x00, 3, 3),
        TUNNEL_LRO_VXLAN: field(0x00, 2, 2),
        TUNNEL_STATELESS_GRE: field(0x00, 1, 1),
        TUNNEL_STATELESS_VXLAN: field(0x00, 0, 0),
        SWP: field(0x04, 31, 31),
        SWP_CSUM: field(0x04, 30, 30),
        SWP_LSO: field(0x04, 29, 29),
        CQE_CHECKSUM_FULL: field(0x04, 28, 28),
        TUNNEL_STATELESS_GENEVE_TX: field(0x04, 27, 27),
        TUNNEL_STATELESS_MPLS_OVER_UDP: field(0x04, 26, 26),
        TUNNEL_STATELESS_MPLS_OVER_GRE: field(0x04, 25, 25),
        TUNNEL_STATELESS_VXLAN_GPE: field(0x04, 24, 24),
        TUNNEL_STATELESS_IPV4_OVER_VXLAN: field(0x04, 23, 23),
        TUNNEL_STATELESS_IP_OVER_IP: field(0x04, 22, 22),
        INSERT_TRAILER: field(0x04, 21, 21),
        TUNNEL_STATELESS_IP_OVER_IP_RX: field(0x04, 19, 19),
        TUNNEL_STATELESS_IP_OVER_IP_TX: field(0x04, 18, 18),
        MAX_VXLAN_UDP_PORTS: field(0x04, 15, 8),
        MAX_GENEVE_OPT_LEN: field(0x04, 1, 1),
        TUNNEL_STATELESS_GENEVE_RX: field(0x04, 0, 0),
        LRO_MIN_MSS_SIZE: field(0x08, 15, 0),
        LRO_TIMER_SUPPORTED_PERIODS: run(0x30, 16),
    }
}

/// Where the longest joined packet is counted from (`lro_max_msg_sz_mode`). Source: DPDK `drivers/common/mlx5/mlx5_prm.h`,
/// `MLX5_LRO_MAX_MSG_SIZE_START_FROM_*`, `mlx5_ifc_per_protocol_networking_offload_caps_bits`.
pub mod lro_size {
    use crate::field::Field;

    /// The field, which Linux's header leaves out.
    pub const MODE: Field<256> = Field::new(0x00, 26, 25);
    /// From the TCP header; else from the Ethernet header.
    pub const FROM_L4: u32 = 0x0;
}

/// `wqe_inline_mode`: who says how much header must be inline. Source: Linux `include/linux/mlx5/vport.h`,
/// `MLX5_CAP_INLINE_MODE_*`.
pub mod inline_mode {
    /// Layer 2, always.
    pub const L2: u32 = 0x0;
    /// The virtual port's context.
    pub const VPORT_CONTEXT: u32 = 0x1;
    /// Nothing need be inline.
    pub const NOT_REQUIRED: u32 = 0x2;
}

/// `min_wqe_inline_mode` of a virtual port or a send queue: the headers that must be inline. Source: Linux
/// `include/linux/mlx5/device.h`, `enum mlx5_inline_modes`.
pub mod min_inline {
    /// None.
    pub const NONE: u32 = 0;
    /// Up to layer 2, 18 bytes.
    pub const L2: u32 = 1;
    /// Up to layer 3.
    pub const IP: u32 = 2;
    /// Up to layer 4.
    pub const TCP_UDP: u32 = 3;
}
