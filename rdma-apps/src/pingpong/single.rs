//! The loop of `rc_pingpong`, `uc_pingpong` and `ud_pingpong`: one queue pair, one message under way.
//!
//! Source of the course of events: rdma-core `libibverbs/examples/{rc,uc,ud}_pingpong.c`. Each end sends once it has received, and its
//! send before is complete; the client begins. The server sends back what it got.

use std::time::Instant;

use pollux_bringup::RdmaDevice;
use pollux_eal::LcoreContext;
use pollux_kit::Console;
use pollux_verbs::{
    Access, Ah, Connection, Dm, Mr, Mtu, OdpService, Path, Pd, Qp, QpAttributes, QpKind, QpOptions, QpState,
    WcStatus, random_psn,
};

use super::check::{Checker, fill};
use super::memory;
use super::options::{Common, Paging, Volume};
use super::report::{self, Outcome, Ticks};
use super::{PATIENCE, wire_up};
use crate::exchange::pingpong::Address;
use crate::rdma::endless::Watch;
use crate::rdma::queue::Queue;
use crate::rdma::{Appointment, Failure, device};

/// What requests are posted with.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// Bytes before a datagram (rdma-core `libibverbs/verbs.h`, `struct ibv_grh`).
const HEADER: usize = 40;
/// Messages up to this size go with their requests.
const INLINE: usize = 60;
/// The queue key that the originals use.
const QKEY: u32 = 0x1111_1111;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// RC, UC or UD.
    pub kind: QpKind,
    /// The options of all.
    pub common: Common,
    /// How much.
    pub volume: Volume,
    /// Path MTU in bytes; UD has the port's.
    pub mtu: Mtu,
    /// Read the device's time of each receive.
    pub timestamps: bool,
    /// Use memory on the device.
    pub device_memory: bool,
    /// Whether messages are in memory on demand.
    pub paging: Paging,
}

/// Where messages are.
enum Memory {
    /// In the host: one place to receive in, one to send from.
    Host(Mr),
    /// On the device: one place for both.
    Device(Mr, Dm),
}

impl Memory {
    fn mr(&self) -> &Mr {
        match self {
            Self::Host(mr) | Self::Device(mr, _) => mr,
        }
    }

    fn read(&self, at: usize, target: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Host(mr) => mr.read(at, target),
            Self::Device(_, dm) => {
                let mut words = vec![0; target.len().next_multiple_of(4)];
                dm.read(at, &mut words)?;
                target.copy_from_slice(&words[..target.len()]);
            }
        }
        Ok(())
    }

    fn write(&self, at: usize, source: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Host(mr) => mr.write(at, source),
            Self::Device(_, dm) => {
                let mut words = source.to_vec();
                words.resize(source.len().next_multiple_of(4), 0);
                dm.write(at, &words)?;
            }
        }
        Ok(())
    }
}

/// One end.
struct End<'a> {
    plan: &'a Plan,
    size: usize,
    /// Bytes before the data of a received message.
    header: usize,
    memory: Memory,
    queue: Queue,
    qp: Qp,
    /// Where datagrams go.
    to: Option<(Ah, u32)>,
    inline: bool,
    client: bool,
    /// Receives that are posted.
    posted: u64,
}

/// Runs one end; the report is printed.
///
/// # Errors
/// [`Failure`].
pub fn run(
    lcore: &LcoreContext,
    device: &RdmaDevice,
    plan: &Plan,
    appointment: Appointment,
    app: &str,
) -> Result<(), Failure> {
    let console = Console { json: plan.common.json };
    let Plan { kind, common, .. } = plan;
    let stop = || lcore.stop_requested();
    let (port, attributes) = device::port(device, common.ib_port)?;
    let (gid_index, gid) = device::gid(device, port, common.gid_idx, "-g")?;
    let mut options = plan.volume.shared(app);
    if *kind != QpKind::Ud {
        device::check_mtu(device, port, &attributes, plan.mtu)?;
        options.push(("-m", plan.mtu.to_string()));
    }
    let (mut end, mut line, other) = appointment.meet(|| {
        let mut end = End::new(device, plan, port, &attributes)?;
        end.post_receives()?;
        let psn = random_psn();
        let own = Address { lid: attributes.legacy_resp.lid, qpn: end.qp.qpn(), psn, gid };
        let local = if *kind == QpKind::Ud { report::local_of_ud(&own) } else { report::local(&own) };
        console.print(&local);
        let mut line = appointment.line(lcore)?;
        let peer = line.peer().to_owned();
        let other = line.trade_addresses(&[own], &options, &stop, |other| {
            device::check_kinds(gid, other[0].gid, &peer, "-g")?;
            let wired = wire_up(device, port, &stop);
            wired
                .and_then(|()| end.connect(port, gid_index, &own, &other[0]))
                .map_err(|failure| failure.of_peer(&peer))
        })?;
        Ok((end, line, other))
    })?;
    console.print(&report::remote(&other[0]));

    let mut checker = plan.volume.chk.then(Checker::default);
    let outcome = end.exchange(Watch::new(lcore, Some(&line), PATIENCE), checker.as_mut())?;
    line.part(&stop);
    if outcome.iterations < plan.volume.iters {
        console.print(&format!("stopped after {} of {} exchanges\n", outcome.iterations, plan.volume.iters));
    }
    console.print(&outcome.lines());
    if let Some((checker, lines)) = checker.as_ref().and_then(|checker| Some((checker, checker.lines()?))) {
        console.print(&lines);
        return Err(Failure::Error(format!("{} messages differ from what the peer sent", checker.bad())));
    }
    Ok(console.json(|| outcome.json(app, &device.name))?)
}

