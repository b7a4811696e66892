//! One end of a test: its memory, its queues, and how they are connected.
//!
//! Source of sizes, rights and attributes: linux-rdma/perftest `src/perftest_resources.{c,h}` (`ctx_init`, `ctx_modify_qp_to_rtr`,
//! `ctx_modify_qp_to_rts`, `BUFF_SIZE`, `INC`).

use pollux_bringup::{BringupError, RdmaDevice};
use pollux_verbs::{
    Access, Ah, Batch, Connection as Link, HashFields, HashQp, Mr, Mtu, Path, Pd, Qp, QpAttributes, QpKind,
    QpOptions, QpState, Rule, Srq, SrqOptions, VerbsError, WcStatus, Wq, WqOptions, WqState, WqTable,
    random_psn,
};
use pollux_wire::toeplitz::DEFAULT_KEY;

use super::options::{Atomic, Connection};
use super::pattern::{Compared, pattern};
use super::settings::{Kind, Settings, Verb};
use crate::cm::manager::DATAGRAM_QKEY;
use crate::exchange::perftest::{Keys, Met};
use crate::rdma::queue::Queue;
use crate::rdma::{Failure, device};

/// The queue key that perftest uses.
const QKEY: u32 = 0x1111_1111;
/// Bytes before a datagram.
const HEADER: usize = 40;
/// Bytes of the message by which a client tells the number of its queue pair, which is its immediate data.
const NUMBER: usize = 4;
/// What is added, or compared with, and what is put there instead. Source: `src/perftest_resources.h`, `ATOMIC_ADD_VALUE`,
/// `ATOMIC_SWAP_VALUE`.
const ATOMIC_ADD: u64 = 1;
const ATOMIC_SWAP: u64 = 0;
/// The queue pair number of a multicast group.
const GROUP_QPN: u32 = 0xff_ffff;

/// The flows of a raw Ethernet test: frames that differ, each in a part of the place to send from.
#[derive(Clone, Copy, Debug)]
pub struct Flows {
    /// How many.
    pub count: u64,
    /// Messages of one before the next one's turn.
    pub burst: u64,
}

impl Flows {
    /// The flow of message `number`.
    fn of(self, number: u64) -> usize {
        (number / self.burst % self.count) as usize
    }
}

/// Receive work queues and what spreads frames over them.
#[derive(Debug)]
struct Spread {
    hash: HashQp,
    queues: Vec<Wq>,
}

impl Spread {
    fn new(pd: &Pd, receives: &Queue, settings: &Settings, fields: HashFields) -> Result<Self, Failure> {
        let make = |_| {
            let mut queue = Wq::new(pd, &receives.cq, &WqOptions::new(settings.rx_depth as u32))?;
            queue.modify(WqState::RDY)?;
            Ok(queue)
        };
        let queues = (0..settings.qps).map(make).collect::<Result<Vec<_>, Failure>>()?;
        let table = WqTable::new(pd, &queues.iter().collect::<Vec<_>>())?;
        Ok(Self { hash: HashQp::new(&table, fields, &DEFAULT_KEY)?, queues })
    }
}

/// What the queues of an end are to be, as far as its device has them.
struct Shape {
    kind: QpKind,
    outs: u32,
    options: QpOptions,
    /// Completions of all sends, and of all receives.
    sends: usize,
    receives: usize,
}

