//! The place of an lcore's timers in its `Eal`: made by whoever first asks for them, run by the lcore.

use std::sync::{Arc, Mutex, OnceLock};

use super::inbox::Inbox;
use super::shared::lock;
use super::{LcoreTimers, TIMERS_PER_LCORE, TimerMaker, WheelStats};
use crate::clock::{Clock, PendingClock};

#[derive(Debug)]
pub(crate) struct Seat {
    clock: PendingClock,
    inbox: Arc<Inbox>,
    maker: OnceLock<TimerMaker>,
    /// Locked by the lcore while it runs them, and once by who makes them.
    timers: Mutex<Option<LcoreTimers>>,
}

impl Seat {
    pub(crate) fn new(clock: PendingClock) -> Self {
        let inbox = Arc::new(Inbox::new(TIMERS_PER_LCORE));
        Self { clock, inbox, maker: OnceLock::new(), timers: Mutex::default() }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock.get()
    }

    /// Makes timers for this lcore. The first call makes room for all of them.
    pub(crate) fn maker(&self) -> TimerMaker {
        let make = || {
            let clock = self.clock();
            let timers = LcoreTimers::with_inbox(Arc::clone(&self.inbox), clock.hz(), clock.now().0)
                .expect("the number of timers is within what a wheel allows");
            let maker = timers.maker();
            // Nobody else locks before there is a maker: the lcore looks when something was posted.
            *lock(&self.timers) = Some(timers);
            maker
        };
        self.maker.get_or_init(make).clone()
    }

    #[inline(always)]
    pub(crate) fn is_posted(&self) -> bool {
        self.inbox.is_posted()
    }

    /// Runs what is due at `now`; tells how many callbacks that were, and a time before which the next call can only do
    /// something if something is posted.
    pub(crate) fn manage(&self, now: u64) -> (usize, u64) {
        match &mut *lock(&self.timers) {
            Some(timers) => {
                let called = timers.manage(now);
                (called, timers.next().unwrap_or(u64::MAX))
            }
            None => (0, u64::MAX),
        }
    }

    pub(crate) fn stats(&self) -> WheelStats {
        lock(&self.timers).as_ref().map_or_else(WheelStats::default, LcoreTimers::stats)
    }

    /// The lcore is no more: handles are told so, and what is left is dropped without being called.
    pub(crate) fn end(&self) {
        self.inbox.close();
        let timers = lock(&self.timers).take();
        drop(timers);
    }
}
