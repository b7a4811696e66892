//! What ports, streams, lcores and pools counted, at one moment: the one snapshot that tables, reports, metrics, page and screen show.

use std::collections::BTreeMap;

use pollux_bringup::PortLedger;
use pollux_eal::clock::Clock;
use pollux_eal::histogram;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// Packets by why they were dropped: `rx no mbuf`, `tx full`. JSON has underscores in place of spaces.
pub type Reasons = BTreeMap<String, u64>;

/// One queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueCounts {
    /// Packets that passed.
    pub packets: u64,
    /// Their bytes, without the frame check sequence.
    pub bytes: u64,
    /// Packets dropped as errors.
    pub errors: u64,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortCounts {
    /// Its number.
    pub id: u16,
    /// Its name, `net_null0`.
    pub name: String,
    /// Its driver, `net_null`.
    pub driver: String,
    /// The port that sends what this one receives; none where several do.
    pub to: Option<u16>,
    /// Whether the device has disappeared.
    pub gone: bool,
    /// Whether the link is up.
    pub link_up: bool,
    /// The link's speed in Mbit/s, if it is known.
    pub link_mbps: Option<u32>,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, without the frame check sequence.
    pub rx_bytes: u64,
    /// Bytes sent, likewise.
    pub tx_bytes: u64,
    /// Packets dropped, by reason.
    #[serde(serialize_with = "underscored")]
    pub dropped: Reasons,
    /// By rx queue.
    pub rx_queues: Vec<QueueCounts>,
    /// By tx queue.
    pub tx_queues: Vec<QueueCounts>,
    /// What it made PCIe carry since it was opened; only the device model counts that.
    pub ledger: Option<PortLedger>,
}

impl PortCounts {
    /// Packets dropped, for any reason.
    #[must_use]
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// One lcore that forwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LcoreCounts {
    /// Its number.
    pub id: u16,
    /// The ports that it polls.
    pub ports: Vec<u16>,
    /// Packets that its streams moved.
    pub packets: u64,
    /// Cycles spent on packets.
    pub busy_cycles: u64,
    /// All cycles.
    pub total_cycles: u64,
}

impl LcoreCounts {
    /// The share of its time that it spent on packets, 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        ratio(self.busy_cycles, self.total_cycles)
    }

    /// TSC cycles that a packet took.
    #[must_use]
    pub fn cycles_per_packet(&self) -> f64 {
        ratio(self.busy_cycles, self.packets)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One stream: from an rx queue to a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamCounts {
    /// The port that receives.
    pub from: u16,
    /// With this queue.
    pub queue: u16,
    /// The port that sends.
    pub to: u16,
    /// Who polls it.
    pub lcore: u16,
    /// Packets that it moved.
    pub packets: u64,
    /// Packets that it let go, by reason; they are among those dropped by the port `to`.
    #[serde(serialize_with = "underscored")]
    pub lost: Reasons,
    /// The time from the end of the rx burst to the end of the tx burst, of each packet, where the program counts it.
    pub latency: Option<Latency>,
}

impl StreamCounts {
    /// What tells it from the others.
    pub(crate) fn key(&self) -> (u16, u16, u16, u16) {
        (self.lcore, self.from, self.queue, self.to)
    }

    /// Adds what another run of the same stream counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        for (reason, packets) in &other.lost {
            *self.lost.entry(reason.clone()).or_default() += packets;
        }
        match (&mut self.latency, &other.latency) {
            (Some(own), Some(other)) => own.cycles += &other.cycles,
            (own @ None, Some(other)) => *own = Some(other.clone()),
            (_, None) => {}
        }
    }
}

/// How long packets took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    cycles: histogram::Counts,
    hz: u64,
}

impl Latency {
    /// A histogram of cycles of `clock`.
    #[must_use]
    pub fn new(cycles: histogram::Counts, clock: Clock) -> Self {
        Self { cycles, hz: clock.hz() }
    }

    fn nanos(&self, cycles: u64) -> u64 {
        let nanos = u128::from(cycles) * 1_000_000_000 / u128::from(self.hz.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Number of packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.cycles.total()
    }

    /// The nanoseconds that the share `of` (0 to 1) of all packets did not exceed, at most 3.2 % above the true ones; `None`: there were
    /// none.
    #[must_use]
    pub fn quantile_ns(&self, of: f64) -> Option<u64> {
        self.cycles.quantile(of).map(|cycles| self.nanos(cycles))
    }

    /// The buckets that are not empty: the most nanoseconds of each, and its packets.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.cycles.buckets().map(|(end, packets)| (self.nanos(end), packets))
    }

    fn since(&self, earlier: &Self) -> Self {
        Self { cycles: self.cycles.since(&earlier.cycles), hz: self.hz }
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = serializer.serialize_struct("Latency", 6)?;
        shown.serialize_field("packets", &self.packets())?;
        for (name, of) in [("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999), ("max_ns", 1.0)] {
            shown.serialize_field(name, &self.quantile_ns(of))?;
        }
        shown.serialize_field("buckets", &self.buckets().collect::<Vec<_>>())?;
        shown.end()
    }
}

/// A pool that ports receive into.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PoolCounts {
    /// Its name.
    pub name: String,
    /// Number of mbufs.
    pub capacity: u64,
    /// Those that are free.
    pub available: u64,
}

