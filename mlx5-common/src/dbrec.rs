//! Doorbell records: words in memory by which software tells the device how far it has got.
//!
//! A record has a line of 64 bytes to itself, so that no two queues on two lcores write to one line. A device reads a
//! record when it wants to; the order of a store against the stores before it is the caller's (`barrier::to_device`).
//! Source of the layout: see [`pollux_mlx5_abi::doorbell`].
#![expect(unsafe_code, reason = "stores to memory that a device reads")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use pollux_eal::mmio;
use pollux_eal::region::Zone;

/// Bytes that a record takes up: a cache line.
pub(crate) const RECORD_BYTES: usize = 64;

/// A zone of records. Clones are handles of the same zone.
#[derive(Clone, Debug)]
pub struct DoorbellRecords(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    zone: Zone,
    taken: Mutex<Vec<bool>>,
}

impl DoorbellRecords {
    /// As many records as there are lines in `zone`.
    #[must_use]
    pub fn new(zone: Zone) -> Self {
        let count = zone.bytes() / RECORD_BYTES;
        Self(Arc::new(Shared { zone, taken: Mutex::new(vec![false; count]) }))
    }

    /// Takes a record, both words zero. `None` when all are taken.
    #[must_use]
    pub fn take(&self) -> Option<DoorbellRecord> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = taken.iter().position(|taken| !taken)?;
        taken[slot] = true;
        // SAFETY: there are `taken.len()` lines in the zone.
        let base = unsafe { self.0.zone.base().add(slot * RECORD_BYTES) }.cast();
        // SAFETY: the line is the new record's alone. A device does not look here yet.
        unsafe { base.cast::<[u32; 2]>().write_volatile([0; 2]) };
        Some(DoorbellRecord { base, slot, records: Arc::clone(&self.0) })
    }

    /// How many are free.
    #[must_use]
    pub fn free(&self) -> usize {
        let taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().filter(|taken| !**taken).count()
    }

    /// The memory that the records lie in, to be registered with the kernel.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.0.zone
    }
}

/// The first word: entries posted to a receive queue, or consumed of a completion queue.
pub const FIRST: usize = 0;
/// The second word: blocks posted to a send queue, or the arm word of a completion queue.
pub const SECOND: usize = 1;

/// A record, owned by one queue. It goes back when dropped.
#[derive(Debug)]
pub struct DoorbellRecord {
    base: NonNull<u32>,
    slot: usize,
    records: Arc<Shared>,
}

// SAFETY: the line belongs to no thread, and this is the only way to it.
unsafe impl Send for DoorbellRecord {}

impl DoorbellRecord {
    /// Address of the first byte, as the kernel is told it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// Bytes from the start of the records' zone, for a device that knows the zone by a handle.
    #[must_use]
    pub fn offset(&self) -> u64 {
        (self.slot * RECORD_BYTES) as u64
    }

    /// Stores `value`, big-endian, to [`FIRST`] or [`SECOND`]. Hot: one store.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline(always)]
    pub fn store(&mut self, word: usize, value: u32) {
        assert!(word <= SECOND, "a record has two words");
        // SAFETY: the line is this record's as long as it lives, and the zone lives as long as `records`.
        unsafe { mmio::store_record(self.base.add(word), value.to_be()) };
    }

    /// Where a word is.
    ///
    /// # Panics
    /// When a record has no such word: it is our mistake.
    pub fn place(&self, word: usize) -> NonNull<u32> {
        assert!(word <= SECOND, "a record has two words");
        // SAFETY: inside the line.
        unsafe { self.base.add(word) }
    }

    /// What was stored last.
    ///
    /// # Panics
    /// When there is no such word.
    #[must_use]
    pub fn load(&self, word: usize) -> u32 {
        assert!(word <= SECOND, "a record has two words");
        // SAFETY: as in `store`.
        u32::from_be(unsafe { self.base.add(word).read_volatile() })
    }
}

impl Drop for DoorbellRecord {
    fn drop(&mut self) {
        let mut taken = self.records.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken[self.slot] = false;
    }
}

#[cfg(test)]
mod tests {
    use pollux_eal::region::Region;

    use super::*;

    #[test]
    fn each_has_its_line_and_gives_it_back() {
        let zone = Region::anonymous("records", 4096).expect("memory").into_zone();
        let records = DoorbellRecords::new(zone);
        let mut all: Vec<_> = std::iter::from_fn(|| records.take()).collect();
        assert_eq!((all.len(), records.free()), (64, 0));
        all[3].store(SECOND, 0x0102_0304);
        let mut seen = [0; 8];
        records.zone().copy_out(3 * RECORD_BYTES, &mut seen);
        assert_eq!(seen, [0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!((all[3].load(FIRST), all[3].load(SECOND), all[3].offset()), (0, 0x0102_0304, 192));
        drop(all.remove(3));
        let again = records.take().expect("given back");
        assert_eq!((again.offset(), again.load(SECOND)), (192, 0));
    }
}
