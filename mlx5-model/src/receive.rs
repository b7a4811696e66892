//! Receive queues: from frames that steering gave them to buffers, and completions that say what was found.

mod check;
mod fcs;
mod hairpin;
pub(crate) mod join;
mod pool;
mod queue;
mod ring;
mod scatter;

use std::collections::VecDeque;

use pollux_mlx5_abi::syndrome::Syndrome;

use crate::completion::Completions;
use crate::device::bus::Bus;
use crate::device::state::State;
use crate::device::table::Table;
use crate::event::Events;
use crate::frame::Headers;
use crate::memory_keys::Keys;
pub(crate) use check::Checked;
use join::{Joined, Joins};
pub(crate) use pool::{Pool, PoolKind};
pub(crate) use queue::{Make, Queue, Source};
pub(crate) use ring::{ENTRY_BYTES_MAX, Entry, Kind, Strides, WorkRing};

/// What else of the device a receive queue works with.
pub(crate) struct Around<'a, 'b> {
    pub(crate) bus: &'a mut Bus<'b>,
    pub(crate) keys: &'a Keys,
    pub(crate) completions: &'a mut Completions,
    pub(crate) events: &'a mut Events,
}

/// A frame on its way into a queue.
pub(crate) struct Arrival<'f> {
    pub(crate) frame: &'f [u8],
    pub(crate) headers: &'f Headers,
    pub(crate) checked: &'f Checked,
    pub(crate) tag: u32,
    pub(crate) hash: u32,
    pub(crate) hash_kind: u8,
    /// Of segments that were joined.
    pub(crate) joined: Option<Joined>,
}

/// What became of a frame at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is in memory; or a hairpin queue has it, or counted that it had no room.
    Yes,
    /// No buffer was posted.
    NoBuffer,
    /// The queue is not ready, or failed by it.
    No,
}

/// Counters of a set of queues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueCounters {
    pub(crate) out_of_buffer: u64,
    pub(crate) length_errors: u64,
    pub(crate) protection_errors: u64,
    pub(crate) flushed: u64,
    /// Of queue pairs: requests that came in.
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) atomics: u64,
    /// Of targets: connections.
    pub(crate) connects: u64,
    /// Packets that came too early, and such that had come before.
    pub(crate) out_of_sequence: u64,
    pub(crate) duplicates: u64,
    /// Refusals of the peer: no receive posted, a packet missing; answers that were missing; answers that never came.
    pub(crate) not_ready: u64,
    pub(crate) sequence_naks: u64,
    pub(crate) implied_naks: u64,
    pub(crate) timeouts: u64,
    pub(crate) request_errors: u64,
    pub(crate) remote_access_errors: u64,
}

/// Sets of counters at most; the number has 8 bits.
pub(crate) const COUNTER_SETS: usize = 255;

/// All receive queues, the pools they share, the counters they count in.
#[derive(Debug)]
pub(crate) struct Receivers {
    pub(crate) queues: Table<Queue>,
    pub(crate) pools: Table<Pool>,
    pub(crate) counters: Table<QueueCounters>,
    /// Queues in error whose posted buffers are to be flushed.
    flushing: Vec<u32>,
    /// Hairpin queues with packets that are to be sent, in turn.
    forwarding: VecDeque<u32>,
    /// Packets that those had no room for.
    pub(crate) hairpin_drops: u64,
    /// Room for the packet in turn of those.
    packet: Vec<u8>,
    /// What is being joined.
    pub(crate) joins: Joins,
    /// Room for the entry in turn.
    entry: Option<Box<Entry>>,
}

