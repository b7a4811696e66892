//! When packets are due: evenly, in bursts, or at random moments of a Poisson process.

use std::str::FromStr;

use pollux_eal::clock::Clock;
use pollux_kit::Noise;

/// Bits behind the point of what a packet costs in ticks.
const POINT: u32 = 20;
/// What is due and was not sent is made up for as far back as this part of a second: 10 ms.
pub(crate) const DEBT_PART: u64 = 100;
/// The longest time between two looks that counts, in ticks.
const PASSED_MAX: u64 = 1 << 42;

/// How packets follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// At equal distances.
    #[default]
    Constant,
    /// So many back to back, at equal distances.
    Burst(u32),
    /// At random distances, independent of each other.
    Poisson,
}

impl FromStr for Pattern {
    type Err = String;

    /// What is wrong is said behind the text.
    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("burst:")) {
            ("constant", _) => Ok(Self::Constant),
            ("poisson", _) => Ok(Self::Poisson),
            (_, Some(count)) => {
                let count = count.parse().ok().filter(|count| (1..=1_000_000).contains(count));
                count.map(Self::Burst).ok_or_else(|| "is not a burst of 1 to 1000000 packets".into())
            }
            _ => Err("is not one of constant, poisson, burst:N".into()),
        }
    }
}

/// Says how many packets are due.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pattern: Pattern,
    /// What a packet costs, in ticks behind the point; 0: nothing, so that there is always one due.
    cost: u64,
    /// Ticks that passed and were not used.
    credit: u64,
    most: u64,
    last: u64,
    /// Of a burst that has begun.
    pending: u64,
    /// What the next packet costs.
    gap: u64,
    noise: Noise,
}

impl Schedule {
    /// From `now` on, `pps` packets a second; `None`: always one more.
    pub(crate) fn new(clock: &Clock, pattern: Pattern, pps: Option<f64>, seed: u64, now: u64) -> Self {
        let hz = clock.hz() as f64;
        // Rounded up: the last packet is not due before the end.
        let cost = pps.map_or(0, |pps| ((hz / pps * f64::from(1 << POINT)).ceil() as u64).clamp(1, 1 << 61));
        let debt = (clock.hz() / DEBT_PART) << POINT;
        let group = if let Pattern::Burst(count) = pattern { u64::from(count) } else { 1 };
        let most = debt.max(cost.saturating_mul(group.saturating_mul(2))).min(1 << 62);
        let mut schedule = Self {
            pattern,
            cost,
            credit: 0,
            most,
            last: now,
            pending: 0,
            gap: cost,
            noise: Noise::new(seed),
        };
        match pattern {
            // The first is due at once, and none at the end of the last distance.
            Pattern::Constant => schedule.credit = cost.saturating_sub(1),
            Pattern::Burst(_) => schedule.credit = cost.saturating_mul(group).saturating_sub(1).min(most),
            Pattern::Poisson => schedule.draw_gap(),
        }
        schedule
    }

    /// Adds the time until `now`; how many packets will not be made up for.
    #[inline]
    fn pass(&mut self, now: u64) -> u64 {
        let passed = now.wrapping_sub(self.last);
        if passed > u64::MAX / 2 {
            return 0;
        }
        self.last = now;
        let credit = self.credit.saturating_add(passed.min(PASSED_MAX) << POINT);
        if credit <= self.most {
            self.credit = credit;
            return 0;
        }
        self.missed(credit)
    }

    #[cold]
    fn missed(&mut self, credit: u64) -> u64 {
        let missed = (credit - self.most).div_ceil(self.cost.max(1));
        self.credit = credit.saturating_sub(missed * self.cost);
        missed
    }

    /// How many packets are due at `now`, `wanted` at most, and how many were due so long ago that they are never sent.
    #[inline]
    pub(crate) fn due(&mut self, now: u64, wanted: u64) -> (u64, u64) {
        if self.cost == 0 {
            return (wanted, 0);
        }
        let missed = self.pass(now);
        let due = match self.pattern {
            Pattern::Constant => {
                if self.credit < self.cost {
                    return (0, missed);
                }
                let due = (self.credit / self.cost).min(wanted);
                self.credit -= due * self.cost;
                due
            }
            Pattern::Burst(count) => {
                let price = self.cost.saturating_mul(count.into());
                if self.pending == 0 && self.credit >= price {
                    self.credit -= price;
                    self.pending = count.into();
                }
                let due = self.pending.min(wanted);
                self.pending -= due;
                due
            }
            Pattern::Poisson => {
                let mut due = 0;
                while due < wanted && self.credit >= self.gap {
                    self.credit -= self.gap;
                    self.draw_gap();
                    due += 1;
                }
                due
            }
        };
        (due, missed)
    }

