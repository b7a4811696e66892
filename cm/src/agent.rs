//! The connection manager of one port: every connection's state, what is sent again, what is answered twice. It sends nothing and has
//! no clock: messages and the time are put in, messages and notices come out.
//!
//! ```text
//!   who asks    connect ─► ReqSent ── REP ─► RepReceived ── establish ─► Established ── disconnect ─► DreqSent ── DREP ─► TimeWait
//!   who waits   REQ ─► ReqReceived ── accept ─► RepSent ── RTU ─► Established ── DREQ ─► DreqReceived ── disconnect ─► TimeWait
//!   datagrams   ask ─► SidrSent ── SIDR_REP ─► gone           SIDR_REQ ─► SidrReceived ── answer ─► TimeWait
//! ```
//!
//! Source of states, timers and of what is repeated: InfiniBand Architecture Specification, volume 1, chapter 12; Linux
//! `drivers/infiniband/core/cm.c`.

mod receive;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use pollux_verbs::{Connection as QpConnection, Mtu, Path};

use crate::message::{
    self, BYTES, Drep, Dreq, LID_PERMISSIVE, Message, Rej, Rep, Req, RoutePath, Rtu, SidrRep, SidrReq, about,
    above,
};
use crate::parameters::{ConnectionParameters, RejectReason};

/// Connections that a port has at once, those that wait for their end among them: more are rejected.
const CONNECTIONS_MAX: usize = 1 << 16;

/// How long things may take, as codes of the specification: 4.096 us x 2^n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a connection manager takes to answer, ours or the peer's.
    pub response: u8,
    /// How often a message that is not answered is sent again, 0 to 15.
    pub retries: u8,
    /// How long a packet lives.
    pub lifetime: u8,
    /// How long a program takes that was told of a request and has not answered.
    pub service: u8,
}

impl Default for Timing {
    /// An answer within a second, 15 retries; a packet's lifetime and a program's time as Linux `drivers/infiniband/core/cma.c` has them
    /// (`CMA_IBOE_PACKET_LIFETIME`, `CMA_CM_MRA_SETTING`).
    fn default() -> Self {
        Self { response: 18, retries: 15, lifetime: 16, service: 24 }
    }
}

/// The time of a code.
fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << code.min(31))
}

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Reliable,
    Unreliable,
}

impl Transport {
    /// Source: Linux `drivers/infiniband/core/cm_msgs.h`, `cm_req_set_qp_type`.
    fn code(self) -> u8 {
        match self {
            Self::Reliable => 0,
            Self::Unreliable => 1,
        }
    }
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    ReqSent,
    ReqReceived,
    RepSent,
    RepReceived,
    Established,
    DreqSent,
    DreqReceived,
    SidrSent,
    SidrReceived,
    TimeWait,
    /// It came to nothing; only whoever asked for it still knows it.
    Failed,
}

/// A message that waits for its answer.
#[derive(Clone, Debug)]
struct Waiting {
    bytes: Box<[u8; BYTES]>,
    every: Duration,
    due: Duration,
    left: u8,
}

/// One side of a connection.
#[derive(Clone, Debug)]
struct Connection {
    state: State,
    remote: u32,
    guid: u64,
    transaction: u64,
    /// To the peer.
    path: Path,
    service: u64,
    local_qpn: u32,
    remote_qpn: u32,
    /// The number with which the peer begins: what is expected here.
    receive_psn: u32,
    /// The number to begin with.
    send_psn: u32,
    mtu: Mtu,
    /// Reads that are answered at once, and that are under way.
    resources: u8,
    depth: u8,
    retries: u8,
    rnr_retries: u8,
    ack_timeout: u8,
    waiting: Option<Waiting>,
    /// What is said again to who says again what it answers.
    answer: Option<Box<[u8; BYTES]>>,
    /// A program knows it.
    owned: bool,
    /// When it is forgotten.
    until: Option<Duration>,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) path: Path,
    pub(crate) own_gid: [u8; 16],
    pub(crate) service: u64,
    pub(crate) transport: Transport,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) mtu: Mtu,
    pub(crate) parameters: ConnectionParameters,
    /// All private data, with the addresses in front.
    pub(crate) private: Vec<u8>,
    /// ACK timeout; what follows of a packet's lifetime if none is chosen.
    pub(crate) ack_timeout: Option<u8>,
}

