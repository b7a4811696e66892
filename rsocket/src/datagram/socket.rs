//! A datagram socket: its UDP socket, a queue pair for each local address, and what is known of its peers. Source of who says what when:
//! rdma-core `librdmacm/rsocket.c`, `dsend`, `udp_svc_process_rs`, `udp_svc_create_ah`.
//!
//! ```text
//!   peer unknown      ── UDP: our qpn, data ─────►    answers, delivers the data, resolves our address
//!                     ◄── UDP: its qpn ───────────
//!   address resolved  ── queue pair to queue pair: source header, data ─►
//! ```
//!
//! A peer that tells another number than before has begun anew: its path is resolved again, and its datagrams go by UDP meanwhile.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_cm::{EventChannel, EventKind, Id, IdNumber, Manager, PortSpace};
use pollux_verbs::Ah;

use super::counts::RsDatagramCounts;
use super::peers::{Peers, Route};
use super::queue::{Queue, Received};
use super::wire::{self, BUFFER_BYTES, Operation};
use crate::end::Readiness;
use crate::error::RsError;
use crate::options::RsOptions;
use crate::wait::{EventSource, Pace};

/// How long an address may take to be resolved. Source: rdma-core `librdmacm/rsocket.c`, `udp_svc_create_ah`.
const RESOLUTION: Duration = Duration::from_secs(2);
/// Addresses that are resolved at the same time.
const RESOLVING_MAX: usize = 32;
/// Control messages that are taken in one call.
const CONTROLS: usize = 64;
/// How long a queue pair that could not be made anew is left alone, whatever peers send: each attempt is dear.
const RETRY: Duration = Duration::from_millis(100);
/// How often the UDP socket is looked at while queue pairs have work: each look is a system call.
const TURNS: u32 = 16;
/// After how long calls that do not wait, and find nothing, look at it as well.
const LOOK: Duration = Duration::from_micros(50);
/// How long a socket that is closed waits until its datagrams have left, and between two looks.
const LINGER: Duration = Duration::from_secs(2);
const CLOSING_LOOK: Duration = Duration::from_micros(100);

/// An address that is being resolved, for a peer that told its queue pair number.
#[derive(Debug)]
struct Resolution {
    peer: SocketAddr,
    qpn: u32,
    _id: Id,
}

/// A datagram that nobody took yet.
#[derive(Debug)]
enum Arrival {
    Queue { queue: usize, received: Received },
    Copied { sender: SocketAddr, data: Vec<u8> },
}

