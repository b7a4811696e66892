//! The flows of one lcore: a flow's number says which outer port of the lcore's share it has.

use std::collections::VecDeque;

use pollux::lookup::LookupError;
use pollux::lookup::acl::FiveTuple;
use pollux::lookup::flow::FlowTable;
use pollux::prelude::*;

/// The first outer port, and how many there are.
const FIRST: usize = 1024;
const PORTS: usize = 65_536 - FIRST;

/// How far a flow is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stage {
    /// The outer host has not answered.
    Opened,
    /// It has, and the inner host has not gone on yet.
    Answered,
    Established,
    /// An end of it has said its last.
    Closing,
}

/// What is known of a flow that an inner host has opened.
pub(crate) struct Flow {
    pub(crate) tuple: FiveTuple<u32>,
    pub(crate) inner_mac: [u8; 6],
    pub(crate) stage: Stage,
}

pub(crate) struct Flows {
    pub(crate) table: FlowTable<[u8; 13], Flow>,
    /// The first of its outer ports.
    first: usize,
    /// Those opened last, half of all, in their order: a flood pushes out its own, and none that is established.
    opened: VecDeque<(u32, [u8; 13])>,
}

impl Flows {
    pub(crate) fn new(place: usize, lcores: usize) -> Result<Self, LookupError> {
        let table = FlowTable::new(PORTS / lcores)?;
        let opened = VecDeque::with_capacity(table.capacity());
        Ok(Self { first: FIRST + place * table.capacity(), table, opened })
    }

    /// The lcore to which what comes to an outer port belongs, where that is not this one. All have as many.
    pub(crate) fn elsewhere(&self, outer_port: u16) -> Option<usize> {
        let (port, share) = (usize::from(outer_port), self.table.capacity());
        let is_here = port < FIRST || (self.first..self.first + share).contains(&port);
        (!is_here).then(|| (port - FIRST) / share).filter(|place| *place < PORTS / share)
    }

    pub(crate) fn outer_port(&self, number: u32) -> u16 {
        (self.first + number as usize) as u16
    }

    /// The flow to which this is an answer: its number, what its inner host sends, and that host's MAC address.
    pub(crate) fn of_answer(&self, back: &FiveTuple<u32>) -> Option<(u32, FiveTuple<u32>, [u8; 6])> {
        let number = usize::from(back.destination_port).checked_sub(self.first)? as u32;
        let (_, Flow { tuple, inner_mac, .. }) = self.table.get(number)?;
        let there = (tuple.protocol, tuple.destination, tuple.destination_port);
        (there == (back.protocol, back.source, back.source_port)).then_some((number, *tuple, *inner_mac))
    }

    /// A new flow: its number, unless there is no room. Whether another one was given up for it.
    pub(crate) fn open(&mut self, flow: Flow, until: Cycles) -> (Option<u32>, bool) {
        let key = flow.tuple.key();
        let is_many = self.opened.len() >= self.table.capacity() / 2;
        let oldest = if is_many { self.opened.pop_front() } else { None };
        let oldest = oldest.filter(|(number, key)| {
            let there = self.table.get(*number);
            there.is_some_and(|(its, flow)| its == key && flow.stage != Stage::Established)
        });
        let given_up = oldest.is_some_and(|(_, key)| self.table.remove(&key).is_some());
        let number = self.table.insert(&key, flow, until.0).ok();
        self.opened.extend(number.map(|number| (number, key)));
        (number, given_up)
    }
}
