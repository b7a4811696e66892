//! csum: checksums of IP, UDP, TCP and SCTP anew, each in software or by the port that sends; large TCP packets cut by the port.
//!
//! Counts what was received with wrong sums, as the receiving port tells it.

use pollux_mempool::{Mbuf, RxFlags, TxFlags, TxOffload};
use pollux_wire::checksum::{Sum, crc32c, pseudo_v4, pseudo_v6};
use pollux_wire::ptype::{self, Parsed};
use pollux_wire::{EtherType, IpProtocol, Ipv4Header, Ipv6Header};
use zerocopy::FromBytes;

use super::{Ends, Engine, Marks};
use crate::lane::{Count, Lane, LaneCounters};

/// What the port that sends is to do (`csum set`, `tso set`).
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
    /// Payload bytes of each piece that a larger TCP packet is cut into; 0: none is cut.
    pub tso_bytes: u16,
}

/// The engine `csum`.
#[derive(Debug)]
pub struct Csum {
    head: [u8; 12],
    marks: Marks,
    settings: CsumSettings,
}

impl Csum {
    /// For a stream with these ends.
    #[must_use]
    pub fn new(ends: &Ends, marks: Marks, settings: CsumSettings) -> Self {
        Self { head: ends.head(), marks, settings }
    }

    /// Sets the addresses, and the sums or what is asked of the port; whether anything is asked.
    #[inline]
    fn edit(&self, mbuf: &mut Mbuf) -> bool {
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
        self.sums(mbuf, &parsed)
    }

    fn sums(&self, mbuf: &mut Mbuf, parsed: &Parsed) -> bool {
        let (l3, l4) = (usize::from(parsed.l2_len), usize::from(parsed.l2_len + parsed.l3_len));
        let v4 = parsed.ptype.is_ipv4();
        let protocol = IpProtocol(parsed.protocol);
        let mut flags = if v4 { TxFlags::IPV4 } else { TxFlags::IPV6 };
        let mut asks = false;
        if v4 {
            if self.settings.ip {
                (flags, asks) = (flags | TxFlags::IP_CHECKSUM, true);
            }
            put(mbuf, l3 + 10, 0);
            if !self.settings.ip
                && let Some(header) = mbuf.data().get(l3..l4)
            {
                let sum = Sum::of(header).checksum();
                put(mbuf, l3 + 10, sum);
            }
        }
        let mut segment_bytes = 0;
        if parsed.l4_len != 0 {
            // A short frame is padded, which is no payload.
            let behind = carried(mbuf.data(), v4, l3, l4).unwrap_or(0);
            let payload = behind.saturating_sub(usize::from(parsed.l4_len));
            let (by_port, at, flag) = match protocol {
                IpProtocol::UDP => (self.settings.udp, 6, TxFlags::UDP_CHECKSUM),
                IpProtocol::TCP => (self.settings.tcp, 16, TxFlags::TCP_CHECKSUM),
                IpProtocol::SCTP => (self.settings.sctp, 8, TxFlags::SCTP_CHECKSUM),
                _ => (false, 0, TxFlags::empty()),
            };
            let unsummed = protocol == IpProtocol::UDP && mbuf.data().get(l4 + 6..l4 + 8) == Some(&[0, 0]);
            if at != 0 && !unsummed {
                if protocol == IpProtocol::TCP
                    && self.settings.tso_bytes != 0
                    && payload > usize::from(self.settings.tso_bytes)
                {
                    // The header's sum is the port's, too: each piece has another.
                    flags |=
                        TxFlags::TCP_SEGMENTATION | if v4 { TxFlags::IP_CHECKSUM } else { TxFlags::empty() };
                    (segment_bytes, asks) = (self.settings.tso_bytes, true);
                } else if by_port {
                    (flags, asks) = (flags | flag, true);
                } else {
                    transport_sum(mbuf, protocol, v4, (l3, l4), at);
                }
            }
        }
        let kept =
            mbuf.tx_flags() - (TxFlags::L4_MASK | TxFlags::IP_CHECKSUM | TxFlags::IPV4 | TxFlags::IPV6);
        mbuf.set_tx_flags(if asks { kept | flags } else { kept });
        if asks {
            mbuf.set_tx_offload(TxOffload {
                l2_len: parsed.l2_len as u8,
                l3_len: parsed.l3_len,
                l4_len: parsed.l4_len as u8,
                tso_segment_bytes: segment_bytes,
                ..TxOffload::default()
            });
        }
        asks || !kept.is_empty()
    }
}

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
        self.marks.put(lane.packets());
        // What cannot be sent as it asks is dropped.
        while asks && let Err(bad) = lane.tx.tx_prepare(&mut lane.burst) {
            drop(lane.burst.remove(bad.index));
            lane.counters.add(Count::Dropped, 1);
        }
        lane.send();
        received
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
    let Some(bytes) = carried(mbuf.data(), v4, l3, l4) else { return };
    if bytes > mbuf.pkt_len() as usize - l4 {
        return;
    }
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
    let Some(mut sum) = pseudo(mbuf.data(), protocol, v4, l3, bytes) else { return };
    let mut offset = 0;
    for piece in pieces(mbuf, l4, bytes) {
        sum = sum.add_bytes_at(offset, piece);
        offset += piece.len();
    }
    let sum = if protocol == IpProtocol::UDP { sum.checksum_udp() } else { sum.checksum() };
    put(mbuf, l4 + at, sum);
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
mod tests {
    use pollux_mempool::MbufPool;
    use pollux_port::{FrameSource, MacAddress};
    use pollux_wire::build::Frame;
    use pollux_wire::{Tci, TcpFlags};

