//! Frames made layer by layer, with lengths and checksums.
//!
//! ```
//! use pollux_wire::build::Frame;
//! use pollux_wire::{IpProtocol, TcpFlags, Tci};
//!
//! let (a, b) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
//! let datagram = Frame::ether(a, b).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1024, 9).payload(b"hello");
//! assert_eq!(datagram.len(), 14 + 20 + 8 + 5);
//! let syn = Frame::ether(a, b).vlan(Tci::new(0, false, 5)).ipv6(1, 2).ttl(255).tcp(80, 81).flags(TcpFlags::SYN).payload(&[]);
//! assert_eq!(syn.len(), 14 + 4 + 40 + 20);
//! ```
//!
//! A frame is a template: copy it into mbufs (`pollux_port::FrameSource`) and change what differs with [`edit`](crate::edit).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::{Deref, DerefMut};

use crate::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::{
    ArpRepr, EtherType, IcmpRepr, Icmpv6Repr, IpProtocol, Ipv4Repr, Ipv6Repr, MacAddress, Tci, TcpFlags,
    TcpRepr, UdpRepr, icmp, icmpv6,
};

/// Bytes of the shortest frame on a wire, without FCS. Source: IEEE 802.3.
const SHORTEST: usize = 60;

/// A whole frame, without FCS. Reads as its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    /// Begins a frame with an Ethernet header.
    pub fn ether(src: impl Into<MacAddress>, dst: impl Into<MacAddress>) -> Ethernet {
        let mut bytes = Vec::with_capacity(SHORTEST);
        bytes.extend(dst.into().0);
        bytes.extend(src.into().0);
        Ethernet { bytes }
    }

    /// The same with zeros behind it, so that it has at least `bytes` bytes; 60 are the least that a wire carries.
    #[must_use]
    pub fn padded_to(mut self, bytes: usize) -> Self {
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
        self
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl From<Frame> for Vec<u8> {
    fn from(frame: Frame) -> Self {
        frame.bytes
    }
}

/// A frame whose type is still to come.
#[derive(Clone, Debug)]
#[must_use]
pub struct Ethernet {
    bytes: Vec<u8>,
}

impl Ethernet {
    /// Adds a customer VLAN tag (802.1Q).
    pub fn vlan(self, tci: Tci) -> Self {
        self.tag(EtherType::VLAN, tci)
    }

    /// Adds a tag of that type, such as [`EtherType::QINQ`].
    pub fn tag(mut self, kind: EtherType, tci: Tci) -> Self {
        self.bytes.extend(kind.0.to_be_bytes());
        self.bytes.extend(tci.0.to_be_bytes());
        self
    }

    /// Adds an IPv4 header with a time to live of 64.
    pub fn ipv4(self, src: impl Into<Ipv4Addr>, dst: impl Into<Ipv4Addr>) -> Ip {
        let header = Ipv4Repr::new(src.into(), dst.into(), IpProtocol::NONE, 0);
        Ip { frame: self, header: IpHeader::V4(header) }
    }

    /// Adds an IPv6 header with a hop limit of 64.
    pub fn ipv6(self, src: impl Into<Ipv6Addr>, dst: impl Into<Ipv6Addr>) -> Ip {
        let header = Ipv6Repr::new(src.into(), dst.into(), IpProtocol::NONE, 0);
        Ip { frame: self, header: IpHeader::V6(header) }
    }

    /// Ends with an ARP packet.
    #[must_use]
    pub fn arp(self, packet: &ArpRepr) -> Frame {
        let mut body = [0; crate::ArpHeader::BYTES];
        written(packet.emit(&mut body).map(|_| ()));
        self.payload(EtherType::ARP, &body)
    }

    /// Ends with a payload of that type.
    #[must_use]
    pub fn payload(mut self, kind: EtherType, payload: &[u8]) -> Frame {
        self.bytes.extend(kind.0.to_be_bytes());
        self.bytes.extend(payload);
        Frame { bytes: self.bytes }
    }
}

#[derive(Clone, Copy, Debug)]
enum IpHeader {
    V4(Ipv4Repr),
    V6(Ipv6Repr),
}

/// A frame with an IP header whose payload is still to come.
#[derive(Clone, Debug)]
#[must_use]
pub struct Ip {
    frame: Ethernet,
    header: IpHeader,
}

impl Ip {
    /// Time to live, or hop limit.
    pub fn ttl(mut self, ttl: u8) -> Self {
        match &mut self.header {
            IpHeader::V4(header) => header.ttl = ttl,
            IpHeader::V6(header) => header.hop_limit = ttl,
        }
        self
    }

    /// Type of service, or traffic class.
    pub fn tos(mut self, tos: u8) -> Self {
        match &mut self.header {
            IpHeader::V4(header) => header.tos = tos,
            IpHeader::V6(header) => header.traffic_class = tos,
        }
        self
    }

    /// Adds a UDP header.
    pub fn udp(self, src_port: u16, dst_port: u16) -> UdpFrame {
        UdpFrame { ip: self, header: UdpRepr { src_port, dst_port } }
    }

    /// Adds a TCP header: an ACK, sequence numbers 0, the largest window.
    pub fn tcp(self, src_port: u16, dst_port: u16) -> TcpFrame {
        let flags = TcpFlags::ACK;
        TcpFrame {
            ip: self,
            header: TcpRepr { src_port, dst_port, seq: 0, ack: 0, flags, window: u16::MAX, urgent: 0 },
        }
    }

    /// Ends with an echo request of ICMP, or ICMPv6 over IPv6.
    ///
    /// # Panics
    /// With a payload that is too long for an IP packet.
    #[must_use]
    pub fn echo_request(self, ident: u16, seq: u16, payload: &[u8]) -> Frame {
        match self.header {
            IpHeader::V4(_) => self.finish(IpProtocol::ICMP, 8, payload, |bytes, _| {
                let header = IcmpRepr { kind: icmp::ECHO_REQUEST, code: 0, ident, seq };
                written(header.emit(bytes).map(|_| ()));
            }),
            IpHeader::V6(_) => self.finish(IpProtocol::ICMPV6, 8, payload, |bytes, pseudo| {
                let word = u32::from(ident) << 16 | u32::from(seq);
                let header = Icmpv6Repr { kind: icmpv6::ECHO_REQUEST, code: 0, word };
                written(header.emit(bytes, pseudo).map(|_| ()));
            }),
        }
    }

    /// Ends with a payload of that protocol.
    ///
    /// # Panics
    /// With a payload that is too long for an IP packet.
    #[must_use]
    pub fn payload(self, protocol: IpProtocol, payload: &[u8]) -> Frame {
        self.finish(protocol, 0, payload, |_, _| ())
    }

    /// Writes the headers: the IP header, and `header_bytes` of another, which `emit` writes in front of the payload with the
    /// pseudo-header's sum.
    fn finish(
        self,
        protocol: IpProtocol,
        header_bytes: usize,
        payload: &[u8],
        emit: impl FnOnce(&mut [u8], Sum),
    ) -> Frame {
        let body = header_bytes + payload.len();
        let count = u16::try_from(body)
            .unwrap_or_else(|_| panic!("{body} bytes are too many for an IP packet: 65535"));
        let (kind, ip_bytes) = match self.header {
            IpHeader::V4(_) => (EtherType::IPV4, crate::Ipv4Header::BYTES),
            IpHeader::V6(_) => (EtherType::IPV6, crate::Ipv6Header::BYTES),
        };
        let mut frame = self.frame.payload(kind, &[]);
        let at = frame.bytes.len();
        frame.bytes.resize(at + ip_bytes + header_bytes, 0);
        frame.bytes.extend(payload);
        let bytes = &mut frame.bytes[at..];
        let pseudo = match self.header {
            IpHeader::V4(header) => {
                let header = Ipv4Repr { protocol, payload_bytes: count, ..header };
                written(header.emit(bytes).map(|_| ()));
                pseudo_v4(header.src, header.dst, protocol, count)
            }
            IpHeader::V6(header) => {
                let header = Ipv6Repr { next_header: protocol, payload_bytes: count, ..header };
                written(header.emit(bytes).map(|_| ()));
                pseudo_v6(header.src, header.dst, protocol, count.into())
            }
        };
        emit(&mut bytes[ip_bytes..], pseudo);
        frame
    }
}

/// A frame with a UDP header whose payload is still to come.
#[derive(Clone, Debug)]
#[must_use]
pub struct UdpFrame {
    ip: Ip,
    header: UdpRepr,
}

impl UdpFrame {
    /// Ends with the datagram's payload.
    ///
    /// # Panics
    /// With a payload that is too long for an IP packet.
    #[must_use]
    pub fn payload(self, payload: &[u8]) -> Frame {
        let header = self.header;
        self.ip.finish(IpProtocol::UDP, crate::UdpHeader::BYTES, payload, |bytes, pseudo| {
            written(header.emit(bytes, pseudo).map(|_| ()));
        })
    }
}

/// A frame with a TCP header whose payload is still to come.
#[derive(Clone, Debug)]
#[must_use]
pub struct TcpFrame {
    ip: Ip,
    header: TcpRepr,
}

impl TcpFrame {
    /// The flags, in place of ACK.
    pub fn flags(mut self, flags: TcpFlags) -> Self {
        self.header.flags = flags;
        self
    }

    /// Sequence number of the first byte, and the one that is expected from the other side.
    pub fn numbers(mut self, seq: u32, ack: u32) -> Self {
        (self.header.seq, self.header.ack) = (seq, ack);
        self
    }

    /// The receive window.
    pub fn window(mut self, window: u16) -> Self {
        self.header.window = window;
        self
    }

    /// Ends with the segment's payload.
    ///
    /// # Panics
    /// With a payload that is too long for an IP packet.
    #[must_use]
    pub fn payload(self, payload: &[u8]) -> Frame {
        let header = self.header;
        self.ip.finish(IpProtocol::TCP, crate::TcpHeader::BYTES, payload, |bytes, pseudo| {
            written(header.emit(bytes, pseudo).map(|_| ()));
        })
    }
}

/// Room was made for what is written; an IPv4 packet's length alone can be refused.
fn written(done: Result<(), crate::WireError>) {
    if let Err(why) = done {
        panic!("{why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Icmp, Icmpv6, Ipv4, Ipv6, Tcp, Udp, ptype};

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

    #[test]
    fn each_kind_is_read_as_it_was_built() {
        let v4 = || Frame::ether(A, B).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).ttl(9).tos(0xb8);
        let v6 = || {
            let (from, to) = ("fd00::1".parse::<Ipv6Addr>(), "fd00::2".parse::<Ipv6Addr>());
            Frame::ether(A, B)
                .vlan(Tci::new(3, false, 77))
                .ipv6(from.expect("one"), to.expect("one"))
                .ttl(9)
                .tos(0xb8)
        };
        for payload in [&b""[..], b"x", b"seventeen bytes..", &[0xff; 1400]] {
            let frame = v4().udp(1, 2).payload(payload);
            assert_eq!((&frame[..6], &frame[6..12]), (&B[..], &A[..]));
            let ip = Ipv4::new(&frame[14..]).expect("IPv4");
            assert!(ip.checksum_ok() && (ip.ttl, ip.tos) == (9, 0xb8));
            let udp = Udp::new(ip.payload()).expect("UDP");
            assert!(udp.checksum_ok(ip.pseudo_sum()) && udp.checksum.get() != 0);
            assert_eq!((udp.src_port.get(), udp.dst_port.get(), udp.payload()), (1, 2, payload));

            let frame = v6().tcp(3, 4).flags(TcpFlags::SYN).numbers(5, 6).window(7).payload(payload);
            let ip = Ipv6::new(&frame[18..]).expect("IPv6");
            assert_eq!((ip.hop_limit, ip.traffic_class()), (9, 0xb8));
            let tcp = Tcp::new(ip.payload()).expect("TCP");
            let sum = pseudo_v6(ip.src(), ip.dst(), IpProtocol::TCP, ip.payload().len() as u32);
            assert!(tcp.checksum_ok(sum));
            assert_eq!(
                (tcp.seq.get(), tcp.ack.get(), tcp.window.get(), tcp.flags()),
                (5, 6, 7, TcpFlags::SYN)
            );
            let seen = ptype::parse(&frame);
            assert_eq!((seen.l2_len, seen.l3_len, seen.l4_len), (18, 40, 20));

            let frame = v4().echo_request(8, 9, payload);
            let ip = Ipv4::new(&frame[14..]).expect("IPv4");
            assert!(Icmp::new(ip.payload()).expect("ICMP").checksum_ok());
            let frame = v6().echo_request(8, 9, payload);
            let ip = Ipv6::new(&frame[18..]).expect("IPv6");
            let sum = pseudo_v6(ip.src(), ip.dst(), IpProtocol::ICMPV6, ip.payload().len() as u32);
            assert!(Icmpv6::new(ip.payload()).expect("ICMPv6").checksum_ok(sum));
            assert_eq!(v4().payload(IpProtocol(253), payload)[34..], *payload);
        }
        assert_eq!(Frame::ether(A, B).payload(EtherType(0x88b5), &[1]).padded_to(60).len(), 60);
        assert_eq!(v4().udp(1, 2).payload(&[0; 65_507]).len(), 14 + 65_535);
    }

    #[test]
    #[should_panic(expected = "too many for an IP packet")]
    fn a_payload_over_64_kib_is_a_mistake() {
        let _ = Frame::ether(A, B).ipv6(0u128, 0u128).udp(1, 2).payload(&[0; 65_528]);
    }
}