/// Everything, at one moment or over a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Since the start; or the length of the span.
    pub seconds: f64,
    /// By number.
    pub ports: Vec<PortCounts>,
    /// By number.
    pub lcores: Vec<LcoreCounts>,
    /// By lcore, port and queue.
    pub streams: Vec<StreamCounts>,
    /// As they are at the end of a span, too.
    pub pools: Vec<PoolCounts>,
}

impl Counts {
    /// What happened since `earlier`. A count that is below the earlier one was reset in between, or its port opened again: then nothing
    /// is known of the span, and it is 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut span = self.clone();
        span.seconds -= earlier.seconds;
        for port in &mut span.ports {
            let Some(before) = earlier.ports.iter().find(|before| before.id == port.id) else { continue };
            less(&mut port.rx_packets, before.rx_packets);
            less(&mut port.rx_bytes, before.rx_bytes);
            // What was sent earlier may have turned out to be lost since.
            less(&mut port.tx_packets, before.tx_packets);
            less(&mut port.tx_bytes, before.tx_bytes);
            less_reasons(&mut port.dropped, &before.dropped);
            for (queues, before) in
                [(&mut port.rx_queues, &before.rx_queues), (&mut port.tx_queues, &before.tx_queues)]
            {
                for (queue, before) in queues.iter_mut().zip(before) {
                    less(&mut queue.packets, before.packets);
                    less(&mut queue.bytes, before.bytes);
                    less(&mut queue.errors, before.errors);
                }
            }
            if let (Some(ledger), Some(before)) = (&mut port.ledger, &before.ledger) {
                *ledger = ledger.since(before);
            }
        }
        for lcore in &mut span.lcores {
            let Some(before) = earlier.lcores.iter().find(|before| before.id == lcore.id) else { continue };
            less(&mut lcore.packets, before.packets);
            less(&mut lcore.busy_cycles, before.busy_cycles);
            less(&mut lcore.total_cycles, before.total_cycles);
        }
        for stream in &mut span.streams {
            let Some(before) = earlier.streams.iter().find(|before| before.key() == stream.key()) else {
                continue;
            };
            less(&mut stream.packets, before.packets);
            less_reasons(&mut stream.lost, &before.lost);
            if let (Some(latency), Some(before)) = (&mut stream.latency, &before.latency) {
                *latency = latency.since(before);
            }
        }
        span
    }

    /// A count of this span as a rate.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

fn less(count: &mut u64, earlier: u64) {
    *count = count.saturating_sub(earlier);
}

fn less_reasons(now: &mut Reasons, earlier: &Reasons) {
    for (reason, count) in now {
        less(count, earlier.get(reason).copied().unwrap_or(0));
    }
}

/// A reason as one word: `tx_full`.
pub(crate) fn word(reason: &str) -> String {
    reason.replace(' ', "_")
}

pub(crate) fn underscored<S: Serializer>(reasons: &Reasons, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(reasons.iter().map(|(reason, packets)| (word(reason), packets)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_the_difference() {
        let lcore = |packets, busy_cycles| LcoreCounts {
            packets,
            busy_cycles,
            total_cycles: 1_000,
            ..LcoreCounts::default()
        };
        let port = |rx_packets, full| PortCounts {
            rx_packets,
            dropped: [("tx full".to_owned(), full)].into(),
            ..PortCounts::default()
        };
        let early = Counts {
            seconds: 1.0,
            ports: vec![port(10, 1)],
            lcores: vec![lcore(10, 100)],
            ..Counts::default()
        };
        let late = Counts {
            seconds: 3.0,
            ports: vec![port(30, 4)],
            lcores: vec![lcore(30, 500)],
            ..Counts::default()
        };
        let span = late.since(&early);
        assert_eq!((span.seconds, span.ports[0].rx_packets, span.ports[0].dropped["tx full"]), (2.0, 20, 3));
        assert_eq!((span.lcores[0].cycles_per_packet(), span.lcores[0].busy()), (20.0, 0.0));
        assert_eq!((late.lcores[0].busy(), LcoreCounts::default().cycles_per_packet()), (0.5, 0.0));
    }

    #[test]
    fn what_was_reset_in_between_counts_as_nothing() {
        let port = |count| PortCounts {
            rx_packets: count,
            rx_bytes: 60 * count,
            tx_packets: count,
            tx_bytes: 60 * count,
            dropped: [("rx no mbuf".to_owned(), count)].into(),
            ..PortCounts::default()
        };
        let lcore = |count| LcoreCounts {
            packets: count,
            busy_cycles: count,
            total_cycles: count,
            ..LcoreCounts::default()
        };
        let counts =
            |count| Counts { ports: vec![port(count)], lcores: vec![lcore(count)], ..Counts::default() };
        assert_eq!(counts(3).since(&counts(10)), counts(0));
    }
}
