//! librdmacm's `cmtime`: how fast connections are made, step by step, at both ends. Source of options, texts, steps and of how the ends
//! keep in step over TCP: rdma-core 56 `librdmacm/examples/cmtime.c`, `common.c`; from 59 on the original's ends meet otherwise.
//!
//! ```text
//!   client   IDs, addresses, routes, queue pairs, connect ──►  server   accepts as they come
//!            disconnects                                  ──►           answers, destroys      both: the next run
//! ```

mod steps;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use pollux_bringup::program::{say, tell};
use pollux_cm::{
    CmError, ConnectionParameters, Event, EventChannel, EventKind, Id, IdNumber, Manager, PortSpace,
};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_verbs::{Access, Cq, CqOptions, Pd, Qp, QpKind, QpOptions};

use super::address::Format;
use super::manager::{device_of, listen, next, part, run as run_program, unexpected};
use crate::exchange::line::Patience;
use crate::exchange::{Line, Listener};
use crate::number::within;
use crate::rdma::Failure;
use steps::{Step, Times, table};

/// What the ends tell each other when both have come so far: the original's numbers of its steps.
const BEGIN: u8 = 0;
const CONNECTED: u8 = 12;
const DISCONNECTED: u8 = 14;

const WITH_QUEUE_PAIRS: &str = "is not supported: an ID connects only a queue pair that there is";

/// cmtime: connections per second. Start the server, then the client (-s). The ends keep in step over TCP. Interoperates with the cmtime
/// of rdma-core 56 to 58.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "All of it is one page: rdma-apps/src/cm/cmtime.rs.")]
pub struct Options {
    /// Server to connect to; without it, run as the server
    #[arg(short = 's', value_name = "ADDR")]
    server: Option<String>,
    /// Address to bind to
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// Connections
    #[arg(short = 'c', value_name = "N", default_value = "100", value_parser = |text: &str| within(text, 1, 65536))]
    connections: u64,
    /// Port: of the connections, and of TCP
    #[arg(short = 'p', value_name = "PORT", default_value = "7471", value_parser = |text: &str| within(text, 1, 65535))]
    port: u64,
    /// Threads: this program has one
    #[arg(short = 'n', value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 1))]
    threads: u64,
    /// Times that an address or a route is asked for again
    #[arg(short = 'r', value_name = "N", default_value = "2", value_parser = |text: &str| within(text, 0, 1000))]
    retries: u64,
    /// Time that an address or a route may take, in ms
    #[arg(short = 't', value_name = "MS", default_value = "2000", value_parser = |text: &str| within(text, 1, 3_600_000))]
    timeout: u64,
    /// TCP host of the server, where its address is a device model's, which has no TCP [default: -s]
    #[arg(long = "tcp-host", value_name = "HOST", requires = "server")]
    tcp_host: Option<String>,
    /// TCP port of the server [default: -p]
    #[arg(long = "tcp-port", value_name = "PORT", value_parser = |text: &str| within(text, 1, 65535))]
    tcp_port: Option<u64>,
    /// Not supported
    #[arg(short = 'q', hide = true, value_parser = absent)]
    base_qpn: Option<u64>,
    /// Not supported
    #[arg(short = 'm', hide = true, value_parser = absent)]
    mimic: Option<u64>,
    /// Not supported
    #[arg(short = 'S', hide = true)]
    sockets: bool,
}

fn absent(_: &str) -> Result<u64, String> {
    Err(WITH_QUEUE_PAIRS.into())
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), pollux_bringup::BringupError> {
    if options.sockets {
        let line = "-S is not supported: only connections of RDMA are measured; iperf and others measure those of TCP";
        return Err(pollux_bringup::BringupError::Usage(line.into()));
    }
    let example = [("cmtime", " -b 10.0.0.1"), ("cmtime", " -s 10.0.0.1 --tcp-host 127.0.0.1")];
    run_program(line, example, move |lcore, manager| {
        let bind = Format::Name.read_given(options.bind.as_deref(), "-b")?;
        let server = Format::Name.read_given(options.server.as_deref(), "-s")?;
        match server {
            Some(server) => ask(lcore, manager, &options, server, bind),
            None => serve(lcore, manager, &options, bind),
        }
    })
}

fn tcp_port(options: &Options) -> u16 {
    options.tcp_port.unwrap_or(options.port) as u16
}

