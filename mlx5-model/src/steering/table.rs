//! Tables of groups of entries.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::budget::{Budget, Ended};
use super::matching::{Mask, Packet};
use super::rewrite::{Reformat, Rewrite, decapsulate};
use crate::frame::Tunnels;

/// Which packets a table looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// What is received.
    In,
    /// What is sent.
    Out,
    /// A copy of what the port received, whoever takes it.
    CopyIn,
    /// A copy of what the port sent.
    CopyOut,
}

impl Way {
    /// How many there are.
    pub(crate) const COUNT: usize = 4;

    /// Whether packets that go there can come to queues.
    pub(crate) fn ends_in_queues(self) -> bool {
        self != Self::Out
    }

    /// Whether packets that go there are copies, which nothing changes.
    pub(crate) fn is_copy(self) -> bool {
        matches!(self, Self::CopyIn | Self::CopyOut)
    }

    /// Whether packets that go there come from the wire.
    pub(crate) fn is_received(self) -> bool {
        matches!(self, Self::In | Self::CopyIn)
    }
}

/// Where packets go that no entry takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// Nowhere if they are received, out if they are sent.
    End,
    Table(u32),
}

/// Where an entry leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Tir(u32),
    Table(u32),
}

/// What an entry does to packets, in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// A tunnel is taken off.
    pub(crate) decapsulate: bool,
    pub(crate) rewrite: Option<Arc<Rewrite>>,
    pub(crate) reformat: Option<Arc<Reformat>>,
}

impl Changes {
    /// The packet as it goes on; `None` where it does as it is.
    pub(super) fn of(&self, frame: &[u8], tunnels: &Tunnels) -> Option<Vec<u8>> {
        if !self.decapsulate && self.rewrite.is_none() && self.reformat.is_none() {
            return None;
        }
        // What is no tunnel stays as it is.
        let mut frame =
            if self.decapsulate { decapsulate(frame, tunnels) } else { None }.unwrap_or(frame.to_vec());
        if let Some(rewrite) = &self.rewrite {
            rewrite.apply(&mut frame);
        }
        let reformat = self.reformat.as_ref().and_then(|reformat| reformat.apply(&frame, tunnels));
        Some(reformat.unwrap_or(frame))
    }
}

/// An entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Vec<u64>,
    pub(crate) tag: u32,
    /// None: dropped, or sent.
    pub(crate) destinations: Vec<Destination>,
    /// Nothing is sent that it takes.
    pub(crate) drops: bool,
    pub(crate) counters: Vec<u32>,
    pub(crate) changes: Changes,
    /// The context as it was made, for queries.
    pub(crate) context: Vec<u8>,
}

/// From how many entries on a group is searched by hash.
const SCAN_MAX: usize = 8;

/// A run of indices with one mask.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) number: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) mask: Mask,
    pub(crate) criteria: u32,
    entries: BTreeMap<u32, Entry>,
    /// Indices by value, of which the lowest counts. Kept while the group is larger than a scan is quick.
    by_value: HashMap<Vec<u64>, BTreeSet<u32>>,
}

impl Group {
    pub(crate) fn new(number: u32, start: u32, end: u32, mask: Mask, criteria: u32) -> Self {
        Self { number, start, end, mask, criteria, entries: BTreeMap::new(), by_value: HashMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(&index)
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(&index)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Adds an entry at an index that has none.
    pub(crate) fn insert(&mut self, index: u32, entry: Entry) {
        if self.entries.len() > SCAN_MAX {
            self.by_value.entry(entry.value.clone()).or_default().insert(index);
        }
        self.entries.insert(index, entry);
        if self.entries.len() == SCAN_MAX + 1 {
            for (index, entry) in &self.entries {
                self.by_value.entry(entry.value.clone()).or_default().insert(*index);
            }
        }
    }

    pub(crate) fn remove(&mut self, index: u32) -> bool {
        let Some(entry) = self.entries.remove(&index) else { return false };
        if self.entries.len() <= SCAN_MAX {
            self.by_value.clear();
        } else if let Some(indices) = self.by_value.get_mut(&entry.value) {
            indices.remove(&index);
            if indices.is_empty() {
                self.by_value.remove(&entry.value);
            }
        }
        true
    }

    #[inline]
    fn find(&self, packet: &mut Packet<'_>) -> Option<&Entry> {
        if self.entries.len() > SCAN_MAX {
            let mut room = [0; 64];
            let index = self.by_value.get(self.mask.key(packet, &mut room))?.first()?;
            return self.entries.get(index);
        }
        self.entries.values().find(|entry| self.mask.matches(packet, &entry.value))
    }
}

/// Groups of one table at most: as many are looked at for each packet that comes there. Cards do not say theirs.
pub(crate) const GROUPS_MAX: usize = 1 << 12;

/// What entries of a table may do, as its flags said when it was made: `decap_en`, `reformat_en`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allows {
    /// Take a tunnel off.
    pub(crate) decapsulate: bool,
    /// Put a header on, or another one in its place.
    pub(crate) reformat: bool,
}

impl Allows {
    /// Whether an entry there may change packets so.
    pub(crate) fn allows(self, changes: &Changes) -> bool {
        (self.decapsulate || !changes.decapsulate) && (self.reformat || changes.reformat.is_none())
    }
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct FlowTable {
    pub(crate) way: Way,
    pub(crate) level: u32,
    pub(crate) log_size: u32,
    pub(crate) miss: Miss,
    pub(crate) allows: Allows,
    /// By first index: entries of lower indices come first.
    groups: Vec<Group>,
    next_group: u32,
}

impl FlowTable {
    pub(crate) fn new(way: Way, level: u32, log_size: u32, miss: Miss, allows: Allows) -> Self {
        Self { way, level, log_size, miss, allows, groups: Vec::new(), next_group: 0 }
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Adds a group, unless its indices are others' already.
    pub(crate) fn add_group(&mut self, start: u32, end: u32, mask: Mask, criteria: u32) -> Option<u32> {
        if self.groups.iter().any(|group| start <= group.end && group.start <= end) {
            return None;
        }
        self.next_group = (self.next_group + 1) & 0xff_ffff;
        let group = Group::new(self.next_group, start, end, mask, criteria);
        let at = self.groups.partition_point(|other| other.start < start);
        self.groups.insert(at, group);
        Some(self.next_group)
    }

    pub(crate) fn group_mut(&mut self, number: u32) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.number == number)
    }

    pub(crate) fn remove_group(&mut self, number: u32) {
        self.groups.retain(|group| group.number != number);
    }

    /// The group that has an index.
    pub(crate) fn group_at(&mut self, index: u32) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.start <= index && index <= group.end)
    }

    /// How many entries it has.
    pub(crate) fn entries(&self) -> usize {
        self.groups.iter().map(|group| group.entries.len()).sum()
    }

    /// The first entry that takes the packet.
    #[inline]
    pub(super) fn find(&self, packet: &mut Packet<'_>, budget: &mut Budget) -> Result<Option<&Entry>, Ended> {
        for group in &self.groups {
            budget.groups = budget.groups.checked_sub(1).ok_or(Ended)?;
            if !group.is_empty()
                && let Some(entry) = group.find(packet)
            {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}