/// What came of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Somebody asks for one.
    Request {
        service: u64,
        path: Path,
        transport: Transport,
        parameters: ConnectionParameters,
    },
    /// The peer agrees.
    Response {
        parameters: ConnectionParameters,
    },
    /// Both may send.
    Established {
        parameters: ConnectionParameters,
    },
    Rejected {
        reason: RejectReason,
        private: Vec<u8>,
    },
    /// No answer.
    Unreachable,
    Disconnected,
    /// All packets of it are gone.
    TimeWaitOver,
    /// Somebody asks which queue pair takes datagrams.
    DatagramRequest {
        service: u64,
        path: Path,
        private: Vec<u8>,
    },
    /// That one.
    DatagramResponse {
        path: Path,
        qpn: u32,
        qkey: u32,
        private: Vec<u8>,
    },
    /// None does. Source of the code: specification, table 120.
    DatagramRejected {
        status: u8,
        private: Vec<u8>,
    },
}

/// A datagram to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: Path,
    pub(crate) bytes: Box<[u8; BYTES]>,
}

/// What was heard, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages sent for the first time, answers among them.
    pub sent: u64,
    /// Messages sent again because nobody answered.
    pub sent_again: u64,
    /// Messages received.
    pub received: u64,
    /// Messages that had been received before.
    pub duplicates: u64,
    /// Datagrams that were cut, or of another class or version.
    pub malformed: u64,
    /// Messages that belong to nothing here, or that another address sent than the connection's.
    pub strange: u64,
    /// Connections rejected because nobody listens, or there are too many.
    pub refused: u64,
}

/// A call that the state of the connection does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongState;

/// See the module.
#[derive(Debug)]
pub(crate) struct Agent {
    guid: u64,
    timing: Timing,
    /// Numbers of connections are counted from here: those of an earlier process are others.
    next: u32,
    listeners: HashSet<u64>,
    connections: HashMap<u32, Connection>,
    /// By the peer's device and its number of the connection.
    by_remote: HashMap<(u64, u32), u32>,
    /// By the peer's device and its queue pair.
    by_queue: HashMap<(u64, u32), u32>,
    /// GIDs of the port, by which requests are for us.
    gids: Vec<[u8; 16]>,
    mtu: Mtu,
    outgoing: VecDeque<Outgoing>,
    notices: VecDeque<(u32, Notice)>,
    counts: Counts,
}

