//! Objects that commands make and other commands name: memory by number, and what send queues have in common.

use super::ring::Ring;
use crate::memory_keys::Translation;

/// Memory by number.
#[derive(Clone, Debug)]
pub(crate) struct Umem {
    pub(crate) log_page: u8,
    pub(crate) offset: u64,
    pub(crate) pages: Vec<u64>,
}

/// What a send queue's packets have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tis {
    pub(crate) transport_domain: u32,
    pub(crate) context: [u8; 160],
}

impl Umem {
    /// The ring of `bytes` bytes at `offset`.
    pub(crate) fn ring(&self, offset: u64, bytes: u64) -> Option<Ring> {
        Ring::new(self.pages.clone(), self.log_page, self.offset.checked_add(offset)?, bytes)
    }

    /// The device's address of `bytes` bytes at `offset`, if they lie in one piece.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> Option<u64> {
        let end = self.offset.checked_add(offset)?.checked_add(bytes)?;
        if end > (self.pages.len() as u64) << self.log_page {
            return None;
        }
        let translation = Translation::of_pages(self.log_page, self.offset, self.pages.clone());
        let (address, run) = translation.piece(0, offset)?;
        (run >= bytes).then_some(address)
    }
}