/// The client: a run of one connection, then two of all.
fn ask(
    lcore: &LcoreContext,
    manager: &Manager,
    options: &Options,
    server: IpAddr,
    bind: Option<IpAddr>,
) -> Result<(), Failure> {
    let typed = options.server.as_deref().unwrap_or_default();
    let line = Line::connect(options.tcp_host.as_deref().unwrap_or(typed), tcp_port(options))?;
    let mut run = Run::new(lcore, manager.channel()?, options, line);
    let peer = SocketAddr::new(server, options.port as u16);
    let count = options.connections as usize;
    tell(format_args!("Client warmup"));
    run.connect(1, peer, bind)?;
    tell(format_args!("Connect ({count}) QPs test"));
    run.connect(count, peer, bind)?;
    run.show();
    // Here the original connects numbers of queue pairs that are not there, and the server does not see the difference.
    tell(format_args!("Connect ({count}) QPs test, again"));
    run.connect(count, peer, bind)?;
    run.show();
    Ok(())
}

/// The server: the same runs.
fn serve(
    lcore: &LcoreContext,
    manager: &Manager,
    options: &Options,
    bind: Option<IpAddr>,
) -> Result<(), Failure> {
    let channel = manager.channel()?;
    let local = SocketAddr::new(bind.unwrap_or(Format::Name.any()), options.port as u16);
    let listener = listen(&channel, PortSpace::Tcp, local)?;
    let waiting = Listener::new(tcp_port(options))?;
    let own = listener.local_address().unwrap_or(local);
    say(format_args!("cmtime: listening on {own}, and on TCP port {}", tcp_port(options)));
    let mut run = Run::new(lcore, channel, options, waiting.accept(&|| lcore.stop_requested())?);
    drop(waiting);
    let count = options.connections as usize;
    tell(format_args!("Server warmup"));
    run.accept(1)?;
    tell(format_args!("Accept ({count}) QPs test"));
    run.accept(count)?;
    run.show();
    tell(format_args!("Accept ({count}) QPs test, again"));
    run.accept(count)?;
    run.show();
    Ok(())
}

/// A connection.
struct Connection {
    id: Id,
    qp: Option<Qp>,
    times: Times,
    retries: u64,
}

struct Run<'a> {
    lcore: &'a LcoreContext,
    channel: EventChannel,
    options: &'a Options,
    line: Line,
    /// Events that came while the other end was waited for.
    heard: RefCell<VecDeque<Event>>,
    connections: Vec<Connection>,
    by_number: HashMap<IdNumber, usize>,
    times: Times,
    /// Times of the connections of a run that is over.
    done: Vec<Times>,
    /// Shared by all queue pairs.
    verbs: Option<(Pd, Cq)>,
}

impl<'a> Run<'a> {
    fn new(lcore: &'a LcoreContext, channel: EventChannel, options: &'a Options, line: Line) -> Self {
        Self {
            lcore,
            channel,
            options,
            // A run may take long; that the other end is gone is seen.
            line: line.with(Patience { due: None, alone: None }),
            heard: RefCell::default(),
            connections: Vec::new(),
            by_number: HashMap::new(),
            times: Times::default(),
            done: Vec::new(),
            verbs: None,
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.options.timeout)
    }

    fn parameters() -> ConnectionParameters {
        ConnectionParameters { retry_count: 0, rnr_retry_count: 0, ..ConnectionParameters::default() }
    }

    /// A point where both ends have arrived. The manager goes on meanwhile.
    fn step(&mut self, point: u8) -> Result<(), Failure> {
        let (lcore, channel, heard) = (self.lcore, &self.channel, &self.heard);
        let stop = || {
            while let Ok(Some(event)) = channel.next() {
                heard.borrow_mut().push_back(event);
            }
            lcore.stop_requested()
        };
        let said = self.line.swap(&[point], "keeping in step", &stop)?;
        if said == [point] {
            return Ok(());
        }
        Err(self.line.strange(&said, "the same step of cmtime (of rdma-core 56 to 58, or ours)").into())
    }

    fn next(&mut self) -> Result<Event, Failure> {
        let heard = self.heard.borrow_mut().pop_front();
        heard.map_or_else(|| next(self.lcore, &self.channel), Ok)
    }

    fn show(&self) {
        for line in table(&self.times, &self.done) {
            tell(format_args!("{line}"));
        }
    }

    fn reset(&mut self) -> Result<(), Failure> {
        self.times = Times::default();
        self.step(BEGIN)
    }

    fn put(&mut self, id: Id) {
        self.by_number.insert(id.number(), self.connections.len());
        self.connections.push(Connection {
            id,
            qp: None,
            times: Times::default(),
            retries: self.options.retries,
        });
    }

