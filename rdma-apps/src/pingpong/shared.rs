//! The loop of `srq_pingpong`: many RC queue pairs that receive through one shared queue, each with a message under way.
//!
//! Source of the course of events: rdma-core `libibverbs/examples/srq_pingpong.c`; as there, `-n` counts the exchanges of all queue
//! pairs together. Unlike there each receive has memory of its own, so that messages that come at once can be compared.

use std::time::Instant;

use pollux_bringup::RdmaDevice;
use pollux_eal::LcoreContext;
use pollux_kit::Console;
use pollux_verbs::{
    Access, Connection, Mr, Mtu, OdpService, Path, Pd, Qp, QpKind, QpOptions, Srq, SrqOptions, WcStatus,
    random_psn,
};

use super::check::{Checker, fill};
use super::memory;
use super::options::{Common, Paging, Volume};
use super::report::{self, Outcome};
use super::{PATIENCE, wire_up};
use crate::exchange::pingpong::{Address, SRQ_ADDRESSES};
use crate::rdma::endless::Watch;
use crate::rdma::queue::Queue;
use crate::rdma::{Appointment, Failure, device};

/// What sends are posted with; receives are posted with their slot.
const SEND: u64 = 1 << 63;

/// The most queue pairs: one less than there are addresses to trade, as in the original.
pub const QPS_MAX: u64 = SRQ_ADDRESSES as u64 - 1;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options of all.
    pub common: Common,
    /// How much.
    pub volume: Volume,
    /// Path MTU in bytes.
    pub mtu: Mtu,
    /// Queue pairs.
    pub qps: u64,
    /// Whether messages are in memory on demand.
    pub paging: Paging,
}

/// One queue pair of the end.
struct Pair {
    qp: Qp,
    /// A send is under way.
    sending: bool,
    /// Nothing has come since it sent.
    waiting: bool,
    /// Slot with what was received last and not answered yet.
    slot: Option<usize>,
    sent: u64,
    received: u64,
}

struct End<'a> {
    plan: &'a Plan,
    size: usize,
    mr: Mr,
    queue: Queue,
    srq: Srq,
    pairs: Vec<Pair>,
    client: bool,
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
) -> Result<(), Failure> {
    let Plan { common, volume, .. } = plan;
    if plan.qps > volume.rx_depth {
        return Err(Failure::Usage(format!(
            "-r {} is too small for -q {}: each QP needs at least one receive",
            volume.rx_depth, plan.qps
        )));
    }
    let console = Console { json: common.json };
    let stop = || lcore.stop_requested();
    let (port, attributes) = device::port(device, common.ib_port)?;
    let (gid_index, gid) = device::gid(device, port, common.gid_idx, "-g")?;
    let used = plan.qps as usize;
    device::check_mtu(device, port, &attributes, plan.mtu)?;
    let mut options = volume.shared("srq_pingpong");
    options.push(("-m", plan.mtu.to_string()));
    let (mut end, mut line, other) = appointment.meet(|| {
        let mut end = End::new(device, plan, port, &attributes)?;
        let mut own = vec![Address::default(); SRQ_ADDRESSES];
        for (address, pair) in own.iter_mut().zip(&end.pairs) {
            *address =
                Address { lid: attributes.legacy_resp.lid, qpn: pair.qp.qpn(), psn: random_psn(), gid };
        }
        console.print(&own[..used].iter().map(report::local).collect::<String>());
        let mut line = appointment.line(lcore)?;
        let peer = line.peer().to_owned();
        let other = line.trade_addresses(&own, &options, &stop, |other| {
            let theirs = other.iter().filter(|address| address.qpn != 0).count();
            if theirs != used {
                return Err(Failure::Peer(format!(
                    "the peer uses {theirs} QPs, this end {used}: give both ends the same -q"
                )));
            }
            device::check_kinds(gid, other[0].gid, &peer, "-g")?;
            let wired = wire_up(device, port, &stop);
            wired
                .and_then(|()| end.connect(port, gid_index, &own, other))
                .map_err(|failure| failure.of_peer(&peer))
        })?;
        Ok((end, line, other))
    })?;
    let remote: String = other[..used].iter().map(report::remote).collect();
    console.print(&remote);

    let mut checkers: Vec<Checker> = (0..used).map(|_| Checker::default()).collect();
    let check = volume.chk.then_some(&mut checkers[..]);
    let outcome = end.exchange(Watch::new(lcore, Some(&line), PATIENCE), check)?;
    line.part(&stop);
    if outcome.iterations < volume.iters {
        console.print(&format!("stopped after {} of {} exchanges\n", outcome.iterations, volume.iters));
    }
    console.print(&outcome.lines());
    let lines: String = checkers.iter().filter_map(Checker::lines).collect();
    if !lines.is_empty() {
        console.print(&lines);
        let bad: u64 = checkers.iter().map(Checker::bad).sum();
        return Err(Failure::Error(format!("{bad} messages differ from what the peer sent")));
    }
    Ok(console.json(|| outcome.json("srq_pingpong", &device.name))?)
}

