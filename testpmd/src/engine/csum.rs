//! csum: checksums of IP, UDP, TCP and SCTP anew, each in software or by the port that sends, in tunnels too; large TCP packets cut by
//! the port, or here (GSO); what a TCP sender cut joined again (GRO).
//!
//! Counts what was received with wrong sums, as the receiving port tells it.

mod regroup;
mod tunnel;

use pollux_mempool::{Mbuf, RxFlags, TxFlags, TxOffload};
use pollux_port::TxOffloads;
use pollux_wire::checksum::{Sum, crc32c, pseudo_v4, pseudo_v6};
use pollux_wire::ptype::{self, Parsed};
use pollux_wire::{Encapsulation, EtherType, IpProtocol, Ipv4Header, Ipv6Header, Tunnel};
use zerocopy::FromBytes;

use super::{Ends, Engine, Marks};
use crate::lane::{Count, Lane, LaneCounters};

pub use regroup::{GRO_FLUSH_MAX, Regroup, gro_packets};

/// What the port that sends is to do (`csum set`, `tso set`, `tunnel_tso set`); of tunnelled packets the inner layers where it does not
/// say outer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsumSettings {
    /// The IPv4 header's sum.
    pub ip: bool,
    /// UDP's.
    pub udp: bool,
    /// TCP's.
    pub tcp: bool,
    /// SCTP's.
    pub sctp: bool,
    /// The outer IPv4 header's sum.
    pub outer_ip: bool,
    /// The sum of a tunnel's UDP header.
    pub outer_udp: bool,
    /// Tunnels are looked into (`csum parse-tunnel`).
    pub tunnels: bool,
    /// Payload bytes of each piece that a larger TCP packet is cut into; 0: none is cut.
    pub tso_bytes: u16,
    /// The same of packets in tunnels.
    pub tunnel_tso_bytes: u16,
    /// Kinds of tunnels in which the port cuts.
    pub tunnel_tso: TxOffloads,
}

/// The engine `csum`.
#[derive(Debug)]
pub struct Csum {
    head: [u8; 12],
    marks: Marks,
    settings: CsumSettings,
    regroup: Option<Box<Regroup>>,
}

/// A packet's layers, the innermost ones first.
struct Layers {
    parsed: Parsed,
    l3: usize,
    l4: usize,
    /// What is around them.
    around: Option<Tunnel>,
}

/// What the port that sends does of one packet.
#[derive(Clone, Copy, Default)]
struct ByPort {
    ip: bool,
    udp: bool,
    tcp: bool,
    sctp: bool,
    outer_ip: bool,
    outer_udp: bool,
    /// It is cut into such pieces.
    cut: Option<u16>,
    /// The kind of its tunnel, as the port is told.
    tunnel: TxFlags,
}

impl Layers {
    fn of(frame: &[u8], outer: Parsed, tunnels: bool) -> Self {
        match if tunnels { Tunnel::inside(frame, &outer) } else { None } {
            None => {
                let (l3, l4) = (usize::from(outer.l2_len), usize::from(outer.l2_len + outer.l3_len));
                Self { parsed: outer, l3, l4, around: None }
            }
            Some((tunnel, parsed)) => {
                Self { parsed, l3: tunnel.inner_l3, l4: tunnel.inner_l4, around: Some(tunnel) }
            }
        }
    }

    /// What a port is told of a packet that it does not cut; `None`: they are longer than it can be told.
    fn offload(&self) -> Option<TxOffload> {
        let (outer_l2, outer_l4) = self.around.map_or((0, 0), |around| (around.l3, around.l4));
        let offload = TxOffload {
            l2_len: u8::try_from(self.l3 - outer_l4).ok()?,
            l3_len: self.parsed.l3_len,
            l4_len: u8::try_from(self.parsed.l4_len).ok()?,
            tso_segment_bytes: 0,
            outer_l2_len: u8::try_from(outer_l2).ok()?,
            outer_l3_len: u16::try_from(outer_l4 - outer_l2).ok()?,
        };
        let TxOffload { l2_len, l3_len, outer_l2_len, outer_l3_len, .. } = offload;
        // The bits that an mbuf has for them.
        let fits = l2_len < 1 << 7 && outer_l2_len < 1 << 7 && l3_len < 1 << 9 && outer_l3_len < 1 << 9;
        fits.then_some(offload)
    }
}

