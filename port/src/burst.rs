//! Bursts under way: who may begin one, how it is known, and how it is waited for.
//!
//! A queue's owner says "at work" before it reads the words that let it work: the port's [`Gate`](crate::Gate), and a
//! word of the driver, where the driver takes single queues from their lcores. Whoever closes a queue changes its word and
//! then waits until nobody is at work. Both sides write one word and then read the other's, which needs a full barrier
//! between the two on both sides, or one side's pays for both ([`barrier::heavy`]):
//!
//! ```text
//!   queue's owner, each burst        control handle or driver, seldom
//!   at work = true                   word = closed
//!   barrier::light()                 barrier::heavy()
//!   every word open? then work       wait while at work
//!   at work = false
//! ```
//!
//! [`InBurst`] is the proof, to the compiler too, that the left side is between its first line and its last.
//! `gate/loom_tests.rs` explores both.

use crate::order;
use crossbeam_utils::CachePadded;
use pollux_atomic::{AtomicBool, Ordering};
#[cfg(not(loom))]
use pollux_eal::barrier;
use pollux_eal::counter::Counter;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a queue's owner writes in each burst, on cache lines of its own; anybody may read.
#[derive(Debug, Default)]
pub(crate) struct BurstLine {
    pub(crate) packets: Counter,
    pub(crate) bytes: Counter,
    /// The owner is inside a burst, or about to see that it must not be.
    at_work: AtomicBool,
    /// A [`QueueOwner`] is alive.
    owned: AtomicBool,
}

impl BurstLine {
    pub(crate) fn is_owned(&self) -> bool {
        self.owned.load(order::held_take())
    }

    #[inline]
    pub(crate) fn is_at_work(&self) -> bool {
        self.at_work.load(order::at_work_wait())
    }

    /// Waits until no burst is under way that began before a word was closed, `longest` at most; false when that was not
    /// enough. `barrier::heavy` stands between the closing and this.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let start = Instant::now();
        while self.is_at_work() {
            if start.elapsed() >= longest {
                return false;
            }
            // Most bursts end within microseconds; one whose lcore shares this processor needs it.
            if start.elapsed() < SPIN { std::hint::spin_loop() } else { std::thread::sleep(SPIN) }
        }
        true
    }
}

/// How long [`Port::stop`](crate::Port::stop) waits for running bursts: long enough even for an lcore that was preempted.
pub const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// Waits until no burst of these queues is under way that began before a word was changed, `longest` at most for all of them. What was written
/// before, a word that each burst reads once it has begun, is what a burst finds that begins later.
///
/// # Errors
/// The first whose burst did not end, by its place.
pub(crate) fn wait_for_all<'a>(
    lines: impl Iterator<Item = &'a BurstLine>,
    longest: Duration,
) -> Result<(), usize> {
    // Pairs with the light one that each burst begins with: it finds the word changed, or is seen here.
    barrier::heavy();
    let end = Instant::now() + longest;
    for (place, line) in lines.enumerate() {
        if !line.wait(end.saturating_duration_since(Instant::now())) {
            return Err(place);
        }
    }
    Ok(())
}

/// How long to wait without going to sleep, and for how long at once then.
const SPIN: Duration = Duration::from_micros(20);

/// The right to begin bursts of a queue. One is alive at a time: [`RxCounters::own`](crate::RxCounters::own),
/// [`TxCounters::own`](crate::TxCounters::own). The port's queue value has it, or whoever calls a driver's half without one.
#[derive(Debug)]
pub struct QueueOwner(Arc<CachePadded<BurstLine>>);

impl QueueOwner {
    /// `None` when another is alive.
    pub(crate) fn take(line: &Arc<CachePadded<BurstLine>>) -> Option<Self> {
        let free = line.owned.compare_exchange(false, true, order::held_take(), Ordering::Relaxed).is_ok();
        free.then(|| Self(Arc::clone(line)))
    }

    /// Begins a burst, which ends with the answer's drop, by a panic too. To be called before the look at any word that
    /// lets the queue work.
    #[inline(always)]
    pub fn enter(&mut self) -> InBurst<'_> {
        self.0.at_work.store(true, Ordering::Relaxed);
        barrier::light();
        InBurst(&self.0)
    }

    /// For the model, to show what the barrier is for.
    #[cfg(all(test, loom))]
    pub(crate) fn enter_without_barrier(&mut self) -> InBurst<'_> {
        self.0.at_work.store(true, Ordering::Relaxed);
        InBurst(&self.0)
    }
}

