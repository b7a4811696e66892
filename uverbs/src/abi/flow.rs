//! Flow rules: what they match and do. Source: `rdma/ib_user_verbs.h`; the kinds: Linux `include/rdma/ib_verbs.h`,
//! `enum ib_flow_spec_type`.

use zerocopy::big_endian::{U16 as BeU16, U32 as BeU32};

use super::layout;

/// Ethernet header.
pub const ETH: u32 = 0x20;
/// IPv4 header.
pub const IPV4: u32 = 0x30;
/// IPv6 header.
pub const IPV6: u32 = 0x31;
/// ESP header.
pub const ESP: u32 = 0x34;
/// TCP header.
pub const TCP: u32 = 0x40;
/// UDP header.
pub const UDP: u32 = 0x41;
/// VXLAN header.
pub const VXLAN: u32 = 0x50;
/// GRE header.
pub const GRE: u32 = 0x51;
/// The first MPLS label.
pub const MPLS: u32 = 0x60;
/// Added to a header's kind: the one inside the tunnel.
pub const INNER: u32 = 0x100;
/// Marks.
pub const ACTION_TAG: u32 = 0x1000;
/// Drops.
pub const ACTION_DROP: u32 = 0x1001;
/// Counts.
pub const ACTION_COUNT: u32 = 0x1003;

