//! Memory of the device that it lends (MEMIC).

use super::uar::{FIRST_UAR, UARS};

/// Where in BAR 0 it begins: behind the registers. In process the bus has the BAR at 0.
pub(crate) const OFFSET: u64 = (FIRST_UAR as u64 + UARS as u64) * 4096;
/// How much there is, and the most that one allocation gets.
pub(crate) const BYTES: u64 = 64 << 10;

/// The memory, and which of it is lent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lent {
    /// Where it is, as the device reaches it; `None` where there is none.
    pub(crate) base: Option<u64>,
    /// Beginning, end and owner of each piece.
    pub(crate) pieces: Vec<(u64, u64, u16)>,
}

impl Lent {
    /// All that a user context has of it comes back.
    pub(crate) fn forget(&mut self, uid: u16) {
        self.pieces.retain(|(_, _, owner)| *owner != uid);
    }

    /// Where `bytes` bytes at this offset of BAR 0 are.
    pub(crate) fn place(&self, offset: u64, bytes: u64) -> Option<u64> {
        let inside = offset.checked_sub(OFFSET)?;
        let end = inside.checked_add(bytes)?;
        let lent = self.pieces.iter().any(|(from, to, _)| *from <= offset && offset + bytes <= *to);
        if end > BYTES || !lent {
            return None;
        }
        self.base?.checked_add(inside)
    }
}