impl Csum {
    /// For a stream with these ends.
    #[must_use]
    pub fn new(ends: &Ends, marks: Marks, settings: CsumSettings) -> Self {
        Self { head: ends.head(), marks, settings, regroup: None }
    }

    /// The same with GRO or GSO.
    #[must_use]
    pub fn regrouping(self, regroup: Option<Box<Regroup>>) -> Self {
        Self { regroup, ..self }
    }

    /// Sets the addresses, and the sums or what is asked of the port; whether anything is asked.
    #[inline]
    fn edit(&self, mbuf: &mut Mbuf) -> bool {
        self.edit_as(mbuf, &self.settings)
    }

    #[inline(always)]
    fn edit_as(&self, mbuf: &mut Mbuf, settings: &CsumSettings) -> bool {
        let Some(data) = mbuf.data_mut() else { return false };
        if let Some(addresses) = data.first_chunk_mut::<12>() {
            *addresses = self.head;
        }
        if !may_be_ip(data) {
            return false;
        }
        let parsed = ptype::parse(data);
        if parsed.ptype.l3() == 0 || mbuf.tx_flags().intersects(CUTS) {
            // Not IP, or a packet that is to be cut as its sender asked.
            return !mbuf.tx_flags().is_empty();
        }
        let layers = Layers::of(mbuf.data(), parsed, settings.tunnels);
        settings.sums(mbuf, &layers)
    }

    #[cold]
    fn count_told(&self, lane: &Lane) {
        for mbuf in &lane.burst {
            if mbuf.rx_flags().intersects(TOLD) {
                count(&lane.counters, mbuf.rx_flags());
            }
        }
    }

    /// Sends the burst.
    #[inline]
    fn ship(&self, lane: &mut Lane, asks: bool) {
        self.marks.put(lane.packets());
        // What cannot be sent as it asks is dropped.
        while asks && let Err(bad) = lane.tx.tx_prepare(&mut lane.burst) {
            drop(lane.burst.remove(bad.index));
            lane.counters.add(Count::Dropped, 1);
        }
        lane.send();
    }
}

impl CsumSettings {
    fn sums(&self, mbuf: &mut Mbuf, layers: &Layers) -> bool {
        let offload = layers.offload();
        let port = if offload.is_some() { self.by_port(mbuf, layers) } else { ByPort::default() };
        let mut flags = inner_sums(mbuf, layers, port);
        if let Some(around) = layers.around {
            flags |= outer_sums(mbuf, around, port);
        }
        let kept = mbuf.tx_flags() - OURS;
        if !flags.is_empty()
            && let Some(offload) = offload
        {
            let v4 = layers.parsed.ptype.is_ipv4();
            flags |= if v4 { TxFlags::IPV4 } else { TxFlags::IPV6 };
            if let Some(around) = layers.around {
                flags |= port.tunnel;
                flags |= if around.outer_v4 { TxFlags::OUTER_IPV4 } else { TxFlags::OUTER_IPV6 };
            }
            mbuf.set_tx_offload(TxOffload { tso_segment_bytes: port.cut.unwrap_or(0), ..offload });
        }
        mbuf.set_tx_flags(kept | flags);
        !(kept | flags).is_empty()
    }

