//! The headers of a tunnel: those in front of a transport whose place is known, as a packet socket tells it of a super-frame, and those
//! behind outer headers that are parsed.
//!
//! ```text
//!   Ethernet | outer IP | UDP, GRE or nothing | VXLAN, GENEVE, ... Ethernet | inner IP | TCP or UDP
//!            l3         l4                                                  inner_l3   inner_l4
//!                       inside ──────────────────────────────────────────►   ◄─────────── around
//! ```
//!
//! Tunnels over UDP go by port numbers that anybody may change. [`Tunnel::around`] needs none of them, for it finds the inner IP header
//! from behind: it ends where the transport begins, and its length, version and protocol fit. [`Tunnel::inside`] has nothing else to go by.
//!
//! Kinds and ports that it knows are those of DPDK's engine: DPDK `app/test-pmd/csumonly.c` (which looks into no MPLS).
//!
//! Sources: RFC 2003, RFC 4213 (IP in IP), RFC 2784 and 2890 (GRE), RFC 7348 (VXLAN), draft-ietf-nvo3-vxlan-gpe, RFC 8926 (GENEVE),
//! 3GPP TS 29.281 (GTP-U).

use std::ops::Range;

use crate::ptype::{self, PacketType, Parsed};
use crate::{EtherType, IpProtocol, Ipv6Header, Layer, UdpHeader, front, ip, vlan};

/// VXLAN's UDP port. Source: RFC 7348.
pub const VXLAN_PORT: u16 = 4789;
/// VXLAN-GPE's. Source: IANA, `vxlan-gpe`.
pub const VXLAN_GPE_PORT: u16 = 4790;
/// GENEVE's. Source: RFC 8926.
pub const GENEVE_PORT: u16 = 6081;
/// GTP's, of the control plane. Source: 3GPP TS 29.060.
pub const GTP_CONTROL_PORT: u16 = 2123;
/// GTP's, of users' packets. Source: 3GPP TS 29.281.
pub const GTP_USER_PORT: u16 = 2152;

/// What stands between the outer IP header and what is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// Nothing: IP in IP.
    Ip,
    /// A GRE header.
    Gre {
        /// It has a checksum.
        checksum: bool,
    },
    /// A UDP header, and that of a tunnel behind it.
    Udp {
        /// It has a checksum, or, on its way from a local sender, a part of it.
        checksum: bool,
        /// The port that says the tunnel's kind by convention: the destination's. [`Tunnel::inside`] takes GTP's control plane by either.
        port: u16,
    },
}

/// Where a tunnel's headers stand in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// What carries the inner packet.
    pub encapsulation: Encapsulation,
    /// The outer IP header is IPv4's; else IPv6's.
    pub outer_v4: bool,
    /// Where the outer IP header begins.
    pub l3: usize,
    /// Where it ends, extension headers included.
    pub l4: usize,
    /// The inner IP header is IPv4's; else IPv6's.
    pub inner_v4: bool,
    /// Where the inner IP header begins.
    pub inner_l3: usize,
    /// Where it ends, extension headers included: where the transport begins.
    pub inner_l4: usize,
}

impl Tunnel {
    /// The tunnel of a frame of `bytes` bytes in which the transport `protocol` begins at `inner_l4`. `frame` is all of it or the part
    /// that holds the headers, from the Ethernet header on (tags allowed). `None` when that transport is not in a tunnel, or in more than one, or what stands before it makes no sense.
    #[must_use]
    pub fn around(frame: &[u8], bytes: usize, inner_l4: usize, protocol: IpProtocol) -> Option<Self> {
        let behind = vlan::skip_tags(frame).ok()?;
        let (l3, outer_v4) = (behind.offset, behind.ether_type == EtherType::IPV4);
        let (l4, carried) = ip::behind(frame, l3, behind.ether_type)?;
        let head = frame.get(l4..inner_l4)?;
        let (encapsulation, inner_l3) = match carried {
            IpProtocol::IPV4 | IpProtocol::IPV6 => (Encapsulation::Ip, l4),
            IpProtocol::GRE => {
                let (gre, bytes, carried) = gre(head)?;
                let ethernet = match carried {
                    EtherType::TRANSPARENT_ETHERNET => vlan::skip_tags(head.get(bytes..)?).ok()?.offset,
                    _ => 0,
                };
                (gre, l4 + bytes + ethernet)
            }
            IpProtocol::UDP => {
                let (udp, _) = front::<UdpHeader>(Layer::Udp, head).ok()?;
                let (checksum, port) = (udp.checksum.get() != 0, udp.dst_port.get());
                let from = l4 + UdpHeader::BYTES;
                (Encapsulation::Udp { checksum, port }, inner_ip(frame, bytes, from..inner_l4, protocol)?)
            }
            _ => return None,
        };
        let inner_v4 = frame.get(inner_l3)? >> 4 == 4;
        let inner_type = if inner_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        // A tunnel in a tunnel would need lengths mended in between.
        (ip::behind(frame, inner_l3, inner_type)? == (inner_l4, protocol)).then_some(Self {
            encapsulation,
            outer_v4,
            l3,
            l4,
            inner_v4,
            inner_l3,
            inner_l4,
        })
    }

