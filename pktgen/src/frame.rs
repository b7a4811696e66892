//! One packet of one size, laid out: bytes with types and lengths, where its headers stand, and what its checksums cover.

use std::ops::Range;

use pollux_wire::MacAddress;
use pollux_wire::checksum::Sum;

use crate::layer::{Field, Layer};
use crate::packet::Packet;

/// Bytes of the frame check sequence, which the port adds.
pub(crate) const FCS: usize = 4;

/// A checksum and what it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// Where it stands.
    pub(crate) at: usize,
    /// The bytes that are summed, its own among them.
    pub(crate) over: Range<usize>,
    /// The addresses of the pseudo-header.
    pub(crate) addresses: Range<usize>,
    /// The rest of the pseudo-header: protocol and length.
    pub(crate) pseudo: u32,
    /// 0 means none, so that 0xffff stands for it (UDP).
    pub(crate) zero_is_none: bool,
}

impl Coverage {
    /// Whether it depends on the byte at that place.
    pub(crate) fn covers(&self, at: usize) -> bool {
        self.over.contains(&at) || self.addresses.contains(&at)
    }

    /// The sum of what it covers in `bytes`, in which it is zero itself.
    pub(crate) fn sum(&self, bytes: &[u8]) -> u32 {
        let part = |range: &Range<usize>| u32::from(Sum::of(&bytes[range.clone()]).fold());
        part(&self.over) + part(&self.addresses) + self.pseudo
    }

    /// The checksum of that sum.
    #[inline(always)]
    pub(crate) fn finish(sum: u32, zero_is_none: bool) -> u16 {
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !(sum as u16);
        if zero_is_none && checksum == 0 { 0xffff } else { checksum }
    }
}

/// A frame without its check sequence.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) bytes: Vec<u8>,
    /// Where each header of the packet begins.
    pub(crate) offsets: Vec<usize>,
    /// Bytes of headers and of the payload that was given.
    pub(crate) said: usize,
    /// Inner ones first: an outer one covers them.
    pub(crate) coverages: Vec<Coverage>,
}

/// Writes `bits` bits of `value` at a bit of `bytes`.
pub(crate) fn put_bits(bytes: &mut [u8], bit: usize, bits: usize, value: u128) {
    for place in 0..bits {
        let (at, mask) = ((bit + place) / 8, 0x80 >> ((bit + place) % 8));
        let one = value >> (bits - 1 - place) & 1 == 1;
        bytes[at] = if one { bytes[at] | mask } else { bytes[at] & !mask };
    }
}