impl Drop for QueueOwner {
    fn drop(&mut self) {
        self.0.owned.store(false, order::held_end());
    }
}

/// A burst under way: whoever closes its queue waits until this is dropped.
#[derive(Debug)]
pub struct InBurst<'a>(&'a BurstLine);

impl InBurst<'_> {
    #[inline(always)]
    pub(crate) fn count(&self, packets: usize, bytes: u64) {
        self.0.packets.add(packets as u64);
        self.0.bytes.add(bytes);
    }
}

impl Drop for InBurst<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.at_work.store(false, order::at_work_end());
    }
}

/// A driver's view of a queue's bursts, for one that takes single queues from their lcores.
#[derive(Clone, Debug)]
pub struct BurstWatch(Arc<CachePadded<BurstLine>>);

impl BurstWatch {
    pub(crate) fn of(line: &Arc<CachePadded<BurstLine>>) -> Self {
        Self(Arc::clone(line))
    }

    /// Whether the burst is one of this queue's. Hot: one comparison.
    #[inline(always)]
    #[must_use]
    pub fn is_of(&self, burst: &InBurst<'_>) -> bool {
        std::ptr::eq::<BurstLine>(&**self.0, burst.0)
    }

    /// Waits for the burst under way, `longest` at most, after a word was changed that bursts read once they have begun:
    /// when this answers true none is inside that found the word as it was. False when `longest` was not enough.
    ///
    /// Some microseconds, and an interrupt to each running thread of the process: [`barrier::heavy`](pollux_eal::barrier::heavy).
    #[must_use]
    pub fn wait(&self, longest: Duration) -> bool {
        barrier::heavy();
        self.0.wait(longest)
    }
}

/// Both sides' barrier in one form that loom knows: which of them pays for it is not its business.
#[cfg(loom)]
pub(crate) mod barrier {
    pub(crate) fn light() {
        pollux_atomic::fence(pollux_atomic::Ordering::SeqCst);
    }
    pub(crate) use light as heavy;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::gate::{Gate, Passage};
    use pollux_atomic::AtomicU32;

    fn queue() -> (QueueOwner, BurstWatch) {
        let line = Arc::default();
        (QueueOwner::take(&line).expect("nobody has it"), BurstWatch::of(&line))
    }

    #[test]
    fn one_owner_at_a_time() {
        let line = Arc::default();
        let owner = QueueOwner::take(&line).expect("nobody has it");
        assert!(QueueOwner::take(&line).is_none() && line.is_owned());
        drop(owner);
        assert!(!line.is_owned() && QueueOwner::take(&line).is_some());
    }

    #[test]
    fn a_burst_is_of_its_own_queue_alone() {
        let ((mut one, watch), (mut other, _)) = (queue(), queue());
        assert!(watch.is_of(&one.enter()) && !watch.is_of(&other.enter()));
    }

    #[test]
    fn a_wait_ends_with_the_burst_or_with_its_limit() {
        let (mut owner, watch) = queue();
        assert!(watch.wait(Duration::ZERO), "nobody is at work");
        let inside = owner.enter();
        assert!(!watch.wait(Duration::from_millis(1)), "somebody is");
        drop(inside);
        assert!(watch.wait(Duration::ZERO));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _inside = owner.enter();
            std::panic::resume_unwind(Box::new("a callback's panic"));
        }));
        assert!(panicked.is_err() && watch.wait(Duration::ZERO), "a panic ends the burst too");
    }

    /// The race that stop must win: once it has waited, nobody is inside, and nobody comes in any more.
    #[test]
    fn stress_nobody_is_inside_after_the_wait() {
        for _ in 0..200 {
            let (gate, inside, (mut owner, watch)) = (Gate::new(), AtomicU32::new(0), queue());
            gate.open();
            let Passage::Opened(word) = gate.passage() else { panic!("open") };
            std::thread::scope(|scope| {
                let queue = scope.spawn(|| {
                    let mut bursts = 0_u32;
                    loop {
                        let _inside = owner.enter();
                        if !gate.is(word) {
                            return bursts;
                        }
                        inside.store(1, Ordering::Relaxed);
                        bursts += 1;
                        inside.store(0, Ordering::Relaxed);
                    }
                });
                std::thread::yield_now();
                gate.shut();
                assert!(watch.wait(Duration::from_secs(5)));
                for _ in 0..1000 {
                    assert_eq!(inside.load(Ordering::Relaxed), 0, "inside after stop");
                }
                queue.join().expect("the loop ends");
            });
        }
    }
}
