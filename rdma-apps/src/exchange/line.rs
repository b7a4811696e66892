//! A connection over which two programs agree before their queue pairs meet: of TCP, or whatever else has a [`Way`].
//!
//! Nothing here waits without an end: a stop request is seen within a twentieth of a second, a silent peer is given up.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::ExchangeError;

/// How often a wait looks whether it should end.
const LOOK: Duration = Duration::from_millis(20);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Asked again and again while waiting: whether to stop.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// How long the other end may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// When something of it is due: a message of the exchange, or of the test. `None`: for ever.
    pub due: Option<Duration>,
    /// While it works alone, and this end sees nothing of it.
    pub alone: Option<Duration>,
}

impl Patience {
    /// A minute, and an hour.
    pub const USUAL: Self =
        Self { due: Some(Duration::from_secs(60)), alone: Some(Duration::from_secs(3600)) };

    /// So many seconds for both, for ever with 0; what is usual where none were chosen.
    #[must_use]
    pub fn seconds(chosen: Option<u64>) -> Self {
        let limit = chosen.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        chosen.map_or(Self::USUAL, |_| Self { due: limit, alone: limit })
    }

    /// The same where the other end was told to work for so long.
    #[must_use]
    pub fn and_alone(self, longer: Duration) -> Self {
        Self { alone: self.alone.map(|alone| alone + longer), ..self }
    }
}

/// Which end this is. The client speaks first in every exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It listens.
    Server,
    /// It connects.
    Client,
}

/// What a [`Line`] goes over.
pub trait Way: std::fmt::Debug + Send {
    /// Sends a whole message.
    ///
    /// # Errors
    /// It does not get there.
    fn send(&mut self, message: &[u8]) -> std::io::Result<()>;

    /// Takes what has come of a message, as much as there is room for. 0 bytes: the other end is gone.
    ///
    /// # Errors
    /// `WouldBlock` or `TimedOut` after a moment without; others end the connection.
    fn take(&mut self, room: &mut [u8]) -> std::io::Result<usize>;

    /// Whether the other end has closed its side, or its process is gone. What it still says stays unread.
    fn is_closed(&self) -> bool;

    /// Says that this end is done. Whether it could.
    fn shut(&mut self) -> bool;

    /// Another handle, to see by whether the other end is gone.
    ///
    /// # Errors
    /// There is none left, or none of this kind.
    fn watcher(&self) -> std::io::Result<Box<dyn Way>>;

    /// Whether the originals say keys as a C structure here, in place of text.
    fn packs_keys(&self) -> bool {
        false
    }
}

impl Way for TcpStream {
    fn send(&mut self, message: &[u8]) -> std::io::Result<()> {
        self.write_all(message)
    }

    fn take(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        self.read(room)
    }

    fn is_closed(&self) -> bool {
        if self.set_nonblocking(true).is_err() {
            return true;
        }
        let seen = self.peek(&mut [0]);
        let restored = self.set_nonblocking(false);
        match seen {
            Ok(0) => true,
            Ok(_) => restored.is_err(),
            Err(error) => {
                !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) || restored.is_err()
            }
        }
    }

    fn shut(&mut self) -> bool {
        self.shutdown(std::net::Shutdown::Write).is_ok()
    }

    fn watcher(&self) -> std::io::Result<Box<dyn Way>> {
        Ok(Box::new(self.try_clone()?))
    }
}

