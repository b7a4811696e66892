//! One packet of TCP: where its headers are, what of them may change from packet to packet, and joining two.

use std::ops::Range;

use arrayvec::ArrayVec;
use pollux_mempool::{Mbuf, TxFlags};
use pollux_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use pollux_wire::ptype::{self, PacketType};
use pollux_wire::{Encapsulation, IpProtocol, Ipv4Header, Ipv6Header, TcpFlags, TcpHeader, Tunnel};
use zerocopy::FromBytes;

use super::GroKinds;
use crate::tunnel;

/// Flags of packets that are joined; ACK is there always.
const JOINED: u8 = TcpFlags::ACK.0 | TcpFlags::PSH.0 | TcpFlags::FIN.0 | TcpFlags::ECE.0 | TcpFlags::CWR.0;
/// Flags in which packets that are joined may differ.
const OWN: u8 = TcpFlags::PSH.0 | TcpFlags::FIN.0 | TcpFlags::CWR.0;
/// Nothing carries on behind these.
const LAST: u8 = TcpFlags::PSH.0 | TcpFlags::FIN.0;

/// The largest IP packet whose length fields say so, IPv6's header aside.
const PACKET_BYTES_MAX: usize = u16::MAX as usize;

/// Where headers stand in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    tunnel: Option<Tunnel>,
    v4: bool,
    l3: usize,
    l4: usize,
    /// Where TCP's payload begins.
    payload: usize,
}

/// A packet that may be joined, or several that were.
#[derive(Debug)]
pub(super) struct Segment {
    packet: Mbuf,
    shape: Shape,
    /// What tells most connections apart.
    pub(super) flow: u64,
    seq: u32,
    /// Of payload.
    bytes: usize,
    /// Packets that it was.
    count: u16,
    flags: u8,
    /// The sum of the payload, as the checksums of its pieces tell it.
    sum: u16,
}

/// What a packet is.
pub(super) enum Look {
    /// None of TCP, or of a kind that is not joined.
    Other(Mbuf),
    /// Of a connection, and not joined.
    Apart(Mbuf, u64),
    Segment(Segment),
}

pub(super) fn look(packet: Mbuf, kinds: GroKinds) -> Look {
    let Some(shape) = Shape::of(packet.data(), kinds) else { return Look::Other(packet) };
    let flow = shape.flow(packet.data());
    match Segment::new(packet, shape, flow) {
        Ok(segment) => Look::Segment(segment),
        Err(packet) => Look::Apart(packet, flow),
    }
}

impl Shape {
    /// `None`: not a kind that is joined.
    fn of(front: &[u8], kinds: GroKinds) -> Option<Self> {
        let outer = ptype::parse(front);
        if outer.ptype.is_tcp() {
            let (l3, l4) = (usize::from(outer.l2_len), usize::from(outer.l2_len + outer.l3_len));
            return Self::checked(None, outer.ptype, (l3, l4), outer.l4_len, kinds);
        }
        if !kinds.contains(GroKinds::TUNNELS) {
            return None;
        }
        let (tunnel, inner) = Tunnel::inside(front, &outer)?;
        // A checksum of GRE is of all that it carries.
        let known = tunnel::is_plain(front, &tunnel)
            && !matches!(tunnel.encapsulation, Encapsulation::Gre { checksum: true });
        let plain = header_bytes(tunnel.outer_v4) == tunnel.l4 - tunnel.l3;
        // Sums of the layers around are made of the inner ones.
        let even = (tunnel.inner_l4 - tunnel.l4).is_multiple_of(2);
        if !known || !plain || !even || !inner.ptype.is_tcp() {
            return None;
        }
        let places = (tunnel.inner_l3, tunnel.inner_l4);
        Self::checked(Some(tunnel), inner.ptype, places, inner.l4_len, kinds)
    }

