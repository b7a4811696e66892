//! The gate between a port's control handle and its queues.
//!
//! One word per port, read once a burst. It carries a generation beside the state: a queue remembers the word under
//! which it last ran, so that the check is one comparison, and the first burst after a (re)start takes the slow path
//! and wakes the driver's half of the queue. Its upper half counts changes of the captures: a queue learns of those on the same slow
//! path, and pays nothing for that in other bursts.
//!
//! Stop waits for bursts under way: see [`burst`](crate::burst).

use crate::order;
use crossbeam_utils::CachePadded;
use pollux_atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const STATE: u64 = 0b11;
const SHUT: u64 = 0;
const OPEN: u64 = 1;
const GONE: u64 = 2;
/// Counts openings.
const GENERATION: u64 = 4;
/// State and generation.
const OPENING: u64 = u32::MAX as u64;
/// Counts changes of the captures.
const CAPTURES: u64 = 1 << 32;

/// A shared word that says whether a port's queues may move packets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate(Arc<CachePadded<AtomicU64>>);

/// The word of the next opening.
fn opened(word: u64) -> u64 {
    let next = (word & OPENING & !STATE).wrapping_add(GENERATION) & OPENING;
    word & !OPENING | next | OPEN
}

/// What a queue found at the gate when the word was not the one it knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Stopped, or never started.
    Shut,
    /// Open under a new generation: this word.
    Opened(u64),
}

impl Gate {
    /// A word no gate ever has: what a queue knows before its first burst.
    pub(crate) const NEVER: u64 = STATE;

    /// A new gate, shut.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(CachePadded::new(AtomicU64::new(SHUT))))
    }

    /// True when the word is still `known`. Hot: one load, one comparison.
    #[inline(always)]
    pub(crate) fn is(&self, known: u64) -> bool {
        // Relaxed: a word that is known was read by `passage` before, which brought all that it brings.
        self.0.load(Ordering::Relaxed) == known
    }

    /// Sends each queue through the slow path once: the captures have changed, and are published.
    pub(crate) fn change_captures(&self) {
        self.0.fetch_add(CAPTURES, order::gate_change());
    }

    /// Whether two words are of one opening.
    pub(crate) fn same_opening(one: u64, other: u64) -> bool {
        (one ^ other) & OPENING == 0
    }

    /// The slow path, when [`Gate::is`] said no; `look` has the queue take the newest captures.
    ///
    /// The word first: the changes that it counts were published before it, so that `look` finds them. The other way round the word could count one
    /// that came after `look`, and a queue that knows it would not look again.
    pub(crate) fn pass(&self, look: impl FnOnce()) -> Passage {
        let passage = self.passage();
        look();
        passage
    }

    pub(crate) fn passage(&self) -> Passage {
        let word = self.0.load(order::gate_pass());
        if word & STATE == OPEN { Passage::Opened(word) } else { Passage::Shut }
    }

    /// Opens under a new generation. False when the port is gone.
    pub(crate) fn open(&self) -> bool {
        self.change(opened)
    }

    /// Shuts. False when the port is gone.
    pub(crate) fn shut(&self) -> bool {
        self.change(|word| word & !STATE | SHUT)
    }

    /// For a driver that finds its device gone, from either half and any thread: queues stop moving packets for good
    /// and the control handle tells.
    pub fn set_gone(&self) {
        // Once gone, the state never changes again, so a racing `open` cannot bring it back.
        self.change(|word| word & !STATE | GONE);
    }

    /// The device has disappeared.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        // Nothing was written for whoever finds the port gone.
        self.0.load(Ordering::Relaxed) & STATE == GONE
    }

    fn change(&self, next: impl Fn(u64) -> u64) -> bool {
        self.0
            .fetch_update(order::gate_change(), Ordering::Relaxed, |word| {
                (word & STATE != GONE).then(|| next(word))
            })
            .is_ok()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
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
        let gate = Gate(Arc::new(CachePadded::new(AtomicU64::new(CAPTURES | OPENING & !STATE))));
        assert!(gate.open());
        assert_eq!(gate.passage(), Passage::Opened(CAPTURES | OPEN), "nor the count of captures");
    }

    #[test]
    fn a_change_of_captures_is_noticed_and_is_no_opening() {
        let gate = Gate::new();
        gate.open();
        let Passage::Opened(first) = gate.passage() else { panic!("open") };
        gate.change_captures();
        assert!(!gate.is(first));
        let Passage::Opened(second) = gate.passage() else { panic!("still open") };
        assert!(Gate::same_opening(first, second) && gate.is(second));
        gate.shut();
        gate.change_captures();
        gate.open();
        let Passage::Opened(third) = gate.passage() else { panic!("open") };
        assert!(!Gate::same_opening(second, third));
    }

    #[test]
    fn gone_is_for_good() {
        let gate = Gate::new();
        assert!(gate.open());
        gate.set_gone();
        assert!(gate.is_gone());
        assert!(!gate.open() && !gate.shut());
        gate.change_captures();
        assert!(gate.is_gone());
        assert_eq!(gate.passage(), Passage::Shut);
    }
}
