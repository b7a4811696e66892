//! From what is asked for to lcores that send: streams compiled, divided among queues, each with its counters.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use pollux_bringup::{Bringup, BringupError, Needs, PoolOptions, PortRequest};
use pollux_eal::lcore::LcoreId;
use pollux_kit::Counted;
use pollux_mempool::{Burst, MbufPool};
use pollux_port::{MacAddress, PortId, Queues};

use crate::answer::{AnswerCounters, Answerer};
use crate::count::{LaneCounters, SenderCounters};
use crate::frame::FCS;
use crate::lane::{Content, Lane, Lanes, Receiver, Sender};
use crate::options::Options;
use crate::profile::{Placed, Profile};
use crate::rate::Rate;
use crate::replay::{self, Feeder, MBUFS, Replay, ReplaySpec};
use crate::report::{Part, Reported};
use crate::size::SIZE_MAX;
use crate::source::spread;
use crate::spec::StreamSpec;
use crate::start::Start;
use crate::stream::{Marking, Replica, Stream};
use crate::tracker::Tracker;

/// The most copies of streams on all queues: their numbers have 16 bits, and each has a table of returns on each lcore.
const COPIES_MAX: usize = 4096;

/// Ethernet header, and room for what the MTU does not count.
const HEADER: u32 = 18;

/// What is asked for, checked as far as it can be without ports.
pub(crate) fn specs(options: &Options) -> Result<Vec<StreamSpec>, BringupError> {
    let compiles = |spec: &StreamSpec| {
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

/// Which port sends which stream.
fn placements<'a>(
    specs: &'a [StreamSpec],
    options: &Options,
    names: &[String],
) -> Result<Vec<Placement<'a>>, BringupError> {
    let exists = |what: &str, port: u16| {
        if usize::from(port) < names.len() {
            return Ok(PortId(port));
        }
        let there = listed(names);
        Err(BringupError::Usage(format!("{what} names port {port}, which does not exist; ports: {there}")))
    };
    let usual: Vec<PortId> = match options.portmask {
        Some(mask) => mask.ports().map(|port| exists("-p", port)).collect::<Result<_, _>>()?,
        None => vec![PortId(0)],
    };
    let mut all = Vec::new();
    for spec in specs {
        match spec.port {
            Some(port) => {
                all.push(Placement { spec, port: exists(&format!("stream '{}'", spec.name), port)? })
            }
            None => all.extend(usual.iter().map(|port| Placement { spec, port: *port })),
        }
    }
    let copies = all.len() * usize::from(options.queues);
    if copies > COPIES_MAX {
        let why = format!("{copies} streams on all ports and queues are too many: at most {COPIES_MAX}");
        return Err(BringupError::Usage(why));
    }
    Ok(all)
}

/// All that runs, ready to be launched.
pub(crate) struct Ready {
    pub(crate) lanes: Vec<(LcoreId, Lanes)>,
    pub(crate) counted: Vec<Counted>,
    pub(crate) counters: Vec<Arc<LaneCounters>>,
    pub(crate) streams: Vec<Reported>,
    /// By port.
    pub(crate) answers: Vec<(u16, Arc<AnswerCounters>)>,
    pub(crate) start: Start,
    pub(crate) feeders: Vec<Feeder>,
}

