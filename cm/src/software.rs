//! The connection manager in this process: IDs, ports and addresses above an [`Agent`] for each port of a device. It works while it is
//! asked for events, and has no thread.

mod address;
mod group;
mod port_table;
mod resolution;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use pollux_uverbs::abi::flags::{Access, QpState};
use pollux_verbs::{Context, Errno, Path, QpAttributes, random_psn};
use zerocopy::IntoBytes;

use crate::agent::{Agent, Ask, Counts, Notice, Timing};
use crate::error::CmError;
use crate::management::ManagementPort;
use crate::occurrence::{Occurrence, What};
use crate::parameters::{ConnectionParameters, IdOptions, RejectReason};
use crate::service::{IP_HEADER_BYTES, IpHeader, PortSpace, gid_of};
use port_table::PortTable;
use resolution::Resolution;

/// The key of queue pairs of datagrams. Source: Linux `include/rdma/rdma_cm.h`, `RDMA_UDP_QKEY`.
pub(crate) const UDP_QKEY: u32 = 0x0123_4567;

/// Where an ID is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Bound,
    /// It is looked for who leads to its peer.
    Resolving,
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
    options: IdOptions,
    /// Multicast groups that it is in.
    groups: Vec<IpAddr>,
}

#[derive(Debug)]
struct Port {
    management: ManagementPort,
    agent: Agent,
}

/// Where a request goes, and what it says.
#[derive(Debug)]
struct Route {
    path: Path,
    own_gid: [u8; 16],
    service: u64,
    /// All private data, with the addresses in front.
    private: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Software {
    ports: Vec<Port>,
    ids: HashMap<u64, Record>,
    by_connection: HashMap<(usize, u32), u64>,
    channels: HashMap<u64, VecDeque<Occurrence>>,
    /// Channels to which something was added.
    eventful: BTreeSet<u64>,
    held: PortTable,
    /// Addresses that are looked for.
    resolutions: Vec<Resolution>,
    next: u64,
    begin: Instant,
}

const GONE: &str = "the ID was made by another manager";

/// A request that is taken.
struct Admitted {
    /// Who listens for it.
    listener: u64,
    /// Who asks, and for which address.
    source: SocketAddr,
    local: SocketAddr,
    /// What its ID is made in.
    channel: u64,
    space: PortSpace,
}

impl Software {
    pub(crate) fn new(ports: Vec<ManagementPort>, timing: Timing) -> Self {
        let ports = ports
            .into_iter()
            .map(|management| {
                let agent = Agent::new(management.guid(), timing, RandomState::new().hash_one(()) as u32);
                Port { management, agent }
            })
            .collect();
        let mut software = Self {
            ports,
            ids: HashMap::new(),
            by_connection: HashMap::new(),
            channels: HashMap::new(),
            eventful: BTreeSet::new(),
            held: PortTable::default(),
            resolutions: Vec::new(),
            next: 0,
            begin: Instant::now(),
        };
        software.look_at_ports();
        software
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
        let unheard = self.channels.remove(&channel).unwrap_or_default();
        self.eventful.remove(&channel);
        self.destroy_made(unheard);
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
            options: IdOptions::default(),
            groups: Vec::new(),
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
            self.eventful.insert(record.channel);
        }
    }

    /// Events of the ID go to another queue, those that wait as well.
    pub(crate) fn migrate(&mut self, id: u64, to: u64) -> Result<(), CmError> {
        let from = std::mem::replace(&mut self.record(id)?.channel, to);
        let moved = self.take_occurrences(from, id);
        let made: Vec<u64> = moved.iter().filter_map(Occurrence::made).collect();
        self.channels.entry(to).or_default().extend(moved);
        self.eventful.insert(to);
        // IDs of requests that nobody heard of go where those are told.
        made.into_iter().try_for_each(|made| self.migrate(made, to))
    }

