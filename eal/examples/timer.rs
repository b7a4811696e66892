//! Timers on an lcore: a periodic one, a timeout that another thread puts off again and again, and a cancel.
//!
//! `cargo run -p pollux-eal --example timer`

use std::error::Error;
use std::time::Duration;

use pollux_config::EalSpec;
use pollux_eal::clock::Nanos;
use pollux_eal::{Eal, LcoreContext};

const MILLISECOND: Nanos = Nanos(1_000_000);

fn main() -> Result<(), Box<dyn Error>> {
    let eal = Eal::init(EalSpec::default())?;
    let clock = eal.clock();
    let millisecond = clock.cycles(MILLISECOND).0;
    let lcore = eal.lcores().main();
    let timers = eal.timers(lcore)?;

    let mut tick = timers.timer(move |firing| {
        let late = clock.nanos(clock.now().0 - firing.deadline());
        println!("tick, {} ns late", late.0);
    })?;
    tick.arm_periodic(clock.now().0 + 10 * millisecond, 10 * millisecond)?;
    let mut idle = timers.timer(|_| println!("nothing heard for 20 ms"))?;

    let rounds = eal.launch(lcore, forward)?;
    for _ in 0..3 {
        // Heard something: the timeout starts anew.
        idle.arm(clock.now().0 + 20 * millisecond)?;
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(40));
    println!("the tick was {:?}", tick.cancel_and_wait());

    eal.stop_flag().set();
    println!("lcore {lcore} went {} rounds", rounds.wait()?);
    Ok(())
}

/// Where a loop polls its queues, it also lets its timers run.
fn forward(lcore: &LcoreContext) -> u64 {
    let mut rounds = 0;
    while !lcore.stop_requested() {
        lcore.run_timers();
        rounds += 1;
    }
    rounds
}

#[test]
fn runs() {
    main().expect("runs");
}