impl Receivers {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            queues: Table::new(0x8000, limit),
            pools: Table::new(0x100, limit),
            counters: Table::new(1, COUNTER_SETS),
            flushing: Vec::new(),
            forwarding: VecDeque::new(),
            hairpin_drops: 0,
            packet: Vec::new(),
            joins: Joins::default(),
            entry: Some(Box::default()),
        }
    }

    /// Calls `act` with a queue and the ring that it takes its buffers from.
    #[inline]
    fn with<T>(&mut self, number: u32, act: impl FnOnce(&mut Queue, &mut WorkRing) -> T) -> Option<T> {
        let queue = self.queues.get_mut(number)?;
        if let Source::Pool(pool) = queue.source {
            return Some(act(queue, &mut self.pools.get_mut(pool)?.ring));
        }
        let mut ring = queue.ring.take()?;
        let answer = act(queue, &mut ring);
        queue.ring = Some(ring);
        Some(answer)
    }

    /// Hands a frame to a queue.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        around: &mut Around<'_, '_>,
        number: u32,
        arrival: &Arrival<'_>,
    ) -> Taken {
        let mut entry = self.entry.take().unwrap_or_default();
        let outcome = self.with(number, |queue, ring| {
            let ready = queue.state == State::Ready;
            let taken = queue.take(around, ring, &mut entry, arrival);
            (taken, ready && queue.state == State::Error)
        });
        self.entry = Some(entry);
        // A queue without a ring, of its own or a pool's.
        let Some((taken, failed)) = outcome else { return self.hold(number, arrival.frame) };
        if taken == Taken::Yes {
            around.bus.ledger.add_received(1);
        }
        if failed && taken == Taken::No {
            let (set, failure) =
                self.queues.get(number).map_or((0, 0), |queue| (queue.counter_set, queue.failure));
            if let Some(counters) = self.counters.get_mut(set) {
                match failure {
                    Syndrome::LOCAL_LENGTH_ERR => counters.length_errors += 1,
                    _ => counters.protection_errors += 1,
                }
            }
        }
        if failed {
            self.flush(number);
        }
        taken
    }

    /// Hands over the segments that were joined in the session at `at`. False when they wait for a buffer, which they do only
    /// where the wire can.
    pub(crate) fn deliver_session(&mut self, around: &mut Around<'_, '_>, at: usize, waits: bool) -> bool {
        let mut session = self.joins.take(at);
        let joined = session.close();
        let arrival = Arrival {
            frame: &session.frame,
            headers: &session.headers,
            checked: &session.checked,
            tag: session.tag,
            hash: session.hash,
            hash_kind: session.hash_kind,
            joined,
        };
        match self.deliver(around, session.queue, &arrival) {
            Taken::NoBuffer if waits => {
                self.joins.wait(at, session);
                return false;
            }
            Taken::NoBuffer => self.out_of_buffer(session.queue),
            Taken::Yes | Taken::No => {}
        }
        self.joins.finish(session);
        true
    }

    /// Hands over what was joined long enough. True if there was any. One that finds no buffer holds up no other.
    pub(crate) fn deliver_due(&mut self, around: &mut Around<'_, '_>, waits: bool) -> bool {
        let (mut some, mut from) = (false, 0);
        while let Some(at) = self.joins.due(from, around.bus.now) {
            let delivered = self.deliver_session(around, at, waits);
            some |= delivered;
            from = at + usize::from(!delivered);
        }
        some
    }

    /// A frame was dropped because a queue had no buffer.
    pub(crate) fn out_of_buffer(&mut self, number: u32) {
        let set = self.queues.get(number).map_or(0, |queue| queue.counter_set);
        if let Some(counters) = self.counters.get_mut(set) {
            counters.out_of_buffer += 1;
        }
    }

    /// A queue is in error: what is posted there is flushed when the step ends.
    pub(crate) fn flush(&mut self, number: u32) {
        if !self.flushing.contains(&number) {
            self.flushing.push(number);
        }
    }

    /// Flushes the posted buffers of queues in error, some `budget` of them. True if there were any.
    pub(crate) fn settle(&mut self, around: &mut Around<'_, '_>, budget: usize) -> bool {
        let mut some = false;
        for number in std::mem::take(&mut self.flushing) {
            let flushed = self.with(number, |queue, ring| {
                (queue.state == State::Error && queue.flushes()).then(|| queue.flush(around, ring, budget))
            });
            if let Some(Some(count)) = flushed {
                some |= count > 0;
                let set = self.queues.get(number).map_or(0, |queue| queue.counter_set);
                if let Some(counters) = self.counters.get_mut(set) {
                    counters.flushed += count as u64;
                }
                // Buffers that are posted later are flushed too, as long as the queue is in error.
                self.flushing.push(number);
            }
        }
        some
    }
}

impl Receivers {
    /// Whether a queue or pool works in a protection domain.
    pub(crate) fn uses_domain(&self, domain: u32) -> bool {
        self.pools.iter().any(|(_, pool)| pool.ring.domain == domain)
            || self
                .queues
                .iter()
                .any(|(_, queue)| queue.ring.as_ref().is_some_and(|ring| ring.domain == domain))
    }
}
