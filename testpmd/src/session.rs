//! A running testpmd: ports, settings, and the forwarding that is under way.
//!
//! ```text
//!   prompt --command--> Session --start--> lanes, an engine each --> lcores
//!                          ^                                          |
//!                          '--stop-- queues come back, counts shown --'
//! ```

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, BringupError};
use pollux_eal::LcoreContext;
use pollux_eal::event::EventFd;
use pollux_eal::lcore::{Launched, LcoreId};
use pollux_kit::{Console, Counted, IdlePolicy, Meter, Sampler};
use pollux_mempool::MbufPool;
use pollux_port::{MacAddress, Port, PortId, PortState, TxOffloads};

use crate::engine::{
    Csum, Ends, Engine, FiveTupleSwap, Flowgen, IcmpEcho, Io, Mac, MacSwap, Mode, Noisy, NoisySettings,
    Regroup, RxOnly, TxOnly, TxPlan, TxSettings,
};
use crate::forward::{self, Stream};
use crate::lane::{Lane, LaneView, RECORD_BURSTS, STOP, Switches, TxRetry, VERBOSE};
use crate::options::Options;
use crate::ports::Ports;
use crate::topology::Topology;

/// What commands set and `start` reads.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The engine.
    pub mode: Mode,
    /// Full tx queues are tried again.
    pub retry: bool,
    /// Microseconds between tries.
    pub retry_delay_us: u32,
    /// Tries.
    pub retry_tries: u32,
    /// Packets a burst.
    pub burst: usize,
    /// How ports are joined.
    pub topology: Topology,
    /// Forwarding ports, in order.
    pub ports: Vec<u16>,
    /// Lcores that may forward.
    pub lcores: Vec<LcoreId>,
    /// How many of them do.
    pub nb_cores: usize,
    /// Addresses that ports send to.
    pub peers: BTreeMap<u16, MacAddress>,
    /// What `txonly` and `flowgen` make.
    pub tx: TxPlan,
    /// What `noisy` does.
    pub noisy: NoisySettings,
    /// Rounds after which GRO lets go of what it holds (`set gro flush`).
    pub gro_flush: u8,
    /// Bytes of the longest frame that GSO makes (`set gso segsz`).
    pub gso_bytes: u16,
    /// `set verbose`.
    pub verbose: u32,
    /// `set record-core-cycles`.
    pub record_cycles: bool,
    /// `set record-burst-stats`.
    pub record_bursts: bool,
    /// Packets received before `start` are dropped.
    pub flush_rx: bool,
    /// Links are waited for when ports start.
    pub link_check: bool,
    /// Extended statistics shown with each port's.
    pub xstats: Vec<String>,
    /// `show port xstats` leaves out zeros.
    pub hide_zero: bool,
}

/// Forwarding, under way or the last one.
#[derive(Debug)]
pub struct Run {
    /// Its engine.
    pub mode: Mode,
    /// Its streams.
    pub lanes: Vec<LaneView>,
    launched: Vec<Launched<Vec<Lane>>>,
}

/// A running testpmd.
pub struct Session {
    /// EAL and ports.
    pub bringup: Bringup,
    /// What is wanted of the ports, and their queues.
    pub ports: Ports,
    /// What commands set.
    pub settings: Settings,
    /// Forwarding, under way or the last one.
    pub run: Option<Run>,
    /// The prompt ends.
    pub quit: bool,
    /// Where lines go.
    pub console: Console,
    /// Reads what is counted, on any thread.
    pub meter: Meter,
    /// What was asked for at the start: of ports that are attached, too, and of idle lcores.
    pub(crate) options: Options,
    switches: Switches,
    /// Wakes lcores that sleep when [`STOP`] is set.
    stopping: EventFd,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("settings", &self.settings)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

/// One stream as it is planned: where it receives and sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The port that receives, and the one that sends.
    pub ports: (u16, u16),
    /// The queue of both.
    pub queue: u16,
    /// Place of the lcore.
    pub lcore: usize,
}

impl Session {
    /// A session over ports that are brought up.
    ///
    /// # Errors
    /// [`BringupError::Eal`] when the kernel has no more files.
    pub fn new(
        bringup: Bringup,
        ports: Ports,
        settings: Settings,
        options: Options,
        console: Console,
    ) -> Result<Self, BringupError> {
        let (switches, stopping) = (Arc::new(AtomicU32::new(0)), EventFd::new()?);
        let ids: Vec<PortId> = ports.slots.iter().map(|slot| slot.id).collect();
        let meter = Meter::of_ports(&ids);
        Ok(Self {
            bringup,
            ports,
            settings,
            run: None,
            quit: false,
            console,
            meter,
            options,
            switches,
            stopping,
        })
    }