impl Shape {
    /// Holds the settings against the device. Receives that nobody chose are as many as it has.
    fn of(device: &RdmaDevice, settings: &mut Settings, spreads: bool) -> Result<Self, Failure> {
        let verb = settings.test.verb;
        let limits = device.context.device()?.base;
        let beyond = |option: &str, wanted: u64, most: u32| {
            let name = &device.name;
            Err(Failure::Usage(format!(
                "{option} {wanted} exceeds the limit of {name} ({most}): give at most {most}"
            )))
        };
        let most = limits.max_qp_rd_atom.min(255);
        let outs = match (verb, settings.options.outs) {
            (Verb::Send | Verb::Write, _) => 1,
            (_, None) => most,
            (_, Some(outs)) if outs <= u64::from(most) => outs as u32,
            (_, Some(outs)) => return beyond("-o", outs, most),
        };
        let kind = match settings.connection {
            Connection::Rc => QpKind::Rc,
            Connection::Uc => QpKind::Uc,
            Connection::Ud => QpKind::Ud,
            Connection::RawEth => QpKind::Raw,
        };
        if settings.options.rx_depth.is_none() {
            settings.rx_depth = settings.rx_depth.min(limits.max_qp_wr as usize);
        }
        let shared = settings.options.use_srq;
        if shared && settings.rx_depth as u64 > u64::from(limits.max_srq_wr) {
            return beyond("-r", settings.rx_depth as u64, limits.max_srq_wr);
        }
        let own_receives =
            if verb == Verb::Send && !shared && !spreads { settings.rx_depth as u32 } else { 0 };
        let options =
            QpOptions::new(kind).depth(settings.tx_depth as u32, own_receives).inline(settings.inline as u32);
        let sends = settings.tx_depth * settings.qps;
        let receives = if shared { settings.rx_depth } else { settings.rx_depth * settings.qps };
        device::check_depth(device, &options, sends.max(receives) as u64, ("-t", "-r"))?;
        if !spreads && settings.qps as u64 > u64::from(limits.max_qp) {
            return beyond("-q", settings.qps as u64, limits.max_qp);
        }
        Ok(Self { kind, outs, options, sends, receives })
    }
}

/// One end.
pub struct End {
    /// What to run.
    pub settings: Settings,
    /// Completions of sends.
    pub sends: Queue,
    /// Completions of receives.
    pub receives: Queue,
    /// Its keys, one a queue pair; none where frames are [spread](Self::spreads).
    pub own: Vec<Keys>,
    /// The other end's.
    pub other: Vec<Keys>,
    /// READs and atomics under way at once.
    pub outs: u32,
    /// It sends nothing before something came.
    pub answers: bool,
    /// What frames are spread over, in the place of the queue pairs' own rings.
    spread: Option<Spread>,
    /// The group that its queue pairs hear.
    group: Option<[u8; 16]>,
    qps: Vec<Qp>,
    srq: Option<Srq>,
    /// The key of datagrams.
    qkey: u32,
    ahs: Vec<Ah>,
    mr: Mr,
    /// Bytes of one queue pair's place to send from, and of its place to receive in.
    area: usize,
    cycle: usize,
    line: usize,
    /// What is sent inline.
    payload: Vec<u8>,
    /// Which frames are sent, of raw Ethernet.
    flows: Option<Flows>,
    /// Bytes of a message now.
    size: usize,
}

impl End {
    /// Makes memory and queues.
    ///
    /// # Errors
    /// Something is beyond the device.
    pub fn new(
        device: &RdmaDevice,
        settings: Settings,
        port: u8,
        gid: (u8, [u8; 16]),
        met: &Met,
    ) -> Result<Self, Failure> {
        Self::make(device, settings, port, gid.1, (met.cycle_buffer, met.cache_line), None)
    }

    /// Makes memory and queues of an end that sends frames, or receives them: in a ring of each queue pair, or spread over as many
    /// queues by a hash. What frames are is [written](Self::write_frames) afterwards.
    ///
    /// # Errors
    /// Something is beyond the device.
    pub fn raw(
        device: &RdmaDevice,
        settings: Settings,
        port: u8,
        flows: Flows,
        spread: Option<HashFields>,
    ) -> Result<Self, Failure> {
        /// Small frames go round in a page, in lines of the cache, as the original's.
        const ROUND: (u32, u32) = (4096, 64);
        Self::make(device, settings, port, [0; 16], ROUND, Some((flows, spread)))
    }