    /// The tunnel behind the outer layers of `frame`, which [`ptype::parse`] found, and the layers of the packet in it. `None` where there
    /// is none that is known, or what it carries is not IP. Hot: headers alone are read, so the first segment is enough.
    #[must_use]
    pub fn inside(frame: &[u8], outer: &Parsed) -> Option<(Self, Parsed)> {
        let (l3, l4) = (usize::from(outer.l2_len), usize::from(outer.l2_len + outer.l3_len));
        let head = frame.get(l4..)?;
        let other = outer.ptype.l4() == PacketType::L4_OTHER;
        let (encapsulation, bytes, carried) = match IpProtocol(outer.protocol) {
            IpProtocol::UDP if outer.ptype.is_udp() => over_udp(head)?,
            IpProtocol::GRE if other => gre(head)?,
            IpProtocol::IPV4 | IpProtocol::IPV6 if other => (Encapsulation::Ip, 0, version(head)?),
            _ => return None,
        };
        let packet = head.get(bytes..)?;
        let inner = match carried {
            EtherType::TRANSPARENT_ETHERNET => ptype::parse(packet),
            kind => ptype::parse_packet(packet, kind),
        };
        let inner_l3 = l4 + bytes + usize::from(inner.l2_len);
        let tunnel = Self {
            encapsulation,
            outer_v4: outer.ptype.is_ipv4(),
            l3,
            l4,
            inner_v4: inner.ptype.is_ipv4(),
            inner_l3,
            inner_l4: inner_l3 + usize::from(inner.l3_len),
        };
        (inner.ptype.l3() != 0).then_some((tunnel, inner))
    }
}

/// A tunnel's header: what it is, its bytes, and the type of what it carries.
type Head = (Encapsulation, usize, EtherType);

fn gre(head: &[u8]) -> Option<Head> {
    let &[flags, version, high, low] = head.first_chunk()?;
    // Checksum, key, sequence number; nothing else of version 0 is in use.
    if version & 7 != 0 || flags & 0x4f != 0 {
        return None;
    }
    let words = (flags & 0xb0).count_ones() as usize;
    let carried = EtherType(u16::from_be_bytes([high, low]));
    Some((Encapsulation::Gre { checksum: flags & 0x80 != 0 }, 4 + 4 * words, carried))
}

/// A UDP header and that of a tunnel behind it, by its port.
fn over_udp(head: &[u8]) -> Option<Head> {
    let (udp, behind) = front::<UdpHeader>(Layer::Udp, head).ok()?;
    let (from, to) = (udp.src_port.get(), udp.dst_port.get());
    let port = if from == GTP_CONTROL_PORT { from } else { to };
    let (bytes, carried) = match port {
        GTP_CONTROL_PORT | GTP_USER_PORT => {
            let &[flags, kind, ..] = behind else { return None };
            // A user's packet. With extension headers it is left alone.
            if kind != 0xff || flags & 0x04 != 0 {
                return None;
            }
            let bytes = if flags & 0x03 == 0 { 8 } else { 12 };
            (bytes, version(behind.get(bytes..)?)?)
        }
        VXLAN_GPE_PORT => {
            let carried = match *behind.get(3)? {
                0 | 1 => EtherType::IPV4,
                2 => EtherType::IPV6,
                3 => EtherType::TRANSPARENT_ETHERNET,
                _ => return None,
            };
            (8, carried)
        }
        VXLAN_PORT => (8, EtherType::TRANSPARENT_ETHERNET),
        GENEVE_PORT => {
            let &[options, _, high, low, ..] = behind else { return None };
            let carried = match u16::from_be_bytes([high, low]) {
                0 => EtherType::IPV4,
                kind => EtherType(kind),
            };
            (8 + usize::from(options & 0x3f) * 4, carried)
        }
        _ => return None,
    };
    let checksum = udp.checksum.get() != 0;
    Some((Encapsulation::Udp { checksum, port }, UdpHeader::BYTES + bytes, carried))
}

/// The type of an IP packet by its version.
fn version(packet: &[u8]) -> Option<EtherType> {
    match packet.first()? >> 4 {
        4 => Some(EtherType::IPV4),
        6 => Some(EtherType::IPV6),
        _ => None,
    }
}

