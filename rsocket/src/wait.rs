//! Waiting: polls for a moment, then sleeps until a completion or until it is time to ask the connection manager again.

use std::time::{Duration, Instant};

use pollux_cm::Manager;
use pollux_verbs::CompletionChannel;
use rustix::event::{PollFd, PollFlags, Timespec};

/// What is waited for.
pub(crate) trait Source {
    /// Looks at what came; `thorough`: of the connection manager as well.
    fn advance(&self, thorough: bool);
    /// Asks for an event, and says of which channel, if it has one.
    fn arm(&self) -> Option<CompletionChannel>;
    /// Takes the event.
    fn disarm(&self);
    /// How long it may sleep.
    fn nap(&self) -> Duration;
}

/// How long who waits for a connection manager sleeps, which raises no event here, and who has a connection.
pub(crate) fn nap(manager: &Manager, has_connection: bool) -> Duration {
    // The manager of this process counts; it works while it is asked.
    let is_ours = manager.counts().is_some();
    Duration::from_micros(match (is_ours, has_connection) {
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
    loop {
        sources.iter().for_each(|source| source.advance(false));
        if let Some(done) = attempt() {
            return Some(done);
        }
        let now = Instant::now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            return None;
        }
        if now.duration_since(begin) < spin {
            std::hint::spin_loop();
            continue;
        }
        let channels: Vec<CompletionChannel> = sources.iter().filter_map(|source| source.arm()).collect();
        // What came before makes no event.
        sources.iter().for_each(|source| source.advance(true));
        if let Some(done) = attempt() {
            return Some(done);
        }
        let nap = sources.iter().map(|source| source.nap()).min().unwrap_or(Duration::from_millis(1));
        sleep(&channels, left.map_or(nap, |left| nap.min(left)));
        sources.iter().for_each(|source| source.disarm());
    }
}

fn sleep(channels: &[CompletionChannel], time: Duration) {
    let mut fds: Vec<PollFd<'_>> =
        channels.iter().map(|channel| PollFd::new(channel, PollFlags::IN)).collect();
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
    // Interrupted, it is as if it had been short.
    rustix::event::poll(&mut fds, Some(&time)).ok();
}
