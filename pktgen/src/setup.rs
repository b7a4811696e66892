//! From what is asked for to lcores that send: streams compiled, divided among queues, each with its counters.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pollux_bringup::{Bringup, BringupError, Needs, PoolOptions, PortRequest};
use pollux_eal::clock::Clock;
use pollux_eal::lcore::LcoreId;
use pollux_kit::Counted;
use pollux_mempool::MbufPool;
use pollux_port::{MacAddress, PortId, Queues};

use crate::answer::{AnswerCounters, Answerer};
use crate::count::{LaneCounters, SenderCounters, TaskCounters};
use crate::frame::FCS;
use crate::gaps::Gaps;
use crate::lane::{Lane, Lanes};
use crate::options::Options;
use crate::profile::{Placed, Profile};
use crate::rate::Rate;
use crate::replay::{self, Feeder, MBUFS, Replay, ReplaySpec};
use crate::report::{Part, Reported};
use crate::schedule::Pattern;
use crate::size::SIZE_MAX;
use crate::source::spread;
use crate::spec::StreamSpec;
use crate::stream::{Marking, Replica, Stream};
use crate::task::{Content, Desk, Pace, Receiver, Sender, Start, Task};
use crate::tracker::Tracker;

/// The most copies of streams on all queues: their numbers have 16 bits, and each has a table of returns on each lcore.
const COPIES_MAX: usize = 4096;

/// Ethernet header, and room for what the MTU does not count.
const HEADER: u32 = 18;

/// What is asked for, checked as far as it can be without ports.
pub(crate) fn specs(options: &Options) -> Result<Vec<StreamSpec>, BringupError> {
    let compiles = |spec: &StreamSpec| {
        if options.gaps
            && (spec.rate == Rate::Max || spec.pattern != Pattern::Constant || spec.replay.is_some())
        {
            return Err(
                "has no constant rate, against which --gaps is held: give it a rate, and no pattern".into()
            );
        }
        if let Some(replay) = &spec.replay {
            return match spec.rate {
                Rate::Max | Rate::Packets(_) if options.queues == 1 => replay.check(),
                Rate::Max | Rate::Packets(_) => Err("pcap: a file has one queue: leave --queues out".into()),
                _ => Err("pcap: the rate of a file is in pps, or max for its recorded times".into()),
            };
        }
        let copy = Replica { number: 0, of: 1, seed: options.seed };
        Stream::new(spec, MacAddress([2, 0, 0, 0, 0, 1]), copy, None).map(|_| ())
    };
    let Some(path) = &options.streams else {
        let spec = options.stream();
        compiles(&spec).map_err(|why| BringupError::Usage(format!("stream {why}")))?;
        return Ok(vec![spec]);
    };
    let profile = Profile::read(path)?;
    let streams = profile.streams(options)?;
    let checked = |placed: Placed| match compiles(&placed.spec) {
        Ok(()) => Ok(placed.spec),
        Err(why) => Err(profile.locate(&placed, &why).into()),
    };
    streams.into_iter().map(checked).collect()
}

/// A stream at a port that sends it.
struct Placement<'a> {
    spec: &'a StreamSpec,
    port: PortId,
}

/// A port of that number, which `what` names.
fn existing(what: &str, port: u16, names: &[String]) -> Result<PortId, BringupError> {
    if usize::from(port) < names.len() {
        return Ok(PortId(port));
    }
    let there = listed(names);
    Err(BringupError::Usage(format!("{what} names port {port}, which does not exist; ports: {there}")))
}

/// The ports that send streams that name none.
fn usual(options: &Options, names: &[String]) -> Result<Vec<PortId>, BringupError> {
    match options.portmask {
        Some(mask) => mask.ports().map(|port| existing("-p", port, names)).collect(),
        None => Ok(vec![PortId(0)]),
    }
}

/// Which port sends which stream.
fn placements<'a>(
    specs: &'a [StreamSpec],
    usual: &[PortId],
    queues: usize,
    names: &[String],
) -> Result<Vec<Placement<'a>>, BringupError> {
    let mut all = Vec::new();
    for spec in specs {
        match spec.port {
            Some(port) => {
                let port = existing(&format!("stream '{}'", spec.name), port, names)?;
                all.push(Placement { spec, port });
            }
            None => all.extend(usual.iter().map(|port| Placement { spec, port: *port })),
        }
    }
    let copies = all.len() * queues;
    if copies > COPIES_MAX {
        let why = format!("{copies} streams on all ports and queues are too many: at most {COPIES_MAX}");
        return Err(BringupError::Usage(why));
    }
    Ok(all)
}

