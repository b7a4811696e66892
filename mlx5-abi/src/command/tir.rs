//! Where received packets go on from steering (TIR), and what a send queue's packets have in common (TIS).

use crate::layout::layouts;

layouts! {
    /// A transport interface for receive: one queue, or a hash over a table of queues.
    TirContext = "tirc" [240] {
        DISP_TYPE: field(0x04, 31, 28),
        TLS_EN: field(0x04, 27, 27),
        LRO_TIMEOUT_PERIOD_USECS: field(0x10, 27, 12),
        PACKET_MERGE_MASK: field(0x10, 11, 8),
        LRO_MAX_IP_PAYLOAD_SIZE: field(0x10, 7, 0),
        INLINE_RQN: field(0x1c, 23, 0),
        RX_HASH_SYMMETRIC: field(0x20, 31, 31),
        TUNNELED_OFFLOAD_EN: field(0x20, 29, 29),
        INDIRECT_TABLE: field(0x20, 23, 0),
        RX_HASH_FN: field(0x24, 31, 28),
        SELF_LB_BLOCK: field(0x24, 25, 24),
        TRANSPORT_DOMAIN: field(0x24, 23, 0),
        RX_HASH_TOEPLITZ_KEY: run(0x28, 40),
        RX_HASH_FIELD_SELECTOR_OUTER: field(0x50, 31, 0),
        RX_HASH_FIELD_SELECTOR_INNER: field(0x54, 31, 0),
    }

    /// Which header fields are hashed: kinds and a mask of [`hash_field`].
    HashFields = "rx_hash_field_select" [4] {
        L3_PROT_TYPE: field(0x00, 31, 31),
        L4_PROT_TYPE: field(0x00, 30, 30),
        SELECTED_FIELDS: field(0x00, 29, 0),
    }

    /// Context.
    CreateTirIn = "create_tir_in" [272] {
        CTX: run(0x20, 240),
    }

    /// The number.
    CreateTirOut = "create_tir_out" [16] {
        TIRN: field(0x08, 23, 0),
    }

    /// The mask is of [`modify`].
    ModifyTirIn = "modify_tir_in" [272] {
        TIRN: field(0x08, 23, 0),
        BITMASK: wide(0x10, 63, 0),
        CTX: run(0x20, 240),
    }

    /// Asks for a TIR's context.
    QueryTirIn = "query_tir_in" [16] {
        TIRN: field(0x08, 23, 0),
    }

    /// The context.
    QueryTirOut = "query_tir_out" [272] {
        TIR_CONTEXT: run(0x20, 240),
    }

    /// Destroys a TIR.
    DestroyTirIn = "destroy_tir_in" [16] {
        TIRN: field(0x08, 23, 0),
    }

    /// A transport interface for send.
    TisContext = "tisc" [160] {
        STRICT_LAG_TX_PORT_AFFINITY: field(0x00, 31, 31),
        TLS_EN: field(0x00, 30, 30),
        LAG_TX_PORT_AFFINITY: field(0x00, 27, 24),
        PRIO: field(0x00, 19, 16),
        TRANSPORT_DOMAIN: field(0x24, 23, 0),
        UNDERLAY_QPN: field(0x28, 23, 0),
        PD: field(0x2c, 23, 0),
    }

    /// Context.
    CreateTisIn = "create_tis_in" [192] {
        CTX: run(0x20, 160),
    }

    /// The number.
    CreateTisOut = "create_tis_out" [16] {
        TISN: field(0x08, 23, 0),
    }

    /// Changes priority or port affinity.
    ModifyTisIn = "modify_tis_in" [192] {
        TISN: field(0x08, 23, 0),
        BITMASK: wide(0x10, 63, 0),
        CTX: run(0x20, 160),
    }

    /// Asks for a TIS's context.
    QueryTisIn = "query_tis_in" [16] {
        TISN: field(0x08, 23, 0),
    }

    /// The context.
    QueryTisOut = "query_tis_out" [176] {
        TIS_CONTEXT: run(0x10, 160),
    }

    /// Destroys a TIS.
    DestroyTisIn = "destroy_tis_in" [16] {
        TISN: field(0x08, 23, 0),
    }
}

