//! Timers with a closure each, armed and cancelled from any thread.
//!
//! What a handle and the lcore decide about one timer meets in one word of memory: a version, which counts the handle's
//! decisions, whether it is armed, and whether its callback is running. The lcore starts a callback by setting the running
//! bit of a word that still has the version it knows, so a decision of the handle is in force the moment it is made, and
//! the wheel may learn of it later. To learn of it, the timer goes into the lcore's inbox: at most once, so the inbox is
//! never longer than there are timers. The lcore only tries the inbox's lock, and never waits for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::TimerError;
use super::wheel::{TimerId, Wheel, WheelStats};

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

/// `Shared::word`: running bit, two bits of mode, the rest is the version.
const RUNNING: u64 = 1;
const MODE: u64 = 0b110;
const IDLE: u64 = 0b000;
const ARMED: u64 = 0b010;
/// The handle is writing the plan.
const WRITING: u64 = 0b100;
const VERSION: u64 = 0b1000;

type Callback = Box<dyn FnMut(&mut Firing) + Send>;

struct Shared {
    word: AtomicU64,
    /// The handle's latest plan, written in mode `WRITING` only.
    deadline: AtomicU64,
    /// 0: a single shot.
    period: AtomicU64,
    /// In the inbox, or being read from it.
    queued: AtomicBool,
    /// No handle is left. The timer ends at once, or if detached, when it is idle.
    closed: AtomicBool,
    /// On its way to the lcore.
    callback: Mutex<Option<Callback>>,
    /// The lcore's entry plus one; written by the lcore only.
    entry: AtomicUsize,
}

struct Queue {
    timers: Vec<Arc<Shared>>,
    /// The lcore's side is gone.
    closed: bool,
}

struct Inbox {
    queue: Mutex<Queue>,
    /// Something is in the queue. All that an idle `manage` reads.
    posted: AtomicBool,
    live: AtomicUsize,
    capacity: usize,
}

thread_local! {
    /// The timer whose callback this thread is in.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics while it holds a lock, and no invariant spans one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Begins a run of the arming `version`, if that still is the latest decision.
    fn begin(&self, version: u64) -> bool {
        // Acquire pairs with the handle's Release in `arm`: what its thread did before is seen by the callback.
        self.word
            .compare_exchange(version | ARMED, version | ARMED | RUNNING, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends a run. Tells whether the run's wish to be armed `again` holds, and not a later decision of the handle.
    fn finish(&self, version: u64, again: bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let ours = word & !(MODE | RUNNING) == version;
            let next = if ours { version | if again { ARMED } else { IDLE } } else { word & !RUNNING };
            // Release pairs with the Acquire of `cancel_and_wait`: it sees all that the callback did.
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return ours && again,
                Err(seen) => word = seen,
            }
        }
    }

    fn cancel(&self) -> Cancelled {
        let mut word = self.word.load(Ordering::Acquire);
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
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            Some(((word & !(MODE | RUNNING)) + step) | mode | word & RUNNING)
        });
    }

    /// The latest plan: version and, if armed, deadline and period. `None` while the handle writes; it posts after that.
    fn plan(&self) -> Option<(u64, Option<(u64, u64)>)> {
        let word = self.word.load(Ordering::Acquire);
        let version = word & !(MODE | RUNNING);
        match word & MODE {
            ARMED => {
                // Acquire, and Release in `arm`: a value of a later plan brings the later word with it.
                let plan = (self.deadline.load(Ordering::Acquire), self.period.load(Ordering::Acquire));
                let again = self.word.load(Ordering::Acquire);
                (again & !(MODE | RUNNING) == version).then_some((version, Some(plan)))
            }
            IDLE => Some((version, None)),
            _ => None,
        }
    }
}

impl Inbox {
    fn post(&self, timer: &Arc<Shared>) -> Result<(), TimerError> {
        // If it was queued already, the lcore has yet to take that flag back, and reads the word after that.
        if timer.queued.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut queue = lock(&self.queue);
        if queue.closed {
            return Err(TimerError::Gone);
        }
        queue.timers.push(Arc::clone(timer));
        self.posted.store(true, Ordering::Release);
        Ok(())
    }
}

/// Makes timers for one lcore. Cheap to clone, for any thread.
#[derive(Clone)]
pub struct TimerMaker {
    inbox: Arc<Inbox>,
}

impl TimerMaker {
    /// A new timer, not armed, whose callback runs on this maker's lcore. Allocates; arming it later does not.
    ///
    /// # Errors
    /// The lcore's wheel is full, or gone.
    pub fn timer(&self, callback: impl FnMut(&mut Firing) + Send + 'static) -> Result<Timer, TimerError> {
        if lock(&self.inbox.queue).closed {
            return Err(TimerError::Gone);
        }
        let capacity = self.inbox.capacity;
        self.inbox
            .live
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |live| (live < capacity).then_some(live + 1))
            .map_err(|_| TimerError::Full { capacity })?;
        let shared = Arc::new(Shared {
            word: AtomicU64::new(IDLE),
            deadline: AtomicU64::new(0),
            period: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            callback: Mutex::new(Some(Box::new(callback))),
            entry: AtomicUsize::new(0),
        });
        Ok(Timer { shared, inbox: Arc::clone(&self.inbox), detached: false })
    }
}

