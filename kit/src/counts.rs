//! What ports and lcores counted, at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use pollux_bringup::{Bringup, PortLedger};
use pollux_eal::lcore::LcoreId;
use pollux_port::{Port, PortId, PortState, PortStats, QueueId};

use crate::retry::Lost;

/// One port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortCounts {
    /// Its number.
    pub id: u16,
    /// Its name, `net_null0`.
    pub name: String,
    /// Its driver, `net_null`.
    pub driver: String,
    /// The port that sends what this one receives.
    pub to: Option<u16>,
    /// Whether the device has disappeared.
    pub gone: bool,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, without the frame check sequence.
    pub rx_bytes: u64,
    /// Bytes sent, likewise.
    pub tx_bytes: u64,
    /// Packets dropped, by reason: `rx no mbuf`, `tx full`.
    pub dropped: BTreeMap<String, u64>,
    /// What it made PCIe carry since it was opened; only the device model counts that.
    pub ledger: Option<PortLedger>,
}

/// One lcore that forwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LcoreCounts {
    /// Its number.
    pub id: u16,
    /// The ports that it polls.
    pub ports: Vec<u16>,
    /// Packets that they received.
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

/// Everything, at one moment or over a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Since the start; or the length of the span.
    pub seconds: f64,
    /// By number.
    pub ports: Vec<PortCounts>,
    /// By number.
    pub lcores: Vec<LcoreCounts>,
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
            port.rx_packets = port.rx_packets.saturating_sub(before.rx_packets);
            port.rx_bytes = port.rx_bytes.saturating_sub(before.rx_bytes);
            // What was sent earlier may have turned out to be lost since.
            port.tx_packets = port.tx_packets.saturating_sub(before.tx_packets);
            port.tx_bytes = port.tx_bytes.saturating_sub(before.tx_bytes);
            for (reason, count) in &mut port.dropped {
                *count = count.saturating_sub(before.dropped.get(reason).copied().unwrap_or(0));
            }
        }
        for lcore in &mut span.lcores {
            let Some(before) = earlier.lcores.iter().find(|before| before.id == lcore.id) else { continue };
            lcore.packets = lcore.packets.saturating_sub(before.packets);
            lcore.busy_cycles = lcore.busy_cycles.saturating_sub(before.busy_cycles);
            lcore.total_cycles = lcore.total_cycles.saturating_sub(before.total_cycles);
        }
        span
    }
}

/// One path between two ports, as the counting sees it.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Receives.
    pub from: PortId,
    /// With this queue.
    pub queue: QueueId,
    /// Sends.
    pub to: PortId,
    /// Who polls it.
    pub lcore: LcoreId,
    /// What it had to let go.
    pub lost: Arc<Lost>,
}

/// Reads [`Counts`] of a running program.
#[derive(Debug)]
pub struct Meter {
    start: Instant,
    ports: Vec<PortId>,
    paths: Vec<Counted>,
}

impl Meter {
    /// Counts the ports at both ends of `paths`, and their lcores. Time counts from here.
    #[must_use]
    pub fn new(paths: Vec<Counted>) -> Self {
        let mut ports: Vec<PortId> = paths.iter().flat_map(|path| [path.from, path.to]).collect();
        ports.sort_unstable();
        ports.dedup();
        Self { start: Instant::now(), ports, paths }
    }

    /// Counts ports only. Time counts from here.
    #[must_use]
    pub fn of_ports(ports: &[PortId]) -> Self {
        Self { start: Instant::now(), ports: ports.to_vec(), paths: Vec::new() }
    }

    /// The ports that are in use.
    #[must_use]
    pub fn ports(&self) -> &[PortId] {
        &self.ports
    }

    /// The counts now.
    pub fn read(&self, bringup: &Bringup) -> Counts {
        let seconds = self.start.elapsed().as_secs_f64();
        let ports = bringup.ports.iter().filter(|port| self.ports.contains(&port.id()));
        // Once a port, however many paths begin there: the kernel or the device may be asked.
        let stats: Vec<(&Port, PortStats)> = ports.map(|port| (port, port.stats())).collect();
        let counts = |(port, stats): &(&Port, PortStats)| PortCounts {
            ledger: bringup.ledger(port.id()),
            ..self.port(port, stats)
        };
        let mut lcores: Vec<LcoreCounts> = Vec::new();
        for path in &self.paths {
            let known = lcores.iter().position(|lcore| lcore.id == path.lcore.0);
            let place = known.unwrap_or_else(|| {
                let usage = bringup.eal.lcores().usage(path.lcore).unwrap_or_default();
                lcores.push(LcoreCounts {
                    id: path.lcore.0,
                    busy_cycles: usage.busy,
                    total_cycles: usage.total,
                    ..LcoreCounts::default()
                });
                lcores.len() - 1
            });
            if !lcores[place].ports.contains(&path.from.0) {
                lcores[place].ports.push(path.from.0);
            }
            let source = stats.iter().find(|(port, _)| port.id() == path.from);
            let queue = source.and_then(|(_, stats)| stats.rx_queues.get(usize::from(path.queue.0)));
            lcores[place].packets += queue.map_or(0, |queue| queue.packets);
        }
        lcores.sort_unstable_by_key(|lcore| lcore.id);
        Counts { seconds, ports: stats.iter().map(counts).collect(), lcores }
    }

