//! One end of a test: its memory, its queues, and how they are connected.
//!
//! ```text
//!   shape    types and sizes of the queues, by the limits of the device
//!   number   how the server of datagrams with -R is told where to answer
//!   frames   raw Ethernet: frames to send, rules and queues for those that come
//!   round    --data_validation: memory that is filled, moved and compared
//! ```
//!
//! Source of sizes, rights and attributes: linux-rdma/perftest `src/perftest_resources.{c,h}` (`ctx_init`, `ctx_modify_qp_to_rtr`,
//! `ctx_modify_qp_to_rts`, `BUFF_SIZE`, `INC`).

mod frames;
mod number;
mod round;
mod shape;

use pollux_bringup::RdmaDevice;
use pollux_eal::region::MemoryError;
use pollux_verbs::{
    Access, Ah, Batch, Connection as Link, HashFields, Mr, Mtu, Path, Pd, Qp, QpAttributes, QpKind, QpState,
    Srq, SrqOptions, VerbsError, Xrcd, random_psn,
};

use super::options::{Atomic, Connection};
use super::settings::{Kind, Settings, Verb};
use crate::cm::manager::DATAGRAM_QKEY;
use crate::exchange::perftest::{Keys, Met};
use crate::rdma::queue::Queue;
use crate::rdma::{Failure, device};
pub use frames::Flows;
use frames::Spread;
use shape::Shape;
pub use shape::check;

/// The queue key that perftest uses.
const QKEY: u32 = 0x1111_1111;
/// Bytes before a datagram.
const HEADER: usize = 40;
/// What is added, or compared with, and what is put there instead. Source: `src/perftest_resources.h`, `ATOMIC_ADD_VALUE`,
/// `ATOMIC_SWAP_VALUE`.
const ATOMIC_ADD: u64 = 1;
const ATOMIC_SWAP: u64 = 0;
/// The queue pair number of a multicast group.
const GROUP_QPN: u32 = 0xff_ffff;

/// Where queue pairs are: a port, and the GID there by which they are reached.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The port.
    pub port: u8,
    /// Which of its GIDs.
    pub gid_index: u8,
    /// That GID.
    pub gid: [u8; 16],
}