impl<'a> End<'a> {
    fn new(
        device: &RdmaDevice,
        plan: &'a Plan,
        port: u8,
        attributes: &pollux_verbs::PortAttributes,
    ) -> Result<Self, Failure> {
        let Plan { common, volume, qps, .. } = plan;
        let size = common.size.unwrap_or(4096);
        device::check_size(device, attributes, size)?;
        let (size, slots, qps) = (size as usize, volume.rx_depth as usize, *qps as usize);
        let options = QpOptions::new(QpKind::Rc).depth(1, 0);
        let completions = (slots + qps) as u32;
        device::check_depth(device, &options, completions.into(), ("sends", "receives"))?;
        let most = device.context.device()?.base.max_srq_wr;
        if volume.rx_depth > u64::from(most) {
            let name = &device.name;
            return Err(Failure::Usage(format!("-r {slots} exceeds the SRQ limit of {name} ({most})")));
        }
        let pd = Pd::new(&device.context)?;
        // Slots to receive in, then one a queue pair to send from.
        let bytes = stride(size) * (slots + qps);
        let services = OdpService::SEND | OdpService::SRQ_RECV;
        let mr = memory::allocate(device, &pd, bytes, plan.paging, QpKind::Rc, services)?;
        let queue = Queue::new(&device.context, completions, common.events)?;
        let mut srq = Srq::new(&pd, &SrqOptions::new(slots as u32))?;
        let mut receives = srq.receives();
        for slot in 0..slots {
            receives.mr(slot as u64, &mr, place(slot, size));
        }
        receives.ring()?;
        let pairs = (0..qps).map(|number| {
            let qp = Qp::with_srq(&pd, &queue.cq, &queue.cq, &srq, &options);
            let mut qp = qp.map_err(|error| device::too_many(error, qps, number))?;
            qp.init(port, Access::empty())?;
            Ok(Pair { qp, sending: false, waiting: true, slot: None, sent: 0, received: 0 })
        });
        let pairs = pairs.collect::<Result<Vec<_>, Failure>>()?;
        Ok(Self { plan, size, mr, queue, srq, pairs, client: common.host.is_some() })
    }

    fn connect(
        &mut self,
        port: u8,
        gid_index: u8,
        own: &[Address],
        other: &[Address],
    ) -> Result<(), Failure> {
        let mtu = self.plan.mtu;
        for (pair, (own, other)) in self.pairs.iter_mut().zip(own.iter().zip(other)) {
            let service_level = self.plan.common.sl as u8;
            let path = Path { port, service_level, lid: other.lid, ..Path::new(other.gid, gid_index) };
            let (rq_psn, sq_psn) = (other.psn, own.psn);
            pair.qp.connect(&Connection { rq_psn, sq_psn, mtu, ..Connection::new(path, other.qpn) })?;
        }
        Ok(())
    }

    /// Sends from a queue pair: the client its own message, the server what it got.
    fn send(&mut self, number: usize, scratch: &mut [u8]) -> Result<(), Failure> {
        let slots = self.plan.volume.rx_depth as usize;
        let pair = &mut self.pairs[number];
        let source = match pair.slot {
            Some(slot) if !self.client => place(slot, self.size),
            _ => {
                let own = place(slots + number, self.size);
                fill(scratch, pair.sent);
                self.mr.write(own.start, scratch);
                own
            }
        };
        let mut batch = pair.qp.batch();
        batch.send(SEND | number as u64).signalled().mr(&self.mr, source);
        batch.ring()?;
        (pair.sending, pair.waiting) = (true, true);
        Ok(())
    }

    fn repost(&mut self, slot: usize) -> Result<(), Failure> {
        let mut receives = self.srq.receives();
        receives.mr(slot as u64, &self.mr, place(slot, self.size));
        receives.ring()?;
        Ok(())
    }

    /// To and fro. A stop ends it early.
    fn exchange(
        &mut self,
        mut watch: Watch<'_>,
        mut check: Option<&mut [Checker]>,
    ) -> Result<Outcome, Failure> {
        let iterations = self.plan.volume.iters;
        let mut scratch = vec![0; self.size];
        let (mut sent, mut received) = (0, 0);
        let mut found = Vec::new();
        let begin = Instant::now();
        if self.client {
            for number in 0..self.pairs.len() {
                self.send(number, &mut scratch)?;
            }
        }
        while sent < iterations || received < iterations {
            found.clear();
            let taken = self.queue.take(32, &mut watch, |wc| found.push((wc.status(), wc.id(), wc.qpn())));
            match taken {
                Err(Failure::Stopped) => break,
                taken => taken?,
            };
            for &(status, id, qpn) in &found {
                if status != WcStatus::SUCCESS {
                    return Err(Failure::completion(status, id & !SEND));
                }
                let number = if id & SEND != 0 {
                    Some((id & !SEND) as usize)
                } else {
                    self.pairs.iter().position(|pair| pair.qp.qpn() == qpn)
                };
                let Some(number) = number else {
                    return Err(Failure::Error(format!("received a message for unknown QP {qpn:#08x}")));
                };
                if id & SEND != 0 {
                    sent += 1;
                    self.pairs[number].sent += 1;
                    self.pairs[number].sending = false;
                } else {
                    let slot = id as usize;
                    received += 1;
                    if let Some(check) = &mut check {
                        self.mr.read(place(slot, self.size).start, &mut scratch);
                        let count = self.pairs[number].received;
                        if self.client {
                            check[number].returned(&scratch, count);
                        } else {
                            check[number].received(&scratch, count);
                        }
                    }
                    self.pairs[number].received += 1;
                    self.pairs[number].waiting = false;
                    // What was answered from the slot before has arrived, or the other end would not have gone on.
                    if let Some(before) = self.pairs[number].slot.replace(slot) {
                        self.repost(before)?;
                    }
                }
                let pair = &self.pairs[number];
                if !pair.sending && !pair.waiting && sent < iterations {
                    self.send(number, &mut scratch)?;
                }
            }
        }
        let time = begin.elapsed();
        Ok(Outcome {
            size: self.size as u64,
            iterations: iterations.min(sent).min(received),
            time,
            ticks: None,
        })
    }
}

/// Bytes from one slot to the next.
fn stride(size: usize) -> usize {
    size.next_multiple_of(64)
}

fn place(slot: usize, size: usize) -> std::ops::Range<usize> {
    slot * stride(size)..slot * stride(size) + size
}
