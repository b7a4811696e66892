//! Rings that several queues take their entries from: memory pools (RMP), shared receive queues, XRC shared receive queues.

use pollux_mlx5_abi::eqe::event;

use super::ring::{Entry, WorkRing};
use crate::device::bus::Bus;
use crate::event::Events;
use crate::memory::Unreachable;

/// Which object a pool was made as. Their numbers come from one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// For receive queues and queue pairs.
    Memory,
    /// For queue pairs.
    Shared,
    /// For the queue pairs of an XRC domain; it has its completion queue itself, and perhaps a name in completions.
    Xrc { domain: u32, cqn: u32, user_index: Option<u32> },
}

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) number: u32,
    pub(crate) kind: PoolKind,
    pub(crate) ring: WorkRing,
    /// An event is wanted when fewer entries are left; 0: none.
    pub(crate) limit: u16,
    /// Its memory refused: nothing is taken any more.
    pub(crate) dead: bool,
}

impl Pool {
    pub(crate) fn new(kind: PoolKind, ring: WorkRing, limit: u16) -> Self {
        Self { number: 0, kind, ring, limit, dead: false }
    }

    /// Whether what it takes is reported to this completion queue.
    pub(crate) fn reports_to(&self, number: u32) -> bool {
        matches!(self.kind, PoolKind::Xrc { cqn, .. } if cqn == number)
    }

    /// Takes the next entry out, if one is posted.
    pub(crate) fn take(
        &mut self,
        bus: &Bus<'_>,
        events: &mut Events,
        entry: &mut Entry,
    ) -> Result<bool, Unreachable> {
        if self.dead {
            return Err(Unreachable);
        }
        let taken = self.ring.take(bus, entry);
        match taken {
            Ok(true) => self.watch(bus, events),
            Ok(false) => {}
            Err(Unreachable) => {
                self.dead = true;
                events.queue_error(bus, event::SRQ_CATAS_ERROR, 0, self.number);
            }
        }
        taken
    }

    /// Arms the limit, or takes it away.
    pub(crate) fn arm(&mut self, bus: &Bus<'_>, events: &mut Events, limit: u16) {
        self.limit = limit;
        self.watch(bus, events);
    }

    /// Sends the event of the limit once, when it is due.
    fn watch(&mut self, bus: &Bus<'_>, events: &mut Events) {
        if self.limit == 0 {
            return;
        }
        if self.ring.left(bus).is_ok_and(|left| left < self.limit) {
            self.limit = 0;
            events.queue_error(bus, event::SRQ_RQ_LIMIT, 0, self.number);
        }
    }
}
