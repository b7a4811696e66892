//! The connection manager of one port: every connection's state, what is sent again, what is answered twice. It sends nothing and has
//! no clock: messages and the time are put in, messages and notices come out.
//!
//! ```text
//!   who asks    connect ─► ReqSent ── REP ─► RepReceived ── establish ─► Established ── disconnect ─► DreqSent ── DREP ─► TimeWait
//!   who waits   REQ ─► ReqReceived ── accept ─► RepSent ── RTU ─► Established ── DREQ ─► DreqReceived ── disconnect ─► TimeWait
//!   datagrams   ask ─► SidrSent ── SIDR_REP ─► gone           SIDR_REQ ─► SidrReceived ── answer ─► gone
//! ```
//!
//! Source of states, timers and of what is repeated: InfiniBand Architecture Specification, volume 1, chapter 12; Linux
//! `drivers/infiniband/core/cm.c`.

mod ask;
mod receive;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use pollux_verbs::{Connection as QpConnection, Mtu, Path};

use crate::message::BYTES;
use crate::parameters::{ConnectionParameters, RejectReason};

/// Connections that a port has at once, those that wait for their end among them: more are rejected.
const CONNECTIONS_MAX: usize = 1 << 16;

/// The transport of reliable connections. Source: Linux `drivers/infiniband/core/cm_msgs.h`, `cm_req_set_qp_type`.
const RC: u8 = 0;

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

/// Takes a key out of a table, if it leads to `local`.
fn remove_own<K: std::hash::Hash + Eq>(table: &mut HashMap<K, u32>, key: K, local: u32) {
    if table.get(&key) == Some(&local) {
        table.remove(&key);
    }
}

/// The time of a code.
fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << code.min(31))
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
    /// How often it is sent again yet.
    left: u8,
    /// The time that the peer asked for.
    grant: Option<Grant>,
}

/// Time that a peer asked for, whose answer comes once and may be lost: until then the message goes on to be sent, ever more seldom, and is
/// not given up.
#[derive(Clone, Copy, Debug)]
struct Grant {
    until: Duration,
    /// How long from one time to the next.
    pause: Duration,
}

