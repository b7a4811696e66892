//! In what order stores of a driver reach the device, where they and the barriers between them are seen as they are made.
//!
//! ```text
//!   entries ── to_device ──► record ── wc_flush ──► doorbell ── wc_flush (write-combining pages)
//!                             │ entries are as      │ waits on a write-combining page
//!                             │ they will be        ▼ for its thread's flush
//! ```
//!
//! What the processor may put off is put off as far as it can be: a store to a write-combining page until its thread flushes. What
//! must come first must have a barrier behind it. A barrier stands for the stores before it: which these are is not seen, so each
//! store to a record, doorbell or arm register needs one of its own. Source of the rules: rdma-core
//! `util/udma_barrier.h`, `util/mmio.h`; `providers/mlx5/qp.c`, `post_send_db`; `providers/mlx5/cq.c`, `mlx5_arm_cq`.

use std::collections::BTreeMap;
use std::thread::{self, ThreadId};

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::wqe::BLOCK_BYTES;

use super::Core;
use crate::device::bus::Bus;
use crate::device::ring::Piece;
use crate::device::state::State;
use crate::device::uar::FIRST_UAR;
use crate::device::violation::{Before, Violation};
use crate::memory::{Bar, Unreachable};
use crate::rdma::Source;
use crate::receive::WorkRing;
use crate::time::TICKS_PER_US;

/// The strongest barrier of a thread since its last store to a register or a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fence {
    /// None.
    None,
    /// Of stores to ordinary memory, before those to any.
    ToDevice,
    /// Of stores to write-combining memory too.
    Flush,
}

/// What is on its way.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// How pages were mapped, which some are in both ways.
    mapped: BTreeMap<u32, Mapped>,
    held: Vec<Held>,
    /// Entries that a record told of, as they were then.
    fresh: Vec<Fresh>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mapped {
    combining: bool,
    uncached: bool,
}

/// A store to a write-combining page.
#[derive(Debug)]
struct Held {
    thread: ThreadId,
    page: u32,
    offset: usize,
    bytes: Vec<u8>,
    since: u64,
}

/// Ticks after which a store that waits for its thread's flush is one that was forgotten: a second. Between store and flush a thread
/// may lose its processor, but not for so long.
const FLUSH_TICKS: u64 = 1_000_000 * TICKS_PER_US;

#[derive(Debug)]
struct Fresh {
    queue: u32,
    sends: bool,
    address: u64,
    bytes: Vec<u8>,
}

impl Order {
    /// A page is mapped.
    pub(crate) fn map(&mut self, page: u32, combining: bool) {
        let mapped = self.mapped.entry(page).or_default();
        mapped.combining |= combining;
        mapped.uncached |= !combining;
    }

    /// Whether a store went by a write-combining mapping. On a page that has mappings of both kinds entries did: both are the same
    /// memory here.
    fn combines(&self, page: u32, bytes: &[u8]) -> bool {
        let mapped = self.mapped.get(&page).copied().unwrap_or_default();
        mapped.combining && (!mapped.uncached || bytes.len() >= BLOCK_BYTES)
    }

    /// A page went back.
    pub(crate) fn forget(&mut self, page: u32) {
        self.mapped.remove(&page);
        self.held.retain(|held| held.page != page);
    }
}

/// Whose a word of a doorbell record is.
#[derive(Clone, Copy)]
enum Owner {
    Sender(u32),
    PairSend(u32),
    PairReceive(u32),
    Receiver(u32),
    Pool(u32),
    Completions(u32),
    /// The arm word of a completion queue.
    Arm(u32),
}

impl Owner {
    /// The queue, and the commands that make such.
    fn made(self) -> (u32, &'static [u16]) {
        match self {
            Self::Sender(number) => (number, &[op::CREATE_SQ]),
            Self::PairSend(number) | Self::PairReceive(number) => (number, &[op::CREATE_QP]),
            Self::Receiver(number) => (number, &[op::CREATE_RQ]),
            Self::Pool(number) => (number, &[op::CREATE_RMP, op::CREATE_SRQ, op::CREATE_XRC_SRQ]),
            Self::Completions(number) | Self::Arm(number) => (number, &[op::CREATE_CQ]),
        }
    }
}