impl Layout {
    /// A frame of `size` bytes, its check sequence counted; `source` is the source of its outer Ethernet header where the packet names none.
    pub(crate) fn new(packet: &Packet, size: usize, source: MacAddress) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(size);
        let mut offsets = Vec::new();
        for header in &packet.headers {
            offsets.push(bytes.len());
            bytes.extend_from_slice(header.layer.bytes());
        }
        bytes.extend_from_slice(&packet.payload);
        let said = bytes.len();
        if size < said + FCS {
            return Err(format!(
                "size {size} is too small: headers and payload of {said} bytes and the FCS need {} bytes",
                said + FCS
            ));
        }
        bytes.resize(size - FCS, 0);
        for (at, offset) in offsets.iter().enumerate() {
            if packet.headers[at].layer == Layer::Ether {
                bytes[offset + 6..offset + 12].copy_from_slice(&source.0);
            }
        }
        let mut layout = Self { bytes, offsets, said, coverages: Vec::new() };
        layout.announce(packet);
        layout.set_fields(packet);
        layout.measure(packet)?;
        layout.find_coverages(packet);
        for at in 0..layout.coverages.len() {
            layout.complete(at);
        }
        Ok(layout)
    }

    /// Says in each header what the next one is.
    fn announce(&mut self, packet: &Packet) {
        for (pair, &at) in packet.headers.windows(2).zip(&self.offsets) {
            let (layer, next) = (pair[0].layer, pair[1].layer);
            let (ether_type, protocol) = (next.ether_type().unwrap_or(0), next.protocol().unwrap_or(0));
            match layer {
                Layer::Ether => put(&mut self.bytes, at + 12, ether_type),
                Layer::Vlan | Layer::Qinq | Layer::Gre | Layer::GreKey => {
                    put(&mut self.bytes, at + 2, ether_type)
                }
                Layer::Ipv4 => self.bytes[at + 9] = protocol,
                Layer::Ipv6 => self.bytes[at + 6] = protocol,
                // Ports by which tunnels are known (IANA).
                Layer::Udp => put(&mut self.bytes, at + 2, if next == Layer::Vxlan { 4789 } else { 2152 }),
                _ => {}
            }
        }
        for (number, (header, &at)) in packet.headers.iter().zip(&self.offsets).enumerate() {
            let last = packet.headers.len() == number + 1;
            match header.layer {
                // Bottom of the stack.
                Layer::Mpls if last || packet.headers[number + 1].layer != Layer::Mpls => {
                    self.bytes[at + 2] |= 1;
                }
                // Nobody's: the local experimental EtherType (IEEE 802), and no next header (RFC 8200).
                Layer::Ether if last => put(&mut self.bytes, at + 12, 0x88b5),
                Layer::Vlan | Layer::Qinq if last => put(&mut self.bytes, at + 2, 0x88b5),
                Layer::Ipv4 if last => self.bytes[at + 9] = 253,
                Layer::Ipv6 if last => self.bytes[at + 6] = 59,
                _ => {}
            }
        }
    }

    fn set_fields(&mut self, packet: &Packet) {
        for (header, &at) in packet.headers.iter().zip(&self.offsets) {
            for (field, values) in &header.settings {
                if !is_switch(header.layer, field) {
                    put_bits(&mut self.bytes[at..], field.bit, field.bits, values.first());
                }
            }
        }
    }

    /// Writes the lengths. Each header's packet reaches to the end of the frame.
    fn measure(&mut self, packet: &Packet) -> Result<(), String> {
        for (header, at) in packet.headers.iter().zip(self.offsets.clone()) {
            let bytes = self.bytes.len() - at;
            let (place, bytes) = match header.layer {
                Layer::Ipv4 => (at + 2, bytes),
                Layer::Ipv6 => (at + 4, bytes - 40),
                Layer::Udp => (at + 4, bytes),
                Layer::Gtpu => (at + 2, bytes - 8),
                _ => continue,
            };
            let bytes = u16::try_from(bytes)
                .map_err(|_| format!("{bytes} bytes are too many for a packet of {}: 65535", header.layer))?;
            put(&mut self.bytes, place, bytes);
        }
        Ok(())
    }

    fn find_coverages(&mut self, packet: &Packet) {
        let end = self.bytes.len();
        let mut ip: Option<(Layer, usize)> = None;
        for (number, (header, &at)) in packet.headers.iter().zip(&self.offsets).enumerate() {
            // Addresses of a pseudo-header, and the protocol in it.
            let pseudo = |protocol: u8| match ip {
                Some((Layer::Ipv4, ip)) => (ip + 12..ip + 20, u32::from(protocol) + (end - at) as u32),
                Some((_, ip)) => (ip + 8..ip + 40, u32::from(protocol) + (end - at) as u32),
                None => (0..0, 0),
            };
            let (place, over, (addresses, pseudo)) = match header.layer {
                Layer::Ipv4 => (at + 10, at..at + 20, (0..0, 0)),
                Layer::Udp => (at + 6, at..end, pseudo(17)),
                Layer::Tcp => (at + 16, at..end, pseudo(6)),
                Layer::Icmp => (at + 2, at..end, (0..0, 0)),
                Layer::Icmpv6 => (at + 2, at..end, pseudo(58)),
                _ => (0, 0..0, (0..0, 0)),
            };
            // Over IPv4 a tunnel goes without a checksum (RFC 7348), unless one is asked for.
            let next = packet.headers.get(number + 1).map(|next| next.layer);
            let in_v4 = matches!(ip, Some((Layer::Ipv4, _)));
            let usual = !(in_v4 && matches!(next, Some(Layer::Vxlan | Layer::Gtpu)));
            let switch = header.settings.iter().find(|(field, _)| is_switch(header.layer, field));
            let wanted = switch.map_or(usual, |(_, values)| values.first() == 1);
            if !over.is_empty() && (header.layer != Layer::Udp || wanted) {
                let zero_is_none = header.layer == Layer::Udp;
                self.coverages.push(Coverage { at: place, over, addresses, pseudo, zero_is_none });
            }
            if matches!(header.layer, Layer::Ipv4 | Layer::Ipv6) {
                ip = Some((header.layer, at));
            }
        }
        self.coverages.reverse();
    }

    /// Writes a checksum.
    pub(crate) fn complete(&mut self, number: usize) {
        let Coverage { at, zero_is_none, .. } = self.coverages[number];
        put(&mut self.bytes, at, 0);
        let checksum = Coverage::finish(self.coverages[number].sum(&self.bytes), zero_is_none);
        put(&mut self.bytes, at, checksum);
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Whether a field is no part of the header, but says whether there is a checksum.
pub(crate) fn is_switch(layer: Layer, field: &Field) -> bool {
    layer == Layer::Udp && field.name == "sum"
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);

    fn frame(text: &str, size: usize) -> Vec<u8> {
        let packet: Packet = text.parse().expect("a packet");
        Layout::new(&packet, size, SOURCE).expect("a frame").bytes
    }

    #[test]
    fn bits_are_put_where_they_belong() {
        let mut bytes = [0xff; 4];
        put_bits(&mut bytes, 4, 12, 0x123);
        assert_eq!(bytes, [0xf1, 0x23, 0xff, 0xff]);
        put_bits(&mut bytes, 0, 20, 0xabcde);
        assert_eq!(bytes, [0xab, 0xcd, 0xef, 0xff]);
    }

    #[test]
    fn frames_are_those_that_wire_builds() {
        use pollux_wire::build::Frame;
        use pollux_wire::{Tci, TcpFlags};
        let there = [2, 0, 0, 0, 0, 0];
        let v4 = || Frame::ether(SOURCE.0, there).ipv4([198, 18, 0, 1], [198, 18, 0, 2]);
        assert_eq!(frame("ether/ipv4/udp", 64), *v4().udp(1024, 9).payload(&[0; 18]));
        assert_eq!(
            frame("ether/ipv4/udp(src=1,dst=2)/payload(0102)", 101)[..34],
            v4().udp(1, 2).payload(&[0; 55])[..34]
        );
        let tagged = Frame::ether(SOURCE.0, there).vlan(Tci::new(3, false, 77));
        let (a, b): (u128, u128) = (0x2001_0002 << 96 | 1, 0x2001_0002 << 96 | 2);
        assert_eq!(
            frame("ether/vlan(id=77,pcp=3)/ipv6(tc=0xb8,hop=9)/tcp(flags=2,seq=5,ack=6,window=7)", 90),
            *tagged
                .ipv6(a, b)
                .tos(0xb8)
                .ttl(9)
                .tcp(1024, 9)
                .flags(TcpFlags::SYN)
                .numbers(5, 6)
                .window(7)
                .payload(&[0; 8])
        );
        assert_eq!(frame("ether/ipv4/icmp(id=8,seq=9)", 64), *v4().echo_request(8, 9, &[0; 18]));
        let plain = Frame::ether(SOURCE.0, there).ipv6(a, b);
        assert_eq!(frame("ether/ipv6/icmpv6(id=8,seq=9)", 71), *plain.echo_request(8, 9, &[0; 5]));
    }

    #[test]
    fn tunnels_announce_what_they_carry() {
        let vxlan = frame("ether/ipv4/udp/vxlan(vni=0x123456)/ether/ipv4/udp", 200);
        assert_eq!(
            (&vxlan[36..38], &vxlan[42..50]),
            (&[18, 181][..], &[8, 0, 0, 0, 0x12, 0x34, 0x56, 0][..])
        );
        assert_eq!(vxlan[40..42], [0, 0], "no checksum over IPv4");
        assert_ne!(frame("ether/ipv6/udp/vxlan/ether/ipv4/udp", 200)[60..62], [0, 0], "one over IPv6");
        let gtpu = frame("ether/ipv4/udp(sum=1)/gtpu(teid=7)/ipv4/udp", 200);
        assert_eq!(gtpu[42..50], [0x30, 0xff, 0, 146, 0, 0, 0, 7]);
        assert_ne!(gtpu[40..42], [0, 0], "one was asked for");
        assert_eq!(frame("ether/ipv4/gre(key=9)/ether/ipv4", 200)[34..42], [0x20, 0, 0x65, 0x58, 0, 0, 0, 9]);
        assert_eq!(frame("ether/ipv4/gre/ipv6/udp", 200)[34..38], [0, 0, 0x86, 0xdd]);
        let mpls = frame("ether/mpls(label=5,ttl=9)/mpls(label=0xfffff,tc=7)/ipv4", 100);
        assert_eq!(
            (&mpls[12..14], &mpls[14..22]),
            (&[0x88, 0x47][..], &[0, 0, 0x50, 9, 0xff, 0xff, 0xff, 64][..])
        );
        assert_eq!(frame("ether/ipv4/ipv6/tcp", 100)[23], 41);
    }

    #[test]
    fn a_size_that_does_not_hold_the_headers_is_refused() {
        let refused = |text: &str, size| Layout::new(&text.parse().expect("one"), size, SOURCE).map(|_| ());
        let why = "size 64 is too small: headers and payload of 62 bytes and the FCS need 66 bytes";
        assert_eq!(refused("ether/ipv6/udp", 64), Err(why.into()));
        assert!(refused("ether/ipv4/udp", 46).is_ok() && refused("ether/ipv4/udp", 45).is_err());
        let why = refused("ether/ipv4", 70_000).expect_err("it is too long");
        assert_eq!(why, "69982 bytes are too many for a packet of ipv4: 65535");
    }
}