/// The ports and lanes of a run, for which tasks are made.
#[derive(Debug)]
pub(crate) struct Rig {
    names: Vec<String>,
    macs: Vec<MacAddress>,
    /// Of each port, in Mbit/s.
    pub(crate) speeds: Vec<Option<u32>>,
    /// Ports that send streams that name none.
    pub(crate) usual: Vec<PortId>,
    queues: usize,
    seed: u64,
    /// Rates change while packets are sent.
    changes: bool,
    /// Gaps are measured, by this clock.
    gaps: Option<Clock>,
    /// What packets are made of.
    pool: MbufPool,
    start: Start,
    /// By port and queue.
    desks: Vec<Desk>,
}

/// What is launched beside it.
pub(crate) struct Launch {
    pub(crate) lanes: Vec<(LcoreId, Lanes)>,
    pub(crate) counted: Vec<Counted>,
    /// By port.
    pub(crate) answers: Vec<(u16, Arc<AnswerCounters>)>,
}

/// The rate of a stream at a port, on one of its queues, where rates change.
#[derive(Debug)]
struct StreamPace {
    stream: String,
    port: PortId,
    bytes: f64,
    pace: Pace,
}

/// Tasks that have begun.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) streams: Vec<Reported>,
    counters: Vec<Arc<TaskCounters>>,
    halt: Arc<AtomicBool>,
    paces: Vec<StreamPace>,
}

impl Running {
    /// Whether all is sent.
    pub(crate) fn has_ended(&self) -> bool {
        self.counters.iter().all(|task| task.ended.get() > 0)
    }

    /// Has the lanes end the sending.
    pub(crate) fn halt(&self) {
        self.halt.store(true, Ordering::Relaxed);
    }
}

/// Tasks for all lanes, and what they come to.
pub(crate) struct Tasks {
    lanes: Vec<Task>,
    streams: Vec<Reported>,
    halt: Arc<AtomicBool>,
    paces: Vec<StreamPace>,
}

impl Rig {
    /// Starts the ports and divides their queues among lcores.
    pub(crate) fn start(
        bringup: &mut Bringup,
        options: &Options,
        specs: &[StreamSpec],
    ) -> Result<(Self, Launch), BringupError> {
        let ids: Vec<PortId> = bringup.ports.iter_all().map(pollux_port::Port::id).collect();
        let names: Vec<String> = bringup.ports.iter_all().map(|port| port.name().to_owned()).collect();
        let usual = usual(options, &names)?;
        placements(specs, &usual, options.queues.into(), &names)?;
        if let Some(own) = options.ip.iter().find(|own| usize::from(own.port) >= ids.len()) {
            let why =
                format!("--ip names port {}, which does not exist; ports: {}", own.port, listed(&names));
            return Err(BringupError::Usage(why));
        }
        let lcores = bringup.eal.lcores().dataplane();
        let queues = usize::from(options.queues);
        let used = lcores.len().min(ids.len() * queues);
        let (mut ports, pool) = bringup.start_ports(&ids, &request(options, specs, used))?;
        let pool = sent_from(bringup, pool, specs, used)?;

        let (mut macs, mut speeds) = (Vec::new(), Vec::new());
        for id in &ids {
            macs.push(bringup.mac(*id)?);
            speeds.push(bringup.ports.get_mut(*id).and_then(|port| port.link().speed_mbps));
        }
        let rig = Self {
            names,
            macs,
            speeds,
            usual,
            queues,
            seed: options.seed,
            changes: options.rpc,
            gaps: options.gaps.then(|| bringup.eal.clock()),
            pool,
            start: Start::default(),
            desks: (0..ids.len() * queues).map(|_| Desk::default()).collect(),
        };
        let mut lanes: BTreeMap<usize, Vec<Lane>> = BTreeMap::new();
        let (mut counted, mut answers) = (Vec::new(), Vec::new());
        let all = ports.drain(..).flat_map(|Queues { rx, tx }| rx.into_iter().zip(tx));
        for (number, (rx, tx)) in all.enumerate() {
            let lcore = number % used.max(1);
            let (from, queue) = (rx.port(), rx.queue());
            let counters = Arc::<LaneCounters>::default();
            counted.push(Counted { from, queue, to: from, lcore: lcores[lcore], counters: counters.clone() });
            let own = options.ip.iter().filter(|own| own.port == from.0).map(|own| own.address);
            let own: Vec<IpAddr> = own.collect();
            let answerer = (!own.is_empty()).then(|| {
                let counters: Arc<AnswerCounters> = Arc::default();
                answers.push((from.0, Arc::clone(&counters)));
                Answerer::new(rig.macs[number / queues], &own, counters)
            });
            let told = (rig.start.clone(), rig.desks[number].clone());
            let lane = Lane::new((rx, tx), rig.pool.clone(), answerer, counters, told);
            lanes.entry(lcore).or_default().push(lane);
        }
        let lanes = lanes.into_iter().map(|(place, lanes)| (lcores[place], Lanes(lanes))).collect();
        Ok((rig, Launch { lanes, counted, answers }))
    }