    /// What of a packet is the port's to do. A sum around it that is computed here covers the inner ones, so these are computed here too.
    fn by_port(&self, mbuf: &Mbuf, layers: &Layers) -> ByPort {
        let CsumSettings { ip, udp, tcp, sctp, outer_ip, outer_udp, .. } = *self;
        let Some(Tunnel { encapsulation, outer_v4, .. }) = layers.around else {
            let cut = self.cut(mbuf, layers, self.tso_bytes);
            return ByPort { ip, udp, tcp, sctp, cut, ..ByPort::default() };
        };
        // Each piece has another outer header. A sum of GRE is nobody's but ours.
        let may_be_cut = (outer_ip || !outer_v4) && encapsulation != Encapsulation::Gre { checksum: true };
        let cut_as = if may_be_cut { tunnel::cut_as(encapsulation, self.tunnel_tso) } else { None };
        let cut = cut_as.and_then(|_| self.cut(mbuf, layers, self.tunnel_tso_bytes));
        let kind = cut_as.filter(|_| cut.is_some()).unwrap_or_else(|| tunnel::kind(encapsulation));
        let covered_by_us = match encapsulation {
            Encapsulation::Udp { checksum, .. } => checksum && cut.is_none() && !outer_udp,
            Encapsulation::Gre { checksum } => checksum,
            Encapsulation::Ip => false,
        };
        if covered_by_us {
            return ByPort { outer_ip, tunnel: kind, ..ByPort::default() };
        }
        ByPort { ip, udp, tcp, sctp, outer_ip, outer_udp, cut, tunnel: kind }
    }

    /// The pieces that a packet is to be cut into, if it is larger than one.
    fn cut(&self, mbuf: &Mbuf, layers: &Layers, bytes: u16) -> Option<u16> {
        if bytes == 0 || !layers.parsed.ptype.is_tcp() {
            return None;
        }
        // A short frame is padded, which is no payload.
        let carried = carried(mbuf.data(), layers.parsed.ptype.is_ipv4(), layers.l3, layers.l4)?;
        let payload = carried.saturating_sub(usize::from(layers.parsed.l4_len));
        (payload > usize::from(bytes)).then_some(bytes)
    }
}

/// Fills in the sums of the innermost layers; the answer is what is asked of the port instead.
fn inner_sums(mbuf: &mut Mbuf, layers: &Layers, port: ByPort) -> TxFlags {
    let &Layers { parsed, l3, l4, .. } = layers;
    let v4 = parsed.ptype.is_ipv4();
    let mut flags = TxFlags::empty();
    if v4 {
        // The header's sum is the port's of a packet to be cut, too: each piece has another.
        flags |= ip_sum(mbuf, l3, l4, port.ip || port.cut.is_some(), TxFlags::IP_CHECKSUM);
    }
    if port.cut.is_some() {
        return flags | TxFlags::TCP_SEGMENTATION;
    }
    let protocol = IpProtocol(parsed.protocol);
    let (by_port, at, flag) = match protocol {
        // Zero says that there is none.
        IpProtocol::UDP if !is_zero(mbuf, l4 + 6) => (port.udp, 6, TxFlags::UDP_CHECKSUM),
        IpProtocol::TCP => (port.tcp, 16, TxFlags::TCP_CHECKSUM),
        IpProtocol::SCTP => (port.sctp, 8, TxFlags::SCTP_CHECKSUM),
        _ => return flags,
    };
    if parsed.l4_len == 0 {
        return flags;
    }
    if by_port {
        return flags | flag;
    }
    transport_sum(mbuf, protocol, v4, (l3, l4), at);
    flags
}

/// The same of the layers around them, which come after.
fn outer_sums(mbuf: &mut Mbuf, around: Tunnel, port: ByPort) -> TxFlags {
    let Tunnel { encapsulation, outer_v4: v4, l3, l4, .. } = around;
    let mut flags = TxFlags::empty();
    match encapsulation {
        Encapsulation::Udp { .. } if port.outer_udp => flags |= TxFlags::OUTER_UDP_CHECKSUM,
        // The pieces would all have the sum of the whole. Source: DPDK `app/test-pmd/csumonly.c`, `process_outer_cksums`.
        Encapsulation::Udp { .. } if port.cut.is_some() => put(mbuf, l4 + 6, 0),
        Encapsulation::Udp { checksum: true, .. } => {
            transport_sum(mbuf, IpProtocol::UDP, v4, (l3, l4), 6);
        }
        Encapsulation::Gre { checksum: true } => gre_sum(mbuf, v4, l3, l4),
        _ => {}
    }
    if v4 {
        flags |= ip_sum(mbuf, l3, l4, port.outer_ip, TxFlags::OUTER_IP_CHECKSUM);
    }
    flags
}