    /// Channels to which something was added since this was called last.
    pub(crate) fn take_eventful(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.eventful).into_iter().collect()
    }

    /// Takes what waits to be told of an ID out of a queue.
    fn take_occurrences(&mut self, channel: u64, id: u64) -> VecDeque<Occurrence> {
        let Some(queue) = self.channels.get_mut(&channel) else { return VecDeque::new() };
        let (taken, stays) = std::mem::take(queue).into_iter().partition(|occurrence| occurrence.id == id);
        *queue = stays;
        taken
    }

    pub(crate) fn set_options(&mut self, id: u64, options: IdOptions) -> Result<(), CmError> {
        self.record(id)?.options = options;
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

    /// What the queue pair of the ID is made with in a state. Before there is a connection, and of datagrams always, that is the same for all
    /// states. Source: Linux `drivers/infiniband/core/cma.c`, `rdma_init_qp_attr`, `cma_ib_init_qp_attr`.
    pub(crate) fn qp_attributes(&mut self, id: u64, state: QpState) -> Result<QpAttributes, CmError> {
        let why = "the ID has no connection that far: connect, or wait for a response";
        let unknown = CmError::State { what: "tell attributes of a queue pair", why };
        let record = self.record(id)?;
        let (space, connection) = (record.space, record.connection);
        let Some(place) = record.port else { return Err(unknown) };
        let port = &self.ports[place];
        let begun = QpAttributes {
            port: Some(port.management.port()),
            pkey_index: Some(0),
            ..QpAttributes::state(state)
        };
        let connection = match (space, connection) {
            (PortSpace::Udp, _) => return Ok(QpAttributes { qkey: Some(UDP_QKEY), ..begun }),
            (PortSpace::Tcp, None) => return Ok(QpAttributes { access: Some(Access::empty()), ..begun }),
            (PortSpace::Tcp, Some(connection)) => connection,
        };
        let known = port.agent.connection(connection);
        let mut attributes = QpAttributes::state(state);
        match (state, known) {
            (QpState::INIT, known) if port.agent.is_under_way(connection) => {
                attributes = begun;
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
        qpn: u32,
        parameters: &ConnectionParameters,
    ) -> Result<(), CmError> {
        let now = self.now();
        let (place, route) = self.route(id, &parameters.private_data)?;
        let ack_timeout = self.record(id)?.options.ack_timeout;
        let port = &mut self.ports[place];
        let ask = Ask {
            path: route.path,
            own_gid: route.own_gid,
            service: route.service,
            qpn,
            psn: random_psn(),
            mtu: port.management.mtu()?,
            parameters: parameters.clone(),
            private: route.private,
            ack_timeout,
        };
        let connection = port.agent.connect(now, &ask);
        self.begin(id, place, connection)
    }

    /// Asks which queue pair takes datagrams.
    pub(crate) fn connect_datagrams(&mut self, id: u64, private: &[u8]) -> Result<(), CmError> {
        let now = self.now();
        let (place, route) = self.route(id, private)?;
        let agent = &mut self.ports[place].agent;
        let connection = agent.ask_for_datagrams(now, route.path, route.service, &route.private);
        self.begin(id, place, connection)
    }

    /// Where a request goes and what it says, and on which port.
    fn route(&mut self, id: u64, private: &[u8]) -> Result<(usize, Route), CmError> {
        let record = self.record(id)?;
        let resolved = (record.stage == Stage::RouteResolved).then_some((record.local, record.peer));
        let (Some((Some(local), Some(peer))), Some(place), Some(path)) = (resolved, record.port, record.path)
        else {
            return Err(CmError::State { what: "connect", why: "resolve address and route first" });
        };
        let private = [IpHeader::new(local, peer.ip()).as_bytes(), private].concat();
        let service = record.space.service(peer.port());
        Ok((place, Route { path, own_gid: gid_of(local.ip()), service, private }))
    }

    /// The ID has asked.
    fn begin(&mut self, id: u64, place: usize, connection: u32) -> Result<(), CmError> {
        self.by_connection.insert((place, connection), id);
        let record = self.record(id)?;
        (record.stage, record.connection) = (Stage::Connected, Some(connection));
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
        let now = self.now();
        let (place, connection) = self.connection(id, "accept")?;
        let accepted = self.ports[place].agent.accept(now, connection, qpn, parameters);
        accepted.map_err(|_| CmError::State { what: "accept", why: "the request is gone" })?;
        self.answered(id);
        self.flush();
        Ok(())
    }

    pub(crate) fn accept_datagrams(&mut self, id: u64, qpn: u32, private: &[u8]) -> Result<(), CmError> {
        let (place, connection) = self.connection(id, "accept")?;
        let answered = self.ports[place].agent.answer_datagram(connection, 0, (qpn, UDP_QKEY), private);
        answered.map_err(|_| CmError::State { what: "accept", why: "the request is gone" })?;
        self.answered(id);
        self.flush();
        Ok(())
    }

    pub(crate) fn reject(&mut self, id: u64, private: &[u8]) -> Result<(), CmError> {
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
        self.resolutions.retain(|resolution| resolution.id != id);
        if let Some(local) = record.local {
            self.held.release(record.space, local.port(), id);
        }
        if record.stage == Stage::Listening {
            for port in &mut self.ports {
                port.agent.unlisten(id);
            }
        }
        // What is told of it is of no use, and requests that nobody took go as well.
        let unheard = self.take_occurrences(record.channel, id);
        self.destroy_made(unheard);
        self.flush();
    }

    /// Ends the IDs of requests that nobody heard of.
    fn destroy_made(&mut self, unheard: impl IntoIterator<Item = Occurrence>) {
        for occurrence in unheard {
            if let Some(made) = occurrence.made() {
                self.destroy(made);
            }
        }
    }

    /// Sends what is to be sent.
    pub(crate) fn flush(&mut self) {
        for port in &mut self.ports {
            while port.management.has_room()
                && let Some(outgoing) = port.agent.outgoing()
            {
                port.management.send(outgoing);
            }
            port.management.send_held();
        }
    }

    /// Takes what came in, does what is due; whether anything came of it.
    pub(crate) fn work(&mut self) -> bool {
        let now = self.now();
        let mut any = false;
        for place in 0..self.ports.len() {
            let Port { management, agent } = &mut self.ports[place];
            management.poll(|from, datagram| agent.receive(now, from, datagram));
            agent.run(now);
            while let Some((connection, notice)) = self.ports[place].agent.notice() {
                any = true;
                self.noticed(place, connection, notice);
            }
        }
        any |= self.resolve();
        self.flush();
        any
    }

    fn noticed(&mut self, place: usize, connection: u32, notice: Notice) {
        let what = match notice {
            Notice::Request { service, path, qpn, parameters } => {
                let made = |made, parameters| What::ConnectRequest { made, qpn, parameters };
                return self.requested((place, connection), service, path, parameters, made);
            }
            Notice::DatagramRequest { service, path, private } => {
                let parameters = ConnectionParameters::default().private_data(private);
                let made = |made, parameters: ConnectionParameters| What::DatagramRequest {
                    made,
                    private_data: parameters.private_data,
                };
                return self.requested((place, connection), service, path, parameters, made);
            }
            Notice::Response { qpn, parameters } => What::ConnectResponse { qpn, parameters },
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

    /// Somebody asks for a service.
    fn requested(
        &mut self,
        (place, connection): (usize, u32),
        service: u64,
        path: Path,
        mut parameters: ConnectionParameters,
        what: impl FnOnce(u64, ConnectionParameters) -> What,
    ) {
        let listeners = self.ports[place].agent.listeners(service);
        let Admitted { listener, source, local, channel, space } =
            match self.admit(listeners, &parameters.private_data) {
                Ok(admitted) => admitted,
                Err(reason) => {
                    let now = self.now();
                    let agent = &mut self.ports[place].agent;
                    agent.reject(connection, reason, &[]).unwrap_or_default();
                    return agent.abandon(now, connection);
                }
            };
        parameters.private_data.drain(..IP_HEADER_BYTES);
        self.ports[place].agent.expect(connection, random_psn());
        let made = self.create(channel, space);
        if let Some(record) = self.ids.get_mut(&made) {
            (record.local, record.peer) = (Some(local), Some(source));
            // Who is asked for datagrams has no way back of its own.
            (record.port, record.path) = (Some(place), (space == PortSpace::Tcp).then_some(path));
            (record.connection, record.listener) = (Some(connection), Some(listener));
            record.stage = Stage::Connected;
        }
        if let Some(record) = self.ids.get_mut(&listener) {
            record.pending += 1;
        }
        self.by_connection.insert((place, connection), made);
        self.occur(listener, what(made, parameters));
    }

    /// Who of those that listen takes a request.
    fn admit(&self, listeners: &[u64], private: &[u8]) -> Result<Admitted, RejectReason> {
        // Else another format of private data.
        let (source, destination) = IpHeader::read(private).ok_or(RejectReason::UNSUPPORTED)?;
        let meant = listeners.iter().find_map(|&listener| {
            let record = self.ids.get(&listener)?;
            let local = record.local?;
            let is_meant = if local.ip().is_unspecified() {
                // Source: Linux `drivers/infiniband/core/cma.c`, `cma_match_private_data`.
                !record.options.own_family_only || local.is_ipv4() == destination.is_ipv4()
            } else {
                local.ip() == destination
            };
            is_meant.then_some((listener, record, local.port()))
        });
        let (listener, record, port) = meant.ok_or(RejectReason::INVALID_SERVICE_ID)?;
        // Too many wait, or nobody would hear of it.
        if record.pending >= record.backlog || !self.channels.contains_key(&record.channel) {
            return Err(RejectReason::CONSUMER_DEFINED);
        }
        let local = SocketAddr::new(destination, port);
        Ok(Admitted { listener, source, local, channel: record.channel, space: record.space })
    }

    /// The next event of a queue, if there is one.
    pub(crate) fn next(&mut self, channel: u64) -> Option<Occurrence> {
        self.work();
        self.take(channel)
    }

    /// The same, of what is known already.
    pub(crate) fn take(&mut self, channel: u64) -> Option<Occurrence> {
        self.channels.get_mut(&channel)?.pop_front()
    }

    /// Looks at it, and leaves it there.
    pub(crate) fn peek(&self, channel: u64) -> Option<&Occurrence> {
        self.channels.get(&channel)?.front()
    }

    /// The queue pair of a connection has received from the peer, whose RTU may be lost: both may send. Source: Linux
    /// `drivers/infiniband/core/cm.c`, `cm_establish`. Whether that was news.
    pub(crate) fn established_by_data(&mut self, id: u64) -> Result<bool, CmError> {
        let (place, connection) = self.connection(id, "notify")?;
        let established = self.ports[place].agent.established_by_data(connection);
        established.map_err(|_| CmError::State { what: "notify", why: "the connection is not half open" })
    }

    /// Whether an event waits.
    pub(crate) fn has_events(&self, channel: u64) -> bool {
        self.channels.get(&channel).is_some_and(|queue| !queue.is_empty())
    }

    /// The GUID of the ID's device, and its port.
    pub(crate) fn node(&self, id: u64) -> Option<(u64, u8)> {
        let port = &self.ports[self.ids.get(&id)?.port?].management;
        Some((port.guid(), port.port()))
    }

    /// The way of the ID, with the port's MTU as a code, once it is a route.
    pub(crate) fn path(&self, id: u64) -> Result<Option<(Path, u8)>, CmError> {
        let has_route = |record: &&Record| matches!(record.stage, Stage::RouteResolved | Stage::Connected);
        let record = self.ids.get(&id).filter(has_route);
        let Some((path, port)) = record.and_then(|record| record.path.zip(record.port)) else {
            return Ok(None);
        };
        Ok(Some((path, self.ports[port].management.mtu()?.code())))
    }

    /// How long nothing is due.
    pub(crate) fn idle(&self) -> Duration {
        let due = self.ports.iter().filter_map(|port| port.agent.next_due()).min();
        due.map_or(Duration::MAX, |due| due.saturating_sub(self.now()))
    }

    /// What was heard and said on all ports.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for port in &self.ports {
            sum += Counts { unsent: port.management.unsent(), ..port.agent.counts() };
        }
        sum
    }
}
