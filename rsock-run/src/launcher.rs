//! The loop: one thread copies bytes between sockets and streams, accepts and connects, and answers the program's calls.
//!
//! ```text
//!   control socket ─► client ── Request ─► launcher ── listening, connecting ─► rsocket
//!   inlets: loopback, where the program's socket comes in place of its peer ──► pair ◄── stream
//! ```

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use pollux_preload::running::Program;
use pollux_rsock_run::control::{Answer, Request, canonical};
use pollux_rsock_run::loopback::Network;
use pollux_rsocket::{RsOptions, RsStream};
use rustix::io::Errno;

use crate::client::{CLIENTS_MAX, Client, Said};
use crate::connecting::{Connecting, Outcome};
use crate::device::Devices;
use crate::events::{Events, Token};
use crate::kernel;
use crate::listening::{Accepted, Listeners, Socket};
use crate::name::{Ends, Names};
use crate::notice::{Notices, Reason};
use crate::pair::{Closing, Pair, Turn};

/// How long it polls after something moved, where there are processors for the program, the devices and this loop; on two, twice as many
/// requests a second pass without it.
const SPIN: Duration = Duration::from_micros(100);
const PROCESSORS: usize = 4;
/// How long it sleeps then at most: longer each time, until something moves. The program's sockets wake it, streams do not.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(2)];
/// How often it looks for connections by RDMA, for the program's end and signals, and for sockets that listen no more.
const ACCEPT: Duration = Duration::from_micros(100);
const PROGRAM: Duration = Duration::from_millis(2);
const UNUSED: Duration = Duration::from_secs(1);
/// How long a socket that was told where to connect may take, and how long one waits that nobody has told of.
const INLET: Duration = Duration::from_secs(5);
/// How long a call may rest that waits for nothing here: longer than the library waits for an answer.
const CALL: Duration = Duration::from_secs(20);
/// Sockets that may wait so.
const WAITING_MAX: usize = 1024;
/// How long connections are kept after the program's end in which nothing moves, and nothing is to.
const AFTER: Duration = Duration::from_secs(10);
/// Connections by RDMA that are taken before others have their turn, and those to one socket that may wait for room there.
const TURN: usize = 64;
const UNACCEPTED_MAX: usize = 128;
/// Bytes of a stream's buffers. A peer is offered halves.
const STREAM: usize = 1 << 18;
/// After how long without a request a peer is probed, so that one that is gone is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What a client was told to connect to.
#[derive(Debug)]
enum Offer {
    /// An inlet, and the stream that is behind it.
    Stream(RsStream, SocketAddr, SocketAddr),
    /// A socket of a program under this launcher, in place of an address of its own devices'.
    Own { socket: SocketAddr, meant: SocketAddr },
}

#[derive(Debug)]
struct Caller {
    client: Client,
    offer: Option<Offer>,
    /// When it was last heard of.
    since: Instant,
}

/// A call that asks for the names of a connection, whose other end may be about to say that it made it.
#[derive(Debug)]
struct Asked {
    client: Token,
    ends: Ends,
    since: Instant,
}