    /// What takes samples of it, on any thread.
    #[must_use]
    pub fn sampler(&self) -> Sampler {
        Sampler::new("testpmd", &self.meter, self.bringup.view())
    }

    /// Whether packets are being forwarded.
    #[must_use]
    pub fn is_forwarding(&self) -> bool {
        self.run.as_ref().is_some_and(|run| !run.launched.is_empty())
    }

    /// The address that packets sent by that port are for.
    #[must_use]
    pub fn peer(&self, port: u16) -> MacAddress {
        let usual = || MacAddress([2, 0, 0, 0, 0, port.to_le_bytes()[0]]);
        self.settings.peers.get(&port).copied().unwrap_or_else(usual)
    }

    /// The streams that `start` would make. As many queues as both ports of a pair have; dealt to the lcores in turn.
    #[must_use]
    pub fn plan(&self, mode: Mode) -> Vec<Plan> {
        let ports = &self.settings.ports;
        let topology = if mode.loops() { Topology::Loop } else { self.settings.topology };
        let mut plans = Vec::new();
        let queues = |port: u16| self.ports.get(port).map_or((0, 0), |slot| (slot.wants.rxq, slot.wants.txq));
        for (place, &from) in ports.iter().enumerate() {
            let to = ports[topology.to(place, ports.len())];
            for queue in 0..queues(from).0.min(queues(to).1) {
                plans.push(Plan { ports: (from, to), queue, lcore: 0 });
            }
        }
        // Streams of one queue are a block, as testpmd deals them: port after port.
        let lcores = self.settings.nb_cores.min(self.settings.lcores.len()).min(plans.len()).max(1);
        let (each, more) = (plans.len() / lcores, plans.len() % lcores);
        let mut next = 0;
        for lcore in 0..lcores {
            // The last ones take what is left, one each.
            let share = each + usize::from(lcore >= lcores - more);
            for plan in &mut plans[next..next + share] {
                plan.lcore = lcore;
            }
            next += share;
        }
        plans
    }

    /// The number of lcores that would forward.
    #[must_use]
    pub fn forwarding_lcores(&self) -> usize {
        self.plan(self.settings.mode).iter().map(|plan| plan.lcore + 1).max().unwrap_or(0)
    }

    /// Tells the loops what they record and print.
    pub fn set_switches(&self) {
        let mut word = self.settings.verbose & VERBOSE;
        if self.settings.record_bursts {
            word |= RECORD_BURSTS;
        }
        self.switches.store(word, Ordering::Relaxed);
    }

    /// Starts forwarding.
    ///
    /// # Errors
    /// A line: it runs already, a port is not started, there is nothing to forward between.
    pub fn start(&mut self) -> Result<(), String> {
        let mode = self.settings.mode;
        if self.is_forwarding() {
            return Err("Packet forwarding already started".into());
        }
        self.ready()?;
        let plans = self.plan(mode);
        if plans.is_empty() {
            return Err(
                "No stream: a port that receives and one that sends are needed, with a queue each".into()
            );
        }
        self.set_switches();
        if self.settings.flush_rx && mode != Mode::TxOnly {
            self.flush();
        }
        for &id in &self.settings.ports.clone() {
            let stats = self.bringup.ports.get(PortId(id)).map(pollux_port::Port::stats).unwrap_or_default();
            self.ports.get_mut(id)?.begun = stats;
        }
        match mode {
            Mode::Io => self.launch(mode, &plans, |_, _| Ok(Io))?,
            Mode::Mac => self.launch(mode, &plans, |session, plan| {
                Ok(Mac::new(&session.ends(plan)?, session.marks(plan)?))
            })?,
            Mode::MacSwap => {
                self.launch(mode, &plans, |session, plan| Ok(MacSwap::new(session.marks(plan)?)))?
            }
            Mode::FiveTupleSwap => {
                self.launch(mode, &plans, |session, plan| Ok(FiveTupleSwap::new(session.marks(plan)?)))?;
            }
            Mode::RxOnly => self.launch(mode, &plans, |_, _| Ok(RxOnly))?,
            Mode::TxOnly => self.launch(mode, &plans, |session, plan| {
                let lcore = session.settings.lcores[plan.lcore].0.to_le_bytes()[0];
                Ok(TxOnly::new(
                    &session.ends(plan)?,
                    session.marks(plan)?,
                    TxSettings::txonly(session.pool()?, session.settings.tx.clone())?,
                    lcore,
                ))
            })?,
            Mode::Flowgen => self.launch(mode, &plans, |session, plan| {
                let made = TxSettings::flowgen(session.pool()?, session.settings.tx.clone())?;
                Ok(Flowgen::new(session.marks(plan)?, made))
            })?,
            Mode::Csum => self.launch(mode, &plans, |session, plan| {
                let (csum, regroup) = (session.ports.get(plan.ports.1)?.csum, session.regroup(plan)?);
                Ok(Csum::new(&session.ends(plan)?, session.marks(plan)?, csum).regrouping(regroup))
            })?,
            Mode::IcmpEcho => {
                self.launch(mode, &plans, |session, plan| Ok(IcmpEcho::new(&session.ends(plan)?)))?
            }
            Mode::Noisy => self.launch(mode, &plans, |session, plan| {
                let hz = session.bringup.eal.clock().hz();
                Ok(Noisy::new(&session.ends(plan)?, session.marks(plan)?, session.settings.noisy, hz))
            })?,
        }
        Ok(())
    }