impl Core {
    /// A store to a register, seen as it was made, with the barrier before it. False while it is on its way.
    pub(in crate::device) fn ordered_store(
        &mut self,
        bus: &mut Bus<'_>,
        bar: &Bar,
        (page, offset): (u32, usize),
        bytes: &[u8],
        fence: Fence,
    ) -> bool {
        if self.uars.get(page).is_none() {
            return true;
        }
        self.check_fresh(bus);
        let combining = self.order.combines(page, bytes);
        let needed = if combining { Fence::Flush } else { Fence::ToDevice };
        let is_doorbell = offset >= uar::BLUE_FLAME && offset.is_multiple_of(self.traits.buffer_bytes());
        if is_doorbell && let Some(value) = bytes.first_chunk::<8>() {
            let queue = u32::from_be_bytes([0, value[4], value[5], value[6]]);
            if fence < needed {
                self.violate(bus, queue, Violation::Fence { queue, before: Before::Doorbell });
            }
            if bytes.len() >= BLOCK_BYTES && !combining {
                self.violate(bus, queue, Violation::NotCombining { queue });
            }
        }
        if offset == uar::CQ_ARM
            && fence < needed
            && let Some(value) = bytes.first_chunk::<8>()
        {
            let queue = u32::from_be_bytes([0, value[5], value[6], value[7]]);
            self.violations.note(Violation::Fence { queue, before: Before::Arm });
        }
        // Event queues are the kernel's, which has mappings of its own.
        if !combining || matches!(offset, uar::EQ_ARM | uar::EQ_CONSUMER) {
            self.store(bus, bar, page, offset, bytes);
            return true;
        }
        bar.take64((page - FIRST_UAR) as usize + 1, offset);
        let thread = thread::current().id();
        self.order.held.push(Held { thread, page, offset, bytes: bytes.to_vec(), since: bus.now });
        false
    }

    /// This thread turned to something else: a doorbell that it has not flushed may stay where it is. So it may where another thread
    /// does the device's steps, and time goes by.
    pub(in crate::device) fn check_held(&mut self, bus: &mut Bus<'_>) {
        if self.order.held.is_empty() {
            return;
        }
        let thread = thread::current().id();
        let is_left =
            |held: &mut Held| held.thread == thread || bus.now.saturating_sub(held.since) >= FLUSH_TICKS;
        let left: Vec<_> = self.order.held.extract_if(.., is_left).collect();
        for Held { offset, bytes, .. } in left {
            let at = if offset == uar::CQ_ARM { 5 } else { 4 };
            let Some(&[high, middle, low]) = bytes.get(at..at + 3) else { continue };
            let queue = u32::from_be_bytes([0, high, middle, low]);
            self.violate(bus, queue, Violation::Unflushed { queue });
        }
    }

    /// This thread's stores to write-combining pages arrive.
    pub(in crate::device) fn flush(&mut self, bus: &mut Bus<'_>, bar: &Bar) {
        let thread = thread::current().id();
        let arrived: Vec<_> = self.order.held.extract_if(.., |held| held.thread == thread).collect();
        for Held { page, offset, bytes, .. } in arrived {
            self.store(bus, bar, page, offset, &bytes);
        }
    }

    /// A store to a doorbell record, seen as it was made: the device looks at once. False when it is no record of this device's.
    pub(in crate::device) fn ordered_record(
        &mut self,
        bus: &mut Bus<'_>,
        address: u64,
        fence: Fence,
    ) -> bool {
        let Some(owner) = self.owner_of(address) else { return false };
        self.check_fresh(bus);
        let told = match owner {
            Owner::Arm(_) => return true,
            Owner::Completions(number) => {
                let queue = self.completions.queues.get_mut(number);
                match queue.map(|queue| queue.give_back(bus)) {
                    Some(Ok(count)) if count > 0 && fence < Fence::ToDevice => {
                        self.violations.note(Violation::Fence { queue: number, before: Before::Record });
                    }
                    _ => {}
                }
                return true;
            }
            Owner::Sender(number) => {
                let Some(queue) = self.senders.queues.get_mut(number) else { return true };
                let told = queue.ring.announce(bus, number);
                (number, queue.state == State::Ready, Some(queue.uar), told)
            }
            Owner::PairSend(number) => {
                let Some(pair) = self.rdma.pairs.get_mut(number) else { return true };
                let Some(ring) = &mut pair.send else { return true };
                (number, pair.state.sends(), Some(pair.uar), ring.announce(bus, number))
            }
            Owner::PairReceive(number) => {
                let Some(pair) = self.rdma.pairs.get_mut(number) else { return true };
                let Source::Own(ring) = &mut pair.source else { return true };
                (number, pair.state != crate::rdma::state::State::Reset, None, announce(ring, bus, number))
            }
            Owner::Receiver(number) => {
                let Some(queue) = self.receivers.queues.get_mut(number) else { return true };
                let ready = queue.state == State::Ready;
                let Some(ring) = queue.ring_mut() else { return true };
                (number, ready, None, announce(ring, bus, number))
            }
            Owner::Pool(number) => {
                let Some(pool) = self.receivers.pools.get_mut(number) else { return true };
                (number, true, None, announce(&mut pool.ring, bus, number))
            }
        };
        let (number, is_ready, page, pieces) = told;
        if is_ready {
            self.told_of(bus, number, page, pieces, fence);
        }
        true
    }

