//! Waiting: polls for a moment, then sleeps until a completion or until it is time to ask the connection manager again.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pollux_cm::Manager;
use pollux_verbs::CompletionChannel;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

/// What is waited for.
pub(crate) trait Source {
    /// Looks at what came; `thorough`: of the connection manager as well, at its pace.
    fn advance(&self, thorough: bool);
    /// Asks for events, and says of which descriptors, if it has some.
    fn arm(&self, events: &mut Vec<EventSource>);
    /// Takes the event. Whether it came.
    fn disarm(&self) -> bool;
    /// Those who sleep until its event comes, if there can be several: there is one event for all.
    fn sleepers(&self) -> Option<&Sleepers>;
    /// Whether what is waited for is done by threads of the kernel, which need a processor.
    fn is_software(&self) -> bool;
    /// How long it may sleep.
    fn nap(&self) -> Duration;
}

/// Whose event ends a sleep.
#[derive(Debug)]
pub(crate) enum EventSource {
    /// Completions.
    Channel(CompletionChannel),
    /// Control messages of datagram sockets.
    Udp(Arc<UdpSocket>),
}

impl AsFd for EventSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Channel(channel) => channel.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

/// Threads that sleep until the same event. Whoever takes it wakes the others: what it told of may be theirs.
#[derive(Debug)]
pub(crate) struct Sleepers {
    /// How many there are.
    count: AtomicU64,
    /// One read each.
    wake: OwnedFd,
}

impl Sleepers {
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self { count: AtomicU64::new(0), wake: rustix::event::eventfd(0, flags)? })
    }

    fn join(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Leaves, and wakes the others if it took the event.
    fn leave(&self, took: bool) {
        let others = self.count.fetch_sub(1, Ordering::SeqCst) - 1;
        if took && others > 0 {
            // Of a counter that is full all are awake.
            let _told = rustix::io::write(&self.wake, &others.to_ne_bytes());
        }
    }

    /// Takes one wake, of a thread that it has woken: of one that was awake already it is left, and is a look too many for another.
    fn woken(&self) {
        let mut one = [0; 8];
        let _another_was_faster = rustix::io::read(&self.wake, &mut one);
    }
}

/// Lets something happen no more often than once in a while: what costs a system call, and is looked for while others poll.
#[derive(Debug)]
pub(crate) struct Pace {
    pause: Duration,
    last: Instant,
}

impl Pace {
    pub(crate) fn new(pause: Duration) -> Self {
        Self { pause, last: Instant::now() }
    }

    /// Whether it is due, which begins the next pause.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now.duration_since(self.last) >= self.pause;
        if is_due {
            self.last = now;
        }
        is_due
    }
}

/// How long who waits for a connection manager sleeps, which raises no event here, and who has a connection.
pub(crate) fn nap(manager: &Manager, has_connection: bool) -> Duration {
    // The manager of this process counts; it works while it is asked.
    Duration::from_micros(match (manager.is_in_process(), has_connection) {
        (true, false) => 200,
        (true, true) | (false, false) => 1000,
        (false, true) => 20_000,
    })
}

/// Waits until `attempt` has something. `None` after the deadline.
pub(crate) fn until<T>(
    sources: &[&dyn Source],
    spin: Duration,
    deadline: Option<Instant>,
    mut attempt: impl FnMut() -> Option<T>,
) -> Option<T> {
    let begin = Instant::now();
    let sleepers: Vec<&Sleepers> = sources.iter().filter_map(|source| source.sleepers()).collect();
    let is_software = sources.iter().any(|source| source.is_software());
    let mut events: Vec<EventSource> = Vec::new();
    loop {
        sources.iter().for_each(|source| source.advance(false));
        if let Some(done) = attempt() {
            return Some(done);
        }
        let now = Instant::now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            // Who does not wait any more is told of all that came.
            sources.iter().for_each(|source| source.advance(true));
            return attempt();
        }
        if now.duration_since(begin) < spin {
            if is_software {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            continue;
        }
        events.clear();
        sources.iter().for_each(|source| source.arm(&mut events));
        sleepers.iter().for_each(|sleepers| sleepers.join());
        // What came before makes no event.
        sources.iter().for_each(|source| source.advance(true));
        let done = attempt();
        if done.is_some() {
            wake_up(sources);
            return done;
        }
        let nap = sources.iter().map(|source| source.nap()).min().unwrap_or(Duration::from_millis(1));
        sleep(&events, &sleepers, left.map_or(nap, |left| nap.min(left)));
        wake_up(sources);
    }
}

fn wake_up(sources: &[&dyn Source]) {
    for source in sources {
        let took = source.disarm();
        if let Some(sleepers) = source.sleepers() {
            sleepers.leave(took);
        }
    }
}

fn sleep(events: &[EventSource], sleepers: &[&Sleepers], time: Duration) {
    let wakes = sleepers.iter().map(|sleepers| PollFd::new(&sleepers.wake, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> =
        events.iter().map(|event| PollFd::new(event, PollFlags::IN)).chain(wakes).collect();
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
    // Interrupted, it is as if it had been short.
    if rustix::event::poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0) {
        let wakes = fds.iter().skip(events.len()).zip(sleepers);
        wakes.filter(|(fd, _)| fd.revents().contains(PollFlags::IN)).for_each(|(_, all)| all.woken());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_pace_is_kept() {
        let mut often = Pace::new(Duration::ZERO);
        assert!(often.is_due() && often.is_due());
        let mut seldom = Pace::new(Duration::from_secs(3600));
        assert!(!seldom.is_due());
        seldom.last -= Duration::from_secs(3600);
        assert!(seldom.is_due() && !seldom.is_due());
    }

    /// A source whose event is a nap that ends: whoever naps shortly takes it.
    struct Event<'a> {
        sleepers: &'a Sleepers,
        came: &'a AtomicBool,
        nap: Duration,
    }

    impl Source for Event<'_> {
        fn advance(&self, _thorough: bool) {}

        fn arm(&self, _events: &mut Vec<EventSource>) {}

        fn disarm(&self) -> bool {
            self.nap < Duration::from_secs(1) && !self.came.swap(true, Ordering::SeqCst)
        }

        fn sleepers(&self) -> Option<&Sleepers> {
            Some(self.sleepers)
        }

        fn is_software(&self) -> bool {
            false
        }

        fn nap(&self) -> Duration {
            self.nap
        }
    }

    #[test]
    fn whoever_takes_the_event_wakes_the_others() {
        let (sleepers, came) = (Sleepers::new().expect("a descriptor"), AtomicBool::new(false));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for nap in [Duration::from_millis(200), Duration::from_secs(30), Duration::from_secs(30)] {
                let event = Event { sleepers: &sleepers, came: &came, nap };
                scope.spawn(move || {
                    let attempt = || event.came.load(Ordering::SeqCst).then_some(());
                    until(&[&event], Duration::ZERO, None, attempt)
                });
            }
        });
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
}
