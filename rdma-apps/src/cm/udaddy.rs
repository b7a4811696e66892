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
use pollux_verbs::Path;

use super::address::{Format, udp, udp_by_number};
use super::manager::{
    DATAGRAM_QKEY, RESOLUTION, device_of, gid_of, listen, next, run as run_program, unexpected,
};
use super::node::{Messages, Node, Peer, Waiting, until_done};
use crate::number::within;
use crate::rdma::Failure;

/// The port: the original's `-p` is something else.
const PORT: u16 = 7174;

/// udaddy: datagrams by address. Start the server, then the client (-s). Interoperates with librdmacm's udaddy.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "The loop is one page: rdma-apps/src/cm/udaddy.rs.")]
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
        let bind = options.format.read_given(options.bind.as_deref(), "-b")?;
        let server = options.format.read_given(options.server.as_deref(), "-s")?;
        let mut run = Run::new(lcore, manager, &options)?;
        match server {
            Some(server) => run.send(server, bind)?,
            None => run.serve(bind)?,
        }
        tell(format_args!("test complete"));
        tell(format_args!("return status 0"));
        Ok(())
    })
}

/// A node, and what it sends to.
struct Datagrams {
    node: Node,
    /// The other one, as soon as it is known: the server's hears it with the first message.
    peer: Option<Peer>,
}

impl Datagrams {
    fn new(id: Id, messages: Messages) -> Result<Self, Failure> {
        Ok(Self { node: Node::datagrams(id, messages, false)?, peer: None })
    }

    /// Takes completions that are there; the first message says who sends.
    fn poll(&mut self) -> Result<(), Failure> {
        let (known, mut from) = (self.peer.is_some(), None);
        self.node.poll(|wc| {
            if !known && from.is_none() {
                let header = wc.take_buf();
                from = Some((header.and_then(|header| Path::back(wc, &header, 0)), wc.imm()));
            }
        })?;
        match from {
            None => {}
            Some((Some(path), Some(qpn))) => {
                let (context, port) = device_of(&self.node.id)?;
                let local = self.node.id.local_address().map(|address| address.ip());
                let gid = local.map(|local| gid_of(&context, port, local)).transpose()?;
                let path = Path { port, gid_index: gid.map_or(0, |(index, _)| index), ..path };
                self.peer = Some(self.node.peer(&path, qpn, DATAGRAM_QKEY)?);
            }
            Some(_) => {
                let line = "a message that does not say where it is from: run udaddy at both ends";
                return Err(Failure::Error(line.into()));
            }
        }
        Ok(())
    }

    /// Posts all messages; nothing to do as long as nobody is known who takes them.
    fn post(&mut self) -> Result<(), Failure> {
        self.peer.as_ref().map_or(Ok(()), |peer| self.node.send_all(Some(peer)))
    }
}

struct Run<'a> {
    lcore: &'a LcoreContext,
    channel: EventChannel,
    options: &'a Options,
    messages: Messages,
    waiting: Waiting,
    /// Those that wait for the answer.
    asking: HashMap<IdNumber, (Datagrams, SocketAddr)>,
    nodes: Vec<Datagrams>,
}

impl<'a> Run<'a> {
    fn new(lcore: &'a LcoreContext, manager: &Manager, options: &'a Options) -> Result<Self, Failure> {
        let messages = Messages::new(options.messages, options.size, true, true);
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
        if self.messages.count > 0 {
            tell(format_args!("initiating data transfers"));
            self.nodes.iter_mut().try_for_each(Datagrams::post)?;
            tell(format_args!("receiving data transfers"));
            self.until_done(|node| node.received)?;
            tell(format_args!("data transfers complete"));
        }
        Ok(())
    }

    fn serve(&mut self, bind: Option<IpAddr>) -> Result<(), Failure> {
        tell(format_args!("udaddy: starting server"));
        let local = SocketAddr::new(bind.unwrap_or(self.options.format.any()), PORT);
        let listener = listen(&self.channel, self.space(), local)?;
        say(format_args!("udaddy: listening on {}", listener.local_address().unwrap_or(local)));
        self.until_connected()?;
        if self.messages.count > 0 {
            tell(format_args!("receiving data transfers"));
            self.until_done(|node| node.received)?;
            tell(format_args!("sending replies"));
            self.nodes.iter_mut().try_for_each(Datagrams::post)?;
            self.until_done(|node| node.sent)?;
            tell(format_args!("data transfers complete"));
        }
        Ok(())
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
        let poll = |run: &mut Self| {
            run.nodes.iter_mut().try_for_each(Datagrams::poll)?;
            Ok(run.nodes.iter().all(|Datagrams { node, .. }| count(node) >= run.messages.count))
        };
        until_done(self.lcore, self, poll, |run| {
            while let Some(event) = run.channel.next()? {
                run.happened(event)?;
            }
            Ok(())
        })
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
                    let datagrams = Datagrams::new(id, self.messages)?;
                    datagrams.node.id.connect_datagrams(&[])?;
                    self.asking.insert(event.id, (datagrams, peer));
                }
            }
            EventKind::DatagramEstablished { path, qpn, qkey, .. } => {
                if let Some((mut datagrams, _)) = self.asking.remove(&event.id) {
                    datagrams.peer = Some(datagrams.node.peer(&path, qpn, qkey)?);
                    self.nodes.push(datagrams);
                }
            }
            EventKind::DatagramRequest { id, .. } if self.nodes.len() as u64 == self.options.connections => {
                tell(format_args!("udaddy: failing connection request"));
                id.reject(&[])?;
            }
            EventKind::DatagramRequest { id, .. } => {
                let datagrams = Datagrams::new(id, self.messages)?;
                datagrams.node.id.accept_datagrams(&datagrams.node.qp, &[])?;
                self.nodes.push(datagrams);
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