impl std::fmt::Debug for TimerMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimerMaker").field("capacity", &self.inbox.capacity).finish_non_exhaustive()
    }
}

/// A timer of an lcore, held anywhere.
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
    /// Arms it to fire once at `deadline`, in the units of the lcore's wheel.
    ///
    /// # Errors
    /// The lcore's timers are gone.
    pub fn arm(&mut self, deadline: u64) -> Result<(), TimerError> {
        self.set(deadline, 0)
    }

    /// Arms it to fire at `first` and then every `period` (at least 1), without drift.
    ///
    /// # Errors
    /// The lcore's timers are gone.
    pub fn arm_periodic(&mut self, first: u64, period: u64) -> Result<(), TimerError> {
        self.set(first, period.max(1))
    }

    fn set(&mut self, deadline: u64, period: u64) -> Result<(), TimerError> {
        let shared = &*self.shared;
        shared.set_mode(WRITING);
        shared.deadline.store(deadline, Ordering::Release);
        shared.period.store(period, Ordering::Release);
        shared.set_mode(ARMED);
        self.inbox.post(&self.shared)
    }

    /// Stops it from firing; does not wait. In force when it returns.
    pub fn cancel(&mut self) -> Cancelled {
        self.shared.cancel()
    }

    /// As [`Timer::cancel`], and waits until a callback that is running has ended, so that what it uses may go away. Called
    /// from that callback itself, it does not wait.
    pub fn cancel_and_wait(&mut self) -> Cancelled {
        let cancelled = self.shared.cancel();
        if CURRENT.get() == Arc::as_ptr(&self.shared) as usize {
            return cancelled;
        }
        let mut rounds = 0u32;
        while self.shared.word.load(Ordering::Acquire) & RUNNING != 0 {
            // A callback is short: look a while before giving up the processor.
            rounds += 1;
            if rounds < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        cancelled
    }

    /// Whether it is armed, or will be when the running callback ends.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.shared.word.load(Ordering::Acquire) & MODE == ARMED
    }

    /// Lets it run on without a handle: a single shot ends after its callback, a periodic one when that says so.
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

/// What a callback sees, and may decide, of the firing it is called for.
#[derive(Debug)]
pub struct Firing {
    now: u64,
    deadline: u64,
    again: Option<(u64, u64)>,
}

impl Firing {
    /// The time given to `manage`.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The time that this firing was armed for.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        self.deadline
    }

    /// Arms this timer again, once, at `deadline`; with the next `manage` at the earliest.
    pub fn arm(&mut self, deadline: u64) {
        self.again = Some((deadline, 0));
    }

    /// Arms this timer again, periodic.
    pub fn arm_periodic(&mut self, first: u64, period: u64) {
        self.again = Some((first, period.max(1)));
    }

    /// Does not arm this timer again: ends a periodic one.
    pub fn stop(&mut self) {
        self.again = None;
    }
}

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
        let wheel = Wheel::new(capacity, hz, now)?;
        let queue = Mutex::new(Queue { timers: Vec::with_capacity(capacity), closed: false });
        let inbox = Inbox { queue, posted: AtomicBool::new(false), live: AtomicUsize::new(0), capacity };
        Ok(LcoreTimers {
            wheel,
            entries: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            inbox: Arc::new(inbox),
            received: Vec::with_capacity(capacity),
        })
    }

    /// Makes timers for this lcore, on any thread.
    #[must_use]
    pub fn maker(&self) -> TimerMaker {
        TimerMaker { inbox: Arc::clone(&self.inbox) }
    }

    /// Calls the callbacks of all timers that are due; tells how many. Hot: one load and one comparison when idle.
    #[inline(always)]
    pub fn manage(&mut self, now: u64) -> usize {
        // Relaxed: only a hint; the lock orders what it hints at.
        if self.inbox.posted.load(Ordering::Relaxed) {
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
        {
            let mut queue = match self.inbox.queue.try_lock() {
                Ok(queue) => queue,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Someone is posting: with the next `manage`.
                Err(TryLockError::WouldBlock) => return,
            };
            std::mem::swap(&mut queue.timers, &mut self.received);
            self.inbox.posted.store(false, Ordering::Relaxed);
        }
        let mut received = std::mem::take(&mut self.received);
        for shared in received.drain(..) {
            // From here on a post comes into the queue again. AcqRel pairs with `post`: a post that found the flag set is
            // seen below.
            shared.queued.swap(false, Ordering::AcqRel);
            self.learn(&shared);
        }
        self.received = received;
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
            self.inbox.live.fetch_sub(1, Ordering::AcqRel);
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
                entries[slot as usize] = None;
                timers.remove(id);
                free.push(slot);
                inbox.live.fetch_sub(1, Ordering::AcqRel);
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
        let mut queue = lock(&self.inbox.queue);
        queue.closed = true;
        let timers = std::mem::take(&mut queue.timers);
        drop(queue);
        drop(timers);
    }
}

impl std::fmt::Debug for LcoreTimers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LcoreTimers").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