impl Waiting {
    /// Counts a time that it is sent again. How long its answer is waited for then; none: it is given up.
    fn again(&mut self, now: Duration, every: Duration) -> Option<Duration> {
        if let Some(grant) = self.grant.as_mut().filter(|grant| now < grant.until) {
            grant.pause *= 2;
            return Some(grant.pause.min(grant.until - now));
        }
        self.grant = None;
        self.left = self.left.checked_sub(1)?;
        Some(every)
    }
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
    /// When something is to be done: what waits is sent again, what is over is forgotten.
    due: Option<Duration>,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) path: Path,
    pub(crate) own_gid: [u8; 16],
    pub(crate) service: u64,
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
        /// The peer's queue pair.
        qpn: u32,
        parameters: ConnectionParameters,
    },
    /// The peer agrees.
    Response {
        /// The peer's queue pair.
        qpn: u32,
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
    /// Datagrams that could not be sent: nobody answers for the address.
    pub unsent: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.sent_again += other.sent_again;
        self.received += other.received;
        self.duplicates += other.duplicates;
        self.malformed += other.malformed;
        self.strange += other.strange;
        self.refused += other.refused;
        self.unsent += other.unsent;
    }
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
    /// Who listens for a service.
    listeners: HashMap<u64, Vec<u64>>,
    connections: HashMap<u32, Connection>,
    /// Connections of which something is due, by when.
    due: BTreeSet<(Duration, u32)>,
    /// By the peer's device and its number of the connection.
    by_remote: HashMap<(u64, u32), u32>,
    /// By the peer's device and its queue pair.
    by_queue: HashMap<(u64, u32), u32>,
    /// Requests for datagrams that are not answered, by the peer's GID and its number of the request.
    by_request: HashMap<([u8; 16], u32), u32>,
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
            listeners: HashMap::new(),
            connections: HashMap::new(),
            due: BTreeSet::new(),
            by_remote: HashMap::new(),
            by_queue: HashMap::new(),
            by_request: HashMap::new(),
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

    /// Begins to take requests for a service. Several may listen for one, on different addresses.
    pub(crate) fn listen(&mut self, service: u64, listener: u64) {
        self.listeners.entry(service).or_default().push(listener);
    }

    /// Takes no more for it.
    pub(crate) fn unlisten(&mut self, listener: u64) {
        self.listeners.retain(|_, listeners| {
            listeners.retain(|other| *other != listener);
            !listeners.is_empty()
        });
    }

    /// Who listens for a service.
    pub(crate) fn listeners(&self, service: u64) -> &[u64] {
        self.listeners.get(&service).map_or(&[], Vec::as_slice)
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
            connection.waiting = Some(Waiting { bytes: bytes.clone(), left, grant: None });
            self.schedule(local, Some(now + every));
            self.send(to, bytes);
        }
    }

    /// Sets when something is to be done for a connection, in place of what was set before.
    fn schedule(&mut self, local: u32, due: Option<Duration>) {
        let Some(connection) = self.connections.get_mut(&local) else { return };
        if let Some(before) = std::mem::replace(&mut connection.due, due) {
            self.due.remove(&(before, local));
        }
        self.due.extend(due.map(|due| (due, local)));
    }

    /// What was sent last is answered: it is not sent again.
    fn answered(&mut self, local: u32, state: State) {
        self.schedule(local, None);
        if let Some(connection) = self.connections.get_mut(&local) {
            (connection.state, connection.waiting) = (state, None);
        }
    }

    /// A connection is over; until no packet of it is under way any more a request that comes late is known for one. The peer may connect
    /// its queue pair again: Linux `drivers/infiniband/core/cm.c`, `cm_enter_timewait`.
    fn wait_out(&mut self, now: Duration, local: u32) {
        self.answered(local, State::TimeWait);
        let Some(connection) = self.connections.get(&local) else { return };
        let key = (connection.guid, connection.remote_qpn);
        let gone = now + time_of(connection.ack_timeout) * 2;
        remove_own(&mut self.by_queue, key, local);
        self.schedule(local, Some(gone));
    }

    /// A connection came to nothing: whoever asked is told, and lets go of it.
    fn fail(&mut self, local: u32) {
        self.answered(local, State::Failed);
        let Some(connection) = self.connections.get(&local) else { return };
        let (guid, remote, owned) = (connection.guid, connection.remote, connection.owned);
        remove_own(&mut self.by_remote, (guid, remote), local);
        remove_own(&mut self.by_queue, (guid, connection.remote_qpn), local);
        remove_own(&mut self.by_request, (connection.path.gid, remote), local);
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

    /// Whether it is neither over nor has come to nothing.
    pub(crate) fn is_under_way(&self, local: u32) -> bool {
        let over = |connection: &Connection| {
            matches!(
                connection.state,
                State::DreqSent | State::DreqReceived | State::TimeWait | State::Failed
            )
        };
        self.connections.get(&local).is_some_and(|connection| !over(connection))
    }

    /// When something is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Does what is due by `now`: sends again, gives up, forgets.
    pub(crate) fn run(&mut self, now: Duration) {
        let every = self.every();
        while let Some(&(_, local)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.schedule(local, None);
            let Some(connection) = self.connections.get_mut(&local) else { continue };
            if connection.state == State::TimeWait {
                let owned = connection.owned;
                self.forget(local);
                if owned {
                    self.tell(local, Notice::TimeWaitOver);
                }
            } else if let Some(waiting) = connection.waiting.as_mut()
                && let Some(pause) = waiting.again(now, every)
            {
                let (to, bytes) = (connection.path, waiting.bytes.clone());
                self.schedule(local, Some(now + pause));
                self.counts.sent_again += 1;
                self.outgoing.push_back(Outgoing { to, bytes });
            } else {
                self.give_up(now, local);
            }
        }
    }

    /// Nobody answers.
    fn give_up(&mut self, now: Duration, local: u32) {
        let Some(connection) = self.connections.get(&local) else { return };
        let owned = connection.owned;
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

#[cfg(test)]
mod tests;