/// The sum of an IPv4 header, here or by the port.
fn ip_sum(mbuf: &mut Mbuf, l3: usize, l4: usize, by_port: bool, flag: TxFlags) -> TxFlags {
    put(mbuf, l3 + 10, 0);
    if by_port {
        return flag;
    }
    if let Some(header) = mbuf.data().get(l3..l4) {
        let sum = Sum::of(header).checksum();
        put(mbuf, l3 + 10, sum);
    }
    TxFlags::empty()
}

/// The sum of a GRE header, and all that it carries.
fn gre_sum(mbuf: &mut Mbuf, v4: bool, l3: usize, l4: usize) {
    let Some(bytes) = carried(mbuf.data(), v4, l3, l4).filter(|bytes| fits(mbuf, l4, *bytes)) else { return };
    put(mbuf, l4 + 4, 0);
    let sum = sum_of(Sum::ZERO, mbuf, l4, bytes).checksum();
    put(mbuf, l4 + 4, sum);
}

/// Whether a field of two bytes is there and zero.
fn is_zero(mbuf: &Mbuf, at: usize) -> bool {
    mbuf.data().get(at..at + 2) == Some(&[0, 0])
}

/// Whether a packet has so many bytes from there on.
fn fits(mbuf: &Mbuf, from: usize, bytes: usize) -> bool {
    (mbuf.pkt_len() as usize).checked_sub(from).is_some_and(|there| bytes <= there)
}

/// What of a packet's flags is decided here.
const OURS: TxFlags = TxFlags::L4_MASK
    .union(TxFlags::IP_CHECKSUM)
    .union(TxFlags::IPV4)
    .union(TxFlags::IPV6)
    .union(TxFlags::OUTER_IP_CHECKSUM)
    .union(TxFlags::OUTER_UDP_CHECKSUM)
    .union(TxFlags::OUTER_IPV4)
    .union(TxFlags::OUTER_IPV6)
    .union(TxFlags::TUNNEL_MASK);

/// Whether an Ethernet frame carries IP, or tags behind which it may.
#[inline(always)]
fn may_be_ip(data: &[u8]) -> bool {
    let Some(&[high, low]) = data.get(12..14) else { return false };
    let kind = EtherType(u16::from_be_bytes([high, low]));
    kind == EtherType::IPV4 || kind == EtherType::IPV6 || kind.is_vlan()
}

const CUTS: TxFlags = TxFlags::TCP_SEGMENTATION.union(TxFlags::UDP_SEGMENTATION);

impl Engine for Csum {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        let received = lane.receive();
        if let Some(regroup) = &self.regroup
            && (received != 0 || regroup.held() != 0)
        {
            return self.regroup(lane, false);
        }
        if received == 0 {
            return 0;
        }
        let mut asks = !self.marks.flags.is_empty();
        for at in 0..lane.burst.len() {
            let flags = lane.burst[at].rx_flags();
            if flags.intersects(TOLD) {
                count(&lane.counters, flags);
            }
            asks |= self.edit(&mut lane.burst[at]);
        }
        self.ship(lane, asks);
        received
    }

    fn has_work(&self) -> bool {
        self.regroup.as_ref().is_some_and(|regroup| regroup.held() != 0)
    }

    fn finish(&mut self, lane: &mut Lane) {
        self.regroup(lane, true);
    }
}

/// What a port tells that is counted.
const TOLD: RxFlags = RxFlags::IP_CHECKSUM_BAD
    .union(RxFlags::L4_CHECKSUM_BAD)
    .union(RxFlags::OUTER_IP_CHECKSUM_BAD)
    .union(RxFlags::OUTER_L4_CHECKSUM_BAD);