    fn port(&self, port: &Port, stats: &PortStats) -> PortCounts {
        let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
        for drop in port.dropped() {
            *dropped.entry(format!("{} {}", drop.direction, drop.reason)).or_default() += drop.packets;
        }
        // What a path let go belongs to the port that did not take it.
        for path in self.paths.iter().filter(|path| path.to == port.id()) {
            for (reason, packets) in path.lost.by_reason().into_iter().filter(|(_, packets)| *packets > 0) {
                *dropped.entry(reason.into()).or_default() += packets;
            }
        }
        PortCounts {
            id: port.id().0,
            name: port.name().into(),
            driver: port.info().driver.into(),
            to: self.paths.iter().find(|path| path.from == port.id()).map(|path| path.to.0),
            gone: port.state() == PortState::Gone,
            rx_packets: stats.ipackets,
            tx_packets: stats.opackets,
            rx_bytes: stats.ibytes,
            tx_bytes: stats.obytes,
            dropped,
            ledger: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use pollux_bringup::PortRequest;
    use pollux_config::CommandLine;
    use pollux_eal::LcoreContext;
    use pollux_eal::clock::Nanos;

    use super::*;
    use crate::forward::{Edit, paths};
    use crate::pairs::Hop;

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
        let early = Counts { seconds: 1.0, ports: vec![port(10, 1)], lcores: vec![lcore(10, 100)] };
        let late = Counts { seconds: 3.0, ports: vec![port(30, 4)], lcores: vec![lcore(30, 500)] };
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
        let counts = |count| Counts { seconds: 0.0, ports: vec![port(count)], lcores: vec![lcore(count)] };
        assert_eq!(counts(3).since(&counts(10)), counts(0));
    }

    fn counted(from: u16, to: u16, lcore: u16) -> Counted {
        Counted {
            from: PortId(from),
            queue: QueueId(0),
            to: PortId(to),
            lcore: LcoreId(lcore),
            lost: Arc::default(),
        }
    }

    #[test]
    fn ports_of_paths_in_any_order_are_counted_once() {
        let meter = Meter::new(vec![counted(3, 2, 0), counted(0, 1, 0), counted(3, 2, 1), counted(1, 0, 1)]);
        assert_eq!(meter.ports(), [0, 1, 2, 3].map(PortId));
    }

    #[test]
    fn the_destination_of_a_one_way_path_is_counted_with_what_it_refused() {
        let line = "meter -l 0 --no-huge --vdev net_null0 --vdev net_null1";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let ids = [PortId(0), PortId(1)];
        let (queues, _pool) = bringup.start_ports(&ids, &PortRequest::new()).expect("up");
        let both = [Hop { from: 0, to: 1 }, Hop { from: 1, to: 0 }];
        let mut paths = paths(&both, queues, Nanos(1), |_| Ok(Edit::Keep)).expect("two paths");
        let (mut path, _) = paths.remove(0);
        let main = bringup.eal.lcores().main();
        let meter = Meter::new(vec![Counted { lost: path.lost(), ..counted(0, 1, main.0) }]);
        // A port that stands still takes nothing.
        bringup.ports.get_mut(PortId(1)).expect("a port").stop().expect("stops");
        let work = move |lcore: &LcoreContext| {
            let held = path.step(lcore);
            path.finish(lcore);
            held as u64
        };
        let held = bringup.eal.launch(main, work).expect("launched").wait().expect("no panic");
        let counts = meter.read(&bringup);
        let seen: Vec<_> = counts
            .ports
            .iter()
            .map(|port| (port.id, port.to, port.dropped.get("tx full").copied()))
            .collect();
        assert_eq!(seen, [(0, Some(1), None), (1, None, Some(held))]);
        assert!(held > 0 && counts.lcores[0].ports == [0], "{counts:?}");
    }

    #[test]
    fn an_lcore_is_one_and_names_each_port_once() {
        let line = "meter -l 0 --no-huge --vdev net_null0 --vdev net_null1";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let order = [counted(0, 1, 1), counted(0, 1, 0), counted(1, 0, 0), counted(0, 1, 0)];
        let lcores = Meter::new(order.to_vec()).read(&bringup).lcores;
        let seen: Vec<_> = lcores.into_iter().map(|lcore| (lcore.id, lcore.ports)).collect();
        assert_eq!(seen, [(0, vec![0, 1]), (1, vec![0])]);
    }
}