/// A connection and its addresses of the kernel's, as the program's socket has them.
#[derive(Debug)]
struct Connection {
    pair: Pair,
    ends: Ends,
    /// Nothing was heard of the socket yet: it waits for room at the program's.
    is_new: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Launcher {
    devices: Devices,
    events: Events,
    options: RsOptions,
    spin: Duration,
    control: OwnedFd,
    /// Its own addresses of loopback, and the number of the last.
    network: Network,
    turn: u8,
    inlets: Vec<(TcpListener, SocketAddr)>,
    callers: HashMap<Token, Caller>,
    /// Some wait at the control socket, or at the inlets, for room or for descriptors: there is no more news of them.
    callers_wait: bool,
    strangers_wait: bool,
    asked: Vec<Asked>,
    connecting: Vec<Connecting>,
    listeners: Listeners,
    connections: HashMap<Token, Connection>,
    /// Sockets that came to an inlet before their program said so; and streams whose socket is expected.
    strangers: HashMap<Ends, (TcpStream, Instant)>,
    expected: HashMap<Ends, (RsStream, Instant)>,
    names: Names,
    notices: Notices,
    closing: Closing,
}

impl Launcher {
    /// `control` is a socket that listens; the process may use so many processors.
    ///
    /// # Errors
    /// The kernel has no loopback of IPv4, or no descriptors.
    pub(crate) fn new(
        devices: Devices,
        control: OwnedFd,
        network: Network,
        processors: usize,
    ) -> io::Result<Self> {
        let mut events = Events::new()?;
        events.add(&control)?;
        let mut inlets = Vec::new();
        // Where the kernel has no IPv6, there are no such addresses to connect to.
        let v6 = kernel::inlet(Ipv6Addr::LOCALHOST.into()).ok();
        for listener in [Some(kernel::inlet(network.address(0).into())?), v6].into_iter().flatten() {
            events.add(&listener)?;
            let address = listener.local_addr()?;
            inlets.push((listener, address));
        }
        let options = RsOptions::default().send_buffer(STREAM).receive_buffer(STREAM);
        let options = options.nonblocking(true).keepalive(Some(KEEPALIVE));
        Ok(Self {
            devices,
            events,
            options,
            spin: if processors < PROCESSORS { Duration::ZERO } else { SPIN },
            control,
            network,
            turn: 0,
            inlets,
            callers: HashMap::new(),
            callers_wait: false,
            strangers_wait: false,
            asked: Vec::new(),
            connecting: Vec::new(),
            listeners: Listeners::default(),
            connections: HashMap::new(),
            strangers: HashMap::new(),
            expected: HashMap::new(),
            names: Names::default(),
            notices: Notices::default(),
            closing: Closing::default(),
        })
    }

