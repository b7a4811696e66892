//! Streams.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pollux_cm::Manager;

use crate::end::{End, Readiness};
use crate::error::RsError;
use crate::map::RsMap;
use crate::options::RsOptions;
use crate::wait::{self, EventSource, Sleepers, Source};

/// A stream between two programs, as [`TcpStream`](std::net::TcpStream) is one. Reads and writes go by a shared reference too. The last
/// handle that is dropped closes it: what was written arrives first, for which it is waited two seconds at most.
#[derive(Clone, Debug)]
pub struct RsStream(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    end: Mutex<End>,
    manager: Manager,
    sleepers: Sleepers,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, End> {
        // A call leaves no change half done that another would believe.
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Shared {
    fn advance(&self, thorough: bool) {
        self.lock().advance(thorough);
    }

    fn arm(&self, events: &mut Vec<EventSource>) {
        events.extend(self.lock().arm().map(EventSource::Channel));
    }

    fn disarm(&self) -> bool {
        self.lock().disarm()
    }

    fn sleepers(&self) -> Option<&Sleepers> {
        Some(&self.sleepers)
    }

    fn is_software(&self) -> bool {
        self.lock().is_software()
    }

    fn nap(&self) -> Duration {
        wait::nap(&self.manager, self.lock().is_open())
    }
}

impl RsStream {
    /// Connects to an address, with the default options.
    ///
    /// # Errors
    /// Nothing leads there, nobody listens there, or the peer is no stream socket.
    #[doc(alias = "rconnect")]
    pub fn connect(manager: &Manager, peer: SocketAddr) -> io::Result<Self> {
        Self::connect_with(manager, None, peer, &RsOptions::default())
    }

    /// Connects, from a source address if one is given. It waits whatever the options say.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(
        manager: &Manager,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        options: &RsOptions,
    ) -> io::Result<Self> {
        let stream = Self::start_connect(manager, source, peer, options)?;
        let wrong = stream.wait(|end| end.is_decided().then(|| end.take_error()))?;
        wrong.map_or(Ok(stream), |error| Err(error.into()))
    }

    /// Begins to connect. The stream is writable when it is connected, or has failed: [`poll`](crate::poll), then
    /// [`take_error`](Self::take_error).
    ///
    /// # Errors
    /// A source that no device has, or what the connection manager says.
    pub fn start_connect(
        manager: &Manager,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        options: &RsOptions,
    ) -> io::Result<Self> {
        let end = End::connect(manager, source, peer, options)?;
        Self::of(end, manager)
    }

    pub(crate) fn of(end: End, manager: &Manager) -> io::Result<Self> {
        let sleepers = Sleepers::new()?;
        Ok(Self(Arc::new(Shared { end: Mutex::new(end), manager: manager.clone(), sleepers })))
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.0
    }

    /// What can be done now, as it was seen by the last call.
    pub(crate) fn readiness(&self) -> Readiness {
        self.0.lock().readiness()
    }

    /// Waits for something, however long it takes.
    fn wait<T>(&self, mut attempt: impl FnMut(&mut End) -> Option<T>) -> io::Result<T> {
        let spin = self.0.lock().options.spin;
        let done = wait::until(&[&*self.0], spin, None, || attempt(&mut self.0.lock()));
        done.ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// Does something at once, or waits where that is allowed.
    fn done<T>(&self, mut attempt: impl FnMut(&mut End) -> io::Result<T>) -> io::Result<T> {
        let spin = {
            let mut end = self.0.lock();
            end.advance(false);
            let first = attempt(&mut end);
            match first {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !end.options.nonblocking => {}
                other => return other,
            }
            end.options.spin
        };
        let done = wait::until(&[&*self.0], spin, None, || match attempt(&mut self.0.lock()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            other => Some(other),
        });
        done.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Reads without taking.
    ///
    /// # Errors
    /// As reads.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.done(|end| end.read(into, true))
    }

    /// Ends one direction or both; the peer reads what was sent before, then its end. Where ours ends it is waited until what was sent has
    /// arrived, two seconds at most.
    ///
    /// # Errors
    /// There is no connection.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let (reading, writing) = (how != Shutdown::Write, how != Shutdown::Read);
        self.0.lock().shut_down(reading, writing)?;
        if !writing {
            return Ok(());
        }
        let deadline = std::time::Instant::now() + Duration::from_secs(2);
        let spin = self.0.lock().options.spin;
        let is_quiet = || self.0.lock().is_quiet().then_some(());
        wait::until(&[&*self.0], spin, Some(deadline), is_quiet).ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// Another handle of the same stream.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Whether calls fail with [`WouldBlock`](io::ErrorKind::WouldBlock) where they would wait.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.lock().options.nonblocking = on;
        Ok(())
    }

    /// Small writes are sent at once whatever is said here.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn set_nodelay(&self, _on: bool) -> io::Result<()> {
        Ok(())
    }

    /// Sets after how long without a request the peer is probed: [`RsOptions::keepalive`].
    pub fn set_keepalive(&self, after: Option<Duration>) {
        self.0.lock().options.keepalive = after;
    }

    /// The options, with the changes since.
    #[must_use]
    pub fn options(&self) -> RsOptions {
        self.0.lock().options
    }

    /// Whether it has a connection over a device in software: who calls again and again there, instead of waiting, yields the processor in
    /// between ([`Provider::is_software`](pollux_verbs::Provider::is_software)).
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.0.lock().is_software()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.0.lock().peer())
    }

    /// Our address.
    ///
    /// # Errors
    /// It has none yet.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.lock().local().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Why the stream failed, once.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.lock().take_error().map(RsError::into))
    }

    /// Maps new memory for the peer to write to ([`write_at`](Self::write_at)) from `offset` on. The peer has to have room for maps
    /// ([`RsOptions::maps`]). Its program is not told: tell it by the stream. A stream that does not wait tells the peer of the map as soon as
    /// something can be sent.
    ///
    /// # Errors
    /// The peer has no room, our direction has ended, or what the device says.
    #[doc(alias = "riomap")]
    pub fn map(&self, bytes: usize, offset: u64) -> io::Result<RsMap> {
        let memory = self.0.lock().map(bytes, offset)?;
        match self.done(|end| end.maps_told()) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(RsMap { memory, offset }),
        }
    }

    /// Writes to memory that the peer mapped, past its program: it is there before what is written to the stream later is read. Returns how
    /// many bytes went, which are fewer where a map ends.
    ///
    /// # Errors
    /// Nothing is mapped there, or as writes.
    #[doc(alias = "riowrite")]
    pub fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.done(|end| end.write(Some(offset), data))
    }
}

impl Read for &RsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.done(|end| end.read(into, false))
    }
}

impl Write for &RsStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.done(|end| end.write(None, data))
    }

    /// Everything that was written is on its way already.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for RsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for RsStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