    /// Makes tasks that send these streams for so long; `open` opens the capture files among them.
    pub(crate) fn tasks(
        &self,
        specs: &[StreamSpec],
        time: Option<Duration>,
        mut open: impl FnMut(&ReplaySpec, &str) -> Result<Replay, BringupError>,
    ) -> Result<Tasks, BringupError> {
        let halt = Arc::<AtomicBool>::default();
        // Others at each task, so that what comes late of the last one is not taken for the next one's.
        let cookie = RandomState::new().build_hasher().finish() as u32;
        let task = |_| Task { time, halt: Arc::clone(&halt), ..Task::default() };
        let mut lanes: Vec<Task> = (0..self.desks.len()).map(task).collect();
        let mut streams = Vec::new();
        // Those whose returns are measured, by number.
        let (mut measured, mut paces) = (Vec::new(), Vec::new());
        let placements = placements(specs, &self.usual, self.queues, &self.names)?;
        for (order, Placement { spec, port }) in placements.into_iter().enumerate() {
            let place = usize::from(port.0);
            let at = format!("stream '{}'", spec.name);
            let pps = spec.rate.packets_per_second(spec.sizes.mean(), self.speeds[place]);
            let pps = pps.map_err(|why| BringupError::Usage(format!("{at} at port {}: {why}", port.0)))?;
            let mut parts = Vec::new();
            for queue in 0..self.queues {
                let number = measured.len();
                measured.push(spec.latency);
                let marking = spec.latency.then_some(Marking { cookie, stream: number as u16 });
                let seed = spread(self.seed, (order * self.queues + queue) as u64);
                let copy = Replica { number: queue as u64, of: self.queues as u64, seed };
                let (content, bytes_until) = if let Some(wanted) = &spec.replay {
                    (Content::Replayed(open(wanted, &spec.name)?), Box::default())
                } else {
                    let stream = Stream::new(spec, self.macs[place], copy, marking)
                        .map_err(|why| BringupError::Usage(format!("{at} {why}")))?;
                    let bytes_until = stream.bytes_until();
                    (Content::Made(Box::new(stream)), bytes_until)
                };
                let pps = pps.map(|pps| pps / self.queues as f64);
                // Each has a constant rate then: see `specs`.
                let gaps = self.gaps.zip(pps).map(|(clock, pps)| Gaps::new(clock, pps));
                let (gaps, gap_view) = gaps.map(|(gaps, view)| (Box::new(gaps), view)).unzip();
                let lane = &mut lanes[place * self.queues + queue];
                let counters = Arc::<SenderCounters>::default();
                parts.push(Part {
                    counters: Arc::clone(&counters),
                    bytes_until,
                    task: Arc::clone(&lane.counters),
                    gaps: gap_view,
                    returns: Vec::new(),
                });
                let pace = self.changes.then(|| Pace::new(pps));
                paces.extend(pace.clone().map(|pace| StreamPace {
                    stream: spec.name.clone(),
                    port,
                    bytes: spec.sizes.mean(),
                    pace,
                }));
                lane.senders.push(Sender {
                    content,
                    pattern: spec.pattern,
                    pps,
                    pace,
                    counted: spec.count.is_some(),
                    left: spec.count.map_or(u64::MAX, |count| share(count, queue, self.queues)),
                    seed,
                    counters,
                    gaps,
                    schedule: None,
                });
            }
            let (name, paced) = (spec.name.clone(), pps.is_some());
            let replayed = spec.replay.is_some();
            streams.push(Reported { name, port: port.0, paced, replayed, latency: spec.latency, parts });
        }
        for lane in &mut lanes {
            lane.receiver = receiver(cookie, &measured, &mut streams);
        }
        Ok(Tasks { lanes, streams, halt, paces })
    }

    /// Has all lanes begin with their tasks, when those of before have ended.
    pub(crate) fn begin(&self, tasks: Tasks) -> Running {
        let Tasks { lanes, streams, halt, paces } = tasks;
        let counters = lanes.iter().map(|task| Arc::clone(&task.counters)).collect();
        for (desk, task) in self.desks.iter().zip(lanes) {
            desk.put(task);
        }
        self.start.give();
        Running { streams, counters, halt, paces }
    }

