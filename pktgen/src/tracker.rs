//! What came back of a stream: once, twice, out of order, and how long each packet took.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use pollux_eal::counter::Counter;
use pollux_eal::histogram::{self, Histogram, Recorder};

/// So many of the last packets are known one by one.
const WINDOW: u64 = 1 << 16;
const WORDS: usize = (WINDOW / 64) as usize;

/// Counts of what came back. The lcore that receives writes them.
#[derive(Debug, Default)]
pub(crate) struct ReturnCounters(CachePadded<Counts>);

#[derive(Debug, Default)]
struct Counts {
    received: Counter,
    duplicates: Counter,
    reordered: Counter,
    late: Counter,
}

/// The same as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Returns {
    /// Packets, each counted once.
    pub(crate) received: u64,
    /// Packets that had come before.
    pub(crate) duplicates: u64,
    /// Packets behind which another one had been sent that came earlier.
    pub(crate) reordered: u64,
    /// Packets of so long ago that nobody knows whether they had come before: more than 65,536 behind the latest. They count as received.
    pub(crate) late: u64,
}

impl ReturnCounters {
    pub(crate) fn read(&self) -> Returns {
        let Counts { received, duplicates, reordered, late } = &*self.0;
        Returns {
            received: received.get(),
            duplicates: duplicates.get(),
            reordered: reordered.get(),
            late: late.get(),
        }
    }
}

/// Follows the numbers of one stream.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// One above the highest number that came.
    next: u64,
    seen: Box<[u64; WORDS]>,
    counters: Arc<ReturnCounters>,
    recorder: Recorder,
}

impl Tracker {
    pub(crate) fn new() -> (Self, Arc<ReturnCounters>, Histogram) {
        let counters: Arc<ReturnCounters> = Arc::default();
        let (recorder, histogram) = histogram::new();
        let tracker = Self { next: 0, seen: Box::new([0; WORDS]), counters: Arc::clone(&counters), recorder };
        (tracker, counters, histogram)
    }

    /// A packet came, of which the lower bits of its number are known, and that took so many ticks.
    #[inline]
    pub(crate) fn came(&mut self, number: u32, ticks: u64) {
        // The number that is nearest to the one expected.
        let ahead = number.wrapping_sub(self.next as u32).cast_signed();
        let (word, bit) = (number as usize / 64 % WORDS, 1 << (number % 64));
        if ahead > 0 {
            self.skip(ahead.unsigned_abs().into());
        }
        let counts = &*self.counters.0;
        if ahead >= 0 {
            self.next += 1;
            self.seen[word] |= bit;
        } else if u64::from(ahead.unsigned_abs()) > WINDOW {
            counts.late.add(1);
        } else if self.seen[word] & bit != 0 {
            counts.duplicates.add(1);
            return;
        } else {
            counts.reordered.add(1);
            self.seen[word] |= bit;
        }
        counts.received.add(1);
        self.recorder.record(ticks);
    }

    /// Packets came together, with numbers that follow each other, all of them on their way for so many ticks: as one after the other, and in
    /// the usual case at the cost of one.
    #[inline]
    pub(crate) fn came_together(&mut self, first: u32, count: u32, ticks: u64) {
        if first != self.next as u32 {
            for number in 0..count {
                self.came(first.wrapping_add(number), ticks);
            }
            return;
        }
        let end = self.next + u64::from(count);
        while self.next < end {
            let (word, bit) = (self.next as usize / 64 % WORDS, self.next % 64);
            let bits = (end - self.next).min(64 - bit);
            self.seen[word] |= u64::MAX >> (64 - bits) << bit;
            self.next += bits;
        }
        self.counters.0.received.add(count.into());
        self.recorder.record_many(ticks, count.into());
    }

    /// Numbers that have not come yet.
    #[cold]
    fn skip(&mut self, count: u64) {
        for number in self.next..self.next + count.min(WINDOW) {
            self.seen[number as usize / 64 % WORDS] &= !(1 << (number % 64));
        }
        self.next += count;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn came(numbers: impl IntoIterator<Item = u32>) -> Returns {
        let (mut tracker, counters, histogram) = Tracker::new();
        numbers.into_iter().for_each(|number| tracker.came(number, 5));
        let returns = counters.read();
        assert_eq!(histogram.counts().total(), returns.received);
        returns
    }

    #[test]
    fn each_kind_is_counted() {
        let returns =
            |received, duplicates, reordered, late| Returns { received, duplicates, reordered, late };
        assert_eq!(came(0..200_000), returns(200_000, 0, 0, 0));
        assert_eq!(came([0, 1, 1, 2, 0]), returns(3, 2, 0, 0));
        assert_eq!(came([0, 2, 1, 3, 2]), returns(4, 1, 1, 0));
        assert_eq!(came([5, 4, 3]), returns(3, 0, 2, 0));
        assert_eq!(came([0, 100_000, 1, 100_000]), returns(3, 1, 0, 1));
        assert_eq!(came((0..200_000).step_by(3)), returns(66_667, 0, 0, 0));
    }

    #[test]
    fn numbers_go_on_past_their_bits() {
        let (mut tracker, counters, _) = Tracker::new();
        tracker.next = u64::from(u32::MAX) - 1;
        for number in [u32::MAX - 1, u32::MAX, 0, 1, u32::MAX] {
            tracker.came(number, 1);
        }
        assert_eq!((counters.read().received, counters.read().duplicates), (4, 1));
        assert_eq!(tracker.next, (1 << 32) + 2);
    }

    proptest! {
        /// Whether packets come together or one by one.
        #[test]
        fn runs_count_as_their_packets(runs in prop::collection::vec((0u32..3000, 1u32..200), 0..40), start in prop_oneof![Just(0), Just(u64::from(u32::MAX) - 5_000)]) {
            let [mut together, mut single] = [Tracker::new(), Tracker::new()];
            for tracker in [&mut together.0, &mut single.0] {
                tracker.next = start;
            }
            let mut next = start as u32;
            for (back, count) in runs {
                // Often where the last one ended.
                let first = if back % 2 == 0 { next } else { next.wrapping_sub(back) };
                together.0.came_together(first, count, 9);
                (0..count).for_each(|number| single.0.came(first.wrapping_add(number), 9));
                next = first.wrapping_add(count);
            }
            prop_assert_eq!(together.1.read(), single.1.read());
            prop_assert_eq!((together.0.next, together.0.seen), (single.0.next, single.0.seen));
            prop_assert_eq!(together.2.counts(), single.2.counts());
        }

        /// Against a set of all numbers.
        #[test]
        fn counts_are_those_of_a_set(numbers in prop::collection::vec(0u32..60_000, 0..300)) {
            let (mut set, mut highest, mut reordered) = (BTreeSet::new(), None, 0);
            for number in &numbers {
                if set.insert(*number) && highest.is_some_and(|highest| highest > *number) {
                    reordered += 1;
                }
                highest = highest.max(Some(*number));
            }
            let duplicates = (numbers.len() - set.len()) as u64;
            let right = Returns { received: set.len() as u64, duplicates, reordered, late: 0 };
            prop_assert_eq!(came(numbers), right);
        }
    }
}
