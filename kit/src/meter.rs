//! Reads what a running program counts, on any thread.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pollux_bringup::View;
use pollux_eal::histogram;
use pollux_eal::lcore::LcoreId;
use pollux_port::{PortId, PortReading, PortState, PortView, QueueId, QueueStats};

use crate::counts::{
    Counts, Latency, LcoreCounts, PoolCounts, PortCounts, QueueCounts, Reasons, StreamCounts,
};

/// What a stream counts itself, beside the queues of its ports. It is read on the control side.
pub trait StreamCounters: Debug + Send + Sync {
    /// Packets that it let go, by reason.
    fn lost(&self) -> Vec<(&'static str, u64)>;

    /// Packets that it moved. `None`: those that its rx queue received.
    fn packets(&self) -> Option<u64> {
        None
    }

    /// TSC cycles from the end of the rx burst to the end of the tx burst, of each packet, where they are counted.
    fn latency(&self) -> Option<histogram::Counts> {
        None
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
    /// What it counts itself.
    pub counters: Arc<dyn StreamCounters>,
}

/// What is counted: ports, the streams that there are between them, and what earlier ones had come to.
#[derive(Debug, Default)]
struct Counting {
    ports: Arc<[PortId]>,
    present: Vec<Counted>,
    ended: BTreeMap<(u16, u16, u16, u16), StreamCounts>,
    /// By lcore, packets of streams whose ports are gone: the cycles that they took stay counted, too.
    left: BTreeMap<u16, u64>,
}

impl Counting {
    /// Counts these ports from now on. A number may be given to another device: streams go with the ports that they name.
    fn replace_ports(&mut self, ports: &[PortId]) {
        let is_there = |from: u16, to: u16| [from, to].iter().all(|id| ports.contains(&PortId(*id)));
        let mut leaves = |lcore: u16, packets: u64| *self.left.entry(lcore).or_default() += packets;
        self.present.retain(|path| {
            let stays = is_there(path.from.0, path.to.0);
            if !stays {
                leaves(path.lcore.0, path.counters.packets().unwrap_or(0));
            }
            stays
        });
        self.ended.retain(|_, stream| {
            let stays = is_there(stream.from, stream.to);
            if !stays {
                leaves(stream.lcore, stream.packets);
            }
            stays
        });
        self.ports = ports.into();
    }
}

/// Reads [`Counts`] of a running program, on any thread; time counts from when it was made. Clones are the same.
#[derive(Clone, Debug)]
pub struct Meter {
    start: Instant,
    counting: Arc<Mutex<Counting>>,
}

impl Meter {
    /// Counts the ports at both ends of `paths`, and their lcores.
    #[must_use]
    pub fn new(paths: Vec<Counted>) -> Self {
        let mut ports: Vec<PortId> = paths.iter().flat_map(|path| [path.from, path.to]).collect();
        ports.sort_unstable();
        ports.dedup();
        let meter = Self::of_ports(&ports);
        meter.counting().present = paths;
        meter
    }

    /// Counts these ports, without streams until there are some.
    #[must_use]
    pub fn of_ports(ports: &[PortId]) -> Self {
        let counting = Counting { ports: ports.into(), ..Counting::default() };
        Self { start: Instant::now(), counting: Arc::new(Mutex::new(counting)) }
    }

    /// The ports that are in use.
    #[must_use]
    pub fn ports(&self) -> Arc<[PortId]> {
        self.counting().ports.clone()
    }

    /// Counts these ports from now on. Of streams that name another port nothing is left but the packets of their lcores.
    pub fn replace_ports(&self, ports: &[PortId]) {
        self.counting().replace_ports(ports);
    }

    /// Counts these streams from now on. What the present ones had counted stays in the sums.
    pub fn replace_streams(&self, paths: Vec<Counted>, view: &View) {
        let mut counting = self.counting();
        for path in std::mem::take(&mut counting.present) {
            let last = stream(&path, 0, view);
            counting.ended.entry(last.key()).and_modify(|sum| sum.add(&last)).or_insert(last);
        }
        counting.present = paths;
    }

    fn counting(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts now. A port whose driver is busy for longer than a second is left out.
    #[must_use]
    pub fn read(&self, view: &View) -> Counts {
        let seconds = self.start.elapsed().as_secs_f64();
        let known = self.ports();
        let wanted = view.ports().into_iter().filter(|port| known.contains(&port.id()));
        let ports: Vec<(PortView, PortReading)> =
            wanted.filter_map(|port| port.reading().map(|reading| (port, reading))).collect();
        let (streams, lcores) = self.streams_and_lcores(&ports, view);
        let counts = |(port, reading): &(PortView, PortReading)| PortCounts {
            to: self.destination(port.id()),
            ledger: view.ledger(port.name()),
            ..port_counts(port, reading, &streams)
        };
        let pools = view.pools().into_iter().map(|pool| {
            let stats = pool.stats();
            let [capacity, available] = [stats.capacity, stats.available].map(|mbufs| mbufs as u64);
            PoolCounts { name: pool.name().into(), capacity, available }
        });
        Counts { seconds, ports: ports.iter().map(counts).collect(), lcores, pools: pools.collect(), streams }
    }

    /// Where a port's packets go; none where they go to several.
    fn destination(&self, from: PortId) -> Option<u16> {
        let counting = self.counting();
        let mut all = counting.present.iter().filter(|path| path.from == from).map(|path| path.to);
        let first = all.next()?;
        all.all(|to| to == first).then_some(first.0)
    }

    fn streams_and_lcores(
        &self,
        ports: &[(PortView, PortReading)],
        view: &View,
    ) -> (Vec<StreamCounts>, Vec<LcoreCounts>) {
        let counting = self.counting();
        let mut all = counting.ended.clone();
        let mut lcores: BTreeMap<u16, LcoreCounts> = BTreeMap::new();
        for path in &counting.present {
            let source = ports.iter().find(|(port, _)| port.id() == path.from);
            let queue =
                source.and_then(|(_, reading)| reading.stats.rx_queues.get(usize::from(path.queue.0)));
            let now = stream(path, queue.map_or(0, |queue| queue.packets), view);
            let lcore = lcores.entry(now.lcore).or_default();
            if !lcore.ports.contains(&now.from) {
                lcore.ports.push(now.from);
            }
            all.entry(now.key()).and_modify(|sum| sum.add(&now)).or_insert(now);
        }
        let packets = all.values().map(|stream| (stream.lcore, stream.packets));
        for (lcore, packets) in packets.chain(counting.left.iter().map(|(lcore, packets)| (*lcore, *packets)))
        {
            lcores.entry(lcore).or_default().packets += packets;
        }
        let lcores = lcores.into_iter().map(|(id, lcore)| {
            let usage = view.usage(LcoreId(id)).unwrap_or_default();
            LcoreCounts { id, busy_cycles: usage.busy, total_cycles: usage.total, ..lcore }
        });
        (all.into_values().collect(), lcores.collect())
    }
}

fn stream(path: &Counted, received: u64, view: &View) -> StreamCounts {
    let lost = path.counters.lost().into_iter().filter(|(_, packets)| *packets > 0);
    StreamCounts {
        from: path.from.0,
        queue: path.queue.0,
        to: path.to.0,
        lcore: path.lcore.0,
        packets: path.counters.packets().unwrap_or(received),
        lost: lost.map(|(reason, packets)| (reason.to_owned(), packets)).collect(),
        latency: path.counters.latency().map(|cycles| Latency::new(cycles, view.clock())),
    }
}

fn port_counts(port: &PortView, reading: &PortReading, streams: &[StreamCounts]) -> PortCounts {
    let id = port.id().0;
    let mut dropped = Reasons::new();
    for drop in &reading.dropped {
        *dropped.entry(format!("{} {}", drop.direction, drop.reason)).or_default() += drop.packets;
    }
    // What a stream let go belongs to the port that did not take it.
    for (reason, packets) in streams.iter().filter(|stream| stream.to == id).flat_map(|stream| &stream.lost) {
        *dropped.entry(reason.clone()).or_default() += packets;
    }
    let queues = |stats: &[QueueStats]| {
        let one = |queue: &QueueStats| QueueCounts {
            packets: queue.packets,
            bytes: queue.bytes,
            errors: queue.errors,
        };
        stats.iter().map(one).collect()
    };
    let stats = &reading.stats;
    PortCounts {
        id,
        name: port.name().into(),
        driver: reading.driver.into(),
        to: None,
        gone: reading.state == PortState::Gone,
        link_up: reading.link.up,
        link_mbps: reading.link.speed_mbps.filter(|_| reading.link.up),
        rx_packets: stats.ipackets,
        tx_packets: stats.opackets,
        rx_bytes: stats.ibytes,
        tx_bytes: stats.obytes,
        dropped,
        rx_queues: queues(&stats.rx_queues),
        tx_queues: queues(&stats.tx_queues),
        ledger: None,
    }
}

#[cfg(test)]
mod tests {
    use pollux_bringup::{Bringup, PortRequest};
    use pollux_config::CommandLine;
    use pollux_eal::LcoreContext;
    use pollux_eal::clock::Nanos;

    use super::*;
    use crate::Lost;
    use crate::forward::{Edit, paths};
    use crate::pairs::Hop;

    fn counted(from: u16, to: u16, lcore: u16) -> Counted {
        Counted {
            from: PortId(from),
            queue: QueueId(0),
            to: PortId(to),
            lcore: LcoreId(lcore),
            counters: Arc::new(Lost::default()),
        }
    }

    #[test]
    fn ports_of_paths_in_any_order_are_counted_once() {
        let meter = Meter::new(vec![counted(3, 2, 0), counted(0, 1, 0), counted(3, 2, 1), counted(1, 0, 1)]);
        assert_eq!(*meter.ports(), [0, 1, 2, 3].map(PortId));
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
        let meter = Meter::new(vec![Counted { counters: path.lost(), ..counted(0, 1, main.0) }]);
        // A port that stands still takes nothing.
        bringup.ports.get_mut(PortId(1)).expect("a port").stop().expect("stops");
        let work = move |lcore: &LcoreContext| {
            let held = path.step(lcore);
            path.finish(lcore);
            held as u64
        };
        let held = bringup.eal.launch(main, work).expect("launched").wait().expect("no panic");
        let counts = meter.read(&bringup.view());
        let seen: Vec<_> = counts
            .ports
            .iter()
            .map(|port| (port.id, port.to, port.dropped.get("tx full").copied()))
            .collect();
        assert_eq!(seen, [(0, Some(1), None), (1, None, Some(held))]);
        assert!(held > 0 && counts.lcores[0].ports == [0], "{counts:?}");
    }

    #[test]
    fn a_port_whose_packets_go_to_several_has_no_destination() {
        let to = |paths: &[(u16, u16)]| {
            let paths = paths.iter().map(|(from, to)| counted(*from, *to, 0)).collect();
            Meter::new(paths).destination(PortId(0))
        };
        assert_eq!([to(&[(0, 1), (0, 1)]), to(&[(0, 1), (0, 2)]), to(&[(1, 0)])], [Some(1), None, None]);
    }

    #[test]
    fn an_lcore_is_one_and_names_each_port_once() {
        let line = "meter -l 0 --no-huge --vdev net_null0 --vdev net_null1";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let order = [counted(0, 1, 1), counted(0, 1, 0), counted(1, 0, 0), counted(0, 1, 0)];
        let lcores = Meter::new(order.to_vec()).read(&bringup.view()).lcores;
        let seen: Vec<_> = lcores.into_iter().map(|lcore| (lcore.id, lcore.ports)).collect();
        assert_eq!(seen, [(0, vec![0, 1]), (1, vec![0])]);
    }

    /// A stream that counts what it is told.
    #[derive(Debug)]
    struct Told(u64);

    impl StreamCounters for Told {
        fn lost(&self) -> Vec<(&'static str, u64)> {
            vec![("tx full", self.0)]
        }

        fn packets(&self) -> Option<u64> {
            Some(10 * self.0)
        }

        fn latency(&self) -> Option<histogram::Counts> {
            let (mut recorder, histogram) = histogram::new();
            recorder.record_many(7, self.0);
            Some(histogram.counts())
        }
    }

    #[test]
    fn what_ended_streams_counted_stays_in_the_sums() {
        let line = "meter -l 0 --no-huge --vdev net_null0 --vdev net_null1";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let view = bringup.view();
        let told = |from, to, count| Counted { counters: Arc::new(Told(count)), ..counted(from, to, 0) };
        let meter = Meter::of_ports(&[PortId(0), PortId(1)]);
        assert!(meter.read(&view).lcores.is_empty());
        meter.replace_streams(vec![told(0, 1, 3), told(1, 0, 1)], &view);
        meter.replace_streams(vec![told(0, 1, 4)], &view);
        let counts = meter.read(&view);
        let seen: Vec<_> = counts
            .streams
            .iter()
            .map(|stream| {
                (
                    stream.from,
                    stream.packets,
                    stream.lost["tx full"],
                    stream.latency.as_ref().map(Latency::packets),
                )
            })
            .collect();
        assert_eq!(seen, [(0, 70, 7, Some(7)), (1, 10, 1, Some(1))]);
        assert_eq!((counts.lcores[0].packets, &counts.lcores[0].ports[..]), (80, &[0][..]));
        assert_eq!((counts.ports[1].dropped["tx full"], counts.ports[0].dropped["tx full"]), (7, 1));
    }

    #[test]
    fn a_port_that_takes_the_number_of_another_inherits_nothing() {
        let line = "meter -l 0 --no-huge --vdev net_null0 --vdev net_null1 --vdev net_null2";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let view = bringup.view();
        let told = |from, to, count| Counted { counters: Arc::new(Told(count)), ..counted(from, to, 0) };
        let all = [0, 1, 2].map(PortId);
        let meter = Meter::of_ports(&all);
        let streams = |counts: &Counts| -> Vec<(u16, u16, u64)> {
            counts.streams.iter().map(|stream| (stream.from, stream.to, stream.packets)).collect()
        };
        meter.replace_streams(vec![told(0, 1, 3), told(2, 0, 1)], &view);
        meter.replace_streams(vec![told(1, 0, 4), told(0, 2, 5)], &view);
        assert_eq!(streams(&meter.read(&view)), [(0, 1, 30), (0, 2, 50), (1, 0, 40), (2, 0, 10)]);
        meter.replace_ports(&[PortId(0), PortId(2)]);
        meter.replace_ports(&all);
        let counts = meter.read(&view);
        assert_eq!(streams(&counts), [(0, 2, 50), (2, 0, 10)]);
        let dropped = |port: usize| counts.ports[port].dropped.get("tx full").copied();
        assert_eq!([0, 1, 2].map(dropped), [Some(1), None, Some(5)]);
        assert_eq!([0, 1, 2].map(|port: usize| counts.ports[port].to), [Some(2), None, None]);
        // The lcore's cycles went on, and so do its packets.
        assert_eq!((counts.lcores[0].packets, &counts.lcores[0].ports[..]), (130, &[0][..]));
    }
}
