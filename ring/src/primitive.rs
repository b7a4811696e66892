//! The atomics and the ways to wait: std's, or loom's when it explores the interleavings (`--cfg loom`).

pub(crate) use pollux_atomic::{AtomicU32, AtomicU64, Ordering};

/// Waits for another thread's store: pauses at first, then lets the scheduler run the thread we wait for.
///
/// The waits are a few stores long, so the second case means that the other thread lost its core in the middle.
#[derive(Default)]
pub(crate) struct Wait {
    #[cfg(not(loom))]
    turns: u32,
}

impl Wait {
    /// A turn is some 80 to 280 cycles, so these are a few microseconds: a yield is then the cheaper thing.
    #[cfg(not(loom))]
    const TURNS: u32 = 32;

    /// Between two looks, some 40 to 140 cycles each, by processor. A look takes the line away from the thread that is about to store
    /// to it: with one pause `ring_mpmc_two32` takes half as long again on AMD family 19h, with three it takes as long, with four a sixth more. On Intel's
    /// processors, whose pauses are longer, two were not measured.
    #[cfg(not(loom))]
    const PAUSES: u32 = 2;

    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn turn(&mut self) {
        if self.turns < Self::TURNS {
            self.turns += 1;
            for _ in 0..Self::PAUSES {
                std::hint::spin_loop();
            }
        } else {
            std::thread::yield_now();
        }
    }

    #[cfg(loom)]
    #[expect(clippy::unused_self, reason = "the same shape as without loom")]
    pub(crate) fn turn(&mut self) {
        loom::thread::yield_now();
    }
}

/// A breath for the peer: long enough to fill some lines, short beside the two or three lines that a hand-over takes.
///
/// In line, as a few bytes of pauses: a call would push an end's fields out of their registers.
#[inline(always)]
pub(crate) fn breathe() {
    // Some 25 to 140 cycles each, by processor.
    #[cfg(not(loom))]
    for _ in 0..8 {
        std::hint::spin_loop();
    }
    #[cfg(loom)]
    loom::thread::yield_now();
}
