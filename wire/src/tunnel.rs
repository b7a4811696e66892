//! The headers of a tunnel in front of a transport whose place is known, as a packet socket tells it of a super-frame.
//!
//! ```text
//!   Ethernet | outer IP | UDP, GRE or nothing | VXLAN, GENEVE, ... Ethernet | inner IP | TCP or UDP
//!            l3         l4                                                  inner_l3   inner_l4
//! ```
//!
//! Tunnels over UDP go by port numbers that anybody may change, so the inner IP header is found from behind: it ends where the
//! transport begins, and its length, version and protocol fit.
//!
//! Sources: RFC 2003, RFC 4213 (IP in IP), RFC 2784 and 2890 (GRE), RFC 7348 (VXLAN), RFC 8926 (GENEVE).

use std::ops::Range;

use crate::{EtherType, IpProtocol, Ipv6Header, ip, vlan};

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
        /// Destination port, which says the tunnel's kind by convention.
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
            IpProtocol::GRE => gre(head).map(|(gre, bytes)| (gre, l4 + bytes))?,
            IpProtocol::UDP => {
                let &[_, _, port_high, port_low, _, _, sum_high, sum_low, ..] = head else { return None };
                let udp = Encapsulation::Udp {
                    checksum: [sum_high, sum_low] != [0; 2],
                    port: u16::from_be_bytes([port_high, port_low]),
                };
                (udp, inner_ip(frame, bytes, l4 + 8..inner_l4, protocol)?)
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
}

/// What a GRE header is, and the bytes up to the IP header behind it.
fn gre(head: &[u8]) -> Option<(Encapsulation, usize)> {
    let &[flags, version, high, low, ..] = head else { return None };
    // Checksum, key, sequence number; nothing else of version 0 is in use.
    let words = [0x80, 0x20, 0x10].map(|bit| flags & bit != 0);
    if version & 7 != 0 || flags & 0x4f != 0 {
        return None;
    }
    let bytes = 4 + 4 * words.iter().filter(|there| **there).count();
    let ethernet = match u16::from_be_bytes([high, low]) {
        TRANSPARENT_ETHERNET => vlan::skip_tags(head.get(bytes..)?).ok()?.offset,
        _ => 0,
    };
    Some((Encapsulation::Gre { checksum: words[0] }, bytes + ethernet))
}

/// Ethernet inside GRE (RFC 1701).
const TRANSPARENT_ETHERNET: u16 = 0x6558;

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
}
