//! One timer, between the handle that decides and the lcore that runs it.
//!
//! What the two decide meets in one word of memory: a version, which counts the handle's decisions, whether the timer is armed,
//! and whether its callback is running. The lcore starts a callback by setting the running bit of a word that still has the
//! version it knows, so a decision of the handle is in force the moment it is made, and the wheel may learn of it later, through
//! the [inbox](super::inbox).

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pollux_atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::firing::Firing;
use crate::order;

/// `Shared::word`: running bit, two bits of mode, the rest is the version.
const RUNNING: u64 = 1;
pub(super) const MODE: u64 = 0b110;
pub(super) const IDLE: u64 = 0b000;
pub(super) const ARMED: u64 = 0b010;
/// The handle is writing the plan.
const WRITING: u64 = 0b100;
const VERSION: u64 = 0b1000;

pub(super) type Callback = Box<dyn FnMut(&mut Firing) + Send>;

/// What a cancel met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was armed, and the callback will not be called.
    Prevented,
    /// The callback is running now, on the lcore. It runs to its end, and it is the last: neither its own wish to be armed
    /// again nor its period counts. From inside that very callback, this is always the answer.
    Running,
    /// It was neither armed nor running.
    Idle,
}

thread_local! {
    /// The timer whose callback this thread is in, by its address.
    pub(super) static CURRENT: Cell<usize> = const { Cell::new(0) };
}

pub(super) struct Shared {
    pub(super) word: AtomicU64,
    /// The handle's latest plan, written in mode `WRITING` only.
    pub(super) deadline: AtomicU64,
    /// 0: a single shot.
    pub(super) period: AtomicU64,
    /// In the inbox, or being read from it.
    pub(super) queued: AtomicBool,
    /// No handle is left. The timer ends at once, or if detached, when it is idle.
    pub(super) closed: AtomicBool,
    /// On its way to the lcore.
    pub(super) callback: Mutex<Option<Callback>>,
    /// The lcore's entry plus one; written by the lcore only.
    pub(super) entry: AtomicUsize,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics while it holds a lock, and no invariant spans one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(callback: Callback) -> Self {
        Shared {
            word: AtomicU64::new(IDLE),
            deadline: AtomicU64::new(0),
            period: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            callback: Mutex::new(Some(callback)),
            entry: AtomicUsize::new(0),
        }
    }

    /// Begins a run of the arming `version`, if that still is the latest decision.
    pub(super) fn begin(&self, version: u64) -> bool {
        let (from, to) = (version | ARMED, version | ARMED | RUNNING);
        self.word.compare_exchange(from, to, order::timer_begin(), Ordering::Relaxed).is_ok()
    }

    /// Ends a run. Tells whether the run's wish to be armed `again` holds, and not a later decision of the handle.
    pub(super) fn finish(&self, version: u64, again: bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let ours = word & !(MODE | RUNNING) == version;
            let next = if ours { version | if again { ARMED } else { IDLE } } else { word & !RUNNING };
            match self.word.compare_exchange_weak(word, next, order::timer_finish(), Ordering::Relaxed) {
                Ok(_) => return ours && again,
                Err(seen) => word = seen,
            }
        }
    }

    pub(super) fn cancel(&self) -> Cancelled {
        let mut word = self.word.load(order::timer_cancel());
        loop {
            let running = word & RUNNING != 0;
            if word & MODE == IDLE {
                return if running { Cancelled::Running } else { Cancelled::Idle };
            }
            let next = ((word & !(MODE | RUNNING)) + VERSION) | IDLE | word & RUNNING;
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return if running { Cancelled::Running } else { Cancelled::Prevented },
                Err(seen) => word = seen,
            }
        }
    }

    /// Sets the mode, and with `WRITING` the next version; the running bit is the lcore's.
    fn set_mode(&self, mode: u64) {
        let step = if mode == WRITING { VERSION } else { 0 };
        // The closure always gives a word, so this cannot fail.
        let _ = self.word.fetch_update(order::timer_decide(), Ordering::Relaxed, |word| {
            Some(((word & !(MODE | RUNNING)) + step) | mode | word & RUNNING)
        });
    }

    /// Writes a plan, and arms the timer by it.
    pub(super) fn arm(&self, deadline: u64, period: u64) {
        self.set_mode(WRITING);
        self.deadline.store(deadline, order::timer_plan_write());
        self.period.store(period, order::timer_plan_write());
        self.set_mode(ARMED);
    }

    /// Whether this thread is in its callback.
    pub(super) fn is_current(&self) -> bool {
        CURRENT.get() == std::ptr::from_ref(self) as usize
    }

    /// Whether the callback is running. If not, all that it did is seen.
    pub(super) fn is_running(&self) -> bool {
        self.word.load(order::timer_wait()) & RUNNING != 0
    }

    /// The latest plan: version and, if armed, deadline and period. `None` while the handle writes; it posts after that.
    pub(super) fn plan(&self) -> Option<(u64, Option<(u64, u64)>)> {
        let word = self.word.load(order::timer_plan());
        let version = word & !(MODE | RUNNING);
        match word & MODE {
            ARMED => {
                let read = |field: &AtomicU64| field.load(order::timer_plan_read());
                let plan = (read(&self.deadline), read(&self.period));
                let again = self.word.load(Ordering::Relaxed);
                (again & !(MODE | RUNNING) == version).then_some((version, Some(plan)))
            }
            IDLE => Some((version, None)),
            _ => None,
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
