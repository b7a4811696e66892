//! The queue pairs of a test, connected by a connection manager one after the other. Source of parameters and attempts:
//! linux-rdma/perftest `src/perftest_communication.c`, `rdma_cm_route_handler`, `rdma_cm_connection_request_handler`,
//! `rdma_cm_client_connection`.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use pollux_cm::{
    ConnectionParameters, EventChannel, EventKind, Id, IdOptions, Manager, PortSpace, RejectReason,
};
use pollux_eal::LcoreContext;
use pollux_verbs::{Ah, Path};

use super::{Listening, space};
use crate::cm::manager::{gid_of, next, resolve, unexpected};
use crate::perftest::end::End;
use crate::perftest::settings::{Kind, Settings, Verb};
use crate::rdma::Failure;

/// An original may not listen yet: it begins to when it has said so.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// How long the end of the connections may take to be agreed on.
const PARTING: Duration = Duration::from_secs(2);

/// The connections of a test's queue pairs.
#[derive(Debug)]
pub struct QueuePairs {
    channel: EventChannel,
    /// Of a server.
    listener: Option<Id>,
    local: IpAddr,
    peer: SocketAddr,
    ids: Vec<Id>,
}

impl QueuePairs {
    pub(super) fn new(
        manager: &Manager,
        listening: Option<Listening>,
        local: IpAddr,
        peer: SocketAddr,
    ) -> Result<Self, Failure> {
        let (channel, listener) = match listening {
            Some(Listening { channel, listener }) => (channel, Some(listener)),
            None => (manager.channel()?, None),
        };
        Ok(Self { channel, listener, local, peer, ids: Vec::new() })
    }

    /// The address that this end has.
    #[must_use]
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Connects all queue pairs of an end to the other end's.
    ///
    /// # Errors
    /// They cannot be.
    pub fn connect(&mut self, lcore: &LcoreContext, end: &mut End) -> Result<(), Failure> {
        let settings = end.settings.clone();
        if space(&settings) == PortSpace::Udp {
            end.ready_datagrams()?;
        }
        for number in 0..end.count() {
            let id = match self.listener {
                Some(_) => self.accept(lcore, end, number, &settings)?,
                None => self.ask(lcore, end, number, &settings)?,
            };
            self.ids.push(id);
        }
        // Whoever else asked is told that nobody listens.
        self.listener = None;
        Ok(())
    }

    /// A client's, in several attempts.
    fn ask(
        &self,
        lcore: &LcoreContext,
        end: &mut End,
        number: usize,
        settings: &Settings,
    ) -> Result<Id, Failure> {
        let mut attempts = 1..ATTEMPTS;
        loop {
            let id = self.channel.create_id(space(settings))?;
            id.set_options(id_options(settings))?;
            resolve(lcore, &self.channel, &id, None, self.peer)?;
            if space(settings) == PortSpace::Udp {
                id.connect_datagrams(&[])?;
            } else {
                let parameters = parameters(settings, end.outs, None);
                id.connect(end.qp(number), &parameters)?;
            }
            let kind = loop {
                let event = next(lcore, &self.channel)?;
                if event.id == id.number() {
                    break event.kind;
                }
            };
            match kind {
                EventKind::ConnectResponse(_) => id.establish(end.qp(number))?,
                EventKind::DatagramEstablished { path, qpn, .. } => {
                    end.send_to(Ah::new(end.pd(), &path)?);
                    if is_answered(settings) {
                        end.tell_number(number, qpn)?;
                        self.until(lcore, settings, || Ok(end.told_number()?.then_some(())))?;
                    }
                }
                kind if is_early(&kind, space(settings)) && attempts.next().is_some() => {
                    drop(id);
                    std::thread::sleep(PAUSE);
                    if lcore.stop_requested() {
                        return Err(Failure::Stopped);
                    }
                    continue;
                }
                kind => return Err(unexpected(&kind, self.peer)),
            }
            return Ok(id);
        }
    }

    /// The next request of the client's; others are rejected. That of datagrams has no parameters.
    fn request(&self, lcore: &LcoreContext) -> Result<(Id, Option<ConnectionParameters>), Failure> {
        loop {
            let (id, parameters) = match next(lcore, &self.channel)?.kind {
                EventKind::ConnectRequest { id, parameters } => (id, Some(parameters)),
                EventKind::DatagramRequest { id, .. } => (id, None),
                _ => continue,
            };
            if id.peer_address().is_some_and(|peer| peer.ip() == self.peer.ip()) {
                return Ok((id, parameters));
            }
            id.reject(&[])?;
        }
    }