    /// Works until the program has ended, and what it left behind with connections has, a while at most. Its status.
    pub(crate) fn run(mut self, mut program: Program) -> u8 {
        let start = Instant::now();
        let (mut moved, mut nap, mut status, mut told) = (start, NAPS[0], None, false);
        let [mut accepted, mut looked, mut swept] = [start; 3];
        loop {
            let now = Instant::now();
            let spins = now.duration_since(moved) < self.spin;
            let mut any = self.hear(if spins { Duration::ZERO } else { nap });
            self.answer_asked();
            any |= self.copy();
            let now = Instant::now();
            if now.duration_since(accepted) >= ACCEPT {
                accepted = now;
                any |= self.accept() | self.connect();
            }
            if now.duration_since(looked) >= PROGRAM {
                looked = now;
                self.devices.work();
                if status.is_none() {
                    status = program.look();
                    if status.is_some() {
                        // Whatever it left behind makes no more connections than it has.
                        self.listeners.end();
                        moved = now;
                    }
                } else {
                    told = program.is_told_to_end();
                }
            }
            if now.duration_since(swept) >= UNUSED {
                swept = now;
                self.sweep(now);
            }
            if any {
                (moved, nap) = (now, NAPS[0]);
            } else if spins {
                std::thread::yield_now();
            } else {
                nap = (2 * nap).min(NAPS[1]);
            }
            if let Some(status) = status
                && (told || self.is_quiet() || now.duration_since(moved) > AFTER && !self.owes())
            {
                self.connections.drain().for_each(|(_, connection)| connection.pair.end());
                self.expected.drain().for_each(|(_, (stream, _))| self.closing.close(stream));
                self.closing.wait();
                return status;
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.connections.is_empty() && self.expected.is_empty()
    }

    /// Whether a peer has not taken all that it was written: cut off there, it would take that for the whole.
    fn owes(&self) -> bool {
        self.connections.values().any(|connection| connection.pair.owes())
    }

    /// Waits so long for news of sockets, and does what they say. Whether there were any.
    fn hear(&mut self, time: Duration) -> bool {
        let mut heard = Vec::new();
        self.events.wait(time, |token| heard.push(token));
        let any = !heard.is_empty();
        for token in heard {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.pair.wake();
                connection.is_new = false;
            } else if self.callers.contains_key(&token) {
                self.serve(token);
            } else {
                self.take_callers();
                self.take_strangers();
            }
        }
        // There may be room for those that were left to wait.
        if self.callers_wait {
            self.take_callers();
        }
        if self.strangers_wait {
            self.take_strangers();
        }
        any
    }

    /// Lets all connections move. Whether any did.
    fn copy(&mut self) -> bool {
        let mut any = false;
        let over = self.connections.extract_if(|_, connection| {
            let turn = connection.pair.turn();
            any |= turn != Turn::Idle;
            turn == Turn::Over
        });
        for (_, connection) in over {
            self.names.end(connection.ends);
            connection.pair.end();
        }
        any
    }

    fn take_callers(&mut self) {
        loop {
            self.callers_wait = self.callers.len() >= CLIENTS_MAX;
            if self.callers_wait {
                return;
            }
            let client = Client::accept(&self.control);
            self.callers_wait = client.is_err();
            let Ok(Some(client)) = client else { return };
            if let Ok(token) = self.events.add(&client) {
                self.callers.insert(token, Caller { client, offer: None, since: Instant::now() });
                self.serve(token);
            }
        }
    }

    /// Answers what a client asks.
    fn serve(&mut self, token: Token) {
        while let Some(caller) = self.callers.get_mut(&token) {
            match caller.client.hear() {
                Said::Nothing => return,
                Said::Request(request) => {
                    caller.since = Instant::now();
                    let is_taken = matches!(request, Request::Connected(_));
                    let offer = if is_taken { caller.offer.take() } else { None };
                    if let Some(answer) = self.answer(token, offer, request) {
                        self.tell(token, &answer);
                    }
                }
                Said::Gone => {
                    self.connecting.retain(|connecting| connecting.client != token);
                    self.asked.retain(|asked| asked.client != token);
                    let gone = self.callers.remove(&token);
                    self.take_back(gone.and_then(|gone| gone.offer));
                    return;
                }
            }
        }
    }

    fn tell(&self, token: Token, answer: &Answer) {
        if let Some(caller) = self.callers.get(&token) {
            caller.client.answer(answer);
        }
    }

    /// The answer to a request; `None` if it comes later.
    fn answer(&mut self, token: Token, offer: Option<Offer>, request: Request) -> Option<Answer> {
        Some(match request {
            Request::Bind(meant) if meant.ip().is_loopback() => {
                self.names.unbind(meant);
                Answer::Kernel
            }
            Request::Bind(meant) if self.devices.own(meant.ip()) => {
                let loopback =
                    if meant.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
                Answer::Stand(SocketAddr::new(loopback, meant.port()))
            }
            Request::Bind(_) => Answer::Kernel,
            Request::Bound(at, meant) => {
                self.names.bind(at, meant);
                Answer::Done
            }
            Request::Listen(at, takes_both) => {
                self.listen(Socket { at, takes_both });
                Answer::Done
            }
            Request::Connect(at, peer) => return self.begin(token, at, peer),
            Request::Connected(at) => {
                if let Some(offer) = offer {
                    self.connected(offer, at);
                }
                Answer::Done
            }
            Request::Names(own, None) => match self.names.own(own) {
                Some(meant) => Answer::Names(meant, None),
                None => Answer::Kernel,
            },
            Request::Names(own, Some(peer)) => {
                let asked = Asked { client: token, ends: (own, peer), since: Instant::now() };
                if self.may_be_named(&asked) {
                    self.asked.push(asked);
                    return None;
                }
                self.names_of(asked.ends)
            }
        })
    }

    fn names_of(&self, ends: Ends) -> Answer {
        match self.names.connection(ends) {
            Some((own, peer)) => Answer::Names(own, Some(peer)),
            None => Answer::Kernel,
        }
    }

    /// Whether a connection may be one that a program under this launcher makes: it is there before that can say so.
    fn may_be_named(&self, asked: &Asked) -> bool {
        let is_there = |offer: &Offer| matches!(offer, Offer::Own { socket, .. } if *socket == asked.ends.0);
        self.names.connection(asked.ends).is_none()
            && asked.since.elapsed() < INLET
            && self.callers.values().any(|caller| caller.offer.as_ref().is_some_and(is_there))
    }

    /// Answers those for whom there is nothing more to wait for.
    fn answer_asked(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            if self.may_be_named(&asked) {
                self.asked.push(asked);
            } else {
                self.tell(asked.client, &self.names_of(asked.ends));
            }
        }
    }

