//! The yardstick: the same bytes moved by a plain loop.
//!
//! Cycles follow the machine more than the code (one driver took 32.6 cycles a packet on one, 63 on another). What a loop of loads
//! and stores takes for as many bytes, in the same run, follows it too, so the ratio of the two can be held to a bound.

use std::sync::atomic::{AtomicU64, Ordering};

use pollux_eal::clock::cycles::now_precise;

use crate::Cold;

/// Copies one buffer to another, a word of 8 bytes at a time, and takes the time.
#[derive(Debug)]
pub struct CopyLoop {
    /// Relaxed atomics: a plain load and store each, of which the compiler makes no call of `memcpy`, whose ways differ by
    /// C library and processor.
    from: &'static [AtomicU64],
    to: &'static [AtomicU64],
    cold: Cold,
}

impl CopyLoop {
    /// For `bytes`, in whole words. The two buffers stay for the rest of the process.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let words = bytes.div_ceil(8);
        let buffer = |fill: u64| -> &'static [AtomicU64] {
            (0..words as u64).map(|word| AtomicU64::new(word | fill)).collect::<Vec<_>>().leak()
        };
        let (from, to) = (buffer(0), buffer(1 << 63));
        let mut cold = Cold::new();
        for buffer in [from, to] {
            cold.slice(buffer);
        }
        Self { from, to, cold }
    }

    /// Cycles of each of `count` copies, one after the other; before each both buffers are taken out of all caches, if so wanted.
    #[must_use]
    pub fn time(&self, count: usize, cold: bool) -> Vec<u64> {
        let once = || {
            if cold {
                self.cold.chill();
            }
            let start = now_precise();
            copy(self.from, self.to);
            now_precise() - start
        };
        // The first finds no line of its own, whatever is wanted.
        once();
        (0..count).map(|_| once()).collect()
    }
}

#[inline(never)]
fn copy(from: &[AtomicU64], to: &[AtomicU64]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_moved_warm_and_cold() {
        for cold in [false, true] {
            let copy = CopyLoop::new(1001);
            assert_eq!(copy.from.len(), 126);
            assert_eq!(copy.time(3, cold).iter().filter(|&&cycles| cycles > 0).count(), 3);
            for (from, to) in copy.from.iter().zip(copy.to) {
                assert_eq!(from.load(Ordering::Relaxed), to.load(Ordering::Relaxed));
            }
        }
    }
}
