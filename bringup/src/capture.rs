//! The socket by which `pollux-dumpcap` captures what passes through the ports; see [`pollux_capture`].
//!
//! Beside telemetry's, of the same number, and there whenever that is. One thread answers all clients and waits for none of them; a new
//! capture holds it until the queues have seen it, 20 ms at most.

mod client;

use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_capture::{CLIENTS_MAX, SOCKET};
use pollux_eal::clock::Clock;
use pollux_eal::event::EventFd;
use pollux_eal::prefix_socket::{PrefixSocket, beside};
use pollux_eal::{ControlThread, Eal, EalError};
use pollux_port::PortViews;
use pollux_port::capture::Captures;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use client::Client;

/// Connections at a time: those that capture, and some that ask.
const CONNECTIONS_MAX: usize = CLIENTS_MAX + 4;
/// How long nobody is accepted after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
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
}

impl CaptureServer {
    /// Serves beside telemetry's socket, if there is one. A program that cannot be captured runs all the same, and says why in one line.
    pub(crate) fn start(eal: &Eal, ports: PortViews, captures: Captures) -> Option<Self> {
        let path = beside(&eal.telemetry().path()?, SOCKET);
        let served = Served { ports, captures, clock: eal.clock() };
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
        let listener = PrefixSocket::at(path)?;
        let end = Arc::new(EventFd::new()?);
        let ended = Arc::clone(&end);
        let thread = eal.control_thread("capture", move |_| run(&listener, &ended, &served))?;
        Ok(Self { end, thread: Some(thread) })
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
fn run(listener: &PrefixSocket, end: &EventFd, served: &Served) {
    let mut clients: Vec<Client> = Vec::new();
    let mut paused: Option<Instant> = None;
    let mut message = vec![0; pollux_capture::MESSAGE_BYTES_MAX];
    loop {
        let accepting = if paused.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut files = vec![PollFd::new(end, PollFlags::IN), PollFd::new(listener, accepting)];
        files.extend(clients.iter().map(|client| PollFd::new(client.socket(), PollFlags::IN)));
        let pause = paused.map(|until| until.saturating_duration_since(Instant::now()));
        let collect = served.captures.collect().then_some(COLLECT);
        let timeout = pause.into_iter().chain(collect).min().and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(target: "lib.pdump", "cannot wait for clients: {error}; captures end");
                return;
            }
        }
        let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
        drop(files);
        if ready[0] {
            return;
        }
        paused = paused.filter(|until| Instant::now() < *until);
        let mut capturing = clients.iter().filter(|client| client.is_capturing()).count();
        let mut client_ready = ready[2..].iter();
        clients.retain_mut(|client| {
            if !client_ready.next().is_some_and(|ready| *ready) {
                return true;
            }
            let before = usize::from(client.is_capturing());
            let stays = client.step(served, capturing, &mut message).is_ok();
            capturing = capturing - before + usize::from(stays && client.is_capturing());
            stays
        });
        if ready[1] && !accept(listener, &mut clients) {
            paused = Some(Instant::now() + PAUSE);
        }
    }
}

/// Takes in one client. When all places are taken, the one that has asked nothing for the longest time goes, but for those that capture.
/// False: nobody can be accepted for a while.
fn accept(listener: &PrefixSocket, clients: &mut Vec<Client>) -> bool {
    let socket: OwnedFd = match listener.accept() {
        Ok(socket) => socket,
        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
            tracing::warn!(target: "lib.pdump", "no file descriptor is left for a capture's client");
            return false;
        }
        // It gave up meanwhile.
        Err(_) => return true,
    };
    if clients.len() == CONNECTIONS_MAX {
        let idle = clients.iter().position(|client| !client.is_capturing());
        let Some(idle) = idle else { return true };
        clients.remove(idle);
    }
    clients.push(Client::new(socket));
    true
}
