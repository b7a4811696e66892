//! RDMA: queue pairs, their transport, and RoCEv2 on the wire.

pub(crate) mod path;
mod qp;
mod requester;
mod responder;
pub(crate) mod state;

use std::collections::VecDeque;

use crate::device::table::Table;
use path::Addresses;
pub(crate) use qp::{Make, Qp, SendRing, Source};
use state::State;

/// Number of the first queue pair: one space with send queues, whose doorbells name them the same way.
const FIRST: u32 = 0x1_0000;
/// Queue pairs of a group at most, and memberships in all: `max_qp_mcg` and `log_max_mcg`.
pub(crate) const MEMBERS_MAX: usize = 240;
pub(crate) const GROUPS_MAX: usize = 1 << 12;

/// All of RDMA.
#[derive(Debug)]
pub(crate) struct Rdma {
    pub(crate) pairs: Table<Qp>,
    pub(crate) addresses: Addresses,
    /// Which queue pairs get what is sent to a group.
    pub(crate) groups: Vec<([u8; 16], u32)>,
    /// Queue pairs with work, in turn.
    active: VecDeque<u32>,
}

impl Rdma {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            pairs: Table::new(FIRST, limit),
            addresses: Addresses::default(),
            groups: Vec::new(),
            active: VecDeque::new(),
        }
    }

    /// A new queue pair's number.
    pub(crate) fn insert(&mut self, owner: u16, pair: Qp) -> Option<u32> {
        let number = self.pairs.insert(owner, pair)?;
        if let Some(pair) = self.pairs.get_mut(number) {
            pair.number = number;
        }
        Some(number)
    }

    /// A queue pair ends.
    pub(crate) fn remove(&mut self, number: u32) {
        self.pairs.remove(number);
        self.groups.retain(|(_, member)| *member != number);
    }

    /// All of a user context end.
    pub(crate) fn forget(&mut self, owner: u16) {
        for number in self.pairs.owned_by(owner) {
            self.remove(number);
        }
    }

    /// A queue pair forgets all that it was.
    pub(crate) fn reset_pair(&mut self, number: u32) {
        if let Some(pair) = self.pairs.get_mut(number) {
            pair.reset();
        }
    }

    /// A queue pair is in error; what is posted is flushed.
    pub(crate) fn fail_pair(&mut self, number: u32) {
        if let Some(pair) = self.pairs.get_mut(number) {
            pair.flushing = pair.state != State::Reset;
            pair.state = State::Error;
            self.wake(number);
        }
    }

    /// There may be work on a queue pair.
    pub(crate) fn wake(&mut self, number: u32) {
        if !self.active.contains(&number) {
            self.active.push_back(number);
        }
    }
}
