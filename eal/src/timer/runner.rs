//! The lcore's half: runs the callbacks of all its timers from one wheel.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::firing::Firing;
use super::inbox::Inbox;
use super::shared::{CURRENT, Callback, IDLE, MODE, Shared, lock};
use super::wheel::{TimerId, Wheel, WheelStats};
use super::{TimerError, TimerMaker};
use crate::panic::each;

struct Entry {
    shared: Arc<Shared>,
    callback: Callback,
    id: TimerId,
    /// The handle's decision that the wheel knows of.
    version: u64,
    deadline: u64,
    period: u64,
}

/// The timers of one lcore, with a closure each. Lives on the lcore, whose loop calls [`LcoreTimers::manage`].
pub struct LcoreTimers {
    wheel: Wheel<u32>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    inbox: Arc<Inbox>,
    /// Swapped with the inbox's list.
    received: Vec<Arc<Shared>>,
}

impl LcoreTimers {
    /// Room for `capacity` timers; the other arguments are those of [`Wheel::new`].
    ///
    /// # Errors
    /// As [`Wheel::new`].
    pub fn new(capacity: usize, hz: u64, now: u64) -> Result<Self, TimerError> {
        Self::with_inbox(Arc::new(Inbox::new(capacity)), hz, now)
    }

    /// The lcore's side of an inbox that has none yet.
    pub(super) fn with_inbox(inbox: Arc<Inbox>, hz: u64, now: u64) -> Result<Self, TimerError> {
        let capacity = inbox.capacity();
        let wheel = Wheel::new(capacity, hz, now)?;
        inbox.make_room();
        Ok(LcoreTimers {
            wheel,
            entries: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            inbox,
            received: Vec::with_capacity(capacity),
        })
    }

    /// Returns a maker of timers for this lcore, usable on any thread.
    #[must_use]
    pub fn maker(&self) -> TimerMaker {
        TimerMaker { inbox: Arc::clone(&self.inbox) }
    }

    /// Runs the callbacks of all expired timers and returns their number. Hot: one load and one comparison when idle.
    #[inline(always)]
    pub fn manage(&mut self, now: u64) -> usize {
        if self.inbox.is_posted() {
            self.receive();
        }
        if self.wheel.next().is_some_and(|next| next <= now) { self.fire(now) } else { 0 }
    }

    /// A time before which nothing that the lcore knows of comes due.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.wheel.next()
    }

    /// Counts of the wheel. A timer whose handle cancelled it stays filed until its deadline, unless armed again.
    #[must_use]
    pub fn stats(&self) -> WheelStats {
        self.wheel.stats()
    }

    #[cold]
    fn receive(&mut self) {
        let mut received = std::mem::take(&mut self.received);
        self.inbox.take(&mut received);
        let timers = &mut *self;
        let learnt = catch_unwind(AssertUnwindSafe(|| {
            // What a closure captured goes with a timer that ends, and may panic: the others are learnt of all the same.
            each(received.drain(..), |shared| {
                // From here on a post comes into the queue again. AcqRel pairs with `post`: a post that found the flag set
                // is seen below.
                shared.queued.swap(false, Ordering::AcqRel);
                timers.learn(&shared);
            });
        }));
        self.received = received;
        learnt.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// Brings the wheel to the handle's latest decision.
    fn learn(&mut self, shared: &Arc<Shared>) {
        let closed = shared.closed.load(Ordering::Acquire);
        let Some((version, plan)) = shared.plan() else { return };
        let slot = match shared.entry.load(Ordering::Relaxed) {
            0 => match self.adopt(shared) {
                Some(slot) => slot,
                None => return,
            },
            entry => entry as u32 - 1,
        };
        let Some(entry) = &mut self.entries[slot as usize] else { return };
        match plan {
            Some((deadline, period)) if entry.version != version => {
                (entry.version, entry.deadline, entry.period) = (version, deadline, period);
                self.wheel.arm(entry.id, deadline);
            }
            // Known, and by now perhaps armed anew by its callback.
            Some(_) => {}
            None => {
                self.wheel.disarm(entry.id);
                if closed {
                    self.release(slot);
                }
            }
        }
    }

    fn adopt(&mut self, shared: &Arc<Shared>) -> Option<u32> {
        let callback = lock(&shared.callback).take()?;
        let slot = self.free.pop().unwrap_or(self.entries.len() as u32);
        // The count of live timers was taken before this one was made, so there is room.
        let id = self.wheel.insert(slot).ok()?;
        let entry = Entry { shared: Arc::clone(shared), callback, id, version: 0, deadline: 0, period: 0 };
        match self.entries.get_mut(slot as usize) {
            Some(place) => *place = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        shared.entry.store(slot as usize + 1, Ordering::Relaxed);
        Some(slot)
    }

    fn release(&mut self, slot: u32) {
        if let Some(entry) = self.entries[slot as usize].take() {
            self.wheel.remove(entry.id);
            self.free.push(slot);
            entry.shared.entry.store(0, Ordering::Relaxed);
            self.inbox.release();
            // Last, as it may panic.
            drop(entry);
        }
    }

    fn fire(&mut self, now: u64) -> usize {
        let LcoreTimers { wheel, entries, free, inbox, .. } = self;
        let mut called = 0;
        wheel.manage(now, |timers, id, slot| {
            let Some(entry) = &mut entries[slot as usize] else { return };
            if !entry.shared.begin(entry.version) {
                // Cancelled, or armed anew, which the inbox tells.
                return;
            }
            called += 1;
            let again = match entry.period {
                0 => None,
                period => Some((entry.deadline.saturating_add(period), period)),
            };
            let mut run = Run { shared: &entry.shared, version: entry.version, before: 0, ended: false };
            run.before = CURRENT.replace(Arc::as_ptr(&entry.shared) as usize);
            let mut firing = Firing { now, deadline: entry.deadline, again };
            (entry.callback)(&mut firing);
            let holds = run.end(firing.again.is_some());
            drop(run);
            if let (true, Some((deadline, period))) = (holds, firing.again) {
                (entry.deadline, entry.period) = (deadline, period);
                timers.arm(id, deadline);
            } else if entry.shared.closed.load(Ordering::Acquire)
                && entry.shared.word.load(Ordering::Acquire) & MODE == IDLE
            {
                // Detached, and done.
                entry.shared.entry.store(0, Ordering::Relaxed);
                let gone = entries[slot as usize].take();
                timers.remove(id);
                free.push(slot);
                inbox.release();
                // Last, as it may panic.
                drop(gone);
            }
        });
        called
    }
}

/// A callback's run: ends also when it panics.
struct Run<'a> {
    shared: &'a Shared,
    version: u64,
    before: usize,
    ended: bool,
}

impl Run<'_> {
    fn end(&mut self, again: bool) -> bool {
        self.ended = true;
        CURRENT.set(self.before);
        self.shared.finish(self.version, again)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

impl Drop for LcoreTimers {
    fn drop(&mut self) {
        // Closed first: what is dropped below may ask, and may panic.
        self.inbox.close();
        each(std::mem::take(&mut self.entries), drop);
    }
}

impl std::fmt::Debug for LcoreTimers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LcoreTimers").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
