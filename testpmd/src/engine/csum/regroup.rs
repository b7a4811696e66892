//! GRO of what the rx port receives and GSO of what the tx port sends: packets are joined before `csum` looks at them, and cut before it
//! fills in checksums, so that these are right whoever fills them in.

use pollux_eal::clock::cycles;
use pollux_fragment::{Gro, GroKinds, Gso};
use pollux_mempool::{BURST_MAX, Mbuf, MbufPool};
use pollux_wire::ptype;

use super::{CUTS, Csum, CsumSettings};
use crate::lane::{Count, Lane};

/// Rounds after which GRO lets go of what it holds (`set gro flush`). Source: DPDK `app/test-pmd/testpmd.h`, `GRO_MAX_FLUSH_CYCLES`.
pub const GRO_FLUSH_MAX: u8 = 4;
/// Where GRO holds packets for one burst alone. Source: DPDK `lib/gro/rte_gro.h`, `RTE_GRO_MAX_BURST_ITEM_NUM`.
const BURST_PACKETS: usize = 128;
/// Mbufs of a joined packet. Source: DPDK `lib/gro/gro_tcp.h`, `merge_two_tcp_packets`.
const SEGMENTS_MAX: usize = 20;

/// Packets that GRO holds at most.
#[must_use]
pub fn gro_packets(flush: u8) -> usize {
    if flush > 1 { BURST_MAX * usize::from(GRO_FLUSH_MAX) } else { BURST_PACKETS }
}

/// What is joined and cut on a stream.
#[derive(Debug)]
pub struct Regroup {
    gro: Option<Joining>,
    gso: Option<Cutting>,
    /// Packets between the two.
    ready: Vec<Mbuf>,
}

#[derive(Debug)]
struct Joining {
    gro: Gro,
    /// Rounds between two flushes, and since the last one.
    every: u8,
    rounds: u8,
}

#[derive(Debug)]
struct Cutting {
    /// Bytes of the longest frame.
    bytes: usize,
    pool: MbufPool,
}

impl Regroup {
    /// `gro`: rounds between two flushes, and mbufs that the tx port takes in one packet; `gso`: bytes of the longest frame, and what it is
    /// made of; `None` where neither is wanted. With `tunnels` packets in tunnels are joined, too.
    #[must_use]
    pub fn new(gro: Option<(u8, u16)>, gso: Option<(u16, MbufPool)>, tunnels: bool) -> Option<Box<Self>> {
        if gro.is_none() && gso.is_none() {
            return None;
        }
        let mut kinds = GroKinds::TCP_IPV4;
        kinds.set(GroKinds::TUNNELS, tunnels);
        let packets = gro.map_or(0, |(flush, _)| gro_packets(flush));
        let gro = gro.map(|(every, segments)| {
            let gro = Gro::new(kinds, packets, SEGMENTS_MAX.min(segments.into()));
            Joining { gro, every, rounds: 0 }
        });
        let gso = gso.map(|(bytes, pool)| Cutting { bytes: bytes.into(), pool });
        // Each packet of a burst may let go one more than are held.
        Some(Box::new(Self { gro, gso, ready: Vec::with_capacity(packets + 2 * BURST_MAX) }))
    }

    /// Packets that wait for others.
    pub(super) fn held(&self) -> usize {
        self.gro.as_ref().map_or(0, |joining| joining.gro.held())
    }

    fn join(&mut self, lane: &mut Lane, last: bool) {
        let Some(joining) = &mut self.gro else { return self.ready.extend(lane.burst.drain(..)) };
        let now = cycles::now();
        for packet in lane.burst.drain(..) {
            joining.gro.push(packet, now, &mut self.ready);
        }
        joining.rounds += 1;
        if joining.rounds >= joining.every || last {
            joining.gro.flush(u64::MAX, &mut self.ready);
            joining.rounds = 0;
        }
    }
}

impl Csum {
    /// A round with GRO or GSO: what was received is in the lane's burst; `last`: GRO lets go of all. The packets that moved.
    pub(super) fn regroup(&mut self, lane: &mut Lane, last: bool) -> usize {
        let Some(mut regroup) = self.regroup.take() else { return 0 };
        let received = lane.burst.len();
        self.count_told(lane);
        regroup.join(lane, last);
        let moved = received.max(regroup.ready.len());
        let mut asks = !self.marks.flags.is_empty();
        for packet in regroup.ready.drain(..) {
            match &regroup.gso {
                Some(gso) => self.cut_up(lane, packet, gso, &mut asks),
                None => self.put(lane, packet, &mut asks),
            }
        }
        if !lane.burst.is_empty() {
            self.ship(lane, asks);
        }
        self.regroup = Some(regroup);
        moved
    }

    /// Puts a packet into the burst, done as `csum` does it; a full burst is sent first.
    fn put(&self, lane: &mut Lane, mut packet: Mbuf, asks: &mut bool) {
        if lane.burst.is_full() {
            self.ship(lane, *asks);
        }
        *asks |= self.edit(&mut packet);
        lane.burst.push(packet);
    }

    /// The same of all that a packet is cut into. What is too long and cannot be cut is dropped, as in DPDK.
    fn cut_up(&self, lane: &mut Lane, mut packet: Mbuf, gso: &Cutting, asks: &mut bool) {
        let tunnels = self.settings.tunnels;
        if packet.pkt_len() as usize > gso.bytes
            && !packet.tx_flags().intersects(CUTS)
            && !ptype::parse(packet.data()).ptype.is_tcp()
        {
            // The checksum of UDP is of the whole: no port sees that.
            self.edit_as(&mut packet, &CsumSettings { tunnels, ..CsumSettings::default() });
        }
        let dropped = match Gso::plan(&packet, gso.bytes, tunnels, &gso.pool) {
            Ok(None) => return self.put(lane, packet, asks),
            Ok(Some(plan)) => (0..plan.count()).any(|index| {
                let made = plan.make(index).or_else(|| {
                    // Sending gives mbufs back.
                    self.ship(lane, *asks);
                    plan.make(index)
                });
                made.map(|segment| self.put(lane, segment, asks)).is_none()
            }),
            Err(_) => true,
        };
        lane.counters.add(Count::Dropped, u64::from(dropped));
    }
}
