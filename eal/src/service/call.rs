//! One service: its calls, and how they are stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use super::wait::{Inside, Place, wait_for};
use super::{ServiceStats, Work};
use crate::Panicked;
use crate::clock::cycles;
use crate::lcore::LcoreId;
use crate::panic::Reporter;

/// One core's count of one service's calls; alone on its line.
#[derive(Debug, Default)]
pub(super) struct Tally {
    calls: AtomicU64,
    idle_calls: AtomicU64,
    cycles: AtomicU64,
}

impl Tally {
    fn count(&self, work: Work, cycles: u64, add: impl Fn(&AtomicU64, u64)) {
        add(&self.calls, 1);
        match work {
            Work::Idle => add(&self.idle_calls, 1),
            Work::Done => add(&self.cycles, cycles),
        }
    }
}

pub(super) enum Callback {
    /// One call at a time; `Service::active` sees to it, so that the lock is never waited for.
    Exclusive(Mutex<Box<dyn FnMut() -> Work + Send>>),
    Shared(Box<dyn Fn() -> Work + Send + Sync>),
}

pub(super) struct Service {
    pub(super) id: u32,
    pub(super) name: String,
    callback: Callback,
    running: AtomicBool,
    /// Calls under way.
    active: AtomicU32,
    /// Threads in `stop`.
    stoppers: AtomicU32,
    stopper: Mutex<()>,
    /// For the stoppers: a call has ended, or it was started again.
    changed: Condvar,
    /// By lcore, which alone writes it; `None` is that of all callers of [`Services::run_once`](super::Services::run_once).
    tallies: Mutex<BTreeMap<Option<LcoreId>, Arc<CachePadded<Tally>>>>,
}

impl Service {
    pub(super) fn new(id: u32, name: String, callback: Callback) -> Self {
        Self {
            id,
            name,
            callback,
            running: AtomicBool::new(false),
            active: AtomicU32::new(0),
            stoppers: AtomicU32::new(0),
            stopper: Mutex::default(),
            changed: Condvar::new(),
            tallies: Mutex::default(),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn start(&self) {
        self.running.store(true, Ordering::SeqCst);
        self.tell_stoppers();
    }

    pub(super) fn tally(&self, lcore: Option<LcoreId>) -> Arc<CachePadded<Tally>> {
        Arc::clone(self.tallies.lock().unwrap_or_else(PoisonError::into_inner).entry(lcore).or_default())
    }

    /// Calls it on a service core, whose tally that is, if it is started and, when exclusive, not being called already.
    pub(super) fn call(&self, tally: &Tally, reporter: &Reporter) -> Option<Work> {
        // One writer, so no locked instruction.
        let add = |counter: &AtomicU64, more| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        self.run(reporter, |work, cycles| tally.count(work, cycles, add))
    }

    /// The same on any thread.
    pub(super) fn call_once(&self, reporter: &Reporter) -> Option<Work> {
        let add = |counter: &AtomicU64, more| {
            counter.fetch_add(more, Ordering::Relaxed);
        };
        self.run(reporter, |work, cycles| self.tally(None).count(work, cycles, add))
    }

    fn run(&self, reporter: &Reporter, count: impl FnOnce(Work, u64)) -> Option<Work> {
        // Those who call a stopped service over and over are not to keep its stoppers waiting.
        if !self.is_running() {
            return None;
        }
        // Sequentially consistent with `stop`: either the call is seen there, or the stop is seen here.
        let entered = match self.callback {
            Callback::Exclusive(_) => {
                self.active.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            }
            Callback::Shared(_) => {
                self.active.fetch_add(1, Ordering::SeqCst);
                true
            }
        };
        if !entered {
            return None;
        }
        let mut outcome = None;
        if self.running.load(Ordering::SeqCst) {
            let inside = Inside::enter(self.place());
            let begun = cycles::now();
            let called = reporter.guard(|| match &self.callback {
                Callback::Exclusive(callback) => callback.lock().unwrap_or_else(PoisonError::into_inner)(),
                Callback::Shared(callback) => callback(),
            });
            drop(inside);
            match called {
                Ok(work) => {
                    count(work, cycles::now().wrapping_sub(begun));
                    outcome = Some(work);
                }
                // It is not called again; the report has stopped the `Eal`.
                Err(Panicked { .. }) => self.running.store(false, Ordering::SeqCst),
            }
        }
        // Sequentially consistent with `stop`: either this end is seen there, or the stopper is seen here. Release: what the
        // call did is over for who waited.
        self.active.fetch_sub(1, Ordering::SeqCst);
        if self.stoppers.load(Ordering::SeqCst) != 0 {
            self.tell_stoppers();
        }
        outcome
    }

    #[cold]
    fn tell_stoppers(&self) {
        // Locked, so that no stopper is between its look and its sleep.
        let _none_between = self.stopper.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.running.store(false, Ordering::SeqCst);
        wait_for(self.place(), || {
            self.stoppers.fetch_add(1, Ordering::SeqCst);
            let mut turn = self.stopper.lock().unwrap_or_else(PoisonError::into_inner);
            while self.active.load(Ordering::SeqCst) != 0 && !self.running.load(Ordering::SeqCst) {
                turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
            }
            self.stoppers.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn place(&self) -> Place {
        Place::of(self)
    }

    pub(super) fn stats(&self) -> ServiceStats {
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.values().fold(ServiceStats::default(), |sum, tally| ServiceStats {
            calls: sum.calls + tally.calls.load(Ordering::Relaxed),
            idle_calls: sum.idle_calls + tally.idle_calls.load(Ordering::Relaxed),
            cycles: sum.cycles + tally.cycles.load(Ordering::Relaxed),
        })
    }
}
