//! Event queues: what the device tells the host, and the interrupts with which it does.

use pollux_mlx5_abi::doorbell::INDEX_24;
use pollux_mlx5_abi::eqe::{self, Eqe, event, port_change};
use zerocopy::IntoBytes;

use crate::device::bus::Bus;
use crate::device::ring::Ring;
use crate::device::table::Table;
use crate::ledger::Crossing;

/// Most event queues; the number has 8 bits.
pub(crate) const QUEUES_MAX: usize = 64;
/// Interrupt vectors of a device.
pub(crate) const VECTORS: u32 = 32;

/// An event queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) ring: Ring,
    pub(crate) log: u8,
    pub(crate) vector: u32,
    /// One bit an event type: four big-endian words, the first for types 0 to 63.
    pub(crate) mask: [u8; 32],
    pub(crate) uar: u32,
    pub(crate) produced: u32,
    pub(crate) consumed: u32,
    pub(crate) armed: bool,
    /// It ran over: events were lost.
    pub(crate) lost: u64,
    pub(crate) context: [u8; 64],
}

impl Queue {
    fn takes(&self, kind: u8) -> bool {
        let kind = usize::from(kind);
        self.mask[kind / 64 * 8 + 7 - kind % 64 / 8] >> (kind % 8) & 1 == 1
    }
}

/// Events that found their queue full, by what they told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overruns {
    pub(crate) completions: u64,
    pub(crate) others: u64,
}

/// All event queues, and which interrupts fired in this step.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) queues: Table<Queue>,
    pub(crate) overruns: Overruns,
    fired: u64,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { queues: Table::new(1, QUEUES_MAX), overruns: Overruns::default(), fired: 0 }
    }

    /// Whether a queue asked for events of this kind.
    pub(crate) fn takes(&self, kind: u8) -> bool {
        self.queues.iter().any(|(_, queue)| queue.takes(kind))
    }

    /// Tells the first queue that asked for events of this kind.
    pub(crate) fn raise(&mut self, bus: &Bus<'_>, kind: u8, sub_type: u8, data: &[u8]) {
        let taker = self.queues.iter().find(|(_, queue)| queue.takes(kind)).map(|(number, _)| number);
        if let Some(number) = taker {
            self.post(bus, number, kind, sub_type, data);
        }
    }

    /// Tells one queue.
    pub(crate) fn post(&mut self, bus: &Bus<'_>, number: u32, kind: u8, sub_type: u8, data: &[u8]) {
        let Some(queue) = self.queues.get_mut(number) else { return };
        if queue.produced.wrapping_sub(queue.consumed) & INDEX_24 >= 1 << queue.log {
            queue.lost += 1;
            let count =
                if kind == event::COMP { &mut self.overruns.completions } else { &mut self.overruns.others };
            *count += 1;
            return;
        }
        let mut entry = Eqe { kind, sub_type, ..Eqe::default() };
        let bytes = data.len().min(entry.data.len());
        entry.data[..bytes].copy_from_slice(&data[..bytes]);
        entry.owner = (queue.produced >> queue.log & 1) as u8;
        let slot = u64::from(queue.produced & ((1 << queue.log) - 1));
        let written = queue
            .ring
            .place(slot * 64)
            .and_then(|(at, _)| bus.publish(Crossing::Event, at, entry.as_bytes()));
        if written.is_err() {
            queue.lost += 1;
            return;
        }
        queue.produced = queue.produced.wrapping_add(1);
        if queue.armed {
            queue.armed = false;
            self.fired |= 1 << queue.vector;
            bus.ledger.add(Crossing::Interrupt, 4);
        }
    }

    /// Software stored to an event queue's register.
    pub(crate) fn consumed(&mut self, bus: &Bus<'_>, uar: u32, value: [u8; 4], arm: bool) {
        let value = u32::from_be_bytes(value);
        let Some(queue) = self.queues.get_mut(value >> 24).filter(|queue| queue.uar == uar) else { return };
        queue.consumed = value & INDEX_24;
        if arm {
            queue.armed = queue.produced & INDEX_24 == queue.consumed;
            if !queue.armed {
                self.fired |= 1 << queue.vector;
                bus.ledger.add(Crossing::Interrupt, 4);
            }
        }
    }

    /// The link came or went.
    pub(crate) fn port(&mut self, bus: &Bus<'_>, up: bool) {
        let mut data = [0; 28];
        data[8] = 1 << 4;
        let sub_type = if up { port_change::ACTIVE } else { port_change::DOWN };
        self.raise(bus, event::PORT_CHANGE, sub_type, &data);
    }

    /// A completion queue failed.
    pub(crate) fn completion_error(&mut self, bus: &Bus<'_>, cqn: u32, syndrome: u8) {
        let mut data = eqe::CqError { syndrome, ..Default::default() };
        data.cqn.set(cqn);
        self.raise(bus, event::CQ_ERROR, 0, data.as_bytes());
    }

    /// A queue failed without a completion that could say so, or with one.
    pub(crate) fn queue_error(&mut self, bus: &Bus<'_>, kind: u8, queue_kind: u8, number: u32) {
        let mut data = eqe::Queue { kind: queue_kind, ..Default::default() };
        data.qp_srq_n.set(number);
        self.raise(bus, kind, 0, data.as_bytes());
    }

    /// The vectors that fired since the last call, a bit each.
    pub(crate) fn take_fired(&mut self) -> u64 {
        std::mem::take(&mut self.fired)
    }
}
