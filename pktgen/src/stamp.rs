//! The mark in each packet whose return is measured: the last 16 bytes of the frame.
//!
//! ```text
//!   cookie 32 | stream 16 | sent at 48 | number 32
//! ```
//!
//! At the end of the frame it is found whatever headers a device has added or taken away. The cookie is drawn for each run, so that other
//! packets, and those of other runs, are not taken for ours. Ticks of the clock in 48 bits come again after a day.

use crate::edit::words;

/// Bytes of the mark.
pub(crate) const BYTES: usize = 16;

/// The bits of the time that are carried.
const TIME: u64 = (1 << 48) - 1;

/// What a packet says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) stream: u16,
    /// The lower bits of the time.
    pub(crate) time: u64,
    /// The lower bits of the number.
    pub(crate) number: u32,
}

/// A mark as its two halves, of which the first one is the same for all packets that a stream sends at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    head: u64,
    tail: u64,
}

impl Mark {
    #[inline(always)]
    pub(crate) fn new(cookie: u32, stream: u16, time: u64, number: u64) -> Self {
        let time = time & TIME;
        let head = u64::from(cookie) << 32 | u64::from(stream) << 16 | time >> 32;
        Self { head, tail: time << 32 | number & 0xffff_ffff }
    }

    #[inline(always)]
    pub(crate) fn of(bytes: &[u8; BYTES]) -> Self {
        let all = u128::from_be_bytes(*bytes);
        Self { head: (all >> 64) as u64, tail: all as u64 }
    }

    /// Writes it at the end of a frame; what that adds to sums.
    #[inline(always)]
    pub(crate) fn put(self, frame: &mut [u8]) -> u32 {
        let length = frame.len();
        let Some(bytes) = frame.last_chunk_mut::<BYTES>() else { return 0 };
        bytes[..8].copy_from_slice(&self.head.to_be_bytes());
        bytes[8..].copy_from_slice(&self.tail.to_be_bytes());
        let halves = [self.head, self.tail];
        let sum = halves.iter().map(|half| words(*half as u32) + words((half >> 32) as u32)).sum();
        sum_at_end(sum, length)
    }

    /// Whether this is the mark that is so many behind that one, both sent at once. Never where the numbers begin anew in between.
    #[inline(always)]
    pub(crate) fn is_behind(self, other: Self, count: u32) -> bool {
        self.head == other.head && self.tail == other.tail.wrapping_add(count.into())
    }

    /// What it says, if it is one of this run.
    #[inline(always)]
    pub(crate) fn read(self, cookie: u32) -> Option<Stamp> {
        let Self { head, tail } = self;
        (head >> 32 == u64::from(cookie)).then_some(Stamp {
            stream: (head >> 16) as u16,
            time: (head & 0xffff) << 32 | tail >> 32,
            number: tail as u32,
        })
    }
}

/// What the sum of words at the end of a frame of so many bytes adds to sums: in a frame of odd length each byte stands in the other half of
/// its word, so that all are 2^8 times, of which 2^16 is 1.
#[inline(always)]
pub(crate) fn sum_at_end(sum: u32, length: usize) -> u32 {
    if length.is_multiple_of(2) { sum } else { sum << 8 }
}

/// Ticks from when a packet was sent.
#[inline(always)]
pub(crate) fn since(now: u64, sent: u64) -> u64 {
    let passed = now.wrapping_sub(sent) & TIME;
    // A clock a little behind that of another processor is none that has come round.
    if passed > TIME / 2 { 0 } else { passed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Mark::new(0xc00c_1e05, 513, 0xffff_1234_5678_9abc, 0x1_0000_0007);
        let mut bytes = [0; BYTES];
        let sum = mark.put(&mut bytes);
        let added: u32 = bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        assert_eq!((sum, mark.put(&mut [0; 3 + BYTES])), (added, added << 8));
        let stamp = Stamp { stream: 513, time: 0x1234_5678_9abc, number: 7 };
        assert_eq!(Mark::of(&bytes), mark);
        assert_eq!((mark.read(0xc00c_1e05), mark.read(1)), (Some(stamp), None));
        assert_eq!((since(0xffff_1234_5678_9abf, stamp.time), since(0, 1)), (3, 0));
        assert_eq!(since(2, TIME - 1), 4);
    }

    #[test]
    fn marks_of_one_burst_follow_each_other() {
        let mark = |stream, time, number| Mark::new(9, stream, time, number);
        let first = mark(3, 500, u64::from(u32::MAX) - 1);
        assert!(first.is_behind(first, 0) && mark(3, 500, u64::from(u32::MAX)).is_behind(first, 1));
        assert!(!mark(3, 500, 1 << 32).is_behind(first, 2), "it has the number 0");
        for other in [mark(2, 500, 8), mark(3, 501, 8), mark(3, 500 + (1 << 32), 8), mark(3, 500, 9)] {
            assert!(!other.is_behind(mark(3, 500, 7), 1), "{other:?}");
        }
    }
}