    /// A server's.
    fn accept(
        &self,
        lcore: &LcoreContext,
        end: &mut End,
        number: usize,
        settings: &Settings,
    ) -> Result<Id, Failure> {
        let (id, asked) = self.request(lcore)?;
        let Some(asked) = asked else {
            let answers = is_answered(settings);
            if answers {
                end.expect_number(number)?;
            }
            id.accept_datagrams(end.qp(number), &[])?;
            if answers {
                let port = settings.options.ib_port as u8;
                let (gid_index, _) = gid_of(end.pd().context(), port, self.local)?;
                let path = self.until(lcore, settings, || end.heard_number(number, gid_index))?;
                end.send_to(Ah::new(end.pd(), &Path { port, ..path })?);
            }
            return Ok(id);
        };
        id.set_options(id_options(settings))?;
        let parameters = parameters(settings, end.outs, Some(&asked));
        id.accept(end.qp(number), &parameters)?;
        loop {
            let event = next(lcore, &self.channel)?;
            match event.kind {
                _ if event.id != id.number() => {}
                EventKind::Established(_) => return Ok(id),
                kind => return Err(Failure::Peer(format!("{} did not get through: {kind}", self.peer))),
            }
        }
    }

    /// Waits for something of the peer's. The manager goes on meanwhile.
    fn until<T>(
        &self,
        lcore: &LcoreContext,
        settings: &Settings,
        mut came: impl FnMut() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let begin = Instant::now();
        loop {
            if let Some(came) = came()? {
                return Ok(came);
            }
            while self.channel.next()?.is_some() {}
            if lcore.stop_requested() {
                return Err(Failure::Stopped);
            }
            if settings.patience().due.is_some_and(|limit| begin.elapsed() > limit) {
                let (peer, seconds) = (self.peer, begin.elapsed().as_secs());
                return Err(Failure::Peer(format!(
                    "{peer}: no datagram for {seconds} seconds; --peer-timeout sets this limit, 0 waits forever"
                )));
            }
            std::thread::yield_now();
        }
    }

    /// Ends the connections: the server does, and the client hears of it; as long as it takes, but not long.
    ///
    /// # Errors
    /// What the device says.
    pub fn part(&mut self, end: &mut End) -> Result<(), Failure> {
        if space(&end.settings) == PortSpace::Udp {
            return Ok(());
        }
        let server = end.settings.options.host.is_none();
        let begin = Instant::now();
        let mut left = self.ids.len();
        if server {
            for (number, id) in self.ids.iter().enumerate() {
                id.disconnect(end.qp(number))?;
            }
        }
        while left > 0 && begin.elapsed() < PARTING {
            let Some(event) = self.channel.wait(PAUSE)? else { continue };
            let place = self.ids.iter().position(|id| id.number() == event.id);
            if let (EventKind::Disconnected, Some(place)) = (event.kind, place) {
                left -= 1;
                if !server {
                    self.ids[place].disconnect(end.qp(place))?;
                }
            }
        }
        Ok(())
    }
}

/// Nothing acknowledges datagrams.
fn id_options(settings: &Settings) -> IdOptions {
    let options = &settings.options;
    let acknowledged = space(settings) == PortSpace::Tcp;
    IdOptions {
        type_of_service: options.tos.unwrap_or_default() as u8,
        ack_timeout: acknowledged.then_some(options.qp_timeout as u8),
        ..IdOptions::default()
    }
}

/// Whether the server of datagrams sends as well: it is told where to, since it is told of no queue pair otherwise.
fn is_answered(settings: &Settings) -> bool {
    settings.bidirectional || settings.test.kind == Kind::Latency
}

/// Whether the other end may yet listen. For datagrams it is a status: 1 is that nobody does. Source: Linux `include/rdma/ib_cm.h`,
/// `IB_SIDR_UNSUPPORTED`; `drivers/infiniband/core/cma.c`, `cma_sidr_rep_handler`.
fn is_early(kind: &EventKind, space: PortSpace) -> bool {
    match kind {
        EventKind::Rejected { reason: RejectReason::INVALID_SERVICE_ID, .. } => true,
        EventKind::Rejected { .. } | EventKind::Unreachable(_) => space == PortSpace::Udp,
        _ => false,
    }
}

/// What is said of a connection: reads and atomics only where the test has some, and no more than was asked for.
fn parameters(settings: &Settings, outs: u32, asked: Option<&ConnectionParameters>) -> ConnectionParameters {
    let reads = matches!(settings.test.verb, Verb::Read | Verb::Atomic) || settings.options.data_validation;
    let own = if reads { outs.min(255) as u8 } else { 0 };
    let retries = settings.options.retry_count as u8;
    ConnectionParameters {
        responder_resources: asked.map_or(own, |asked| own.min(asked.initiator_depth)),
        initiator_depth: asked.map_or(own, |asked| own.min(asked.responder_resources)),
        retry_count: retries,
        rnr_retry_count: retries,
        ..ConnectionParameters::default()
    }
}
