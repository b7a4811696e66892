//! The socket by which `pollux-dumpcap` captures what passes through the ports; see [`pollux_capture`].
//!
//! Beside telemetry's, of the same number, and there whenever that is. One thread answers all clients and waits for none of them. The
//! beginning and the end of a capture hold it for as long as the bursts that are under way then: microseconds, unless an lcore was preempted within one.

mod client;

use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_capture::{CLIENTS_MAX, SOCKET};
use pollux_eal::clock::Clock;
use pollux_eal::event::EventFd;
use pollux_eal::prefix_socket::{Gone, PrefixSocket, Service, beside, serve};
use pollux_eal::socket_file::SocketFileError;
use pollux_eal::{ControlThread, Eal, EalError};
use pollux_port::PortViews;
use pollux_port::capture::Captures;
use rustix::event::PollFlags;

use client::Client;

/// Connections at a time: those that capture, and some that ask.
const CONNECTIONS_MAX: usize = CLIENTS_MAX + 4;
/// How long a process that is ending has to let go of its socket.
const TAKEOVER: Duration = Duration::from_millis(500);
/// How often memory of captures that ended is looked at, while queues hold it.
const COLLECT: Duration = Duration::from_millis(50);

/// The thread that serves captures; it ends, and all captures with it, when this is dropped.
#[derive(Debug)]
pub(crate) struct CaptureServer {
    end: Arc<EventFd>,
    thread: Option<ControlThread<()>>,
}

/// What it knows of the program.
struct Served {
    ports: PortViews,
    captures: Captures,
    clock: Clock,
    /// Room for a request.
    message: Vec<u8>,
    /// One clone for each client that captures.
    capturing: Arc<()>,
}

impl Served {
    fn new(ports: PortViews, captures: Captures, clock: Clock) -> Self {
        let message = vec![0; pollux_capture::MESSAGE_BYTES_MAX];
        Self { ports, captures, clock, message, capturing: Arc::default() }
    }
}

impl CaptureServer {
    /// Serves beside telemetry's socket, if there is one. A program that cannot be captured runs all the same, and says why in one line.
    pub(crate) fn start(eal: &Eal, ports: PortViews, captures: Captures) -> Option<Self> {
        let path = beside(&eal.telemetry().path()?, SOCKET);
        let served = Served::new(ports, captures, eal.clock());
        match Self::serve(eal, &path, served) {
            Ok(server) => Some(server),
            Err(error) => {
                let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
                tracing::warn!(target: "lib.pdump", "no captures: {error}{cause} (--no-telemetry does without)");
                None
            }
        }
    }

    fn serve(eal: &Eal, path: &Path, served: Served) -> Result<Self, EalError> {
        let listener = listen(path)?;
        let end = Arc::new(EventFd::new()?);
        let ended = Arc::clone(&end);
        let thread = eal.control_thread("capture", move |_| run(&listener, &ended, served))?;
        Ok(Self { end, thread: Some(thread) })
    }
}

/// Makes the socket; one that another process has is waited for: telemetry's of the same number was free, so that one is ending. A
/// process that is killed loses its sockets one after the other.
fn listen(path: &Path) -> Result<PrefixSocket, EalError> {
    let end = Instant::now() + TAKEOVER;
    loop {
        match PrefixSocket::at(path) {
            Err(EalError::PrefixSocket(SocketFileError::InUse(_))) if Instant::now() < end => {
                std::thread::sleep(TAKEOVER / 100);
            }
            other => return other,
        }
    }
}

impl Drop for CaptureServer {
    fn drop(&mut self) {
        self.end.signal();
        if let Some(thread) = self.thread.take() {
            // Its panic is reported by the EAL.
            let _ended = thread.wait();
        }
    }
}

/// Serves until `end` is signalled.
fn run(listener: &PrefixSocket, end: &EventFd, mut served: Served) {
    if let Err(error) = serve(listener, end, &mut served) {
        tracing::error!(target: "lib.pdump", "cannot wait for clients: {error}; captures end");
    }
}

impl Service for Served {
    type Client = Client;
    const CLIENTS_MAX: usize = CONNECTIONS_MAX;

    fn welcome(&mut self, socket: OwnedFd) -> Result<Client, Gone> {
        Ok(Client::new(socket))
    }

    fn waits_for(client: &Client) -> (BorrowedFd<'_>, PollFlags) {
        (client.socket().as_fd(), PollFlags::IN)
    }

    fn step(&mut self, client: &mut Client) -> Result<(), Gone> {
        client.step(self)
    }

    /// The one that has asked nothing for the longest time goes, but for those that capture.
    fn gives_way(client: &Client) -> bool {
        !client.is_capturing()
    }

    fn say_no_files(&self) {
        tracing::warn!(target: "lib.pdump", "no file descriptor is left for a capture's client");
    }

    fn tend(&mut self) -> Option<Duration> {
        self.captures.collect().then_some(COLLECT)
    }
}

#[cfg(test)]
mod tests;
