//! An end of a stream from the first question to the last word: the ID of the connection manager, and the connection once it is there.
//!
//! ```text
//!   connect   Address ─► Route ─► Asked ───┐
//!   accept    Accepting ───────────────────┴─► Open ─► Closed
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_cm::{ConnectionParameters, EventChannel, EventKind, Id, Manager, PortSpace};
use pollux_verbs::{CompletionChannel, Errno, Mr};

use crate::connection::{Connection, Parts};
use crate::error::RsError;
use crate::message::ConnectData;
use crate::options::RsOptions;
use crate::protocol::State;
use crate::wait::Pace;

/// How long an address or a route may take to be resolved: librdmacm's programs wait as long.
const RESOLUTION: Duration = Duration::from_secs(2);
/// How long a peer that was accepted may take to say so: else it would have room in a listener for as long as its connection manager can
/// ask for time, which is hours.
const ACCEPTANCE: Duration = Duration::from_secs(10);
/// Between two looks of a socket that is closed.
const CLOSING_LOOK: Duration = Duration::from_micros(100);
/// How long a socket that is closed waits until its data have arrived.
const LINGER: Duration = Duration::from_secs(2);
/// How often it is seen whether the connection manager is to be asked, while there is a connection.
const TURNS: u32 = 64;
/// How long the kernel's manager is not asked then: that is a system call each time, as much as a small message costs.
const HEARD: Duration = Duration::from_millis(1);

#[derive(Debug)]
enum Phase {
    Address,
    Route,
    Asked(Parts),
    Accepting(Connection),
    Open(Connection),
    Closed,
}

/// What can be done without waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There are data, or their end; of a listener a connection.
    pub readable: bool,
    /// Data can be sent.
    pub writable: bool,
    /// The connection has ended.
    pub hung_up: bool,
    /// It has failed: [`take_error`](crate::RsStream::take_error) tells why.
    pub failed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct End {
    /// Goes before the ID.
    phase: Phase,
    id: Id,
    channel: EventChannel,
    peer: SocketAddr,
    pub(crate) options: RsOptions,
    turn: u32,
    /// Of questions to the connection manager while there is a connection.
    pace: Pace,
    /// When a request was posted last, or the connection asked for.
    posted: Instant,
    wrong: Option<RsError>,
}

impl End {
    /// Begins to connect.
    pub(crate) fn connect(
        manager: &Manager,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        options: &RsOptions,
    ) -> Result<Self, RsError> {
        let channel = manager.channel()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        id.resolve_address(source, peer, RESOLUTION)?;
        Ok(Self::new(manager, Phase::Address, (id, channel), peer, options))
    }

    /// Begins to accept a request for a connection.
    pub(crate) fn accept(
        manager: &Manager,
        id: Id,
        asked: ConnectionParameters,
        options: &RsOptions,
    ) -> Result<Self, RsError> {
        let peer = id.peer_address().ok_or(RsError::Ended("the peer has no address"))?;
        let data = ConnectData::decode(&asked.private_data)?;
        let channel = manager.channel()?;
        id.migrate(&channel)?;
        let mut parts = Parts::new(&id, options)?;
        let private_data = parts.private_data().to_vec();
        id.accept(parts.qp(), &ConnectionParameters { private_data, ..asked })?;
        Ok(Self::new(manager, Phase::Accepting(parts.with(&data)), (id, channel), peer, options))
    }

    fn new(
        manager: &Manager,
        phase: Phase,
        (id, channel): (Id, EventChannel),
        peer: SocketAddr,
        options: &RsOptions,
    ) -> Self {
        // The one of this process works while it is asked.
        let pace = Pace::new(if manager.is_in_process() { Duration::ZERO } else { HEARD });
        let (options, posted) = (*options, Instant::now());
        Self { phase, id, channel, peer, options, turn: 0, pace, posted, wrong: None }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// Looks at what came. `thorough`: asks the connection manager as well, which is done now and then anyway, that of the kernel no more than
    /// once in [`HEARD`].
    pub(crate) fn advance(&mut self, thorough: bool) {
        self.turn = self.turn.wrapping_add(1);
        let is_open = matches!(self.phase, Phase::Open(_));
        if !is_open || (thorough || self.turn.is_multiple_of(TURNS)) && self.pace.is_due() {
            self.hear();
            self.probe();
        }
        // The peer sends: it has heard our acceptance, whatever became of its answer.
        if let Phase::Accepting(connection) = &mut self.phase
            && connection.listen()
        {
            // The manager need not say it again, and give up at last. Where it cannot be told, it hears of the end as ever.
            self.id.notify_established().ok();
            self.open();
        }
        if let Phase::Open(connection) = &mut self.phase {
            connection.advance();
        }
    }

    /// Goes on from [`Phase::Accepting`].
    fn open(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Accepting(connection) => Phase::Open(connection),
            other => other,
        };
    }