    /// A queue pair of an ID that leads to a device, in INIT.
    fn make_qp(&mut self, place: usize) -> Result<(), Failure> {
        let connection = &mut self.connections[place];
        let (context, port) = device_of(&connection.id)?;
        let (pd, cq) = match &mut self.verbs {
            Some(verbs) => verbs,
            none => {
                tell(format_args!("\tAllocating verbs resources"));
                none.insert((Pd::new(&context)?, Cq::new(&context, CqOptions::new(1))?))
            }
        };
        connection.times.begin(Step::CreateQp);
        let mut qp = Qp::new(pd, cq, cq, &QpOptions::new(QpKind::Rc).depth(1, 1))?;
        connection.times.end(Step::CreateQp);
        connection.times.begin(Step::InitQp);
        // Rights come with the connection.
        qp.init(port, Access::empty())?;
        connection.times.end(Step::InitQp);
        connection.qp = Some(qp);
        Ok(())
    }

    /// The client's part of a run.
    fn connect(&mut self, count: usize, peer: SocketAddr, bind: Option<IpAddr>) -> Result<(), Failure> {
        self.reset()?;
        self.times.begin(Step::FullConnect);
        tell(format_args!("\tCreating IDs"));
        self.times.begin(Step::CreateId);
        for place in 0..count {
            let mut times = Times::default();
            times.begin(Step::FullConnect);
            times.begin(Step::CreateId);
            let id = self.channel.create_id(PortSpace::Tcp)?;
            times.end(Step::CreateId);
            self.put(id);
            self.connections[place].times = times;
        }
        self.times.end(Step::CreateId);
        if let Some(bind) = bind {
            tell(format_args!("\tBinding addresses"));
            self.each(Step::Bind, |connection| Ok(connection.id.bind(SocketAddr::new(bind, 0))?))?;
        }
        let (source, timeout) = (bind.map(|bind| SocketAddr::new(bind, 0)), self.timeout());
        tell(format_args!("\tResolving addresses"));
        self.all(Step::ResolveAddress, peer, |connection| {
            Ok(connection.id.resolve_address(source, peer, timeout)?)
        })?;
        tell(format_args!("\tResolving routes"));
        self.all(Step::ResolveRoute, peer, |connection| Ok(connection.id.resolve_route(timeout)?))?;
        tell(format_args!("\tCreating QPs"));
        self.times.begin(Step::CreateQp);
        for place in 0..count {
            self.make_qp(place)?;
        }
        self.times.end(Step::CreateQp);
        tell(format_args!("\tConnecting"));
        self.all(Step::Connect, peer, Connection::ask)?;
        self.times.end(Step::FullConnect);
        self.step(CONNECTED)?;
        tell(format_args!("\tDisconnecting"));
        self.each(Step::Disconnect, Connection::disconnect)?;
        self.step(DISCONNECTED)?;
        self.destroy()
    }

    /// One step of all connections, of which each is done with it at once.
    fn each(
        &mut self,
        step: Step,
        work: impl Fn(&mut Connection) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.times.begin(step);
        for connection in &mut self.connections {
            connection.times.begin(step);
            work(connection)?;
            connection.times.end(step);
        }
        self.times.end(step);
        Ok(())
    }

    /// One step of all connections: `begin` begins it, an event ends it.
    fn all(
        &mut self,
        step: Step,
        peer: SocketAddr,
        begin: impl Fn(&mut Connection) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.times.begin(step);
        for connection in &mut self.connections {
            connection.times.begin(step);
            begin(connection)?;
        }
        let mut left = self.connections.len();
        while left > 0 {
            let event = self.next()?;
            let Some(&place) = self.by_number.get(&event.id) else { continue };
            let connection = &mut self.connections[place];
            match (step, event.kind) {
                (Step::ResolveAddress, EventKind::AddressResolved)
                | (Step::ResolveRoute, EventKind::RouteResolved) => {}
                (Step::Connect, EventKind::ConnectResponse(_)) => connection.establish()?,
                (Step::ResolveAddress, EventKind::AddressError(_))
                | (Step::ResolveRoute, EventKind::RouteError(_))
                    if connection.retries > 0 =>
                {
                    connection.retries -= 1;
                    begin(connection)?;
                    continue;
                }
                (_, EventKind::TimewaitExit) => continue,
                (_, kind) => return Err(unexpected(&kind, peer)),
            }
            connection.times.end(step);
            left -= 1;
        }
        self.times.end(step);
        Ok(())
    }

