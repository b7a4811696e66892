//! librdmacm's `udaddy`: datagrams between queue pairs that are asked for by address. Source of options, texts and order: rdma-core
//! `librdmacm/examples/udaddy.c`.
//!
//! ```text
//!   client   asks which queue pair (SIDR), sends to it ──►  server   answers whoever each queue pair heard of, and at which number
//! ```

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use pollux_bringup::program::{say, tell};
use pollux_cm::{Event, EventChannel, EventKind, Id, IdNumber, IdOptions, Manager, PortSpace};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_verbs::{Ah, Buffers, Context, Cq, CqOptions, Mtu, Path, Pd, Qp, QpKind, QpOptions};

use super::address::{Format, udp, udp_by_number};
use super::manager::{DATAGRAM_QKEY, RESOLUTION, gid_of, next, run as run_program, unexpected};
use crate::number::within;
use crate::rdma::Failure;

/// Bytes before a datagram.
const HEADER: usize = 40;
/// The port: the original's `-p` is something else.
const PORT: u16 = 7174;

/// udaddy: datagrams by address. Start the server, then the client (-s). Interoperates with librdmacm's udaddy.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "The loop is one page: apps/src/cm/udaddy.rs.")]
pub struct Options {
    /// Server to send to; without it, run as the server
    #[arg(short = 's', value_name = "ADDR")]
    server: Option<String>,
    /// Address to bind to
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// Format of addresses
    #[arg(short = 'f', value_enum, default_value = "name", ignore_case = true)]
    format: Format,
    /// Port space: udp
    #[arg(short = 'P', value_name = "SPACE", default_value = "udp", value_parser = udp)]
    space: PortSpace,
    /// The same by its number, as older programs say it: 0x0111
    #[arg(short = 'p', value_name = "NUMBER", value_parser = by_number)]
    space_number: Option<PortSpace>,
    /// Queue pairs
    #[arg(short = 'c', value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 4096))]
    connections: u64,
    /// Messages in each direction of a queue pair
    #[arg(short = 'C', value_name = "N", default_value = "10", value_parser = |text: &str| within(text, 0, 4096))]
    messages: u64,
    /// Message size in bytes, at most the MTU
    #[arg(short = 'S', value_name = "BYTES", default_value = "100", value_parser = |text: &str| within(text, 0, 4096))]
    size: u64,
    /// Type of service
    #[arg(short = 't', value_name = "TOS", default_value = "0", value_parser = |text: &str| within(text, 0, 255))]
    tos: u64,
}

/// `-p`: of the original it is no port.
fn by_number(text: &str) -> Result<PortSpace, String> {
    udp_by_number(text).map_err(|line| format!("{line}; the port is always {PORT}"))
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), pollux_bringup::BringupError> {
    run_program(line, [("udaddy", " -b 10.0.0.1"), ("udaddy", " -s 10.0.0.1")], move |lcore, manager| {
        let bind = options.bind.as_deref().map(|host| options.format.read(host, "-b")).transpose()?;
        let server = options.server.as_deref().map(|host| options.format.read(host, "-s")).transpose()?;
        let messages = if options.size == 0 { 0 } else { options.messages as u32 };
        let mut run = Run::new(lcore, manager, &options, messages)?;
        match server {
            Some(server) => run.send(server, bind)?,
            None => run.serve(bind)?,
        }
        tell(format_args!("test complete"));
        tell(format_args!("return status 0"));
        Ok(())
    })
}

/// A queue pair, and what it sends to.
struct Node {
    id: Id,
    context: Context,
    port: u8,
    pd: Pd,
    qp: Qp,
    cq: Cq,
    buffers: Buffers,
    /// The other one, as soon as it is known: the server's hears it with the first message.
    peer: Option<Peer>,
    sent: u32,
    received: u32,
}

/// Where datagrams go.
struct Peer {
    ah: Ah,
    qpn: u32,
    qkey: u32,
}

