//! A frame's way through tables.

use std::sync::Arc;

use super::budget::{Budget, Ended, LEVELS};
use super::matching::Packet;
use super::table::{Destination, Entry, FlowTable, Miss, Way};
use super::{Delivery, Sent};
use crate::device::table::Table;
use crate::frame::{Headers, Tunnels};

/// A table that a frame comes to.
#[derive(Debug)]
pub(super) struct Branch {
    table: u32,
    /// Tables on the path before it.
    passed: u32,
    tag: u32,
    /// The frame as it was changed on its way.
    changed: Option<Arc<[u8]>>,
}

/// What a walk adds to.
pub(super) struct Walk<'s> {
    pub(super) tables: &'s Table<FlowTable>,
    pub(super) tunnels: &'s Tunnels,
    /// Counters of the entries that took the frame.
    pub(super) passed: &'s mut Vec<u32>,
    pub(super) deliveries: &'s mut Vec<Delivery>,
    /// Room for what is still to be looked at, the next one last.
    pub(super) branches: &'s mut Vec<Branch>,
    pub(super) sent: Sent,
    /// What was received, or a copy of it, came to the end of the chain.
    pub(super) through: bool,
}

impl Walk<'_> {
    /// Takes a frame through the tables from `root` on.
    pub(super) fn from(&mut self, root: u32, packet: &mut Packet<'_>) -> Result<(), Ended> {
        let mut budget = Budget::new();
        self.branches.clear();
        self.branches.push(Branch { table: root, passed: 0, tag: 0, changed: None });
        while let Some(branch) = self.branches.pop() {
            // Levels rise on every path; a table that took a dead one's number may stand lower.
            let left = budget.tables.checked_sub(1).filter(|_| branch.passed < LEVELS);
            let Some(left) = left else { return self.end() };
            budget.tables = left;
            let done = match branch.changed.clone() {
                None => self.pass(branch, packet, &mut budget),
                Some(frame) => {
                    let headers = Headers::parse(&frame, 0);
                    let mut packet = Packet::new(&frame, &headers, self.tunnels, packet.queue());
                    self.pass(branch, &mut packet, &mut budget)
                }
            };
            if done.is_err() {
                return self.end();
            }
        }
        Ok(())
    }

    #[cold]
    fn end(&mut self) -> Result<(), Ended> {
        self.sent = Sent::Dropped;
        Err(Ended)
    }

    /// Through one table.
    fn pass(&mut self, branch: Branch, packet: &mut Packet<'_>, budget: &mut Budget) -> Result<(), Ended> {
        let tables = self.tables;
        let Some(table) = tables.get(branch.table) else { return Ok(()) };
        let Some(entry) = table.find(packet, budget)? else {
            match table.miss {
                Miss::End => {
                    self.through |= table.way == Way::In;
                    self.out(table.way, branch.changed);
                }
                Miss::Table(table) => {
                    self.branches.push(Branch { table, passed: branch.passed + 1, ..branch });
                }
            }
            return Ok(());
        };
        self.passed.extend(&entry.counters);
        let changed = entry.changes.of(packet.frame(), self.tunnels).map(Arc::from).or(branch.changed);
        let tag = if entry.tag == 0 { branch.tag } else { entry.tag };
        self.follow(table.way, entry, Branch { changed, tag, ..branch }, budget)
    }

    /// To where an entry leads.
    fn follow(&mut self, way: Way, entry: &Entry, branch: Branch, budget: &mut Budget) -> Result<(), Ended> {
        let Branch { passed, tag, changed, .. } = branch;
        if entry.destinations.is_empty() && !entry.drops {
            self.out(way, changed);
            return Ok(());
        }
        let first = self.branches.len();
        for destination in &entry.destinations {
            match *destination {
                Destination::Tir(tir) => {
                    budget.deliveries = budget.deliveries.checked_sub(1).ok_or(Ended)?;
                    self.deliveries.push(Delivery { tir, tag, changed: changed.clone() });
                }
                Destination::Table(table) => {
                    self.branches.push(Branch { table, passed: passed + 1, tag, changed: changed.clone() });
                }
            }
        }
        // The last one is looked at next.
        self.branches[first..].reverse();
        Ok(())
    }

    /// To the end of all tables.
    fn out(&mut self, way: Way, changed: Option<Arc<[u8]>>) {
        if way == Way::Out {
            self.sent = changed.map_or(Sent::AsItIs, Sent::Changed);
        }
    }
}
