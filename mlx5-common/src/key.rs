//! From an address to the key under which the device knows it.
//!
//! Registrations are few and change rarely, look-ups are many. So there is one [`KeyTable`] a protection domain, and each
//! queue has [`Keys`]: a copy of the table, taken anew when the table has changed, which one load a burst tells.
//!
//! ```text
//!   registration ──► KeyTable: ranges by address, version
//!                        ▲ copied when the version moved, on the queue's lcore, outside any packet
//!   queue ──► Keys: the range that served last ── else search ── else ask (rare: memory that nobody registered)
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;

/// A range of memory that the device knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// The key, as a number.
    pub lkey: u32,
    /// What is added to an address to make it the device's (`hca_va - start`, wrapping).
    pub delta: u64,
}

/// What goes into a data segment beside the address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// The key, its bytes as they stand in the segment.
    pub lkey_be: u32,
    /// What is added to an address to make it the device's, wrapping.
    pub delta: u64,
}

impl KeyRange {
    /// Whether all of `bytes` bytes at `address` are inside.
    #[must_use]
    #[inline(always)]
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.start);
        offset < self.bytes && self.bytes - offset >= bytes
    }

    /// What a data segment says of it.
    #[must_use]
    #[inline(always)]
    pub fn key(&self) -> Key {
        Key { lkey_be: self.lkey.to_be(), delta: self.delta }
    }
}

/// Finds a range for bytes at an address, which none has, by registering it; or says that there is none, and for which addresses
/// it need not be asked again until the table changes.
pub type Ask = Box<dyn Fn(u64, u64) -> Result<KeyRange, Range<u64>> + Send + Sync>;

/// The ranges of a protection domain.
pub struct KeyTable {
    version: AtomicU64,
    ranges: Mutex<Arc<[KeyRange]>>,
    ask: Option<Ask>,
}

impl KeyTable {
    /// An empty table. `ask` is called, on the lcore that sends, for the address and length of a packet that no range holds; it may
    /// register memory, insert it here and answer with it. What it refuses is asked for again once the table has changed. Without,
    /// such packets are refused.
    #[must_use]
    pub fn new(ask: Option<Ask>) -> Arc<Self> {
        Arc::new(Self { version: AtomicU64::new(1), ranges: Mutex::new(Arc::new([])), ask })
    }

    /// Adds a range. Ranges may overlap: a region that was registered when a packet brought it, and a pool made in it later.
    pub fn insert(&self, range: KeyRange) {
        self.change(|ranges| {
            let at = ranges.partition_point(|other| other.start < range.start);
            ranges.insert(at, range);
        });
    }

    /// Takes the range with this key out. Queues that are in the middle of a burst may still use it until that ends.
    pub fn remove(&self, lkey: u32) {
        self.change(|ranges| ranges.retain(|range| range.lkey != lkey));
    }

    /// The range that holds all of `bytes` bytes at `address`.
    #[must_use]
    pub fn find(&self, address: u64, bytes: u64) -> Option<KeyRange> {
        find(&self.ranges(), address, bytes)
    }

    /// All ranges, by address.
    #[must_use]
    pub fn all(&self) -> Arc<[KeyRange]> {
        Arc::clone(&self.ranges())
    }

    fn change(&self, change: impl FnOnce(&mut Vec<KeyRange>)) {
        let mut ranges = self.ranges();
        let mut new = ranges.to_vec();
        change(&mut new);
        *ranges = new.into();
        // Release: whoever sees the new version finds at least this table.
        self.version.fetch_add(1, Ordering::Release);
    }

    fn ranges(&self) -> MutexGuard<'_, Arc<[KeyRange]>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable").field("ranges", &self.all()).finish_non_exhaustive()
    }
}

fn find(ranges: &[KeyRange], address: u64, bytes: u64) -> Option<KeyRange> {
    let before = ranges.partition_point(|range| range.start <= address);
    // The one that begins nearest holds it, but for those that overlap.
    ranges[..before].iter().rev().find(|range| range.holds(address, bytes)).copied()
}

