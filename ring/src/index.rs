//! Positions: free-running 32-bit sequence numbers, and how they are packed into the 64-bit words of a [`Side`].
//!
//! A sequence number counts elements since the ring was made and wraps by type. Only distances are meaningful, and
//! none exceeds the capacity (at most 2^31), so a wrap needs no special case. The slot of a sequence number is its
//! low bits: storage is a power of two, while the capacity may be any number up to that.
//!
//! In every kind of ring the low half of `Side::tail` is the published position, so that counting, dumping and
//! dropping what is left need not know the kind.
//!
//! [`Side`]: crate::header::Side

/// A free-running position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seq(u32);

impl Seq {
    pub(crate) const fn new(seq: u32) -> Seq {
        Seq(seq)
    }

    /// The position in the low half of a word.
    #[inline(always)]
    pub(crate) const fn of(word: u64) -> Seq {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
        Seq(word as u32)
    }

    /// This position below `high`, as one word.
    #[inline(always)]
    pub(crate) const fn under(self, high: u32) -> u64 {
        (high as u64) << 32 | self.0 as u64
    }

    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn plus(self, count: usize) -> Seq {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a count is at most the capacity, which is below 2^32"
        )]
        Seq(self.0.wrapping_add(count as u32))
    }

    pub(crate) const fn minus(self, count: u32) -> Seq {
        Seq(self.0.wrapping_sub(count))
    }

    /// How many elements lie between `earlier` and this position.
    #[inline(always)]
    pub(crate) const fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    #[inline(always)]
    pub(crate) const fn slot(self, mask: u32) -> usize {
        (self.0 & mask) as usize
    }
}

/// The high half of a word: a second position (HTS) or a count of operations (RTS).
#[inline(always)]
pub(crate) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// How far a side at `mine` may go: up to the peer's position, plus `base`.
///
/// `base` is the capacity for producers (one lap ahead of the consumers) and 0 for consumers.
#[inline(always)]
pub(crate) const fn room(base: u32, peer: Seq, mine: Seq) -> usize {
    base.wrapping_add(peer.since(mine)) as usize
}

/// All or nothing, or as many as there is room for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Want {
    Bulk,
    Burst,
}

impl Want {
    #[inline(always)]
    pub(crate) const fn of(self, count: usize, room: usize) -> usize {
        if count <= room {
            count
        } else {
            match self {
                Want::Bulk => 0,
                Want::Burst => room,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn distances_hold_across_the_wrap() {
        let before = Seq::new(u32::MAX - 2);
        let after = before.plus(7);
        assert_eq!(after.get(), 4);
        assert_eq!(after.since(before), 7);
        assert_eq!(before.slot(7), 5);
        assert_eq!(after.slot(7), 4);
        assert_eq!(room(10, before, after), 3);
        assert_eq!(room(0, after, before), 7);
    }

    #[test]
    fn halves_of_a_word() {
        let word = Seq::new(7).under(u32::MAX);
        assert_eq!(Seq::of(word).get(), 7);
        assert_eq!(high(word), u32::MAX);
    }

    #[test]
    fn bulk_is_all_or_nothing() {
        assert_eq!(Want::Bulk.of(4, 3), 0);
        assert_eq!(Want::Bulk.of(4, 4), 4);
        assert_eq!(Want::Burst.of(4, 3), 3);
    }
}
