//! librdmacm's `mckey`: datagrams to a multicast group that both ends join. Source of options, texts and order: rdma-core
//! `librdmacm/examples/mckey.c`.
//!
//! ```text
//!   sender    joins, waits three seconds, sends to all ──►  receivers   join, attach their queue pairs, count messages
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use pollux_bringup::program::{say, tell};
use pollux_cm::{EventKind, Id, Manager, PortSpace};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_verbs::{Ah, Buffers, Cq, CqOptions, Mtu, Path, Pd, Qp, QpKind, QpOptions};

use super::address::{Format, udp_by_number};
use super::manager::{RESOLUTION, next, run as run_program, unexpected};
use crate::number::within;
use crate::rdma::Failure;

/// Bytes before a datagram.
const HEADER: usize = 40;
/// How long networks have to learn who is in the group; what the original waits.
const PAUSE: Duration = Duration::from_secs(3);
/// How often a stop is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// mckey: datagrams to a multicast group. Start receivers, then the sender (-s). Interoperates with librdmacm's mckey.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "The loop is one page: apps/src/cm/mckey.rs.")]
pub struct Options {
    /// Multicast group, such as 239.1.2.3
    #[arg(short = 'm', value_name = "ADDR", value_parser = group)]
    group: IpAddr,
    /// Send to the group, and do not receive
    #[arg(short = 's')]
    sender: bool,
    /// Address to bind to
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// Queue pairs
    #[arg(short = 'c', value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 4096))]
    connections: u64,
    /// Messages of a queue pair
    #[arg(short = 'C', value_name = "N", default_value = "10", value_parser = |text: &str| within(text, 0, 4096))]
    messages: u64,
    /// Message size in bytes, at most the MTU
    #[arg(short = 'S', value_name = "BYTES", default_value = "100", value_parser = |text: &str| within(text, 0, 4096))]
    size: u64,
    /// Port space by its number: 0x0111 (udp)
    #[arg(short = 'p', value_name = "NUMBER", default_value = "0x0111", value_parser = udp_by_number)]
    space: PortSpace,
    /// Join as a member that only sends
    #[arg(short = 'o')]
    sends_only: bool,
    /// Do not hear what the own device sends
    #[arg(short = 'l')]
    no_loopback: bool,
}

/// `-m`.
fn group(text: &str) -> Result<IpAddr, String> {
    let group = text.parse().ok().filter(IpAddr::is_multicast);
    group.ok_or_else(|| "is no multicast address: give one such as 239.1.2.3".into())
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), pollux_bringup::BringupError> {
    let example = [("mckey", " -m 239.1.2.3 -b 10.0.0.1"), ("mckey", " -m 239.1.2.3 -b 10.0.0.2 -s")];
    run_program(line, example, move |lcore, manager| {
        let bind = options.bind.as_deref().map(|host| Format::Name.read(host, "-b")).transpose()?;
        tell(format_args!("mckey: starting {}", if options.sender { "client" } else { "server" }));
        tell(format_args!("mckey: joining"));
        let mut nodes = join(lcore, manager, &options, bind)?;
        if !options.sender {
            say(format_args!("mckey: listening on {}", options.group));
        }
        pause(lcore)?;
        let messages = options.messages();
        if messages > 0 {
            if options.sender {
                tell(format_args!("initiating data transfers"));
                nodes.iter_mut().try_for_each(|node| node.post(messages, options.size as usize))?;
            } else {
                tell(format_args!("receiving data transfers"));
            }
            until_done(lcore, &mut nodes, messages)?;
            tell(format_args!("data transfers complete"));
        }
        nodes.iter_mut().try_for_each(|node| node.leave(options.group))?;
        drop(nodes);
        tell(format_args!("test complete"));
        tell(format_args!("return status 0"));
        Ok(())
    })
}

impl Options {
    fn messages(&self) -> u32 {
        if self.size == 0 { 0 } else { self.messages as u32 }
    }
}

/// A queue pair, and the group that it is in.
struct Node {
    id: Id,
    pd: Pd,
    qp: Qp,
    cq: Cq,
    buffers: Buffers,
    /// How the group is sent to, and whether the queue pair hears it.
    joined: Option<(Path, u32, u32)>,
    is_attached: bool,
    done: u32,
}

