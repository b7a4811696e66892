//! Every interleaving of a queue's bursts with the control handle, explored by loom: `cargo xtask loom`.
//!
//! What both sides touch under the gate's rules is a tracked cell, so that an access that the rules let race is found.

use super::{AtWork, Gate, Passage, barrier};
use crate::queue::Held;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use pollux_atomic::{AtomicBool, explore};

#[derive(Default)]
struct Port {
    gate: Gate,
    at_work: AtWork,
}

/// One burst, as `Queue::at_work` begins it; tells whether it passed the gate.
fn burst(port: &Port, known: &mut u32, data: &UnsafeCell<u32>, with_barrier: bool) -> bool {
    let _inside = if with_barrier { port.at_work.enter() } else { port.at_work.enter_without_barrier() };
    if !port.gate.is(*known) {
        match port.gate.passage() {
            Passage::Shut => return false,
            Passage::Opened(word) => *known = word,
        }
    }
    data.with_mut(drop);
    true
}

fn shut_and_wait(with_barrier: bool) {
    explore(4, move || {
        let port = Arc::new(Port::default());
        let data = Arc::new(UnsafeCell::new(0));
        assert!(port.gate.open());
        let queue = {
            let (port, data) = (Arc::clone(&port), Arc::clone(&data));
            thread::spawn(move || {
                let mut known = Gate::NEVER;
                let first = burst(&port, &mut known, &data, with_barrier);
                // Known now, so by the short way.
                let second = burst(&port, &mut known, &data, with_barrier);
                assert!(first || !second, "shut for good");
            })
        };
        assert!(port.gate.shut());
        if with_barrier {
            barrier::heavy();
        }
        while port.at_work.is_at_work() {
            thread::yield_now();
        }
        data.with_mut(drop);
        queue.join().unwrap();
    });
}

#[test]
fn gate_shut_and_waited_for() {
    shut_and_wait(true);
}

/// That the model sees what the barrier is for.
#[test]
#[should_panic(expected = "Concurrent")]
fn gate_shut_without_a_barrier() {
    shut_and_wait(false);
}

#[test]
fn gate_opened_brings_the_start() {
    explore(4, || {
        let port = Arc::new(Port::default());
        let data = Arc::new(UnsafeCell::new(0));
        let queue = {
            let (port, data) = (Arc::clone(&port), Arc::clone(&data));
            thread::spawn(move || {
                let mut known = Gate::NEVER;
                for _ in 0..2 {
                    burst(&port, &mut known, &data, true);
                }
            })
        };
        // What `start` writes before it opens.
        data.with_mut(drop);
        assert!(port.gate.open());
        queue.join().unwrap();
    });
}

#[test]
fn queue_from_owner_to_owner() {
    explore(4, || {
        let flag = std::sync::Arc::new(AtomicBool::new(false));
        let counted = Arc::new(UnsafeCell::new(0));
        let use_it = |flag: &std::sync::Arc<AtomicBool>, counted: &UnsafeCell<u32>| {
            if let Some(held) = Held::take(flag) {
                counted.with_mut(drop);
                drop(held);
            }
        };
        let other = {
            let (flag, counted) = (std::sync::Arc::clone(&flag), Arc::clone(&counted));
            thread::spawn(move || use_it(&flag, &counted))
        };
        use_it(&flag, &counted);
        other.join().unwrap();
    });
}

#[test]
fn relaxations() {
    pollux_atomic::print(crate::order::RELAXATIONS);
}
