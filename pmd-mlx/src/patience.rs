//! The time by which a port is patient.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time by which a port is patient, from some moment on. Clones show the same.
#[derive(Clone)]
pub struct PortClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl PortClock {
    /// The machine's.
    #[must_use]
    pub fn machine() -> Self {
        let start = Instant::now();
        Self::of(move || start.elapsed())
    }

    /// Whatever `now` says, which never goes back: of tests that make time pass by themselves.
    #[must_use]
    pub fn of(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Time since its start.
    #[must_use]
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for PortClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PortClock({:?})", self.now())
    }
}
