//! What stands in front of the slots: who the ring is, and where each side is.
//!
//! ```text
//! 0        identity   magic, kind, element size and alignment, capacity   written once
//! 128      producer   head, tail                                          written by producers
//! 256      consumer   head, tail                                          written by consumers
//! 384..    slots      a power of two of them
//! ```
//!
//! It holds no pointer, so that two processes may map it at different addresses.

use crate::error::RingError;
use crate::index::{Seq, high};
use crate::order;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::alloc::Layout;

/// Which algorithm moves the positions; both ends of a ring must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Single producer, single consumer.
    Spsc = 1,
    /// Multi producer, multi consumer.
    Mpmc = 2,
    /// Relaxed tail sync.
    Rts = 3,
    /// Head/tail sync.
    Hts = 4,
}

/// "PLXRING" and the version of this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"PLXRING\x01");

/// The most slots a ring may have: distances must stay well inside 32 bits.
const SLOTS_MAX: usize = 1 << 31;

/// What the ring is; constant after it was made.
#[repr(C)]
pub(crate) struct Identity {
    /// Written last (release), so that whoever finds it (acquire) finds all else written.
    magic: AtomicU64,
    kind: AtomicU32,
    element_bytes: AtomicU32,
    element_align: AtomicU32,
    /// Atomic, as the others: another process may write at any time, and what was checked must be what is used.
    capacity: AtomicU32,
}

/// Where one side is. Each side has its own cache lines, written by nobody but that side.
///
/// | ring | `head` | `tail` |
/// |---|---|---|
/// | SP/SC | not used | published position |
/// | MP/MC | claimed position, 64 bits | published position, 64 bits |
/// | RTS | claims made, claimed position | claims finished, published position |
/// | HTS | not used | claimed position, published position |
#[repr(C)]
pub struct Side {
    pub(crate) head: AtomicU64,
    pub(crate) tail: AtomicU64,
    /// MP/MC: the peer's tail, when a thread of this side last looked.
    pub(crate) seen: AtomicU64,
    /// RTS: how far the head may run before the tail.
    pub(crate) distance_max: AtomicU32,
}

#[repr(C)]
pub(crate) struct Header {
    identity: CachePadded<Identity>,
    pub(crate) producer: CachePadded<Side>,
    pub(crate) consumer: CachePadded<Side>,
}

impl Side {
    fn new(kind: Kind, start: Seq, distance_max: u32) -> Side {
        // HTS: claimed equals published, nobody is inside. RTS: no claims yet. The others have the position only.
        let tail = start.under(if kind == Kind::Hts { start.get() } else { 0 });
        Side {
            head: AtomicU64::new(start.under(0)),
            tail: AtomicU64::new(tail),
            seen: AtomicU64::new(start.under(0)),
            distance_max: AtomicU32::new(distance_max),
        }
    }

    /// The published position, in any kind of ring.
    #[inline(always)]
    pub(crate) fn published(&self, order: Ordering) -> Seq {
        Seq::of(self.tail.load(order))
    }

    /// The position up to which nothing is left to be taken while nobody is at work. That is the published one, but for an HTS
    /// consumer that forgot its guard: what of its claim it has moved out, nobody knows, so all of it counts.
    pub(crate) fn taken(&self, kind: Kind, order: Ordering) -> Seq {
        let word = self.tail.load(order);
        if kind == Kind::Hts { Seq::new(high(word)) } else { Seq::of(word) }
    }

    /// Puts the side back to `start`, nothing claimed. The caller holds every end of the ring.
    pub(crate) fn restart(&self, kind: Kind, start: Seq) {
        let fresh = Side::new(kind, start, 0);
        self.head.store(fresh.head.load(Ordering::Relaxed), Ordering::Relaxed);
        self.tail.store(fresh.tail.load(Ordering::Relaxed), Ordering::Relaxed);
        self.seen.store(fresh.seen.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// What a new ring is to be.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) capacity: usize,
    /// Where the positions start; 0 but for tests of the wrap.
    pub(crate) start: Seq,
    pub(crate) distance_max: usize,
}

impl Plan {
    pub(crate) fn new(kind: Kind, capacity: usize) -> Plan {
        Plan { kind, capacity, start: Seq::new(0), distance_max: (capacity / 8).max(1) }
    }
}

impl Header {
    /// Layout of header and slots together, and where the slots start.
    pub(crate) fn layout<T>(capacity: usize) -> Result<(Layout, usize), RingError> {
        let too_large = || RingError::Capacity {
            capacity,
            max: SLOTS_MAX.min(prev_power_of_two(isize::MAX as usize / 2 / size_of::<T>().max(1))),
            element_bytes: size_of::<T>(),
        };
        if capacity == 0 || capacity > SLOTS_MAX {
            return Err(too_large());
        }
        let slots = Layout::array::<T>(capacity.next_power_of_two()).map_err(|_| too_large())?;
        let (layout, offset) = Layout::new::<Header>().extend(slots).map_err(|_| too_large())?;
        Ok((layout.pad_to_align(), offset))
    }

    /// A header without its magic number: [`announce`](Header::announce) comes when it stands in its place.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "layout() has bounded the capacity, the compiler the type"
    )]
    pub(crate) fn new<T>(plan: &Plan) -> Header {
        let side = || CachePadded::new(Side::new(plan.kind, plan.start, plan.distance_max as u32));
        Header {
            identity: CachePadded::new(Identity {
                magic: AtomicU64::new(0),
                kind: AtomicU32::new(plan.kind as u32),
                element_bytes: AtomicU32::new(size_of::<T>() as u32),
                element_align: AtomicU32::new(align_of::<T>() as u32),
                capacity: AtomicU32::new(plan.capacity as u32),
            }),
            producer: side(),
            consumer: side(),
        }
    }

    pub(crate) fn announce(&self) {
        self.identity.magic.store(MAGIC, order::announce());
    }

    /// Checks that a ring of this kind and element type stands here; gives its capacity.
    pub(crate) fn check<T>(&self, kind: Kind) -> Result<usize, RingError> {
        let same = |field, found: u64, expected: u64| {
            if found == expected { Ok(()) } else { Err(RingError::Header { field, found, expected }) }
        };
        // Acquire: pairs with the release in `announce`, so the other fields are there.
        same("magic", self.identity.magic.load(order::find()), MAGIC)?;
        let read = |field: &AtomicU32| field.load(Ordering::Relaxed);
        same("kind", read(&self.identity.kind).into(), kind as u64)?;
        same("element size", read(&self.identity.element_bytes).into(), size_of::<T>() as u64)?;
        same("element alignment", read(&self.identity.element_align).into(), align_of::<T>() as u64)?;
        Ok(read(&self.identity.capacity) as usize)
    }
}

const fn prev_power_of_two(value: usize) -> usize {
    1 << value.ilog2()
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Side>() <= 64 && size_of::<Identity>() <= 64);
#[cfg(all(not(loom), target_arch = "x86_64"))]
const _: () = assert!(size_of::<Header>() == 384 && std::mem::offset_of!(Header, consumer) == 256);