    use super::*;

    const ENDS: Ends = Ends { source: MacAddress([2, 0, 0, 0, 0, 1]), peer: MacAddress([2, 0, 0, 0, 0, 2]) };

    fn pool() -> MbufPool {
        MbufPool::builder("sums", 128).build_anonymous().expect("memory")
    }

    fn frames() -> Vec<Frame> {
        let ether = || Frame::ether(ENDS.source, ENDS.peer);
        vec![
            ether().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"odd"),
            ether()
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
                .tcp(1, 2)
                .flags(TcpFlags::SYN)
                .payload(b"")
                .padded_to(60),
            ether().vlan(Tci(7)).ipv6(1, 2).tcp(1, 2).payload(b"over IPv6"),
            ether().ipv6(1, 2).udp(3, 4).payload(&[0xff; 301]),
        ]
    }

    #[test]
    fn software_sums_are_those_of_the_sender() {
        let engine = Csum::new(&ENDS, Marks::default(), CsumSettings::default());
        let pool = pool();
        for frame in frames() {
            let mut wrong = frame.clone();
            let l3 = wrong.len() - frame.len() + usize::from(ptype::parse(&frame).l2_len);
            let parsed = ptype::parse(&frame);
            let l4 = usize::from(parsed.l2_len + parsed.l3_len);
            let at = l4 + if parsed.ptype.is_udp() { 6 } else { 16 };
            wrong[at..at + 2].copy_from_slice(&[0x12, 0x34]);
            if parsed.ptype.is_ipv4() {
                wrong[l3 + 10..l3 + 12].copy_from_slice(&[0x56, 0x78]);
            }
            let mut mbuf = pool.alloc_frame(&wrong).expect("an mbuf");
            engine.edit(&mut mbuf);
            assert_eq!(mbuf.data()[12..], frame[12..]);
            assert!(mbuf.tx_flags().is_empty());
            // The same in two segments.
            let mut first = pool.alloc_frame(&wrong[..l4 + 20.min(wrong.len() - l4)]).expect("an mbuf");
            let rest = &wrong[first.data_len()..];
            if !rest.is_empty() {
                first.chain(pool.alloc_frame(rest).expect("an mbuf")).expect("a chain");
            }
            engine.edit(&mut first);
            let mut whole = vec![0; frame.len()];
            first.read(0, &mut whole);
            assert_eq!(whole[12..], frame[12..], "in two segments");
        }
    }

    #[test]
    fn what_the_port_does_is_asked_for() {
        let settings = CsumSettings { ip: true, udp: true, tcp: true, sctp: true, tso_bytes: 5 };
        let engine = Csum::new(&ENDS, Marks::default(), settings);
        let pool = pool();
        let wanted = [
            TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::UDP_CHECKSUM,
            // No payload to cut.
            TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::TCP_CHECKSUM,
            TxFlags::IPV6 | TxFlags::TCP_SEGMENTATION,
            TxFlags::IPV6 | TxFlags::UDP_CHECKSUM,
        ];
        for (frame, flags) in frames().into_iter().zip(wanted) {
            let mut mbuf = pool.alloc_frame(&frame).expect("an mbuf");
            engine.edit(&mut mbuf);
            assert_eq!(mbuf.tx_flags(), flags);
            let offload = mbuf.tx_offload();
            assert_eq!(
                offload.tso_segment_bytes,
                if flags.contains(TxFlags::TCP_SEGMENTATION) { 5 } else { 0 }
            );
        }
    }

    #[test]
    fn what_is_no_ip_or_cut_off_stays() {
        let engine = Csum::new(&ENDS, Marks::default(), CsumSettings::default());
        let pool = pool();
        for frame in frames() {
            for bytes in 0..frame.len() {
                let mut mbuf = pool.alloc_frame(&frame[..bytes]).expect("an mbuf");
                engine.edit(&mut mbuf);
                assert_eq!(mbuf.data_len(), bytes);
            }
        }
    }
}
