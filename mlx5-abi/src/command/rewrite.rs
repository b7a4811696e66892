//! Contexts of what steering does to packets: fields of headers that are changed, headers put in front or taken off.

use crate::layout::layouts;

layouts! {
    /// A list of changes, each a [`SetAction`], [`AddAction`] or [`CopyAction`] behind it.
    AllocModifyHeaderIn = "alloc_modify_header_context_in" [16] {
        TABLE_TYPE: field(0x0c, 31, 24),
        NUM_OF_ACTIONS: field(0x0c, 7, 0),
    }

    /// The number.
    AllocModifyHeaderOut = "alloc_modify_header_context_out" [16] {
        MODIFY_HEADER_ID: field(0x08, 31, 0),
    }

    /// Destroys a list.
    DeallocModifyHeaderIn = "dealloc_modify_header_context_in" [16] {
        MODIFY_HEADER_ID: field(0x08, 31, 0),
    }

    /// Bits of a field are these.
    SetAction = "set_action_in" [8] {
        ACTION_TYPE: field(0x00, 31, 28),
        FIELD: field(0x00, 27, 16),
        OFFSET: field(0x00, 12, 8),
        LENGTH: field(0x00, 4, 0),
        DATA: field(0x04, 31, 0),
    }

    /// This is added to a field.
    AddAction = "add_action_in" [8] {
        ACTION_TYPE: field(0x00, 31, 28),
        FIELD: field(0x00, 27, 16),
        DATA: field(0x04, 31, 0),
    }

    /// Bits of one field go to another.
    CopyAction = "copy_action_in" [8] {
        ACTION_TYPE: field(0x00, 31, 28),
        SRC_FIELD: field(0x00, 27, 16),
        SRC_OFFSET: field(0x00, 12, 8),
        LENGTH: field(0x00, 4, 0),
        DST_FIELD: field(0x04, 27, 16),
        DST_OFFSET: field(0x04, 12, 8),
    }

    /// The number of what [`place::DATA`] is about.
    AllocPacketReformatOut = "alloc_packet_reformat_context_out" [16] {
        PACKET_REFORMAT_ID: field(0x08, 31, 0),
    }

    /// Ends such a context.
    DeallocPacketReformatIn = "dealloc_packet_reformat_context_in" [16] {
        PACKET_REFORMAT_ID: field(0x08, 31, 0),
    }

    /// A header, which begins at [`place::DATA`] of it.
    PacketReformatContext = "packet_reformat_context_in" [8] {
        REFORMAT_TYPE: field(0x00, 31, 24),
        REFORMAT_DATA_SIZE: field(0x00, 9, 0),
    }
}

/// Where things stand in ALLOC_PACKET_REFORMAT_CONTEXT. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `struct mlx5_ifc_alloc_packet_reformat_context_in_bits`, `struct mlx5_ifc_packet_reformat_context_in_bits`; DPDK
/// `drivers/common/mlx5/mlx5_prm.h`, `struct mlx5_ifc_alloc_packet_reformat_context_in_bits`.
pub mod place {
    /// The context, in the command.
    pub const CONTEXT: usize = 0x1c;
    /// The header's first byte, in the context.
    pub const DATA: usize = 6;
}

/// `action_type`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_ACTION_TYPE_*`; DPDK `drivers/common/mlx5/mlx5_prm.h`,
/// `MLX5_MODIFICATION_TYPE_*`.
pub mod change {
    /// [`SetAction`](super::SetAction).
    pub const SET: u32 = 1;
    /// [`AddAction`](super::AddAction).
    pub const ADD: u32 = 2;
    /// [`CopyAction`](super::CopyAction).
    pub const COPY: u32 = 3;
}

/// `field`: of the outer headers; addresses of IPv6 in four parts from the first on. Source: Linux
/// `include/linux/mlx5/mlx5_ifc.h`, `MLX5_ACTION_IN_FIELD_OUT_*`; DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_MODI_OUT_*`.
pub mod field {
    /// Source address, first 4 bytes.
    pub const SMAC_47_16: u32 = 0x1;
    /// Source address, last 2 bytes.
    pub const SMAC_15_0: u32 = 0x2;
    /// Destination address, first 4 bytes.
    pub const DMAC_47_16: u32 = 0x4;
    /// Destination address, last 2 bytes.
    pub const DMAC_15_0: u32 = 0x5;
    /// Differentiated services.
    pub const IP_DSCP: u32 = 0x6;
    /// Flags of TCP, 9 bits.
    pub const TCP_FLAGS: u32 = 0x7;
    /// Source port of TCP.
    pub const TCP_SPORT: u32 = 0x8;
    /// Destination port of TCP.
    pub const TCP_DPORT: u32 = 0x9;
    /// Time to live of IPv4.
    pub const IP_TTL: u32 = 0xa;
    /// Source port of UDP.
    pub const UDP_SPORT: u32 = 0xb;
    /// Destination port of UDP.
    pub const UDP_DPORT: u32 = 0xc;
    /// Source address of IPv6, first of 4 parts.
    pub const SIPV6_127_96: u32 = 0xd;
    /// Destination address of IPv6, first of 4 parts.
    pub const DIPV6_127_96: u32 = 0x11;
    /// Source address of IPv4.
    pub const SIPV4: u32 = 0x15;
    /// Destination address of IPv4.
    pub const DIPV4: u32 = 0x16;
    /// Number of the first VLAN tag.
    pub const FIRST_VID: u32 = 0x17;
    /// Hop limit of IPv6.
    pub const IPV6_HOPLIMIT: u32 = 0x47;
    /// Sequence number of TCP.
    pub const TCP_SEQ_NUM: u32 = 0x59;
    /// Acknowledgement number of TCP.
    pub const TCP_ACK_NUM: u32 = 0x5b;
}

/// `reformat_type`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_REFORMAT_TYPE_*`; rdma-core
/// `providers/mlx5/mlx5_ifc.h`, `MLX5_REFORMAT_TYPE_*`.
pub mod reformat {
    /// A tunnel's headers in front of a frame.
    pub const L2_TO_L2_TUNNEL: u32 = 0x2;
    /// A tunnel's headers off, a frame's header in front of the packet.
    pub const L3_TUNNEL_TO_L2: u32 = 0x3;
    /// The frame's header off, a tunnel's in front of the packet.
    pub const L2_TO_L3_TUNNEL: u32 = 0x4;
}
