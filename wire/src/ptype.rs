//! What layers a frame has, and their lengths, found in software. The bits are DPDK's (`RTE_PTYPE_*`), so that what a NIC
//! reports and what this parser finds compare as numbers. Source: DPDK `lib/mbuf/rte_mbuf_ptype.h` at 38f72e5, which the tests
//! repeat.

use std::fmt;

use crate::{EtherHeader, EtherType, IpProtocol, Ipv4Header, Ipv6Header, TcpHeader, ipv6, vlan};

/// Layers of a frame: a number each for layer 2, 3 and 4, for the tunnel, and for the layers inside of it. Zero means unknown. The parser here
/// looks at the outer layers alone; a NIC may tell of all.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PacketType(pub u32);

impl PacketType {
    /// Nothing known.
    pub const UNKNOWN: PacketType = PacketType(0);
    /// Mask of layer 2.
    pub const L2_MASK: u32 = 0x00f;
    /// Mask of layer 3.
    pub const L3_MASK: u32 = 0x0f0;
    /// Mask of layer 4.
    pub const L4_MASK: u32 = 0xf00;
    /// Mask of the tunnel.
    pub const TUNNEL_MASK: u32 = 0x0000_f000;
    /// Mask of layer 2 inside the tunnel.
    pub const INNER_L2_MASK: u32 = 0x000f_0000;
    /// Mask of layer 3 inside the tunnel.
    pub const INNER_L3_MASK: u32 = 0x00f0_0000;
    /// Mask of layer 4 inside the tunnel.
    pub const INNER_L4_MASK: u32 = 0x0f00_0000;

    /// Layer 2: Ethernet.
    pub const L2_ETHER: u32 = 0x001;
    /// Layer 2: Ethernet with a precision time message.
    pub const L2_PTP: u32 = 0x002;
    /// Layer 2: ARP.
    pub const L2_ARP: u32 = 0x003;
    /// Layer 2: LLDP.
    pub const L2_LLDP: u32 = 0x004;
    /// Layer 2: Ethernet with a network service header. Reported by NICs; the parser does not look for it.
    pub const L2_NSH: u32 = 0x005;
    /// Layer 2: Ethernet with one VLAN tag.
    pub const L2_VLAN: u32 = 0x006;
    /// Layer 2: Ethernet with more VLAN tags.
    pub const L2_QINQ: u32 = 0x007;
    /// Layer 2: PPPoE. Reported by NICs; the parser does not look for it.
    pub const L2_PPPOE: u32 = 0x008;
    /// Layer 2: Fibre Channel over Ethernet. Reported by NICs; the parser does not look for it.
    pub const L2_FCOE: u32 = 0x009;
    /// Layer 2: MPLS. Reported by NICs; the parser does not look for it.
    pub const L2_MPLS: u32 = 0x00a;

    /// Layer 3: IPv4 without options.
    pub const L3_IPV4: u32 = 0x010;
    /// Layer 3: IPv4 with options.
    pub const L3_IPV4_OPTIONS: u32 = 0x030;
    /// Layer 3: IPv4, with options or without. Reported by NICs that do not tell.
    pub const L3_IPV4_UNCERTAIN: u32 = 0x090;
    /// Layer 3: IPv6 without extension headers.
    pub const L3_IPV6: u32 = 0x040;
    /// Layer 3: IPv6 with extension headers.
    pub const L3_IPV6_EXTENSIONS: u32 = 0x0c0;
    /// Layer 3: IPv6, with extension headers or without. Reported by NICs that do not tell.
    pub const L3_IPV6_UNCERTAIN: u32 = 0x0e0;

    /// Layer 4: TCP.
    pub const L4_TCP: u32 = 0x100;
    /// Layer 4: UDP.
    pub const L4_UDP: u32 = 0x200;
    /// Layer 4: a fragment.
    pub const L4_FRAGMENT: u32 = 0x300;
    /// Layer 4: SCTP.
    pub const L4_SCTP: u32 = 0x400;
    /// Layer 4: ICMP or ICMPv6.
    pub const L4_ICMP: u32 = 0x500;
    /// Layer 4: another protocol, unfragmented.
    pub const L4_OTHER: u32 = 0x600;
    /// Layer 4: IGMP.
    pub const L4_IGMP: u32 = 0x700;
    /// Layer 4: ESP. Reported by NICs; the parser finds [`L4_OTHER`](Self::L4_OTHER).
    pub const L4_ESP: u32 = 0x800;