/// Ranges of refused addresses that a queue remembers: packets of so many regions may take turns.
const REFUSED_MAX: usize = 8;

/// A queue's view of a [`KeyTable`].
#[derive(Clone, Debug)]
pub struct Keys {
    last: KeyRange,
    version: u64,
    ranges: Arc<[KeyRange]>,
    /// Addresses that were refused last, with this version of the table, the eldest first.
    refused: ArrayVec<Range<u64>, REFUSED_MAX>,
    table: Arc<KeyTable>,
}

impl Keys {
    /// A view of `table`.
    #[must_use]
    pub fn new(table: Arc<KeyTable>) -> Self {
        let last = KeyRange { start: 0, bytes: 0, lkey: 0, delta: 0 };
        Self { last, version: 0, ranges: Arc::new([]), refused: ArrayVec::new(), table }
    }

    /// A view of a table that stays empty.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(KeyTable::new(None))
    }

    /// To be called before each burst: follows the table's changes. Hot: one load.
    #[inline(always)]
    pub fn follow(&mut self) {
        // Acquire pairs with the Release in `change`.
        if self.table.version.load(Ordering::Acquire) != self.version {
            self.copy();
        }
    }

    /// The key for `bytes` bytes at `address`. Hot: one comparison when the range is that of the packet before.
    #[inline(always)]
    pub fn find(&mut self, address: u64, bytes: u64) -> Option<Key> {
        if self.last.holds(address, bytes) { Some(self.last.key()) } else { self.search(address, bytes) }
    }

    /// The one key that serves all of a range, if there is such.
    #[must_use]
    pub fn covering(&mut self, start: u64, bytes: u64) -> Option<Key> {
        self.follow();
        find(&self.ranges, start, bytes).map(|range| range.key())
    }

    #[cold]
    #[inline(never)]
    fn copy(&mut self) {
        // The version first: a change in between makes us come again.
        self.version = self.table.version.load(Ordering::Acquire);
        self.ranges = self.table.all();
        self.last.bytes = 0;
        self.refused.clear();
    }

    #[cold]
    #[inline(never)]
    fn search(&mut self, address: u64, bytes: u64) -> Option<Key> {
        let found = match find(&self.ranges, address, bytes) {
            Some(known) => known,
            None if self.refused.iter().any(|refused| refused.contains(&address)) => return None,
            None => match self.table.ask.as_ref()?(address, bytes) {
                Ok(met) if met.holds(address, bytes) => met,
                // It goes on past the end of what there is.
                Ok(_) => return self.refuse(address..address.saturating_add(1)),
                Err(refused) => return self.refuse(refused),
            },
        };
        self.last = found;
        Some(found.key())
    }

    fn refuse(&mut self, addresses: Range<u64>) -> Option<Key> {
        if !addresses.is_empty() {
            if self.refused.is_full() {
                self.refused.remove(0);
            }
            self.refused.push(addresses);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, bytes: u64, lkey: u32) -> KeyRange {
        KeyRange { start, bytes, lkey, delta: u64::from(lkey) << 12 }
    }

    #[test]
    fn a_key_serves_its_range_and_not_a_byte_more() {
        let table = KeyTable::new(None);
        table.insert(range(0x2000, 0x1000, 2));
        table.insert(range(0x1000, 0x1000, 1));
        let mut keys = Keys::new(Arc::clone(&table));
        keys.follow();
        for (address, bytes, lkey) in [
            (0x1000, 0x1000, Some(1)),
            (0x1fff, 1, Some(1)),
            (0x1fff, 2, None),
            (0x2000, 1, Some(2)),
            (0x2fff, 1, Some(2)),
            (0x3000, 1, None),
            (0xfff, 1, None),
            (u64::MAX, 1, None),
        ] {
            let found = keys.find(address, bytes).map(|key| u32::from_be(key.lkey_be));
            assert_eq!(found, lkey, "{bytes} bytes at {address:#x}");
        }
        table.insert(range(0, 0x4000, 3));
        keys.follow();
        let found =
            [0x10, 0x1800, 0x1fff, 0x3000].map(|at| keys.find(at, 2).map(|key| u32::from_be(key.lkey_be)));
        assert_eq!(found, [Some(3); 4], "whichever holds it");
        table.remove(3);
        keys.follow();
        assert!(keys.covering(0x1000, 0x1000).is_some() && keys.covering(0x1000, 0x1001).is_none());
    }

    #[test]
    fn changes_are_followed_at_the_next_burst() {
        let table = KeyTable::new(None);
        table.insert(range(0x1000, 0x1000, 1));
        let mut keys = Keys::new(Arc::clone(&table));
        keys.follow();
        assert!(keys.find(0x1000, 1).is_some());
        table.remove(1);
        table.insert(range(0x1000, 0x1000, 7));
        keys.follow();
        assert_eq!(keys.find(0x1000, 1), Some(range(0x1000, 0x1000, 7).key()));
        table.remove(7);
        keys.follow();
        assert_eq!(keys.find(0x1000, 1), None);
    }

    #[test]
    fn unknown_memory_is_asked_for() {
        let table = KeyTable::new(Some(Box::new(|address, _| {
            if address < 0x5000 { Ok(range(0x4000, 0x1000, 9)) } else { Err(0..0) }
        })));
        let mut keys = Keys::new(table);
        keys.follow();
        assert_eq!(keys.find(0x4100, 16).map(|key| key.delta), Some(9 << 12));
        assert_eq!(keys.find(0x4fff, 16), None, "the answer must hold all of it");
        assert_eq!(keys.find(0x9000, 16), None);
    }

    #[test]
    fn many_refusals_are_remembered_and_packets_past_the_end_too() {
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let table = KeyTable::new(Some(Box::new(move |address, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            let start = address & !0xfff;
            if start == 0x4000 { Ok(range(start, 0x1000, 9)) } else { Err(start..start + 0x1000) }
        })));
        let mut keys = Keys::new(table);
        keys.follow();
        for turn in 0..3 {
            for region in 0..REFUSED_MAX as u64 - 1 {
                assert_eq!(keys.find(0x8000 + region * 0x1000 + turn, 64), None);
            }
            assert_eq!(keys.find(0x4fff, 16), None);
            assert_eq!(asked.load(Ordering::Relaxed), REFUSED_MAX as u64, "turn {turn}");
        }
        assert!(keys.find(0x4ff0, 16).is_some(), "inside");
        // One more than there is room for drives out the eldest alone.
        keys.find(0x2_0000, 1);
        let before = asked.load(Ordering::Relaxed);
        assert!(keys.find(0x2_0000, 1).is_none() && keys.find(0x9000, 1).is_none());
        assert_eq!(asked.load(Ordering::Relaxed), before);
        assert!(keys.find(0x8000, 1).is_none());
        assert_eq!(asked.load(Ordering::Relaxed), before + 1);
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again_until_the_table_changes() {
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        let table = KeyTable::new(Some(Box::new(move |_, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            Err(0x8000..0xa000)
        })));
        let mut keys = Keys::new(Arc::clone(&table));
        for (turn, more) in [(1, 0x1000), (2, 0x2000)] {
            keys.follow();
            for address in [0x8000, 0x9fff, 0x9000] {
                assert_eq!(keys.find(address, 1), None);
            }
            assert_eq!(asked.load(Ordering::Relaxed), turn);
            table.insert(range(more, 0x1000, 1));
        }
        table.insert(range(0x8000, 0x2000, 2));
        keys.follow();
        assert!(keys.find(0x9000, 1).is_some(), "known since");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