    /// The server's part of a run.
    fn accept(&mut self, count: usize) -> Result<(), Failure> {
        self.reset()?;
        self.connections.reserve(count);
        let mut established = 0;
        while established < count {
            let event = self.next()?;
            let place = self.by_number.get(&event.id).copied();
            match (event.kind, place) {
                (EventKind::ConnectRequest { id, .. }, _) => {
                    if self.connections.is_empty() {
                        tell(format_args!("\tAccepting"));
                        self.times.begin(Step::Connect);
                    }
                    if self.connections.len() == count {
                        id.reject(&[])?;
                        continue;
                    }
                    let place = self.connections.len();
                    self.put(id);
                    self.connections[place].times.begin(Step::Connect);
                    self.make_qp(place)?;
                    self.connections[place].accept()?;
                }
                (EventKind::Established(_), Some(place)) => {
                    self.connections[place].times.end(Step::Connect);
                    established += 1;
                }
                (EventKind::Disconnected, Some(_)) => {
                    return Err(Failure::Error(format!(
                        "the client ended after {established} of {count} connections; give both ends the same -c"
                    )));
                }
                // Of the run before.
                (EventKind::TimewaitExit | EventKind::Disconnected, None) => {}
                (kind, place) => return Err(self.failed(&kind, place)),
            }
        }
        self.times.end(Step::Connect);
        self.step(CONNECTED)?;
        let mut ended = 0;
        while ended < count {
            let event = self.next()?;
            let Some(place) = self.by_number.get(&event.id).copied() else { continue };
            match event.kind {
                EventKind::Disconnected => {
                    if ended == 0 {
                        tell(format_args!("\tDisconnecting"));
                        self.times.begin(Step::Disconnect);
                    }
                    let connection = &mut self.connections[place];
                    connection.times.begin(Step::Disconnect);
                    connection.disconnect()?;
                    connection.times.end(Step::Disconnect);
                    ended += 1;
                }
                EventKind::TimewaitExit => {}
                kind => return Err(self.failed(&kind, Some(place))),
            }
        }
        self.times.end(Step::Disconnect);
        self.step(DISCONNECTED)?;
        self.destroy()
    }

    fn failed(&self, kind: &EventKind, place: Option<usize>) -> Failure {
        match place.and_then(|place| self.connections[place].id.peer_address()) {
            Some(peer) => unexpected(kind, peer),
            None => Failure::Error(kind.to_string()),
        }
    }

    /// Queue pairs go, then IDs; times stay for the table.
    fn destroy(&mut self) -> Result<(), Failure> {
        tell(format_args!("\tDestroying QPs"));
        self.each(Step::DestroyQp, |connection| {
            connection.qp = None;
            Ok(())
        })?;
        tell(format_args!("\tDestroying IDs"));
        self.times.begin(Step::DestroyId);
        self.done.clear();
        for Connection { id, mut times, .. } in self.connections.drain(..) {
            times.begin(Step::DestroyId);
            drop(id);
            times.end(Step::DestroyId);
            self.done.push(times);
        }
        self.times.end(Step::DestroyId);
        self.by_number.clear();
        Ok(())
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // What this end ended early the other one hears of.
        if !self.connections.is_empty() {
            self.connections.clear();
            part(&self.channel);
        }
    }
}

impl Connection {
    fn with_qp(&mut self, work: impl FnOnce(&Id, &mut Qp) -> Result<(), CmError>) -> Result<(), Failure> {
        let missing = || Failure::Error("the connection has no queue pair".into());
        Ok(work(&self.id, self.qp.as_mut().ok_or_else(missing)?)?)
    }

    fn ask(&mut self) -> Result<(), Failure> {
        self.with_qp(|id, qp| id.connect(qp, &Run::parameters()))
    }

    /// To RTS, and the peer is told.
    fn establish(&mut self) -> Result<(), Failure> {
        self.times.begin(Step::Establish);
        self.with_qp(|id, qp| id.establish(qp))?;
        self.times.end(Step::Establish);
        self.times.end(Step::FullConnect);
        Ok(())
    }

    fn accept(&mut self) -> Result<(), Failure> {
        self.with_qp(|id, qp| id.accept(qp, &Run::parameters()))
    }

    fn disconnect(&mut self) -> Result<(), Failure> {
        self.with_qp(|id, qp| id.disconnect(qp))
    }
}