    /// Changes the rate of a stream, or of all, that is being sent.
    pub(crate) fn change(&self, running: &Running, stream: Option<&str>, rate: Rate) -> Result<(), String> {
        let of = |pace: &&StreamPace| stream.is_none_or(|stream| stream == pace.stream);
        // All can be, or none is changed.
        let changed: Vec<(&StreamPace, Option<f64>)> = running
            .paces
            .iter()
            .filter(of)
            .map(|pace| {
                let speed = self.speeds.get(usize::from(pace.port.0)).copied().flatten();
                let pps = rate.packets_per_second(pace.bytes, speed);
                match pps? {
                    pps if pps.is_some() != pace.pace.is_set() => {
                        Err("between max and a rate it changes when nothing is sent: stop first".to_owned())
                    }
                    pps => Ok((pace, pps.map(|pps| pps / self.queues as f64))),
                }
            })
            .collect::<Result<_, _>>()?;
        changed.into_iter().for_each(|(pace, pps)| pace.pace.set(pps));
        Ok(())
    }
}

/// Begins to read a capture file, into mbufs of its own, which hold jumbo frames.
pub(crate) fn open_replay(
    bringup: &Bringup,
    wanted: &ReplaySpec,
    name: &str,
) -> Result<(Replay, Feeder), BringupError> {
    let pool = long_mbufs(bringup, Needs::for_lcores(1), MBUFS)?;
    let started = replay::start(wanted, name, pool, &bringup.eal);
    started.map_err(|why| BringupError::Usage(format!("stream '{name}' pcap: {why}")))
}

/// Mbufs that hold jumbo frames.
fn long_mbufs(bringup: &Bringup, needs: Needs, count: usize) -> Result<MbufPool, BringupError> {
    const ROOM: u16 = pollux_mempool::HEADROOM as u16 + SIZE_MAX;
    needs.pool_of(bringup.eal.memory(), count, ROOM, PoolOptions::default())
}

/// What packets are made of: the mbufs of the ports, or longer ones where not all frames fit into those. A frame is in one mbuf, whatever its
/// size: its fields and its mark are written in place, and no port needs to send chains.
fn sent_from(
    bringup: &Bringup,
    ports: MbufPool,
    specs: &[StreamSpec],
    lcores: usize,
) -> Result<MbufPool, BringupError> {
    let room = ports.data_room().saturating_sub(ports.headroom());
    if usize::from(longest(specs)) <= room + FCS {
        return Ok(ports);
    }
    long_mbufs(bringup, Needs::for_lcores(lcores), ports.capacity())
}

/// Bytes of the longest frame that is made, its check sequence counted.
fn longest(specs: &[StreamSpec]) -> u16 {
    specs.iter().flat_map(|spec| &spec.sizes.0).max().copied().unwrap_or(0)
}

/// What the ports are asked for.
fn request(options: &Options, specs: &[StreamSpec], lcores: usize) -> PortRequest {
    let request = options
        .run
        .port_request(lcores)
        .queues(options.queues)
        // What returns may go to any address.
        .promiscuous(true)
        .rx_interrupts_where_supported(options.idle.sleeps());
    let mtu = u32::from(longest(specs)).saturating_sub(HEADER);
    if mtu > 1500 { request.mtu(mtu) } else { request }
}

/// Trackers of all streams that are measured, for one lane.
fn receiver(cookie: u32, measured: &[bool], streams: &mut [Reported]) -> Option<Receiver> {
    if !measured.contains(&true) {
        return None;
    }
    let mut parts = streams.iter_mut().flat_map(|stream| &mut stream.parts);
    let mut tracker = |measured: &bool| {
        let part = parts.next()?;
        measured.then(|| {
            let (tracker, counters, histogram) = Tracker::new();
            part.returns.push((counters, histogram));
            tracker
        })
    };
    Some(Receiver { cookie, trackers: measured.iter().map(&mut tracker).collect() })
}

/// Ports by number and name.
fn listed(names: &[String]) -> String {
    let ports: Vec<String> = names.iter().enumerate().map(|(port, name)| format!("{port} {name}")).collect();
    ports.join(", ")
}

/// The part of a count that one of several queues sends.
fn share(count: u64, queue: usize, queues: usize) -> u64 {
    let (queue, queues) = (queue as u64, queues as u64);
    count / queues + u64::from(queue < count % queues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (count, queues) in [(0, 3), (1, 3), (10, 3), (12, 4), (u64::MAX, 7)] {
            assert_eq!((0..queues).map(|queue| share(count, queue, queues)).sum::<u64>(), count);
        }
    }
}