/// The places of an end: with `-O` the second one is another port's.
pub type Places = [Place; 2];

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
    /// Of XRC with [halves](Settings::has_halves), those that send stand before those that receive.
    qps: Vec<Qp>,
    /// How far behind a queue pair that sends the one stands that it sends to, among the other end's: 0 without halves.
    half: usize,
    places: Places,
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
    /// Makes memory and queues; `sends` is whether this end sends.
    ///
    /// # Errors
    /// Something is beyond the device.
    pub fn new(
        device: &RdmaDevice,
        settings: Settings,
        places: Places,
        met: &Met,
        sends: bool,
    ) -> Result<Self, Failure> {
        let round = (met.cycle_buffer as usize, met.cache_line as usize);
        Self::make(device, settings, (places, sends), round, None)
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
        let place = Place { port, gid_index: 0, gid: [0; 16] };
        Self::make(device, settings, ([place; 2], true), ROUND, Some((flows, spread)))
    }

    fn make(
        device: &RdmaDevice,
        settings: Settings,
        (places, is_sender): (Places, bool),
        (cycle, line): (usize, usize),
        raw: Option<(Flows, Option<HashFields>)>,
    ) -> Result<Self, Failure> {
        let flows = raw.map(|(flows, _)| flows);
        let fields = raw.and_then(|(_, fields)| fields);
        let verb = settings.test.verb;
        let mut settings = settings;
        let Shape { kind, outs, options, sends, receives } =
            Shape::of(device, &mut settings, fields.is_some())?;
        // What frames are spread over has no queue pairs beside it.
        let count = if fields.is_some() { 0 } else { settings.queue_pairs() };
        let half = if settings.has_halves() { settings.qps } else { 0 };

        let context = &device.context;
        let pd = Pd::new(context)?;
        let area = area(&settings, flows, (cycle, line));
        let rights = match verb {
            Verb::Send => Access::empty(),
            // What was written is read back.
            Verb::Write if settings.options.data_validation => Access::REMOTE_WRITE | Access::REMOTE_READ,
            Verb::Write => Access::REMOTE_WRITE,
            Verb::Read => Access::REMOTE_READ,
            Verb::Atomic => Access::REMOTE_ATOMIC,
        };
        let qkey = if settings.options.rdma_cm { DATAGRAM_QKEY } else { QKEY };
        let pages = if settings.options.odp { Access::ON_DEMAND } else { Access::empty() };
        let (bytes, access) = (area * settings.qps * 2, Access::LOCAL_WRITE | rights | pages);
        let mr = match settings.options.use_hugepages {
            true => {
                Mr::allocate_huge(&pd, bytes, access).map_err(|error| without_huge_pages(error, bytes))?
            }
            false => Mr::allocate(&pd, bytes, access)?,
        };
        let events = settings.options.events;
        let sends = Queue::new(context, sends as u32, events)?;
        let receives = Queue::new(context, receives as u32, events)?;
        let spread = fields.map(|fields| Spread::new(&pd, &receives, &settings, fields)).transpose()?;
        let xrcd = if kind == QpKind::XrcSend { Some(Xrcd::new(context)?) } else { None };
        let depth = SrqOptions::new(settings.rx_depth as u32);
        let srq = match (&xrcd, settings.options.use_srq) {
            (Some(xrcd), _) => Some(Srq::xrc(&pd, xrcd, &receives.cq, &depth)?),
            (None, true) => Some(Srq::new(&pd, &depth)?),
            (None, false) => None,
        };
        let qps = (0..count).map(|number| {
            let receives_only = if half > 0 { number >= half } else { !is_sender };
            let qp = match (&xrcd, &srq) {
                (Some(xrcd), _) if receives_only => Qp::xrc_receiver(xrcd),
                (None, Some(srq)) => Qp::with_srq(&pd, &sends.cq, &receives.cq, srq, &options),
                _ => Qp::new(&pd, &sends.cq, &receives.cq, &options),
            };
            let mut qp = qp.map_err(|error| device::too_many(error, count, number))?;
            let port = place(&settings, &places, number).port;
            if kind == QpKind::Ud {
                let (port, pkey_index, qkey) = (Some(port), Some(0), Some(qkey));
                qp.modify(&QpAttributes { port, pkey_index, qkey, ..QpAttributes::state(QpState::INIT) })?;
            } else {
                qp.init(port, rights)?;
            }
            Ok(qp)
        });
        let qps = qps.collect::<Result<Vec<_>, Failure>>()?;
        let srqn = if xrcd.is_some() { srq.as_ref().map_or(0, Srq::number) } else { 0 };
        let own = qps.iter().enumerate().map(|(number, qp)| {
            let Place { port, gid, .. } = *place(&settings, &places, number);
            Ok(Keys {
                lid: context.port(port)?.legacy_resp.lid,
                out_reads: outs,
                qpn: qp.qpn(),
                psn: random_psn(),
                rkey: mr.rkey(),
                address: mr.address() + ((settings.qps + number % settings.qps) * area) as u64,
                srqn,
                gid: Some(gid),
            })
        });
        let own = own.collect::<Result<_, Failure>>()?;
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
            half,
            places,
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
    pub fn connect(&mut self, mtu: Mtu) -> Result<(), Failure> {
        let options = &self.settings.options;
        // The other end answers as many at once as it says; this one may not be able to ask for so many.
        let most = self.mr.pd().context().device()?.base.max_qp_init_rd_atom.min(255);
        let mut labels = options.flow_label.iter().cycle();
        // What sends here is connected to what receives there, and the other way round.
        let others = self.other.iter().cycle().skip(self.half);
        for (number, ((qp, own), other)) in self.qps.iter_mut().zip(&self.own).zip(others).enumerate() {
            let Place { port, gid_index, .. } = *place(&self.settings, &self.places, number);
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

    /// Sets the size of the messages that follow.
    pub fn resize(&mut self, size: u64) {
        self.size = size as usize;
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
        let (place, peer) = (qp * self.area, qp + self.half);
        let xrc = self.settings.connection == Connection::Xrc;
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
                        batch.to(ah, self.other[peer].qpn, self.qkey);
                    }
                }
                Verb::Write => {
                    let (address, rkey) = remote(&self.other[peer]);
                    batch.write(id, address, rkey);
                }
                Verb::Read => {
                    let (address, rkey) = remote(&self.other[peer]);
                    batch.read(id, address, rkey);
                }
                Verb::Atomic => {
                    let (address, rkey) = remote(&self.other[peer]);
                    match self.settings.atomic {
                        Atomic::FetchAdd => batch.fetch_add(id, address, rkey, ATOMIC_ADD),
                        Atomic::CompareSwap => batch.compare_swap(id, address, rkey, ATOMIC_ADD, ATOMIC_SWAP),
                    };
                }
            }
            if xrc {
                batch.to_srq(self.other[peer].srqn);
            }
            if self.settings.imm {
                // What it is says nothing, as perftest's.
                batch.imm(0);
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
        if !self.settings.takes_receives() {
            return Ok(());
        }
        let queues = if self.srq.is_some() { 1 } else { self.settings.qps };
        for qp in 0..queues {
            self.post_receives(qp, self.settings.rx_depth as u64)?;
        }
        Ok(())
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

/// Where a queue pair is.
fn place<'a>(settings: &Settings, places: &'a Places, number: usize) -> &'a Place {
    &places[usize::from(settings.is_at_second(number))]
}

/// Bytes in which small messages go round, and of a line of the cache, as the original's: of frames, and where the ends have not said theirs.
const ROUND: (usize, usize) = (4096, 64);

/// Bytes of one queue pair's place to send from, and of its place to receive in. Small messages go round in `cycle` bytes of it, in lines
/// of the cache.
fn area(settings: &Settings, flows: Option<Flows>, (cycle, line): (usize, usize)) -> usize {
    let places = match flows {
        Some(flows) => flows.count as usize,
        // Each message under way has a place of its own.
        None if settings.options.data_validation => settings.tx_depth,
        None => 1,
    };
    // A datagram's header stands before its data, on the line before.
    (settings.size as usize).max(cycle).next_multiple_of(line) * places + line
}

/// What `--use_hugepages` says where there are none.
fn without_huge_pages(error: VerbsError, bytes: usize) -> Failure {
    match error {
        VerbsError::Memory { source: MemoryError::NoHugePages { free, mend, .. }, .. } => {
            Failure::Error(format!(
                "--use_hugepages: not enough huge pages for message buffers of {bytes} bytes: {free}; {mend}, or leave --use_hugepages out"
            ))
        }
        error => error.into(),
    }
}

fn ready_datagrams(qp: &mut Qp, own: &Keys) -> Result<(), Failure> {
    qp.modify(&QpAttributes::state(QpState::RTR))?;
    qp.modify(&QpAttributes { sq_psn: Some(own.psn), ..QpAttributes::state(QpState::RTS) })?;
    Ok(())
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
