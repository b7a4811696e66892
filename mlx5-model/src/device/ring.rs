//! A ring in host memory: pages that software named when it made the queue.

pub(crate) mod send;

use super::bus::Bus;
use crate::ledger::Crossing;
use crate::memory::Unreachable;
use crate::memory_keys::Translation;

/// Where a ring's bytes are.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    translation: Translation,
    bytes: u64,
}

/// An entry of a ring, in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

impl Ring {
    /// A ring of `bytes` bytes that begins `offset` bytes into the first page. `None` when the pages do not hold it.
    pub(crate) fn new(pages: Vec<u64>, log_page: u8, offset: u64, bytes: u64) -> Option<Self> {
        let room = (pages.len() as u64).checked_mul(1_u64.checked_shl(log_page.into())?)?;
        if log_page > 40 || offset.checked_add(bytes)? > room || bytes == 0 {
            return None;
        }
        Some(Self { translation: Translation::of_pages(log_page, offset, pages), bytes })
    }

    /// A ring of nothing.
    fn none() -> Self {
        Self { translation: Translation::of_pages(12, 0, Vec::new()), bytes: 0 }
    }

    /// Where the byte at `at`, which is inside the ring, is; and how many follow in a row.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Result<(u64, u64), Unreachable> {
        let (address, run) = self.translation.piece(0, at).ok_or(Unreachable)?;
        Ok((address, run.min(self.bytes - at)))
    }

    /// Where the entry of `bytes` bytes at `at` is, which lies in a row.
    pub(crate) fn piece(&self, at: u64, bytes: u64) -> Result<Piece, Unreachable> {
        let (address, run) = self.place(at)?;
        Ok(Piece { address, bytes: bytes.min(run) as usize })
    }

    /// Reads entries, round the ring's end where they go round it. `at` is inside the ring.
    #[inline]
    pub(crate) fn read(
        &self,
        bus: &Bus<'_>,
        what: Crossing,
        at: u64,
        into: &mut [u8],
    ) -> Result<(), Unreachable> {
        self.pieces(at, into, |address, piece| bus.read_entries(what, address, piece))
    }

    /// Has `read` fill what lies in a row, piece by piece, round the ring's end. `at` is inside the ring.
    #[inline]
    fn pieces(
        &self,
        at: u64,
        into: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<(), Unreachable>,
    ) -> Result<(), Unreachable> {
        let mut at = at;
        let mut rest = into;
        while !rest.is_empty() {
            let (address, run) = self.place(at)?;
            let (piece, after) = rest.split_at_mut(run.min(rest.len() as u64) as usize);
            read(address, piece)?;
            at = (at + piece.len() as u64) % self.bytes;
            rest = after;
        }
        Ok(())
    }
}