impl Agent {
    /// Of a device with that GUID. `seed` is another one in each process.
    pub(crate) fn new(guid: u64, timing: Timing, seed: u32) -> Self {
        // As many bits as the messages have for them.
        let timing = Timing {
            response: timing.response.min(31),
            retries: timing.retries.min(15),
            lifetime: timing.lifetime.min(30),
            service: timing.service.min(31),
        };
        Self {
            guid,
            timing,
            next: seed,
            listeners: HashSet::new(),
            connections: HashMap::new(),
            by_remote: HashMap::new(),
            by_queue: HashMap::new(),
            gids: Vec::new(),
            mtu: Mtu::Bytes1024,
            outgoing: VecDeque::new(),
            notices: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Which addresses and which MTU the port has now.
    pub(crate) fn set_port(&mut self, gids: Vec<[u8; 16]>, mtu: Mtu) {
        (self.gids, self.mtu) = (gids, mtu);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The next datagram that is to be sent.
    pub(crate) fn outgoing(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// The next thing that a program is told, and of which connection.
    pub(crate) fn notice(&mut self) -> Option<(u32, Notice)> {
        self.notices.pop_front()
    }

    /// How many connections are known.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Begins to take requests for a service, unless that is done already.
    pub(crate) fn listen(&mut self, service: u64) {
        self.listeners.insert(service);
    }

    /// Takes no more.
    pub(crate) fn unlisten(&mut self, service: u64) {
        self.listeners.remove(&service);
    }

    fn number(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            // 0 is no connection.
            if self.next != 0 && !self.connections.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    fn send(&mut self, to: Path, bytes: Box<[u8; BYTES]>) {
        self.counts.sent += 1;
        self.outgoing.push_back(Outgoing { to, bytes });
    }

    fn tell(&mut self, local: u32, notice: Notice) {
        self.notices.push_back((local, notice));
    }

    /// How long an answer is waited for before a message is sent again.
    fn every(&self) -> Duration {
        time_of(self.timing.lifetime) * 2 + time_of(self.timing.response)
    }

    /// Sends a message of a connection, and again until it is answered.
    fn send_until_answered(&mut self, now: Duration, local: u32, bytes: [u8; BYTES]) {
        let (every, left) = (self.every(), self.timing.retries);
        let bytes = Box::new(bytes);
        if let Some(connection) = self.connections.get_mut(&local) {
            let to = connection.path;
            connection.waiting = Some(Waiting { bytes: bytes.clone(), every, due: now + every, left });
            self.send(to, bytes);
        }
    }

    /// Asks for a connection: its number.
    pub(crate) fn connect(&mut self, now: Duration, ask: &Ask) -> u32 {
        let local = self.number();
        let parameters = &ask.parameters;
        let routed = ask.path.hop_limit > 1;
        let lid = if routed { LID_PERMISSIVE } else { 0 };
        let ack_timeout = ask.ack_timeout.unwrap_or(self.timing.lifetime + 1) & 0x1f;
        let primary = RoutePath {
            local_lid: lid.into(),
            remote_lid: lid.into(),
            local_gid: ask.own_gid,
            remote_gid: ask.path.gid,
            label_rate: (ask.path.flow_label << 12 | u32::from(ask.path.rate & 0x3f)).into(),
            traffic_class: ask.path.traffic_class,
            hop_limit: ask.path.hop_limit,
            level_local: ask.path.service_level << 4 | u8::from(!routed) << 3,
            ack_timeout: ack_timeout << 3,
        };
        let mut req = Req {
            local_id: local.into(),
            service: ask.service.into(),
            ca_guid: self.guid.into(),
            qpn_resources: above(ask.qpn, parameters.responder_resources),
            ee_depth: above(0, parameters.initiator_depth),
            ee_response: above(
                0,
                self.timing.response << 3 | ask.transport.code() << 1 | u8::from(parameters.flow_control),
            ),
            psn_response: above(ask.psn, self.timing.response << 3 | parameters.retry_count & 7),
            pkey: 0xffff.into(),
            mtu_rnr: ask.mtu.code() << 4 | parameters.rnr_retry_count & 7,
            retries_srq: self.timing.retries << 4,
            primary,
            ..Req::default()
        };
        message::fill(&mut req.private, &ask.private);
        let connection = Connection {
            state: State::ReqSent,
            remote: 0,
            guid: 0,
            transaction: u64::from(local),
            path: ask.path,
            service: ask.service,
            local_qpn: ask.qpn,
            remote_qpn: 0,
            receive_psn: ask.psn,
            send_psn: 0,
            mtu: ask.mtu,
            resources: parameters.responder_resources,
            depth: parameters.initiator_depth,
            retries: parameters.retry_count,
            rnr_retries: parameters.rnr_retry_count,
            ack_timeout,
            waiting: None,
            answer: None,
            owned: true,
            until: None,
        };
        self.connections.insert(local, connection);
        let bytes = Message::Req(Box::new(req)).encode(u64::from(local));
        self.send_until_answered(now, local, bytes);
        local
    }

    /// Agrees to what was asked for.
    pub(crate) fn accept(
        &mut self,
        now: Duration,
        local: u32,
        (qpn, psn): (u32, u32),
        parameters: &ConnectionParameters,
    ) -> Result<(), WrongState> {
        let guid = self.guid;
        let connection = self.connections.get_mut(&local).ok_or(WrongState)?;
        if connection.state != State::ReqReceived {
            return Err(WrongState);
        }
        connection.state = State::RepSent;
        (connection.local_qpn, connection.receive_psn) = (qpn, psn);
        (connection.resources, connection.depth) =
            (parameters.responder_resources, parameters.initiator_depth);
        let mut rep = Rep {
            local_id: local.into(),
            remote_id: connection.remote.into(),
            qpn: above(qpn, 0),
            psn: above(psn, 0),
            resources: parameters.responder_resources,
            depth: parameters.initiator_depth,
            delay_flow: u8::from(parameters.flow_control),
            rnr_srq: (parameters.rnr_retry_count & 7) << 5,
            ca_guid: guid.into(),
            ..Rep::default()
        };
        message::fill(&mut rep.private, &parameters.private_data);
        let bytes = Message::Rep(Box::new(rep)).encode(connection.transaction);
        self.send_until_answered(now, local, bytes);
        Ok(())
    }

    /// Says that the peer's agreement was heard: both may send.
    pub(crate) fn establish(&mut self, local: u32) -> Result<(), WrongState> {
        let connection = self.connections.get_mut(&local).ok_or(WrongState)?;
        if connection.state != State::RepReceived {
            return Err(WrongState);
        }
        connection.state = State::Established;
        let rtu = Rtu { local_id: local.into(), remote_id: connection.remote.into(), ..Rtu::default() };
        let bytes = Box::new(Message::Rtu(Box::new(rtu)).encode(connection.transaction));
        connection.answer = Some(bytes.clone());
        let to = connection.path;
        self.send(to, bytes);
        Ok(())
    }

    /// Says no to who asks, or to who agreed. It is forgotten.
    pub(crate) fn reject(
        &mut self,
        local: u32,
        reason: RejectReason,
        private: &[u8],
    ) -> Result<(), WrongState> {
        let connection = self.connections.get(&local).ok_or(WrongState)?;
        let message = match connection.state {
            State::ReqReceived => about::REQ,
            State::RepReceived => about::REP,
            State::ReqSent => about::OTHER,
            State::SidrReceived => {
                // Source of the status: Linux `include/rdma/ib_cm.h`, `IB_SIDR_REJECT`.
                return self.answer_datagram(local, 2, (0, 0), private);
            }
            _ => return Err(WrongState),
        };
        let mut rej = Rej {
            // Who only asked knows no number of ours.
            local_id: if message == about::REQ { 0.into() } else { local.into() },
            remote_id: connection.remote.into(),
            message: message << 6,
            reason: reason.0.into(),
            ..Rej::default()
        };
        if reason == RejectReason::TIMEOUT {
            // By which the peer finds what it was that we asked for.
            rej.info[..8].copy_from_slice(&self.guid.to_be_bytes());
            rej.info_bytes = 8 << 1;
            rej.local_id = local.into();
        }
        message::fill(&mut rej.private, private);
        let (to, bytes) =
            (connection.path, Box::new(Message::Rej(Box::new(rej)).encode(connection.transaction)));
        self.send(to, bytes);
        self.forget(local);
        Ok(())
    }

    /// Ends a connection, or agrees to its end.
    pub(crate) fn disconnect(&mut self, now: Duration, local: u32) -> Result<(), WrongState> {
        let connection = self.connections.get_mut(&local).ok_or(WrongState)?;
        match connection.state {
            // Before its RTU came a connection may be used, and be ended.
            State::Established | State::RepSent => {
                connection.state = State::DreqSent;
                let dreq = Dreq {
                    local_id: local.into(),
                    remote_id: connection.remote.into(),
                    qpn: above(connection.remote_qpn, 0),
                    ..Dreq::default()
                };
                let bytes = Message::Dreq(Box::new(dreq)).encode(u64::from(local));
                self.send_until_answered(now, local, bytes);
                Ok(())
            }
            State::DreqReceived => {
                self.agree_to_end(now, local);
                Ok(())
            }
            _ => Err(WrongState),
        }
    }

    /// Answers a DREQ.
    fn agree_to_end(&mut self, now: Duration, local: u32) {
        let Some(connection) = self.connections.get_mut(&local) else { return };
        let drep = Drep { local_id: local.into(), remote_id: connection.remote.into(), ..Drep::default() };
        let bytes = Box::new(Message::Drep(Box::new(drep)).encode(connection.transaction));
        connection.answer = Some(bytes.clone());
        let to = connection.path;
        self.send(to, bytes);
        self.wait_out(now, local);
    }

    /// A connection is over; until no packet of it is under way any more a request that comes late is known for one. The peer may connect
    /// its queue pair again: Linux `drivers/infiniband/core/cm.c`, `cm_enter_timewait`.
    fn wait_out(&mut self, now: Duration, local: u32) {
        if let Some(connection) = self.connections.get_mut(&local) {
            connection.state = State::TimeWait;
            connection.waiting = None;
            connection.until = Some(now + time_of(connection.ack_timeout) * 2);
            let key = (connection.guid, connection.remote_qpn);
            if self.by_queue.get(&key) == Some(&local) {
                self.by_queue.remove(&key);
            }
        }
    }

    /// A connection came to nothing: whoever asked is told, and lets go of it.
    fn fail(&mut self, local: u32) {
        let Some(connection) = self.connections.get_mut(&local) else { return };
        (connection.state, connection.waiting) = (State::Failed, None);
        let (guid, remote, qpn, owned) =
            (connection.guid, connection.remote, connection.remote_qpn, connection.owned);
        for (table, key) in [(&mut self.by_remote, (guid, remote)), (&mut self.by_queue, (guid, qpn))] {
            if table.get(&key) == Some(&local) {
                table.remove(&key);
            }
        }
        if !owned {
            self.connections.remove(&local);
        }
    }

    /// Forgets a connection at once.
    fn forget(&mut self, local: u32) {
        if let Some(connection) = self.connections.get_mut(&local) {
            connection.owned = false;
        }
        self.fail(local);
    }

    /// The program lets go of it, in whatever state it is: the peer is told what it still waits for. Source: Linux
    /// `drivers/infiniband/core/cm.c`, `cm_destroy_id`.
    pub(crate) fn abandon(&mut self, now: Duration, local: u32) {
        let Some(connection) = self.connections.get_mut(&local) else { return };
        connection.owned = false;
        match connection.state {
            State::ReqSent => self.reject(local, RejectReason::TIMEOUT, &[]).unwrap_or_default(),
            State::ReqReceived | State::RepReceived | State::SidrReceived => {
                self.reject(local, RejectReason::CONSUMER_DEFINED, &[]).unwrap_or_default();
            }
            State::RepSent | State::Established | State::DreqReceived => {
                self.disconnect(now, local).unwrap_or_default();
            }
            State::SidrSent | State::Failed => self.forget(local),
            // They end by themselves.
            State::DreqSent | State::TimeWait => {}
        }
    }

    /// Asks which queue pair takes datagrams of a service: the number of the request.
    pub(crate) fn ask_for_datagrams(
        &mut self,
        now: Duration,
        path: Path,
        service: u64,
        private: &[u8],
    ) -> u32 {
        let local = self.number();
        let mut request = SidrReq {
            request: local.into(),
            pkey: 0xffff.into(),
            service: service.into(),
            ..SidrReq::default()
        };
        message::fill(&mut request.private, private);
        let transaction = u64::from(local);
        self.connections
            .insert(local, Connection::of_datagrams(State::SidrSent, path, service, 0, transaction));
        let bytes = Message::SidrReq(Box::new(request)).encode(transaction);
        self.send_until_answered(now, local, bytes);
        local
    }

    /// Tells which one does (status 0), or that none does.
    pub(crate) fn answer_datagram(
        &mut self,
        local: u32,
        status: u8,
        (qpn, qkey): (u32, u32),
        private: &[u8],
    ) -> Result<(), WrongState> {
        let connection = self.connections.get_mut(&local).ok_or(WrongState)?;
        if connection.state != State::SidrReceived {
            return Err(WrongState);
        }
        let mut answer = SidrRep {
            request: connection.remote.into(),
            status,
            qpn: above(qpn, 0),
            service: connection.service.into(),
            qkey: qkey.into(),
            ..SidrRep::default()
        };
        message::fill(&mut answer.private, private);
        let bytes = Box::new(Message::SidrRep(Box::new(answer)).encode(connection.transaction));
        let to = connection.path;
        self.send(to, bytes);
        // A request that comes again is a new one: its answer may be another.
        self.forget(local);
        Ok(())
    }

    /// What a queue pair of the connection is made with, as far as it is known.
    pub(crate) fn connection(&self, local: u32) -> Option<QpConnection> {
        let connection = self.connections.get(&local)?;
        let known = matches!(
            connection.state,
            State::ReqReceived | State::RepSent | State::RepReceived | State::Established
        );
        known.then(|| QpConnection {
            rq_psn: connection.receive_psn,
            sq_psn: connection.send_psn,
            mtu: connection.mtu,
            max_rd_atomic: connection.depth,
            max_dest_rd_atomic: connection.resources,
            min_rnr_timer: 0,
            timeout: connection.ack_timeout,
            retries: connection.retries,
            rnr_retries: connection.rnr_retries,
            ..QpConnection::new(connection.path, connection.remote_qpn)
        })
    }

    /// When something is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let due = |connection: &Connection| {
            connection.waiting.as_ref().map(|waiting| waiting.due).into_iter().chain(connection.until).min()
        };
        self.connections.values().filter_map(due).min()
    }

    /// Does what is due by `now`: sends again, gives up, forgets.
    pub(crate) fn run(&mut self, now: Duration) {
        let is_due = |connection: &Connection| {
            connection.waiting.as_ref().is_some_and(|waiting| waiting.due <= now)
                || connection.until.is_some_and(|until| until <= now)
        };
        let mut due: Vec<u32> =
            self.connections.iter().filter(|(_, it)| is_due(it)).map(|(local, _)| *local).collect();
        // The same run twice does the same.
        due.sort_unstable();
        for local in due {
            let Some(connection) = self.connections.get_mut(&local) else { continue };
            if connection.until.is_some() {
                let owned = connection.owned;
                self.forget(local);
                if owned {
                    self.tell(local, Notice::TimeWaitOver);
                }
            } else if let Some(waiting) = connection.waiting.as_mut()
                && let Some(left) = waiting.left.checked_sub(1)
            {
                (waiting.left, waiting.due) = (left, now + waiting.every);
                let (to, bytes) = (connection.path, waiting.bytes.clone());
                self.counts.sent_again += 1;
                self.outgoing.push_back(Outgoing { to, bytes });
            } else {
                self.give_up(now, local);
            }
        }
    }

    /// Nobody answers.
    fn give_up(&mut self, now: Duration, local: u32) {
        let Some(connection) = self.connections.get_mut(&local) else { return };
        let owned = connection.owned;
        connection.waiting = None;
        let notice = match connection.state {
            State::DreqSent => {
                self.wait_out(now, local);
                Notice::Disconnected
            }
            _ => {
                self.fail(local);
                Notice::Unreachable
            }
        };
        if owned {
            self.tell(local, notice);
        }
    }
}

impl Connection {
    /// What is known of a request for datagrams.
    fn of_datagrams(state: State, path: Path, service: u64, remote: u32, transaction: u64) -> Self {
        Self {
            state,
            remote,
            guid: 0,
            transaction,
            path,
            service,
            local_qpn: 0,
            remote_qpn: 0,
            receive_psn: 0,
            send_psn: 0,
            mtu: Mtu::Bytes1024,
            resources: 0,
            depth: 0,
            retries: 0,
            rnr_retries: 0,
            ack_timeout: 0,
            waiting: None,
            answer: None,
            owned: true,
            until: None,
        }
    }
}

#[cfg(test)]
mod tests;
