//! What an rx queue's packets came to: drops by reason, and packets by the port that sends them.

use std::sync::Arc;

use pollux_eal::counter::Counter;
use pollux_kit::StreamCounters;

/// Why a packet is not sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// With a VLAN tag.
    Vlan,
    /// It ends inside its headers.
    Truncated,
    /// Another version than the EtherType says.
    Version,
    /// A header of under 20 bytes.
    HeaderLength,
    /// A length that is less than the header's, or more than there is.
    Length,
    /// The header's checksum is wrong.
    Checksum,
    /// No hop is left.
    Ttl,
    /// IPv6 extension headers that cannot be followed to the ports.
    Extensions,
    /// Its headers are shared or scattered, and there is no mbuf for a copy.
    NoMbuf,
    /// No route, flow or rule.
    NoRoute,
    /// An ACL rule forbids it.
    Denied,
}

impl Reason {
    const ALL: [Self; 12] = [
        Self::NotIp,
        Self::Vlan,
        Self::Truncated,
        Self::Version,
        Self::HeaderLength,
        Self::Length,
        Self::Checksum,
        Self::Ttl,
        Self::Extensions,
        Self::NoMbuf,
        Self::NoRoute,
        Self::Denied,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::NotIp => "not ip",
            Self::Vlan => "vlan",
            Self::Truncated => "truncated",
            Self::Version => "ip version",
            Self::HeaderLength => "ip header length",
            Self::Length => "ip length",
            Self::Checksum => "ip checksum",
            Self::Ttl => "ttl expired",
            Self::Extensions => "ip extensions",
            Self::NoMbuf => "no mbuf",
            Self::NoRoute => "no route",
            Self::Denied => "denied",
        }
    }
}

/// From the queue to one port.
#[derive(Debug, Default)]
struct Way {
    packets: Counter,
    tx_full: Counter,
    port_gone: Counter,
}

/// Counts of one rx queue. The lcore that polls it writes them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct QueueCounts {
    drops: [Counter; Reason::ALL.len()],
    /// By the place of the port that sends.
    ways: Box<[Way]>,
}

impl QueueCounts {
    pub(crate) fn new(ports: usize) -> Arc<Self> {
        let ways = (0..ports).map(|_| Way::default()).collect();
        Arc::new(Self { drops: Default::default(), ways })
    }

    /// A packet that is not sent on.
    #[inline]
    pub(crate) fn dropped(&self, reason: Reason) {
        self.drops[reason as usize].add(1);
    }

    /// Packets for the port at a place.
    #[inline(always)]
    pub(crate) fn routed(&self, place: usize, packets: usize) {
        self.ways[place].packets.add(packets as u64);
    }

    /// Of those, packets that the port did not take.
    #[cold]
    pub(crate) fn lost(&self, place: usize, packets: usize, gone: bool) {
        let way = &self.ways[place];
        let count = if gone { &way.port_gone } else { &way.tx_full };
        count.add(packets as u64);
    }
}

/// What the report reads of a queue: its packets to one port. What is dropped before it has a port counts as on the way back to its own.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) counts: Arc<QueueCounts>,
    pub(crate) place: usize,
    /// The port is the queue's own.
    pub(crate) is_own: bool,
}

impl Stream {
    fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let drops = if self.is_own { &self.counts.drops[..] } else { &[] };
        Reason::ALL.iter().zip(drops).map(|(reason, count)| (reason.name(), count.get()))
    }
}

impl StreamCounters for Stream {
    fn lost(&self) -> Vec<(&'static str, u64)> {
        let way = &self.counts.ways[self.place];
        let lost = [("tx full", way.tx_full.get()), ("port gone", way.port_gone.get())];
        lost.into_iter().chain(self.drops()).collect()
    }

    fn packets(&self) -> Option<u64> {
        let dropped: u64 = self.drops().map(|(_, packets)| packets).sum();
        Some(self.counts.ways[self.place].packets.get() + dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_counted_on_one_stream() {
        let counts = QueueCounts::new(2);
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, place, "reasons stand in order");
            counts.dropped(*reason);
        }
        counts.routed(1, 5);
        counts.lost(1, 2, false);
        counts.lost(1, 1, true);
        let stream = |place, is_own| Stream { counts: Arc::clone(&counts), place, is_own };
        let (own, other) = (stream(0, true), stream(1, false));
        assert_eq!((own.packets(), other.packets()), (Some(12), Some(5)));
        assert_eq!(other.lost(), [("tx full", 2), ("port gone", 1)]);
        assert_eq!(own.lost().iter().filter(|(_, packets)| *packets == 1).count(), 12);
    }
}
