//! What time a model goes by.
//!
//! A threaded model goes by the machine's clock. A stepped one goes by its steps: its clock stands still between them and
//! moves on by a fixed amount with each, so that a run depends on nothing but its seed.

pub(crate) mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How far a step moves a stepped model's clock.
pub const STEP: Duration = Duration::from_micros(1);
/// Ticks of the device's clock in a microsecond: it runs at 1 GHz, `device_frequency_khz`.
pub(crate) const TICKS_PER_US: u64 = 1000;

/// A clock that starts at zero. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Machine(Instant),
    Steps(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's, from now on.
    #[must_use]
    pub fn machine() -> Self {
        Self(Kind::Machine(Instant::now()))
    }

    /// One that [`advance`](Self::advance) alone moves.
    #[must_use]
    pub fn stepped() -> Self {
        Self(Kind::Steps(Arc::default()))
    }

    /// Time since the start. Costs a read of the machine's clock, some 20 ns, or one load.
    #[must_use]
    pub fn now(&self) -> Duration {
        match &self.0 {
            Kind::Machine(start) => start.elapsed(),
            Kind::Steps(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// Moves a stepped clock; the machine's goes by itself.
    pub fn advance(&self, by: Duration) {
        if let Kind::Steps(nanos) = &self.0 {
            nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Whether it moves by steps.
    #[must_use]
    pub fn is_stepped(&self) -> bool {
        matches!(self.0, Kind::Steps(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stepped_clock_moves_by_steps_alone() {
        let clock = Clock::stepped();
        let shared = clock.clone();
        clock.advance(3 * STEP);
        assert_eq!(shared.now(), Duration::from_micros(3));
        assert_eq!(clock.now(), shared.now());
    }

    #[test]
    fn the_machines_clock_moves_by_itself() {
        let clock = Clock::machine();
        clock.advance(Duration::from_secs(3600));
        assert!(clock.now() < Duration::from_secs(3600));
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(1));
        assert!(clock.now() > before);
    }
}
