//! The loop of `xsrq_pingpong`: one server, clients in turn, each with an XRC queue pair that sends, one that receives, and a shared
//! receive queue that the other end names in each message.
//!
//! Source of the course of events: rdma-core `libibverbs/examples/xsrq_pingpong.c`. The server begins. As there, its messages to one
//! client go out by the queue pairs of all clients in turn: clients of one machine share their XRC domain by a file, and any of
//! their queue pairs leads to each one's queue. Models share nothing, so they have one client.

use pollux_bringup::RdmaDevice;
use pollux_eal::LcoreContext;
use pollux_kit::Console;
use pollux_verbs::{
    Access, Connection, Mr, Mtu, OdpService, Path, Pd, Qp, QpKind, QpOptions, Srq, SrqOptions, WcStatus,
    Xrcd, random_psn,
};

use super::memory;
use super::options::{Common, Paging};
use super::{PATIENCE, wire_up};
use crate::exchange::Line;
use crate::exchange::pingpong::XsrqAddress;
use crate::rdma::endless::Watch;
use crate::rdma::queue::Queue;
use crate::rdma::{Appointment, Failure, device};

/// The file by which processes share an XRC domain, as the originals have it.
const DOMAIN: &str = "/tmp/xrc_domain";

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The options of all.
    pub common: Common,
    /// Path MTU in bytes.
    pub mtu: Mtu,
    /// Clients of the server; of a client, 1.
    pub clients: u64,
    /// Messages to each client.
    pub tests: u64,
    /// Whether messages are in memory on demand.
    pub paging: Paging,
}

/// The way to one other end.
struct Peer {
    send: Qp,
    receive: Qp,
    psn: u32,
    other: XsrqAddress,
    line: Option<Line>,
    sent: u64,
}

/// What the way to another end is made of.
struct Ways {
    pd: Pd,
    xrcd: Xrcd,
    sends: Queue,
    options: QpOptions,
    port: u8,
}

impl Ways {
    fn peer(&self) -> Result<Peer, Failure> {
        let mut receive = Qp::xrc_receiver(&self.xrcd)?;
        receive.init(self.port, Access::REMOTE_WRITE | Access::REMOTE_READ)?;
        let mut send = Qp::new(&self.pd, &self.sends.cq, &self.sends.cq, &self.options)?;
        send.init(self.port, Access::empty())?;
        Ok(Peer { send, receive, psn: random_psn(), other: XsrqAddress::default(), line: None, sent: 0 })
    }
}

struct End<'a> {
    plan: &'a Plan,
    size: usize,
    mr: Mr,
    ways: Ways,
    receives: Queue,
    srq: Srq,
    peers: Vec<Peer>,
    lid: u16,
    gid: (u8, [u8; 16]),
}

/// Runs one end.
///
/// # Errors
/// [`Failure`].
pub fn run(
    lcore: &LcoreContext,
    device: &RdmaDevice,
    plan: &Plan,
    appointment: Appointment,
) -> Result<(), Failure> {
    let console = Console { json: plan.common.json };
    let mut end = End::new(device, plan)?;
    let stop = || lcore.stop_requested();
    match &plan.common.host {
        Some(_) => end.meet(0, appointment.line(lcore)?, device, console, lcore)?,
        None => {
            for number in 0..end.peers.len() {
                appointment.meet(|| {
                    let met = end.meet(number, appointment.line(lcore)?, device, console, lcore);
                    if matches!(met, Err(Failure::Peer(_))) {
                        // Its queue pairs may lead to whoever it was.
                        end.peers[number] = end.ways.peer()?;
                    }
                    met
                })?;
            }
            for number in 0..end.peers.len() {
                end.send(number)?;
            }
        }
    }
    end.exchange(lcore)?;
    // A server answers once all clients are done: the last message of one may go through the queue pairs of another.
    let client = plan.common.host.is_some();
    let mut lines: Vec<&mut Line> = end.peers.iter_mut().filter_map(|peer| peer.line.as_mut()).collect();
    let say = |lines: &mut [&mut Line]| lines.iter_mut().try_for_each(|line| line.say_end());
    if client {
        say(&mut lines)?;
    }
    lines.iter_mut().try_for_each(|line| line.hear_end(&stop))?;
    if !client {
        say(&mut lines)?;
    }
    console.print("success\n");
    let (app, size, messages) = ("xsrq_pingpong", end.size, plan.clients * plan.tests);
    let report =
        || serde_json::json!({ "app": app, "device": device.name, "size": size, "messages": messages });
    Ok(console.json(report)?)
}

