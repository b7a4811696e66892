//! What a rule matches: headers, field by field.

use crate::MacAddress;
use bitflags::bitflags;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What one header must hold, as `rte_flow_item` has it: bits of `spec` where `mask` has ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ItemMatch<T> {
    /// The values; `None`: the header must be there, whatever it holds.
    pub spec: Option<T>,
    /// The last value of a range that begins with `spec`. No port matches ranges: it must say nothing new.
    pub last: Option<T>,
    /// Which bits count; `None` takes the item's default, see the fields' types.
    pub mask: Option<T>,
}

impl<T> ItemMatch<T> {
    /// The header is there.
    #[must_use]
    pub fn any() -> Self {
        Self { spec: None, last: None, mask: None }
    }

    /// The header is there and holds `spec` in the fields that its default mask names.
    #[must_use]
    pub fn exactly(spec: T) -> Self {
        Self { spec: Some(spec), last: None, mask: None }
    }

    /// The header is there and holds `spec` where `mask` has ones.
    #[must_use]
    pub fn masked(spec: T, mask: T) -> Self {
        Self { spec: Some(spec), last: None, mask: Some(mask) }
    }
}

macro_rules! fields {
    ($(#[$doc:meta])* $name:ident default $default:expr; $($(#[$field_doc:meta])* $field:ident: $type:ty,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl $name {
            /// No bit of any field.
            pub const NONE: Self = Self { $($field: <$type as Bits>::NONE,)* };
            /// The bits that count when an item has no mask.
            pub const DEFAULT_MASK: Self = $default;
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NONE
            }
        }

        impl Fields for $name {
            const DEFAULT_MASK: Self = Self::DEFAULT_MASK;

            fn and(self, mask: &Self) -> Self {
                Self { $($field: self.$field.and(mask.$field),)* }
            }
        }
    };
}

/// A header's fields as one value.
pub(super) trait Fields: Copy + PartialEq {
    const DEFAULT_MASK: Self;
    fn and(self, mask: &Self) -> Self;
}

/// A field as bits.
trait Bits {
    const NONE: Self;
    fn and(self, mask: Self) -> Self;
}

macro_rules! bits {
    ($($number:ty)*) => {$(
        impl Bits for $number {
            const NONE: Self = 0;
            fn and(self, mask: Self) -> Self {
                self & mask
            }
        }
    )*};
}
bits!(u8 u16 u32);

impl Bits for MacAddress {
    const NONE: Self = MacAddress([0; 6]);
    fn and(self, mask: Self) -> Self {
        MacAddress(std::array::from_fn(|at| self.0[at] & mask.0[at]))
    }
}

impl Bits for Ipv4Addr {
    const NONE: Self = Ipv4Addr::UNSPECIFIED;
    fn and(self, mask: Self) -> Self {
        self & mask
    }
}

impl Bits for Ipv6Addr {
    const NONE: Self = Ipv6Addr::UNSPECIFIED;
    fn and(self, mask: Self) -> Self {
        self & mask
    }
}

const ANY_MAC: MacAddress = MacAddress([0xff; 6]);
const ANY_V4: Ipv4Addr = Ipv4Addr::BROADCAST;
const ANY_V6: Ipv6Addr = Ipv6Addr::from_bits(u128::MAX);

// The default masks are those of `rte_flow_item_*_mask` (lib/ethdev/rte_flow.h).
fields! {
    /// An Ethernet header. By default both addresses count.
    EthFields default Self { dst: ANY_MAC, src: ANY_MAC, ether_type: 0 };
    /// Destination.
    dst: MacAddress,
    /// Source.
    src: MacAddress,
    /// What follows: of an untagged frame the layer 3 protocol, of a tagged one the tag's.
    ether_type: u16,
}

fields! {
    /// A VLAN tag. By default the VLAN's number counts.
    VlanFields default Self { tci: 0x0fff, inner_type: 0 };
    /// Priority (3 bits), drop eligibility (1 bit), number (12 bits).
    tci: u16,
    /// What follows the tag.
    inner_type: u16,
}

fields! {
    /// An IPv4 header. By default both addresses count.
    Ipv4Fields default Self { src: ANY_V4, dst: ANY_V4, ..Self::NONE };
    /// Source.
    src: Ipv4Addr,
    /// Destination.
    dst: Ipv4Addr,
    /// What it carries.
    protocol: u8,
    /// Type of service: DSCP (6 bits), ECN (2 bits).
    tos: u8,
    /// Hops left.
    ttl: u8,
}

fields! {
    /// An IPv6 header. By default both addresses count.
    Ipv6Fields default Self { src: ANY_V6, dst: ANY_V6, ..Self::NONE };
    /// Source.
    src: Ipv6Addr,
    /// Destination.
    dst: Ipv6Addr,
    /// What it carries.
    next_header: u8,
    /// DSCP (6 bits), ECN (2 bits).
    traffic_class: u8,
    /// 20 bits.
    flow_label: u32,
    /// Hops left.
    hop_limit: u8,
}

