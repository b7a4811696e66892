//! Steering: tables of groups of entries.
//!
//! A group fixes which bits of [`MatchParameters`](super::matching::MatchParameters) count; an entry gives their values
//! and what becomes of the packets.

use crate::layout::layouts;

layouts! {
    /// A table: its level (packets only go to higher ones), its size, where misses go.
    FlowTableContext = "flow_table_context" [40] {
        REFORMAT_EN: field(0x00, 31, 31),
        DECAP_EN: field(0x00, 30, 30),
        SW_OWNER: field(0x00, 29, 29),
        TERMINATION_TABLE: field(0x00, 28, 28),
        TABLE_MISS_ACTION: field(0x00, 27, 24),
        LEVEL: field(0x00, 23, 16),
        LOG_SIZE: field(0x00, 7, 0),
        TABLE_MISS_ID: field(0x04, 23, 0),
    }

    /// Context.
    CreateFlowTableIn = "create_flow_table_in" [64] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        TABLE_TYPE: field(0x10, 31, 24),
        FLOW_TABLE_CONTEXT: run(0x18, 40),
    }

    /// The number.
    CreateFlowTableOut = "create_flow_table_out" [16] {
        TABLE_ID: field(0x08, 23, 0),
    }

    /// Changes where misses go; bit 0 of the mask says so.
    ModifyFlowTableIn = "modify_flow_table_in" [64] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        MODIFY_FIELD_SELECT: field(0x0c, 15, 0),
        TABLE_TYPE: field(0x10, 31, 24),
        TABLE_ID: field(0x14, 23, 0),
        FLOW_TABLE_CONTEXT: run(0x18, 40),
    }

    /// Asks for a table's context.
    QueryFlowTableIn = "query_flow_table_in" [64] {
        TABLE_TYPE: field(0x10, 31, 24),
        TABLE_ID: field(0x14, 23, 0),
    }

    /// The context.
    QueryFlowTableOut = "query_flow_table_out" [64] {
        FLOW_TABLE_CONTEXT: run(0x18, 40),
    }

    /// Destroys a table.
    DestroyFlowTableIn = "destroy_flow_table_in" [64] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        TABLE_TYPE: field(0x10, 31, 24),
        TABLE_ID: field(0x14, 23, 0),
    }

    /// Where packets of this kind begin; op_mod 1 takes the root away.
    SetFlowTableRootIn = "set_flow_table_root_in" [64] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        TABLE_TYPE: field(0x10, 31, 24),
        TABLE_OF_OTHER_VPORT: field(0x10, 16, 16),
        TABLE_VPORT_NUMBER: field(0x10, 15, 0),
        TABLE_ID: field(0x14, 23, 0),
        UNDERLAY_QPN: field(0x18, 23, 0),
        TABLE_ESWITCH_OWNER_VHCA_ID_VALID: field(0x1c, 31, 31),
        TABLE_ESWITCH_OWNER_VHCA_ID: field(0x1c, 15, 0),
    }

    /// A run of indices with one mask; which parts of it count is a mask of [`criteria`].
    CreateFlowGroupIn = "create_flow_group_in" [1024] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        TABLE_TYPE: field(0x10, 31, 24),
        GROUP_TYPE: field(0x10, 19, 16),
        TABLE_ID: field(0x14, 23, 0),
        SOURCE_ESWITCH_OWNER_VHCA_ID_VALID: field(0x18, 31, 31),
        START_FLOW_INDEX: field(0x1c, 31, 0),
        END_FLOW_INDEX: field(0x24, 31, 0),
        MATCH_DEFINER_ID: field(0x28, 15, 0),
        MATCH_CRITERIA_ENABLE: field(0x3c, 7, 0),
        MATCH_CRITERIA: run(0x40, 512),
    }

    /// The number.
    CreateFlowGroupOut = "create_flow_group_out" [16] {
        GROUP_ID: field(0x08, 23, 0),
    }

    /// Destroys a group.
    DestroyFlowGroupIn = "destroy_flow_group_in" [64] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        TABLE_TYPE: field(0x10, 31, 24),
        TABLE_ID: field(0x14, 23, 0),
        GROUP_ID: field(0x18, 31, 0),
    }

    /// Writes an entry; destinations and then counters, [`Destination::BYTES`] bytes each, follow.
    ///
    /// op_mod 0 makes a new one, 1 changes the parts that `modify_enable_mask` names ([`modify`]).
    SetFlowEntryIn = "set_fte_in" [832] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        TABLE_TYPE: field(0x10, 31, 24),
        TABLE_ID: field(0x14, 23, 0),
        IGNORE_FLOW_LEVEL: field(0x18, 31, 31),
        MODIFY_ENABLE_MASK: field(0x18, 7, 0),
        FLOW_INDEX: field(0x20, 31, 0),
        FLOW_CONTEXT: run(0x40, 768),
    }

    /// Asks for an entry.
    QueryFlowEntryIn = "query_fte_in" [64] {
        TABLE_TYPE: field(0x10, 31, 24),
        TABLE_ID: field(0x14, 23, 0),
        FLOW_INDEX: field(0x20, 31, 0),
    }

    /// The entry.
    QueryFlowEntryOut = "query_fte_out" [832] {
        FLOW_CONTEXT: run(0x40, 768),
    }

    /// Destroys an entry.
    DeleteFlowEntryIn = "delete_fte_in" [64] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        TABLE_TYPE: field(0x10, 31, 24),
        TABLE_ID: field(0x14, 23, 0),
        FLOW_INDEX: field(0x20, 31, 0),
    }

    /// An entry; its actions are a mask of [`action`].
    FlowContext = "flow_context" [768] {
        GROUP_ID: field(0x04, 31, 0),
        FLOW_TAG: field(0x08, 23, 0),
        ACTION: field(0x0c, 15, 0),
        EXTENDED_DESTINATION: field(0x10, 31, 31),
        FLOW_SOURCE: field(0x10, 29, 28),
        DESTINATION_LIST_SIZE: field(0x10, 23, 0),
        FLOW_COUNTER_LIST_SIZE: field(0x14, 23, 0),
        PACKET_REFORMAT_ID: field(0x18, 31, 0),
        MODIFY_HEADER_ID: field(0x1c, 31, 0),
        MATCH_VALUE: run(0x40, 512),
        FIRST_VLAN as "push_vlan": field(0x00, 31, 0),
        SECOND_VLAN as "push_vlan_2": field(0x20, 31, 0),
    }

    /// A tag to push.
    Vlan = "vlan" [4] {
        ETHTYPE: field(0x00, 31, 16),
        PRIO: field(0x00, 15, 13),
        CFI: field(0x00, 12, 12),
        VID: field(0x00, 11, 0),
    }

    /// Where packets go: a [`destination`] and its number.
    Destination = "dest_format_struct" [8] {
        DESTINATION_TYPE: field(0x00, 31, 24),
        DESTINATION_ID: field(0x00, 23, 0),
        DESTINATION_ESWITCH_OWNER_VHCA_ID_VALID: field(0x04, 31, 31),
        PACKET_REFORMAT: field(0x04, 30, 30),
        DESTINATION_ESWITCH_OWNER_VHCA_ID: field(0x04, 15, 0),
    }

    /// A counter that counts them.
    FlowCounter = "flow_counter_list" [8] {
        FLOW_COUNTER_ID: field(0x00, 31, 0),
    }
}

