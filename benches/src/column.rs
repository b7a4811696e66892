//! One column of a figure: rounds of two timed parts, warm or cold, and the copy loop in turn with them.

use std::fmt;

use crate::{Cold, CopyLoop, Disturbance, Watch};

/// Rounds between two blocks of copy loops, and loops in such a block.
const BLOCK: usize = 50;
/// Cold rounds cost a flush of all lines each, and vary less.
const FEWER_COLD: usize = 8;

/// How a figure is taken.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Timed rounds with warm lines.
    pub rounds: usize,
    /// Rounds before them that do not count.
    pub warm_up: usize,
    /// Packets, or requests, of a round.
    pub operations: usize,
    /// Cycles of two reads of the counter ([`two_reads`](crate::two_reads)), which are taken off each part.
    pub overhead: u64,
}

/// Medians, in cycles for each operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Of the first part: to receive, or to post.
    pub first: f64,
    /// Of the second part: to send, or to poll.
    pub second: f64,
    /// 10th, 50th and 90th percentile of both parts together.
    pub sum: [f64; 3],
    /// Of the copy loop on as many bytes.
    pub copy: f64,
    /// What others took of the machine meanwhile.
    pub disturbance: Disturbance,
}

/// What is timed.
pub trait Timed {
    /// Why it does not work.
    type Error;

    /// Works one round off, with `chill` called before each part; cycles of the two parts.
    ///
    /// # Errors
    /// It does not work.
    fn round(&mut self, chill: &dyn Fn()) -> Result<[u64; 2], Self::Error>;

    /// Bytes that the ledger has so far.
    fn bytes(&self) -> u64;
}

/// Takes the warm column and the cold one, with `lines` out of all caches before each part; and the bytes of an operation.
///
/// # Errors
/// Those of [`Timed::round`].
pub fn columns<T: Timed>(plan: Plan, lines: &Cold, timed: &mut T) -> Result<([Column; 2], f64), T::Error> {
    let (before, mut done) = (timed.bytes(), 0);
    let mut copy_loop = None;
    let mut column = |cold: bool| {
        let rounds = if cold { plan.rounds / FEWER_COLD } else { plan.rounds };
        let chill = || {
            if cold {
                lines.chill();
            }
        };
        let mut parts = [Vec::with_capacity(rounds), Vec::with_capacity(rounds)];
        let (mut sums, mut copies) = (Vec::with_capacity(rounds), Vec::new());
        for _ in 0..plan.warm_up {
            timed.round(&chill)?;
        }
        done += plan.warm_up;
        let watch = Watch::begin();
        for round in 0..rounds {
            let cycles = timed.round(&chill)?.map(|cycles| cycles.saturating_sub(plan.overhead));
            done += 1;
            parts.iter_mut().zip(cycles).for_each(|(part, cycles)| part.push(cycles));
            sums.push(cycles.iter().sum());
            // In blocks, for a copy takes the place of the driver's lines in the cache.
            if round % BLOCK == 0 {
                let copy = copy_loop
                    .get_or_insert_with(|| CopyLoop::new(((timed.bytes() - before) as usize).div_ceil(done)));
                let block = copy.time(BLOCK, cold);
                copies.extend(block.into_iter().map(|cycles| cycles.saturating_sub(plan.overhead)));
            }
        }
        let disturbance = watch.end(rounds);
        let [mut first, mut second] = parts;
        for list in [&mut first, &mut second, &mut sums, &mut copies] {
            list.sort_unstable();
        }
        let at = |sorted: &[u64], percent: usize| {
            let place = sorted.len().saturating_sub(1) * percent / 100;
            sorted.get(place).map_or(0.0, |&cycles| cycles as f64 / plan.operations as f64)
        };
        Ok(Column {
            first: at(&first, 50),
            second: at(&second, 50),
            sum: [10, 50, 90].map(|percent| at(&sums, percent)),
            copy: at(&copies, 50),
            disturbance,
        })
    };
    let both = [column(false)?, column(true)?];
    Ok((both, (timed.bytes() - before) as f64 / (done * plan.operations) as f64))
}

impl fmt::Display for Column {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second, sum: [low, median, high], copy, disturbance } = self;
        let loud = if disturbance.is_quiet() { "" } else { ", not quiet" };
        write!(out, "{first:5.1} {second:5.1} {median:6.1} ({low:.1}..{high:.1}) {:.2}{loud}", median / copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes longer each round, and moves 6,400 bytes in each.
    struct Slower(u64);

    impl Timed for Slower {
        type Error = &'static str;

        fn round(&mut self, chill: &dyn Fn()) -> Result<[u64; 2], &'static str> {
            chill();
            self.0 += 1;
            if self.0 > 500 { Err("tired") } else { Ok([self.0 * 100 + 20, 50]) }
        }

        fn bytes(&self) -> u64 {
            self.0 * 6400
        }
    }

    #[test]
    fn medians_are_of_the_rounds_that_count_and_less_what_reading_costs() {
        let plan = Plan { rounds: 81, warm_up: 10, operations: 10, overhead: 20 };
        let ([warm, cold], bytes) = columns(plan, &Cold::new(), &mut Slower(0)).expect("it works");
        // Rounds 11 to 91, then 102 to 111.
        assert_eq!((warm.first, warm.second, warm.sum[1]), (510.0, 3.0, 513.0));
        assert_eq!(cold.sum[1], 1063.0);
        assert!(warm.copy > 0.0 && cold.copy > 0.0);
        assert_eq!(bytes, 640.0);
    }

    #[test]
    fn what_does_not_work_is_told() {
        let plan = Plan { rounds: 600, warm_up: 0, operations: 1, overhead: 0 };
        assert_eq!(columns(plan, &Cold::new(), &mut Slower(0)).err(), Some("tired"));
    }
}
