//! A rule as a driver sees it: checked, masked, without contradiction.

use super::{
    EthFields, FlowRss, GreFields, GreKeyFields, Ipv4Fields, Ipv6Fields, MplsFields, TcpFields, UdpFields,
    VlanFields, VxlanFields,
};
use crate::QueueId;

/// What a header must hold: `spec` has no bit outside `mask`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Masked<T> {
    /// Values.
    pub spec: T,
    /// Bits that count; none: the header must be there.
    pub mask: T,
}

/// Layer 3 of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum L3 {
    /// Whatever.
    #[default]
    Any,
    /// IPv4.
    Ipv4(Masked<Ipv4Fields>),
    /// IPv6.
    Ipv6(Masked<Ipv6Fields>),
}

/// Layer 4 of a pattern; there is a layer 3 then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum L4 {
    /// Whatever.
    #[default]
    Any,
    /// TCP.
    Tcp(Masked<TcpFields>),
    /// UDP.
    Udp(Masked<UdpFields>),
}

/// Headers of layers 2 to 4, from the outside in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Headers {
    /// Ethernet. All zero where the rule did not speak of it.
    pub eth: Masked<EthFields>,
    /// A VLAN tag must be there.
    pub vlan: Option<Masked<VlanFields>>,
    /// Layer 3.
    pub l3: L3,
    /// Layer 4.
    pub l4: L4,
}

/// The tunnel's header behind the outer headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tunnel {
    /// Whatever.
    #[default]
    Any,
    /// VXLAN; layer 4 is UDP then.
    Vxlan(Masked<VxlanFields>),
    /// GRE; there is a layer 3 and no layer 4 then.
    Gre {
        /// The header.
        gre: Masked<GreFields>,
        /// It has a key.
        key: Option<Masked<GreKeyFields>>,
        /// It carries an MPLS label stack, whose first entry this is.
        label: Option<Masked<MplsFields>>,
    },
    /// The first entry of an MPLS label stack, behind the innermost of the outer headers: UDP, layer 3 or Ethernet.
    Mpls(Masked<MplsFields>),
}

/// All that a rule matches. What a header says of the one behind it is filled in where the rule left it open, in headers of
/// tunnels and in front of them: UDP's destination port, GRE's protocol, the type of Ethernet or a tag in front of MPLS. The
/// protocol of IP, and types in front of IP, are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The outer headers.
    pub outer: Headers,
    /// Their tunnel.
    pub tunnel: Tunnel,
    /// The headers that the tunnel carries; `None`: whatever.
    pub inner: Option<Headers>,
}

impl From<Headers> for Pattern {
    /// No tunnel.
    fn from(outer: Headers) -> Self {
        Self { outer, ..Self::default() }
    }
}

/// Where a packet goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowFate {
    /// To a queue, which is configured.
    Queue(QueueId),
    /// Over queues, which are configured. Fields and key are as the rule gave them.
    Rss(FlowRss),
    /// Nowhere.
    Drop,
    /// To another group, which there is.
    Jump(u32),
    /// To the rules behind.
    PassThru,
}

/// A rule as a driver sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowPlan {
    /// Below [`FlowInfo::groups`](super::FlowInfo::groups).
    pub group: u32,
    /// Below [`FlowInfo::priorities`](super::FlowInfo::priorities).
    pub priority: u32,
    /// What it matches.
    pub pattern: Pattern,
    /// Where packets go.
    pub fate: FlowFate,
    /// Their mark, at most [`FlowInfo::mark_max`](super::FlowInfo::mark_max).
    pub mark: Option<u32>,
    /// They are flagged.
    pub flag: bool,
    /// They are counted.
    pub count: bool,
}