/// `table_type`. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/fs_core.h`, `FS_FT_*`.
pub mod table {
    /// What the network card receives.
    pub const NIC_RX: u32 = 0x0;
    /// What it sends.
    pub const NIC_TX: u32 = 0x1;
    /// Leaving the embedded switch for a virtual port.
    pub const ESW_EGRESS_ACL: u32 = 0x2;
    /// Entering it from a virtual port.
    pub const ESW_INGRESS_ACL: u32 = 0x3;
    /// The embedded switch's own.
    pub const FDB: u32 = 0x4;
    /// Copies of what is received.
    pub const SNIFFER_RX: u32 = 0x5;
    /// Copies of what is sent.
    pub const SNIFFER_TX: u32 = 0x6;
    /// RDMA packets on their way in.
    pub const RDMA_RX: u32 = 0x7;
    /// RDMA packets on their way out.
    pub const RDMA_TX: u32 = 0x8;
}

/// Which parts of a match count (`match_criteria_enable`). Source: Linux `include/linux/mlx5/device.h`,
/// `MLX5_MATCH_*`.
pub mod criteria {
    /// Headers of the packet.
    pub const OUTER_HEADERS: u32 = 1 << 0;
    /// The source and tunnels.
    pub const MISC_PARAMETERS: u32 = 1 << 1;
    /// Headers inside a tunnel.
    pub const INNER_HEADERS: u32 = 1 << 2;
    /// MPLS, metadata registers.
    pub const MISC_PARAMETERS_2: u32 = 1 << 3;
    /// TCP sequence numbers, ICMP, GPE tunnels.
    pub const MISC_PARAMETERS_3: u32 = 1 << 4;
    /// Programmable samples.
    pub const MISC_PARAMETERS_4: u32 = 1 << 5;
    /// Raw tunnel headers.
    pub const MISC_PARAMETERS_5: u32 = 1 << 6;
}

/// What an entry does. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_FLOW_CONTEXT_ACTION_*`.
pub mod action {
    /// The packet may pass.
    pub const ALLOW: u32 = 0x1;
    /// The packet ends here.
    pub const DROP: u32 = 0x2;
    /// The packet goes to the destinations.
    pub const FWD_DEST: u32 = 0x4;
    /// The packet is counted.
    pub const COUNT: u32 = 0x8;
    /// A header is put in front.
    pub const PACKET_REFORMAT: u32 = 0x10;
    /// The outer header is taken off.
    pub const DECAP: u32 = 0x20;
    /// Header fields are changed.
    pub const MOD_HDR: u32 = 0x40;
    /// The VLAN tag is taken off.
    pub const VLAN_POP: u32 = 0x80;
    /// A VLAN tag is put on.
    pub const VLAN_PUSH: u32 = 0x100;
    /// A second VLAN tag is taken off.
    pub const VLAN_POP_2: u32 = 0x400;
    /// A second VLAN tag is put on.
    pub const VLAN_PUSH_2: u32 = 0x800;
}

/// Where an entry leads. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `enum mlx5_ifc_flow_destination_type`.
pub mod destination {
    /// A virtual port.
    pub const VPORT: u32 = 0x0;
    /// A table of a higher level.
    pub const FLOW_TABLE: u32 = 0x1;
    /// A TIR.
    pub const TIR: u32 = 0x2;
    /// A sampler.
    pub const FLOW_SAMPLER: u32 = 0x6;
    /// The wire.
    pub const UPLINK: u32 = 0x8;
}

/// What SET_FTE with op_mod 1 changes. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `MLX5_SET_FTE_MODIFY_ENABLE_MASK_*`.
pub mod modify {
    /// The actions.
    pub const ACTION: u32 = 1 << 0;
    /// The tag.
    pub const FLOW_TAG: u32 = 1 << 1;
    /// The destinations.
    pub const DESTINATION_LIST: u32 = 1 << 2;
    /// The counters.
    pub const FLOW_COUNTERS: u32 = 1 << 3;
}
