//! Figures of the timer wheel.

use pollux_eal::clock::Clock;
use pollux_eal::timer::{TimerId, Wheel};

use crate::{cycles, per};

/// One trial of the figure called `name`, or nothing when it is not one of these.
pub(crate) fn run(name: &str) -> Option<f64> {
    match name {
        "timer_rearm_1m" => rearm(1_000_000),
        "timer_rearm_10k" => rearm(10_000),
        "timer_expiry" => expire(100_000, false),
        "timer_expiry_random" => expire(10_000, true),
        _ => None,
    }
}

/// xorshift64*: deadlines need no better.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn wheel(count: usize) -> Option<(Wheel<usize>, Vec<TimerId>, u64)> {
    let hz = Clock::get().hz();
    let mut wheel = Wheel::new(count, hz, cycles()).ok()?;
    let ids = (0..count).map(|payload| wheel.insert(payload)).collect::<Result<_, _>>().ok()?;
    Some((wheel, ids, hz))
}

/// Arms `count` timers 60 to 120 s ahead, then each again.
fn rearm(count: usize) -> Option<f64> {
    let (mut wheel, ids, hz) = wheel(count)?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    // The clock is read for each timer, as the peer's call does.
    let mut far = || cycles_now() + 60 * hz + random.next() % (60 * hz);
    for &id in &ids {
        wheel.arm(id, far());
    }
    let start = cycles();
    for &id in &ids {
        wheel.arm(id, far());
    }
    let value = per(start, count);
    (wheel.stats().armed == count).then_some(value)
}

/// Lets `count` timers come due within a millisecond, all at one time or at random ones, then handles them.
fn expire(count: usize, random: bool) -> Option<f64> {
    let (mut wheel, ids, hz) = wheel(count)?;
    let span = hz / 1000;
    let mut numbers = Random(0x9e37_79b9_7f4a_7c15);
    let now = cycles();
    for &id in &ids {
        wheel.arm(id, now + if random { 1 + numbers.next() % span } else { span });
    }
    let mut fired = 0;
    let clock = Clock::get();
    clock.delay_us(2000);
    let start = cycles();
    while fired < count {
        wheel.manage(cycles_now(), |_timers, _id, _payload| fired += 1);
    }
    Some(per(start, count))
}

fn cycles_now() -> u64 {
    pollux_eal::clock::cycles::now()
}
