//! One thread for all clients of a socket. None of them can hold it up: nothing here waits but [`poll`].

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::PrefixSocket;
use crate::event::EventFd;

/// How long nobody is accepted after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The client is gone, or is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// What is done for the clients of a socket.
pub trait Service {
    /// A client that is connected.
    type Client;
    /// Clients at a time.
    const CLIENTS_MAX: usize;

    /// Takes in a client, whose socket does not block.
    ///
    /// # Errors
    /// [`Gone`] already.
    fn welcome(&mut self, socket: OwnedFd) -> Result<Self::Client, Gone>;

    /// The socket of a client, and whether it is to be read from or written to next.
    fn waits_for(client: &Self::Client) -> (BorrowedFd<'_>, PollFlags);

    /// Answers a client whose socket is ready, without waiting for it.
    ///
    /// # Errors
    /// [`Gone`]: the client is dropped.
    fn step(&mut self, client: &mut Self::Client) -> Result<(), Gone>;

    /// Whether a client may be dropped in favour of one that waits to be accepted, when all places are taken.
    fn gives_way(client: &Self::Client) -> bool;

    /// Says that nobody can be accepted for a while, for want of file descriptors.
    fn say_no_files(&self);

    /// Does what is to be done from time to time; how long until the next time at most.
    fn tend(&mut self) -> Option<Duration> {
        None
    }
}

/// Serves the clients of a socket until `end` is signalled; they are dropped then.
///
/// # Errors
/// The kernel's answer when it does not let this wait for clients any more.
pub fn serve<S: Service>(listener: &PrefixSocket, end: &EventFd, service: &mut S) -> Result<(), Errno> {
    let mut clients: Vec<S::Client> = Vec::new();
    let mut paused: Option<Instant> = None;
    loop {
        let accepting = if paused.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut files = vec![PollFd::new(end, PollFlags::IN), PollFd::new(listener, accepting)];
        files.extend(
            clients.iter().map(S::waits_for).map(|(file, flags)| PollFd::from_borrowed_fd(file, flags)),
        );
        let pause = paused.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = pause.into_iter().chain(service.tend()).min();
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
        drop(files);
        if ready[0] {
            return Ok(());
        }
        paused = paused.filter(|until| Instant::now() < *until);
        let mut client_ready = ready[2..].iter();
        clients.retain_mut(|client| {
            !client_ready.next().is_some_and(|ready| *ready) || service.step(client).is_ok()
        });
        if ready[1] && !accept(listener, service, &mut clients) {
            paused = Some(Instant::now() + PAUSE);
        }
    }
}

/// Takes in one client, or turns it away when all places are taken. False: nobody can be accepted for a while.
fn accept<S: Service>(listener: &PrefixSocket, service: &mut S, clients: &mut Vec<S::Client>) -> bool {
    let socket = match listener.accept() {
        Ok(socket) => socket,
        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
            service.say_no_files();
            return false;
        }
        // It gave up meanwhile.
        Err(_) => return true,
    };
    if clients.len() >= S::CLIENTS_MAX {
        let Some(place) = clients.iter().position(S::gives_way) else { return true };
        clients.remove(place);
    }
    clients.extend(service.welcome(socket));
    true
}
