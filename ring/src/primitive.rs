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
    /// A pause is some 40 to 140 cycles, so this is a few microseconds: a yield is then the cheaper thing.
    #[cfg(not(loom))]
    const PAUSES: u32 = 64;

    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn turn(&mut self) {
        if self.turns < Self::PAUSES {
            self.turns += 1;
            std::hint::spin_loop();
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
