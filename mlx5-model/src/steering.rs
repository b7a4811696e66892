//! Steering: which queues a received frame goes to.
//!
//! ```text
//!   root table ─► entry ─► table of a higher level ─► entry ─► TIR ─► queue
//!        │          │ counts, tags                              └──► table of queues, by hash
//!        └ no entry: where the table's misses go, or nowhere
//! ```

mod hash;
mod matching;
mod table;

use crate::device::table::Table;
use crate::frame::{Headers, Tunnels};
use crate::port::Traffic;
pub(crate) use hash::{Dispatch, Fields as HashFields, Function as HashFunction, Tir};
pub(crate) use matching::Mask;
use matching::Packet;
pub(crate) use table::{Destination, Entry, FlowTable, Group, Miss};

/// Tables that a packet passes at most.
const HOPS_MAX: usize = 64;

/// A frame's way to one TIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) tir: u32,
    pub(crate) tag: u32,
}

/// A table of queues.
#[derive(Clone, Debug)]
pub(crate) struct QueueTable {
    pub(crate) queues: Vec<u32>,
    pub(crate) most: usize,
}

/// Flow counters: numbers are given out once, in a row for those asked for together.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    values: Vec<Option<(u16, Traffic)>>,
    alive: usize,
}

impl Counters {
    /// Most counters at a time: `max_flow_counter`.
    pub(crate) const MOST: usize = 1 << 16;

    pub(crate) fn add(&mut self, owner: u16, count: usize) -> Option<u32> {
        if self.alive + count > Self::MOST || self.values.len() + count > 64 * Self::MOST {
            return None;
        }
        let first = self.values.len() as u32 + 1;
        self.values.resize(self.values.len() + count, Some((owner, Traffic::default())));
        self.alive += count;
        Some(first)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Traffic> {
        let index = number.checked_sub(1)? as usize;
        self.values.get_mut(index)?.as_mut().map(|(_, value)| value)
    }

    pub(crate) fn owner(&self, number: u32) -> Option<u16> {
        let index = number.checked_sub(1)? as usize;
        self.values.get(index)?.map(|(owner, _)| owner)
    }

    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let index = number.wrapping_sub(1) as usize;
        let there = self.values.get_mut(index).and_then(Option::take).is_some();
        self.alive -= usize::from(there);
        there
    }

    pub(crate) fn remove_owned(&mut self, by: u16) {
        for slot in &mut self.values {
            if slot.is_some_and(|(owner, _)| owner == by) {
                *slot = None;
                self.alive -= 1;
            }
        }
    }
}

/// All of steering.
#[derive(Debug)]
pub(crate) struct Steering {
    pub(crate) tables: Table<FlowTable>,
    pub(crate) root: Option<u32>,
    pub(crate) counters: Counters,
    pub(crate) tirs: Table<Tir>,
    pub(crate) queue_tables: Table<QueueTable>,
    pub(crate) deliveries: Vec<Delivery>,
    /// It came to the end of the chain, all of it or a copy: the kernel's own interface is there.
    pub(crate) came_through: bool,
    /// Counters of the entries that took the frame.
    passed: Vec<u32>,
}

impl Steering {
    pub(crate) fn new() -> Self {
        Self {
            tables: Table::new(0x40, 1 << 16),
            root: None,
            counters: Counters::default(),
            tirs: Table::new(0x100, 1 << 16),
            queue_tables: Table::new(0x200, 1 << 10),
            deliveries: Vec::new(),
            came_through: false,
            passed: Vec::new(),
        }
    }

    /// Finds where a frame goes; the answer is in `deliveries`. It counts once [`count`](Self::count) says so: one that waits
    /// for a buffer is looked at again.
    #[inline]
    pub(crate) fn classify(&mut self, frame: &[u8], headers: &Headers, tunnels: &Tunnels) {
        self.deliveries.clear();
        self.passed.clear();
        self.came_through = self.root.is_none();
        if let Some(root) = self.root {
            let mut packet = Packet::new(frame, headers, tunnels);
            let mut hops = HOPS_MAX;
            let Self { tables, passed, deliveries, .. } = self;
            self.came_through = walk(tables, passed, deliveries, root, &mut packet, 0, &mut hops);
        }
    }

    /// Counts the frame that was classified last, where entries count it.
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize) {
        for counter in &self.passed {
            if let Some(traffic) = self.counters.get_mut(*counter) {
                traffic.add(bytes);
            }
        }
    }
}

/// From a table on. Whether the frame, or a copy of it, came to the end of the chain.
fn walk(
    tables: &Table<FlowTable>,
    passed: &mut Vec<u32>,
    deliveries: &mut Vec<Delivery>,
    table: u32,
    packet: &mut Packet<'_>,
    tag: u32,
    hops: &mut usize,
) -> bool {
    let mut next = Some(table);
    let mut through = false;
    while let Some(number) = next.take() {
        let Some(left) = hops.checked_sub(1) else { return through };
        *hops = left;
        let Some(table) = tables.get(number) else { return through };
        let Some(entry) = table.find(packet) else {
            match table.miss {
                Miss::Drop => return true,
                Miss::Table(other) => {
                    next = Some(other);
                    continue;
                }
            }
        };
        passed.extend(&entry.counters);
        let tag = if entry.tag == 0 { tag } else { entry.tag };
        for destination in &entry.destinations {
            match *destination {
                Destination::Tir(tir) => deliveries.push(Delivery { tir, tag }),
                Destination::Table(other) => {
                    through |= walk(tables, passed, deliveries, other, packet, tag, hops);
                }
            }
        }
    }
    through
}

impl Steering {
    /// Whether an entry leads there.
    pub(crate) fn is_destination(&self, destination: Destination) -> bool {
        self.entries().any(|entry| entry.destinations.contains(&destination))
    }

    /// Whether an entry counts there.
    pub(crate) fn is_counting(&self, counter: u32) -> bool {
        self.entries().any(|entry| entry.counters.contains(&counter))
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.tables.iter().flat_map(|(_, table)| table.groups()).flat_map(Group::entries)
    }

    /// All that belongs to a user context ends.
    pub(crate) fn forget(&mut self, uid: u16) {
        for number in self.tables.owned_by(uid) {
            self.tables.remove(number);
            if self.root == Some(number) {
                self.root = None;
            }
        }
        for number in self.tirs.owned_by(uid) {
            self.tirs.remove(number);
        }
        for number in self.queue_tables.owned_by(uid) {
            self.queue_tables.remove(number);
        }
        self.counters.remove_owned(uid);
    }
}