/// Starts the ports and divides streams and queues among lcores.
pub(crate) fn ready(
    bringup: &mut Bringup,
    options: &Options,
    specs: &[StreamSpec],
) -> Result<Ready, BringupError> {
    let ids: Vec<PortId> = bringup.ports.iter_all().map(pollux_port::Port::id).collect();
    let names: Vec<String> = bringup.ports.iter_all().map(|port| port.name().to_owned()).collect();
    let placements = placements(specs, options, &names)?;
    if let Some(own) = options.ip.iter().find(|own| usize::from(own.port) >= ids.len()) {
        let why = format!("--ip names port {}, which does not exist; ports: {}", own.port, listed(&names));
        return Err(BringupError::Usage(why));
    }
    let lcores = bringup.eal.lcores().dataplane();
    let queues = usize::from(options.queues);
    let used = lcores.len().min(ids.len() * queues);
    let (mut ports, pool) = bringup.start_ports(&ids, &request(options, specs, used))?;

    let mut macs = Vec::new();
    for id in &ids {
        macs.push(bringup.mac(*id)?);
    }
    let speed =
        |bringup: &mut Bringup, id: PortId| bringup.ports.get_mut(id).and_then(|port| port.link().speed_mbps);
    let cookie = RandomState::new().build_hasher().finish() as u32;
    let start = Start::default();
    let counters: Vec<Arc<LaneCounters>> = (0..ids.len() * queues).map(|_| Arc::default()).collect();
    let mut senders: Vec<Vec<Sender>> = counters.iter().map(|_| Vec::new()).collect();
    let mut streams = Vec::new();
    // Those whose returns are measured, by number.
    let (mut measured, mut feeders) = (Vec::new(), Vec::new());
    for (order, Placement { spec, port }) in placements.iter().enumerate() {
        let place = ids.iter().position(|id| id == port).unwrap_or(0);
        let at = format!("stream '{}'", spec.name);
        let pps = spec.rate.packets_per_second(spec.sizes.mean(), speed(bringup, *port));
        let pps = pps.map_err(|why| BringupError::Usage(format!("{at} at port {}: {why}", port.0)))?;
        let mut parts = Vec::new();
        for queue in 0..queues {
            let lane = place * queues + queue;
            let number = measured.len();
            measured.push(spec.latency);
            let marking = spec.latency.then_some(Marking { cookie, stream: number as u16 });
            let seed = spread(options.seed, (order * queues + queue) as u64);
            let copy = Replica { number: queue as u64, of: queues as u64, seed };
            let (content, bytes_until) = if let Some(wanted) = &spec.replay {
                let (replay, feeder) = open_replay(bringup, wanted, &spec.name)?;
                feeders.push(feeder);
                (Content::Replayed(replay), Box::default())
            } else {
                let stream = Stream::new(spec, macs[place], copy, marking)
                    .map_err(|why| BringupError::Usage(format!("{at} {why}")))?;
                check_room(&stream, &pool, &at)?;
                let bytes_until = stream.bytes_until();
                (Content::Made(Box::new(stream)), bytes_until)
            };
            let part = Arc::<SenderCounters>::default();
            parts.push(Part {
                counters: Arc::clone(&part),
                bytes_until,
                lane: Arc::clone(&counters[lane]),
                returns: Vec::new(),
            });
            senders[lane].push(Sender {
                content,
                pattern: spec.pattern,
                pps: pps.map(|pps| pps / queues as f64),
                counted: spec.count.is_some(),
                left: spec.count.map_or(u64::MAX, |count| share(count, queue, queues)),
                seed,
                counters: part,
                schedule: None,
            });
        }
        let (name, paced) = (spec.name.clone(), pps.is_some());
        let replayed = spec.replay.is_some();
        streams.push(Reported { name, port: port.0, paced, replayed, latency: spec.latency, parts });
    }

    let mut lanes: BTreeMap<usize, Vec<Lane>> = BTreeMap::new();
    let (mut counted, mut answers) = (Vec::new(), Vec::new());
    let all = ports.drain(..).flat_map(|Queues { rx, tx }| rx.into_iter().zip(tx));
    for (number, ((rx, tx), senders)) in all.zip(senders).enumerate() {
        let lcore = number % used.max(1);
        let (from, queue) = (rx.port(), rx.queue());
        let lane_counters = Arc::clone(&counters[number]);
        counted.push(Counted {
            from,
            queue,
            to: from,
            lcore: lcores[lcore],
            counters: lane_counters.clone(),
        });
        let own = options.ip.iter().filter(|own| own.port == from.0).map(|own| own.address);
        let own: Vec<IpAddr> = own.collect();
        let answerer = (!own.is_empty()).then(|| {
            let counters: Arc<AnswerCounters> = Arc::default();
            answers.push((from.0, Arc::clone(&counters)));
            Answerer::new(macs[number / queues], &own, counters)
        });
        lanes.entry(lcore).or_default().push(Lane {
            rx,
            tx,
            pool: pool.clone(),
            senders,
            receiver: receiver(cookie, &measured, &mut streams),
            answerer,
            counters: lane_counters,
            start: start.clone(),
            time: options.run.duration.map(Duration::from_secs_f64),
            has_begun: false,
            begun: 0,
            end: 0,
            sending: false,
            held: Burst::new(),
            turn: 0,
            burst: Burst::new(),
        });
    }
    let lanes = lanes.into_iter().map(|(place, lanes)| (lcores[place], Lanes(lanes))).collect();
    Ok(Ready { lanes, counted, counters, streams, answers, start, feeders })
}

/// Begins to read a capture file, into mbufs of its own, which hold jumbo frames.
fn open_replay(bringup: &Bringup, wanted: &ReplaySpec, name: &str) -> Result<(Replay, Feeder), BringupError> {
    const ROOM: u16 = pollux_mempool::HEADROOM as u16 + SIZE_MAX;
    let pool = Needs::for_lcores(1).pool_of(bringup.eal.memory(), MBUFS, ROOM, PoolOptions::default())?;
    let started = replay::start(wanted, name, pool, &bringup.eal);
    started.map_err(|why| BringupError::Usage(format!("stream '{name}' pcap: {why}")))
}

/// What the ports are asked for.
fn request(options: &Options, specs: &[StreamSpec], lcores: usize) -> PortRequest {
    let longest = specs.iter().flat_map(|spec| &spec.sizes.0).max().copied().unwrap_or(0);
    let request = options
        .run
        .port_request(lcores)
        .queues(options.queues)
        // What returns may go to any address.
        .promiscuous(true)
        .rx_interrupts_where_supported(options.idle.sleeps());
    let mtu = u32::from(longest).saturating_sub(HEADER);
    if mtu > 1500 { request.mtu(mtu) } else { request }
}

fn check_room(stream: &Stream, pool: &MbufPool, at: &str) -> Result<(), BringupError> {
    let (longest, room) = (stream.longest(), pool.data_room().saturating_sub(pool.headroom()));
    if longest <= room {
        return Ok(());
    }
    Err(BringupError::Usage(format!(
        "{at} has frames of {} bytes: at most {}, what an mbuf of these ports holds",
        longest + FCS,
        room + FCS
    )))
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
