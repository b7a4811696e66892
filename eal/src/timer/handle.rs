//! The user's half: makes timers for an lcore, arms and cancels them from any thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::TimerError;
use super::firing::Firing;
use super::inbox::Inbox;
use super::shared::{ARMED, Cancelled, MODE, Shared};

/// Creates timers for one lcore, on any thread. Cheap to clone.
#[derive(Clone)]
pub struct TimerMaker {
    pub(super) inbox: Arc<Inbox>,
}

impl TimerMaker {
    /// Creates a disarmed timer whose callback runs on the lcore of this maker. Allocates; arming it does not.
    ///
    /// # Errors
    /// The lcore's wheel is full, or gone.
    pub fn timer(&self, callback: impl FnMut(&mut Firing) + Send + 'static) -> Result<Timer, TimerError> {
        self.inbox.admit()?;
        let shared = Arc::new(Shared::new(Box::new(callback)));
        Ok(Timer { shared, inbox: Arc::clone(&self.inbox), detached: false })
    }
}

impl std::fmt::Debug for TimerMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimerMaker").field("capacity", &self.inbox.capacity()).finish_non_exhaustive()
    }
}

/// A timer that fires on an lcore. The handle may live on any thread.
///
/// Its calls take `&mut self`, so they do not race with one another; this is how they meet the lcore:
///
/// | call | callback not begun | callback running | after |
/// |---|---|---|---|
/// | `arm` | the new deadline replaces the old one | runs to its end, then the new deadline holds; what the callback or its period wanted does not | armed |
/// | `cancel` | `Prevented`: it is not called | `Running`: runs to its end, not armed again | idle |
/// | `cancel_and_wait` | `Prevented` | as `cancel`, and returns when the callback has ended; in its own callback, at once | idle |
/// | drop | as `cancel` | as `cancel` | the lcore drops the closure when it next looks |
/// | `detach` | stays armed | stays | ends when it is idle |
///
/// A callback never runs twice at once, and never after a cancel that returned `Prevented` or `Idle`.
pub struct Timer {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    detached: bool,
}

impl Timer {
    /// Arms the timer to fire once at `deadline`, in units of the lcore's timer wheel.
    ///
    /// # Errors
    /// The lcore's timers are gone.
    pub fn arm(&mut self, deadline: u64) -> Result<(), TimerError> {
        self.set(deadline, 0)
    }

    /// Arms the timer to fire at `first` and then every `period` (at least 1), without drift.
    ///
    /// # Errors
    /// The lcore's timers are gone.
    pub fn arm_periodic(&mut self, first: u64, period: u64) -> Result<(), TimerError> {
        self.set(first, period.max(1))
    }

    fn set(&mut self, deadline: u64, period: u64) -> Result<(), TimerError> {
        self.shared.arm(deadline, period);
        self.inbox.post(&self.shared)
    }

    /// Cancels the timer without waiting for a running callback. Effective on return.
    pub fn cancel(&mut self) -> Cancelled {
        self.shared.cancel()
    }

    /// As [`Timer::cancel`], and waits until a callback that is running has ended, so that what it uses may go away. Called
    /// from that callback itself, it does not wait.
    pub fn cancel_and_wait(&mut self) -> Cancelled {
        let cancelled = self.shared.cancel();
        if self.shared.is_current() {
            return cancelled;
        }
        let mut rounds = 0u32;
        while self.shared.is_running() {
            // A callback is short: look a while before giving up the processor.
            rounds += 1;
            if rounds < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        cancelled
    }

    /// Returns whether the timer is armed, or will be after its running callback.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.shared.word.load(Ordering::Acquire) & MODE == ARMED
    }

    /// Detaches the timer: a one-shot timer ends after its callback, a periodic one when its callback stops it.
    pub fn detach(mut self) {
        self.detached = true;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if !self.detached {
            self.shared.cancel();
        }
        self.shared.closed.store(true, Ordering::Release);
        // The lcore's side may be gone; then there is nobody to tell, and the closure goes with the last handle.
        let _ = self.inbox.post(&self.shared);
    }
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timer").field("armed", &self.is_armed()).finish_non_exhaustive()
    }
}
