//! Steering: which queues a received frame goes to, and whether and how a frame that is sent goes out.
//!
//! ```text
//!   root table ─► entry ─► table of a higher level ─► entry ─► TIR ─► queue
//!        │          │ counts, tags, changes                     └──► table of queues, by hash
//!        └ no entry: where the table's misses go, or nowhere
//!
//!   root table of what is sent ─► entry ─► ... ─► the wire; so does what no entry takes
//! ```

mod hash;
mod matching;
pub(crate) mod rewrite;
mod table;

use std::sync::Arc;

use crate::device::table::Table;
use crate::frame::{Headers, Tunnels};
use crate::port::Traffic;
pub(crate) use hash::{Dispatch, Fields as HashFields, Function as HashFunction, Tir};
pub(crate) use matching::Mask;
use matching::Packet;
use rewrite::{Reformat, Rewrite};
pub(crate) use table::{Changes, Destination, Entry, FlowTable, Group, Miss, Way};

/// Tables that a packet passes at most.
const HOPS_MAX: usize = 64;

/// Lists of changes, and headers to put on or take off: `log_max_modify_header_context`, `log_max_packet_reformat_context`.
pub(crate) const REWRITES_MAX: usize = 1 << 12;
pub(crate) const REFORMATS_MAX: usize = 1 << 12;

/// A frame's way to one TIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) tir: u32,
    pub(crate) tag: u32,
    /// As it was changed on its way.
    pub(crate) changed: Option<Arc<[u8]>>,
}

/// What becomes of a frame that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    AsItIs,
    Dropped,
    Changed(Arc<[u8]>),
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
    /// Where what is received begins, and what is sent.
    pub(crate) root: Option<u32>,
    pub(crate) root_out: Option<u32>,
    pub(crate) rewrites: Table<Arc<Rewrite>>,
    pub(crate) reformats: Table<Arc<Reformat>>,
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
            root_out: None,
            rewrites: Table::new(1, REWRITES_MAX),
            reformats: Table::new(1, REFORMATS_MAX),
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
            let mut walk = Walk::new(&self.tables, &mut self.passed, &mut self.deliveries, tunnels);
            walk.on(root, &mut Packet::new(frame, headers, tunnels, 0), None, 0);
            self.came_through = walk.through;
        }
    }

    /// Whether what is sent goes out as it is.
    #[inline]
    pub(crate) fn lets_out(&self) -> bool {
        self.root_out.is_none()
    }

    /// What becomes of a frame that queue `number` sends. It counts as one that is received does.
    pub(crate) fn leave(&mut self, frame: &[u8], number: u32, tunnels: &Tunnels) -> Sent {
        self.passed.clear();
        let Some(root) = self.root_out else { return Sent::AsItIs };
        let headers = Headers::parse(frame, 0);
        let mut walk = Walk::new(&self.tables, &mut self.passed, &mut self.deliveries, tunnels);
        walk.on(root, &mut Packet::new(frame, &headers, tunnels, number), None, 0);
        walk.sent
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

/// A frame's way through tables.
struct Walk<'s> {
    tables: &'s Table<FlowTable>,
    passed: &'s mut Vec<u32>,
    deliveries: &'s mut Vec<Delivery>,
    tunnels: &'s Tunnels,
    hops: usize,
    sent: Sent,
    /// What was received, or a copy of it, came to the end of the chain.
    through: bool,
}

impl<'s> Walk<'s> {
    fn new(
        tables: &'s Table<FlowTable>,
        passed: &'s mut Vec<u32>,
        deliveries: &'s mut Vec<Delivery>,
        tunnels: &'s Tunnels,
    ) -> Self {
        Self { tables, passed, deliveries, tunnels, hops: HOPS_MAX, sent: Sent::Dropped, through: false }
    }

    fn on(&mut self, table: u32, packet: &mut Packet<'_>, changed: Option<&Arc<[u8]>>, tag: u32) {
        let mut next = Some(table);
        while let Some(number) = next.take() {
            let Some(left) = self.hops.checked_sub(1) else { return };
            self.hops = left;
            let Some(table) = self.tables.get(number) else { return };
            let Some(entry) = table.find(packet) else {
                match table.miss {
                    Miss::End => {
                        self.through |= table.way == Way::In;
                        return self.out(table.way, changed);
                    }
                    Miss::Table(other) => {
                        next = Some(other);
                        continue;
                    }
                }
            };
            self.passed.extend(&entry.counters);
            let tag = if entry.tag == 0 { tag } else { entry.tag };
            match entry.changes.of(packet.frame(), self.tunnels) {
                None => self.go(table.way, entry, packet, changed, tag),
                Some(new) => {
                    let new: Arc<[u8]> = new.into();
                    let headers = Headers::parse(&new, 0);
                    let mut packet = Packet::new(&new, &headers, self.tunnels, packet.queue());
                    self.go(table.way, entry, &mut packet, Some(&new), tag);
                }
            }
        }
    }

    /// To where an entry leads.
    fn go(
        &mut self,
        way: Way,
        entry: &Entry,
        packet: &mut Packet<'_>,
        changed: Option<&Arc<[u8]>>,
        tag: u32,
    ) {
        if entry.destinations.is_empty() && !entry.drops {
            self.out(way, changed);
        }
        for destination in &entry.destinations {
            match *destination {
                Destination::Tir(tir) => {
                    self.deliveries.push(Delivery { tir, tag, changed: changed.cloned() })
                }
                Destination::Table(other) => self.on(other, packet, changed, tag),
            }
        }
    }

    /// To the end of all tables.
    fn out(&mut self, way: Way, changed: Option<&Arc<[u8]>>) {
        if way == Way::Out {
            self.sent = changed.map_or(Sent::AsItIs, |changed| Sent::Changed(changed.clone()));
        }
    }
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

    /// A table is no root any more.
    pub(crate) fn forget_root(&mut self, number: u32) {
        for root in [&mut self.root, &mut self.root_out] {
            *root = root.filter(|root| *root != number);
        }
    }

    /// All that belongs to a user context ends.
    pub(crate) fn forget(&mut self, uid: u16) {
        for number in self.tables.owned_by(uid) {
            self.tables.remove(number);
            self.forget_root(number);
        }
        for number in self.tirs.owned_by(uid) {
            self.tirs.remove(number);
        }
        for number in self.queue_tables.owned_by(uid) {
            self.queue_tables.remove(number);
        }
        for number in self.rewrites.owned_by(uid) {
            self.rewrites.remove(number);
        }
        for number in self.reformats.owned_by(uid) {
            self.reformats.remove(number);
        }
        self.counters.remove_owned(uid);
    }
}
