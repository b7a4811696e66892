//! Timers in an lcore's loop: a periodic one, one that is put off again and again, and a cancel from another thread.
//!
//! `cargo run -p pollux-eal --example timer`

use std::time::{Duration, Instant};

use pollux_eal::timer::{LcoreTimers, TimerError};

fn main() -> Result<(), TimerError> {
    const MILLISECOND: u64 = 1_000_000;
    let begin = Instant::now();
    let now = move || begin.elapsed().as_nanos() as u64;
    let mut timers = LcoreTimers::new(16, 1_000_000_000, now())?;
    let maker = timers.maker();

    let mut tick = maker.timer(move |firing| {
        let late = now() - firing.deadline();
        println!("tick at {} ms, {late} ns late", firing.deadline() / MILLISECOND);
    })?;
    tick.arm_periodic(10 * MILLISECOND, 10 * MILLISECOND)?;

    let mut idle = maker.timer(|_| println!("nothing heard for 20 ms"))?;
    let control = std::thread::spawn(move || {
        for _ in 0..3 {
            // Heard something: the timeout starts anew.
            idle.arm(now() + 20 * MILLISECOND)?;
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(40));
        println!("the tick was {:?}", tick.cancel_and_wait());
        Ok::<_, TimerError>(())
    });

    while !control.is_finished() {
        timers.manage(now());
        std::thread::yield_now();
    }
    control.join().unwrap_or(Err(TimerError::Gone))
}
