//! The function's port as the embedded switch sees it, RoCE addresses, partition keys.

use crate::layout::layouts;

layouts! {
    /// Asks whether the port is up.
    QueryVportStateIn = "query_vport_state_in" [16] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
    }

    /// What is, and what is wanted: states of [`state`] and [`admin`].
    QueryVportStateOut = "query_vport_state_out" [16] {
        ADMIN_STATE: field(0x0c, 7, 4),
        STATE: field(0x0c, 3, 0),
    }

    /// What is wanted.
    ModifyVportStateIn = "modify_vport_state_in" [16] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        ADMIN_STATE: field(0x0c, 7, 4),
    }

    /// Asks for the context; its address list is of an [`address_list`] kind.
    QueryNicVportContextIn = "query_nic_vport_context_in" [16] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        ALLOWED_LIST_TYPE: field(0x0c, 26, 24),
    }

    /// Context, address list after it, 8 bytes an entry.
    QueryNicVportContextOut = "query_nic_vport_context_out" [272] {
        NIC_VPORT_CONTEXT: run(0x10, 256),
    }

    /// Context, address list after it; the select mask is [`FieldSelect`].
    ModifyNicVportContextIn = "modify_nic_vport_context_in" [512] {
        OTHER_VPORT: field(0x08, 31, 31),
        VPORT_NUMBER: field(0x08, 15, 0),
        NIC_VPORT_CONTEXT: run(0x100, 256),
        FIELD_SELECT as "field_select": field(0x0c, 31, 0),
    }

    /// Which parts of the context are written.
    FieldSelect = "modify_nic_vport_field_select" [4] {
        AFFILIATION: field(0x00, 13, 13),
        DISABLE_UC_LOCAL_LB: field(0x00, 11, 11),
        DISABLE_MC_LOCAL_LB: field(0x00, 10, 10),
        NODE_GUID: field(0x00, 9, 9),
        PORT_GUID: field(0x00, 8, 8),
        MIN_INLINE: field(0x00, 7, 7),
        MTU: field(0x00, 6, 6),
        CHANGE_EVENT: field(0x00, 5, 5),
        PROMISC: field(0x00, 4, 4),
        PERMANENT_ADDRESS: field(0x00, 3, 3),
        ADDRESSES_LIST: field(0x00, 2, 2),
        ROCE_EN: field(0x00, 1, 1),
    }

    /// Addresses, MTU, filters, identifiers.
    NicVportContext = "nic_vport_context" [256] {
        MIN_WQE_INLINE_MODE: field(0x00, 26, 24),
        DISABLE_MC_LOCAL_LB: field(0x00, 2, 2),
        DISABLE_UC_LOCAL_LB: field(0x00, 1, 1),
        ROCE_EN: field(0x00, 0, 0),
        ARM_CHANGE_EVENT: field(0x04, 31, 31),
        EVENT_ON_MTU: field(0x04, 4, 4),
        EVENT_ON_PROMISC_CHANGE: field(0x04, 3, 3),
        EVENT_ON_VLAN_CHANGE: field(0x04, 2, 2),
        EVENT_ON_MC_ADDRESS_CHANGE: field(0x04, 1, 1),
        EVENT_ON_UC_ADDRESS_CHANGE: field(0x04, 0, 0),
        VHCA_ID_TYPE: field(0x08, 31, 31),
        AFFILIATION_CRITERIA: field(0x08, 19, 16),
        AFFILIATED_VHCA_ID: field(0x08, 15, 0),
        MTU: field(0x24, 15, 0),
        SYSTEM_IMAGE_GUID: wide(0x28, 63, 0),
        PORT_GUID: wide(0x30, 63, 0),
        NODE_GUID: wide(0x38, 63, 0),
        QKEY_VIOLATION_COUNTER: field(0x68, 31, 16),
        PROMISC_UC: field(0xf0, 31, 31),
        PROMISC_MC: field(0xf0, 30, 30),
        PROMISC_ALL: field(0xf0, 29, 29),
        ALLOWED_LIST_TYPE: field(0xf0, 26, 24),
        ALLOWED_LIST_SIZE: field(0xf0, 11, 0),
        PERMANENT_ADDRESS: wide(0xf4, 63, 0),
    }

    /// An entry of the list of addresses.
    MacAddress = "mac_address_layout" [8] {
        ADDRESS as "mac_addr_47_32..mac_addr_31_0": run(0x02, 6),
    }

    /// An entry of the list of VLANs.
    VlanEntry = "vlan_layout" [8] {
        VLAN: field(0x00, 11, 0),
    }

    /// Writes an entry of the address table.
    SetRoceAddressIn = "set_roce_address_in" [48] {
        ROCE_ADDRESS_INDEX: field(0x08, 31, 16),
        VHCA_PORT_NUM: field(0x08, 3, 0),
        ROCE_ADDRESS: run(0x10, 32),
    }

    /// Reads an entry of the address table.
    QueryRoceAddressIn = "query_roce_address_in" [16] {
        ROCE_ADDRESS_INDEX: field(0x08, 31, 16),
        VHCA_PORT_NUM: field(0x08, 3, 0),
    }

    /// The entry.
    QueryRoceAddressOut = "query_roce_address_out" [48] {
        ROCE_ADDRESS: run(0x10, 32),
    }

    /// A GID with the MAC, VLAN and version that belong to it.
    RoceAddress = "roce_addr_layout" [32] {
        SOURCE_L3_ADDRESS: run(0x00, 16),
        VLAN_VALID: field(0x10, 28, 28),
        VLAN_ID: field(0x10, 27, 16),
        ROCE_L3_TYPE: field(0x18, 11, 8),
        ROCE_VERSION: field(0x18, 7, 0),
        SOURCE_MAC as "source_mac_47_32..source_mac_31_0": wide(0x10, 47, 0),
    }

    /// Asks for partition keys.
    QueryHcaVportPkeyIn = "query_hca_vport_pkey_in" [16] {
        OTHER_VPORT: field(0x08, 31, 31),
        PORT_NUM: field(0x08, 19, 16),
        VPORT_NUMBER: field(0x08, 15, 0),
        PKEY_INDEX: field(0x0c, 15, 0),
    }

    /// They follow, 4 bytes each, the key in the low half.
    QueryHcaVportPkeyOut = "query_hca_vport_pkey_out" [16] {
    }
}