    /// How many more were due until `now`, when the end has come.
    pub(crate) fn rest(&mut self, now: u64) -> u64 {
        if self.cost == 0 {
            return 0;
        }
        let missed = self.pass(now);
        let mut rest = missed + self.pending;
        self.pending = 0;
        loop {
            let (due, _) = self.due(now, u64::MAX);
            rest += due;
            if due == 0 {
                return rest;
            }
        }
    }

    /// Exponential, of the mean that a packet costs.
    fn draw_gap(&mut self) {
        // Above 0, at most 1.
        let share = ((self.noise.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.gap = (-share.ln() * self.cost as f64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pattern: Pattern, pps: f64, step: u64, seconds: u64, wanted: u64) -> (u64, Vec<u64>) {
        let clock = Clock::get();
        let (mut schedule, mut sent, mut moments) =
            (Schedule::new(&clock, pattern, Some(pps), 7, 0), 0, Vec::new());
        let mut now = 0;
        while now < clock.hz() * seconds {
            let (due, missed) = schedule.due(now, wanted);
            sent += due + missed;
            moments.extend(std::iter::repeat_n(now, due as usize));
            now += step;
        }
        (sent + schedule.rest(clock.hz() * seconds), moments)
    }

    #[test]
    fn constant_packets_are_as_many_as_asked_for_and_equally_far_apart() {
        let clock = Clock::get();
        let (sent, moments) = run(Pattern::Constant, 100_000.0, 211, 1, 32);
        assert_eq!((sent, moments.len()), (100_000, 100_000));
        let apart = clock.hz() / 100_000;
        let gaps = moments.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.into_iter().all(|gap| gap.abs_diff(apart) <= 212), "of {apart}");
        // Looks that are rarer than packets.
        assert_eq!(run(Pattern::Constant, 1_000_003.0, 77_777, 2, 64).0, 2_000_006);
    }

    #[test]
    fn bursts_come_whole() {
        let (sent, moments) = run(Pattern::Burst(100), 100_000.0, 211, 1, 32);
        assert_eq!(sent, 100_000);
        let groups: Vec<_> = moments.chunks(100).collect();
        let clock = Clock::get();
        assert_eq!(groups.len(), 1000);
        for pair in groups.windows(2) {
            assert!(pair[0][99] - pair[0][0] <= 4 * 211 && pair[1][0] - pair[0][99] > clock.hz() / 1100);
        }
    }

    #[test]
    fn poisson_has_the_mean_and_the_variance() {
        let clock = Clock::get();
        let (sent, moments) = run(Pattern::Poisson, 100_000.0, 101, 2, 64);
        // Within five standard deviations.
        assert!(sent.abs_diff(200_000) < 5 * 450, "{sent}");
        let mean = clock.hz() as f64 / 100_000.0;
        let gaps: Vec<f64> = moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / mean).collect();
        let variance = gaps.iter().map(|gap| (gap - 1.0).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.95..1.05).contains(&variance), "{variance}");
    }

    #[test]
    fn what_was_due_long_ago_is_missed_and_counted() {
        let clock = Clock::get();
        let mut schedule = Schedule::new(&clock, Pattern::Constant, Some(1e6), 1, 0);
        let (mut sent, missed) = schedule.due(clock.hz(), 64);
        while let (due @ 1.., _) = schedule.due(clock.hz(), 64) {
            sent += due;
        }
        assert_eq!(sent + missed, 1_000_000);
        assert!((9_000..=10_001).contains(&sent), "{sent} within 10 ms");
        assert_eq!(schedule.rest(clock.hz()), 0);
    }

    #[test]
    fn patterns_are_read() {
        assert_eq!("burst:32".parse(), Ok(Pattern::Burst(32)));
        assert_eq!(("constant".parse(), "poisson".parse()), (Ok(Pattern::Constant), Ok(Pattern::Poisson)));
        assert_eq!("burst:0".parse::<Pattern>(), Err("is not a burst of 1 to 1000000 packets".into()));
        assert_eq!("even".parse::<Pattern>(), Err("is not one of constant, poisson, burst:N".into()));
    }
}
