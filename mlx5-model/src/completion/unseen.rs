//! What becomes visible when: the last bytes of an entry first, the rest once software has passed a barrier behind its look at
//! them; and places that change as soon as they are given back.
//!
//! (The last word holds `wqe_counter`, `signature`, which is the pass of the ring in the enhanced layout, and `op_own`.)
//!
//! A processor may load an entry's fields before its owner bit, though they come later in the program, unless a barrier
//! stands between: then the bit is new and the fields are old. And a device may write to a place as soon as it has it back.
//! Where a driver's barriers and stores to records are seen (`watch`), both happen each time.

use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::doorbell::INDEX_24;
use zerocopy::IntoBytes;

use super::{Completions, Queue};
use crate::device::bus::Bus;
use crate::ledger::Crossing;
use crate::memory::Unreachable;

/// The word by which an entry tells that it is ready, with the count of the work entry; a load sees all of it or nothing.
const READY_BYTES: usize = 4;
/// All before them.
const BODY_BYTES: usize = size_of::<Cqe64>() - READY_BYTES;
/// What stands in a place that was given back.
const JUNK: u8 = 0xdb;

/// Entries of which software can see the last bytes only.
#[derive(Debug, Default)]
pub(super) struct Unseen(Vec<(u64, [u8; BODY_BYTES])>);

impl Unseen {
    /// Writes the last bytes of an entry.
    pub(super) fn publish(&mut self, bus: &Bus<'_>, at: u64, entry: &Cqe64) -> Result<(), Unreachable> {
        let Some((body, ready)) = entry.as_bytes().split_first_chunk::<BODY_BYTES>() else {
            return Err(Unreachable);
        };
        let mut last = [0; 8];
        let word = at + (size_of::<Cqe64>() - last.len()) as u64;
        bus.host.read(word, &mut last)?;
        last[8 - READY_BYTES..].copy_from_slice(ready);
        self.0.retain(|(other, _)| *other != at);
        self.0.push((at, *body));
        bus.ledger.add(Crossing::Completion, size_of::<Cqe64>());
        bus.host.publish(word, &last)
    }

    fn settle(&mut self, bus: &Bus<'_>) {
        for (at, body) in self.0.drain(..) {
            // What cannot be written now is a place that was unpinned, of a queue that is to end.
            let _ = bus.host.write(at, &body);
        }
    }
}

impl Queue {
    /// All of every entry is visible.
    pub(super) fn see_all(&mut self, bus: &Bus<'_>) {
        if let Some(unseen) = &mut self.unseen {
            unseen.settle(bus);
        }
    }

    /// The record was stored to: how many places are given back. What stood there is gone, but for the bytes that tell whose a
    /// place is, which the device alone changes, by its next entry there.
    pub(crate) fn give_back(&mut self, bus: &Bus<'_>) -> Result<u32, Unreachable> {
        let now = bus.host.load32(self.record)? & INDEX_24;
        let count = now.wrapping_sub(self.given_back) & INDEX_24;
        let first = std::mem::replace(&mut self.given_back, now);
        if count > self.entries() || self.unseen.is_none() {
            return Ok(count);
        }
        for index in (0..count).map(|ahead| first.wrapping_add(ahead)) {
            let (at, _) = self.ring.place(self.slot(index))?;
            bus.host.write(at, &[JUNK; BODY_BYTES])?;
        }
        Ok(count)
    }
}

impl Completions {
    /// From now on entries become visible piece by piece, or as a whole again.
    pub(crate) fn set_by_pieces(&mut self, bus: &Bus<'_>, on: bool) {
        self.see_all(bus);
        self.by_pieces = on;
        for number in self.queues.numbers() {
            if let Some(queue) = self.queues.get_mut(number) {
                queue.unseen = on.then(Unseen::default);
            }
        }
    }

    /// After a reset, where there is no queue.
    pub(crate) fn keep_by_pieces(&mut self, on: bool) {
        self.by_pieces = on;
    }

    /// Whether they do.
    pub(crate) fn is_by_pieces(&self) -> bool {
        self.by_pieces
    }

    /// A new queue, which does as the others; its number.
    pub(crate) fn insert(&mut self, owner: u16, mut queue: Queue) -> Option<u32> {
        queue.unseen = self.by_pieces.then(Unseen::default);
        self.queues.insert(owner, queue)
    }

    /// Software passed a barrier: all that was written is visible.
    pub(crate) fn see_all(&mut self, bus: &Bus<'_>) {
        for number in self.queues.numbers() {
            if let Some(queue) = self.queues.get_mut(number) {
                queue.see_all(bus);
            }
        }
    }
}