impl<'a> End<'a> {
    fn new(
        device: &RdmaDevice,
        plan: &'a Plan,
        port: u8,
        attributes: &pollux_verbs::PortAttributes,
    ) -> Result<Self, Failure> {
        let Plan { kind, common, volume, .. } = plan;
        let datagrams = *kind == QpKind::Ud;
        let size = common.size.unwrap_or(if datagrams { 1024 } else { 4096 });
        device::check_size(device, attributes, size)?;
        let mtu = Mtu::active(attributes).bytes();
        if datagrams && size > u64::from(mtu) {
            return Err(Failure::Usage(format!(
                "-s {size}: a UD message is at most one MTU ({mtu}): give at most {mtu}"
            )));
        }
        let size = size as usize;
        let header = if datagrams { HEADER } else { 0 };
        let receives = volume.rx_depth as u32;
        // What fits an entry of the queue anyway goes with it.
        let inline = if size <= INLINE && !plan.device_memory { size as u32 } else { 0 };
        let options = QpOptions::new(*kind).depth(1, receives).inline(inline);
        device::check_depth(device, &options, volume.rx_depth + 1, ("sends", "-r"))?;

        let pd = Pd::new(&device.context)?;
        let memory = if plan.device_memory {
            if let Some(option) = plan.paging.on_demand() {
                let why = "memory of the device is always there";
                return Err(Failure::Usage(format!("-j cannot be combined with {option}: {why}")));
            }
            let bytes = size.next_multiple_of(4);
            let most = device.context.device()?.max_dm_size;
            if bytes as u64 > most {
                let name = &device.name;
                return Err(Failure::Usage(if most == 0 {
                    format!("-j: {name} has no device memory: leave -j out")
                } else {
                    format!("-s {size} exceeds the device memory of {name} (-j), {most} bytes")
                }));
            }
            let dm = Dm::new(&device.context, bytes, 0)?;
            Memory::Device(Mr::of_device(&pd, &dm, 0..bytes, Access::LOCAL_WRITE | Access::ZERO_BASED)?, dm)
        } else {
            let bytes = send_place(header, size) + size;
            let services = OdpService::SEND | OdpService::RECV;
            Memory::Host(memory::allocate(device, &pd, bytes, plan.paging, plan.kind, services)?)
        };
        let queue = Queue::new(&device.context, receives + 1, common.events)?;
        let mut qp = Qp::new(&pd, &queue.cq, &queue.cq, &options)?;
        if datagrams {
            let (port, pkey_index, qkey) = (Some(port), Some(0), Some(QKEY));
            qp.modify(&QpAttributes { port, pkey_index, qkey, ..QpAttributes::state(QpState::INIT) })?;
        } else {
            qp.init(port, Access::empty())?;
        }
        let inline = inline > 0;
        let client = common.host.is_some();
        Ok(Self { plan, size, header, memory, queue, qp, to: None, inline, client, posted: 0 })
    }