    fn ends(&mut self, plan: &Plan) -> Result<Ends, String> {
        let source = self.bringup.mac(PortId(plan.ports.1)).map_err(|error| error.line())?;
        Ok(Ends { source, peer: self.peer(plan.ports.1) })
    }

    fn marks(&self, plan: &Plan) -> Result<crate::engine::Marks, String> {
        Ok(self.ports.get(plan.ports.1)?.marks)
    }

    /// GRO where a stream receives, GSO where it sends.
    fn regroup(&self, plan: &Plan) -> Result<Option<Box<Regroup>>, String> {
        let (from, to) = (self.ports.get(plan.ports.0)?, self.ports.get(plan.ports.1)?);
        let info = self.bringup.ports.get(to.id).map(Port::info);
        let chains = info.as_ref().is_some_and(|info| info.tx_offloads.contains(TxOffloads::MULTI_SEGS));
        if from.gro && chains && !(to.wants.tx | to.open).contains(TxOffloads::MULTI_SEGS) {
            // It came, or was configured, after GRO was switched on.
            let (from, to) = plan.ports;
            return Err(format!(
                "Port {to} sends no packets of several mbufs, which GRO of port {from} makes: port stop {to}, \
                 port config {to} tx_offload multi_segs on, port start {to}"
            ));
        }
        let segments = info.map_or(1, |info| info.max_tx_segments);
        let gro = from.gro.then_some((self.settings.gro_flush, segments));
        let gso = if to.gso { Some((self.settings.gso_bytes, self.pool()?)) } else { None };
        Ok(Regroup::new(gro, gso, to.csum.tunnels))
    }

    fn pool(&self) -> Result<MbufPool, String> {
        self.ports.pool.clone().ok_or_else(|| "No mbuf pool: start a port first".into())
    }

    /// Whether all forwarding ports are started.
    fn ready(&self) -> Result<(), String> {
        for &id in &self.settings.ports {
            let slot = self.ports.get(id)?;
            let state = self.bringup.ports.get(slot.id).map(pollux_port::Port::state);
            if state != Some(PortState::Started) {
                return Err(format!("Not all ports were started: start port {id} first"));
            }
        }
        Ok(())
    }

    /// Drops what was received before.
    fn flush(&mut self) {
        const ROUNDS: usize = 64;
        let mut burst = pollux_mempool::Burst::new();
        for &id in &self.settings.ports {
            let Ok(slot) = self.ports.get_mut(id) else { continue };
            for queue in slot.rx.iter_mut().flatten() {
                // What never ends, a port that makes its packets, is not emptied.
                for _ in 0..ROUNDS {
                    let received = queue.rx_burst(&mut burst, pollux_mempool::BURST_MAX);
                    burst.clear();
                    if received == 0 {
                        break;
                    }
                }
            }
        }
    }