    /// The program listens at an address of the kernel's.
    fn listen(&mut self, socket: Socket) {
        let at = socket.at;
        let meant = match self.names.bound(at) {
            Some(meant) => meant,
            None if at.ip().is_unspecified() || self.devices.are_kernels() && !at.ip().is_loopback() => at,
            None => return,
        };
        let listened = self.listeners.listen(&self.devices.manager, socket, meant, &self.options);
        if let Err(error) = listened {
            self.notices.say(Reason::Listen, meant, &error.to_string());
        }
    }

    /// The program asks for a connection.
    fn begin(&mut self, token: Token, at: Option<SocketAddr>, peer: SocketAddr) -> Option<Answer> {
        // One call has one connection.
        if self.connecting.iter().any(|connecting| connecting.client == token) {
            return Some(Answer::Kernel);
        }
        let meant = at.and_then(|at| self.names.bound(at));
        // Whoever is bound to an address of the kernel's means the kernel.
        if at.is_some_and(|at| !at.ip().is_unspecified() && meant.is_none()) {
            return Some(Answer::Kernel);
        }
        if self.devices.own(peer.ip()) {
            let Some(socket) = self.listeners.find(peer) else {
                return Some(Answer::Refused(Errno::CONNREFUSED.raw_os_error()));
            };
            self.offer(token, Offer::Own { socket, meant: peer });
            return Some(Answer::Stand(socket));
        }
        self.connecting.push(Connecting::new(&self.devices, &self.options, token, (meant, peer)));
        None
    }

    fn offer(&mut self, token: Token, offer: Offer) {
        let other = match self.callers.get_mut(&token) {
            Some(caller) => caller.offer.replace(offer),
            None => Some(offer),
        };
        self.take_back(other);
    }

    /// Closes the stream of an offer that nobody takes.
    fn take_back(&self, offer: Option<Offer>) {
        if let Some(Offer::Stream(stream, ..)) = offer {
            self.closing.close(stream);
        }
    }

    /// Goes on with connections that the program asks for. Whether any is decided.
    fn connect(&mut self) -> bool {
        let mut decided = Vec::new();
        self.connecting.retain(|connecting| match connecting.look(&self.devices) {
            Some(outcome) => {
                decided.push((connecting.client, connecting.peer, outcome));
                false
            }
            None => true,
        });
        let any = !decided.is_empty();
        for (client, peer, outcome) in decided {
            let answer = match outcome {
                Outcome::Connected(stream) => self.offer_stream(client, stream, peer),
                Outcome::Not(reason, detail) => self.not_by_rdma(peer, reason, &detail),
            };
            self.tell(client, &answer);
        }
        any
    }

    fn offer_stream(&mut self, client: Token, stream: RsStream, peer: SocketAddr) -> Answer {
        let inlet = self.inlets.iter().find(|(_, address)| address.is_ipv4() == peer.is_ipv4());
        let Some((_, inlet)) = inlet else {
            self.closing.close(stream);
            return Answer::Kernel;
        };
        let inlet = *inlet;
        self.offer(client, Offer::Stream(stream, inlet, peer));
        Answer::Stand(inlet)
    }

    /// What becomes of a connection that cannot be by RDMA.
    fn not_by_rdma(&mut self, peer: SocketAddr, reason: Reason, detail: &str) -> Answer {
        // A model's network is the kernel's only where the kernel has a route to it: elsewhere the default route would lead astray.
        if reason == Reason::Elsewhere || self.devices.are_kernels() || kernel::leads_to(peer.ip()) {
            self.notices.say(reason, peer, detail);
            return Answer::Kernel;
        }
        let errno = if reason == Reason::Refused { Errno::CONNREFUSED } else { Errno::HOSTUNREACH };
        Answer::Refused(errno.raw_os_error())
    }

    /// A client's socket has that address, and goes to what it was offered.
    fn connected(&mut self, offer: Offer, at: SocketAddr) {
        match offer {
            Offer::Stream(stream, inlet, peer) => {
                let ends = (at, inlet);
                self.names.connect(ends, (stream.local_addr().unwrap_or(at), peer));
                match self.strangers.remove(&ends) {
                    Some((socket, _)) => self.pair(ends, socket, stream),
                    None => {
                        self.expected.insert(ends, (stream, Instant::now()));
                    }
                }
            }
            Offer::Own { socket, meant } => {
                let own = self.names.bound(at).unwrap_or(SocketAddr::new(meant.ip(), at.port()));
                self.names.connect((at, socket), (own, meant));
                self.names.accept((socket, at), (meant, own));
                // Nobody here hears of its end: it is kept as long as of one that has ended.
                self.names.end((at, socket));
                self.names.end((socket, at));
            }
        }
    }

