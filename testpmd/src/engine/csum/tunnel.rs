//! Tunnels that `csum parse-tunnel on` looks into, found from the outside in.
//!
//! ```text
//!   Ethernet | outer IP | UDP | VXLAN, VXLAN-GPE, GENEVE, GTP | [Ethernet] | inner IP | TCP, UDP, SCTP
//!                       | GRE | [Ethernet] | inner IP
//!                       | inner IP
//!            l3         l4                              inner_l3
//! ```
//!
//! Kinds and ports are those of DPDK's engine: DPDK `app/test-pmd/csumonly.c` (which looks into no MPLS). Headers: RFC 7348 (VXLAN),
//! draft-ietf-nvo3-vxlan-gpe, RFC 8926 (GENEVE), 3GPP TS 29.281 (GTP-U), RFC 2784 and 2890 (GRE), RFC 2003 and 4213 (IP in IP).

use pollux_mempool::TxFlags;
use pollux_port::TxOffloads;
use pollux_wire::ptype::{self, Parsed};
use pollux_wire::{EtherType, IpProtocol};

/// What stands between the outer IP header and what is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// UDP and the header of a tunnel over it.
    Udp,
    /// GRE; whether it has a checksum.
    Gre(bool),
    /// Nothing: IP in IP.
    Ip,
}

/// A tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunnel {
    /// As packets are marked for the port that sends.
    pub(super) kind: TxFlags,
    /// What carries the inner packet.
    pub(super) carrier: Carrier,
    /// Where the inner IP header begins.
    pub(super) inner_l3: usize,
    /// The inner layers.
    pub(super) inner: Parsed,
}

impl Tunnel {
    /// As what a port is told of it that cuts packets in tunnels of these kinds; `None`: it cuts none in this one.
    pub(super) fn cut_as(&self, kinds: TxOffloads) -> Option<TxFlags> {
        let own = match self.kind {
            TxFlags::TUNNEL_VXLAN => TxOffloads::VXLAN_TNL_TSO,
            TxFlags::TUNNEL_GENEVE => TxOffloads::GENEVE_TNL_TSO,
            TxFlags::TUNNEL_GRE => TxOffloads::GRE_TNL_TSO,
            TxFlags::TUNNEL_IPIP => TxOffloads::IPIP_TNL_TSO,
            _ => TxOffloads::empty(),
        };
        let (any, marked) = match self.carrier {
            Carrier::Udp => (TxOffloads::UDP_TNL_TSO, TxFlags::TUNNEL_UDP),
            _ => (TxOffloads::IP_TNL_TSO, TxFlags::TUNNEL_IP),
        };
        let told = kinds.intersects(own).then_some(self.kind);
        told.or_else(|| kinds.contains(any).then_some(marked))
    }
}

/// Ports: RFC 7348, IANA (`vxlan-gpe`), RFC 8926, 3GPP TS 29.281.
const VXLAN: u16 = 4789;
const VXLAN_GPE: u16 = 4790;
const GENEVE: u16 = 6081;
const GTP_CONTROL: u16 = 2123;
const GTP_USER: u16 = 2152;
/// Ethernet behind GRE and GENEVE (RFC 1701).
const TRANSPARENT_ETHERNET: EtherType = EtherType(0x6558);

/// The tunnel of a frame whose outer layers are parsed; `None` where there is none, or what it carries is not IP. Hot: headers alone are
/// read, the first segment's.
pub(super) fn find(frame: &[u8], outer: &Parsed) -> Option<Tunnel> {
    let l4 = usize::from(outer.l2_len + outer.l3_len);
    let (carrier, (kind, at, carried)) = match IpProtocol(outer.protocol) {
        IpProtocol::UDP if outer.ptype.is_udp() => (Carrier::Udp, over_udp(frame, l4)?),
        IpProtocol::GRE if outer.ptype.l4() == ptype::PacketType::L4_OTHER => {
            let (has_sum, at, carried) = gre(frame, l4)?;
            (Carrier::Gre(has_sum), (TxFlags::TUNNEL_GRE, at, carried))
        }
        IpProtocol::IPV4 | IpProtocol::IPV6 if outer.ptype.l4() == ptype::PacketType::L4_OTHER => {
            (Carrier::Ip, (TxFlags::TUNNEL_IPIP, l4, version(frame, l4)?))
        }
        _ => return None,
    };
    let packet = frame.get(at..)?;
    let inner = match carried {
        TRANSPARENT_ETHERNET => ptype::parse(packet),
        kind => ptype::parse_packet(packet, kind),
    };
    (inner.ptype.l3() != 0).then_some(Tunnel {
        kind,
        carrier,
        inner_l3: at + usize::from(inner.l2_len),
        inner,
    })
}

/// A tunnel's kind, where what it carries begins, and what that is.
type Carried = (TxFlags, usize, EtherType);

fn over_udp(frame: &[u8], l4: usize) -> Option<Carried> {
    let from = u16::from_be_bytes(*frame.get(l4..)?.first_chunk()?);
    let to = u16::from_be_bytes(*frame.get(l4 + 2..)?.first_chunk()?);
    let at = l4 + 8;
    let head = frame.get(at..)?;
    match (from, to) {
        (GTP_CONTROL, _) | (_, GTP_CONTROL | GTP_USER) => {
            let &[flags, kind, ..] = head else { return None };
            // A user's packet. With extension headers it is left alone.
            if kind != 0xff || flags & 0x04 != 0 {
                return None;
            }
            let at = at + if flags & 0x03 == 0 { 8 } else { 12 };
            Some((TxFlags::TUNNEL_GTP, at, version(frame, at)?))
        }
        (_, VXLAN_GPE) => {
            let carried = match *head.get(3)? {
                0 | 1 => EtherType::IPV4,
                2 => EtherType::IPV6,
                3 => TRANSPARENT_ETHERNET,
                _ => return None,
            };
            Some((TxFlags::TUNNEL_VXLAN_GPE, at + 8, carried))
        }
        (_, VXLAN) => Some((TxFlags::TUNNEL_VXLAN, at + 8, TRANSPARENT_ETHERNET)),
        (_, GENEVE) => {
            let &[options, _, high, low, ..] = head else { return None };
            let carried = match u16::from_be_bytes([high, low]) {
                0 => EtherType::IPV4,
                kind => EtherType(kind),
            };
            Some((TxFlags::TUNNEL_GENEVE, at + 8 + usize::from(options & 0x3f) * 4, carried))
        }
        _ => None,
    }
}

/// Whether a GRE header has a checksum, where it ends, and what it carries.
fn gre(frame: &[u8], l4: usize) -> Option<(bool, usize, EtherType)> {
    let &[flags, version, high, low] = frame.get(l4..)?.first_chunk()?;
    // Checksum, key and sequence number are known, and nothing else is in use.
    if version & 7 != 0 || flags & 0x4f != 0 {
        return None;
    }
    let words = (flags & 0xb0).count_ones() as usize;
    Some((flags & 0x80 != 0, l4 + 4 + 4 * words, EtherType(u16::from_be_bytes([high, low]))))
}

/// The type of an IP packet by its version.
fn version(frame: &[u8], at: usize) -> Option<EtherType> {
    match frame.get(at)? >> 4 {
        4 => Some(EtherType::IPV4),
        6 => Some(EtherType::IPV6),
        _ => None,
    }
}
