//! librdmacm's `ucmatose`: many connections at once, messages in both directions of each, and their end. Source of options, texts and order:
//! rdma-core `librdmacm/examples/cmatose.c`.
//!
//! ```text
//!   client   all connect ──►  server   sends on all, the client answers, the server disconnects all
//! ```

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pollux_bringup::program::{say, tell};
use pollux_cm::{
    ConnectionParameters, Event, EventChannel, EventKind, Id, IdNumber, IdOptions, Manager, PortSpace,
};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;

use super::address::{Format, tcp};
use super::manager::{RESOLUTION, listen, next, part, run as run_program, unexpected};
use super::node::{Messages, Node, Waiting, until_done};
use crate::number::within;
use crate::rdma::Failure;

/// ucmatose: many connections by address at once, with messages in both directions. Start the server, then the client (-s).
/// Interoperates with librdmacm's ucmatose.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "The loop is one page: rdma-apps/src/cm/ucmatose.rs.")]
pub struct Options {
    /// Server to connect to; without it, run as the server
    #[arg(short = 's', value_name = "ADDR")]
    server: Option<String>,
    /// Address to bind to
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// Format of addresses
    #[arg(short = 'f', value_enum, default_value = "name", ignore_case = true)]
    format: Format,
    /// Port space: tcp
    #[arg(short = 'P', value_name = "SPACE", default_value = "tcp", value_parser = tcp)]
    space: PortSpace,
    /// Connections
    #[arg(short = 'c', value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 4096))]
    connections: u64,
    /// Messages in each direction of a connection
    #[arg(short = 'C', value_name = "N", default_value = "10", value_parser = |text: &str| within(text, 0, 4096))]
    messages: u64,
    /// Message size in bytes
    #[arg(short = 'S', value_name = "BYTES", default_value = "100", value_parser = |text: &str| within(text, 0, 1 << 20))]
    size: u64,
    /// Type of service
    #[arg(short = 't', value_name = "TOS", default_value = "0", value_parser = |text: &str| within(text, 0, 255))]
    tos: u64,
    /// Port
    #[arg(short = 'p', value_name = "PORT", default_value = "7471", value_parser = |text: &str| within(text, 1, 65535))]
    port: u64,
    /// Move the IDs to another event channel before the end
    #[arg(short = 'm')]
    migrate: bool,
    /// ACK timeout, 4.096 us x 2^N
    #[arg(short = 'a', value_name = "N", value_parser = |text: &str| within(text, 0, 31))]
    ack_timeout: Option<u64>,
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), pollux_bringup::BringupError> {
    run_program(line, [("ucmatose", " -b 10.0.0.1"), ("ucmatose", " -s 10.0.0.1")], move |lcore, manager| {
        let bind = options.format.read_given(options.bind.as_deref(), "-b")?;
        let server = options.format.read_given(options.server.as_deref(), "-s")?;
        let messages = Messages::new(options.messages, options.size, true, true);
        let channel = manager.channel()?;
        let (waiting, connections, by_number) = (HashMap::new(), Vec::new(), HashMap::new());
        let mut run = Run {
            lcore,
            manager,
            channel,
            options: &options,
            messages,
            waiting,
            connections,
            by_number,
            connected: 0,
            ended: 0,
        };
        match server {
            Some(server) => run.connect(server, bind)?,
            None => run.serve(bind)?,
        }
        tell(format_args!("test complete"));
        tell(format_args!("return status 0"));
        Ok(())
    })
}

/// A connection.
struct Connection {
    node: Node,
    ended: bool,
}

struct Run<'a> {
    lcore: &'a LcoreContext,
    manager: &'a Manager,
    channel: EventChannel,
    options: &'a Options,
    messages: Messages,
    waiting: Waiting,
    connections: Vec<Connection>,
    by_number: HashMap<IdNumber, usize>,
    connected: u64,
    ended: u64,
}

