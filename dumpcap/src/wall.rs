//! The time of day of an application's ticks.
//!
//! Both processes read one counter, so that its ticks are put beside the system's clock here, again and again: the rate is what was measured
//! since the start, or since the system's clock was set.

use pollux_eal::clock::cycles;
use pollux_frame_io::pcap::Timestamp;

/// How often the two clocks are put side by side.
const EVERY_NS: u64 = 100_000_000;
/// From here on the measured rate is better than the one that was told.
const BASELINE_NS: u64 = 50_000_000;
/// More than counters and clocks drift apart: somebody set the clock.
const STEP_PPM: f64 = 1000.0;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment {
    ticks: u64,
    wall_ns: u64,
}

/// Turns ticks into the time of day.
#[derive(Debug)]
pub(crate) struct WallClock {
    tsc: bool,
    told: f64,
    start: Moment,
    latest: Moment,
    nanos_per_tick: f64,
    /// What was answered last, so that times do not go back where ticks do not.
    last: Moment,
}

impl WallClock {
    /// For ticks of this rate: of the processor's counter, or nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) fn new(tsc: bool, hz: u64) -> Self {
        Self::from(tsc, hz, Self::now(tsc))
    }

    fn from(tsc: bool, hz: u64, start: Moment) -> Self {
        let told = 1e9 / hz.max(1) as f64;
        let last = Moment { ticks: 0, wall_ns: 0 };
        Self { tsc, told, start, latest: start, nanos_per_tick: told, last }
    }

    /// Both clocks, as close to each other as a few tries get them.
    fn now(tsc: bool) -> Moment {
        let ticks = || if tsc { cycles::now_precise() } else { cycles::monotonic_ns() };
        let mut best = (u64::MAX, Moment { ticks: 0, wall_ns: 0 });
        for _ in 0..5 {
            let before = ticks();
            let wall_ns = Timestamp::now().nanos();
            let width = ticks().wrapping_sub(before);
            if width < best.0 {
                best = (width, Moment { ticks: before.wrapping_add(width / 2), wall_ns });
            }
        }
        best.1
    }

    /// Puts the clocks side by side again, if that was some time ago.
    pub(crate) fn follow(&mut self) {
        if Timestamp::now().nanos().abs_diff(self.latest.wall_ns) >= EVERY_NS {
            self.follow_to(Self::now(self.tsc));
        }
    }

    fn follow_to(&mut self, now: Moment) {
        let expected = self.at(now.ticks);
        let since = now.ticks.wrapping_sub(self.latest.ticks) as f64 * self.told;
        if (now.wall_ns as f64 - expected as f64).abs() > since * STEP_PPM / 1e6 + 1e6 {
            self.start = now;
            self.nanos_per_tick = self.told;
            self.last = Moment { ticks: 0, wall_ns: 0 };
        } else if now.wall_ns.saturating_sub(self.start.wall_ns) > BASELINE_NS {
            let (ticks, wall) = (now.ticks.wrapping_sub(self.start.ticks), now.wall_ns - self.start.wall_ns);
            self.nanos_per_tick = wall as f64 / ticks as f64;
        }
        self.latest = now;
    }

    fn at(&self, ticks: u64) -> u64 {
        // Before or after.
        let over = ticks.wrapping_sub(self.latest.ticks).cast_signed() as f64 * self.nanos_per_tick;
        self.latest.wall_ns.saturating_add_signed(over as i64)
    }

    /// The time of day of these ticks.
    pub(crate) fn time(&mut self, ticks: u64) -> Timestamp {
        let mut wall_ns = self.at(ticks);
        if ticks >= self.last.ticks {
            wall_ns = wall_ns.max(self.last.wall_ns);
            self.last = Moment { ticks, wall_ns };
        }
        Timestamp::from_nanos(wall_ns)
    }
}

#[cfg(test)]
mod tests {
    use pollux_tests::patience::patient;

    use super::*;

    const HZ: u64 = 2_000_000_000;
    const DAY: u64 = 1_700_000_000_000_000_000;

    #[test]
    fn a_rate_that_was_told_wrong_is_measured() {
        let mut clock = WallClock::from(true, HZ, Moment { ticks: 1000, wall_ns: DAY });
        assert_eq!(clock.time(1000 + HZ).nanos(), DAY + 1_000_000_000);
        // The counter is 100 millionths faster than was told.
        let ticks = |ms: u64| 1000 + ms * (HZ + HZ / 10_000) / 1000;
        for step in 1..=100 {
            clock.follow_to(Moment { ticks: ticks(step * 100), wall_ns: DAY + step * 100_000_000 });
        }
        let ahead = clock.at(ticks(10_100)).abs_diff(DAY + 10_100_000_000);
        assert!(ahead < 1000, "{ahead} ns off");
        let behind = clock.at(ticks(9_900)).abs_diff(DAY + 9_900_000_000);
        assert!(behind < 1000, "{behind} ns off");
    }

    #[test]
    fn times_do_not_go_back_where_ticks_do_not() {
        let mut clock = WallClock::from(true, HZ, Moment { ticks: 0, wall_ns: DAY });
        let first = clock.time(2 * HZ);
        // The counter turns out to be slower.
        clock.follow_to(Moment { ticks: 2 * HZ, wall_ns: DAY + 2_000_000_000 - 50_000 });
        assert_eq!(clock.time(2 * HZ + 2), first);
        assert!(clock.time(2 * HZ - 1_000_000) < first, "an earlier one of another lcore");
    }

    #[test]
    fn a_clock_that_was_set_is_followed_at_once() {
        let mut clock = WallClock::from(true, HZ, Moment { ticks: 0, wall_ns: DAY });
        clock.time(HZ);
        clock.follow_to(Moment { ticks: HZ, wall_ns: DAY - 3_600_000_000_000 });
        assert_eq!(clock.time(HZ).nanos(), DAY - 3_600_000_000_000);
        assert_eq!(clock.time(2 * HZ).nanos(), DAY - 3_599_000_000_000);
    }

    #[test]
    fn now_is_now() {
        for tsc in [true, false] {
            let real = pollux_eal::clock::Clock::get();
            let hz = if tsc { real.hz() } else { 1_000_000_000 };
            if tsc && real.source() == pollux_eal::clock::Source::Monotonic {
                continue;
            }
            // The clocks cannot be read at once: a try in which the thread was preempted says nothing.
            let is_close = || {
                let mut clock = WallClock::new(tsc, hz);
                clock.follow();
                let before = Timestamp::now().nanos();
                let ticks = if tsc { cycles::now_precise() } else { cycles::monotonic_ns() };
                let time = clock.time(ticks).nanos();
                time + 20_000 > before && time < Timestamp::now().nanos() + 20_000
            };
            let end = std::time::Instant::now() + patient(std::time::Duration::from_secs(1));
            let mut close = std::iter::repeat_with(is_close).take_while(|_| std::time::Instant::now() < end);
            assert!(close.any(|close| close), "20 us off");
        }
    }
}
