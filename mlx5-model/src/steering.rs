//! Steering: which queues a received frame goes to, and whether and how a frame that is sent goes out.
//!
//! ```text
//!   root table ─► entry ─► table of a higher level ─► entry ─► TIR ─► queue
//!        │          │ counts, tags, changes                     └──► table of queues, by hash
//!        └ no entry: where the table's misses go, or nowhere
//!
//!   root table of what is sent ─► entry ─► ... ─► the wire; so does what no entry takes
//!   root tables of sniffers    ─► entry ─► ... ─► TIR: a copy of what the port received, and of what it sent
//! ```
//!
//! Rules are a guest's: what they make one frame cost is bounded ([`budget`]), and so is what they keep ([`ENTRIES_MAX`],
//! [`GROUPS_HELD_MAX`]).

mod budget;
mod hash;
mod matching;
pub(crate) mod rewrite;
mod table;
mod walk;

use std::sync::Arc;

use crate::device::table::Table;
use crate::frame::{Headers, Tunnels};
use crate::port::{PortCounters, Traffic};
pub(crate) use budget::LEVELS;
pub(crate) use hash::{Dispatch, Fields as HashFields, Function as HashFunction, Tir};
pub(crate) use matching::Mask;
use matching::Packet;
use rewrite::{Reformat, Rewrite};
pub(crate) use table::{Allows, Changes, Destination, Entry, FlowTable, GROUPS_MAX, Group, Miss, Way};
use walk::{Branch, Walk};

/// Lists of changes, and headers to put on or take off: `log_max_modify_header_context`, `log_max_packet_reformat_context`.
pub(crate) const REWRITES_MAX: usize = 1 << 12;
pub(crate) const REFORMATS_MAX: usize = 1 << 12;

/// Entries of all tables together: `log_max_flow`. Each takes up to 4 KiB.
pub(crate) const ENTRIES_MAX: usize = 1 << 18;
/// Groups of all tables together. Cards do not say theirs; of this device's own each takes up to 1 KiB.
pub(crate) const GROUPS_HELD_MAX: usize = 1 << 16;

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

/// Counts a frame whose way was ended, and tells of the first one.
#[cold]
fn note_end(way: Way, port: &mut PortCounters) {
    let (count, name) = match way {
        Way::In | Way::CopyIn => (&mut port.rx_steering_ended, "rx_steering_ended"),
        Way::Out | Way::CopyOut => (&mut port.tx_steering_ended, "tx_steering_ended"),
    };
    if *count == 0 {
        tracing::warn!(
            target: "model.steering",
            "flow tables lead a frame further than the device follows: it is cut off there, and counted ({name})"
        );
    }
    *count += 1;
}

/// All of steering.
#[derive(Debug)]
pub(crate) struct Steering {
    pub(crate) tables: Table<FlowTable>,
    /// Where packets of each [`Way`] begin.
    roots: [Option<u32>; Way::COUNT],
    /// Groups and entries that tables have.
    pub(crate) groups: usize,
    pub(crate) entries: usize,
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
    /// Room for [`Walk`].
    branches: Vec<Branch>,
    /// The way of the frame that was looked at last, if it was ended.
    ended: Option<Way>,
}

impl Steering {
    pub(crate) fn new() -> Self {
        Self {
            tables: Table::new(0x40, 1 << 16),
            roots: [None; Way::COUNT],
            groups: 0,
            entries: 0,
            rewrites: Table::new(1, REWRITES_MAX),
            reformats: Table::new(1, REFORMATS_MAX),
            counters: Counters::default(),
            tirs: Table::new(0x100, 1 << 16),
            queue_tables: Table::new(0x200, 1 << 10),
            deliveries: Vec::new(),
            came_through: false,
            passed: Vec::new(),
            branches: Vec::new(),
            ended: None,
        }
    }

    /// Finds where a frame that was received, or a copy for sniffers, goes; the answer is in `deliveries`. It counts once [`count`](Self::count) says so: one that waits
    /// for a buffer is looked at again.
    #[inline]
    pub(crate) fn classify(&mut self, way: Way, frame: &[u8], headers: &Headers, tunnels: &Tunnels) {
        self.deliveries.clear();
        self.passed.clear();
        self.ended = None;
        self.came_through = self.root(way).is_none();
        if let Some(root) = self.root(way) {
            (_, self.came_through) =
                self.walk(way, root, &mut Packet::new(frame, headers, tunnels, 0), tunnels);
        }
    }

    /// Where packets of a way begin.
    #[inline]
    pub(crate) fn root(&self, way: Way) -> Option<u32> {
        self.roots[way as usize]
    }

    pub(crate) fn root_mut(&mut self, way: Way) -> &mut Option<u32> {
        &mut self.roots[way as usize]
    }

    /// What becomes of the frame if it is sent, and whether it came through if it was received.
    fn walk(&mut self, way: Way, root: u32, packet: &mut Packet<'_>, tunnels: &Tunnels) -> (Sent, bool) {
        let Self { tables, passed, deliveries, branches, .. } = self;
        let mut walk =
            Walk { tables, tunnels, passed, deliveries, branches, sent: Sent::Dropped, through: false };
        let done = walk.from(root, packet);
        let found = (walk.sent, walk.through);
        self.ended = done.is_err().then_some(way);
        found
    }

    /// Whether what is sent goes out as it is.
    #[inline]
    pub(crate) fn lets_out(&self) -> bool {
        self.root(Way::Out).is_none()
    }

    /// What becomes of a frame that queue `number` sends. It counts as one that is received does.
    pub(crate) fn leave(&mut self, frame: &[u8], number: u32, tunnels: &Tunnels) -> Sent {
        self.passed.clear();
        self.ended = None;
        let Some(root) = self.root(Way::Out) else { return Sent::AsItIs };
        let headers = Headers::parse(frame, 0);
        self.walk(Way::Out, root, &mut Packet::new(frame, &headers, tunnels, number), tunnels).0
    }

    /// Counts the frame that was classified last, where entries count it, and whether its way was ended.
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize, port: &mut PortCounters) {
        if let Some(way) = self.ended {
            note_end(way, port);
        }
        for counter in &self.passed {
            if let Some(traffic) = self.counters.get_mut(*counter) {
                traffic.add(bytes);
            }
        }
    }
}

impl Steering {
    /// Whether an entry leads there.
    pub(crate) fn is_destination(&self, destination: Destination) -> bool {
        self.all_entries().any(|entry| entry.destinations.contains(&destination))
    }

    /// Whether an entry counts there.
    pub(crate) fn is_counting(&self, counter: u32) -> bool {
        self.all_entries().any(|entry| entry.counters.contains(&counter))
    }

    fn all_entries(&self) -> impl Iterator<Item = &Entry> {
        self.tables.iter().flat_map(|(_, table)| table.groups()).flat_map(Group::entries)
    }

    /// A table is no root any more.
    pub(crate) fn forget_root(&mut self, number: u32) {
        for root in &mut self.roots {
            *root = root.filter(|root| *root != number);
        }
    }

    /// All that belongs to a user context ends.
    pub(crate) fn forget(&mut self, uid: u16) {
        for number in self.tables.owned_by(uid) {
            if let Some(table) = self.tables.remove(number) {
                self.groups -= table.groups().len();
                self.entries -= table.entries();
            }
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