    /// A record told of entries.
    fn told_of(
        &mut self,
        bus: &mut Bus<'_>,
        number: u32,
        page: Option<u32>,
        pieces: Result<Vec<Piece>, Violation>,
        fence: Fence,
    ) {
        let sends = page.is_some();
        let pieces = match pieces {
            Ok(pieces) if pieces.is_empty() => return,
            Ok(pieces) => pieces,
            Err(violation) => return self.blame(bus, number, sends, violation),
        };
        if fence < Fence::ToDevice {
            self.blame(bus, number, sends, Violation::Fence { queue: number, before: Before::Record });
        }
        let thread = thread::current().id();
        let left = |held: &Held| {
            held.thread == thread
                && Some(held.page) == page
                && held.bytes.get(4..7) == number.to_be_bytes().get(1..)
        };
        if self.order.held.iter().any(left) {
            self.blame(bus, number, sends, Violation::Unflushed { queue: number });
        }
        for Piece { address, bytes } in pieces {
            let mut now = vec![0; bytes];
            if bus.host.read(address, &mut now).is_ok() {
                self.order.fresh.push(Fresh { queue: number, sends, address, bytes: now });
            }
        }
    }

    /// Entries are still as they were when the record told of them.
    pub(in crate::device) fn check_fresh(&mut self, bus: &mut Bus<'_>) {
        for Fresh { queue, sends, address, bytes } in std::mem::take(&mut self.order.fresh) {
            let mut now = vec![0; bytes.len()];
            if bus.host.read(address, &mut now).is_ok() && now != bytes {
                self.blame(bus, queue, sends, Violation::Late { queue });
            }
        }
    }

    fn blame(&mut self, bus: &mut Bus<'_>, number: u32, sends: bool, violation: Violation) {
        if sends {
            self.violate(bus, number, violation);
        } else {
            self.violations.note(violation);
        }
    }

    /// Command `opcode` made queue `number`: its record is nobody else's, as long as it is there. Who wrote to it for the other
    /// would tell this one too. Source: rdma-core `providers/mlx5/verbs.c`, `mlx5_destroy_cq` and its like, which let go of a
    /// record when the kernel's object is gone, and not before.
    pub(crate) fn check_record(&mut self, opcode: u16, number: u32) {
        let is_its = |owner: Owner| {
            let (queue, commands) = owner.made();
            queue == number && commands.contains(&opcode)
        };
        let (its, others): (Vec<_>, Vec<_>) = self.records().partition(|(owner, _)| is_its(*owner));
        let shared = others.iter().find(|(_, word)| its.iter().any(|(_, its)| its == word));
        if let Some((other, _)) = shared {
            let (other, _) = other.made();
            self.violations.note(Violation::SharedRecord { queue: number, other });
        }
    }

    fn owner_of(&self, address: u64) -> Option<Owner> {
        self.records().find(|(_, word)| *word == address).map(|(owner, _)| owner)
    }

    /// All words of doorbell records.
    fn records(&self) -> impl Iterator<Item = (Owner, u64)> {
        let completions = self.completions.queues.iter();
        let senders = self.senders.queues.iter().filter(|(_, queue)| queue.hairpin.is_none());
        let receivers = self.receivers.queues.iter();
        let pools = self.receivers.pools.iter();
        let pairs = self.rdma.pairs.iter();
        completions
            .flat_map(|(number, queue)| {
                [(Owner::Completions(number), queue.record), (Owner::Arm(number), queue.record + 4)]
            })
            .chain(senders.map(|(number, queue)| (Owner::Sender(number), queue.ring.record())))
            .chain(receivers.filter_map(|(number, queue)| Some((Owner::Receiver(number), queue.record()?))))
            .chain(pools.map(|(number, pool)| (Owner::Pool(number), pool.ring.record)))
            .chain(pairs.flat_map(|(number, pair)| {
                let own = match &pair.source {
                    Source::Own(ring) => Some((Owner::PairReceive(number), ring.record)),
                    Source::None | Source::Pool(_) => None,
                };
                let send = pair.send.as_ref().map(|ring| (Owner::PairSend(number), ring.record()));
                own.into_iter().chain(send)
            }))
    }
}

fn announce(ring: &mut WorkRing, bus: &Bus<'_>, queue: u32) -> Result<Vec<Piece>, Violation> {
    match ring.announce(bus) {
        Ok(Some(pieces)) => Ok(pieces),
        Ok(None) => Err(Violation::TooMuch { queue, posted: u16::MAX }),
        Err(Unreachable) => Err(Violation::Record { queue }),
    }
}
