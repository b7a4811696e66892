//! `-R` and `-z`: the ends meet by address, through a connection manager.
//!
//! ```text
//!   conversation   what the ends else say over TCP, as messages of a queue pair of its own       -R, -z
//!   queue_pairs    the test's queue pairs, connected by the manager as well                      -R
//! ```
//!
//! Both are connections to the same port. Source of the course of events: linux-rdma/perftest `src/perftest_communication.c`,
//! `rdma_client_connect`, `rdma_server_connect`, `create_rdma_cm_connection`.

mod conversation;
mod queue_pairs;

use std::cell::RefCell;
use std::net::SocketAddr;

use pollux_bringup::RdmaDevice;
use pollux_bringup::program::say;
use pollux_cm::{EventChannel, Id, Manager, PortSpace};
use pollux_eal::LcoreContext;

use super::options::Connection;
use super::settings::Settings;
use crate::cm::address::Format;
use crate::cm::manager::{listen, request};
use crate::exchange::line::Patience;
use crate::exchange::{Line, Side};
use crate::rdma::Failure;
use conversation::Conversation;
pub use queue_pairs::QueuePairs;

/// Where the ends of a test meet by address: a server waits there, as long as it takes.
#[derive(Debug)]
pub struct ByAddress {
    manager: Manager,
    /// Who waits for this end.
    peer: Option<SocketAddr>,
    local: SocketAddr,
    patience: Patience,
    listening: RefCell<Option<Listening>>,
}

/// A port that is listened on.
#[derive(Debug)]
struct Listening {
    channel: EventChannel,
    listener: Id,
}

impl Listening {
    fn new(manager: &Manager, space: PortSpace, local: SocketAddr) -> Result<Self, Failure> {
        let channel = manager.channel()?;
        let listener = listen(&channel, space, local)?;
        Ok(Self { channel, listener })
    }
}

impl ByAddress {
    /// With the host that was typed, or without one with whoever comes.
    ///
    /// # Errors
    /// The host has no address.
    pub fn new(manager: Manager, settings: &Settings) -> Result<Self, Failure> {
        let options = &settings.options;
        let format = if options.ipv6_addr { Format::Ipv6 } else { Format::Name };
        let port = options.port as u16;
        let host = format.read_given(options.host.as_deref(), "server")?;
        let local = SocketAddr::new(format.any(), port);
        let peer = host.map(|host| SocketAddr::new(host, port));
        Ok(Self { manager, peer, local, patience: settings.patience(), listening: RefCell::default() })
    }

    /// Begins to listen, if this end does.
    ///
    /// # Errors
    /// Another program listens on that port.
    pub fn listen(&self) -> Result<(), Failure> {
        let mut listening = self.listening.borrow_mut();
        if self.peer.is_none() && listening.is_none() {
            *listening = Some(Listening::new(&self.manager, PortSpace::Tcp, self.local)?);
        }
        Ok(())
    }

    /// Connects to the other end, or waits for one, and how its queue pairs will be connected.
    ///
    /// # Errors
    /// Nobody to meet.
    pub fn line(
        &self,
        lcore: &LcoreContext,
        device: &RdmaDevice,
        settings: &Settings,
    ) -> Result<(Line, QueuePairs), Failure> {
        self.listen()?;
        let (conversation, further) = match self.peer {
            Some(peer) => (Conversation::ask(lcore, &self.manager, peer, settings)?, None),
            None => {
                let Some(Listening { channel, listener }) = self.listening.take() else {
                    return Err(Failure::Error("nothing listens for the client".into()));
                };
                let (id, parameters) = request(lcore, &channel)?;
                // The next requests are those of the queue pairs.
                drop(listener);
                let space = space(settings);
                let further = (settings.options.rdma_cm)
                    .then(|| Listening::new(&self.manager, space, self.local))
                    .transpose()?;
                (Conversation::answer(lcore, channel, id, &parameters, settings)?, further)
            }
        };
        conversation.check_device(device)?;
        let addresses = conversation.addresses();
        let (Some(local), Some(peer)) = addresses else {
            return Err(Failure::Error("the connection has no addresses".into()));
        };
        let side = if self.peer.is_some() { Side::Client } else { Side::Server };
        let line = Line::over(Box::new(conversation), side, peer.to_string()).with(self.patience);
        Ok((line, QueuePairs::new(&self.manager, further, local.ip(), self.peer.unwrap_or(peer))?))
    }

    /// Meets the other end, as [`Appointment::meet`](crate::rdma::Appointment::meet) does over TCP.
    ///
    /// # Errors
    /// What the attempt says, of a client or where the other end is not to blame.
    pub fn meet<T>(&self, mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        self.listen()?;
        loop {
            match attempt() {
                Err(Failure::Peer(line)) if self.peer.is_none() => {
                    say(format_args!("{line}; still listening on port {}", self.local.port()));
                }
                outcome => return outcome,
            }
        }
    }
}

/// Where the test's queue pairs listen.
fn space(settings: &Settings) -> PortSpace {
    if settings.connection == Connection::Ud { PortSpace::Udp } else { PortSpace::Tcp }
}