layout! {
    /// Fields of an Ethernet header.
    EthFilter = "ib_uverbs_flow_eth_filter", 16 {
        /// Destination.
        dst_mac: [u8; 6] = 0,
        /// Source.
        src_mac: [u8; 6] = 6,
        /// Ethertype.
        ether_type: BeU16 = 12,
        /// VLAN tag.
        vlan_tag: BeU16 = 14,
    }

    /// Matches an Ethernet header.
    EthSpec = "ib_uverbs_flow_spec_eth", 40 {
        /// [`ETH`], perhaps with [`INNER`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// Values.
        val: EthFilter = 8,
        /// Bits that count.
        mask: EthFilter = 24,
    }

    /// Fields of an IPv4 header.
    Ipv4Filter = "ib_uverbs_flow_ipv4_filter", 12 {
        /// Source.
        src_ip: BeU32 = 0,
        /// Destination.
        dst_ip: BeU32 = 4,
        /// Protocol.
        proto: u8 = 8,
        /// Type of service.
        tos: u8 = 9,
        /// Time to live.
        ttl: u8 = 10,
        /// Fragment flags.
        flags: u8 = 11,
    }

    /// Matches an IPv4 header.
    Ipv4Spec = "ib_uverbs_flow_spec_ipv4", 32 {
        /// [`IPV4`], perhaps with [`INNER`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// Values.
        val: Ipv4Filter = 8,
        /// Bits that count.
        mask: Ipv4Filter = 20,
    }

    /// Fields of an IPv6 header.
    Ipv6Filter = "ib_uverbs_flow_ipv6_filter", 40 {
        /// Source.
        src_ip: [u8; 16] = 0,
        /// Destination.
        dst_ip: [u8; 16] = 16,
        /// Flow label.
        flow_label: BeU32 = 32,
        /// Next header.
        next_hdr: u8 = 36,
        /// Traffic class.
        traffic_class: u8 = 37,
        /// Hop limit.
        hop_limit: u8 = 38,
        /// Zero.
        reserved: u8 = 39,
    }

    /// Matches an IPv6 header.
    Ipv6Spec = "ib_uverbs_flow_spec_ipv6", 88 {
        /// [`IPV6`], perhaps with [`INNER`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// Values.
        val: Ipv6Filter = 8,
        /// Bits that count.
        mask: Ipv6Filter = 48,
    }

    /// Ports of TCP or UDP.
    TcpUdpFilter = "ib_uverbs_flow_tcp_udp_filter", 4 {
        /// Destination.
        dst_port: BeU16 = 0,
        /// Source.
        src_port: BeU16 = 2,
    }

    /// Matches a TCP or UDP header.
    TcpUdpSpec = "ib_uverbs_flow_spec_tcp_udp", 16 {
        /// [`TCP`] or [`UDP`], perhaps with [`INNER`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// Values.
        val: TcpUdpFilter = 8,
        /// Bits that count.
        mask: TcpUdpFilter = 12,
    }

    /// Matches a VXLAN header.
    TunnelSpec = "ib_uverbs_flow_spec_tunnel", 16 {
        /// [`VXLAN`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// Network identifier.
        val: BeU32 = 8,
        /// Bits of it that count.
        mask: BeU32 = 12,
    }

    /// Fields of an ESP header.
    EspFilter = "ib_uverbs_flow_spec_esp_filter", 8 {
        /// Security parameters index.
        spi: BeU32 = 0,
        /// Sequence number.
        seq: BeU32 = 4,
    }

    /// Matches an ESP header.
    EspSpec = "ib_uverbs_flow_spec_esp", 24 {
        /// [`ESP`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// Values.
        val: EspFilter = 8,
        /// Bits that count.
        mask: EspFilter = 16,
    }

    /// Fields of a GRE header.
    GreFilter = "ib_uverbs_flow_gre_filter", 8 {
        /// Flags and version: the header's first two bytes.
        c_ks_res0_ver: BeU16 = 0,
        /// Ethertype of what it carries.
        protocol: BeU16 = 2,
        /// Key.
        key: BeU32 = 4,
    }

    /// Matches a GRE header.
    GreSpec = "ib_uverbs_flow_spec_gre", 24 {
        /// [`GRE`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// Values.
        val: GreFilter = 8,
        /// Bits that count.
        mask: GreFilter = 16,
    }

    /// Matches the first MPLS label.
    MplsSpec = "ib_uverbs_flow_spec_mpls", 16 {
        /// [`MPLS`], perhaps with [`INNER`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// The entry of the label stack: label, traffic class, bottom of stack, time to live.
        val: BeU32 = 8,
        /// Bits of it that count.
        mask: BeU32 = 12,
    }

    /// Marks what matches.
    TagSpec = "ib_uverbs_flow_spec_action_tag", 16 {
        /// [`ACTION_TAG`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// The mark, which completions carry.
        tag_id: u32 = 8,
        /// Zero.
        reserved1: u32 = 12,
    }

    /// Drops what matches.
    DropSpec = "ib_uverbs_flow_spec_action_drop", 8 {
        /// [`ACTION_DROP`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
    }

    /// Counts what matches.
    CountSpec = "ib_uverbs_flow_spec_action_count", 16 {
        /// [`ACTION_COUNT`].
        type_: u32 = 0,
        /// Bytes of this.
        size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// The counters.
        handle: u32 = 8,
        /// Zero.
        reserved1: u32 = 12,
    }

    /// A rule; its specs follow.
    FlowAttr = "ib_uverbs_flow_attr", 16 {
        /// See [`FlowType`](super::flags::FlowType).
        type_: u32 = 0,
        /// Bytes of the specs.
        size: u16 = 4,
        /// 0 is looked at first.
        priority: u16 = 6,
        /// How many follow.
        num_of_specs: u8 = 8,
        /// Zero.
        reserved: [u8; 2] = 9,
        /// The port.
        port: u8 = 11,
        /// See [`FlowFlags`](super::flags::FlowFlags).
        flags: u32 = 12,
    }

    /// EX_CREATE_FLOW.
    CreateFlow = "ib_uverbs_create_flow", 24 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Queue pair that takes what matches.
        qp_handle: u32 = 4,
        /// The rule.
        flow_attr: FlowAttr = 8,
    }

    /// Answer of EX_CREATE_FLOW.
    CreateFlowResp = "ib_uverbs_create_flow_resp", 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// The rule.
        flow_handle: u32 = 4,
    }

    /// EX_DESTROY_FLOW.
    DestroyFlow = "ib_uverbs_destroy_flow", 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// The rule.
        flow_handle: u32 = 4,
    }
}
