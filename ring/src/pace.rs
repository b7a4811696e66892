//! When an SP/SC end that moves single elements should let its peer get ahead before it looks again.
//!
//! Two ends in lock-step are slow: each look takes the peer's line away in the middle of its stores, and finds a
//! few elements only, half a line of slots perhaps, which the peer needs back at once. A look after a short wait finds
//! many, in whole lines that can be asked for ahead. So an end whose last look found few looks twice, with the wait in
//! between. It never waits before the first element of a run: a look that finds nothing says so at once. And where
//! waiting brings nothing (both ends on one thread, or a peer that is slow by itself) it is tried ever more seldom.

use crate::primitive::breathe;

/// What an end has learnt about its peer's speed.
#[derive(Default)]
pub(crate) struct Pace {
    /// The last look found something, but little.
    few: bool,
    /// Looks to go without a wait.
    rest: u16,
    /// Waits in a row that brought nothing, as the next `rest`.
    vain: u16,
}

impl Pace {
    /// A wait is as dear as some 60 elements: tried once in so many looks, it does not show.
    const REST_MAX: u16 = 1024;

    /// What a look found is taken at once, or looked at again after a wait. `again` looks.
    #[inline(always)]
    pub(crate) fn settle(&mut self, capacity: u32, found: usize, again: impl FnOnce() -> usize) -> usize {
        if found == 0 {
            self.few = false;
            return 0;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return found;
        }
        let found = if self.few {
            breathe();
            let later = again();
            self.learn(later > found);
            later
        } else {
            found
        };
        self.few = found < few(capacity);
        found
    }

    #[inline(always)]
    fn learn(&mut self, gained: bool) {
        self.vain = if gained { 0 } else { (self.vain * 2).clamp(16, Self::REST_MAX) };
        self.rest = self.vain;
    }
}

/// Fewer than this is little. A ring too small for a quarter to be worth a wait has none.
#[inline(always)]
fn few(capacity: u32) -> usize {
    // Loom's rings are tiny, and the second look is what it is to see.
    if cfg!(loom) { usize::MAX } else { capacity as usize / 4 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Looks `count` times, each finding `found` and, after a wait, `later`; says how many times it waited.
    fn waits(pace: &mut Pace, count: usize, found: usize, later: usize) -> usize {
        let waited = Cell::new(0);
        for _ in 0..count {
            let got = pace.settle(1024, found, || {
                waited.set(waited.get() + 1);
                later
            });
            assert!(got == found || got == later);
        }
        waited.get()
    }

    #[test]
    fn the_first_element_of_a_run_does_not_wait() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            assert_eq!(waits(&mut pace, 1, 0, 9), 0);
            assert_eq!(waits(&mut pace, 1, 1, 9), 0);
        }
    }

    #[test]
    fn lock_step_waits_as_long_as_it_helps() {
        assert_eq!(waits(&mut Pace::default(), 1000, 5, 60), 999);
    }

    #[test]
    fn much_needs_no_wait() {
        assert_eq!(waits(&mut Pace::default(), 1000, 256, 300), 0);
        assert_eq!(waits(&mut Pace::default(), 1000, 5, 256), 500);
    }

    #[test]
    fn vain_waits_become_rare_and_are_taken_up_again() {
        let mut pace = Pace::default();
        assert!(waits(&mut pace, 100_000, 1, 1) < 110);
        assert!(waits(&mut pace, 10_000, 1, 9) > 8_000);
    }
}
