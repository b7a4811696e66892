//! The mark in each packet whose return is measured: the last 16 bytes of the frame.
//!
//! ```text
//!   cookie 32 | stream 16 | sent at 48 | number 32
//! ```
//!
//! At the end of the frame it is found whatever headers a device has added or taken away. The cookie is drawn for each run, so that other
//! packets, and those of other runs, are not taken for ours. Ticks of the clock in 48 bits come again after a day.

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

impl Stamp {
    /// What the packet that is so many behind it says, if both were sent at once.
    #[inline(always)]
    pub(crate) fn followed_by(self, count: u32) -> Self {
        Self { number: self.number.wrapping_add(count), ..self }
    }
}

/// Its two words.
#[inline(always)]
pub(crate) fn words(cookie: u32, stream: u16, time: u64, number: u64) -> (u64, u64) {
    let time = time & TIME;
    let first = u64::from(cookie) << 32 | u64::from(stream) << 16 | time >> 32;
    (first, time << 32 | number & 0xffff_ffff)
}

/// The mark of a packet of this run.
#[inline(always)]
pub(crate) fn read(bytes: &[u8; BYTES], cookie: u32) -> Option<Stamp> {
    let all = u128::from_be_bytes(*bytes);
    let (first, second) = ((all >> 64) as u64, all as u64);
    if first >> 32 != u64::from(cookie) {
        return None;
    }
    let time = (first & 0xffff) << 32 | second >> 32;
    Some(Stamp { stream: (first >> 16) as u16, time, number: second as u32 })
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
        let (first, second) = words(0xc00c_1e05, 513, 0xffff_1234_5678_9abc, 0x1_0000_0007);
        let bytes = (u128::from(first) << 64 | u128::from(second)).to_be_bytes();
        let stamp = Stamp { stream: 513, time: 0x1234_5678_9abc, number: 7 };
        assert_eq!((read(&bytes, 0xc00c_1e05), read(&bytes, 1)), (Some(stamp), None));
        assert_eq!((since(0xffff_1234_5678_9abf, stamp.time), since(0, 1)), (3, 0));
        assert_eq!(since(2, TIME - 1), 4);
    }
}
