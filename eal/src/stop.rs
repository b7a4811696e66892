//! The stop flag: how one `Eal` tells all its threads to finish.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::EalError;
use crate::event::EventFd;

/// Reason of a stop request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// Code called [`StopFlag::set`].
    Asked,
    /// A thread of this `Eal` panicked.
    Panic,
    /// A signal with this number was received.
    Signal(i32),
}

const RUNNING: u32 = 0;
const ASKED: u32 = 1;
const PANIC: u32 = 2;
const SIGNAL: u32 = 0x100;

impl StopReason {
    fn code(self) -> u32 {
        match self {
            Self::Asked => ASKED,
            Self::Panic => PANIC,
            Self::Signal(number) => SIGNAL | number.cast_unsigned(),
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        match code {
            RUNNING => None,
            ASKED => Some(Self::Asked),
            PANIC => Some(Self::Panic),
            signal => Some(Self::Signal((signal & !SIGNAL).cast_signed())),
        }
    }
}

#[derive(Debug)]
struct Stop {
    // Alone on its line: every lcore polls it, and it changes once.
    reason: CachePadded<AtomicU32>,
    event: EventFd,
}

/// Set once, never cleared. Clones are the same flag.
#[derive(Clone, Debug)]
pub struct StopFlag(Arc<Stop>);

impl StopFlag {
    /// A flag of its own, as a test or a thread without an `Eal` needs it.
    ///
    /// # Errors
    /// [`EalError::Event`] when the kernel gives no event file.
    pub fn new() -> Result<Self, EalError> {
        Ok(Self(Arc::new(Stop { reason: CachePadded::new(AtomicU32::new(RUNNING)), event: EventFd::new()? })))
    }

    /// Returns whether a stop was requested. Hot: one relaxed load, without ordering of other memory.
    #[inline(always)]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.reason.load(Ordering::Relaxed) != RUNNING
    }

    /// Requests a stop.
    pub fn set(&self) {
        self.set_because(StopReason::Asked);
    }

    /// Asks all to stop; the first reason given is kept. Fit for a signal handler: an atomic and one `write`.
    /// Returns whether this was the first.
    pub(crate) fn set_because(&self, reason: StopReason) -> bool {
        let first = self
            .0
            .reason
            .compare_exchange(RUNNING, reason.code(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        // The event stays readable for good: nobody drains it, so late comers see it too.
        self.0.event.signal();
        first
    }

    /// Returns the reason, if the flag is set.
    #[must_use]
    pub fn reason(&self) -> Option<StopReason> {
        StopReason::from_code(self.0.reason.load(Ordering::Relaxed))
    }

    /// Waits until the flag is set or `timeout` has passed, and returns whether it is set.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        self.is_set() || self.0.event.wait(timeout) && self.is_set()
    }
}

/// Readable once the flag is set; for an [`EventSet`](crate::event::EventSet). Reading from it is not allowed.
impl AsFd for StopFlag {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_first_reason_stays() {
        let flag = StopFlag::new().expect("an event file");
        assert!(!flag.is_set());
        assert_eq!(flag.reason(), None);
        assert!(flag.set_because(StopReason::Signal(15)));
        assert!(!flag.set_because(StopReason::Panic));
        flag.set();
        assert!(flag.is_set());
        assert_eq!(flag.reason(), Some(StopReason::Signal(15)));
    }

    #[test]
    fn waiting_ends_with_the_flag_or_the_time() {
        let flag = StopFlag::new().expect("an event file");
        let begun = Instant::now();
        assert!(!flag.wait(Duration::from_millis(20)));
        assert!(begun.elapsed() >= Duration::from_millis(20));
        let setter = flag.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            setter.set();
        });
        assert!(flag.wait(Duration::from_secs(60)));
        assert!(flag.wait(Duration::from_secs(60)), "it stays set");
        assert!(begun.elapsed() < Duration::from_secs(50));
        thread.join().expect("the thread ends well");
    }
}
