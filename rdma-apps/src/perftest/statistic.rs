//! From moments to figures.
//!
//! As perftest has them, so that figures can be compared: latency is half a round trip, the typical one is the median, and the two
//! worst of all round trips are left out of everything, the maximum included. Source: linux-rdma/perftest
//! `src/perftest_parameters.c`, `print_report_lat`, `print_report_bw`. Its standard deviation loses what is behind the point; ours
//! does not.

use crate::exchange::perftest::{PortShare, Results};

/// Round trips that are left out, the longest ones.
const TAIL: usize = 2;

/// The fewest iterations that leave anything to measure.
pub const ITERATIONS_MIN: u64 = 5;

/// The fewest exchanges that do, where each is measured by itself.
pub const EXCHANGES_MIN: u64 = ITERATIONS_MIN - 1;

/// What a latency test found, in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Latency {
    /// Shortest.
    pub min: f64,
    /// Longest but two.
    pub max: f64,
    /// Median.
    pub typical: f64,
    /// Mean.
    pub average: f64,
    /// Standard deviation.
    pub stdev: f64,
    /// 99 of 100 are not longer.
    pub percentile_99: f64,
    /// 999 of 1000 are not longer.
    pub percentile_99_9: f64,
}

/// Cycles of each iteration, in the order in which they were: from one message to the next.
#[must_use]
pub fn durations(posted: &[u64]) -> Vec<u64> {
    posted.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect()
}

/// Cycles in a unit: `divisor` holds it, and how many ways a round trip has.
#[must_use]
pub fn scaled(cycles: &[u64], divisor: f64) -> Vec<f64> {
    cycles.iter().map(|cycles| *cycles as f64 / divisor).collect()
}

/// Figures of all iterations.
///
/// # Panics
/// With fewer than four durations: nothing would be left.
#[must_use]
pub fn latency(mut durations: Vec<f64>) -> Latency {
    assert!(durations.len() > TAIL + 1, "{ITERATIONS_MIN} iterations at least");
    durations.sort_unstable_by(f64::total_cmp);
    let count = durations.len() - TAIL;
    let kept = &durations[..count];
    let average = kept.iter().sum::<f64>() / count as f64;
    let variance = kept.iter().map(|one| (one - average).powi(2)).sum::<f64>() / count as f64;
    // What stands just above: the original counts from 0 and rounds up.
    let percentile = |share: f64| durations[(count as f64 * share).ceil() as usize];
    let middle =
        if count.is_multiple_of(2) { (kept[count / 2] + kept[count / 2 - 1]) / 2.0 } else { kept[count / 2] };
    Latency {
        min: kept[0],
        max: durations[count],
        typical: middle,
        average,
        stdev: variance.sqrt(),
        percentile_99: percentile(0.99),
        percentile_99_9: percentile(0.999),
    }
}

/// The moments of a bandwidth test, in cycles.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    /// The first post, or the beginning of what is counted.
    pub begin: u64,
    /// The last completion, or the end of what is counted.
    pub end: u64,
    /// When each message was posted; empty when no peak is wanted.
    pub posted: Vec<u64>,
    /// Completions: how many messages were complete, and when.
    pub completed: Vec<(u64, u64)>,
}

/// What a megabyte is to perftest, and what a gigabit is, in bytes.
const MIB: f64 = 1_048_576.0;
const GIGABIT: f64 = 125_000_000.0;

/// Figures of `iterations` messages of `size` bytes.
#[must_use]
pub fn bandwidth(moments: &Moments, size: u64, iterations: u64, gigabits: bool, hz: f64) -> Results {
    let unit = if gigabits { GIGABIT } else { MIB };
    let seconds = moments.end.wrapping_sub(moments.begin).max(1) as f64 / hz;
    let peak = shortest(moments).map_or(0.0, |cycles| size as f64 * hz / cycles / unit);
    Results {
        size,
        iterations,
        peak,
        average: size as f64 * iterations as f64 / seconds / unit,
        rate: iterations as f64 / seconds / 1e6,
        by_port: None,
    }
}

/// What each of two ports has of them.
#[must_use]
pub fn shares(moments: &Moments, size: u64, by_port: [u64; 2], gigabits: bool, hz: f64) -> [PortShare; 2] {
    by_port.map(|iterations| {
        let Results { average, rate, .. } = bandwidth(moments, size, iterations, gigabits, hz);
        PortShare { average, rate }
    })
}

/// The fewest cycles a message, over all stretches from a post to a later completion; none when nobody looked.
fn shortest(moments: &Moments) -> Option<f64> {
    let mut best: Option<f64> = None;
    for (first, posted) in moments.posted.iter().enumerate() {
        // Those before it were complete earlier.
        let from = moments.completed.partition_point(|(count, _)| *count <= first as u64);
        for (count, at) in &moments.completed[from..] {
            let cycles = at.wrapping_sub(*posted) as f64 / (count - first as u64) as f64;
            if best.is_none_or(|best| cycles < best) {
                best = Some(cycles);
            }
        }
    }
    best.filter(|cycles| *cycles > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_perftests() {
        // 1000 moments, 999 round trips of 2, 4, … 1998 cycles; at 2 cycles a microsecond, half of each way.
        let mut posted = vec![0];
        for step in 1..1000 {
            posted.push(posted[step - 1] + 2 * step as u64);
        }
        let found = latency(scaled(&durations(&posted), 2.0 * 2.0));
        // By print_report_lat: 997 are kept, the maximum is the 998th, the percentiles are the 989th and the 998th.
        assert_eq!(found.min, 0.5);
        assert_eq!(found.max, 499.0);
        assert_eq!(found.typical, 249.5);
        assert_eq!(found.average, 249.5);
        assert_eq!(found.percentile_99, 494.5);
        assert_eq!(found.percentile_99_9, 499.0);
        assert!((found.stdev - 143.904).abs() < 0.001, "{found:?}");
    }

    #[test]
    fn the_fewest_iterations_are_enough() {
        let posted = [0, 10, 20, 30, 1000];
        let found = latency(scaled(&durations(&posted), 1.0));
        assert_eq!((found.min, found.max, found.typical), (10.0, 10.0, 10.0));
    }

    #[test]
    fn bandwidth_and_its_peak() {
        // A message every 100 cycles, but for the last two, which take 50; completions for one message each.
        let moments = Moments {
            begin: 0,
            end: 900,
            posted: (0..10).map(|at| at * 10).collect(),
            completed: (1..=10_u64)
                .map(|count| (count, if count <= 8 { count * 100 } else { 800 + (count - 8) * 50 }))
                .collect(),
        };
        let found = bandwidth(&moments, 1 << 20, 10, false, 1000.0);
        assert!((found.average - 10.0 / 0.9).abs() < 1e-9);
        assert!((found.rate * 1e6 - 10.0 / 0.9).abs() < 1e-9);
        // The best stretch begins with the last post, at 90, and ends with the last completion: 810 cycles for one; or with the
        // first: 900 for ten.
        assert!((found.peak - 1000.0 / 90.0).abs() < 1e-9, "{found:?}");
        let none = Moments { posted: Vec::new(), ..moments };
        assert_eq!(bandwidth(&none, 125_000_000, 10, true, 1000.0).peak, 0.0);
        assert!((bandwidth(&none, 125_000_000, 10, true, 1000.0).average - 10.0 / 0.9).abs() < 1e-9);
    }
}
