//! Waiting for several sockets at once.

use std::io;
use std::time::{Duration, Instant};

use crate::datagram::RsDatagramSocket;
use crate::end::Readiness;
use crate::listener::RsListener;
use crate::stream::RsStream;
use crate::wait::{self, Source};

/// What is waited for of a socket, and what came of it.
#[derive(Debug)]
pub struct PollEntry<'a> {
    socket: Socket<'a>,
    readable: bool,
    writable: bool,
    readiness: Readiness,
}

#[derive(Debug)]
enum Socket<'a> {
    Stream(&'a RsStream),
    Listener(&'a RsListener),
    Datagrams(&'a RsDatagramSocket),
}

impl<'a> PollEntry<'a> {
    /// Of a stream: whether data to be read, and room for more, are waited for. Its end always is.
    #[must_use]
    pub fn stream(stream: &'a RsStream, readable: bool, writable: bool) -> Self {
        Self { socket: Socket::Stream(stream), readable, writable, readiness: Readiness::default() }
    }

    /// Of a listener: a connection.
    #[must_use]
    pub fn listener(listener: &'a RsListener) -> Self {
        let socket = Socket::Listener(listener);
        Self { socket, readable: true, writable: false, readiness: Readiness::default() }
    }

    /// Of a datagram socket: whether a datagram, and room for one more, are waited for. What is wrong always is.
    #[must_use]
    pub fn datagrams(socket: &'a RsDatagramSocket, readable: bool, writable: bool) -> Self {
        Self { socket: Socket::Datagrams(socket), readable, writable, readiness: Readiness::default() }
    }

    /// What can be done, of what was waited for.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.readiness
    }

    fn source(&self) -> &'a dyn Source {
        match self.socket {
            Socket::Stream(stream) => stream.source(),
            Socket::Listener(listener) => listener.source(),
            Socket::Datagrams(socket) => socket.source(),
        }
    }

    /// Looks again. Whether anything that is waited for can be done.
    fn look(&mut self) -> bool {
        let found = match self.socket {
            Socket::Stream(stream) => stream.readiness(),
            Socket::Listener(listener) => listener.readiness(),
            Socket::Datagrams(socket) => socket.readiness(),
        };
        self.readiness = Readiness {
            readable: found.readable && self.readable,
            writable: found.writable && self.writable,
            ..found
        };
        self.readiness != Readiness::default()
    }
}

/// Waits until something can be done with one of the sockets, and returns with how many. 0: not in time.
///
/// # Errors
/// None; what is wrong with a socket is in its readiness.
#[doc(alias = "rpoll")]
pub fn poll(entries: &mut [PollEntry<'_>], timeout: Option<Duration>) -> io::Result<usize> {
    let sources: Vec<&dyn Source> = entries.iter().map(PollEntry::source).collect();
    let spin = entries.iter().map(|entry| match entry.socket {
        Socket::Stream(stream) => stream.options().spin,
        Socket::Datagrams(socket) => socket.spin(),
        Socket::Listener(_) => Duration::ZERO,
    });
    let spin = spin.max().unwrap_or_default();
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let ready = wait::until(&sources, spin, deadline, || {
        let ready = entries.iter_mut().filter_map(|entry| entry.look().then_some(())).count();
        (ready > 0).then_some(ready)
    });
    Ok(ready.unwrap_or(0))
}