    /// Takes what came to the inlets.
    fn take_strangers(&mut self) {
        let mut came = Vec::new();
        self.strangers_wait = false;
        for (listener, address) in &self.inlets {
            loop {
                match listener.accept() {
                    Ok((socket, from)) => came.push(((canonical(from), *address), socket)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    Err(_) => {
                        self.strangers_wait = true;
                        break;
                    }
                }
            }
        }
        for (ends, socket) in came {
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if let Some((stream, _)) = self.expected.remove(&ends) {
                self.pair(ends, socket, stream);
            } else {
                self.make_room();
                self.strangers.insert(ends, (socket, Instant::now()));
            }
        }
    }

    /// Drops the stranger that has waited longest, if there are as many as may be: the program says who it is at once.
    fn make_room(&mut self) {
        if self.strangers.len() < WAITING_MAX {
            return;
        }
        let oldest = self.strangers.iter().min_by_key(|(_, (_, since))| *since).map(|(ends, _)| *ends);
        oldest.and_then(|oldest| self.strangers.remove(&oldest));
    }

    /// A socket and a stream become a connection.
    fn pair(&mut self, ends: Ends, socket: TcpStream, stream: RsStream) {
        // What cannot be set is as good as it is.
        socket.set_nodelay(true).ok();
        let token = self.events.add(&socket);
        let pair = Pair::new(socket, stream, &self.closing);
        match token {
            Ok(token) => {
                self.connections.insert(token, Connection { pair, ends, is_new: true });
            }
            Err(_) => {
                self.names.end(ends);
                pair.end();
            }
        }
    }

    /// Takes connections that came by RDMA to the program's sockets. Whether there were any.
    fn accept(&mut self) -> bool {
        let mut waiting = None;
        for _ in 0..TURN {
            let Some(Accepted { stream, own, peer, sockets }) = self.listeners.accept() else { break };
            let waiting = waiting.get_or_insert_with(|| self.waiting());
            self.turn = self.turn.wrapping_add(1);
            let from = |at: &SocketAddr| {
                (at.is_ipv4() && at.ip().is_loopback()).then(|| self.network.address(self.turn))
            };
            let has_room = |at: &&SocketAddr| waiting.get(*at).is_none_or(|count| *count < UNACCEPTED_MAX);
            let made = sockets.iter().filter(has_room).find_map(|at| {
                let socket = kernel::connect_here(*at, from(at)).ok()?;
                Some(((*at, socket.local_addr().ok()?), socket))
            });
            let Some((ends, socket)) = made else {
                // Nobody listens there any more, or accepts.
                self.closing.close(stream);
                continue;
            };
            *waiting.entry(ends.0).or_default() += 1;
            self.names.accept(ends, (own, peer));
            self.pair(ends, socket, stream);
        }
        waiting.is_some()
    }

    /// How many connections wait for room at each of the program's sockets.
    fn waiting(&self) -> HashMap<SocketAddr, usize> {
        let mut waiting = HashMap::new();
        for connection in self.connections.values().filter(|connection| connection.is_new) {
            *waiting.entry(connection.ends.0).or_default() += 1;
        }
        waiting
    }

    /// Ends what nobody came for, and what stands for nobody.
    fn sweep(&mut self, now: Instant) {
        let is_new = |since: &Instant| now.duration_since(*since) < INLET;
        self.strangers.retain(|_, (_, since)| is_new(since));
        for (ends, (stream, _)) in self.expected.extract_if(|_, (_, since)| !is_new(since)) {
            self.closing.close(stream);
            self.names.end(ends);
        }
        let rests = |token: &Token, caller: &Caller| {
            now.duration_since(caller.since) >= CALL
                && !self.connecting.iter().any(|connecting| connecting.client == *token)
        };
        let resting: Vec<Caller> =
            self.callers.extract_if(|token, caller| rests(token, caller)).map(|(_, caller)| caller).collect();
        resting.into_iter().for_each(|caller| self.take_back(caller.offer));
        for gone in self.listeners.end_unused() {
            self.names.unbind(gone);
        }
    }
}
