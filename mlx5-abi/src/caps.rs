//! Capabilities: what a device can do, as QUERY_HCA_CAP tells it.
//!
//! op_mod of the query is a [`kind`] in the upper bits and [`NOW`] or [`AT_MOST`] in bit 0; the answer is one of the
//! blocks of the modules here.

use crate::layout::{Layout, layouts};

pub mod ethernet;
pub mod flow_table;
pub mod general;
pub mod roce;

layouts! {
    /// Asks for capabilities.
    QueryHcaCapIn = "query_hca_cap_in" [16] {
        OTHER_FUNCTION: field(0x08, 31, 31),
        FUNCTION_ID: field(0x08, 15, 0),
    }

    /// The block; those shorter than 4096 bytes stand at its start.
    QueryHcaCapOut = "query_hca_cap_out" [4112] {
        CAPABILITY: run(0x10, 4096),
    }

    /// What of the offered is wanted, before INIT_HCA.
    SetHcaCapIn = "set_hca_cap_in" [4112] {
        OTHER_FUNCTION: field(0x08, 31, 31),
        FUNCTION_ID: field(0x08, 15, 0),
        CAPABILITY: run(0x10, 4096),
    }
}

/// What the device could do at most. Source: Linux `include/linux/mlx5/driver.h`, `HCA_CAP_OPMOD_GET_MAX`.
pub const AT_MOST: u16 = 0;

/// What it does. Source: Linux `include/linux/mlx5/driver.h`, `HCA_CAP_OPMOD_GET_CUR`.
pub const NOW: u16 = 1;

/// Kinds of capabilities. Source: Linux `include/linux/mlx5/device.h`, `enum mlx5_cap_type`.
pub mod kind {
    /// [`GeneralCaps`](super::general::GeneralCaps).
    pub const GENERAL: u16 = 0x0;
    /// [`EthernetCaps`](super::ethernet::EthernetCaps).
    pub const ETHERNET_OFFLOADS: u16 = 0x1;
    /// [`OdpCaps`](super::roce::OdpCaps).
    pub const ODP: u16 = 0x2;
    /// [`AtomicCaps`](super::roce::AtomicCaps).
    pub const ATOMIC: u16 = 0x3;
    /// [`RoceCaps`](super::roce::RoceCaps).
    pub const ROCE: u16 = 0x4;
    /// [`FlowTableNicCaps`](super::flow_table::FlowTableNicCaps).
    pub const FLOW_TABLE: u16 = 0x7;
    /// Of the embedded switch's tables.
    pub const ESWITCH_FLOW_TABLE: u16 = 0x8;
    /// Of the embedded switch.
    pub const ESWITCH: u16 = 0x9;
    /// [`QosCaps`](super::roce::QosCaps).
    pub const QOS: u16 = 0xc;
    /// Memory on the device.
    pub const DEV_MEM: u16 = 0xf;
    /// [`GeneralCaps2`](super::general::GeneralCaps2).
    pub const GENERAL_2: u16 = 0x20;
}

/// The layout of a kind's block; `None` where none is known.
#[must_use]
pub fn layout(kind: u16) -> Option<&'static Layout> {
    Some(match kind {
        kind::GENERAL => &general::GeneralCaps::LAYOUT,
        kind::GENERAL_2 => &general::GeneralCaps2::LAYOUT,
        kind::ETHERNET_OFFLOADS => &ethernet::EthernetCaps::LAYOUT,
        kind::ODP => &roce::OdpCaps::LAYOUT,
        kind::ATOMIC => &roce::AtomicCaps::LAYOUT,
        kind::ROCE => &roce::RoceCaps::LAYOUT,
        kind::FLOW_TABLE => &flow_table::FlowTableNicCaps::LAYOUT,
        kind::QOS => &roce::QosCaps::LAYOUT,
        kind::DEV_MEM => &roce::DeviceMemoryCaps::LAYOUT,
        _ => return None,
    })
}

/// op_mod of a query.
#[must_use]
pub const fn op_mod(kind: u16, when: u16) -> u16 {
    kind << 1 | when & 1
}