    /// Neither options nor extension headers, as in DPDK and Linux.
    fn checked(
        tunnel: Option<Tunnel>,
        ptype: PacketType,
        (l3, l4): (usize, usize),
        l4_len: u16,
        kinds: GroKinds,
    ) -> Option<Self> {
        let v4 = ptype.is_ipv4();
        let wanted = if v4 { GroKinds::TCP_IPV4 } else { GroKinds::TCP_IPV6 };
        let plain = l4 - l3 == header_bytes(v4) && usize::from(l4_len) >= TcpHeader::BYTES;
        let payload = l4 + usize::from(l4_len);
        (plain && kinds.contains(wanted)).then_some(Self { tunnel, v4, l3, l4, payload })
    }

    /// A number that packets of one connection have in common, in one direction.
    fn flow(&self, front: &[u8]) -> u64 {
        let addresses = if self.v4 { self.l3 + 12..self.l4 } else { self.l3 + 8..self.l4 };
        let bytes = front.get(addresses.start..self.l4 + 4).unwrap_or_default();
        bytes.chunks(4).fold(addresses.len() as u64, |mixed, chunk| {
            let word = chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            (mixed.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }

    /// IP headers, the outer one first: where each begins, and whether it is IPv4's.
    fn networks(&self) -> impl Iterator<Item = (usize, bool)> {
        let outer = self.tunnel.map(|tunnel| (tunnel.l3, tunnel.outer_v4));
        outer.into_iter().chain([(self.l3, self.v4)])
    }

    /// Where the outermost IP header begins.
    fn first(&self) -> usize {
        self.tunnel.map_or(self.l3, |tunnel| tunnel.l3)
    }

    /// What may differ between packets that are joined, in order.
    fn gaps(&self) -> ArrayVec<Range<usize>, 9> {
        let mut gaps = ArrayVec::new();
        let network = |gaps: &mut ArrayVec<Range<usize>, 9>, l3: usize, v4: bool| {
            if v4 {
                gaps.push(l3 + 2..l3 + 6);
                gaps.push(l3 + 10..l3 + 12);
            } else {
                gaps.push(l3 + 4..l3 + 6);
            }
        };
        if let Some(tunnel) = self.tunnel {
            network(&mut gaps, tunnel.l3, tunnel.outer_v4);
            if matches!(tunnel.encapsulation, Encapsulation::Udp { .. }) {
                gaps.push(tunnel.l4 + 4..tunnel.l4 + 8);
            }
        }
        network(&mut gaps, self.l3, self.v4);
        gaps.push(self.l4 + 4..self.l4 + 8);
        gaps.push(self.l4 + 13..self.l4 + 14);
        gaps.push(self.l4 + 16..self.l4 + 18);
        gaps
    }

    /// Where the frame ends, as all its length fields say; `None` where they contradict each other, or the frame of `bytes` bytes.
    fn end(&self, front: &[u8], bytes: usize) -> Option<usize> {
        let end_of = |(l3, v4): (usize, bool)| {
            let (at, more) = if v4 { (2, 0) } else { (4, Ipv6Header::BYTES) };
            Some(l3 + more + usize::from(word(front, l3 + at)?))
        };
        let mut ends = self.networks().map(end_of);
        let end = ends.next()??;
        let same = ends.all(|other| other == Some(end));
        let udp = match self.tunnel {
            Some(Tunnel { encapsulation: Encapsulation::Udp { .. }, l4, .. }) => {
                l4 + usize::from(word(front, l4 + 4)?) == end
            }
            _ => true,
        };
        (same && udp && self.payload <= end && end <= bytes).then_some(end)
    }

    /// Whether sums that are made anew when packets are joined are right.
    fn is_right(&self, front: &[u8], open: TxFlags) -> bool {
        let asked = |l3: usize| {
            let outer = self.tunnel.is_some_and(|tunnel| tunnel.l3 == l3);
            open.contains(if outer { TxFlags::OUTER_IP_CHECKSUM } else { TxFlags::IP_CHECKSUM })
        };
        let right = |(l3, v4): (usize, bool)| {
            let header = front.get(l3..l3 + Ipv4Header::BYTES);
            !v4 || asked(l3) || header.is_some_and(|header| Sum::of(header).is_valid())
        };
        let around = match self.tunnel {
            Some(tunnel @ Tunnel { encapsulation: Encapsulation::Udp { checksum: true, .. }, .. }) => {
                self.around(front, &tunnel).is_some_and(Sum::is_valid)
            }
            _ => true,
        };
        around && self.networks().all(right)
    }

    /// The sum of a tunnel's UDP and all that it carries. What holds its own checksum sums up to the complement of its pseudo-header's.
    fn around(&self, front: &[u8], tunnel: &Tunnel) -> Option<Sum> {
        let bytes = usize::from(word(front, tunnel.l4 + 4)?);
        let inner =
            pseudo(front, self.l3, self.v4, IpProtocol::TCP, bytes.checked_sub(self.l4 - tunnel.l4)?)?;
        let outer = pseudo(front, tunnel.l3, tunnel.outer_v4, IpProtocol::UDP, bytes)?;
        Some(outer.add_bytes(front.get(tunnel.l4..self.l4)?).add_word(!inner.fold()))
    }
}

impl Segment {
    /// `Err`: it is not to be joined.
    fn new(mut packet: Mbuf, shape: Shape, flow: u64) -> Result<Self, Mbuf> {
        let open = packet.tx_flags();
        let (front, bytes) = (packet.data(), packet.pkt_len() as usize);
        let Some(end) = shape.end(front, bytes) else { return Err(packet) };
        let Some((tcp, _)) = front.get(shape.l4..).and_then(|tcp| TcpHeader::ref_from_prefix(tcp).ok())
        else {
            return Err(packet);
        };
        let (seq, flags) = (tcp.seq.get(), tcp.flags);
        let joined = flags & !JOINED == 0 && flags & TcpFlags::ACK.0 != 0 && end > shape.payload;
        // Sums of layers around an open one are open as well.
        let whole = !open.intersects(TxFlags::TCP_SEGMENTATION | TxFlags::UDP_SEGMENTATION)
            && (shape.tunnel.is_none() || open.is_empty());
        if !joined || !whole || !shape.is_right(front, open) {
            return Err(packet);
        }
        let upper = end - shape.l4;
        let header = front.get(shape.l4..shape.payload);
        let pseudo = pseudo(front, shape.l3, shape.v4, IpProtocol::TCP, upper);
        let Some((header, pseudo)) = header.zip(pseudo) else { return Err(packet) };
        let sum = !pseudo.add_bytes(header).fold();
        let padding = bytes - end;
        if packet.data_mut().is_none() || padding > 0 && !packet.trim(padding) {
            return Err(packet);
        }
        Ok(Self { packet, shape, flow, seq, bytes: end - shape.payload, count: 1, flags, sum })
    }

    /// Nothing of its connection is worth being waited for.
    pub(super) fn ends(&self) -> bool {
        self.flags & LAST != 0
    }

    /// Whether `next` belongs behind it, in a packet of so many mbufs at most.
    #[inline]
    pub(super) fn carries_on_with(&self, next: &Self, segments_max: usize) -> bool {
        self.flow == next.flow
            && self.seq.wrapping_add(self.bytes as u32) == next.seq
            && self.flags & LAST == 0
            && next.flags & TcpFlags::CWR.0 == 0
            && (self.flags ^ next.flags) & !OWN == 0
            && self.shape == next.shape
            && self.shape.payload - self.shape.first() + self.bytes + next.bytes <= PACKET_BYTES_MAX
            && self.packet.segment_count() + next.packet.segment_count() <= segments_max
            && self.count.checked_add(next.count).is_some()
            && self.headers_match(next)
    }

    fn headers_match(&self, next: &Self) -> bool {
        let (one, other) = (&self.packet, &next.packet);
        if one.tx_flags() != other.tx_flags()
            || one.vlan_tci() != other.vlan_tci()
            || one.vlan_tci_outer() != other.vlan_tci_outer()
        {
            return false;
        }
        let (one, other) = (one.data(), other.data());
        let mut from = 0;
        for gap in self.shape.gaps() {
            if one.get(from..gap.start) != other.get(from..gap.start) {
                return false;
            }
            from = gap.end;
        }
        let counts_up = |(l3, v4): (usize, bool)| {
            let ident = |front: &[u8]| word(front, l3 + 4);
            !v4 || one.get(l3 + 6).is_some_and(|byte| byte & 0x40 != 0)
                || ident(other) == ident(one).map(|ident| ident.wrapping_add(self.count))
        };
        one.get(from..self.shape.payload) == other.get(from..self.shape.payload)
            && self.shape.networks().all(counts_up)
    }

    /// Hangs the payload of `next` behind its own.
    pub(super) fn join(&mut self, next: Self) {
        let Self { mut packet, bytes, count, flags, sum, shape, .. } = next;
        if !packet.adj(shape.payload) {
            return;
        }
        if packet.data_len() == 0
            && let Some(rest) = packet.split_rest()
        {
            packet = rest;
        }
        if self.packet.chain(packet).is_err() {
            return;
        }
        let all = Sum::ZERO.add_word(self.sum).add_bytes_at(self.bytes, &sum.to_be_bytes());
        self.sum = all.fold();
        self.bytes += bytes;
        self.count += count;
        self.flags |= flags & LAST;
    }

    /// The packet, whose headers say what it is by now.
    pub(super) fn finish(self) -> Mbuf {
        let Self { mut packet, shape, count, flags, sum, .. } = self;
        if count == 1 {
            return packet;
        }
        let (bytes, open) = (packet.pkt_len() as usize, packet.tx_flags());
        if let Some(front) = packet.data_mut()
            && mend(front, &shape, bytes, flags, sum, open).is_none()
        {
            debug_assert!(false, "headers that were there when the packet was looked at");
        }
        packet
    }
}

/// Mends the headers of a packet of `bytes` bytes, the inner ones first.
fn mend(front: &mut [u8], shape: &Shape, bytes: usize, flags: u8, sum: u16, open: TxFlags) -> Option<()> {
    for (l3, v4) in shape.networks() {
        let (at, less) = if v4 { (2, 0) } else { (4, Ipv6Header::BYTES) };
        put(front, l3 + at, (bytes - l3 - less) as u16)?;
        if v4 {
            put(front, l3 + 10, 0)?;
            let sum = Sum::of(front.get(l3..l3 + Ipv4Header::BYTES)?).checksum();
            put(front, l3 + 10, sum)?;
        }
    }
    *front.get_mut(shape.l4 + 13)? = flags;
    let pseudo = pseudo(front, shape.l3, shape.v4, IpProtocol::TCP, bytes - shape.l4)?;
    if open.intersects(TxFlags::L4_MASK) {
        put(front, shape.l4 + 16, pseudo.fold())?;
    } else {
        put(front, shape.l4 + 16, 0)?;
        let sum = pseudo.add_bytes(front.get(shape.l4..shape.payload)?).add_word(sum).checksum();
        put(front, shape.l4 + 16, sum)?;
    }
    if let Some(tunnel @ Tunnel { encapsulation: Encapsulation::Udp { checksum, .. }, l4, .. }) = shape.tunnel
    {
        put(front, l4 + 4, (bytes - l4) as u16)?;
        put(front, l4 + 6, 0)?;
        if checksum {
            let sum = shape.around(front, &tunnel)?.checksum_udp();
            put(front, l4 + 6, sum)?;
        }
    }
    Some(())
}

fn header_bytes(v4: bool) -> usize {
    if v4 { Ipv4Header::BYTES } else { Ipv6Header::BYTES }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut()? = value.to_be_bytes();
    Some(())
}

/// The sum of the pseudo-header of the IP header at `l3` with `upper` bytes behind it.
fn pseudo(front: &[u8], l3: usize, v4: bool, protocol: IpProtocol, upper: usize) -> Option<Sum> {
    let packet = front.get(l3..)?;
    if v4 {
        let (header, _) = Ipv4Header::ref_from_prefix(packet).ok()?;
        return Some(pseudo_v4(header.src(), header.dst(), protocol, upper as u16));
    }
    let (header, _) = Ipv6Header::ref_from_prefix(packet).ok()?;
    Some(pseudo_v6(header.src(), header.dst(), protocol, upper as u32))
}