/// `disp_type`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_TIRC_DISP_TYPE_*`.
pub mod dispatch {
    /// To `inline_rqn`.
    pub const DIRECT: u32 = 0x0;
    /// By hash over `indirect_table`.
    pub const INDIRECT: u32 = 0x1;
}

/// `rx_hash_fn`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_RX_HASH_FN_*`.
pub mod hash {
    /// No hash.
    pub const NONE: u32 = 0x0;
    /// Exclusive or of the bytes, inverted.
    pub const INVERTED_XOR8: u32 = 0x1;
    /// Toeplitz with the context's key.
    pub const TOEPLITZ: u32 = 0x2;
}

/// Bits of `selected_fields`. Source: Linux `include/linux/mlx5/device.h`, `MLX5_HASH_FIELD_SEL_*`.
pub mod hash_field {
    /// Source address.
    pub const SRC_IP: u32 = 1 << 0;
    /// Destination address.
    pub const DST_IP: u32 = 1 << 1;
    /// Source port.
    pub const L4_SPORT: u32 = 1 << 2;
    /// Destination port.
    pub const L4_DPORT: u32 = 1 << 3;
    /// IPsec's index.
    pub const IPSEC_SPI: u32 = 1 << 4;
}

/// `l3_prot_type` and `l4_prot_type`. Source: Linux `include/linux/mlx5/device.h`, `MLX5_L3_PROT_TYPE_*`,
/// `MLX5_L4_PROT_TYPE_*`.
pub mod protocol {
    /// Layer 3: IPv4.
    pub const IPV4: u32 = 0;
    /// Layer 3: IPv6.
    pub const IPV6: u32 = 1;
    /// Layer 4: TCP.
    pub const TCP: u32 = 0;
    /// Layer 4: UDP.
    pub const UDP: u32 = 1;
}

/// Which TCP segments a TIR joins (`packet_merge_mask`, `lro_enable_mask` of old), and how long the result may be. Source:
/// DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_TIRC_LRO_ENABLE_MASK_*`, `drivers/net/mlx5/mlx5.h`,
/// `MLX5_LRO_SEG_CHUNK_SIZE`.
pub mod merge {
    /// Over IPv4.
    pub const IPV4_LRO: u32 = 0x1;
    /// Over IPv6.
    pub const IPV6_LRO: u32 = 0x2;
    /// `lro_max_ip_payload_size` counts in so many bytes.
    pub const SIZE_UNIT: usize = 256;
    /// Most of those.
    pub const SIZE_MAX: u32 = 0xff;
}

/// `self_lb_block`: which packets of its own transport domain a TIR takes. The field and Linux's names say the opposite.
/// Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_TIRC_SELF_LB_BLOCK_*`; for what it does
/// `drivers/net/ethernet/mellanox/mlx5/core/en_common.c`, `mlx5e_refresh_tirs`, and DPDK `drivers/net/mlx5/mlx5_devx.c`,
/// `mlx5_devx_tir_attr_set` (`lpbk_mode`).
pub mod loopback {
    /// Unicast.
    pub const ALLOW_UNICAST: u32 = 0x1;
    /// Multicast.
    pub const ALLOW_MULTICAST: u32 = 0x2;
}

/// Bits of MODIFY_TIR's mask. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `modify_tir_bitmask`; for the table DPDK
/// `drivers/common/mlx5/mlx5_prm.h`, `MLX5_MODIFY_TIR_IN_MODIFY_BITMASK_*`.
pub mod modify {
    /// Large receive offload.
    pub const LRO: u64 = 1 << 0;
    /// `indirect_table`.
    pub const INDIRECT_TABLE: u64 = 1 << 1;
    /// Function, key and fields.
    pub const HASH: u64 = 1 << 2;
    /// `self_lb_block`.
    pub const SELF_LB_EN: u64 = 1 << 4;
}
