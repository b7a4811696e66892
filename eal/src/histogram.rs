//! Counts of values by their size, cheap enough to be always on.
//!
//! ```text
//!   value      0 .. 31        32 .. 63        64 .. 127       128 .. 255     ...   of 64 bits
//!   buckets    one each       one each        32 of 2         32 of 4              1,920 in all, 15 KiB
//! ```
//!
//! A bucket is at most one part in 32 of its values wide, so that a quantile is right to 3.2 %. Own code, where `hdrhistogram` would
//! be the crate to take: an lcore records with one store to a counter of its own, and the control thread
//! reads meanwhile.
//!
//! ```
//! use pollux_eal::histogram;
//!
//! let (mut recorder, histogram) = histogram::new();
//! for nanos in 1..=1000 {
//!     recorder.record(nanos);
//! }
//! let counts = histogram.counts();
//! assert_eq!(counts.total(), 1000);
//! assert_eq!(counts.quantile(0.5), Some(503)); // 500, and the end of its bucket
//! ```

use std::ops::AddAssign;
use std::sync::Arc;

use crate::counter::Counter;

/// Buckets for each power of two, as a power of two.
const LOG_PARTS: u32 = 5;
const PARTS: usize = 1 << LOG_PARTS;
/// The values below two times `PARTS` have one each; each further bit has `PARTS`.
const BUCKETS: usize = (u64::BITS as usize - LOG_PARTS as usize + 1) * PARTS;

type Buckets = [Counter; BUCKETS];

/// The end that counts: one thread's.
#[derive(Debug)]
pub struct Recorder(Arc<Buckets>);

/// The end that is read, by any thread.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

/// What was counted until a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts(Vec<u64>);

/// An empty histogram.
#[must_use]
pub fn new() -> (Recorder, Histogram) {
    let buckets = Arc::new([const { Counter::new() }; BUCKETS]);
    (Recorder(Arc::clone(&buckets)), Histogram(buckets))
}

/// Which bucket counts `value`.
#[inline(always)]
fn bucket(value: u64) -> usize {
    // Bits beyond those that tell the bucket apart.
    let beyond = u64::BITS - 1 - LOG_PARTS - (value | PARTS as u64).leading_zeros();
    (beyond as usize) * PARTS + (value >> beyond) as usize
}

/// The largest value of a bucket.
fn end(bucket: usize) -> u64 {
    let beyond = (bucket / PARTS).saturating_sub(1);
    let part = (bucket - beyond * PARTS) as u128;
    (((part + 1) << beyond) - 1) as u64
}

impl Recorder {
    /// Counts `value`. Hot: some instructions, a load and a store.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Counts `value` so many times.
    #[inline]
    pub fn record_many(&mut self, value: u64, times: u64) {
        self.0[bucket(value)].add(times);
    }
}

impl Histogram {
    /// What was counted until now. Counts that are made meanwhile may be in it or not.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts(self.0.iter().map(Counter::get).collect())
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self(vec![0; BUCKETS])
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Self) {
        for (count, other) in self.0.iter_mut().zip(&other.0) {
            *count += other;
        }
    }
}

impl Counts {
    /// How many there are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What was counted since `earlier`, which is of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().zip(&earlier.0).map(|(now, earlier)| now.wrapping_sub(*earlier)).collect())
    }

    /// The value that the share `of` (0 to 1) of all do not exceed, as the largest of its bucket: at most 3.2 % above the true one.
    /// `None`: nothing was counted.
    #[must_use]
    pub fn quantile(&self, of: f64) -> Option<u64> {
        let total = self.total();
        let wanted = ((total as f64 * of).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0;
        self.0
            .iter()
            .position(|count| {
                below += count;
                below >= wanted
            })
            .map(end)
    }

    /// The largest value, as [`quantile`](Self::quantile) gives it.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        self.quantile(1.0)
    }

    /// The buckets that have counted something: the largest value of each, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| (end(at), *count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        assert_eq!((bucket(0), end(0), bucket(u64::MAX), end(BUCKETS - 1)), (0, 0, BUCKETS - 1, u64::MAX));
        for at in 0..BUCKETS - 1 {
            let last = end(at);
            assert_eq!((bucket(last), bucket(last + 1)), (at, at + 1), "around {last}");
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        let (mut recorder, histogram) = new();
        assert_eq!((histogram.counts().quantile(0.5), histogram.counts().max()), (None, None));
        recorder.record(0);
        assert_eq!((histogram.counts().quantile(0.0), histogram.counts().max()), (Some(0), Some(0)));
    }

    #[test]
    fn counts_add_up_and_differ() {
        let (mut recorder, histogram) = new();
        recorder.record_many(7, 3);
        let earlier = histogram.counts();
        recorder.record(900);
        let later = histogram.counts();
        assert_eq!(later.since(&earlier).buckets().collect::<Vec<_>>(), [(911, 1)]);
        let mut both = earlier.clone();
        both += &later;
        assert_eq!(both.buckets().collect::<Vec<_>>(), [(7, 6), (911, 1)]);
    }

    proptest! {
        /// Against all values, sorted.
        #[test]
        fn quantiles_are_at_most_one_part_in_32_above(
            mut values in prop::collection::vec(prop_oneof![0u64..100, 0u64..1_000_000, any::<u64>()], 1..200),
            of in 0.0f64..=1.0,
        ) {
            let (mut recorder, histogram) = new();
            values.iter().for_each(|value| recorder.record(*value));
            values.sort_unstable();
            let right = values[((values.len() as f64 * of).ceil() as usize).clamp(1, values.len()) - 1];
            let told = histogram.counts().quantile(of).expect("there are some");
            prop_assert!(told >= right && told - right <= right / 32, "{} for {}", told, right);
        }
    }
}