    /// Sends `bursts` bursts of made packets on each stream, then starts forwarding (`start tx_first`).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_tx_first(&mut self, bursts: u32) -> Result<(), String> {
        if self.is_forwarding() {
            return Err("Packet forwarding already started".into());
        }
        self.ready()?;
        if self.settings.flush_rx {
            self.flush();
        }
        let plans = self.plan(Mode::TxOnly);
        let made = TxSettings::txonly(self.pool()?, self.settings.tx.clone())?;
        let engines = plans.iter().map(|plan| {
            let (ends, marks) = (self.ends(plan)?, self.marks(plan)?);
            Ok(TxOnly::new(&ends, marks, made.clone(), 0))
        });
        let engines = engines.collect::<Result<Vec<_>, String>>()?;
        for ((mut lane, _), mut engine) in self.lanes(&plans, TxRetry::default())?.into_iter().zip(engines) {
            for _ in 0..bursts {
                engine.round(&mut lane);
            }
            self.give_back(lane);
        }
        let flush = std::mem::replace(&mut self.settings.flush_rx, false);
        let started = self.start();
        self.settings.flush_rx = flush;
        started
    }

    /// Takes the queues of the streams, and launches their loops.
    fn launch<E: Engine>(
        &mut self,
        mode: Mode,
        plans: &[Plan],
        mut make: impl FnMut(&mut Self, &Plan) -> Result<E, String>,
    ) -> Result<(), String> {
        let engines = plans.iter().map(|plan| make(self, plan)).collect::<Result<Vec<_>, _>>()?;
        let retry = TxRetry {
            tries: if self.settings.retry { self.settings.retry_tries } else { 0 },
            delay: u64::from(self.settings.retry_delay_us) * (self.bringup.eal.clock().hz() / 1_000_000),
        };
        let lanes = self.lanes(plans, retry)?;
        let (mut views, mut work): (Vec<LaneView>, Vec<Vec<Stream<E>>>) = Default::default();
        for ((plan, engine), (lane, view)) in plans.iter().zip(engines).zip(lanes) {
            if work.len() <= plan.lcore {
                work.resize_with(plan.lcore + 1, Vec::new);
            }
            work[plan.lcore].push(Stream { lane, engine });
            views.push(view);
        }
        let policies = match work.iter().map(|streams| self.idle(streams)).collect::<Result<Vec<_>, _>>() {
            Ok(policies) => policies,
            Err(error) => {
                work.into_iter().flatten().for_each(|stream| self.give_back(stream.lane));
                return Err(error.line());
            }
        };
        let counted = plans.iter().zip(&views).map(|(plan, view)| Counted {
            from: view.from.0,
            queue: view.from.1,
            to: view.to.0,
            lcore: self.settings.lcores[plan.lcore],
            counters: Arc::new(view.clone()),
        });
        self.meter.replace_streams(counted.collect(), &self.bringup.view());
        let run = self.run.insert(Run { mode, lanes: views, launched: Vec::new() });
        for ((&lcore, streams), policy) in self.settings.lcores.iter().zip(work).zip(policies) {
            let forward = move |context: &LcoreContext| match policy {
                IdlePolicy::Poll => forward::run(context, streams, &mut ()),
                mut idle => forward::run(context, streams, &mut idle),
            };
            match self.bringup.eal.launch(lcore, forward) {
                Ok(launched) => run.launched.push(launched),
                Err(error) => {
                    // Those that run give their queues back.
                    let _ = self.stop();
                    return Err(error.to_string());
                }
            }
        }
        Ok(())
    }

    /// What the lcore of these streams does while no packet arrives.
    fn idle<E>(&self, streams: &[Stream<E>]) -> Result<IdlePolicy, BringupError> {
        let stop = self.bringup.eal.stop_flag();
        let files = [stop.as_fd(), self.stopping.as_fd()];
        let queues = streams.iter().map(|stream| &stream.lane.rx);
        self.options.idle.policy(self.bringup.eal.clock(), &files, queues)
    }

    /// Takes the queues of these streams, all or none.
    fn lanes(&mut self, plans: &[Plan], retry: TxRetry) -> Result<Vec<(Lane, LaneView)>, String> {
        let mut lanes = Vec::with_capacity(plans.len());
        for plan in plans {
            match self.lane(plan, retry) {
                Ok(lane) => lanes.push(lane),
                Err(why) => {
                    lanes.into_iter().for_each(|(lane, _)| self.give_back(lane));
                    return Err(why);
                }
            }
        }
        Ok(lanes)
    }

    fn lane(&mut self, plan: &Plan, retry: TxRetry) -> Result<(Lane, LaneView), String> {
        let ((from, to), queue) = (plan.ports, usize::from(plan.queue));
        let missing = |port: u16| {
            format!("port {port}: queue {queue} is not set up: port stop {port}, then port start {port}")
        };
        if !self.ports.get(to)?.tx.get(queue).is_some_and(Option::is_some) {
            return Err(missing(to));
        }
        let rx = self.ports.get_mut(from)?.rx.get_mut(queue).and_then(Option::take);
        let rx = rx.ok_or_else(|| missing(from))?;
        let tx = self.ports.get_mut(to)?.tx.get_mut(queue).and_then(Option::take);
        let tx = tx.ok_or_else(|| missing(to))?;
        Ok(Lane::new(rx, tx, self.settings.burst, retry, self.console, Arc::clone(&self.switches)))
    }

    /// Stops forwarding and takes the queues back.
    ///
    /// # Errors
    /// A line: nothing is being forwarded, an lcore panicked.
    pub fn stop(&mut self) -> Result<(), String> {
        let launched = self.run.as_mut().map(|run| std::mem::take(&mut run.launched)).unwrap_or_default();
        if launched.is_empty() {
            return Err("Packet forwarding not started".into());
        }
        self.switches.fetch_or(STOP, Ordering::Relaxed);
        self.stopping.signal();
        let mut failed = None;
        for launched in launched {
            match launched.wait() {
                Ok(lanes) => lanes.into_iter().for_each(|lane| self.give_back(lane)),
                Err(panicked) => failed = Some(panicked.to_string()),
            }
        }
        self.set_switches();
        // Nobody waits for it any more.
        let _stops = self.stopping.drain();
        // What an lcore that panicked held is gone: those ports are to be set up anew.
        for slot in &mut self.ports.slots {
            slot.stale |= slot.rx.iter().any(Option::is_none) || slot.tx.iter().any(Option::is_none);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Forgets what was forwarded from and to a port: its number may be given to another device.
    pub(crate) fn forget(&mut self, port: PortId) {
        if let Some(run) = &mut self.run {
            run.lanes.retain(|lane| lane.from.0 != port && lane.to.0 != port);
        }
    }

    /// Waits until the links of all started ports are up, for as long as DPDK's testpmd does; a signal ends it.
    pub fn wait_for_links(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(9);
        let end = Instant::now() + PATIENCE;
        let stop = self.bringup.eal.stop_flag();
        let up = |port: &mut pollux_port::Port| port.state() != PortState::Started || port.link().up;
        while self.settings.link_check && Instant::now() < end && !self.bringup.ports.iter_all_mut().all(up) {
            if stop.wait(Duration::from_millis(50)) {
                return;
            }
        }
    }

    fn give_back(&mut self, lane: Lane) {
        let (rx, tx) = lane.into_queues();
        let (from, to) = (rx.port().0, tx.port().0);
        let queue = usize::from(rx.queue().0);
        if let Some(place) = self.ports.get_mut(from).ok().and_then(|slot| slot.rx.get_mut(queue)) {
            *place = Some(rx);
        }
        let queue = usize::from(tx.queue().0);
        if let Some(place) = self.ports.get_mut(to).ok().and_then(|slot| slot.tx.get_mut(queue)) {
            *place = Some(tx);
        }
    }

    /// Forgets what was forwarded so far (`clear fwd stats all`).
    pub fn clear_forward_stats(&mut self) {
        for slot in &mut self.ports.slots {
            slot.begun = self.bringup.ports.get(slot.id).map(pollux_port::Port::stats).unwrap_or_default();
        }
        if let Some(run) = &mut self.run {
            run.lanes.iter_mut().for_each(LaneView::clear);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use pollux_config::CommandLine;
    use pollux_kit::idle::SLEEP_MAX;
    use pollux_tests::patience::patient;

    use super::*;

    /// An lcore that was not woken would sleep on, for 17 of its 20 ms.
    #[test]
    fn stop_wakes_lcores_that_sleep() {
        const ROUNDS: usize = 21;
        let line =
            "testpmd -l 0 --no-huge --no-telemetry --vdev mlx5_model0,wire=null --vdev mlx5_model1,wire=null";
        let line = CommandLine::parse(line.split(' ')).expect("a line");
        let options = Options::try_parse_from(["testpmd", "--idle=interrupt", "--idle-after=0", "--json"]);
        let session = crate::setup::session(&line, &options.expect("options"));
        let mut session = session.unwrap_or_else(|error| panic!("{}", error.line()));
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                session.start().expect("started");
                // It sleeps by then.
                std::thread::sleep(Duration::from_millis(3));
                let begun = Instant::now();
                session.stop().expect("stopped");
                begun.elapsed()
            })
            .collect();
        times.sort_unstable();
        let half = times[ROUNDS / 2];
        assert!(half < patient(SLEEP_MAX / 5).min(SLEEP_MAX / 2), "half of {ROUNDS} took {half:?}");
    }
}