impl Run<'_> {
    fn parameters() -> ConnectionParameters {
        // What the original says; RNR retries too.
        ConnectionParameters { retry_count: 5, ..ConnectionParameters::default() }
    }

    fn id_options(&self) -> IdOptions {
        IdOptions {
            type_of_service: self.options.tos as u8,
            ack_timeout: self.options.ack_timeout.map(|timeout| timeout as u8),
            ..IdOptions::default()
        }
    }

    fn connect(&mut self, server: IpAddr, bind: Option<IpAddr>) -> Result<(), Failure> {
        tell(format_args!("cmatose: starting client"));
        tell(format_args!("cmatose: connecting"));
        let peer = SocketAddr::new(server, self.options.port as u16);
        for _ in 0..self.options.connections {
            let id = self.channel.create_id(self.options.space)?;
            id.set_options(self.id_options())?;
            id.resolve_address(bind.map(|bind| SocketAddr::new(bind, 0)), peer, RESOLUTION)?;
            self.waiting.insert(id.number(), (id, peer));
        }
        self.until(|run| run.connected == run.options.connections)?;
        if self.messages.count > 0 {
            tell(format_args!("receiving data transfers"));
            self.until_done(|node| node.received)?;
            tell(format_args!("sending replies"));
            // The server ends the connections when it has them all, whether this end heard so or not.
            self.send_all()?;
            tell(format_args!("data transfers complete"));
        }
        self.migrate(None)?;
        self.until(|run| run.ended == run.options.connections)
    }

    fn serve(&mut self, bind: Option<IpAddr>) -> Result<(), Failure> {
        tell(format_args!("cmatose: starting server"));
        let local = SocketAddr::new(bind.unwrap_or(self.options.format.any()), self.options.port as u16);
        let listener = listen(&self.channel, self.options.space, local)?;
        say(format_args!("ucmatose: listening on {}", listener.local_address().unwrap_or(local)));
        self.until(|run| run.connected == run.options.connections)?;
        if self.messages.count > 0 {
            tell(format_args!("initiating data transfers"));
            self.send_all()?;
            tell(format_args!("completing sends"));
            self.until_done(|node| node.sent)?;
            tell(format_args!("receiving data transfers"));
            self.until_done(|node| node.received)?;
            tell(format_args!("data transfers complete"));
        }
        self.migrate(Some(&listener))?;
        tell(format_args!("cmatose: disconnecting"));
        for Connection { node, .. } in self.connections.iter_mut().filter(|connection| !connection.ended) {
            node.id.disconnect(&mut node.qp)?;
        }
        self.until(|run| run.ended == run.options.connections)?;
        tell(format_args!("disconnected"));
        Ok(())
    }

    /// All IDs go to another channel, which takes the place of this one.
    fn migrate(&mut self, listener: Option<&Id>) -> Result<(), Failure> {
        if !self.options.migrate {
            return Ok(());
        }
        tell(format_args!("migrating to new event channel"));
        let channel = self.manager.channel()?;
        for id in listener.into_iter().chain(self.connections.iter().map(|connection| &connection.node.id)) {
            id.migrate(&channel)?;
        }
        self.channel = channel;
        Ok(())
    }

    /// Handles events until something is so.
    fn until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        while !done(self) {
            let event = next(self.lcore, &self.channel)?;
            self.happened(event)?;
        }
        Ok(())
    }

    /// Polls until all messages of each connection are counted.
    fn until_done(&mut self, count: impl Fn(&Node) -> u32) -> Result<(), Failure> {
        let poll = |run: &mut Self| {
            run.connections.iter_mut().try_for_each(|connection| connection.node.poll(|_| {}))?;
            Ok(run.connections.iter().all(|Connection { node, .. }| count(node) >= run.messages.count))
        };
        until_done(self.lcore, self, poll, |run| {
            while let Some(event) = run.channel.next()? {
                run.happened(event)?;
            }
            Ok(())
        })
    }

    fn send_all(&mut self) -> Result<(), Failure> {
        self.connections.iter_mut().try_for_each(|connection| connection.node.send_all(None))
    }

    fn put(&mut self, node: Node) {
        self.by_number.insert(node.id.number(), self.connections.len());
        self.connections.push(Connection { node, ended: false });
    }

    fn happened(&mut self, event: Event) -> Result<(), Failure> {
        let place = self.by_number.get(&event.id).copied();
        match (event.kind, place) {
            (EventKind::AddressResolved, _) => {
                if let Some((id, _)) = self.waiting.get(&event.id) {
                    id.resolve_route(RESOLUTION)?;
                }
            }
            (EventKind::RouteResolved, _) => {
                if let Some((id, _)) = self.waiting.remove(&event.id) {
                    let node = Node::connected(id, self.messages)?;
                    node.id.connect(&node.qp, &Self::parameters())?;
                    self.put(node);
                }
            }
            (EventKind::ConnectRequest { id, .. }, _)
                if self.connections.len() as u64 == self.options.connections =>
            {
                tell(format_args!("cmatose: failing connection request"));
                id.reject(&[])?;
            }
            (EventKind::ConnectRequest { id, parameters }, _) => {
                id.set_options(self.id_options())?;
                let mut node = Node::connected(id, self.messages)?;
                node.id
                    .accept(&mut node.qp, &ConnectionParameters { private_data: Vec::new(), ..parameters })?;
                self.put(node);
            }
            (EventKind::ConnectResponse(_), Some(place)) => {
                let node = &mut self.connections[place].node;
                node.id.establish(&mut node.qp)?;
                self.connected += 1;
            }
            (EventKind::Established(_), Some(_)) => self.connected += 1,
            (EventKind::Disconnected, Some(place)) => {
                let Connection { node, ended } = &mut self.connections[place];
                if !*ended {
                    node.id.disconnect(&mut node.qp)?;
                    *ended = true;
                    self.ended += 1;
                }
            }
            (EventKind::TimewaitExit, _) | (EventKind::Disconnected, None) => {}
            (kind, place) => {
                let known = place.and_then(|place| self.connections[place].node.id.peer_address());
                let peer = known.or(self.waiting.get(&event.id).map(|(_, peer)| *peer));
                return Err(unexpected(
                    &kind,
                    peer.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // What this end ended early the other one hears of.
        if self.ended < self.connections.len() as u64 {
            self.connections.clear();
            part(&self.channel);
        }
    }
}
