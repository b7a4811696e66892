//! What becomes visible when: the last bytes of an entry first, the rest once software has passed a barrier behind its look at
//! them; and places that change as soon as they are given back.
//!
//! (The last word holds `wqe_counter`, `signature`, which is the pass of the ring in the enhanced layout, and `op_own`.)
//!
//! A processor may load an entry's fields before its owner bit, though they come later in the program, unless a barrier
//! stands between: then the bit is new and the fields are old. And a device may write to a place as soon as it has it back.
//! Where a driver's barriers and stores to records are seen (`watch`), both happen each time; or, by seed, some of the words are old
//! and others new, and a place that is given back changes soon or late. The first finds whoever reads what is not his; the second,
//! who would notice that it makes no sense, and read again.

use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::doorbell::INDEX_24;
use zerocopy::IntoBytes;

use super::{Completions, Queue};
use crate::device::bus::Bus;
use crate::device::visibility::Visibility;
use crate::ledger::Crossing;
use crate::memory::Unreachable;
use crate::random::Random;

/// The word by which an entry tells that it is ready, with the count of the work entry; a load sees all of it or nothing.
const READY_BYTES: usize = 4;
/// All before them.
const BODY_BYTES: usize = size_of::<Cqe64>() - READY_BYTES;
/// What stands in a place that was given back.
const JUNK: u8 = 0xdb;

/// Entries of which software can see the last bytes only, and perhaps some others.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    waiting: Vec<(u64, [u8; BODY_BYTES])>,
    random: Option<Random>,
}

impl Unseen {
    /// Of a queue; `None` where all is visible at once.
    fn new(visibility: Visibility, queue: u64) -> Option<Self> {
        match visibility {
            Visibility::AtOnce => None,
            Visibility::ReadyWordFirst => Some(Self::default()),
            Visibility::AnyOrder(seed) => {
                let random = Some(Random::new(seed ^ queue << 32));
                Some(Self { random, ..Self::default() })
            }
        }
    }

    /// Writes the last bytes of an entry, or of an array of short ones.
    pub(super) fn publish(&mut self, bus: &Bus<'_>, at: u64, entry: &Cqe64) -> Result<(), Unreachable> {
        /// Eight bytes each, the last of them four.
        const WORDS: usize = BODY_BYTES.div_ceil(8);
        let Some((body, ready)) = entry.as_bytes().split_first_chunk::<BODY_BYTES>() else {
            return Err(Unreachable);
        };
        let early = self.random.as_mut().map_or(0, |random| match random.below(4) {
            0 => 0,
            1 => u64::MAX,
            _ => random.below(1 << WORDS),
        });
        for (index, word) in body.chunks(8).enumerate().filter(|(index, _)| early >> index & 1 == 1) {
            bus.host.write(at + (index * 8) as u64, word)?;
        }
        let mut last = [0; 8];
        let word = at + (size_of::<Cqe64>() - last.len()) as u64;
        bus.host.read(word, &mut last)?;
        last[8 - READY_BYTES..].copy_from_slice(ready);
        self.waiting.retain(|(other, _)| *other != at);
        self.waiting.push((at, *body));
        bus.ledger.add(Crossing::Completion, size_of::<Cqe64>());
        bus.host.publish(word, &last)
    }

    fn settle(&mut self, bus: &Bus<'_>) {
        for (at, body) in self.waiting.drain(..) {
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
        let Some(unseen) = &mut self.unseen else { return Ok(count) };
        if count > 1 << self.log {
            return Ok(count);
        }
        // All of them soon, all late, or some.
        let soon = unseen.random.as_mut().map_or(u64::MAX, |random| match random.below(3) {
            0 => 0,
            1 => u64::MAX,
            _ => random.next(),
        });
        for index in
            (0..count).filter(|ahead| soon >> (ahead % 64) & 1 == 1).map(|ahead| first.wrapping_add(ahead))
        {
            let (at, _) = self.ring.place(self.slot(index))?;
            bus.host.write(at, &[JUNK; BODY_BYTES])?;
        }
        Ok(count)
    }
}

impl Completions {
    /// When entries become visible from now on.
    pub(crate) fn set_visibility(&mut self, bus: &Bus<'_>, visibility: Visibility) {
        self.see_all(bus);
        self.visibility = visibility;
        for number in self.queues.numbers() {
            if let Some(queue) = self.queues.get_mut(number) {
                queue.unseen = Unseen::new(visibility, number.into());
            }
        }
    }

    /// After a reset, where there is no queue.
    pub(crate) fn keep_visibility(&mut self, visibility: Visibility) {
        self.visibility = visibility;
    }

    /// When they do.
    pub(crate) fn visibility(&self) -> Visibility {
        self.visibility
    }

    /// A new queue, which does as the others; its number.
    pub(crate) fn insert(&mut self, owner: u16, mut queue: Queue) -> Option<u32> {
        queue.unseen = Unseen::new(self.visibility, self.queues.numbers().end.into());
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