/// `state`. Source: Linux `include/linux/mlx5/device.h`, `VPORT_STATE_*`.
pub mod state {
    /// Down.
    pub const DOWN: u32 = 0x0;
    /// Up.
    pub const UP: u32 = 0x1;
}

/// `admin_state`. Source: Linux `include/linux/mlx5/device.h`, `MLX5_VPORT_ADMIN_STATE_*`.
pub mod admin {
    /// Down.
    pub const DOWN: u32 = 0x0;
    /// Up.
    pub const UP: u32 = 0x1;
    /// As the wire is.
    pub const AUTO: u32 = 0x2;
}

/// `allowed_list_type`. Source: Linux `include/linux/mlx5/device.h`, `MLX5_NVPRT_LIST_TYPE_*`.
pub mod address_list {
    /// Unicast addresses.
    pub const UNICAST: u32 = 0x0;
    /// Multicast addresses.
    pub const MULTICAST: u32 = 0x1;
    /// VLANs.
    pub const VLAN: u32 = 0x2;
}

/// `roce_version` of an address. Source: Linux `include/linux/mlx5/device.h`, `MLX5_ROCE_VERSION_*`.
pub mod roce_version {
    /// By Ethernet type.
    pub const V1: u32 = 0;
    /// Over UDP.
    pub const V2: u32 = 2;
}

/// `roce_l3_type` of an address. Source: Linux `include/linux/mlx5/device.h`, `MLX5_ROCE_L3_TYPE_*`.
pub mod roce_l3 {
    /// IPv4.
    pub const IPV4: u32 = 0;
    /// IPv6.
    pub const IPV6: u32 = 1;
}
