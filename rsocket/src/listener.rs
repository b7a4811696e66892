//! Listeners.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pollux_cm::{EventChannel, EventKind, Id, IdOptions, Manager, PortSpace};

use crate::end::{End, Readiness};
use crate::error::RsError;
use crate::options::RsOptions;
use crate::stream::RsStream;
use crate::wait::{self, EventSource, Sleepers, Source};

/// How many connections may be under way or unaccepted, if nothing else is said.
const BACKLOG: usize = 128;

/// A socket that accepts connections, as [`TcpListener`](std::net::TcpListener) is one.
#[derive(Debug)]
pub struct RsListener {
    listening: Mutex<Listening>,
    manager: Manager,
}

#[derive(Debug)]
struct Listening {
    /// Those that are not accepted, in order.
    ends: Vec<End>,
    id: Id,
    channel: EventChannel,
    backlog: usize,
    options: RsOptions,
    /// What the manager said.
    wrong: Option<RsError>,
}

impl Listening {
    fn advance(&mut self, manager: &Manager) {
        loop {
            match self.channel.next() {
                Ok(None) => break,
                Ok(Some(event)) => match event.kind {
                    // Dropped, it is rejected; so is who does not speak the protocol.
                    EventKind::ConnectRequest { id, parameters } if self.ends.len() < self.backlog => {
                        match End::accept(manager, id, parameters, &self.options) {
                            Ok(end) => self.ends.push(end),
                            Err(error) => {
                                tracing::debug!(target: "lib.rsocket", "a connection was rejected: {error}");
                            }
                        }
                    }
                    EventKind::DeviceRemoval => self.wrong = Some(RsError::Removed),
                    _ => {}
                },
                Err(error) => {
                    self.wrong = Some(error.into());
                    break;
                }
            }
        }
        self.ends.iter_mut().for_each(|end| end.advance(true));
        // Who did not get through is nobody's.
        self.ends.retain(|end| end.is_open() || !(end.is_decided() || end.is_stale()));
    }

    fn take(&mut self) -> io::Result<End> {
        if let Some(at) = self.ends.iter().position(End::is_open) {
            return Ok(self.ends.remove(at));
        }
        Err(match &self.wrong {
            // The manager tells it once, and every call is to hear it.
            Some(RsError::Removed) => RsError::Removed.into(),
            _ => self.wrong.take().map_or_else(|| io::ErrorKind::WouldBlock.into(), RsError::into),
        })
    }
}

impl Source for RsListener {
    fn advance(&self, _thorough: bool) {
        self.lock().advance(&self.manager);
    }

    fn arm(&self, _events: &mut Vec<EventSource>) {}

    fn disarm(&self) -> bool {
        false
    }

    fn sleepers(&self) -> Option<&Sleepers> {
        None
    }

    /// It waits for the connection manager.
    fn is_software(&self) -> bool {
        false
    }

    fn nap(&self) -> Duration {
        wait::nap(&self.manager, false)
    }
}

impl RsListener {
    /// Listens on an address with the default options; port 0 is any that is free.
    ///
    /// # Errors
    /// An address of no device, a port in use.
    #[doc(alias = "rlisten")]
    pub fn bind(manager: &Manager, address: SocketAddr) -> io::Result<Self> {
        Self::bind_with(manager, address, BACKLOG, &RsOptions::default())
    }

    /// Listens on an address. Up to `backlog` connections wait to be accepted; others are refused. The streams have the options.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with(
        manager: &Manager,
        address: SocketAddr,
        backlog: usize,
        options: &RsOptions,
    ) -> io::Result<Self> {
        let listen = || -> Result<Listening, RsError> {
            let channel = manager.channel()?;
            let id = channel.create_id(PortSpace::Tcp)?;
            id.set_options(IdOptions { reuse_address: true, ..IdOptions::default() })?;
            id.bind(address)?;
            let backlog = backlog.max(1);
            id.listen(u32::try_from(backlog).unwrap_or(u32::MAX))?;
            Ok(Listening { ends: Vec::new(), id, channel, backlog, options: *options, wrong: None })
        };
        Ok(Self { listening: Mutex::new(listen()?), manager: manager.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Listening> {
        // A call leaves no change half done that another would believe.
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn source(&self) -> &dyn Source {
        self
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let listening = self.lock();
        let readable = listening.wrong.is_some() || listening.ends.iter().any(End::is_open);
        Readiness { readable, failed: listening.wrong.is_some(), ..Readiness::default() }
    }

    /// Waits for the next connection. One who asks and does not go on holds up nobody.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) where it is not to wait, or what the manager says.
    #[doc(alias = "raccept")]
    pub fn accept(&self) -> io::Result<(RsStream, SocketAddr)> {
        let options = self.lock().options;
        let attempt = || match self.lock().take() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !options.nonblocking => None,
            other => Some(other),
        };
        let taken = wait::until(&[self], options.spin, None, attempt);
        let end = taken.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
        let peer = end.peer();
        Ok((RsStream::of(end, &self.manager)?, peer))
    }

    /// Whether [`accept`](Self::accept) fails with [`WouldBlock`](io::ErrorKind::WouldBlock) where it would wait; so do the streams.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.lock().options.nonblocking = on;
        Ok(())
    }

    /// Sets the options of streams to come.
    pub fn set_options(&self, options: &RsOptions) {
        self.lock().options = *options;
    }

    /// Its address, with the port that it was given.
    ///
    /// # Errors
    /// It has none.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.lock().id.local_address().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}
