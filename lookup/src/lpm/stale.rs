//! Which entries of a table may be older than those of the newest version: a bit for each cache line of them, and one for each 64 bits.

use std::mem::take;
use std::ops::Range;

use crate::bits::ones;

/// Entries of a cache line.
const LINE: usize = 16;

#[derive(Debug)]
pub(super) struct Stale {
    entries: usize,
    /// All of them, whatever the bits say.
    all: bool,
    lines: Vec<u64>,
    /// For each word of `lines` whether it has bits.
    some: Vec<u64>,
}

impl Stale {
    /// Nothing, or all, of so many entries, a multiple of 2^16.
    pub(super) fn new(entries: usize, all: bool) -> Self {
        let words = entries / LINE / 64;
        Self { entries, all, lines: vec![0; words], some: vec![0; words / 64] }
    }

    /// Marks the lines from that of entry `first` to that of `last`.
    #[inline]
    pub(super) fn mark(&mut self, first: usize, last: usize) {
        if self.all {
            return;
        }
        let (first, last) = (first / LINE, last / LINE);
        let (from, to) = (first / 64, last / 64);
        for word in from..=to {
            let after = if word == from { u64::MAX << (first % 64) } else { u64::MAX };
            let before = if word == to { u64::MAX >> (63 - last % 64) } else { u64::MAX };
            self.lines[word] |= after & before;
            self.some[word / 64] |= 1 << (word % 64);
        }
    }

    /// Hands out all that is marked, line by line, and marks nothing.
    pub(super) fn take(&mut self, mut line: impl FnMut(Range<usize>)) {
        if take(&mut self.all) {
            return (0..self.entries).step_by(LINE).for_each(|at| line(at..at + LINE));
        }
        for (at, some) in self.some.iter_mut().enumerate() {
            for word in ones(take(some)).map(|bit| at * 64 + bit) {
                for bit in ones(take(&mut self.lines[word])) {
                    let first = (word * 64 + bit) * LINE;
                    line(first..first + LINE);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_is_handed_out_once() {
        let taken = |stale: &mut Stale| {
            let mut taken = Vec::new();
            stale.take(|line| taken.extend(line));
            taken
        };
        let mut stale = Stale::new(1 << 16, true);
        stale.mark(3, 4);
        assert_eq!(taken(&mut stale), (0..1 << 16).collect::<Vec<_>>());
        assert_eq!(taken(&mut stale), []);
        // Within a line, over words' ends, the last entry.
        for [first, last] in [[5, 5], [1000, 5000], [4990, 5100], [65535, 65535]] {
            stale.mark(first, last);
        }
        let wanted = (0..16).chain(992..5104).chain(65520..65536);
        assert_eq!(taken(&mut stale), wanted.collect::<Vec<_>>());
        assert_eq!(taken(&mut stale), []);
        stale.mark(0, 65535);
        assert_eq!(taken(&mut stale).len(), 65536);
    }
}
