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
    /// Locked for moments only: no callback runs under it.
    timers: Mutex<Timers>,
}

#[derive(Debug, Default)]
enum Timers {
    /// Not made yet.
    #[default]
    None,
    Here(Box<LcoreTimers>),
    /// The lcore is running them; their counts as that began.
    Running(WheelStats),
    Ended,
}

/// The timers while the lcore runs them; they come back also when a callback panics.
struct Borrowed<'a> {
    seat: &'a Seat,
    timers: Option<Box<LcoreTimers>>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let mut place = lock(&self.seat.timers);
        // If the lcore has ended meanwhile they go, after the lock.
        if matches!(*place, Timers::Running(_))
            && let Some(timers) = self.timers.take()
        {
            *place = Timers::Here(timers);
        }
    }
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
            // Nobody else looks before there is a maker: the lcore does when something was posted.
            let mut place = lock(&self.timers);
            if matches!(*place, Timers::None) {
                *place = Timers::Here(Box::new(timers));
            }
            drop(place);
            maker
        };
        self.maker.get_or_init(make).clone()
    }

    #[inline(always)]
    pub(crate) fn is_posted(&self) -> bool {
        self.inbox.is_posted()
    }

    /// Runs what is due at `now`; tells how many callbacks that were, and a time before which the next call can only do
    /// something if something is posted. `None`: a callback calls this, and the call that it is in goes on with the rest.
    pub(crate) fn manage(&self, now: u64) -> Option<(usize, u64)> {
        let mut place = lock(&self.timers);
        let running = match &*place {
            Timers::Here(timers) => Timers::Running(timers.stats()),
            Timers::None | Timers::Ended => return Some((0, u64::MAX)),
            Timers::Running(_) => return None,
        };
        let Timers::Here(timers) = std::mem::replace(&mut *place, running) else { return None };
        drop(place);
        let mut borrowed = Borrowed { seat: self, timers: Some(timers) };
        let timers = borrowed.timers.as_mut()?;
        let called = timers.manage(now);
        Some((called, timers.next().unwrap_or(u64::MAX)))
    }

    /// In a callback: as they were before it and those called with it.
    pub(crate) fn stats(&self) -> WheelStats {
        match &*lock(&self.timers) {
            Timers::None | Timers::Ended => WheelStats::default(),
            Timers::Here(timers) => timers.stats(),
            Timers::Running(stats) => *stats,
        }
    }

    /// The lcore is no more: handles are told so, and what is left is dropped without being called.
    pub(crate) fn end(&self) {
        self.inbox.close();
        let timers = std::mem::replace(&mut *lock(&self.timers), Timers::Ended);
        drop(timers);
    }
}