    /// The layers in `mask`.
    #[inline]
    #[must_use]
    pub const fn layers(self, mask: u32) -> u32 {
        self.0 & mask
    }

    /// Whether it is a tunnelled packet.
    #[inline]
    #[must_use]
    pub const fn is_tunnel(self) -> bool {
        self.0 & (Self::TUNNEL_MASK | Self::INNER_L2_MASK | Self::INNER_L3_MASK | Self::INNER_L4_MASK) != 0
    }

    /// Layer 2 alone.
    #[must_use]
    pub fn l2(self) -> u32 {
        self.0 & Self::L2_MASK
    }

    /// Layer 3 alone.
    #[must_use]
    pub fn l3(self) -> u32 {
        self.0 & Self::L3_MASK
    }

    /// Layer 4 alone.
    #[must_use]
    pub fn l4(self) -> u32 {
        self.0 & Self::L4_MASK
    }

    /// Whether layer 3 is IPv4, with or without options.
    #[must_use]
    pub fn is_ipv4(self) -> bool {
        self.0 & Self::L3_IPV4 != 0
    }

    /// Whether layer 3 is IPv6, with or without extension headers.
    #[must_use]
    pub fn is_ipv6(self) -> bool {
        self.0 & Self::L3_IPV6 != 0
    }

    /// Whether layer 4 is TCP, its header present.
    #[must_use]
    pub fn is_tcp(self) -> bool {
        self.l4() == Self::L4_TCP
    }

    /// Whether layer 4 is UDP, its header present.
    #[must_use]
    pub fn is_udp(self) -> bool {
        self.l4() == Self::L4_UDP
    }
}

impl fmt::Display for PacketType {
    /// As DPDK's `rte_get_ptype_name`: the known layers, upper case, space between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let l2 = match self.l2() {
            Self::L2_ETHER => "L2_ETHER",
            Self::L2_PTP => "L2_ETHER_TIMESYNC",
            Self::L2_ARP => "L2_ETHER_ARP",
            Self::L2_LLDP => "L2_ETHER_LLDP",
            Self::L2_NSH => "L2_ETHER_NSH",
            Self::L2_VLAN => "L2_ETHER_VLAN",
            Self::L2_QINQ => "L2_ETHER_QINQ",
            Self::L2_PPPOE => "L2_ETHER_PPPOE",
            Self::L2_FCOE => "L2_ETHER_FCOE",
            Self::L2_MPLS => "L2_ETHER_MPLS",
            _ => "",
        };
        let l3 = match self.l3() {
            Self::L3_IPV4 => "L3_IPV4",
            Self::L3_IPV4_OPTIONS => "L3_IPV4_EXT",
            Self::L3_IPV4_UNCERTAIN => "L3_IPV4_EXT_UNKNOWN",
            Self::L3_IPV6 => "L3_IPV6",
            Self::L3_IPV6_EXTENSIONS => "L3_IPV6_EXT",
            Self::L3_IPV6_UNCERTAIN => "L3_IPV6_EXT_UNKNOWN",
            _ => "",
        };
        let l4 = match self.l4() {
            Self::L4_TCP => "L4_TCP",
            Self::L4_UDP => "L4_UDP",
            Self::L4_FRAGMENT => "L4_FRAG",
            Self::L4_SCTP => "L4_SCTP",
            Self::L4_ICMP => "L4_ICMP",
            Self::L4_OTHER => "L4_NONFRAG",
            Self::L4_IGMP => "L4_IGMP",
            Self::L4_ESP => "L4_ESP",
            _ => "",
        };
        let mut known = [l2, l3, l4].into_iter().filter(|name| !name.is_empty());
        f.write_str(known.next().unwrap_or("UNKNOWN"))?;
        known.try_for_each(|name| write!(f, " {name}"))
    }
}

impl fmt::Debug for PacketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketType(0x{:03x}: {self})", self.0)
    }
}

/// What [`parse`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Layers.
    pub ptype: PacketType,
    /// Bytes of the Ethernet header and its tags.
    pub l2_len: u16,
    /// Bytes of the IP header, options and extension headers.
    pub l3_len: u16,
    /// Bytes of the TCP, UDP, SCTP or ICMP header.
    pub l4_len: u16,
    /// What the innermost known layer carries: the IP protocol behind layer 3 (also in a fragment), 0 without layer 3.
    pub protocol: u8,
}

