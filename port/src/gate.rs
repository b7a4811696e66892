//! The gate between a port's control handle and its queues.
//!
//! One word per port, read once a burst. It carries a generation beside the state: a queue remembers the word under
//! which it last ran, so that the check is one comparison, and the first burst after a (re)start takes the slow path
//! and wakes the driver's half of the queue.
//!
//! Stop waits for bursts under way. Both sides write one word and then read the other's, which needs a full barrier
//! between the two on both sides, or one side's pays for both ([`barrier::heavy`]):
//!
//! ```text
//!   queue, each burst              control handle, once a stop
//!   at work = true                 gate = shut
//!   barrier::light()               barrier::heavy()
//!   gate still open? then work     wait while at work
//!   at work = false
//! ```
use crate::order;
use crossbeam_utils::CachePadded;
use pollux_atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(not(loom))]
use pollux_eal::barrier;
use std::sync::Arc;
use std::time::{Duration, Instant};

const STATE: u32 = 0b11;
const SHUT: u32 = 0;
const OPEN: u32 = 1;
const GONE: u32 = 2;
const GENERATION: u32 = 4;

/// A shared word that says whether a port's queues may move packets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate(Arc<CachePadded<AtomicU32>>);

/// What a queue found at the gate when the word was not the one it knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Stopped, or never started.
    Shut,
    /// Open under a new generation: this word.
    Opened(u32),
}

impl Gate {
    /// A word no gate ever has: what a queue knows before its first burst.
    pub(crate) const NEVER: u32 = STATE;

    /// A new gate, shut.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(CachePadded::new(AtomicU32::new(SHUT))))
    }

    /// True when the word is still `known`. Hot: one load, one comparison.
    #[inline(always)]
    pub(crate) fn is(&self, known: u32) -> bool {
        // Relaxed: a word that is known was read by `passage` before, which brought all that it brings.
        self.0.load(Ordering::Relaxed) == known
    }

    /// The slow path, when [`Gate::is`] said no.
    pub(crate) fn passage(&self) -> Passage {
        let word = self.0.load(order::gate_pass());
        if word & STATE == OPEN { Passage::Opened(word) } else { Passage::Shut }
    }

    /// Opens under a new generation. False when the port is gone.
    pub(crate) fn open(&self) -> bool {
        self.change(|word| (word & !STATE).wrapping_add(GENERATION) | OPEN)
    }

    /// Shuts. False when the port is gone.
    pub(crate) fn shut(&self) -> bool {
        self.change(|word| word & !STATE | SHUT)
    }

    /// For a driver that finds its device gone, from either half and any thread: queues stop moving packets for good
    /// and the control handle tells.
    pub fn set_gone(&self) {
        // Once gone, the word never changes again, so a racing `open` cannot bring it back.
        self.change(|word| word & !STATE | GONE);
    }

    /// The device has disappeared.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        // Nothing was written for whoever finds the port gone.
        self.0.load(Ordering::Relaxed) & STATE == GONE
    }

    fn change(&self, next: impl Fn(u32) -> u32) -> bool {
        self.0
            .fetch_update(order::gate_change(), Ordering::Relaxed, |word| {
                (word & STATE != GONE).then(|| next(word))
            })
            .is_ok()
    }
}

/// Says that a queue's owner is inside a burst. One writer, the lcore that owns the queue.
#[derive(Debug, Default)]
pub struct AtWork(AtomicBool);

/// A burst under way.
pub(crate) struct Inside<'a>(&'a AtWork);

impl AtWork {
    /// Begins a burst, which ends with the answer's drop, by a panic too. To be called before the look at the gate.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.0.store(true, Ordering::Relaxed);
        barrier::light();
        Inside(self)
    }

    /// For the model, to show what the barrier is for.
    #[cfg(all(test, loom))]
    fn enter_without_barrier(&self) -> Inside<'_> {
        self.0.store(true, Ordering::Relaxed);
        Inside(self)
    }

    #[inline]
    fn is_at_work(&self) -> bool {
        self.0.load(order::at_work_wait())
    }

    /// Waits until no burst is under way that began before the gate was shut, `longest` at most; false when that was not
    /// enough. `barrier::heavy` stands between the shutting and this.
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

/// How long to wait without going to sleep, and for how long at once then.
const SPIN: Duration = Duration::from_micros(20);

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.0.store(false, order::at_work_end());
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// Both sides' barrier in one form that loom knows: which of them pays for it is not its business.
#[cfg(loom)]
mod barrier {
    pub(super) fn light() {
        pollux_atomic::fence(pollux_atomic::Ordering::SeqCst);
    }
    pub(super) use light as heavy;
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_opening_has_its_own_word() {
        let gate = Gate::new();
        assert_eq!(gate.passage(), Passage::Shut);
        assert!(!gate.is(Gate::NEVER), "a queue that never ran must not pass a gate that never opened");
        assert!(gate.open());
        let Passage::Opened(first) = gate.passage() else { panic!("open") };
        assert!(gate.is(first));
        assert!(gate.shut());
        assert!(!gate.is(first));
        assert!(gate.open());
        let Passage::Opened(second) = gate.passage() else { panic!("open") };
        assert_ne!(first, second, "a queue that slept through a stop and start must notice");
    }

    #[test]
    fn the_generation_wraps_without_touching_the_state() {
        let gate = Gate(Arc::new(CachePadded::new(AtomicU32::new(!STATE))));
        assert!(gate.open());
        assert_eq!(gate.passage(), Passage::Opened(OPEN));
    }

    #[test]
    fn a_wait_ends_with_the_burst_or_with_its_limit() {
        let at_work = AtWork::default();
        assert!(at_work.wait(Duration::ZERO), "nobody is at work");
        let inside = at_work.enter();
        assert!(!at_work.wait(Duration::from_millis(1)), "somebody is");
        drop(inside);
        assert!(at_work.wait(Duration::ZERO));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _inside = at_work.enter();
            std::panic::resume_unwind(Box::new("a callback's panic"));
        }));
        assert!(panicked.is_err() && at_work.wait(Duration::ZERO), "a panic ends the burst too");
    }

    /// The race that stop must win: once it has waited, nobody is inside, and nobody comes in any more.
    #[test]
    fn stress_nobody_is_inside_after_the_wait() {
        for _ in 0..200 {
            let (gate, at_work, inside) = (Gate::new(), AtWork::default(), AtomicU32::new(0));
            gate.open();
            let Passage::Opened(word) = gate.passage() else { panic!("open") };
            std::thread::scope(|scope| {
                let queue = scope.spawn(|| {
                    let mut bursts = 0_u32;
                    loop {
                        let _inside = at_work.enter();
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
                barrier::heavy();
                assert!(at_work.wait(Duration::from_secs(5)));
                for _ in 0..1000 {
                    assert_eq!(inside.load(Ordering::Relaxed), 0, "inside after stop");
                }
                queue.join().expect("the loop ends");
            });
        }
    }

    #[test]
    fn gone_is_for_good() {
        let gate = Gate::new();
        assert!(gate.open());
        gate.set_gone();
        assert!(gate.is_gone());
        assert!(!gate.open() && !gate.shut());
        assert_eq!(gate.passage(), Passage::Shut);
    }
}
