//! Events that a thread can sleep on: an event file, and a set of files to wait for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::EalError;

/// A counter in the kernel that can be slept on. `signal` may be called from a signal handler.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter at zero.
    ///
    /// # Errors
    /// [`EalError::Event`] when no file is to be had.
    pub fn new() -> Result<Self, EalError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let file = eventfd(0, flags).map_err(failed("create an event file"))?;
        Ok(Self(file))
    }

    /// Adds one and wakes who sleeps on it.
    pub fn signal(&self) {
        // The only refusal possible is a counter at its maximum, which wakes all the same.
        let _full = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes the count back to zero and returns what it was.
    #[must_use]
    pub fn drain(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_zero) => 0,
        }
    }

    /// Sleeps until the count is above zero or `timeout` has passed; whether it is. Takes nothing off the count.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let mut files = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut files, remaining(deadline).as_ref()) {
                Ok(0) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {}
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What [`EventSet::wait`] found ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The number given with [`EventSet::add`].
    pub token: u64,
    /// Data can be read.
    pub readable: bool,
    /// The other side is gone, or the file is in error.
    pub hangup: bool,
}

/// At most this many events come from one wait; the rest stay for the next.
const READY_MAX: usize = 64;

/// Files that one thread waits for: receive queues in interrupt mode, the stop flag, a socket.
///
/// Each has a token, chosen by the caller, by which it is reported. Files are reported as long as they are readable. The set is made
/// where the files are opened, and moves to the thread that waits.
#[doc(alias = "rte_epoll_wait")]
pub struct EventSet {
    epoll: OwnedFd,
}

impl EventSet {
    /// An empty set.
    ///
    /// # Errors
    /// [`EalError::Event`] when no file is to be had.
    pub fn new() -> Result<Self, EalError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("create an event set"))?;
        Ok(Self { epoll })
    }

    /// Adds a file. It leaves the set by [`EventSet::remove`], or when its last copy is closed.
    ///
    /// # Errors
    /// [`EalError::Event`]: it is in the set already, or is of a kind that cannot be waited for.
    pub fn add(&self, file: impl AsFd, token: u64) -> Result<(), EalError> {
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.epoll, file, data, epoll::EventFlags::IN)
            .map_err(failed("add a file to an event set"))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`EalError::Event`] when it is not in the set.
    pub fn remove(&self, file: impl AsFd) -> Result<(), EalError> {
        epoll::delete(&self.epoll, file).map_err(failed("remove a file from an event set"))
    }

    /// Sleeps until a file is ready, or for `timeout` (`None`: for ever). An empty answer means the time has passed.
    ///
    /// # Errors
    /// [`EalError::Event`], which the kernel has no reason to give.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<impl Iterator<Item = Ready> + use<>, EalError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // The kernel's events stay on this stack: their token may be a pointer, which would tie the set to its thread.
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; READY_MAX];
        let count = loop {
            match epoll::wait(&self.epoll, &mut events, remaining(deadline).as_ref()) {
                Ok(0) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {}
                Ok(count) => break count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("wait for events")(errno)),
            }
        };
        Ok(events.into_iter().take(count).map(|event| {
            let flags = event.flags;
            Ready {
                token: event.data.u64(),
                readable: flags.contains(epoll::EventFlags::IN),
                hangup: flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR),
            }
        }))
    }
}

impl std::fmt::Debug for EventSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EventSet").field(&self.epoll).finish()
    }
}

/// What is left until `deadline`, as the kernel wants it; `None` is for ever.
pub(crate) fn remaining(deadline: Option<Instant>) -> Option<Timespec> {
    // A time too long for the kernel is as good as for ever.
    deadline.and_then(|deadline| Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok())
}

pub(crate) fn failed(action: &'static str) -> impl FnOnce(Errno) -> EalError {
    move |errno| EalError::Event { action, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_moves_to_the_thread_that_waits() {
        let file = std::sync::Arc::new(EventFd::new().expect("an event file"));
        let mut set = EventSet::new().expect("an event set");
        set.add(&*file, 7).expect("added");
        let waiting = std::thread::spawn(move || {
            let ready = set.wait(Some(Duration::from_secs(60))).expect("waits").next();
            let again = set.wait(Some(Duration::ZERO)).map(Iterator::count);
            (ready, again.expect("waits"))
        });
        file.signal();
        let ready = Ready { token: 7, readable: true, hangup: false };
        assert_eq!(waiting.join().expect("no panic"), (Some(ready), 1), "still readable");
    }
}
