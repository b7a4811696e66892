//! One end of a test: its memory, its queues, and how they are connected.
//!
//! Source of sizes, rights and attributes: linux-rdma/perftest `src/perftest_resources.{c,h}` (`ctx_init`, `ctx_modify_qp_to_rtr`,
//! `ctx_modify_qp_to_rts`, `BUFF_SIZE`, `INC`).

use pollux_bringup::RdmaDevice;
use pollux_verbs::{
    Access, Ah, Batch, Connection as Link, Mr, Path, Pd, Qp, QpAttributes, QpKind, QpOptions, QpState, Srq,
    SrqOptions,
};

use super::options::{Atomic, Connection};
use super::settings::{Kind, Settings, Verb};
use crate::exchange::perftest::{Keys, Met};
use crate::pingpong::first_psn;
use crate::rdma::queue::Queue;
use crate::rdma::{Failure, device};

/// The queue key that perftest uses.
const QKEY: u32 = 0x1111_1111;
/// Bytes before a datagram.
const HEADER: usize = 40;

/// One end.
pub struct End {
    /// What to run.
    pub settings: Settings,
    /// Completions of sends.
    pub sends: Queue,
    /// Completions of receives.
    pub receives: Queue,
    /// Its keys, one a queue pair.
    pub own: Vec<Keys>,
    /// The other end's.
    pub other: Vec<Keys>,
    /// READs and atomics under way at once.
    pub outs: u32,
    qps: Vec<Qp>,
    srq: Option<Srq>,
    ahs: Vec<Ah>,
    mr: Mr,
    /// Bytes of one queue pair's place to send from, and of its place to receive in.
    area: usize,
    cycle: usize,
    line: usize,
    /// What is sent inline.
    payload: Vec<u8>,
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
        let verb = settings.test.verb;
        let limits = device.context.device()?.base;
        let most = limits.max_qp_rd_atom.min(255);
        let outs = match (verb, settings.options.outs) {
            (Verb::Send | Verb::Write, _) => 1,
            (_, None) => most,
            (_, Some(outs)) if outs <= u64::from(most) => outs as u32,
            (_, Some(outs)) => {
                return Err(Failure::Usage(format!("-o {outs} is beyond {}, which has {most}", device.name)));
            }
        };
        let kind = match settings.connection {
            Connection::Rc => QpKind::Rc,
            Connection::Uc => QpKind::Uc,
            Connection::Ud => QpKind::Ud,
        };
        let own_receives =
            if verb == Verb::Send && !settings.options.use_srq { settings.rx_depth as u32 } else { 0 };
        let options =
            QpOptions::new(kind).depth(settings.tx_depth as u32, own_receives).inline(settings.inline as u32);
        let sends = settings.tx_depth * settings.qps;
        let receives =
            if settings.options.use_srq { settings.rx_depth } else { settings.rx_depth * settings.qps };
        device::check_depth(device, &options, sends.max(receives) as u64, ("-t", "-r"))?;
        if settings.qps as u64 > u64::from(limits.max_qp) {
            return Err(Failure::Usage(format!(
                "-q {} is beyond {}, which has {}",
                settings.qps, device.name, limits.max_qp
            )));
        }

        let context = &device.context;
        let pd = Pd::new(context)?;
        let cycle = met.cycle_buffer as usize;
        let line = met.cache_line as usize;
        // A datagram's header stands before its data, on the line before.
        let area = (settings.size as usize).max(cycle).next_multiple_of(line) + line;
        let rights = match verb {
            Verb::Send => Access::empty(),
            Verb::Write => Access::REMOTE_WRITE,
            Verb::Read => Access::REMOTE_READ,
            Verb::Atomic => Access::REMOTE_ATOMIC,
        };
        let mr = Mr::allocate(&pd, area * settings.qps * 2, Access::LOCAL_WRITE | rights)?;
        let events = settings.options.events;
        let sends = Queue::new(context, sends as u32, events)?;
        let receives = Queue::new(context, receives as u32, events)?;
        let srq = match settings.options.use_srq {
            true => Some(Srq::new(&pd, &SrqOptions::new(settings.rx_depth as u32))?),
            false => None,
        };
        let qps = (0..settings.qps).map(|_| {
            let mut qp = match &srq {
                Some(srq) => Qp::with_srq(&pd, &sends.cq, &receives.cq, srq, &options)?,
                None => Qp::new(&pd, &sends.cq, &receives.cq, &options)?,
            };
            if kind == QpKind::Ud {
                let (port, pkey_index, qkey) = (Some(port), Some(0), Some(QKEY));
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
            psn: first_psn(),
            rkey: mr.rkey(),
            address: mr.address() + ((settings.qps + number) * area) as u64,
            srqn: 0,
            gid: Some(gid.1),
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
            qps,
            srq,
            ahs: Vec::new(),
            mr,
            area,
            cycle,
            line,
            payload: vec![0; inline],
            size,
        })
    }

    /// Connects all queue pairs to the other end's.
    ///
    /// # Errors
    /// What the device says.
    pub fn connect(&mut self, port: u8, gid_index: u8, mtu: u8) -> Result<(), Failure> {
        let options = &self.settings.options;
        // The other end answers as many at once as it says; this one may not be able to ask for so many.
        let most = self.mr.pd().context().device()?.base.max_qp_init_rd_atom.min(255);
        for ((qp, own), other) in self.qps.iter_mut().zip(&self.own).zip(&self.other) {
            let path = Path {
                port,
                service_level: options.sl as u8,
                traffic_class: options.tclass as u8,
                hop_limit: 0xff,
                lid: other.lid,
                ..Path::new(other.gid.unwrap_or_default(), gid_index)
            };
            if qp.kind() == QpKind::Ud {
                qp.modify(&QpAttributes::state(QpState::RTR))?;
                qp.modify(&QpAttributes { sq_psn: Some(own.psn), ..QpAttributes::state(QpState::RTS) })?;
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

    /// Sets the size of the messages that follow.
    pub fn resize(&mut self, size: u64) {
        self.size = size as usize;
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
        let mut batch = self.qps[qp].batch();
        for number in number..number + count {
            let id = (qp as u64) << 48 | (number + 1);
            let from = place + step..place + step + self.size;
            let remote = |other: &Keys| (other.address + step as u64, other.rkey);
            match self.settings.test.verb {
                Verb::Send => {
                    batch.send(id);
                    if let Some(ah) = self.ahs.get(qp) {
                        batch.to(ah, self.other[qp].qpn, QKEY);
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
                        Atomic::FetchAdd => batch.fetch_add(id, address, rkey, 1),
                        Atomic::CompareSwap => batch.compare_swap(id, address, rkey, 0, 1),
                    };
                }
            }
            if inline && matches!(self.settings.test.verb, Verb::Send | Verb::Write) {
                batch.inline(&self.payload[..self.size]);
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
        let receives = match &mut self.srq {
            Some(srq) => Some(srq.receives()),
            None => self.qps[qp].receives(),
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

#[inline(always)]
fn finish(batch: Batch<'_>) -> Result<(), Failure> {
    batch.ring()?;
    Ok(())
}