/// A TCP port that is listened on.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// Listens on all addresses of both families, where there are two.
    ///
    /// # Errors
    /// [`ExchangeError::Listen`].
    pub fn new(port: u16) -> Result<Self, ExchangeError> {
        let all: [SocketAddr; 2] =
            [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()];
        let listen = |error| ExchangeError::Listen { port, source: error };
        let socket = TcpListener::bind(&all[..]).map_err(listen)?;
        socket.set_nonblocking(true).map_err(listen)?;
        Ok(Self { socket })
    }

    /// The port that is listened on.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.socket.local_addr().ok().map(|address| address.port())
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// [`ExchangeError`]: stopped, or the system's word.
    pub fn accept(&self, stop: Stop<'_>) -> Result<Line, ExchangeError> {
        let what = "waiting for a client";
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) => return Line::new(stream, Side::Server, plain(peer), what),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The client went away before it was taken.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(source) => return Err(ExchangeError::Broken { peer: "a client".into(), what, source }),
            }
            if stop() {
                return Err(ExchangeError::Stopped { what });
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The addresses of a host, one at least.
///
/// # Errors
/// What the system says: there is no such host, or it has none.
pub fn addresses(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    if addresses.is_empty() { Err(ErrorKind::NotFound.into()) } else { Ok(addresses) }
}

/// An IPv4 peer of a socket of both families is shown as such.
fn plain(peer: SocketAddr) -> String {
    SocketAddr::new(peer.ip().to_canonical(), peer.port()).to_string()
}

/// A connection to the other end, of TCP unless it was given another [`Way`].
#[derive(Debug)]
pub struct Line {
    way: Box<dyn Way>,
    side: Side,
    peer: String,
    patience: Patience,
    /// How long its first message may take.
    greeting: Option<Duration>,
}

impl Line {
    fn new(stream: TcpStream, side: Side, peer: String, what: &'static str) -> Result<Self, ExchangeError> {
        let set = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
        let set = set.and_then(|()| stream.set_read_timeout(Some(LOOK)));
        match set {
            Ok(()) => Ok(Self::over(Box::new(stream), side, peer)),
            Err(source) => Err(ExchangeError::Broken { peer, what, source }),
        }
    }

    /// A connection over any way, to an end that messages call `peer`.
    #[must_use]
    pub fn over(way: Box<dyn Way>, side: Side, peer: String) -> Self {
        Self { way, side, peer, patience: Patience::USUAL, greeting: None }
    }

    /// With another patience.
    #[must_use]
    pub fn with(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// The same, whose first message must come within so long.
    #[must_use]
    pub fn greeted_within(self, limit: Duration) -> Self {
        Self { greeting: Some(limit), ..self }
    }

    /// How long the other end may be silent.
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// The addresses of a host, one at least.
    ///
    /// # Errors
    /// [`ExchangeError::Resolve`].
    pub fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, ExchangeError> {
        addresses(host, port).map_err(|source| ExchangeError::Resolve { host: host.into(), source })
    }

    /// Connects to a listening end.
    ///
    /// # Errors
    /// [`ExchangeError::Resolve`], [`ExchangeError::Connect`].
    pub fn connect(host: &str, port: u16) -> Result<Self, ExchangeError> {
        let addresses = Self::addresses(host, port)?;
        let mut last = std::io::Error::from(ErrorKind::AddrNotAvailable);
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => {
                    return Self::new(stream, Side::Client, format!("{host}:{port}"), "connecting");
                }
                Err(error) => last = error,
            }
        }
        Err(ExchangeError::Connect { host: host.into(), port, source: last })
    }

    /// Which end this is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// The other end, for messages.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Sends a whole message, in one piece: the originals read with one call.
    ///
    /// # Errors
    /// [`ExchangeError::Broken`], [`ExchangeError::Closed`].
    pub fn send(&mut self, message: &[u8], what: &'static str) -> Result<(), ExchangeError> {
        self.way.send(message).map_err(|source| self.broken(source, what))
    }

    fn broken(&self, source: std::io::Error, what: &'static str) -> ExchangeError {
        let peer = self.peer.clone();
        match source.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ExchangeError::Closed { peer, what },
            _ => ExchangeError::Broken { peer, what, source },
        }
    }

    /// Receives a message of just this length, however many pieces it comes in. One that takes longer than `patience` is an error;
    /// without, only the end of the connection or a stop is.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn receive(
        &mut self,
        message: &mut [u8],
        what: &'static str,
        patience: Option<Duration>,
        stop: Stop<'_>,
    ) -> Result<(), ExchangeError> {
        // `None` is for ever, so it is not the least.
        let patience = [patience, self.greeting].into_iter().flatten().min();
        let begin = Instant::now();
        let mut got = 0;
        while got < message.len() {
            match self.way.take(&mut message[got..]) {
                Ok(0) => return Err(ExchangeError::Closed { peer: self.peer.clone(), what }),
                Ok(more) => got += more,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) =>
                {
                    if stop() {
                        return Err(ExchangeError::Stopped { what });
                    }
                    if let Some(patience) = patience
                        && begin.elapsed() > patience
                    {
                        // Some other program's short greeting, perhaps.
                        return Err(if got > 0 {
                            self.strange(&message[..got], "a longer message")
                        } else {
                            let (peer, seconds) = (self.peer.clone(), patience.as_secs());
                            ExchangeError::Silent { peer, what, seconds }
                        });
                    }
                }
                Err(source) => return Err(self.broken(source, what)),
            }
        }
        self.greeting = None;
        Ok(())
    }

    /// Exchanges messages of one length, which are due: the client speaks first, the server answers.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn swap<const LENGTH: usize>(
        &mut self,
        own: &[u8; LENGTH],
        what: &'static str,
        stop: Stop<'_>,
    ) -> Result<[u8; LENGTH], ExchangeError> {
        let mut other = [0; LENGTH];
        if self.side == Side::Client {
            self.send(own, what)?;
        }
        self.receive(&mut other, what, self.patience.due, stop)?;
        if self.side == Side::Server {
            self.send(own, what)?;
        }
        Ok(other)
    }

    /// Whether the other end has closed its side, or its process is gone. What it still says stays unread.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.way.is_closed()
    }

    /// Whether the originals say keys as a C structure here, in place of text.
    #[must_use]
    pub fn packs_keys(&self) -> bool {
        self.way.packs_keys()
    }

    /// Another handle of the connection, to watch it by while the first one is used.
    ///
    /// # Errors
    /// [`ExchangeError::Broken`]: no file descriptor is left, or it is no connection of TCP.
    pub fn watcher(&self) -> Result<Self, ExchangeError> {
        let what = "watching the connection";
        let way = self.way.watcher().map_err(|source| self.broken(source, what))?;
        let (side, peer, patience) = (self.side, self.peer.clone(), self.patience);
        Ok(Self { way, side, peer, patience, greeting: None })
    }

    /// Says that this end is done, and waits until the other one is, for a few seconds at most: what it still needs of this end,
    /// such as another acknowledgement, it gets. The originals have hung up long before.
    pub fn part(&mut self, stop: Stop<'_>) {
        const PARTING: Duration = Duration::from_secs(3);
        let begin = Instant::now();
        if self.way.shut() {
            while !self.is_closed() && !stop() && begin.elapsed() < PARTING {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// An error that shows the beginning of what was said.
    #[must_use]
    pub fn strange(&self, said: &[u8], expected: &'static str) -> ExchangeError {
        let said = &said[..said.len().min(32)];
        let end = said.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        ExchangeError::Strange {
            peer: self.peer.clone(),
            said: String::from_utf8_lossy(&said[..end]).into_owned(),
            expected,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const NEVER: Stop<'static> = &|| false;
    pub(crate) const SOON: Option<Duration> = Some(Duration::from_secs(5));

    /// Two ends of one connection.
    pub(crate) fn pair() -> (Line, Line) {
        let listener = Listener::new(0).expect("a free port");
        let port = listener.port().expect("a port");
        let client = Line::connect("127.0.0.1", port).expect("it listens");
        (client, listener.accept(NEVER).expect("a client"))
    }

    #[test]
    fn messages_arrive_whole_and_the_end_is_seen() {
        let (mut client, mut server) = pair();
        assert!(server.peer().starts_with("127.0.0.1:"), "{}", server.peer());
        client.send(b"ab", "testing").unwrap();
        client.send(b"cde", "testing").unwrap();
        let mut got = [0; 4];
        server.receive(&mut got, "testing", SOON, NEVER).unwrap();
        assert_eq!(&got, b"abcd");
        assert!(!server.is_closed() && !client.is_closed(), "an unread byte is no end");
        drop(client);
        let mut got = [0; 2];
        let error = server.receive(&mut got, "testing", SOON, NEVER).unwrap_err();
        assert!(matches!(error, ExchangeError::Closed { .. }), "{error}");
        assert!(server.is_closed());
    }

    #[test]
    fn ends_part_together() {
        let (mut client, mut server) = pair();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| server.part(NEVER));
            client.part(NEVER);
        });
        assert!(begin.elapsed() < Duration::from_secs(1), "neither waits for the other's patience");
        assert!(client.is_closed() && server.is_closed());
    }

    #[test]
    fn waits_end() {
        let listener = Listener::new(0).expect("a free port");
        let error = listener.accept(&|| true).unwrap_err();
        assert_eq!(error.to_string(), "stopped while waiting for a client");
        let (_client, mut server) = pair();
        let mut got = [0; 2];
        let error = server.receive(&mut got, "testing", None, &|| true).unwrap_err();
        assert!(matches!(error, ExchangeError::Stopped { .. }), "{error}");
        let error = server.receive(&mut got, "testing", Some(Duration::ZERO), NEVER).unwrap_err();
        assert!(matches!(error, ExchangeError::Silent { .. }), "{error}");
    }

    #[test]
    fn nobody_there_is_one_line() {
        let port = Listener::new(0).unwrap().port().unwrap();
        let error = Line::connect("127.0.0.1", port).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot connect to 127.0.0.1:{port}: Connection refused")),
            "{error}"
        );
        let taken = Listener::new(0).unwrap();
        let error = Listener::new(taken.port().unwrap()).unwrap_err().to_string();
        assert!(error.contains("cannot listen on TCP port"), "{error}");
        let error = Line::connect("no such host", 1).unwrap_err().to_string();
        assert!(error.starts_with("cannot resolve 'no such host'"), "{error}");
    }
}
