//! Pages behind one key: which of them the device reaches.

use std::collections::BTreeMap;
use std::ops::Range;

use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::device::{Pinned, Rights};
use crate::umem::{PAGE, entry};

/// As much as is brought beyond what was asked for, where a program goes through its memory in order: twice what it had before.
const AHEAD_MAX: u64 = 4 << 20;

/// Whose memory is reached, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) process: Option<u32>,
    pub(super) rights: Rights,
}

/// The pages of a key, by their addresses in the process.
#[derive(Debug)]
pub(super) struct Pages {
    /// Index of the key.
    pub(super) index: u32,
    reach: Reach,
    /// Whole pages.
    all: Range<u64>,
    /// Those that the device reaches, by their first byte; no two have a page in common.
    held: BTreeMap<u64, Pinned>,
}

impl Pages {
    /// The pages with these bytes; none of them is there.
    pub(super) fn new(index: u32, reach: Reach, bytes: &Range<u64>) -> Self {
        Self { index, reach, all: whole(bytes), held: BTreeMap::new() }
    }

    /// Brings all of `bytes` that are in these pages; where a stretch ends before them, more may come behind.
    pub(super) fn bring(&mut self, adapter: &Adapter, bytes: &Range<u64>) -> Result<(), Errno> {
        let wanted = common(&whole(bytes), &self.all);
        if wanted.is_empty() {
            return Err(Errno::EFAULT);
        }
        let before = self.held.range(..wanted.start).next_back();
        let before = before.filter(|(_, held)| held.address + held.bytes == wanted.start);
        let ahead = before.map_or(0, |(_, held)| held.bytes.saturating_mul(2).min(AHEAD_MAX));
        let more = common(&(wanted.start..wanted.end.max(wanted.start + ahead)), &self.all);
        for gap in self.gaps(&more) {
            let needed = common(&gap, &wanted);
            if self.add(adapter, &gap).is_err() && !needed.is_empty() {
                self.add(adapter, &needed)?;
            }
        }
        Ok(())
    }

    /// Stretches of `range` that the device does not reach.
    fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut from = range.start;
        let first = self.held.range(..=range.start).next_back().map_or(range.start, |(at, _)| *at);
        for held in self.held.range(first..range.end.max(first)).map(|(_, held)| held) {
            if held.address > from {
                gaps.push(from..held.address);
            }
            from = from.max(held.address + held.bytes);
        }
        if from < range.end {
            gaps.push(from..range.end);
        }
        gaps
    }

    fn add(&mut self, adapter: &Adapter, gap: &Range<u64>) -> Result<(), Errno> {
        let Reach { process, rights } = self.reach;
        let held = adapter.memory.reach(process, gap.start, gap.end - gap.start, rights)?;
        self.held.insert(gap.start, held);
        if self.enter(adapter, gap) {
            return Ok(());
        }
        self.held.remove(&gap.start);
        Err(Errno::EIO)
    }

    /// Writes the entries of these pages into the key.
    fn enter(&self, adapter: &Adapter, range: &Range<u64>) -> bool {
        let index = |address: u64| (address - self.all.start) / PAGE;
        // Two to a unit.
        let (from, to) = (index(range.start) / 2 * 2, index(range.end).next_multiple_of(2));
        let entries: Vec<u8> =
            (from..to).flat_map(|index| self.entry(self.all.start + index * PAGE).to_be_bytes()).collect();
        adapter.firmware.queue.set_key_entries(self.index, from / 2, &entries)
    }

    fn entry(&self, page: u64) -> u64 {
        let rights = match self.reach.rights {
            Rights::Read => entry::READ,
            Rights::ReadWrite => entry::READ | entry::WRITE,
        };
        let held = self.held.range(..=page).next_back().map(|(_, held)| held);
        let held = held.filter(|held| page < held.address + held.bytes);
        held.map_or(0, |held| held.dma.wrapping_add(page - held.address) | rights)
    }
}

/// The whole pages that have these bytes.
fn whole(bytes: &Range<u64>) -> Range<u64> {
    let end = bytes.end.checked_next_multiple_of(PAGE).unwrap_or(bytes.end / PAGE * PAGE);
    bytes.start / PAGE * PAGE..end
}

fn common(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}
