//! The connection manager in this process: IDs, ports and addresses above an [`Agent`] for each port of a device. It works while it is
//! asked for events, and has no thread.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use pollux_uverbs::abi::flags::{Access, QpState};
use pollux_verbs::{Context, Errno, Path, QpAttributes, QpKind};
use zerocopy::IntoBytes;

use crate::agent::{Agent, Ask, Counts, Notice, Timing, Transport};
use crate::error::CmError;
use crate::management::ManagementPort;
use crate::occurrence::{Occurrence, What};
use crate::parameters::{ConnectionParameters, IdOptions, RejectReason, private_data};
use crate::service::{IP_HEADER_BYTES, IpHeader, PortSpace, gid_of, ip_of};

/// Ports that are given to who asks for none. Source: RFC 6335, section 6.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// The key of queue pairs of datagrams. Source: Linux `include/rdma/rdma_cm.h`, `RDMA_UDP_QKEY`.
pub(crate) const UDP_QKEY: u32 = 0x0123_4567;

/// Where an ID is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Bound,
    Listening,
    AddressResolved,
    RouteResolved,
    /// It has a connection of an agent's, whose state counts.
    Connected,
}

/// An ID.
#[derive(Debug)]
struct Record {
    channel: u64,
    space: PortSpace,
    stage: Stage,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// Of which device and port.
    port: Option<usize>,
    path: Option<Path>,
    connection: Option<u32>,
    /// Of a listening one: requests that are neither accepted nor rejected, and how many there may be.
    pending: u32,
    backlog: u32,
    /// Of one that a request made: who listens.
    listener: Option<u64>,
    /// It holds its local port.
    holds_port: bool,
    options: IdOptions,
}

#[derive(Debug)]
struct Port {
    management: ManagementPort,
    agent: Agent,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Software {
    ports: Vec<Port>,
    ids: HashMap<u64, Record>,
    by_connection: HashMap<(usize, u32), u64>,
    channels: HashMap<u64, VecDeque<Occurrence>>,
    /// Local ports, and how many IDs hold them.
    held: HashMap<(PortSpace, u16), u32>,
    next: u64,
    next_port: u16,
    begin: Instant,
}

/// A number that another process does not begin with, from the hasher's seed.
pub(crate) fn random32() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() as u32
}

/// Bits that two GIDs begin with alike.
fn alike(one: [u8; 16], other: [u8; 16]) -> u32 {
    (u128::from_be_bytes(one) ^ u128::from_be_bytes(other)).leading_zeros()
}

const BUSY: &str = "a connection is under way: make another ID";
const GONE: &str = "the ID was made by another manager";

impl Software {
    pub(crate) fn new(ports: Vec<ManagementPort>, timing: Timing) -> Self {
        let ports = ports
            .into_iter()
            .map(|management| {
                let agent = Agent::new(management.guid(), timing, random32());
                Port { management, agent }
            })
            .collect();
        let mut software = Self {
            ports,
            ids: HashMap::new(),
            by_connection: HashMap::new(),
            channels: HashMap::new(),
            held: HashMap::new(),
            next: 0,
            next_port: EPHEMERAL.start() + (random32() % 8192) as u16,
            begin: Instant::now(),
        };
        software.look_at_ports();
        software
    }