impl Node {
    /// A queue pair for an ID, with all receives posted.
    fn new(id: Id, options: &Options, messages: u32) -> Result<Self, Failure> {
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
        let mut qp = id.create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Ud).depth(depth, depth))?;
        qp.make_room(&mut cq)?;
        let buffers = Buffers::new(&pd, 2 * depth as usize, options.size as usize + HEADER)?;
        if let Some(mut receives) = qp.receives().filter(|_| messages > 0) {
            for number in 0..messages {
                if let Some(buffer) = buffers.take() {
                    receives.piece(number.into(), buffer);
                }
            }
            receives.ring()?;
        }
        Ok(Self { id, context, port, pd, qp, cq, buffers, peer: None, sent: 0, received: 0 })
    }

    /// Takes completions that are there; the first message says who sends.
    fn poll(&mut self) -> Result<(), Failure> {
        let (mut from, mut failed) = (None, None);
        let gid_index = if self.peer.is_some() {
            0
        } else {
            let local = self.id.local_address().map(|address| address.ip());
            local.map_or(Ok(0), |local| gid_of(&self.context, self.port, local).map(|(index, _)| index))?
        };
        let (sent, received, known) = (&mut self.sent, &mut self.received, self.peer.is_some());
        self.cq.poll(8, |wc| {
            if !wc.is_ok() {
                failed = Some(Failure::completion(wc.status(), wc.id()));
            } else if wc.is_receive() {
                *received += 1;
                if !known && from.is_none() {
                    let header = wc.take_buf();
                    from = Some((header.and_then(|header| Path::back(wc, &header, gid_index)), wc.imm()));
                }
            } else {
                *sent += 1;
            }
        });
        if let Some(failure) = failed {
            return Err(failure);
        }
        match from {
            None => {}
            Some((Some(path), Some(qpn))) => {
                let ah = Ah::new(&self.pd, &Path { port: self.port, ..path })?;
                self.peer = Some(Peer { ah, qpn, qkey: DATAGRAM_QKEY });
            }
            Some(_) => {
                let line = "a message that does not say where it is from: run udaddy at both ends";
                return Err(Failure::Error(line.into()));
            }
        }
        Ok(())
    }

    /// Posts all messages; nothing to do as long as nobody is known who takes them.
    fn post(&mut self, bytes: &[u8], messages: u32) -> Result<(), Failure> {
        let Some(peer) = &self.peer else { return Ok(()) };
        let own = self.qp.qpn();
        let mut batch = self.qp.batch();
        for number in 0..messages {
            let buffer = self.buffers.filled(bytes);
            let buffer =
                buffer.ok_or_else(|| Failure::Error("more messages than there are buffers".into()))?;
            batch.send(number.into()).imm(own).to(&peer.ah, peer.qpn, peer.qkey).piece(buffer).signalled();
        }
        batch.ring()?;
        Ok(())
    }
}

struct Run<'a> {
    lcore: &'a LcoreContext,
    channel: EventChannel,
    options: &'a Options,
    messages: u32,
    /// IDs on their way to a device, and those that wait for the answer.
    waiting: HashMap<IdNumber, (Id, SocketAddr)>,
    asking: HashMap<IdNumber, (Node, SocketAddr)>,
    nodes: Vec<Node>,
}

impl<'a> Run<'a> {
    fn new(
        lcore: &'a LcoreContext,
        manager: &Manager,
        options: &'a Options,
        messages: u32,
    ) -> Result<Self, Failure> {
        let (waiting, asking) = (HashMap::new(), HashMap::new());
        let channel = manager.channel()?;
        Ok(Self { lcore, channel, options, messages, waiting, asking, nodes: Vec::new() })
    }

    fn space(&self) -> PortSpace {
        self.options.space_number.unwrap_or(self.options.space)
    }

    fn id_options(&self) -> IdOptions {
        IdOptions { type_of_service: self.options.tos as u8, ..IdOptions::default() }
    }

    fn send(&mut self, server: IpAddr, bind: Option<IpAddr>) -> Result<(), Failure> {
        tell(format_args!("udaddy: starting client"));
        tell(format_args!("udaddy: connecting"));
        let peer = SocketAddr::new(server, PORT);
        for _ in 0..self.options.connections {
            let id = self.channel.create_id(self.space())?;
            id.set_options(self.id_options())?;
            id.resolve_address(bind.map(|bind| SocketAddr::new(bind, 0)), peer, RESOLUTION)?;
            self.waiting.insert(id.number(), (id, peer));
        }
        self.until_connected()?;
        if self.messages > 0 {
            tell(format_args!("initiating data transfers"));
            self.post_all()?;
            tell(format_args!("receiving data transfers"));
            self.until_done(|node| node.received)?;
            tell(format_args!("data transfers complete"));
        }
        Ok(())
    }

