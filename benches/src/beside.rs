//! What a peer measures too: the same two timed parts, by the same rule (`peer/cycles.h`).

use std::fmt;

use crate::{Plan, Timed};

/// Cycles for an operation, and the bytes that PCIe carried for it.
///
/// Means of all rounds but the slowest 1 in 100, which something interrupted. No medians: a driver may leave a part of its work to every
/// second round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Means {
    /// Of the first part: to receive, or to post.
    pub first: f64,
    /// Of the second part: to send, or to poll.
    pub second: f64,
    /// Of both.
    pub both: f64,
    /// Bytes, both ways.
    pub bytes: f64,
}

impl Means {
    /// Takes the rounds of a plan, warm.
    ///
    /// # Errors
    /// Those of [`Timed::round`].
    pub fn take<T: Timed>(plan: Plan, timed: &mut T) -> Result<Self, T::Error> {
        for _ in 0..plan.warm_up {
            timed.round(&|| ())?;
        }
        let before = timed.bytes();
        let mut parts = [const { Vec::new() }; 3];
        for _ in 0..plan.rounds {
            let [first, second] = timed.round(&|| ())?.map(|cycles| cycles.saturating_sub(plan.overhead));
            parts
                .iter_mut()
                .zip([first, second, first + second])
                .for_each(|(part, cycles)| part.push(cycles));
        }
        let operations = plan.operations as f64;
        let [first, second, both] = parts.map(|part| mean(part) / operations);
        let bytes = (timed.bytes() - before) as f64 / plan.rounds as f64 / operations;
        Ok(Self { first, second, both, bytes })
    }
}

fn mean(mut rounds: Vec<u64>) -> f64 {
    rounds.sort_unstable();
    rounds.truncate(rounds.len() - rounds.len() / 100);
    rounds.iter().sum::<u64>() as f64 / rounds.len().max(1) as f64
}

impl fmt::Display for Means {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second, both, bytes } = self;
        write!(out, "first {first:.4} second {second:.4} both {both:.4} bytes {bytes:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 120 and 40 cycles, but for one in 200, which is interrupted; 64 bytes in each.
    struct Rounds(u64);

    impl Timed for Rounds {
        type Error = std::convert::Infallible;

        fn round(&mut self, chill: &dyn Fn()) -> Result<[u64; 2], Self::Error> {
            chill();
            self.0 += 1;
            Ok([if self.0.is_multiple_of(200) { 1_000_000 } else { 120 }, 40])
        }

        fn bytes(&self) -> u64 {
            self.0 * 64
        }
    }

    #[test]
    fn what_was_interrupted_is_left_out() {
        let plan = Plan { rounds: 400, warm_up: 10, operations: 4, overhead: 20 };
        let Ok(means) = Means::take(plan, &mut Rounds(0));
        assert_eq!(means, Means { first: 25.0, second: 5.0, both: 30.0, bytes: 16.0 });
        assert_eq!(means.to_string(), "first 25.0000 second 5.0000 both 30.0000 bytes 16.0000");
    }

    #[test]
    fn every_second_round_counts() {
        assert_eq!(mean(vec![10, 30, 10, 30]), 20.0);
    }
}