    /// Whether the device has what the settings ask for, before anybody is waited for. One queue pair is made and goes again: only the
    /// device knows how much it takes inline.
    ///
    /// # Errors
    /// It has not.
    pub fn check(device: &RdmaDevice, settings: &Settings) -> Result<(), Failure> {
        let shape = Shape::of(device, &mut settings.clone(), false)?;
        let pd = Pd::new(&device.context)?;
        let queue = Queue::new(&device.context, (settings.tx_depth + settings.rx_depth) as u32, false)?;
        match (Qp::new(&pd, &queue.cq, &queue.cq, &shape.options), settings.options.inline) {
            (Ok(_), _) => Ok(()),
            (Err(error), Some(inline)) if inline > 0 => {
                let options = shape.options.inline(0);
                // Without it all is well: so it is that.
                Qp::new(&pd, &queue.cq, &queue.cq, &options)?;
                Err(Failure::Usage(format!("-I {inline}: {}", BringupError::from(error).line())))
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    fn make(
        device: &RdmaDevice,
        settings: Settings,
        port: u8,
        gid: [u8; 16],
        (cycle, line): (u32, u32),
        raw: Option<(Flows, Option<HashFields>)>,
    ) -> Result<Self, Failure> {
        let flows = raw.map(|(flows, _)| flows);
        let fields = raw.and_then(|(_, fields)| fields);
        let verb = settings.test.verb;
        let mut settings = settings;
        let Shape { kind, outs, options, sends, receives } =
            Shape::of(device, &mut settings, fields.is_some())?;
        // What frames are spread over has no queue pairs beside it.
        let count = if fields.is_some() { 0 } else { settings.qps };

        let context = &device.context;
        let pd = Pd::new(context)?;
        let (cycle, line) = (cycle as usize, line as usize);
        // A datagram's header stands before its data, on the line before.
        let places = match flows {
            Some(flows) => flows.count as usize,
            // Each message under way has a place of its own.
            None if settings.options.data_validation => settings.tx_depth,
            None => 1,
        };
        let area = (settings.size as usize).max(cycle).next_multiple_of(line) * places + line;
        let rights = match verb {
            Verb::Send => Access::empty(),
            // What was written is read back.
            Verb::Write if settings.options.data_validation => Access::REMOTE_WRITE | Access::REMOTE_READ,
            Verb::Write => Access::REMOTE_WRITE,
            Verb::Read => Access::REMOTE_READ,
            Verb::Atomic => Access::REMOTE_ATOMIC,
        };
        let qkey = if settings.options.rdma_cm { DATAGRAM_QKEY } else { QKEY };
        let mr = Mr::allocate(&pd, area * settings.qps * 2, Access::LOCAL_WRITE | rights)?;
        let events = settings.options.events;
        let sends = Queue::new(context, sends as u32, events)?;
        let receives = Queue::new(context, receives as u32, events)?;
        let spread = fields.map(|fields| Spread::new(&pd, &receives, &settings, fields)).transpose()?;
        let srq = match settings.options.use_srq {
            true => Some(Srq::new(&pd, &SrqOptions::new(settings.rx_depth as u32))?),
            false => None,
        };
        let qps = (0..count).map(|number| {
            let qp = match &srq {
                Some(srq) => Qp::with_srq(&pd, &sends.cq, &receives.cq, srq, &options),
                None => Qp::new(&pd, &sends.cq, &receives.cq, &options),
            };
            let mut qp = qp.map_err(|error| device::too_many(error, count, number))?;
            if kind == QpKind::Ud {
                let (port, pkey_index, qkey) = (Some(port), Some(0), Some(qkey));
                qp.modify(&QpAttributes { port, pkey_index, qkey, ..QpAttributes::state(QpState::INIT) })?;
            } else {
                qp.init(port, rights)?;
            }
            Ok(qp)
        });
        let qps = qps.collect::<Result<Vec<_>, Failure>>()?;
        let lid = context.port(port)?.legacy_resp.lid;
        let own = qps.iter().enumerate().map(|(number, qp)| Keys {
            lid,
            out_reads: outs,
            qpn: qp.qpn(),
            psn: random_psn(),
            rkey: mr.rkey(),
            address: mr.address() + ((settings.qps + number) * area) as u64,
            srqn: 0,
            gid: Some(gid),
        });
        let own = own.collect();
        let (size, inline) = (settings.size as usize, settings.inline);
        Ok(Self {
            settings,
            sends,
            receives,
            own,
            other: Vec::new(),
            outs,
            answers: false,
            spread,
            group: None,
            qps,
            srq,
            qkey,
            ahs: Vec::new(),
            mr,
            area,
            cycle,
            line,
            payload: vec![0; inline],
            flows,
            size,
        })
    }

    /// Has its queue pairs attach to a multicast group, and be told of by its name.
    ///
    /// # Errors
    /// What the device says.
    pub fn join(&mut self, group: [u8; 16]) -> Result<(), Failure> {
        for qp in &self.qps {
            qp.attach_multicast(group, 0)?;
            // From here on they are to be taken out before they go.
            self.group = Some(group);
        }
        for keys in &mut self.own {
            (keys.gid, keys.qpn, keys.lid) = (Some(group), GROUP_QPN, 0);
        }
        Ok(())
    }

    /// Connects all queue pairs to the other end's.
    ///
    /// # Errors
    /// What the device says.
    pub fn connect(&mut self, port: u8, gid_index: u8, mtu: Mtu) -> Result<(), Failure> {
        let options = &self.settings.options;
        // The other end answers as many at once as it says; this one may not be able to ask for so many.
        let most = self.mr.pd().context().device()?.base.max_qp_init_rd_atom.min(255);
        let mut labels = options.flow_label.iter().cycle();
        for ((qp, own), other) in self.qps.iter_mut().zip(&self.own).zip(&self.other) {
            let path = Path {
                flow_label: labels.next().map_or(0, |label| *label as u32),
                port,
                service_level: options.sl as u8,
                traffic_class: options.tclass as u8,
                hop_limit: 0xff,
                lid: other.lid,
                ..Path::new(other.gid.unwrap_or_default(), gid_index)
            };
            if qp.kind() == QpKind::Ud {
                ready_datagrams(qp, own)?;
                self.ahs.push(Ah::new(self.mr.pd(), &path)?);
                continue;
            }
            qp.connect(&Link {
                rq_psn: other.psn,
                sq_psn: own.psn,
                mtu,
                max_rd_atomic: other.out_reads.min(most) as u8,
                max_dest_rd_atomic: own.out_reads as u8,
                timeout: options.qp_timeout as u8,
                ..Link::new(path, other.qpn)
            })?;
        }
        Ok(())
    }

    /// How many queue pairs it has, to be connected one by one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.qps.len()
    }

    /// One of them.
    ///
    /// # Panics
    /// There are not so many.
    pub fn qp(&mut self, number: usize) -> &mut Qp {
        &mut self.qps[number]
    }

    /// Where its memory and queues are.
    #[must_use]
    pub fn pd(&self) -> &Pd {
        self.mr.pd()
    }

    /// Where datagrams of the next queue pair go.
    pub fn send_to(&mut self, ah: Ah) {
        self.ahs.push(ah);
    }

    /// Takes queue pairs of datagrams to where they send, wherever that will be.
    ///
    /// # Errors
    /// What the device says.
    pub fn ready_datagrams(&mut self) -> Result<(), Failure> {
        self.qps.iter_mut().zip(&self.own).try_for_each(|(qp, own)| ready_datagrams(qp, own))
    }

    /// Posts the receive for the message by which a client of datagrams tells its queue pair: see [`tell_number`](Self::tell_number).
    ///
    /// # Errors
    /// As [`post_receives`](Self::post_receives).
    pub fn expect_number(&mut self, qp: usize) -> Result<(), Failure> {
        let size = std::mem::replace(&mut self.size, NUMBER);
        let posted = self.post_receives(qp, 1);
        self.size = size;
        posted
    }

    /// The way back to whom that message came from, once it is there.
    ///
    /// # Errors
    /// It failed, or tells nothing.
    pub fn heard_number(&mut self, qp: usize, gid_index: u8) -> Result<Option<Path>, Failure> {
        let (mr, place) = (&self.mr, (self.settings.qps + qp) * self.area);
        let mut heard = None;
        self.receives.cq.poll(1, |wc| {
            let mut header = [0; HEADER];
            mr.read(place, &mut header);
            heard = Some(match wc.status() {
                WcStatus::SUCCESS => Path::back(wc, &header, gid_index).ok_or_else(|| {
                    Failure::Error(
                        "a message that does not say where it is from: run the same test at both ends".into(),
                    )
                }),
                status => Err(Failure::completion(status, wc.id())),
            });
        });
        heard.transpose()
    }

    /// Tells a server of datagrams the number of a queue pair, so that it knows where to answer. Source: linux-rdma/perftest
    /// `src/perftest_communication.c`, `rdma_cm_send_ud_connection_parameters`.
    ///
    /// # Errors
    /// The queue is full, which is a mistake of ours.
    pub fn tell_number(&mut self, qp: usize, to: u32) -> Result<(), Failure> {
        let own = self.own[qp].qpn;
        let Some(ah) = self.ahs.get(qp) else { return Ok(()) };
        let mut batch = self.qps[qp].batch();
        let place = qp * self.area;
        batch.send(0).imm(own).to(ah, to, self.qkey).mr(&self.mr, place..place + NUMBER).signalled();
        finish(batch)
    }

    /// Whether that message is sent.
    ///
    /// # Errors
    /// It failed.
    pub fn told_number(&mut self) -> Result<bool, Failure> {
        let mut told = Ok(false);
        self.sends.cq.poll(1, |wc| {
            told = if wc.is_ok() { Ok(true) } else { Err(Failure::completion(wc.status(), wc.id())) };
        });
        told
    }

    /// Sets the size of the messages that follow.
    pub fn resize(&mut self, size: u64) {
        self.size = size as usize;
    }

    /// What rules give frames to: the one that spreads them, or each queue pair.
    #[must_use]
    pub fn targets(&self) -> usize {
        if self.spread.is_some() { 1 } else { self.qps.len() }
    }

    /// Gives one of these the frames that match a rule.
    ///
    /// # Errors
    /// What the device says.
    pub fn steer(&mut self, target: usize, rule: &Rule<'_>) -> Result<(), VerbsError> {
        match &mut self.spread {
            Some(spread) => spread.hash.steer(rule).map(drop),
            None => self.qps[target].steer(rule).map(drop),
        }
    }

    /// Whether a hash, and not the sender, chooses the queue.
    #[must_use]
    pub fn spreads(&self) -> bool {
        self.spread.is_some()
    }

    /// Takes queue pairs of raw frames to where they send.
    ///
    /// # Errors
    /// What the device says.
    pub fn ready(&mut self) -> Result<(), Failure> {
        for qp in &mut self.qps {
            qp.ready_frames()?;
        }
        Ok(())
    }

    /// Writes all frames that will be sent: `frame` is given each one's place, its queue pair, its flow, and its number there.
    ///
    /// # Errors
    /// What `frame` says.
    pub fn write_frames(
        &mut self,
        mut frame: impl FnMut(&mut [u8], usize, u64, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let count = self.flows.map_or(1, |flows| flows.count);
        let mut all = vec![0; self.area * self.qps.len()];
        for qp in 0..self.qps.len() {
            for flow in 0..count {
                let place = qp * self.area + flow as usize * self.flow_area();
                let step = self.size.next_multiple_of(self.line);
                let frames = (self.flow_area() / step).max(1);
                for number in 0..frames {
                    let at = place + number * step;
                    frame(&mut all[at..at + self.size], qp, flow, number as u64)?;
                }
            }
        }
        self.mr.write(0, &all);
        if self.size <= self.settings.inline {
            self.payload = all;
        }
        Ok(())
    }

    fn flow_area(&self) -> usize {
        (self.settings.size as usize).max(self.cycle).next_multiple_of(self.line)
    }

    /// How far message `number` is from the beginning of its place: small ones go round in it.
    fn round(&self, number: u64) -> usize {
        let step = self.size.next_multiple_of(self.line).max(self.line);
        if self.settings.post_list > 1 || self.size > self.cycle / 2 {
            return 0;
        }
        (number % (self.cycle / step) as u64) as usize * step
    }

    /// Posts `count` sends of a queue pair, the first being its `number`th; `signalled` says for which a completion is made.
    /// Completions carry the queue pair and how many of its sends are done.
    ///
    /// # Errors
    /// The queue is full, which is a mistake of ours.
    #[inline]
    pub fn post_sends(
        &mut self,
        qp: usize,
        number: u64,
        count: u64,
        signalled: impl Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let inline = self.size <= self.settings.inline;
        let place = qp * self.area;
        let first = self.round(number);
        let step = if count > 1 { 0 } else { first };
        let (flows, flow_area) = (self.flows.filter(|flows| flows.count > 1), self.flow_area());
        let mut batch = self.qps[qp].batch();
        for number in number..number + count {
            let id = (qp as u64) << 48 | (number + 1);
            let from = place + step + flows.map_or(0, |flows| flows.of(number) * flow_area);
            let from = from..from + self.size;
            let remote = |other: &Keys| (other.address + step as u64, other.rkey);
            match self.settings.test.verb {
                Verb::Send => {
                    batch.send(id);
                    if let Some(ah) = self.ahs.get(qp) {
                        batch.to(ah, self.other[qp].qpn, self.qkey);
                    }
                }
                Verb::Write => {
                    let (address, rkey) = remote(&self.other[qp]);
                    batch.write(id, address, rkey);
                }
                Verb::Read => {
                    let (address, rkey) = remote(&self.other[qp]);
                    batch.read(id, address, rkey);
                }
                Verb::Atomic => {
                    let (address, rkey) = remote(&self.other[qp]);
                    match self.settings.atomic {
                        Atomic::FetchAdd => batch.fetch_add(id, address, rkey, ATOMIC_ADD),
                        Atomic::CompareSwap => batch.compare_swap(id, address, rkey, ATOMIC_ADD, ATOMIC_SWAP),
                    };
                }
            }
            if inline && matches!(self.settings.test.verb, Verb::Send | Verb::Write) {
                // Of messages, whose bytes do not matter, there is one; of frames there are all.
                batch.inline(&self.payload[if self.flows.is_some() { from } else { 0..self.size }]);
            } else {
                batch.mr(&self.mr, from);
            }
            if signalled(number) {
                batch.signalled();
            }
        }
        finish(batch)
    }

    /// Posts `count` receives of a queue pair.
    ///
    /// # Errors
    /// The queue is full, which is a mistake of ours.
    #[inline]
    pub fn post_receives(&mut self, qp: usize, count: u64) -> Result<(), Failure> {
        let header = if self.settings.connection == Connection::Ud { HEADER } else { 0 };
        let begin = (self.settings.qps + qp) * self.area;
        let place = begin..begin + self.size + header;
        let receives = match (&mut self.srq, &mut self.spread) {
            (Some(srq), _) => Some(srq.receives()),
            (None, Some(spread)) => Some(spread.queues[qp].receives()),
            (None, None) => self.qps[qp].receives(),
        };
        let Some(mut receives) = receives else { return Ok(()) };
        for _ in 0..count {
            receives.mr(qp as u64, &self.mr, place.clone());
        }
        receives.ring()?;
        Ok(())
    }

    /// Fills the receive queues before a size is run; what is left of the size before was taken by it.
    ///
    /// # Errors
    /// As [`post_receives`](Self::post_receives).
    pub fn fill_receives(&mut self) -> Result<(), Failure> {
        if self.settings.test.verb != Verb::Send {
            return Ok(());
        }
        let queues = if self.srq.is_some() { 1 } else { self.settings.qps };
        for qp in 0..queues {
            self.post_receives(qp, self.settings.rx_depth as u64)?;
        }
        Ok(())
    }

    /// Fills what the other end reads with what it will compare with.
    pub fn fill_for_reads(&mut self) {
        for qp in 0..self.settings.qps {
            for slot in 0..self.settings.tx_depth {
                let bytes = pattern(self.size, seed(self.own[qp].qpn, slot, 0));
                self.mr.write((self.settings.qps + qp) * self.area + slot * self.flow_area(), &bytes);
            }
        }
    }

    /// Fills the first places of a queue pair: with what a round writes, or with what no READ leaves there.
    pub fn prepare(&mut self, qp: usize, count: u64, round: u64) {
        let writes = self.settings.test.verb == Verb::Write;
        for slot in 0..count as usize {
            let own = seed(self.own[qp].qpn, slot, round);
            let bytes = pattern(self.size, if writes { own } else { !own });
            self.mr.write(qp * self.area + slot * self.flow_area(), &bytes);
        }
    }

    /// Posts a message of each of the first places of a queue pair, the last with a completion; or reads back what they wrote.
    ///
    /// # Errors
    /// The queue is full, which is a mistake of ours.
    pub fn post_round(&mut self, qp: usize, count: u64, back: bool) -> Result<(), Failure> {
        let (area, each, size) = (self.area, self.flow_area(), self.size);
        let Keys { address, rkey, .. } = self.other[qp];
        let mut batch = self.qps[qp].batch();
        for slot in 0..count as usize {
            let remote = address + (slot * each) as u64;
            let half = if back { self.settings.qps } else { 0 };
            let local = (half + qp) * area + slot * each;
            match self.settings.test.verb {
                Verb::Write if !back => batch.write(slot as u64, remote, rkey),
                _ => batch.read(slot as u64, remote, rkey),
            };
            batch.mr(&self.mr, local..local + size);
            if slot + 1 == count as usize {
                batch.signalled();
            }
        }
        finish(batch)
    }

    /// Compares what a round left in the first places of a queue pair with what it should have.
    #[must_use]
    pub fn compare(&self, qp: usize, count: u64, round: u64) -> Compared {
        let writes = self.settings.test.verb == Verb::Write;
        let mut found = vec![0; self.size];
        let mut compared = Compared::default();
        for slot in 0..count as usize {
            let (half, seed) = match writes {
                true => (self.settings.qps, seed(self.own[qp].qpn, slot, round)),
                false => (0, seed(self.other[qp].qpn, slot, 0)),
            };
            self.mr.read((half + qp) * self.area + slot * self.flow_area(), &mut found);
            let expected = pattern(self.size, seed);
            compared.bytes += self.size as u64;
            compared.wrong += found.iter().zip(&expected).filter(|(one, other)| one != other).count() as u64;
        }
        compared
    }

    /// The number of a queue pair by the number that the device calls it.
    #[must_use]
    pub fn which(&self, qpn: u32) -> Option<usize> {
        self.own.iter().position(|keys| keys.qpn == qpn)
    }

    /// The last byte of what the other end wrote.
    #[inline(always)]
    #[must_use]
    pub fn last_byte(&self) -> u8 {
        self.mr.load8(self.settings.qps * self.area + self.size - 1)
    }

    /// Sets the last byte of what is sent next.
    #[inline(always)]
    pub fn set_last_byte(&mut self, value: u8) {
        if self.size <= self.settings.inline {
            self.payload[self.size - 1] = value;
        } else {
            self.mr.write(self.size - 1, &[value]);
        }
    }

    /// Whether it measures how soon.
    #[must_use]
    pub fn is_latency(&self) -> bool {
        self.settings.test.kind == Kind::Latency
    }
}

fn ready_datagrams(qp: &mut Qp, own: &Keys) -> Result<(), Failure> {
    qp.modify(&QpAttributes::state(QpState::RTR))?;
    qp.modify(&QpAttributes { sq_psn: Some(own.psn), ..QpAttributes::state(QpState::RTS) })?;
    Ok(())
}

/// Where the bytes of a place come from in a round.
fn seed(qpn: u32, slot: usize, round: u64) -> u64 {
    round << 40 | u64::from(qpn) << 16 | slot as u64
}

impl Drop for End {
    fn drop(&mut self) {
        let Some(group) = self.group else { return };
        for qp in &self.qps {
            if let Err(error) = qp.detach_multicast(group, 0) {
                tracing::warn!(target: "perftest", "{error}");
            }
        }
    }
}

#[inline(always)]
fn finish(batch: Batch<'_>) -> Result<(), Failure> {
    batch.ring()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use pollux_bringup::RdmaBringup;
    use pollux_config::CommandLine;

    use super::*;
    use crate::perftest::options::Options;
    use crate::perftest::settings::Test;

    /// Completions of receive work queues carry numbers of those; what has no queue pair cannot take them for a queue pair's.
    #[test]
    fn what_spreads_frames_has_no_queue_pairs_beside_it() {
        let line = CommandLine::parse(["test", "-l", "0", "--vdev", "mlx5_model0,wire=null"]).unwrap();
        let bringup = RdmaBringup::new(&line, None).unwrap();
        let options = Options { qp: 4, connection: Connection::RawEth, ..Options::usual() };
        let settings = Settings::new(Test { verb: Verb::Send, kind: Kind::Bandwidth }, options).unwrap();
        let flows = Flows { count: 1, burst: 1 };
        let end = |fields| End::raw(&bringup.devices[0], settings.clone(), 1, flows, fields).unwrap();
        let spread = end(Some(HashFields::SRC_IPV4 | HashFields::DST_IPV4));
        assert_eq!((spread.own.len(), spread.qps.len(), spread.targets()), (0, 0, 1));
        assert_eq!(spread.spread.as_ref().map(|spread| spread.queues.len()), Some(4));
        let plain = end(None);
        assert_eq!((plain.own.len(), plain.qps.len(), plain.targets()), (4, 4, 4));
    }
}