/// Parses `frame` from its Ethernet header on. A layer whose header is cut or malformed stays unknown, and so do those
/// above it; a fragment's layer 4 is [`PacketType::L4_FRAGMENT`] with a length of 0.
///
/// It reads headers only, so the first segment of a chain is enough. Hot: no allocation, no loop longer than the limits
/// in [`vlan::TAGS_MAX`] and [`ipv6::EXTENSIONS_MAX`].
#[must_use]
pub fn parse(frame: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    let Ok(behind) = vlan::skip_tags(frame) else {
        // Cut inside the tags: it still is an Ethernet frame if that header is whole.
        if frame.len() >= EtherHeader::BYTES {
            parsed.ptype.0 = PacketType::L2_ETHER;
            parsed.l2_len = EtherHeader::BYTES as u16;
        }
        return parsed;
    };
    parsed.l2_len = behind.offset as u16;
    parsed.ptype.0 = match (behind.tags, behind.ether_type) {
        (0, EtherType::ARP) => PacketType::L2_ARP,
        (0, EtherType::LLDP) => PacketType::L2_LLDP,
        (0, EtherType::PTP) => PacketType::L2_PTP,
        (0, _) => PacketType::L2_ETHER,
        (1, _) => PacketType::L2_VLAN,
        _ => PacketType::L2_QINQ,
    };
    parse_l3(&frame[behind.offset..], behind.ether_type, &mut parsed);
    parsed
}

/// The layers of a packet of that Ethernet type which has no Ethernet header of its own: the bytes behind such a header, or what a
/// tunnel carries. `l2_len` is 0.
#[must_use]
pub fn parse_packet(packet: &[u8], ether_type: EtherType) -> Parsed {
    let mut parsed = Parsed::default();
    parse_l3(packet, ether_type, &mut parsed);
    parsed
}

fn parse_l3(packet: &[u8], ether_type: EtherType, parsed: &mut Parsed) {
    match ether_type {
        EtherType::IPV4 => parse_ipv4(packet, parsed),
        EtherType::IPV6 => parse_ipv6(packet, parsed),
        _ => {}
    }
}

fn parse_ipv4(packet: &[u8], parsed: &mut Parsed) {
    use zerocopy::FromBytes;
    let Ok((header, _)) = Ipv4Header::ref_from_prefix(packet) else { return };
    let head = header.header_bytes();
    if header.version() != 4 || head < Ipv4Header::BYTES || head > packet.len() {
        return;
    }
    parsed.ptype.0 |=
        if head == Ipv4Header::BYTES { PacketType::L3_IPV4 } else { PacketType::L3_IPV4_OPTIONS };
    parsed.l3_len = head as u16;
    parsed.protocol = header.protocol;
    if header.is_fragment() {
        parsed.ptype.0 |= PacketType::L4_FRAGMENT;
    } else {
        parse_l4(header.protocol(), &packet[head..], parsed);
    }
}

fn parse_ipv6(packet: &[u8], parsed: &mut Parsed) {
    use zerocopy::FromBytes;
    let Ok((header, rest)) = Ipv6Header::ref_from_prefix(packet) else { return };
    if header.version() != 6 {
        return;
    }
    parsed.ptype.0 |= PacketType::L3_IPV6;
    parsed.l3_len = Ipv6Header::BYTES as u16;
    parsed.protocol = header.next_header;
    let Ok(upper) = ipv6::walk(header.next_header(), rest) else { return };
    if upper.extension_bytes != 0 {
        parsed.ptype.0 |= PacketType::L3_IPV6_EXTENSIONS;
    }
    // At most 8 headers of 2048 bytes.
    parsed.l3_len += upper.extension_bytes as u16;
    parsed.protocol = upper.protocol.0;
    if upper.fragment.is_some_and(|fragment| fragment.offset != 0 || fragment.more) {
        parsed.ptype.0 |= PacketType::L4_FRAGMENT;
    } else {
        parse_l4(upper.protocol, upper.payload, parsed);
    }
}