    fn connect(&mut self, port: u8, gid_index: u8, own: &Address, other: &Address) -> Result<(), Failure> {
        let common = &self.plan.common;
        let service_level = common.sl as u8;
        let path = Path { port, service_level, lid: other.lid, ..Path::new(other.gid, gid_index) };
        if self.plan.kind == QpKind::Ud {
            self.qp.modify(&QpAttributes::state(QpState::RTR))?;
            self.qp.modify(&QpAttributes { sq_psn: Some(own.psn), ..QpAttributes::state(QpState::RTS) })?;
            let pd = self.memory.mr().pd();
            self.to = Some((Ah::new(pd, &path)?, other.qpn));
            return Ok(());
        }
        let mtu = self.plan.mtu;
        let (rq_psn, sq_psn) = (other.psn, own.psn);
        self.qp.connect(&Connection { rq_psn, sq_psn, mtu, ..Connection::new(path, other.qpn) })?;
        Ok(())
    }

    /// Fills the receive queue.
    fn post_receives(&mut self) -> Result<(), Failure> {
        let missing = self.plan.volume.rx_depth - self.posted;
        let Some(mut receives) = self.qp.receives() else { return Ok(()) };
        for _ in 0..missing {
            receives.mr(RECEIVE, self.memory.mr(), 0..self.header + self.size);
        }
        receives.ring()?;
        self.posted += missing;
        Ok(())
    }

    /// Where what is sent stands: the server sends back what it received.
    fn source(&self) -> usize {
        match self.memory {
            Memory::Host(_) if self.client => send_place(self.header, self.size),
            Memory::Host(_) => self.header,
            Memory::Device(..) => 0,
        }
    }

    #[inline]
    fn post_send(&mut self, scratch: &mut [u8]) -> Result<(), Failure> {
        let source = self.source();
        let mut batch = self.qp.batch();
        batch.send(SEND).signalled();
        if let Some((ah, qpn)) = &self.to {
            batch.to(ah, *qpn, QKEY);
        }
        if self.inline {
            let scratch = &mut scratch[..self.size];
            self.memory.mr().read(source, scratch);
            batch.inline(scratch);
        } else {
            batch.mr(self.memory.mr(), source..source + self.size);
        }
        batch.ring()?;
        Ok(())
    }

    /// To and fro. A stop ends it early.
    fn exchange(
        &mut self,
        mut watch: Watch<'_>,
        mut checker: Option<&mut Checker>,
    ) -> Result<Outcome, Failure> {
        let iterations = self.plan.volume.iters;
        let mut scratch = vec![0; self.size];
        let (mut sent, mut received) = (0, 0);
        let mut pending = RECEIVE;
        let mut ticks = self.plan.timestamps.then(Ticks::default);
        let mut last_tick = None;
        if self.client {
            fill(&mut scratch, 0);
            self.memory.write(self.source(), &scratch)?;
        }
        let begin = Instant::now();
        if self.client {
            self.post_send(&mut scratch)?;
            pending |= SEND;
        }
        while sent < iterations || received < iterations {
            let (mut done, mut failed, mut tick) = (0, None, None);
            let taken = self.queue.take(2, &mut watch, |wc| {
                if wc.status() != WcStatus::SUCCESS {
                    failed.get_or_insert((wc.status(), wc.id()));
                }
                done |= wc.id();
                if ticks.is_some() && wc.id() == RECEIVE {
                    tick = Some(wc.timestamp());
                }
            });
            match taken {
                Err(Failure::Stopped) => break,
                taken => taken?,
            };
            if let Some((status, id)) = failed {
                return Err(Failure::completion(status, id));
            }
            if done & SEND != 0 {
                sent += 1;
            }
            if done & RECEIVE != 0 {
                if let Some(checker) = &mut checker {
                    self.memory.read(self.header, &mut scratch)?;
                    if self.client {
                        checker.returned(&scratch, received);
                    } else {
                        checker.received(&scratch, received);
                    }
                }
                received += 1;
                self.posted -= 1;
                if self.posted <= 1 {
                    self.post_receives()?;
                }
                if let (Some(ticks), Some(tick)) = (&mut ticks, tick) {
                    if let Some(last) = last_tick {
                        ticks.add(tick.wrapping_sub(last));
                    }
                    last_tick = Some(tick);
                }
            }
            pending &= !done;
            if pending == 0 && sent < iterations {
                if self.client && checker.is_some() {
                    fill(&mut scratch, received);
                    self.memory.write(self.source(), &scratch)?;
                }
                self.post_send(&mut scratch)?;
                pending = RECEIVE | SEND;
            }
        }
        let time = begin.elapsed();
        Ok(Outcome { size: self.size as u64, iterations: iterations.min(sent).min(received), time, ticks })
    }
}

/// Where the client sends from: behind what is received, on a line of its own.
fn send_place(header: usize, size: usize) -> usize {
    (header + size).next_multiple_of(64)
}