impl Arrival {
    fn sender(&self) -> SocketAddr {
        match self {
            Self::Queue { received, .. } => received.sender,
            Self::Copied { sender, .. } => *sender,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Socket {
    peers: Peers<Ah>,
    queues: Vec<Queue>,
    /// Queue pairs that failed and could not be made anew.
    broken: HashSet<usize>,
    /// When one of them was to be made anew for a peer's sake.
    retried: Option<Instant>,
    resolving: HashMap<IdNumber, Resolution>,
    arrivals: VecDeque<Arrival>,
    /// How many of those that came by UDP are kept.
    copies_max: usize,
    channel: EventChannel,
    udp: Arc<UdpSocket>,
    /// What it was bound to, with the port that it got.
    bound: SocketAddr,
    /// What completions brought, on its way to the arrivals.
    came: Vec<Received>,
    /// Of looks everywhere by calls that find nothing and do not wait.
    pace: Pace,
    /// The only peer of a connected socket.
    peer: Option<SocketAddr>,
    pub(crate) options: RsOptions,
    turn: u32,
    /// A peer was sent a datagram by UDP and did not answer yet.
    awaits_control: bool,
    wrong: Option<RsError>,
    counts: RsDatagramCounts,
}

impl Socket {
    pub(crate) fn bind(manager: &Manager, address: SocketAddr, options: &RsOptions) -> Result<Self, RsError> {
        let udp = |source| RsError::Udp { address, source };
        check_scope(address)?;
        let socket = UdpSocket::bind(address).map_err(udp)?;
        socket.set_nonblocking(true).map_err(udp)?;
        let bound = socket.local_addr().map_err(udp)?;
        let mut made = Self {
            peers: Peers::new(),
            queues: Vec::new(),
            broken: HashSet::new(),
            retried: None,
            resolving: HashMap::new(),
            arrivals: VecDeque::new(),
            copies_max: super::queue::depths(options)[1],
            channel: manager.channel()?,
            udp: Arc::new(socket),
            bound,
            came: Vec::new(),
            pace: Pace::new(LOOK),
            peer: None,
            options: *options,
            turn: 0,
            awaits_control: false,
            wrong: None,
            counts: RsDatagramCounts::default(),
        };
        if !address.ip().is_unspecified() {
            // Whether a device has the address is told at once.
            made.queue_of(address.ip())?;
        }
        Ok(made)
    }

    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    pub(crate) fn counts(&self) -> RsDatagramCounts {
        self.counts
    }

    pub(crate) fn take_error(&mut self) -> Option<RsError> {
        self.wrong.take()
    }

    pub(crate) fn connect(&mut self, peer: SocketAddr) -> io::Result<()> {
        let peer = self.checked(peer)?;
        // First: the kernel's socket would keep the source address of a peer to which no device leads.
        self.known(peer)?;
        self.udp.connect(peer)?;
        self.peer = Some(peer);
        // It is met anew: it may have begun anew, which only its own word tells.
        if let Some(known) = self.peers.get(peer) {
            known.route = None;
        }
        for arrival in std::mem::take(&mut self.arrivals) {
            if !self.is_foreign(arrival.sender()) {
                self.arrivals.push_back(arrival);
            } else if let Arrival::Queue { queue, received } = arrival {
                self.release(queue, &received);
            }
        }
        Ok(())
    }

    /// The most data of a datagram to a peer.
    pub(crate) fn data_max(&mut self, peer: Option<SocketAddr>) -> io::Result<usize> {
        let peer = self.checked(peer.or(self.peer).ok_or(ErrorKind::NotConnected)?)?;
        let queue = self.known(peer)?;
        Ok(self.queues[queue].data_max())
    }

    /// A peer's address as datagrams have it: without what IPv6 has beside address and port.
    fn checked(&self, peer: SocketAddr) -> io::Result<SocketAddr> {
        check_scope(peer)?;
        // An IPv4 address inside IPv6 would be told with the wrong version.
        let mapped = matches!(peer.ip(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
        if self.bound.is_ipv4() != peer.is_ipv4() || mapped {
            return Err(RsError::Family { local: self.bound, peer }.into());
        }
        Ok(SocketAddr::new(peer.ip(), peer.port()))
    }

    /// Which queue pair sends to a peer, which is known from now on.
    fn known(&mut self, address: SocketAddr) -> Result<usize, RsError> {
        if let Some(peer) = self.peers.get(address) {
            return Ok(peer.queue);
        }
        let local = self.local_towards(address).map_err(|source| RsError::Udp { address, source })?;
        let queue = self.queue_of(local)?;
        self.peers.add(address, queue, self.peer);
        Ok(queue)
    }

    /// Our address for a peer: where the socket is bound to any, the kernel's routes say. Source: rdma-core `librdmacm/rsocket.c`,
    /// `ds_get_src_addr`.
    fn local_towards(&self, peer: SocketAddr) -> io::Result<IpAddr> {
        let local = self.udp.local_addr()?.ip();
        if !local.is_unspecified() {
            return Ok(local);
        }
        let any: IpAddr =
            if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let probe = UdpSocket::bind((any, 0))?;
        probe.connect(peer)?;
        Ok(probe.local_addr()?.ip())
    }

    fn queue_of(&mut self, local: IpAddr) -> Result<usize, RsError> {
        if let Some(at) = self.queues.iter().position(|queue| queue.address() == local) {
            return Ok(at);
        }
        self.queues.push(Queue::new(&self.channel, local, &self.options)?);
        Ok(self.queues.len() - 1)
    }

    /// Sends a datagram, or fails with [`WouldBlock`](ErrorKind::WouldBlock).
    pub(crate) fn send(&mut self, to: Option<SocketAddr>, data: &[u8]) -> io::Result<usize> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong.into());
        }
        let peer = self.checked(to.or(self.peer).ok_or(ErrorKind::NotConnected)?)?;
        let at = self.known(peer)?;
        if self.broken.contains(&at) {
            self.restart(at)?;
        }
        let most = self.queues[at].data_max();
        if data.len() > most {
            return Err(RsError::TooLong { bytes: data.len(), most }.into());
        }
        let route = self.peers.get(peer).and_then(|peer| peer.route.as_ref());
        let Some((ah, qpn)) = route.map(|route| (Arc::clone(&route.ah), route.qpn)) else {
            self.tell(at, Operation::Data, peer, data)?;
            self.counts.sent_by_udp += 1;
            self.awaits_control = true;
            return Ok(data.len());
        };
        let queue = &mut self.queues[at];
        let sender = SocketAddr::new(queue.address(), self.bound.port());
        if !queue.send(sender, (&ah, qpn), data)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.counts.sent += 1;
        Ok(data.len())
    }

    /// Tells a peer our queue pair number, by UDP.
    fn tell(&self, queue: usize, operation: Operation, peer: SocketAddr, data: &[u8]) -> io::Result<()> {
        let queue = &self.queues[queue];
        let header = wire::control(operation, queue.qpn(), queue.address());
        let message = [header.bytes(), data].concat();
        self.udp.send_to(&message, peer)?;
        Ok(())
    }

    /// Takes the next datagram, or looks at it. What there is no room for is lost with it.
    pub(crate) fn receive(&mut self, into: &mut [u8], peek: bool) -> io::Result<(usize, SocketAddr)> {
        let found = match self.arrivals.front() {
            None => {
                return Err(self.wrong.take().map_or_else(|| ErrorKind::WouldBlock.into(), RsError::into));
            }
            Some(Arrival::Queue { queue, received }) => {
                (self.queues[*queue].copy(received, into), received.sender)
            }
            Some(Arrival::Copied { sender, data }) => {
                let bytes = data.len().min(into.len());
                into[..bytes].copy_from_slice(&data[..bytes]);
                (bytes, *sender)
            }
        };
        if !peek && let Some(Arrival::Queue { queue, received }) = self.arrivals.pop_front() {
            self.release(queue, &received);
        }
        Ok(found)
    }

    fn release(&mut self, queue: usize, received: &Received) {
        if let Err(error) = self.queues[queue].release(received) {
            self.wrong.get_or_insert(error);
        }
    }

    /// Whether a call that found nothing and does not wait has to look everywhere: now and then, for each look is a system call.
    pub(crate) fn has_to_look(&mut self) -> bool {
        self.pace.is_due()
    }

    /// Looks at what came. `thorough`: also at the UDP socket and the connection manager, which is done now and then anyway.
    pub(crate) fn advance(&mut self, thorough: bool) {
        self.turn = self.turn.wrapping_add(1);
        (0..self.queues.len()).for_each(|at| self.take_completions(at));
        let expects = self.awaits_control || !self.resolving.is_empty();
        if thorough || expects || self.turn.is_multiple_of(TURNS) {
            self.take_controls();
            self.take_events();
        }
    }

    fn take_completions(&mut self, at: usize) {
        let mut came = std::mem::take(&mut self.came);
        let completions = self.queues[at].poll(&mut came);
        self.counts.malformed += completions.malformed;
        for received in came.drain(..) {
            if self.is_foreign(received.sender) {
                self.release(at, &received);
            } else {
                self.counts.received += 1;
                self.arrivals.push_back(Arrival::Queue { queue: at, received });
            }
        }
        self.came = came;
        if let Some(status) = completions.failed
            && !self.broken.contains(&at)
        {
            tracing::warn!(target: "lib.rsocket", "a datagram queue pair failed: {status}; it is made anew");
            if let Err(error) = self.restart(at) {
                self.wrong.get_or_insert(error);
            }
        }
    }

    fn is_foreign(&mut self, sender: SocketAddr) -> bool {
        let foreign = self.peer.is_some_and(|peer| peer != sender);
        self.counts.foreign += u64::from(foreign);
        foreign
    }

    /// Whether a queue pair can be told to peers, made anew where it has to be.
    fn works(&mut self, at: usize) -> bool {
        if !self.broken.contains(&at) {
            return true;
        }
        if self.retried.is_some_and(|retried| retried.elapsed() < RETRY) {
            return false;
        }
        self.retried = Some(Instant::now());
        self.restart(at).is_ok()
    }

    /// Makes a queue pair anew that is of no use any more, and tells those who may know the old one. What cannot be made leaves all as it
    /// was, but that the old one is not used.
    fn restart(&mut self, at: usize) -> Result<(), RsError> {
        self.broken.insert(at);
        let old = &self.queues[at];
        for arrival in &mut self.arrivals {
            if let Arrival::Queue { queue, received } = arrival
                && *queue == at
            {
                let mut data = vec![0; received.bytes];
                old.copy(received, &mut data);
                *arrival = Arrival::Copied { sender: received.sender, data };
            }
        }
        let address = old.address();
        let fresh = Queue::new(&self.channel, address, &self.options)?;
        let lost = self.peers.take_routes(at);
        self.queues[at] = fresh;
        self.broken.remove(&at);
        self.counts.restarts += 1;
        for (peer, qpn) in lost {
            // Lost, it is said again with the next datagram, which goes by UDP.
            self.tell(at, Operation::Control, peer, &[]).ok();
            if let Some(qpn) = qpn {
                self.resolve(peer, qpn);
            }
        }
        Ok(())
    }

    fn take_controls(&mut self) {
        // A byte more than there may be: what is cut is none.
        let mut message = [0; BUFFER_BYTES + 1];
        for _ in 0..CONTROLS {
            match self.udp.recv_from(&mut message) {
                Ok((bytes, sender)) => self.heard(&message[..bytes], sender),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    // A connected peer has no such socket, or the like.
                    let address = self.peer.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
                    self.wrong.get_or_insert(RsError::Udp { address, source });
                    return;
                }
            }
        }
    }

    fn heard(&mut self, message: &[u8], sender: SocketAddr) {
        let sender = SocketAddr::new(sender.ip(), sender.port());
        let is_whole = message.len() <= BUFFER_BYTES;
        let Some(control) = wire::read_control(message, sender.ip()).filter(|_| is_whole) else {
            self.counts.malformed += 1;
            return;
        };
        if self.is_foreign(sender) {
            return;
        }
        let at = match self.known(sender) {
            Ok(at) => at,
            Err(error) => {
                tracing::debug!(target: "lib.rsocket", "{sender} cannot be answered: {error}");
                self.counts.unresolved += 1;
                return;
            }
        };
        self.awaits_control = false;
        if !self.works(at) {
            // Its number leads nowhere, and is told to nobody: UDP goes on carrying what there is.
            if control.operation == Operation::Data {
                self.keep(sender, control.data);
            }
            return;
        }
        if control.operation == Operation::Data {
            // Lost, it is asked for again.
            self.tell(at, Operation::Control, sender, &[]).ok();
        }
        let peer = self.peers.get(sender);
        if let Some(peer) = peer
            && peer.route.as_ref().is_none_or(|route| route.qpn != control.qpn)
        {
            peer.route = None;
            self.resolve(sender, control.qpn);
        }
        if control.operation == Operation::Data {
            self.keep(sender, control.data);
        }
    }

    /// Keeps a datagram that came by UDP.
    fn keep(&mut self, sender: SocketAddr, data: &[u8]) {
        if self.arrivals.len() >= self.copies_max {
            self.counts.overrun += 1;
            return;
        }
        self.counts.received_by_udp += 1;
        self.arrivals.push_back(Arrival::Copied { sender, data: data.to_vec() });
    }

    /// Begins to resolve the address of a peer whose queue pair is known.
    fn resolve(&mut self, peer: SocketAddr, qpn: u32) {
        if let Some(resolution) = self.resolving.values_mut().find(|resolution| resolution.peer == peer) {
            resolution.qpn = qpn;
            return;
        }
        if self.resolving.len() >= RESOLVING_MAX {
            // Its next control message tries again.
            self.counts.unresolved += 1;
            return;
        }
        let Some(local) = self.peers.get(peer).map(|peer| self.queues[peer.queue].address()) else { return };
        let begin = || -> Result<Id, RsError> {
            let id = self.channel.create_id(PortSpace::Udp)?;
            id.resolve_address(Some(SocketAddr::new(local, 0)), peer, RESOLUTION)?;
            Ok(id)
        };
        match begin() {
            Ok(id) => {
                self.resolving.insert(id.number(), Resolution { peer, qpn, _id: id });
            }
            Err(error) => self.unresolved(peer, &error),
        }
    }

    fn unresolved(&mut self, peer: SocketAddr, error: &dyn std::fmt::Display) {
        tracing::debug!(target: "lib.rsocket", "no path to {peer}: {error}");
        self.counts.unresolved += 1;
    }

    fn take_events(&mut self) {
        loop {
            let event = match self.channel.next() {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => {
                    self.wrong.get_or_insert(error.into());
                    return;
                }
            };
            if matches!(event.kind, EventKind::DeviceRemoval)
                && let Some(at) = self.queues.iter().position(|queue| queue.id() == event.id)
            {
                self.broken.insert(at);
                self.wrong.get_or_insert(RsError::Removed);
            } else if let Some(resolution) = self.resolving.remove(&event.id) {
                self.resolved(&resolution, &event.kind);
            }
        }
    }

    fn resolved(&mut self, resolution: &Resolution, kind: &EventKind) {
        let Resolution { peer: address, qpn, .. } = *resolution;
        if !matches!(kind, EventKind::AddressResolved) {
            return self.unresolved(address, kind);
        }
        let Some(peer) = self.peers.get(address) else { return };
        match self.queues[peer.queue].address_handle(address.ip()) {
            Ok(ah) => peer.route = Some(Route { ah: Arc::new(ah), qpn }),
            Err(error) => self.unresolved(address, &error),
        }
    }

    /// The queue pairs that work; the others are made anew by the next datagram.
    fn usable(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().enumerate().filter(|(at, _)| !self.broken.contains(at)).map(|(_, queue)| queue)
    }

    /// Threads of the kernel do the work of one of its devices.
    pub(crate) fn is_software(&self) -> bool {
        self.queues.iter().any(Queue::is_software)
    }

    /// Nothing is being resolved.
    pub(crate) fn is_settled(&self) -> bool {
        self.resolving.is_empty()
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let failed = self.wrong.is_some();
        Readiness {
            readable: !self.arrivals.is_empty() || failed,
            writable: self.usable().all(Queue::has_room) || failed,
            hung_up: false,
            failed,
        }
    }

    /// Asks for events of the queue pairs, and says whose are to be waited for.
    pub(crate) fn arm(&mut self, events: &mut Vec<EventSource>) {
        events.push(EventSource::Udp(Arc::clone(&self.udp)));
        let Self { queues, broken, wrong, .. } = self;
        for (_, queue) in queues.iter_mut().enumerate().filter(|(at, _)| !broken.contains(at)) {
            match queue.arm() {
                Ok(channel) => events.push(EventSource::Channel(channel)),
                Err(error) => {
                    wrong.get_or_insert(error);
                }
            }
        }
    }

    /// Takes the events. Whether one came.
    pub(crate) fn disarm(&mut self) -> bool {
        let mut came = false;
        let Self { queues, broken, wrong, .. } = self;
        for (_, queue) in queues.iter_mut().enumerate().filter(|(at, _)| !broken.contains(at)) {
            match queue.disarm() {
                Ok(taken) => came |= taken,
                Err(error) => {
                    wrong.get_or_insert(error);
                    came = true;
                }
            }
        }
        came
    }
}

/// Link-local addresses are of one interface each, of which neither headers nor the connection manager tell.
fn check_scope(address: SocketAddr) -> Result<(), RsError> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Err(RsError::LinkLocal { address }),
        _ => Ok(()),
    }
}

impl Drop for Socket {
    /// What was sent leaves first.
    fn drop(&mut self) {
        let begin = Instant::now();
        while !self.usable().all(Queue::is_quiet) && begin.elapsed() < LINGER {
            for queue in &mut self.queues {
                self.came.clear();
                // What came is nobody's any more.
                queue.poll(&mut self.came);
            }
            std::thread::sleep(CLOSING_LOOK);
        }
    }
}