#[cold]
fn count(counters: &LaneCounters, flags: RxFlags) {
    // Both bits together say that it is not known.
    let bad = |bad: RxFlags, none: RxFlags| u64::from(flags & none == bad);
    counters.add(Count::BadIp, bad(RxFlags::IP_CHECKSUM_BAD, RxFlags::IP_CHECKSUM_NONE));
    counters.add(Count::BadL4, bad(RxFlags::L4_CHECKSUM_BAD, RxFlags::L4_CHECKSUM_NONE));
    counters.add(Count::BadOuterIp, u64::from(flags.contains(RxFlags::OUTER_IP_CHECKSUM_BAD)));
    let outer = RxFlags::OUTER_L4_CHECKSUM_BAD | RxFlags::OUTER_L4_CHECKSUM_GOOD;
    counters.add(Count::BadOuterL4, bad(RxFlags::OUTER_L4_CHECKSUM_BAD, outer));
}

/// Writes two bytes, if the first segment has them.
fn put(mbuf: &mut Mbuf, at: usize, value: u16) {
    if let Some(field) = mbuf.data_mut().and_then(|data| data.get_mut(at..at + 2)) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

/// The sum of a transport header and what is behind it, over all segments.
fn transport_sum(mbuf: &mut Mbuf, protocol: IpProtocol, v4: bool, (l3, l4): (usize, usize), at: usize) {
    // What IP says, since a short frame is padded.
    let Some(bytes) = carried(mbuf.data(), v4, l3, l4).filter(|bytes| fits(mbuf, l4, *bytes)) else { return };
    if protocol == IpProtocol::SCTP {
        put(mbuf, l4 + at, 0);
        put(mbuf, l4 + at + 2, 0);
        let sum = crc32c(pieces(mbuf, l4, bytes));
        if let Some(field) = mbuf.data_mut().and_then(|data| data.get_mut(l4 + at..l4 + at + 4)) {
            field.copy_from_slice(&sum);
        }
        return;
    }
    put(mbuf, l4 + at, 0);
    let Some(pseudo) = pseudo(mbuf.data(), protocol, v4, l3, bytes) else { return };
    let sum = sum_of(pseudo, mbuf, l4, bytes);
    let sum = if protocol == IpProtocol::UDP { sum.checksum_udp() } else { sum.checksum() };
    put(mbuf, l4 + at, sum);
}

/// A sum with `bytes` bytes of a packet from `from` on.
fn sum_of(sum: Sum, mbuf: &Mbuf, from: usize, bytes: usize) -> Sum {
    let summed = pieces(mbuf, from, bytes)
        .fold((sum, 0), |(sum, offset), piece| (sum.add_bytes_at(offset, piece), offset + piece.len()));
    summed.0
}

/// Bytes behind the IP header, as it says.
fn carried(data: &[u8], v4: bool, l3: usize, l4: usize) -> Option<usize> {
    let field = |at: usize| Some(usize::from(u16::from_be_bytes(*data.get(at..)?.first_chunk()?)));
    if v4 { field(l3 + 2)?.checked_sub(l4 - l3) } else { (field(l3 + 4)? + 40).checked_sub(l4 - l3) }
}

fn pseudo(data: &[u8], protocol: IpProtocol, v4: bool, l3: usize, bytes: usize) -> Option<Sum> {
    let data = data.get(l3..)?;
    if v4 {
        let (header, _) = Ipv4Header::ref_from_prefix(data).ok()?;
        return Some(pseudo_v4(header.src(), header.dst(), protocol, bytes as u16));
    }
    let (header, _) = Ipv6Header::ref_from_prefix(data).ok()?;
    Some(pseudo_v6(header.src(), header.dst(), protocol, bytes as u32))
}

/// `bytes` bytes of a packet from `from` on, segment by segment.
fn pieces(mbuf: &Mbuf, from: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
    let (mut skip, mut left) = (from, bytes);
    mbuf.segments().filter_map(move |segment| {
        let begin = skip.min(segment.len());
        skip -= begin;
        let piece = &segment[begin..];
        let piece = &piece[..left.min(piece.len())];
        left -= piece.len();
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests;