    fn serve(&mut self, bind: Option<IpAddr>) -> Result<(), Failure> {
        tell(format_args!("udaddy: starting server"));
        let listener = self.channel.create_id(self.space())?;
        let local = SocketAddr::new(bind.unwrap_or(self.options.format.any()), PORT);
        listener.bind(local)?;
        listener.listen(0)?;
        say(format_args!("udaddy: listening on {}", listener.local_address().unwrap_or(local)));
        self.until_connected()?;
        if self.messages > 0 {
            tell(format_args!("receiving data transfers"));
            self.until_done(|node| node.received)?;
            tell(format_args!("sending replies"));
            self.post_all()?;
            self.until_done(|node| node.sent)?;
            tell(format_args!("data transfers complete"));
        }
        Ok(())
    }

    fn post_all(&mut self) -> Result<(), Failure> {
        let bytes = vec![0; self.options.size as usize];
        self.nodes.iter_mut().try_for_each(|node| node.post(&bytes, self.messages))
    }

    fn until_connected(&mut self) -> Result<(), Failure> {
        while (self.nodes.len() as u64) < self.options.connections {
            let event = next(self.lcore, &self.channel)?;
            self.happened(event)?;
        }
        Ok(())
    }

    /// Polls until all messages of each queue pair are counted.
    fn until_done(&mut self, count: impl Fn(&Node) -> u32) -> Result<(), Failure> {
        let mut rounds = 0u32;
        loop {
            self.nodes.iter_mut().try_for_each(Node::poll)?;
            if self.nodes.iter().all(|node| count(node) >= self.messages) {
                return Ok(());
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(16) {
                // Whoever did not hear the answer asks again.
                while let Some(event) = self.channel.next()? {
                    self.happened(event)?;
                }
                if self.lcore.stop_requested() {
                    return Err(Failure::Stopped);
                }
                std::thread::yield_now();
            }
        }
    }

    fn happened(&mut self, event: Event) -> Result<(), Failure> {
        match event.kind {
            EventKind::AddressResolved => {
                if let Some((id, _)) = self.waiting.get(&event.id) {
                    id.resolve_route(RESOLUTION)?;
                }
            }
            EventKind::RouteResolved => {
                if let Some((id, peer)) = self.waiting.remove(&event.id) {
                    let node = Node::new(id, self.options, self.messages)?;
                    node.id.connect_datagrams(&[])?;
                    self.asking.insert(event.id, (node, peer));
                }
            }
            EventKind::DatagramEstablished { path, qpn, qkey, .. } => {
                if let Some((mut node, _)) = self.asking.remove(&event.id) {
                    node.peer = Some(Peer { ah: Ah::new(&node.pd, &path)?, qpn, qkey });
                    self.nodes.push(node);
                }
            }
            EventKind::DatagramRequest { id, .. } if self.nodes.len() as u64 == self.options.connections => {
                tell(format_args!("udaddy: failing connection request"));
                id.reject(&[])?;
            }
            EventKind::DatagramRequest { id, .. } => {
                let node = Node::new(id, self.options, self.messages)?;
                node.id.accept_datagrams(&node.qp, &[])?;
                self.nodes.push(node);
            }
            EventKind::TimewaitExit => {}
            kind => {
                let peer = self.asking.get(&event.id).map(|(_, peer)| peer);
                let peer = peer.or(self.waiting.get(&event.id).map(|(_, peer)| peer));
                // What is told of a datagram's service is no reason of a connection's: Linux `include/rdma/ib_cm.h`,
                // `enum ib_cm_sidr_status`.
                return Err(match (kind, peer) {
                    (EventKind::Rejected { .. } | EventKind::Unreachable(_), Some(peer)) => {
                        Failure::Error(format!(
                            "{peer}: no queue pair takes datagrams there; start the server first, and give both ends the same -c"
                        ))
                    }
                    (kind, Some(peer)) => unexpected(&kind, *peer),
                    (kind, None) => Failure::Error(kind.to_string()),
                });
            }
        }
        Ok(())
    }
}