/// The IP header inside `place` that ends with it and has `protocol` behind it, in a frame of `bytes` bytes.
fn inner_ip(frame: &[u8], bytes: usize, place: Range<usize>, protocol: IpProtocol) -> Option<usize> {
    let Range { start: from, end } = place;
    let is_header = |&at: &usize| {
        let Some(head) = frame.get(at..) else { return false };
        let [ether_type, length] = match head {
            [version, _, high, low, ..] if version >> 4 == 4 => {
                [EtherType::IPV4.0, u16::from_be_bytes([*high, *low])]
            }
            [version, _, _, _, high, low, ..] if version >> 4 == 6 => {
                [EtherType::IPV6.0, u16::from_be_bytes([*high, *low])]
            }
            _ => return false,
        };
        let behind = if ether_type == EtherType::IPV6.0 { Ipv6Header::BYTES } else { 0 };
        // Zero stands for more than the field can say.
        let fits = length == 0 || at + behind + usize::from(length) == bytes;
        fits && ip::behind(frame, at, EtherType(ether_type)) == Some((end, protocol))
    };
    // The nearest one: what stands before it may look like one by chance.
    let nearest = (from..=end.checked_sub(20)?).rev().find(is_header)?;
    // Headers of tunnels come in whole words, of two bytes where Ethernet is among them.
    (nearest - from).is_multiple_of(2).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tci;
    use crate::build::Frame;

    #[test]
    fn what_is_no_tunnel_is_none() {
        let mut frame = vec![0; 14 + 20 + 20];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        for carried in [6, 17, 47, 4, 41, 1] {
            frame[14 + 9] = carried;
            for l4 in 0..=frame.len() + 1 {
                assert_eq!(Tunnel::around(&frame, frame.len(), l4, IpProtocol::TCP), None, "{carried} {l4}");
            }
        }
    }

    #[test]
    fn tunnels_over_udp_are_known_by_their_ports() {
        let whole = Frame::ether([4; 6], [6; 6])
            .vlan(Tci(7))
            .ipv4([192, 0, 2, 1], [192, 0, 2, 2])
            .udp(5, 6)
            .payload(b"in");
        let packet = &whole[18..];
        let vxlan: &[u8] = &[8, 0, 0, 0, 0, 0, 1, 0];
        let gtp: &[u8] = &[0x30, 0xff, 0, 30, 0, 0, 0, 1];
        let known: [(u16, u16, &[u8], &[u8]); 9] = [
            (9, VXLAN_PORT, vxlan, &whole),
            (9, VXLAN_GPE_PORT, &[12, 0, 0, 1, 0, 0, 1, 0], packet),
            (9, VXLAN_GPE_PORT, &[12, 0, 0, 3, 0, 0, 1, 0], &whole),
            (9, GENEVE_PORT, &[0, 0, 8, 0, 0, 0, 1, 0], packet),
            (9, GENEVE_PORT, &[2, 0, 0x65, 0x58, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8], &whole),
            (9, GTP_USER_PORT, gtp, packet),
            (9, GTP_USER_PORT, &[0x32, 0xff, 0, 34, 0, 0, 0, 1, 0, 5, 0, 0], packet),
            (9, GTP_CONTROL_PORT, gtp, packet),
            (GTP_CONTROL_PORT, 9, gtp, packet),
        ];
        for (from, to, head, carried) in known {
            let frame =
                Frame::ether([2; 6], [8; 6]).ipv6(1, 2).udp(from, to).payload(&[head, carried].concat());
            let (tunnel, inner) = Tunnel::inside(&frame, &ptype::parse(&frame)).expect("a tunnel");
            let inner_l3 = frame.len() - packet.len();
            let port = if from == 9 { to } else { from };
            let wanted = Tunnel {
                encapsulation: Encapsulation::Udp { checksum: true, port },
                outer_v4: false,
                l3: 14,
                l4: 54,
                inner_v4: true,
                inner_l3,
                inner_l4: inner_l3 + 20,
            };
            assert_eq!((tunnel, inner.ptype.is_udp()), (wanted, true), "{from} {to} {head:?}");
            let around = Tunnel::around(&frame, frame.len(), inner_l3 + 20, IpProtocol::UDP);
            let encapsulation = Encapsulation::Udp { checksum: true, port: to };
            assert_eq!(around, Some(Tunnel { encapsulation, ..wanted }), "{from} {to} {head:?}");
            for bytes in 0..inner_l3 + 20 {
                let cut_off = &frame[..bytes];
                assert_eq!(Tunnel::inside(cut_off, &ptype::parse(cut_off)), None, "{bytes} bytes");
            }
        }
        // Other ports; what GTP says to itself, and packets with extension headers; MPLS in VXLAN-GPE.
        let unknown: [(u16, &[u8]); 4] = [
            (9, gtp),
            (GTP_USER_PORT, &[0x30, 1]),
            (GTP_USER_PORT, &[0x34, 0xff]),
            (VXLAN_GPE_PORT, &[12, 0, 0, 5]),
        ];
        for (to, head) in unknown {
            let frame =
                Frame::ether([2; 6], [8; 6]).ipv6(1, 2).udp(9, to).payload(&[head, &[0; 6], packet].concat());
            assert_eq!(Tunnel::inside(&frame, &ptype::parse(&frame)), None, "{to} {head:?}");
        }
    }
}
