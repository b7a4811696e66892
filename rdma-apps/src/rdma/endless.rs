//! Waits that end: by what is waited for, by a signal, or because the other end is gone.

use std::time::{Duration, Instant};

use pollux_eal::LcoreContext;

use super::Failure;
use crate::exchange::Line;

/// Empty polls between two looks at flag and socket.
const LOOK: u32 = 4096;
/// Empty polls after which the core is offered to others: nobody takes it on a core of one's own; where lcores and the threads of a
/// device model share cores, what is waited for may need this one.
const OFFER: u32 = 512;
/// Empty polls between two offers.
const OFFER_EACH: u32 = 32;
/// How often the socket is asked.
const ASK: Duration = Duration::from_millis(50);

/// Watches over a loop that polls.
#[derive(Debug)]
pub struct Watch<'a> {
    lcore: &'a LcoreContext,
    line: Option<&'a Line>,
    /// How long nothing may come once the peer closed the connection. perftest's stay connected; rdma-core's pingpongs hang up before
    /// they begin.
    patience: Duration,
    /// How long nothing may come in any case.
    limit: Option<Duration>,
    empty: u32,
    rounds: u32,
    since: Option<Instant>,
    asked: Option<Instant>,
}

impl<'a> Watch<'a> {
    /// Over a loop of that lcore, the other end of which is at `line`.
    #[must_use]
    pub fn new(lcore: &'a LcoreContext, line: Option<&'a Line>, patience: Duration) -> Self {
        let limit = line.and_then(|line| line.patience().due);
        Self { lcore, line, patience, limit, empty: 0, rounds: 0, since: None, asked: None }
    }

    /// With another limit to how long nothing may come, which is else that of the line.
    #[must_use]
    pub fn within(self, limit: Option<Duration>) -> Self {
        Self { limit, ..self }
    }

    /// Says that something came.
    ///
    /// # Errors
    /// A stop.
    #[inline(always)]
    pub fn came(&mut self) -> Result<(), Failure> {
        self.empty = 0;
        self.since = None;
        self.round()
    }

    /// Says that nothing came.
    ///
    /// # Errors
    /// It never will: a stop, or the other end is gone.
    #[inline(always)]
    pub fn empty(&mut self) -> Result<(), Failure> {
        self.empty = self.empty.wrapping_add(1);
        if self.empty < OFFER || !self.empty.is_multiple_of(OFFER_EACH) { Ok(()) } else { self.look() }
    }

    #[cold]
    fn look(&mut self) -> Result<(), Failure> {
        std::thread::yield_now();
        // On a shared core a few offers bring what is waited for: `LOOK` empty polls may never come in a row.
        if self.lcore.stop_requested() {
            return Err(Failure::Stopped);
        }
        if self.empty.is_multiple_of(LOOK) { self.ask() } else { Ok(()) }
    }

    /// Says that a round is over in which nothing was waited for.
    ///
    /// # Errors
    /// As [`empty`](Self::empty).
    #[inline(always)]
    pub fn round(&mut self) -> Result<(), Failure> {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(LOOK) { self.ask() } else { Ok(()) }
    }

    /// Looks at flag and socket now.
    ///
    /// # Errors
    /// A stop, or the other end is gone for too long.
    #[cold]
    pub fn ask(&mut self) -> Result<(), Failure> {
        if self.lcore.stop_requested() {
            return Err(Failure::Stopped);
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if self.asked.is_some_and(|asked| now - asked < ASK) {
            return Ok(());
        }
        self.asked = Some(now);
        if let Some(limit) = self.limit.filter(|limit| now - since >= *limit) {
            let who = self
                .line
                .map_or("nothing received".into(), |line| format!("nothing received from {}", line.peer()));
            let seconds = limit.as_secs();
            return Err(Failure::Error(format!(
                "{who} for {seconds} seconds; --peer-timeout sets this limit, 0 waits forever"
            )));
        }
        match self.line {
            Some(line) if now - since >= self.patience && line.is_closed() => Err(Failure::Error(format!(
                "{} closed the connection before sending all messages; give both ends the same number of messages",
                line.peer()
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use pollux_bringup::RdmaBringup;
    use pollux_config::CommandLine;

    use super::*;
    use crate::rdma::program::on_main_lcore;

    /// Whether waits that all end hear of a stop.
    fn is_stopped(lcore: &LcoreContext, polls: u32) -> bool {
        let mut watch = Watch::new(lcore, None, Duration::ZERO);
        let mut wait = || {
            (0..polls).try_for_each(|_| watch.empty())?;
            watch.came()
        };
        (0..=LOOK).any(|_| matches!(wait(), Err(Failure::Stopped)))
    }

    /// Each wait of an exchange ends: on a shared core after few polls, on a fast device at once.
    #[test]
    fn a_stop_ends_waits_that_always_find_something() {
        let line = CommandLine::parse(["test", "-l", "0", "--vdev", "mlx5_model0,wire=null"]).unwrap();
        let bringup = RdmaBringup::new(&line, None).unwrap();
        on_main_lcore(&bringup.eal, |lcore| {
            assert!(!is_stopped(lcore, 0));
            lcore.stop_flag().set();
            assert!(is_stopped(lcore, 0) && is_stopped(lcore, OFFER));
            Ok(())
        })
        .unwrap();
    }
}
