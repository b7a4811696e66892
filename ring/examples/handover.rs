//! Hands numbers from one thread to another in bursts, and says what one cost.
//!
//! `cargo run --release -p pollux-ring --example handover`

use pollux_ring::{RingError, spsc};
use std::thread;
use std::time::Instant;

const NUMBERS: u64 = 1_000_000;
const BURST: usize = 32;

fn send(mut ring: spsc::Producer<u64>) {
    let mut burst = Vec::with_capacity(BURST);
    let mut next = 0;
    while next < NUMBERS || !burst.is_empty() {
        while burst.len() < BURST && next < NUMBERS {
            burst.push(next);
            next += 1;
        }
        // What does not fit stays at the front of the burst, for the next turn.
        if ring.enqueue_burst(&mut burst).count == 0 {
            thread::yield_now();
        }
    }
}

fn receive(mut ring: spsc::Consumer<u64>) -> u64 {
    let mut burst = Vec::with_capacity(BURST);
    let (mut received, mut sum) = (0, 0);
    while received < NUMBERS {
        let got = ring.dequeue_burst(&mut burst, BURST);
        if got.count == 0 {
            thread::yield_now();
        }
        received += got.count as u64;
        sum += burst.drain(..).sum::<u64>();
    }
    sum
}

fn main() -> Result<(), RingError> {
    let (producer, consumer) = spsc::ring(1024)?;
    let started = Instant::now();
    let sender = thread::spawn(move || send(producer));
    let sum = receive(consumer);
    sender.join().expect("the sender does not panic");
    assert_eq!(sum, NUMBERS * (NUMBERS - 1) / 2, "each number arrives once");
    let nanos = started.elapsed().as_nanos() as f64 / NUMBERS as f64;
    println!("{NUMBERS} numbers from thread to thread, {nanos:.2} ns each");
    Ok(())
}

#[test]
fn runs() {
    main().expect("runs");
}
