//! Flow rules: which received packets, and what becomes of them.
//!
//! A rule is a pattern of headers and a list of actions, as in DPDK's `rte_flow`:
//!
//! ```
//! use pollux_port::QueueId;
//! use pollux_port::flow::{FlowAction, FlowItem, FlowRule, Ipv4Fields, ItemMatch, UdpFields};
//!
//! // IPv4 to 10.0.0.1, UDP port 53: marked, counted, to queue 1.
//! let dst = Ipv4Fields { dst: [10, 0, 0, 1].into(), ..Ipv4Fields::default() };
//! let rule = FlowRule::new()
//!     .item(FlowItem::Eth(ItemMatch::any()))
//!     .item(FlowItem::Ipv4(ItemMatch::masked(dst, Ipv4Fields { dst: [255; 4].into(), ..Ipv4Fields::default() })))
//!     .item(FlowItem::Udp(ItemMatch::masked(UdpFields { src: 0, dst: 53 }, UdpFields { src: 0, dst: 0xffff })))
//!     .action(FlowAction::Mark(7))
//!     .action(FlowAction::Count)
//!     .action(FlowAction::Queue(QueueId(1)));
//! # let _ = rule;
//! ```
//!
//! [`Port::flow_create`](crate::Port::flow_create) checks a rule against what the port has and against itself
//! and turns it into a [`FlowPlan`], the form in which a driver sees it: values masked, one fate, no contradiction. Rules
//! belong to the port and are named by [`FlowHandle`]s; they stay over stop and start, and go with a new configuration, a
//! reset or the port.
//!
//! A pattern may go through one tunnel: `eth / ipv4 / udp / vxlan / eth / ipv4`. `vxlan` stands behind `udp`, `gre` behind `ipv4` or `ipv6`,
//! `gre_key` behind `gre`, `mpls` behind `eth`, `vlan`, `ipv4`, `ipv6`, `udp`, `gre` or `gre_key`; behind any of these the inner headers begin anew.
//! Where a rule leaves open what tells that the tunnel's header is there, it is filled in: UDP's destination port is VXLAN's 4789
//! (RFC 7348, section 5) or MPLS' 6635 (RFC 7510, section 3), and GRE's protocol is that of the item behind it.
//!
//! Of two rules that match, the one of the smaller group number and then of the smaller priority number wins; of equals,
//! either: the driver's documentation may say more. Packets that no rule matches take the way they would without rules, unless the port is isolated.
mod action;
pub(crate) mod check;
mod item;
mod part;
mod pattern;
mod plan;

pub use action::{FlowAction, FlowActions, FlowRss};
pub use item::{
    EthFields, FlowItem, FlowItems, GreFields, GreKeyFields, Ipv4Fields, Ipv6Fields, ItemMatch, MplsFields,
    TcpFields, UdpFields, VlanFields, VxlanFields,
};
pub use part::FlowPart;
pub use plan::{FlowFate, FlowPlan, Headers, L3, L4, Masked, Pattern, Tunnel};

use crate::PortId;
use std::fmt;

/// Attributes of a flow rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowAttributes {
    /// Group. Lookup starts in group 0 and continues in others by jumps.
    pub group: u32,
    /// Priority; 0 is the highest.
    pub priority: u32,
    /// Applies to received packets.
    pub ingress: bool,
    /// Applies to transmitted packets.
    pub egress: bool,
    /// Applies to the switch between ports.
    pub transfer: bool,
}

impl Default for FlowAttributes {
    /// Received packets, group 0, highest priority.
    fn default() -> Self {
        Self { group: 0, priority: 0, ingress: true, egress: false, transfer: false }
    }
}

/// A flow rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRule {
    /// Where it stands.
    pub attributes: FlowAttributes,
    /// What it matches, from the outside in. Empty: every packet.
    pub pattern: Vec<FlowItem>,
    /// Actions on matching packets: exactly one fate action, and any others.
    pub actions: Vec<FlowAction>,
}

impl FlowRule {
    /// Creates a rule without pattern and actions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a pattern item.
    #[must_use]
    pub fn item(mut self, item: FlowItem) -> Self {
        self.pattern.push(item);
        self
    }

    /// Appends an action.
    #[must_use]
    pub fn action(mut self, action: FlowAction) -> Self {
        self.actions.push(action);
        self
    }

    /// Sets the group.
    #[must_use]
    pub fn group(mut self, group: u32) -> Self {
        self.attributes.group = group;
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: u32) -> Self {
        self.attributes.priority = priority;
        self
    }
}

/// Flow rule capabilities of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowInfo {
    /// Groups, from 0.
    pub groups: u32,
    /// Priorities, from 0.
    pub priorities: u32,
    /// Kinds of items.
    pub items: FlowItems,
    /// Kinds of actions.
    pub actions: FlowActions,
    /// Largest mark.
    pub mark_max: u32,
}

/// Identifies a flow rule of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowHandle {
    pub(crate) port: PortId,
    pub(crate) number: u64,
}

impl fmt::Display for FlowHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

/// Counter of a rule with [`FlowAction::Count`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes, as the device counts them.
    pub bytes: u64,
}