impl<'a> End<'a> {
    fn new(device: &RdmaDevice, plan: &'a Plan) -> Result<Self, Failure> {
        let Plan { common, clients, tests, .. } = plan;
        let (port, attributes) = device::port(device, common.ib_port)?;
        let gid = device::gid(device, port, common.gid_idx, "-g")?;
        device::check_mtu(device, port, &attributes, plan.mtu)?;
        if *clients > 1 && device.wire().is_some() {
            let name = &device.name;
            return Err(Failure::Usage(format!(
                "-c {clients}: the wire of the model {name} reaches only one peer; give -c 1"
            )));
        }
        let size = common.size.unwrap_or(4096);
        device::check_size(device, &attributes, size)?;
        let options = QpOptions::new(QpKind::XrcSend).depth((clients * tests) as u32, 0);
        device::check_depth(device, &options, *clients, ("-n times -c", "receives"))?;
        let (size, count) = (size as usize, *clients as u32);
        let context = &device.context;
        let pd = Pd::new(context)?;
        let services = OdpService::SEND | OdpService::SRQ_RECV;
        let mr = memory::allocate(device, &pd, size, plan.paging, QpKind::XrcSend, services)?;
        let xrcd = domain(device)?;
        let receives = Queue::new(context, count, common.events)?;
        let sends = Queue::new(context, count, false)?;
        let mut srq = Srq::xrc(&pd, &xrcd, &receives.cq, &SrqOptions::new(count))?;
        let mut list = srq.receives();
        for _ in 0..count {
            list.mr(0, &mr, 0..size);
        }
        list.ring()?;
        let ways = Ways { pd, xrcd, sends, options, port };
        let peers = (0..count).map(|_| ways.peer()).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Self { plan, size, mr, ways, receives, srq, peers, lid: attributes.legacy_resp.lid, gid })
    }

    /// Trades addresses with one other end and connects to it.
    fn meet(
        &mut self,
        number: usize,
        mut line: Line,
        device: &RdmaDevice,
        console: Console,
        lcore: &LcoreContext,
    ) -> Result<(), Failure> {
        let stop = || lcore.stop_requested();
        let (gid_index, gid) = self.gid;
        let srqn = self.srq.number();
        let peer = &mut self.peers[number];
        let own = XsrqAddress {
            lid: self.lid,
            receive_qpn: peer.receive.qpn(),
            send_qpn: peer.send.qpn(),
            psn: peer.psn,
            srqn,
            gid,
        };
        console.print(&super::report::xsrq("local", &own));
        let other = line.trade_xsrq(&own, &stop)?;
        console.print(&super::report::xsrq("remote", &other));
        device::check_kinds(gid, other.gid, line.peer(), "-g")?;
        let of_peer = |failure: Failure| failure.of_peer(line.peer());
        let port = self.ways.port;
        wire_up(device, port, &stop).map_err(of_peer)?;
        let common = &self.plan.common;
        let path = Path {
            port,
            service_level: common.sl as u8,
            hop_limit: 5,
            lid: other.lid,
            ..Path::new(other.gid, gid_index)
        };
        let mtu = self.plan.mtu;
        let (rq_psn, sq_psn) = (other.psn, own.psn);
        let to = |qpn| Connection { rq_psn, sq_psn, mtu, ..Connection::new(path, qpn) };
        let connected = peer.receive.connect(&to(other.send_qpn));
        connected
            .and_then(|()| peer.send.connect(&to(other.receive_qpn)))
            .map_err(|error| of_peer(error.into()))?;
        (peer.other, peer.line) = (other, Some(line));
        Ok(())
    }

    /// Sends to one other end; the last message to it completes.
    fn send(&mut self, number: usize) -> Result<(), Failure> {
        let by = (number + self.peers[number].sent as usize) % self.peers.len();
        let peer = &mut self.peers[number];
        peer.sent += 1;
        let (srqn, last) = (peer.other.srqn, peer.sent >= self.plan.tests);
        let mut batch = self.peers[by].send.batch();
        batch.send(number as u64).to_srq(srqn).mr(&self.mr, 0..self.size);
        if last {
            batch.signalled();
        }
        batch.ring()?;
        Ok(())
    }

    /// To and fro, until all messages have come and the last ones of ours have arrived.
    fn exchange(&mut self, lcore: &LcoreContext) -> Result<(), Failure> {
        let total = self.plan.clients * self.plan.tests;
        let (mut received, mut done) = (0, 0);
        let mut found = Vec::new();
        // Any line will do: an end that is gone brings all of them down.
        let line = self.peers.iter().find_map(|peer| peer.line.as_ref()).map(Line::watcher).transpose()?;
        let mut watch = Watch::new(lcore, line.as_ref(), PATIENCE);
        while received < total {
            found.clear();
            self.receives.take(8, &mut watch, |wc| found.push((wc.status(), wc.qpn())))?;
            let mut failed = None;
            done += self.ways.sends.cq.poll(8, |wc| {
                if wc.status() != WcStatus::SUCCESS {
                    failed.get_or_insert((wc.status(), wc.id()));
                }
            });
            if let Some((status, id)) = failed {
                return Err(Failure::completion(status, id));
            }
            for (status, qpn) in found.clone() {
                if status != WcStatus::SUCCESS {
                    return Err(Failure::completion(status, 0));
                }
                let mut receives = self.srq.receives();
                receives.mr(0, &self.mr, 0..self.size);
                receives.ring()?;
                let from = self.peers.iter().position(|peer| peer.receive.qpn() == qpn).unwrap_or(0);
                if self.peers[from].sent < self.plan.tests {
                    self.send(from)?;
                }
                received += 1;
            }
        }
        while done < self.peers.len() {
            let mut failed = None;
            done += self.ways.sends.take(8, &mut watch, |wc| {
                if wc.status() != WcStatus::SUCCESS {
                    failed.get_or_insert((wc.status(), wc.id()));
                }
            })?;
            if let Some((status, id)) = failed {
                return Err(Failure::completion(status, id));
            }
        }
        Ok(())
    }
}

/// The XRC domain: shared by file on a real device, a model's own on a model.
fn domain(device: &RdmaDevice) -> Result<Xrcd, Failure> {
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;
    if device.wire().is_some() {
        return Ok(Xrcd::new(&device.context)?);
    }
    let mut options = std::fs::OpenOptions::new();
    // Created only to be shared: read by its owner and group, as the original's.
    let file = options.write(true).create(true).truncate(false).mode(0o440).open(DOMAIN);
    let file = file.or_else(|_| std::fs::File::open(DOMAIN));
    match file {
        Ok(file) => Ok(Xrcd::of_file(&device.context, file.as_fd())?),
        Err(_) => Ok(Xrcd::new(&device.context)?),
    }
}