    /// Tells the agents what their ports are now.
    fn look_at_ports(&mut self) {
        for port in &mut self.ports {
            let refreshed = port.management.refresh().and_then(|()| port.management.mtu());
            match refreshed {
                Ok(mtu) => {
                    let gids = port.management.gids().iter().map(|(_, gid)| *gid).collect();
                    port.agent.set_port(gids, mtu);
                }
                Err(error) => {
                    tracing::warn!(target: "lib.cm", "{}: {error}", port.management.context().name());
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A further queue of events.
    pub(crate) fn channel(&mut self) -> u64 {
        let channel = self.number();
        self.channels.insert(channel, VecDeque::new());
        channel
    }

    /// A queue ends. Its IDs go on, without events; requests that nobody heard of are rejected.
    pub(crate) fn end_channel(&mut self, channel: u64) {
        for occurrence in self.channels.remove(&channel).unwrap_or_default() {
            if let What::ConnectRequest { made, .. } | What::DatagramRequest { made, .. } = occurrence.what {
                self.destroy(made);
            }
        }
        self.flush();
    }

    pub(crate) fn create(&mut self, channel: u64, space: PortSpace) -> u64 {
        let number = self.number();
        let record = Record {
            channel,
            space,
            stage: Stage::New,
            local: None,
            peer: None,
            port: None,
            path: None,
            connection: None,
            pending: 0,
            backlog: 0,
            listener: None,
            holds_port: false,
            options: IdOptions::default(),
        };
        self.ids.insert(number, record);
        number
    }

    fn record(&mut self, id: u64) -> Result<&mut Record, CmError> {
        self.ids.get_mut(&id).ok_or(CmError::State { what: "use the ID", why: GONE })
    }

    fn occur(&mut self, id: u64, what: What) {
        let Some(record) = self.ids.get(&id) else { return };
        if let Some(queue) = self.channels.get_mut(&record.channel) {
            queue.push_back(Occurrence { id, what });
        }
    }

    /// Events of the ID go to another queue, those that wait as well.
    pub(crate) fn migrate(&mut self, id: u64, to: u64) -> Result<(), CmError> {
        let from = std::mem::replace(&mut self.record(id)?.channel, to);
        let queue = self.channels.remove(&from).unwrap_or_default();
        let (moved, stays): (VecDeque<_>, VecDeque<_>) =
            queue.into_iter().partition(|occurrence| occurrence.id == id);
        self.channels.insert(from, stays);
        self.channels.entry(to).or_default().extend(moved);
        Ok(())
    }

    pub(crate) fn set_options(&mut self, id: u64, options: IdOptions) -> Result<(), CmError> {
        self.record(id)?.options = options;
        Ok(())
    }

    pub(crate) fn options(&self, id: u64) -> IdOptions {
        self.ids.get(&id).map(|record| record.options).unwrap_or_default()
    }

    /// Takes a local port: this one, or any. All who have one that is shared must have said so.
    fn take_port(&mut self, space: PortSpace, port: u16, shared: bool) -> Result<u16, CmError> {
        if port != 0 {
            let others = |record: &Record| {
                record.holds_port
                    && record.space == space
                    && record.local.is_some_and(|local| local.port() == port)
            };
            let free =
                |record: &Record| shared && record.options.reuse_address && record.stage != Stage::Listening;
            if !self.ids.values().filter(|record| others(record)).all(free) {
                return Err(CmError::PortInUse { space, port });
            }
            *self.held.entry((space, port)).or_default() += 1;
            return Ok(port);
        }
        for _ in EPHEMERAL {
            self.next_port =
                if self.next_port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { self.next_port + 1 };
            if !self.held.contains_key(&(space, self.next_port)) {
                self.held.insert((space, self.next_port), 1);
                return Ok(self.next_port);
            }
        }
        Err(CmError::PortInUse { space, port: 0 })
    }

    /// The port of a device that has the address.
    fn port_of(&self, address: IpAddr) -> Option<(usize, u8)> {
        let gid = gid_of(address);
        self.ports.iter().enumerate().find_map(|(place, port)| {
            let found = port.management.gids().iter().find(|(_, own)| *own == gid);
            found.map(|(index, _)| (place, *index))
        })
    }

    fn present(&self) -> String {
        let all = self.ports.iter().flat_map(|port| port.management.gids());
        let all: Vec<String> = all.map(|(_, gid)| ip_of(*gid).to_string()).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }

    pub(crate) fn bind(&mut self, id: u64, address: SocketAddr) -> Result<(), CmError> {
        let record = self.record(id)?;
        let space = record.space;
        if record.stage != Stage::New {
            return Err(CmError::State { what: "bind", why: "the ID has an address" });
        }
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        self.look_at_ports();
        let port = if address.ip().is_unspecified() {
            None
        } else {
            let found = self.port_of(address.ip());
            let none = || CmError::NoDevice { address, present: self.present() };
            Some(found.ok_or_else(none)?.0)
        };
        let shared = self.options(id).reuse_address;
        let number = self.take_port(space, address.port(), shared)?;
        let record = self.record(id)?;
        record.local = Some(SocketAddr::new(address.ip(), number));
        (record.port, record.stage, record.holds_port) = (port, Stage::Bound, true);
        Ok(())
    }

    pub(crate) fn listen(&mut self, id: u64, backlog: u32) -> Result<(), CmError> {
        if self.record(id)?.stage == Stage::New {
            self.bind(id, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0))?;
        }
        let record = self.record(id)?;
        let Some(local) = record.local.filter(|_| record.stage == Stage::Bound) else {
            return Err(CmError::State { what: "listen", why: BUSY });
        };
        record.stage = Stage::Listening;
        record.backlog = if backlog == 0 { 1024 } else { backlog };
        let (service, port) = (record.space.service(local.port()), record.port);
        for (_, at) in
            self.ports.iter_mut().enumerate().filter(|(place, _)| port.is_none_or(|port| port == *place))
        {
            at.agent.listen(service);
        }
        Ok(())
    }

    /// Finds the device that leads to an address, and whether somebody answers for it.
    pub(crate) fn resolve_address(
        &mut self,
        id: u64,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> Result<(), CmError> {
        let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
        let record = self.record(id)?;
        if !matches!(record.stage, Stage::New | Stage::Bound) {
            return Err(CmError::State { what: "resolve an address", why: BUSY });
        }
        let (space, traffic_class) = (record.space, record.options.type_of_service);
        let bound = record.local.filter(|local| !local.ip().is_unspecified());
        self.look_at_ports();
        let source = source.or(bound).filter(|source| !source.ip().is_unspecified());
        let mut candidates: Vec<(usize, u8, [u8; 16])> = match source {
            Some(source) => {
                let ip = source.ip().to_canonical();
                let none = || CmError::NoDevice { address: source, present: self.present() };
                let (port, index) = self.port_of(ip).ok_or_else(none)?;
                vec![(port, index, gid_of(ip))]
            }
            None => {
                let kind = destination.is_ipv4();
                let all = self.ports.iter().enumerate().flat_map(|(place, port)| {
                    port.management.gids().iter().map(move |(index, gid)| (place, *index, *gid))
                });
                all.filter(|(.., gid)| ip_of(*gid).is_ipv4() == kind).collect()
            }
        };
        // Nearest first: subnets are not told, so that of two the one is tried that has more in common with the destination.
        let gid = gid_of(destination.ip());
        candidates.sort_by_key(|(.., own)| std::cmp::Reverse(alike(*own, gid)));
        let mut why = Errno::ENETUNREACH;
        let mut found = None;
        for (place, index, own) in candidates {
            let management = &mut self.ports[place].management;
            let path = Path { port: management.port(), traffic_class, ..Path::new(gid, index) };
            match management.probe(&path) {
                Ok(()) => {
                    found = Some((place, path, own));
                    break;
                }
                // Nobody answers there; on another port somebody may.
                Err(errno) if why == Errno::ENETUNREACH => why = errno,
                Err(_) => {}
            }
        }
        let Some((place, path, own)) = found else {
            self.occur(id, What::AddressError(why));
            return Ok(());
        };
        if !self.record(id)?.holds_port {
            let shared = self.options(id).reuse_address;
            let number = self.take_port(space, source.map_or(0, |source| source.port()), shared)?;
            let record = self.record(id)?;
            record.local = Some(SocketAddr::new(ip_of(own), number));
            record.holds_port = true;
        }
        let record = self.record(id)?;
        record.local = record.local.map(|local| SocketAddr::new(ip_of(own), local.port()));
        (record.peer, record.port, record.path) = (Some(destination), Some(place), Some(path));
        record.stage = Stage::AddressResolved;
        self.occur(id, What::AddressResolved);
        Ok(())
    }

    /// With RoCE the address says it all.
    pub(crate) fn resolve_route(&mut self, id: u64) -> Result<(), CmError> {
        let record = self.record(id)?;
        if record.stage != Stage::AddressResolved {
            return Err(CmError::State { what: "resolve a route", why: "resolve the address first" });
        }
        record.stage = Stage::RouteResolved;
        self.occur(id, What::RouteResolved);
        Ok(())
    }

    /// The device of the ID, and its port.
    pub(crate) fn device(&self, id: u64) -> Option<(Context, u8)> {
        let port = &self.ports[self.ids.get(&id)?.port?];
        Some((port.management.context().clone(), port.management.port()))
    }

    pub(crate) fn addresses(&self, id: u64) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.ids.get(&id).map_or((None, None), |record| (record.local, record.peer))
    }

    /// What the queue pair of the ID is made with in a state.
    pub(crate) fn qp_attributes(&mut self, id: u64, state: QpState) -> Result<QpAttributes, CmError> {
        let why = "the ID has no connection that far: connect, or wait for a response";
        let unknown = CmError::State { what: "tell attributes of a queue pair", why };
        let record = self.record(id)?;
        let (Some(place), connection) = (record.port, record.connection) else { return Err(unknown) };
        let port = &self.ports[place];
        let known = connection.and_then(|connection| port.agent.connection(connection));
        let mut attributes = QpAttributes::state(state);
        match (state, known) {
            (QpState::INIT, known) => {
                (attributes.port, attributes.pkey_index) = (Some(port.management.port()), Some(0));
                let resources = known.map_or(1, |known| known.max_dest_rd_atomic);
                let mut access = Access::REMOTE_WRITE;
                if resources > 0 {
                    access |= Access::REMOTE_READ;
                    if port.management.context().device()?.base.atomic_cap != 0 {
                        access |= Access::REMOTE_ATOMIC;
                    }
                }
                attributes.access = Some(access);
            }
            (QpState::RTR, Some(known)) => {
                (attributes.path, attributes.mtu) = (Some(known.path), Some(known.mtu));
                (attributes.dest_qpn, attributes.rq_psn) = (Some(known.qpn), Some(known.rq_psn));
                attributes.max_dest_rd_atomic = Some(known.max_dest_rd_atomic);
                attributes.min_rnr_timer = Some(known.min_rnr_timer);
            }
            (QpState::RTS, Some(known)) => {
                (attributes.sq_psn, attributes.timeout) = (Some(known.sq_psn), Some(known.timeout));
                (attributes.retries, attributes.rnr_retries) = (Some(known.retries), Some(known.rnr_retries));
                attributes.max_rd_atomic = Some(known.max_rd_atomic);
            }
            _ => return Err(unknown),
        }
        Ok(attributes)
    }

    pub(crate) fn connect(
        &mut self,
        id: u64,
        (qpn, kind): (u32, QpKind),
        parameters: &ConnectionParameters,
    ) -> Result<(), CmError> {
        private_data::check(&parameters.private_data, private_data::CONNECT)?;
        let now = self.now();
        let record = self.record(id)?;
        let resolved = (record.stage == Stage::RouteResolved).then_some((record.local, record.peer));
        let (Some((Some(local), Some(peer))), Some(place), Some(path)) = (resolved, record.port, record.path)
        else {
            return Err(CmError::State { what: "connect", why: "resolve address and route first" });
        };
        let transport = match kind {
            QpKind::Rc => Transport::Reliable,
            QpKind::Uc => Transport::Unreliable,
            _ => {
                let why = "only queue pairs of RC and UC connect";
                return Err(CmError::Unsupported { what: "connecting this queue pair", why });
            }
        };
        let mut private = IpHeader::new(local, peer.ip()).as_bytes().to_vec();
        private.extend_from_slice(&parameters.private_data);
        let service = record.space.service(peer.port());
        let ack_timeout = record.options.ack_timeout;
        record.stage = Stage::Connected;
        let port = &mut self.ports[place];
        let ask = Ask {
            path,
            own_gid: gid_of(local.ip()),
            service,
            transport,
            qpn,
            psn: random32() & 0xff_ffff,
            mtu: port.management.mtu()?,
            parameters: parameters.clone(),
            private,
            ack_timeout,
        };
        let connection = port.agent.connect(now, &ask);
        self.by_connection.insert((place, connection), id);
        self.record(id)?.connection = Some(connection);
        self.flush();
        Ok(())
    }

    /// Asks which queue pair takes datagrams.
    pub(crate) fn connect_datagrams(&mut self, id: u64, private: &[u8]) -> Result<(), CmError> {
        private_data::check(private, private_data::DATAGRAM_CONNECT)?;
        let now = self.now();
        let record = self.record(id)?;
        let resolved = (record.stage == Stage::RouteResolved).then_some((record.local, record.peer));
        let (Some((Some(local), Some(peer))), Some(place), Some(path)) = (resolved, record.port, record.path)
        else {
            return Err(CmError::State { what: "connect", why: "resolve address and route first" });
        };
        let mut all = IpHeader::new(local, peer.ip()).as_bytes().to_vec();
        all.extend_from_slice(private);
        let service = record.space.service(peer.port());
        record.stage = Stage::Connected;
        let connection = self.ports[place].agent.ask_for_datagrams(now, path, service, &all);
        self.by_connection.insert((place, connection), id);
        self.record(id)?.connection = Some(connection);
        self.flush();
        Ok(())
    }

    /// The connection of an ID, for a call.
    fn connection(&mut self, id: u64, what: &'static str) -> Result<(usize, u32), CmError> {
        let record = self.record(id)?;
        let both = record.port.zip(record.connection);
        both.ok_or(CmError::State { what, why: "the ID has no connection" })
    }

    /// A request is answered: its listener has room for another.
    fn answered(&mut self, id: u64) {
        let listener = self.ids.get_mut(&id).and_then(|record| record.listener.take());
        if let Some(listener) = listener.and_then(|listener| self.ids.get_mut(&listener)) {
            listener.pending = listener.pending.saturating_sub(1);
        }
    }

    pub(crate) fn accept(
        &mut self,
        id: u64,
        qpn: u32,
        parameters: &ConnectionParameters,
    ) -> Result<(), CmError> {
        private_data::check(&parameters.private_data, private_data::ACCEPT)?;
        let now = self.now();
        let (place, connection) = self.connection(id, "accept")?;
        // Said here, expected by the queue pair: the attributes for RTR come behind.
        let psn = random32() & 0xff_ffff;
        let accepted = self.ports[place].agent.accept(now, connection, (qpn, psn), parameters);
        accepted.map_err(|_| CmError::State { what: "accept", why: "the request is gone" })?;
        self.answered(id);
        Ok(())
    }

    pub(crate) fn accept_datagrams(&mut self, id: u64, qpn: u32, private: &[u8]) -> Result<(), CmError> {
        private_data::check(private, private_data::DATAGRAM_ACCEPT)?;
        let (place, connection) = self.connection(id, "accept")?;
        let answered = self.ports[place].agent.answer_datagram(connection, 0, (qpn, UDP_QKEY), private);
        answered.map_err(|_| CmError::State { what: "accept", why: "the request is gone" })?;
        self.answered(id);
        self.flush();
        Ok(())
    }

    pub(crate) fn reject(&mut self, id: u64, private: &[u8]) -> Result<(), CmError> {
        private_data::check(private, private_data::REJECT)?;
        let (place, connection) = self.connection(id, "reject")?;
        let rejected = self.ports[place].agent.reject(connection, RejectReason::CONSUMER_DEFINED, private);
        rejected.map_err(|_| CmError::State { what: "reject", why: "nothing was asked for" })?;
        self.answered(id);
        self.flush();
        Ok(())
    }

    pub(crate) fn establish(&mut self, id: u64) -> Result<(), CmError> {
        let (place, connection) = self.connection(id, "establish")?;
        let established = self.ports[place].agent.establish(connection);
        established.map_err(|_| CmError::State { what: "establish", why: "the peer has not agreed" })?;
        self.flush();
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, id: u64) -> Result<(), CmError> {
        let now = self.now();
        let (place, connection) = self.connection(id, "disconnect")?;
        // What is over needs no end.
        self.ports[place].agent.disconnect(now, connection).unwrap_or_default();
        self.flush();
        Ok(())
    }

    /// The ID ends: the peer is told what it still waits for.
    pub(crate) fn destroy(&mut self, id: u64) {
        let now = self.now();
        self.answered(id);
        let Some(record) = self.ids.remove(&id) else { return };
        if let Some((place, connection)) = record.port.zip(record.connection) {
            self.by_connection.remove(&(place, connection));
            self.ports[place].agent.abandon(now, connection);
        }
        if let Some(local) = record.local.filter(|_| record.holds_port) {
            let key = (record.space, local.port());
            match self.held.get_mut(&key) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.held.remove(&key)),
            }
            if record.stage == Stage::Listening {
                for port in &mut self.ports {
                    port.agent.unlisten(record.space.service(local.port()));
                }
                let children: Vec<u64> = self
                    .ids
                    .iter()
                    .filter(|(_, child)| child.listener == Some(id))
                    .map(|(number, _)| *number)
                    .collect();
                // Requests that nobody took yet.
                let waiting = self.channels.get(&record.channel).into_iter().flatten();
                let unheard: Vec<u64> = waiting
                    .filter_map(|occurrence| match occurrence.what {
                        What::ConnectRequest { made, .. } | What::DatagramRequest { made, .. } => Some(made),
                        _ => None,
                    })
                    .filter(|made| children.contains(made))
                    .collect();
                if let Some(queue) = self.channels.get_mut(&record.channel) {
                    queue.retain(|occurrence| occurrence.id != id);
                }
                for made in unheard {
                    self.destroy(made);
                }
            }
        }
        self.flush();
    }

    /// Sends what is to be sent.
    pub(crate) fn flush(&mut self) {
        for port in &mut self.ports {
            while port.management.has_room()
                && let Some(outgoing) = port.agent.outgoing()
            {
                port.management.send(&outgoing);
            }
        }
    }

    /// Takes what came in, does what is due.
    fn work(&mut self) {
        let now = self.now();
        for place in 0..self.ports.len() {
            let Port { management, agent } = &mut self.ports[place];
            management.poll(|from, datagram| agent.receive(now, from, datagram));
            agent.run(now);
            while let Some((connection, notice)) = self.ports[place].agent.notice() {
                self.noticed(place, connection, notice);
            }
        }
        self.flush();
    }

    fn noticed(&mut self, place: usize, connection: u32, notice: Notice) {
        let what = match notice {
            Notice::Request { service, path, parameters, .. } => {
                let made = |made, parameters| What::ConnectRequest { made, parameters };
                return self.requested(place, connection, service, path, parameters, made);
            }
            Notice::DatagramRequest { service, path, private } => {
                let parameters = ConnectionParameters::default().private_data(private);
                let made = |made, parameters: ConnectionParameters| What::DatagramRequest {
                    made,
                    private_data: parameters.private_data,
                };
                return self.requested(place, connection, service, path, parameters, made);
            }
            Notice::Response { parameters } => What::ConnectResponse(parameters),
            Notice::Established { parameters } => What::Established(parameters),
            Notice::Rejected { reason, private } => What::Rejected { reason, private_data: private },
            Notice::Unreachable => What::Unreachable(Errno::ETIMEDOUT),
            Notice::Disconnected => What::Disconnected,
            Notice::TimeWaitOver => What::TimewaitExit,
            Notice::DatagramResponse { path, qpn, qkey, private } => {
                What::DatagramEstablished { path, qpn, qkey, private_data: private }
            }
            // The status where a reason would be: Linux `drivers/infiniband/core/cma.c`, `cma_sidr_rep_handler`.
            Notice::DatagramRejected { status, private } => {
                What::Rejected { reason: RejectReason(status.into()), private_data: private }
            }
        };
        if let Some(&id) = self.by_connection.get(&(place, connection)) {
            self.occur(id, what);
        }
    }

    /// Somebody asks for something that somebody listens for.
    fn requested(
        &mut self,
        place: usize,
        connection: u32,
        service: u64,
        path: Path,
        mut parameters: ConnectionParameters,
        what: impl FnOnce(u64, ConnectionParameters) -> What,
    ) {
        let now = self.now();
        let refuse = |software: &mut Self, reason| {
            let agent = &mut software.ports[place].agent;
            agent.reject(connection, reason, &[]).unwrap_or_default();
            agent.abandon(now, connection);
        };
        let Some((source, destination)) = IpHeader::read(&parameters.private_data) else {
            // Another format of private data.
            return refuse(self, RejectReason::UNSUPPORTED);
        };
        let listens = PortSpace::of_service(service).and_then(|(space, port)| {
            self.ids.iter().find_map(|(id, record)| {
                let local = record.local.filter(|local| local.port() == port)?;
                let takes = record.stage == Stage::Listening
                    && record.space == space
                    && (local.ip().is_unspecified() || local.ip() == destination);
                takes.then_some((*id, record.channel, space, SocketAddr::new(destination, port)))
            })
        });
        let Some((listener, channel, space, local)) = listens else {
            return refuse(self, RejectReason::INVALID_SERVICE_ID);
        };
        // Nobody would hear of it, or too many wait.
        let full = self.ids.get(&listener).is_none_or(|it| it.pending >= it.backlog);
        if full || !self.channels.contains_key(&channel) {
            return refuse(self, RejectReason::CONSUMER_DEFINED);
        }
        parameters.private_data.drain(..IP_HEADER_BYTES);
        let made = self.create(channel, space);
        if let Some(record) = self.ids.get_mut(&made) {
            (record.local, record.peer) = (Some(local), Some(source));
            (record.port, record.path) = (Some(place), Some(path));
            (record.connection, record.listener) = (Some(connection), Some(listener));
            record.stage = Stage::Connected;
        }
        if let Some(record) = self.ids.get_mut(&listener) {
            record.pending += 1;
        }
        self.by_connection.insert((place, connection), made);
        self.occur(listener, what(made, parameters));
    }

    /// The next event of a queue, if there is one.
    pub(crate) fn next(&mut self, channel: u64) -> Option<Occurrence> {
        self.work();
        self.channels.get_mut(&channel)?.pop_front()
    }

    /// How long nothing is due.
    pub(crate) fn idle(&self) -> Duration {
        let due = self.ports.iter().filter_map(|port| port.agent.next_due()).min();
        due.map_or(Duration::MAX, |due| due.saturating_sub(self.now()))
    }

    /// What was heard on all ports, and how many datagrams were lost before they left.
    pub(crate) fn counts(&self) -> (Counts, u64) {
        let mut sum = Counts::default();
        for port in &self.ports {
            let one = port.agent.counts();
            sum.sent += one.sent;
            sum.sent_again += one.sent_again;
            sum.received += one.received;
            sum.duplicates += one.duplicates;
            sum.malformed += one.malformed;
            sum.strange += one.strange;
            sum.refused += one.refused;
        }
        (sum, self.ports.iter().map(|port| port.management.unsent()).sum())
    }
}
