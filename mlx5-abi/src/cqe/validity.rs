//! Which entries of a ring are ready.

use super::OWNER;
use crate::opcode::completion;

/// How an entry says that it is ready: these bits of its last two bytes, the pass below and `op_own` above
/// ([`Cqe64::last_word`](super::Cqe64::last_word)), are those of [`Validity::of`] the index, and its opcode is not
/// [`INVALID`](completion::INVALID). Hot: one load and two comparisons in either layout.
///
/// ```
/// use pollux_mlx5_abi::cqe::{FRESH, FRESH_PASS, Validity};
///
/// let word = |pass: u8, op_own: u8| u16::from_le_bytes([pass, op_own]);
/// let basic = Validity::BASIC;
/// assert!(!basic.is_ready(word(FRESH_PASS, FRESH), 0, 8));        // nothing was written yet
/// assert!(basic.is_ready(word(0x5a, 0x20), 0, 8));                // first pass: owner bit 0
/// assert!(!basic.is_ready(word(0x5a, 0x20), 256, 8));             // second pass: that is the first one's
/// assert!(basic.is_ready(word(0x5a, 0x21), 256, 8));
///
/// let enhanced = Validity::ENHANCED;
/// assert!(!enhanced.is_ready(word(FRESH_PASS, FRESH), 0, 8));     // nothing was written yet
/// assert!(enhanced.is_ready(word(0, 0x20), 255, 8));              // first pass
/// assert!(!enhanced.is_ready(word(0, 0x20), 256, 8));             // second pass: that is the first one's
/// assert!(enhanced.is_ready(word(0, 0x20), 256 * 256, 8));        // there are 256 of them
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity(u16);

impl Validity {
    /// Of the basic layout: the owner bit is the parity of the pass.
    pub const BASIC: Self = Self((OWNER as u16) << 8);

    /// Of the [enhanced layout](super::layout::ENHANCED): the byte before the last is the pass.
    pub const ENHANCED: Self = Self(0xff);

    /// The bits that count.
    #[must_use]
    #[inline(always)]
    pub const fn mask(self) -> u16 {
        self.0
    }

    /// What stands there at a free-running index of a ring of `1 << log_entries`.
    #[must_use]
    #[inline(always)]
    pub const fn of(self, index: u32, log_entries: u8) -> u16 {
        let pass = (index >> log_entries) as u16;
        (pass & 0xff | (pass & 1) << 8) & self.0
    }

    /// Whether an entry with these last two bytes is ready at a free-running index of a ring of `1 << log_entries`.
    #[must_use]
    #[inline(always)]
    pub const fn is_ready(self, word: u16, index: u32, log_entries: u8) -> bool {
        word & self.0 == self.of(index, log_entries) && word >> 12 != completion::INVALID as u16
    }
}