    fn hear(&mut self) {
        loop {
            let heard = match self.channel.next() {
                Ok(Some(event)) => self.event(event.kind),
                Ok(None) => return,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = heard {
                self.fail(error);
                return;
            }
        }
    }

    fn fail(&mut self, error: RsError) {
        if let Phase::Open(connection) = &mut self.phase {
            connection.fail(error);
        } else {
            self.wrong.get_or_insert(error);
            self.phase = Phase::Closed;
        }
    }

    fn event(&mut self, kind: EventKind) -> Result<(), RsError> {
        let peer = self.peer;
        let what = kind.name();
        let unreachable = move |errno: Errno| RsError::Unreachable { peer, what, errno };
        match (&mut self.phase, kind) {
            (Phase::Address, EventKind::AddressResolved) => {
                self.id.resolve_route(RESOLUTION)?;
                self.phase = Phase::Route;
            }
            (Phase::Route, EventKind::RouteResolved) => {
                let mut parts = Parts::new(&self.id, &self.options)?;
                // As the original asks: no reads, flow control.
                let ask = ConnectionParameters {
                    responder_resources: 0,
                    initiator_depth: 0,
                    flow_control: true,
                    ..ConnectionParameters::default()
                };
                let ask = ask.private_data(parts.private_data());
                self.id.connect(parts.qp(), &ask)?;
                self.phase = Phase::Asked(parts);
            }
            (Phase::Asked(_), EventKind::ConnectResponse(answer)) => {
                let data = ConnectData::decode(&answer.private_data)?;
                if let Phase::Asked(mut parts) = std::mem::replace(&mut self.phase, Phase::Closed) {
                    self.id.establish(parts.qp())?;
                    self.phase = Phase::Open(parts.with(&data));
                }
            }
            (Phase::Accepting(_), EventKind::Established(_)) => self.open(),
            (Phase::Open(connection), EventKind::Disconnected) => {
                // What it sent before is there.
                connection.drain();
                connection.end();
            }
            (_, EventKind::AddressError(errno) | EventKind::RouteError(errno)) => {
                return Err(unreachable(errno));
            }
            (_, EventKind::ConnectError(errno) | EventKind::Unreachable(errno)) => {
                return Err(unreachable(errno));
            }
            (_, EventKind::Rejected { reason, .. }) => return Err(RsError::Refused { peer, reason }),
            (_, EventKind::Disconnected) => return Err(RsError::Ended("the peer disconnected")),
            (_, EventKind::DeviceRemoval) => return Err(RsError::Removed),
            _ => {}
        }
        Ok(())
    }

    /// Sends a keepalive where one is due.
    fn probe(&mut self) {
        if let (Phase::Open(connection), Some(after)) = (&mut self.phase, self.options.keepalive)
            && self.posted.elapsed() >= after
        {
            connection.keepalive();
            self.posted = Instant::now();
        }
    }

    fn connection(&self) -> Option<&Connection> {
        match &self.phase {
            Phase::Open(connection) => Some(connection),
            _ => None,
        }
    }

    /// Threads of the kernel do the work of the connection's device.
    pub(crate) fn is_software(&self) -> bool {
        self.connection().is_some_and(Connection::is_software)
    }

    /// The connection is made, or will not be.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.phase, Phase::Open(_) | Phase::Closed)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// One that is being accepted, and whose peer does not go on.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self.phase, Phase::Accepting(_)) && self.posted.elapsed() > ACCEPTANCE
    }

    pub(crate) fn readiness(&self) -> Readiness {
        match &self.phase {
            Phase::Open(connection) => {
                let protocol = connection.protocol();
                let state = protocol.state();
                Readiness {
                    readable: protocol.unread() > 0 || !protocol.is_reading(),
                    writable: protocol.can_send(),
                    hung_up: state == State::Ended,
                    failed: state == State::Failed,
                }
            }
            Phase::Closed => Readiness { readable: true, writable: true, hung_up: false, failed: true },
            _ => Readiness::default(),
        }
    }