fn parse_l4(protocol: IpProtocol, rest: &[u8], parsed: &mut Parsed) {
    let (l4, len) = match protocol {
        IpProtocol::TCP => {
            // The header's length is in the upper half of its thirteenth byte.
            let len = rest.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
            if len < TcpHeader::BYTES {
                return;
            }
            (PacketType::L4_TCP, len)
        }
        IpProtocol::UDP => (PacketType::L4_UDP, 8),
        IpProtocol::SCTP => (PacketType::L4_SCTP, 12),
        IpProtocol::ICMP | IpProtocol::ICMPV6 => (PacketType::L4_ICMP, 8),
        IpProtocol::IGMP => (PacketType::L4_IGMP, 8),
        _ => (PacketType::L4_OTHER, 0),
    };
    if len <= rest.len() {
        parsed.ptype.0 |= l4;
        parsed.l4_len = len as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The masks as `RTE_PTYPE_*_MASK` has them, and the macro `RTE_ETH_IS_TUNNEL_PKT`.
    #[test]
    fn masks_are_those_of_dpdk() {
        let masks = [
            (PacketType::L2_MASK, 0x0000_000f),
            (PacketType::L3_MASK, 0x0000_00f0),
            (PacketType::L4_MASK, 0x0000_0f00),
            (PacketType::TUNNEL_MASK, 0x0000_f000),
            (PacketType::INNER_L2_MASK, 0x000f_0000),
            (PacketType::INNER_L3_MASK, 0x00f0_0000),
            (PacketType::INNER_L4_MASK, 0x0f00_0000),
        ];
        for (ours, dpdk) in masks {
            assert_eq!(ours, dpdk);
            assert_eq!(PacketType(dpdk).is_tunnel(), dpdk > 0xfff, "0x{dpdk:x}");
        }
        // RTE_PTYPE_ALL_MASK.
        assert_eq!(masks.iter().fold(0, |all, (mask, _)| all | mask), 0x0fff_ffff);
        let vxlan = PacketType(0x0120_3211);
        assert_eq!(
            (vxlan.layers(PacketType::TUNNEL_MASK), vxlan.layers(PacketType::L4_MASK)),
            (0x3000, 0x200)
        );
    }

    fn frame(parts: &[&[u8]]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        parts.iter().for_each(|part| frame.extend(*part));
        frame
    }

    /// `RTE_PTYPE_` and what follows, as DPDK `lib/mbuf/rte_mbuf_ptype.h` at 38f72e5 defines it, layers 2 to 4 complete.
    const DPDK: &str = "
        L2_ETHER                  0x00000001
        L2_ETHER_TIMESYNC         0x00000002
        L2_ETHER_ARP              0x00000003
        L2_ETHER_LLDP             0x00000004
        L2_ETHER_NSH              0x00000005
        L2_ETHER_VLAN             0x00000006
        L2_ETHER_QINQ             0x00000007
        L2_ETHER_PPPOE            0x00000008
        L2_ETHER_FCOE             0x00000009
        L2_ETHER_MPLS             0x0000000a
        L3_IPV4                   0x00000010
        L3_IPV4_EXT               0x00000030
        L3_IPV6                   0x00000040
        L3_IPV4_EXT_UNKNOWN       0x00000090
        L3_IPV6_EXT               0x000000c0
        L3_IPV6_EXT_UNKNOWN       0x000000e0
        L4_TCP                    0x00000100
        L4_UDP                    0x00000200
        L4_FRAG                   0x00000300
        L4_SCTP                   0x00000400
        L4_ICMP                   0x00000500
        L4_NONFRAG                0x00000600
        L4_IGMP                   0x00000700
        L4_ESP                    0x00000800";

    #[test]
    fn values_and_names_are_those_of_dpdk() {
        let mut known = std::collections::BTreeSet::new();
        for line in DPDK.trim().lines() {
            let (name, value) = line.trim().split_once(' ').unwrap();
            let value = u32::from_str_radix(value.trim().trim_start_matches("0x"), 16).unwrap();
            assert_eq!(PacketType(value).to_string(), name);
            // As the macros RTE_ETH_IS_IPV4_HDR and RTE_ETH_IS_IPV6_HDR.
            assert_eq!(PacketType(value).is_ipv4(), name.starts_with("L3_IPV4"), "{name}");
            assert_eq!(PacketType(value).is_ipv6(), name.starts_with("L3_IPV6"), "{name}");
            known.insert(value);
        }
        for layer in [PacketType::L2_MASK, PacketType::L3_MASK, PacketType::L4_MASK] {
            for value in (1..=0xfff).filter(|value| value & !layer == 0) {
                assert_eq!(PacketType(value).to_string() != "UNKNOWN", known.contains(&value), "0x{value:x}");
            }
        }
        assert_eq!((PacketType::L2_MASK, PacketType::L3_MASK, PacketType::L4_MASK), (0xf, 0xf0, 0xf00));
    }

    const V4: &[u8] = &[0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn plain_vlan_and_stacked_tcp() {
        let mut tcp = [0u8; 40];
        tcp[12] = 0xa0;
        for (tags, l2, len) in [
            (&[0x08u8, 0][..], "L2_ETHER", 14),
            (&[0x81, 0, 0, 5, 0x08, 0], "L2_ETHER_VLAN", 18),
            (&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x08, 0], "L2_ETHER_QINQ", 22),
        ] {
            let parsed = parse(&frame(&[tags, V4, &tcp]));
            assert_eq!(parsed.ptype.to_string(), format!("{l2} L3_IPV4 L4_TCP"));
            assert_eq!((parsed.l2_len, parsed.l3_len, parsed.l4_len, parsed.protocol), (len, 20, 40, 6));
            assert!(parsed.ptype.is_ipv4() && parsed.ptype.is_tcp() && !parsed.ptype.is_ipv6());
        }
        // The TCP header is cut: layer 4 stays unknown.
        let cut = parse(&frame(&[&[0x08, 0], V4, &tcp[..39]]));
        assert_eq!((cut.ptype.to_string().as_str(), cut.l4_len), ("L2_ETHER L3_IPV4", 0));
    }

    #[test]
    fn options_fragments_and_others() {
        let mut options = V4.to_vec();
        options[0] = 0x46;
        options[9] = 17;
        options.extend([0; 4 + 8]);
        assert_eq!(parse(&frame(&[&[8, 0], &options])).ptype.0, 0x231);
        assert_eq!(parse(&frame(&[&[8, 0], &options])).l3_len, 24);
        let mut fragment = V4.to_vec();
        fragment[6..8].copy_from_slice(&[0x20, 0]);
        let parsed = parse(&frame(&[&[8, 0], &fragment, &[0; 20]]));
        assert_eq!((parsed.ptype.0, parsed.l4_len, parsed.protocol), (0x311, 0, 6));
        for (protocol, bits) in [(1, 0x511), (2, 0x711), (132, 0x411), (47, 0x611)] {
            let mut packet = V4.to_vec();
            packet[9] = protocol;
            assert_eq!(parse(&frame(&[&[8, 0], &packet, &[0; 20]])).ptype.0, bits);
        }
        assert_eq!(parse(&frame(&[&[0x08, 0x06]])).ptype.0, 3);
        assert_eq!(parse(&frame(&[&[0x88, 0xcc]])).ptype.0, 4);
        assert_eq!(parse(&frame(&[&[0x88, 0xf7]])).ptype.0, 2);
        assert_eq!(parse(&frame(&[&[0x81, 0x00]])).ptype.0, 1);
        assert_eq!(parse(&[0; 13]), Parsed::default());
        assert_eq!(PacketType::UNKNOWN.to_string(), "UNKNOWN");
    }

    #[test]
    fn ipv6_with_and_without_extensions() {
        let mut ip = vec![0; 40];
        ip[0] = 0x60;
        ip[6] = 58;
        let parsed = parse(&frame(&[&[0x86, 0xdd], &ip, &[0; 8]]));
        assert_eq!((parsed.ptype.0, parsed.l3_len, parsed.l4_len), (0x541, 40, 8));
        ip[6] = 0;
        let parsed = parse(&frame(&[&[0x86, 0xdd], &ip, &[17, 1], &[0; 14], &[0; 8]]));
        assert_eq!((parsed.ptype.0, parsed.l3_len, parsed.l4_len, parsed.protocol), (0x2c1, 56, 8, 17));
        // An atomic fragment (offset 0, no more) is a whole packet.
        ip[6] = 44;
        let parsed = parse(&frame(&[&[0x86, 0xdd], &ip, &[17, 0, 0, 0, 0, 0, 0, 1], &[0; 8]]));
        assert_eq!(parsed.ptype.0, 0x2c1);
        let parsed = parse(&frame(&[&[0x86, 0xdd], &ip, &[17, 0, 0, 1, 0, 0, 0, 1], &[0; 8]]));
        assert_eq!(parsed.ptype.0, 0x3c1);
    }
}