/// Queue pairs that are all in the group.
fn join(
    lcore: &LcoreContext,
    manager: &Manager,
    options: &Options,
    bind: Option<IpAddr>,
) -> Result<Vec<Node>, Failure> {
    let channel = manager.channel()?;
    let peer = SocketAddr::new(options.group, 0);
    let mut waiting = Vec::new();
    for _ in 0..options.connections {
        let id = channel.create_id(options.space)?;
        id.resolve_address(bind.map(|bind| SocketAddr::new(bind, 0)), peer, RESOLUTION)?;
        waiting.push(id);
    }
    let mut nodes: Vec<Node> = Vec::new();
    while !waiting.is_empty() || nodes.iter().any(|node| node.joined.is_none()) {
        let event = next(lcore, &channel)?;
        match event.kind {
            EventKind::AddressResolved => {
                let Some(place) = waiting.iter().position(|id| id.number() == event.id) else { continue };
                let node = Node::new(waiting.swap_remove(place), options)?;
                node.id.join_multicast(options.group, options.sends_only)?;
                nodes.push(node);
            }
            EventKind::MulticastJoined { path, qpn, qkey } => {
                let Some(node) = nodes.iter_mut().find(|node| node.id.number() == event.id) else { continue };
                tell(format_args!(
                    "mckey: joined dgid: {} mlid 0x{:x} sl {}",
                    std::net::Ipv6Addr::from(path.gid),
                    path.lid,
                    path.service_level
                ));
                if !options.sends_only {
                    node.qp.attach_multicast(path.gid, path.lid)?;
                    node.is_attached = true;
                }
                node.joined = Some((path, qpn, qkey));
            }
            kind => return Err(unexpected(&kind, peer)),
        }
    }
    Ok(nodes)
}

fn pause(lcore: &LcoreContext) -> Result<(), Failure> {
    let end = Instant::now() + PAUSE;
    while Instant::now() < end {
        if lcore.stop_requested() {
            return Err(Failure::Stopped);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn until_done(lcore: &LcoreContext, nodes: &mut [Node], messages: u32) -> Result<(), Failure> {
    while nodes.iter().any(|node| node.done < messages) {
        for node in &mut *nodes {
            node.poll()?;
        }
        if lcore.stop_requested() {
            return Err(Failure::Stopped);
        }
        std::thread::yield_now();
    }
    Ok(())
}

impl Node {
    /// A queue pair for an ID that leads to a device; a receiver's receives are posted.
    fn new(id: Id, options: &Options) -> Result<Self, Failure> {
        let messages = options.messages();
        let (context, port) =
            id.device()?.ok_or_else(|| Failure::Error("the address leads to no device".into()))?;
        let mtu = Mtu::active(&context.port(port)?).bytes();
        if messages > 0 && options.size > u64::from(mtu) {
            let size = options.size;
            return Err(Failure::Usage(format!(
                "-S {size}: a datagram is at most one MTU ({mtu}): give at most {mtu}"
            )));
        }
        let pd = Pd::new(&context)?;
        let depth = messages.max(1);
        let mut cq = Cq::new(&context, CqOptions::new(2 * depth))?;
        let mut sizes = QpOptions::new(QpKind::Ud).depth(depth, depth);
        sizes.block_loopback = options.no_loopback;
        let mut qp = id.create_qp(&pd, &cq, &cq, &sizes)?;
        qp.make_room(&mut cq)?;
        let buffers = Buffers::new(&pd, depth as usize, options.size as usize + HEADER)?;
        if let Some(mut receives) = qp.receives().filter(|_| messages > 0 && !options.sender) {
            for (number, buffer) in std::iter::from_fn(|| buffers.take()).enumerate() {
                receives.piece(number as u64, buffer);
            }
            receives.ring()?;
        }
        Ok(Self { id, pd, qp, cq, buffers, joined: None, is_attached: false, done: 0 })
    }

    /// Sends all messages.
    fn post(&mut self, messages: u32, bytes: usize) -> Result<(), Failure> {
        let Some((path, qpn, qkey)) = &self.joined else { return Ok(()) };
        let (ah, own) = (Ah::new(&self.pd, path)?, self.qp.qpn());
        let message = vec![0; bytes];
        let mut batch = self.qp.batch();
        for number in 0..messages {
            let buffer = self.buffers.filled(&message);
            let buffer =
                buffer.ok_or_else(|| Failure::Error("more messages than there are buffers".into()))?;
            batch.send(number.into()).imm(own).to(&ah, *qpn, *qkey).piece(buffer).signalled();
        }
        batch.ring()?;
        Ok(())
    }

    fn poll(&mut self) -> Result<(), Failure> {
        let (done, mut failed) = (&mut self.done, None);
        self.cq.poll(8, |wc| {
            if wc.is_ok() {
                *done += 1;
            } else {
                failed = Some(Failure::completion(wc.status(), wc.id()));
            }
        });
        failed.map_or(Ok(()), Err)
    }

    fn leave(&mut self, group: IpAddr) -> Result<(), Failure> {
        self.detach()?;
        Ok(self.id.leave_multicast(group)?)
    }

    fn detach(&mut self) -> Result<(), Failure> {
        if let Some((path, ..)) = self.joined.filter(|_| std::mem::take(&mut self.is_attached)) {
            self.qp.detach_multicast(path.gid, path.lid)?;
        }
        Ok(())
    }
}

impl Drop for Node {
    /// A queue pair that is attached cannot be destroyed.
    fn drop(&mut self) {
        let _error = self.detach();
    }
}
