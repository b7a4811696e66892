//! Send queues: from doorbells to frames on the wire.
//!
//! A doorbell names the last entry posted. Entries are read from the ring up to there, checked, carried out in order, and
//! completed as they asked for. The first that fails takes the queue into the error state; what was posted behind it is
//! flushed.

mod cut;
mod entry;
mod hairpin;
mod offload;
mod pace;
mod parse;
mod queue;
pub(crate) mod reserved;
mod run;

use std::collections::VecDeque;

use pollux_mlx5_abi::wqe::BLOCK_BYTES;

use crate::completion::Completions;
use crate::device::bus::Bus;
use crate::device::table::Table;
use crate::event::Events;
use crate::frame::Tunnels;
use crate::memory_keys::Keys;
use crate::port::{Origin, Port};
use crate::steering::{Sent, Steering};
pub(crate) use pace::{Pace, Rate};
pub(crate) use parse::Parsing;
pub(crate) use queue::{Make, Queue};

/// The longest that a frame gets before it is cut up: 64 KiB of payload and its headers.
const GATHER_BYTES: usize = (1 << 16) + 256;
/// Blocks that are read from the ring at once.
const BATCH_BLOCKS: usize = 16;

/// Rates that queues can be held to, with index 0, which is no limit. Source: as many as a ConnectX has by Linux' message "Rate limit:
/// 127 rates are supported", `drivers/net/ethernet/mellanox/mlx5/core/rl.c`, `mlx5_init_rl_table`.
pub(crate) const RATES: usize = 128;

/// What else of the device a send queue works with.
pub(crate) struct Around<'a, 'b> {
    pub(crate) bus: &'a mut Bus<'b>,
    pub(crate) keys: &'a mut Keys,
    pub(crate) completions: &'a mut Completions,
    pub(crate) events: &'a mut Events,
    pub(crate) port: &'a mut Port,
    pub(crate) tunnels: &'a Tunnels,
    pub(crate) steering: &'a mut Steering,
}

impl Around<'_, '_> {
    /// Sends a frame of a queue by way of steering. False when the wire takes no more, or the queue's rate lets none out now.
    #[inline]
    fn transmit(&mut self, queue: &Queue, frame: &[u8], origin: Origin) -> bool {
        if !queue.pace.lets_out(self.bus.now) {
            return false;
        }
        let sent = self.put_out(queue, frame, origin);
        if sent {
            queue.pace.spend(frame.len(), self.bus.now);
        }
        sent
    }

    #[inline]
    fn put_out(&mut self, queue: &Queue, frame: &[u8], origin: Origin) -> bool {
        let domain = queue.transport_domain;
        if self.steering.lets_out() {
            return self.port.send_from(frame, origin, domain);
        }
        let sent = match self.steering.leave(frame, queue.number, self.tunnels) {
            Sent::AsItIs => self.port.send_from(frame, origin, domain),
            Sent::Changed(changed) if changed.len() > self.port.frame_bytes_max() => {
                self.port.lose_too_long(changed.len());
                true
            }
            Sent::Changed(changed) => self.port.send_from(&changed, origin, domain),
            Sent::Dropped => true,
        };
        if sent {
            self.steering.count(frame.len(), &mut self.port.counters);
        }
        sent
    }
}

/// Room to put frames together in.
#[derive(Debug)]
struct Scratch {
    frame: Box<[u8]>,
    segment: Box<[u8]>,
    /// The headers of a tunnel whose inside is cut.
    tunnel: Box<[u8]>,
    work: Box<[u8]>,
}

/// All send queues.
#[derive(Debug)]
pub(crate) struct Senders {
    pub(crate) queues: Table<Queue>,
    /// Rates that queues are held to, by their index.
    pub(crate) rates: [Option<Rate>; RATES],
    /// Changes to the priority of queues.
    pub(crate) priority_changes: u64,
    /// Queues with work, in turn.
    active: VecDeque<u32>,
    scratch: Scratch,
}

impl Senders {
    pub(crate) fn new(limit: usize) -> Self {
        let room = |bytes| vec![0; bytes].into_boxed_slice();
        Self {
            queues: Table::new(0x1000, limit),
            rates: [None; RATES],
            priority_changes: 0,
            active: VecDeque::new(),
            scratch: Scratch {
                frame: room(GATHER_BYTES),
                segment: room(GATHER_BYTES),
                tunnel: room(cut::TUNNEL_BYTES_MAX),
                work: room(BATCH_BLOCKS * BLOCK_BYTES),
            },
        }
    }

    /// There is work on a queue.
    pub(crate) fn wake(&mut self, number: u32) {
        if !self.active.contains(&number) {
            self.active.push_back(number);
        }
    }

    /// Whether a queue has work that the wire did not take yet.
    pub(crate) fn is_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Carries out work, some `budget` frames of it; returns how many went out or failed.
    pub(crate) fn run(&mut self, around: &mut Around<'_, '_>, budget: usize) -> usize {
        let mut done = 0;
        for _ in 0..self.active.len() {
            let Some(number) = self.active.pop_front() else { break };
            let Some(queue) = self.queues.get_mut(number) else { continue };
            let share = budget.saturating_sub(done);
            if share == 0 {
                self.active.push_front(number);
                break;
            }
            done += queue.run(around, &mut self.scratch, share);
            if queue.has_work() {
                self.active.push_back(number);
            }
        }
        done
    }
}
