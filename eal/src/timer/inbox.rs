//! How an lcore learns what the handles of its timers decided.
//!
//! A timer is in the inbox at most once, so the inbox is never longer than there are timers. The lcore only tries the lock, and
//! never waits for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use super::TimerError;
use super::shared::{Shared, lock};
use crate::panic::each;

struct Queue {
    timers: Vec<Arc<Shared>>,
    /// The lcore's side is gone.
    closed: bool,
}

pub(super) struct Inbox {
    queue: Mutex<Queue>,
    /// Something is in the queue.
    posted: AtomicBool,
    live: AtomicUsize,
    capacity: usize,
}

impl Inbox {
    pub(super) fn new(capacity: usize) -> Self {
        let queue = Mutex::new(Queue { timers: Vec::new(), closed: false });
        Inbox { queue, posted: AtomicBool::new(false), live: AtomicUsize::new(0), capacity }
    }

    /// Makes room for every timer, so that a post does not allocate.
    pub(super) fn make_room(&self) {
        lock(&self.queue).timers.reserve_exact(self.capacity);
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// All that an idle `manage` reads.
    #[inline(always)]
    pub(super) fn is_posted(&self) -> bool {
        // Relaxed: only a hint; the lock orders what it hints at.
        self.posted.load(Ordering::Relaxed)
    }

    pub(super) fn post(&self, timer: &Arc<Shared>) -> Result<(), TimerError> {
        // If it was queued already, the lcore has yet to take that flag back, and reads the word after that.
        if timer.queued.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut queue = lock(&self.queue);
        if queue.closed {
            // The next post is to find this out too.
            timer.queued.store(false, Ordering::Release);
            return Err(TimerError::Gone);
        }
        queue.timers.push(Arc::clone(timer));
        self.posted.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes what was posted into `received`, which is empty. Never waits.
    pub(super) fn take(&self, received: &mut Vec<Arc<Shared>>) {
        let mut queue = match self.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Someone is posting: with the next `manage`.
            Err(TryLockError::WouldBlock) => return,
        };
        std::mem::swap(&mut queue.timers, received);
        self.posted.store(false, Ordering::Relaxed);
    }

    /// Counts a timer that is to be made.
    pub(super) fn admit(&self) -> Result<(), TimerError> {
        if lock(&self.queue).closed {
            return Err(TimerError::Gone);
        }
        let capacity = self.capacity;
        let room = |live| (live < capacity).then_some(live + 1);
        let counted = self.live.fetch_update(Ordering::AcqRel, Ordering::Relaxed, room);
        counted.map(|_| ()).map_err(|_| TimerError::Full { capacity })
    }

    /// A timer that was counted is no more.
    pub(super) fn release(&self) {
        self.live.fetch_sub(1, Ordering::AcqRel);
    }

    /// The lcore's side ends; nothing is taken in any more.
    pub(super) fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        let timers = std::mem::take(&mut queue.timers);
        // What a closure has captured may call in here when it is dropped.
        drop(queue);
        for timer in &timers {
            timer.queued.store(false, Ordering::Release);
        }
        each(timers, drop);
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox")
            .field("capacity", &self.capacity)
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}
