//! The rate that a queue is held to (packet pacing), in the model's time.
//!
//! Every frame makes the next one due when it would be through at that rate. A queue that had nothing to send, or whose device slept,
//! may make up for it, by one burst at most.

use std::cell::Cell;

use crate::time::TICKS_PER_US;

/// Bytes of a burst where software leaves it to the card. The model's own number; no public source tells that of a card.
const BURST_BYTES: u32 = 8192;

/// A rate of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// In kbit/s; not 0.
    kbps: u32,
    burst_bytes: u32,
}

impl Rate {
    /// `kbps` is not 0; a burst of 0 bytes is the card's.
    pub(crate) fn new(kbps: u32, burst_bytes: u32) -> Self {
        Self { kbps, burst_bytes: if burst_bytes == 0 { BURST_BYTES } else { burst_bytes } }
    }

    /// How long so many bytes take.
    fn ticks(self, bytes: u64) -> u64 {
        bytes * 8 * 1000 * TICKS_PER_US / u64::from(self.kbps)
    }
}

/// How a queue keeps its rate.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    rate: Option<Rate>,
    /// When the next frame may leave.
    due: Cell<u64>,
}

impl Pace {
    /// The queue is held to another rate, from now on.
    pub(crate) fn hold_to(&mut self, rate: Option<Rate>, now: u64) {
        *self = Self { rate, due: Cell::new(now) };
    }

    /// Whether a frame may leave.
    #[inline]
    pub(super) fn lets_out(&self, now: u64) -> bool {
        self.rate.is_none() || now >= self.due.get()
    }

    /// A frame left.
    #[inline]
    pub(super) fn spend(&self, bytes: usize, now: u64) {
        if let Some(rate) = self.rate {
            let first = now.saturating_sub(rate.ticks(rate.burst_bytes.into()));
            self.due.set(self.due.get().max(first) + rate.ticks(bytes as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of frames of 1000 that leave within so many microseconds, looked at every `step_us`.
    fn sent(rate: Rate, us: u64, step_us: u64) -> u64 {
        let mut pace = Pace::default();
        pace.hold_to(Some(rate), 0);
        let mut bytes = 0;
        for now in (0..us).step_by(step_us as usize).map(|us| us * TICKS_PER_US) {
            while pace.lets_out(now) {
                pace.spend(1000, now);
                bytes += 1000;
            }
        }
        bytes
    }

    #[test]
    fn as_much_leaves_as_the_rate_lets() {
        // 8 Mbit/s are 1000 bytes a millisecond.
        let rate = Rate::new(8000, 0);
        assert_eq!(sent(rate, 1_000_000, 1), 1_000_000);
        // Looked at every 5 ms it makes up for what it missed, every 20 ms for a burst of it.
        assert_eq!(sent(rate, 1_000_000, 5000), 996_000);
        assert!(sent(rate, 1_000_000, 20_000) <= 50 * (8192 + 1000));
        assert!(sent(Rate::new(8000, 1000), 1_000_000, 5000) <= 200 * 2000);
    }

    #[test]
    fn no_rate_is_no_limit() {
        let pace = Pace::default();
        pace.spend(1 << 20, 0);
        assert!(pace.lets_out(0));
    }
}