fields! {
    /// A TCP header. By default both ports count.
    TcpFields default Self { src: 0xffff, dst: 0xffff, flags: 0 };
    /// Source port.
    src: u16,
    /// Destination port.
    dst: u16,
    /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN from the highest bit down.
    flags: u8,
}

fields! {
    /// A UDP header. By default both ports count.
    UdpFields default Self { src: 0xffff, dst: 0xffff };
    /// Source port.
    src: u16,
    /// Destination port.
    dst: u16,
}

fields! {
    /// A VXLAN header (RFC 7348). By default the network identifier counts.
    VxlanFields default Self { vni: 0xff_ffff };
    /// Network identifier, 24 bits.
    vni: u32,
}

fields! {
    /// A GRE header (RFC 2784, RFC 2890) without its optional fields. By default the protocol counts.
    GreFields default Self { flags: 0, protocol: 0xffff };
    /// Checksum (0x8000), key (0x2000) and sequence number (0x1000) are there; reserved bits; version (3 bits).
    flags: u16,
    /// EtherType of what it carries.
    protocol: u16,
}

fields! {
    /// The key of a GRE header that has one. By default all of it counts, as in testpmd and net/mlx5: `rte_flow.h` names no mask.
    GreKeyFields default Self { key: u32::MAX };
    /// Key.
    key: u32,
}

fields! {
    /// The first entry of an MPLS label stack (RFC 3032). By default the label counts.
    MplsFields default Self { entry: 0xffff_f000 };
    /// Label (20 bits), traffic class (3 bits), bottom of stack (1 bit), time to live (8 bits).
    entry: u32,
}

/// One header of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlowItem {
    /// Ethernet.
    Eth(ItemMatch<EthFields>),
    /// A VLAN tag.
    Vlan(ItemMatch<VlanFields>),
    /// IPv4.
    Ipv4(ItemMatch<Ipv4Fields>),
    /// IPv6.
    Ipv6(ItemMatch<Ipv6Fields>),
    /// TCP.
    Tcp(ItemMatch<TcpFields>),
    /// UDP.
    Udp(ItemMatch<UdpFields>),
    /// VXLAN, behind UDP.
    Vxlan(ItemMatch<VxlanFields>),
    /// MPLS, behind Ethernet, its tag, IP, UDP or GRE.
    Mpls(ItemMatch<MplsFields>),
    /// GRE, behind IP.
    Gre(ItemMatch<GreFields>),
    /// The key of the GRE header before it.
    GreKey(ItemMatch<GreKeyFields>),
}

bitflags! {
    /// Kinds of items.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlowItems: u32 {
        /// [`FlowItem::Eth`].
        const ETH = 1 << 0;
        /// [`FlowItem::Vlan`].
        const VLAN = 1 << 1;
        /// [`FlowItem::Ipv4`].
        const IPV4 = 1 << 2;
        /// [`FlowItem::Ipv6`].
        const IPV6 = 1 << 3;
        /// [`FlowItem::Tcp`].
        const TCP = 1 << 4;
        /// [`FlowItem::Udp`].
        const UDP = 1 << 5;
        /// [`FlowItem::Vxlan`].
        const VXLAN = 1 << 6;
        /// [`FlowItem::Mpls`].
        const MPLS = 1 << 7;
        /// [`FlowItem::Gre`].
        const GRE = 1 << 8;
        /// [`FlowItem::GreKey`].
        const GRE_KEY = 1 << 9;
    }
}

impl FlowItem {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> FlowItems {
        match self {
            Self::Eth(_) => FlowItems::ETH,
            Self::Vlan(_) => FlowItems::VLAN,
            Self::Ipv4(_) => FlowItems::IPV4,
            Self::Ipv6(_) => FlowItems::IPV6,
            Self::Tcp(_) => FlowItems::TCP,
            Self::Udp(_) => FlowItems::UDP,
            Self::Vxlan(_) => FlowItems::VXLAN,
            Self::Mpls(_) => FlowItems::MPLS,
            Self::Gre(_) => FlowItems::GRE,
            Self::GreKey(_) => FlowItems::GRE_KEY,
        }
    }

    /// DPDK's name of its kind, as testpmd takes it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Eth(_) => "eth",
            Self::Vlan(_) => "vlan",
            Self::Ipv4(_) => "ipv4",
            Self::Ipv6(_) => "ipv6",
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
            Self::Vxlan(_) => "vxlan",
            Self::Mpls(_) => "mpls",
            Self::Gre(_) => "gre",
            Self::GreKey(_) => "gre_key",
        }
    }
}
