//! Every interleaving of a queue's bursts with the control handle or with a driver that takes queues from their lcores,
//! explored by loom: `cargo xtask loom`.
//!
//! What both sides touch under the gate's rules is a tracked cell, so that an access that the rules let race is found.

use super::{Gate, Passage};
use crate::burst::{BurstLine, QueueOwner, barrier};
use crossbeam_utils::CachePadded;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use pollux_atomic::{AtomicU32, Ordering, explore};

/// What says whether the owner may work.
#[derive(Clone)]
enum Word {
    /// The port's, and the one that is known of it.
    Gate(Gate, u64),
    /// A driver's, that is one while the queue runs.
    Driver(std::sync::Arc<AtomicU32>),
    /// The port's with the word that is known of it, and the captures: how often they were published, and at which of them the queue has looked.
    /// It is open as long as the queue has a capture, the first of the two that there ever are.
    Captures { gate: Gate, known: u64, published: std::sync::Arc<AtomicU32>, seen: u32 },
}

impl Word {
    fn of_gate() -> Self {
        Self::Gate(Gate::new(), Gate::NEVER)
    }

    fn of_captures() -> Self {
        let gate = Gate::new();
        assert!(gate.open());
        Self::Captures { gate, known: Gate::NEVER, published: std::sync::Arc::default(), seen: 0 }
    }

    /// As `Captures` publishes.
    fn publish(published: &AtomicU32, gate: &Gate) {
        // As strong as the publisher has it is not needed here: the gate's word orders it.
        published.fetch_add(1, Ordering::Relaxed);
        gate.change_captures();
    }

    fn open(&self) {
        match self {
            Self::Captures { gate, published, .. } => Self::publish(published, gate),
            Self::Gate(gate, _) => assert!(gate.open()),
            Self::Driver(word) => word.store(1, Ordering::Release),
        }
    }

    fn close(&self) {
        match self {
            Self::Captures { gate, published, .. } => Self::publish(published, gate),
            Self::Gate(gate, _) => assert!(gate.shut()),
            Self::Driver(word) => assert_eq!(word.swap(0, Ordering::AcqRel), 1),
        }
    }

    /// As `Queue::at_work` looks at the gate; as a driver does.
    fn is_open(&mut self) -> bool {
        match self {
            Self::Captures { gate, known, published, seen } => {
                if !gate.is(*known) {
                    match gate.pass(|| *seen = published.load(Ordering::Relaxed)) {
                        Passage::Shut => unreachable!("it is open throughout"),
                        Passage::Opened(word) => *known = word,
                    }
                }
                assert!(u64::from(*seen) >= *known >> 32, "a change that the queue knows and has not seen");
                *seen == 1
            }
            Self::Gate(gate, known) if gate.is(*known) => true,
            Self::Gate(gate, known) => match gate.passage() {
                Passage::Shut => false,
                Passage::Opened(word) => {
                    *known = word;
                    true
                }
            },
            Self::Driver(word) => word.load(Ordering::Acquire) == 1,
        }
    }
}

/// One burst; tells whether it was let work.
fn burst(owner: &mut QueueOwner, word: &mut Word, data: &UnsafeCell<u32>, with_barrier: bool) -> bool {
    let _inside = if with_barrier { owner.enter() } else { owner.enter_without_barrier() };
    word.is_open() && {
        data.with_mut(drop);
        true
    }
}

fn close_and_wait(word: fn() -> Word, with_barrier: bool) {
    explore(4, move || {
        let line = std::sync::Arc::default();
        let mut owner = QueueOwner::take(&line).expect("nobody has it");
        let (word, data) = (word(), Arc::new(UnsafeCell::new(0)));
        word.open();
        let queue = {
            let (mut word, data) = (word.clone(), Arc::clone(&data));
            thread::spawn(move || {
                let first = burst(&mut owner, &mut word, &data, with_barrier);
                // Known now, so by the short way.
                let second = burst(&mut owner, &mut word, &data, with_barrier);
                assert!(first || !second, "closed for good");
            })
        };
        word.close();
        if with_barrier {
            barrier::heavy();
        }
        while line.is_at_work() {
            thread::yield_now();
        }
        data.with_mut(drop);
        queue.join().unwrap();
    });
}

#[test]
fn gate_shut_and_waited_for() {
    close_and_wait(Word::of_gate, true);
}

/// That the model sees what the barrier is for.
#[test]
#[should_panic(expected = "Concurrent")]
fn gate_shut_without_a_barrier() {
    close_and_wait(Word::of_gate, false);
}

#[test]
fn queue_taken_by_its_driver_and_waited_for() {
    close_and_wait(|| Word::Driver(std::sync::Arc::default()), true);
}

#[test]
#[should_panic(expected = "Concurrent")]
fn queue_taken_by_its_driver_without_a_barrier() {
    close_and_wait(|| Word::Driver(std::sync::Arc::default()), false);
}

#[test]
fn captures_ended_and_waited_for() {
    close_and_wait(Word::of_captures, true);
}

#[test]
#[should_panic(expected = "Concurrent")]
fn captures_ended_without_a_barrier() {
    close_and_wait(Word::of_captures, false);
}

/// What the word counts is seen, so that no queue misses the last change.
#[test]
fn captures_that_changed_are_seen() {
    explore(4, || {
        let mut word = Word::of_captures();
        let other = word.clone();
        let control = thread::spawn(move || {
            other.open();
            other.close();
        });
        for _ in 0..2 {
            let _open = word.is_open();
        }
        control.join().unwrap();
        assert!(!word.is_open(), "both were seen");
    });
}

#[test]
fn gate_opened_brings_the_start() {
    explore(4, || {
        let mut owner = QueueOwner::take(&std::sync::Arc::default()).expect("nobody has it");
        let (word, data) = (Word::of_gate(), Arc::new(UnsafeCell::new(0)));
        let queue = {
            let (mut word, data) = (word.clone(), Arc::clone(&data));
            thread::spawn(move || {
                for _ in 0..2 {
                    burst(&mut owner, &mut word, &data, true);
                }
            })
        };
        // What `start` writes before it opens.
        data.with_mut(drop);
        word.open();
        queue.join().unwrap();
    });
}

#[test]
fn queue_from_owner_to_owner() {
    explore(4, || {
        let line = std::sync::Arc::default();
        let counted = Arc::new(UnsafeCell::new(0));
        let use_it = |line: &std::sync::Arc<CachePadded<BurstLine>>, counted: &UnsafeCell<u32>| {
            if let Some(owner) = QueueOwner::take(line) {
                counted.with_mut(drop);
                drop(owner);
            }
        };
        let other = {
            let (line, counted) = (std::sync::Arc::clone(&line), Arc::clone(&counted));
            thread::spawn(move || use_it(&line, &counted))
        };
        use_it(&line, &counted);
        other.join().unwrap();
    });
}

#[test]
fn relaxations() {
    pollux_atomic::print(crate::order::RELAXATIONS);
}