    pub(crate) fn take_error(&mut self) -> Option<RsError> {
        match &mut self.phase {
            Phase::Open(connection) => connection.take_error(),
            _ => self.wrong.take(),
        }
    }

    /// Why nothing can be done now, or ever.
    fn refusal(&mut self) -> io::Error {
        match self.take_error() {
            Some(error) => error.into(),
            None if matches!(self.phase, Phase::Closed) => io::ErrorKind::NotConnected.into(),
            None => io::ErrorKind::WouldBlock.into(),
        }
    }

    pub(crate) fn read(&mut self, into: &mut [u8], peek: bool) -> io::Result<usize> {
        let Phase::Open(connection) = &mut self.phase else { return Err(self.refusal()) };
        let bytes = connection.receive(into, peek);
        if bytes > 0 || into.is_empty() {
            if !peek && connection.due() {
                self.posted = Instant::now();
            }
            return Ok(bytes);
        }
        if !connection.has_error() && !connection.protocol().is_reading() {
            return Ok(0);
        }
        Err(self.refusal())
    }

    pub(crate) fn write(&mut self, at: Option<u64>, data: &[u8]) -> io::Result<usize> {
        let Phase::Open(connection) = &mut self.phase else { return Err(self.refusal()) };
        let sent = match at {
            None => connection.send(data)?,
            Some(offset) => connection.send_at(offset, data)?,
        };
        if sent > 0 || data.is_empty() {
            if self.options.keepalive.is_some() {
                self.posted = Instant::now();
            }
            return Ok(sent);
        }
        if !connection.has_error() && !connection.protocol().is_writing() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if let Some(offset) = at.filter(|offset| !connection.protocol().is_mapped(*offset)) {
            return Err(RsError::NotMapped(offset).into());
        }
        Err(self.refusal())
    }

    pub(crate) fn map(&mut self, bytes: usize, offset: u64) -> io::Result<Arc<Mr>> {
        let Phase::Open(connection) = &mut self.phase else { return Err(self.refusal()) };
        Ok(connection.map(bytes, offset)?)
    }

    /// Whether the peer was told of all that was mapped.
    pub(crate) fn maps_told(&self) -> io::Result<()> {
        match self.connection() {
            Some(connection) if connection.are_maps_told() => Ok(()),
            Some(connection) if connection.protocol().is_writing() => Err(io::ErrorKind::WouldBlock.into()),
            // It never will be.
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub(crate) fn shut_down(&mut self, reading: bool, writing: bool) -> io::Result<()> {
        let Phase::Open(connection) = &mut self.phase else { return Err(io::ErrorKind::NotConnected.into()) };
        connection.shut_down(reading, writing);
        Ok(())
    }

    /// Everything that was sent has arrived.
    pub(crate) fn is_quiet(&self) -> bool {
        self.connection().is_none_or(|connection| connection.protocol().is_quiet())
    }

    /// Asks for an event of the connection's channel, which is returned. `None`: there is no connection.
    pub(crate) fn arm(&mut self) -> Option<CompletionChannel> {
        let (Phase::Open(connection) | Phase::Accepting(connection)) = &mut self.phase else { return None };
        if let Err(error) = connection.arm() {
            connection.fail(error);
        }
        Some(connection.channel().clone())
    }

    /// Takes the event. Whether it came.
    pub(crate) fn disarm(&mut self) -> bool {
        let (Phase::Open(connection) | Phase::Accepting(connection)) = &mut self.phase else { return false };
        connection.disarm().unwrap_or_else(|error| {
            connection.fail(error);
            true
        })
    }

    /// Ends the connection. What was sent arrives first, unless the peer does not take it.
    fn close(&mut self) {
        let Phase::Open(connection) = &mut self.phase else { return };
        let begin = Instant::now();
        connection.shut_down(true, true);
        while !connection.protocol().is_quiet() && begin.elapsed() < LINGER {
            connection.advance();
            // Nobody hears of events any more; the manager works while it is asked.
            if self.channel.next().is_err() {
                break;
            }
            std::thread::sleep(CLOSING_LOOK);
        }
        // Whether the peer is there to hear it makes no difference here.
        self.id.disconnect(connection.qp()).ok();
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
    }
}
