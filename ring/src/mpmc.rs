//! Many producers, many consumers: the fastest of the shared rings while no thread loses its core.
//!
//! A side has a head and a tail. A thread claims slots by moving the head on (compare and swap), moves its elements,
//! waits until all that claimed before it have published, and moves the tail on. A thread that is preempted in between
//! therefore holds up the others on its side; where threads outnumber cores, see [`rts`](crate::rts).
//!
//! Each side keeps a note of the peer's tail on its own cache line, for all its threads, and reads the peer's line only
//! when by that note there is not enough. Positions are 64 bits here, so that one that was read long ago can never be
//! taken for the present one.
//!
//! ```
//! let (producer, consumer) = pollux_ring::mpmc::ring(1024)?;
//! std::thread::scope(|scope| {
//!     for thread in 0..2_u64 {
//!         let producer = producer.clone();
//!         scope.spawn(move || producer.enqueue_bulk(&[thread; 32]).count);
//!     }
//! });
//! assert_eq!(consumer.count(), 64);
//! # Ok::<(), pollux_ring::RingError>(())
//! ```

use crate::error::RingError;
use crate::header::{Kind, Plan, Side};
use crate::index::Want;
use crate::order;
use crate::primitive::Wait;
use crate::shared::{self, Claim, Discipline};
use crate::storage::{Plain, RegionSpan};

/// How far this side may go from `head`: by what one of its threads last saw of the peer, if that is enough for `count`.
#[inline(always)]
fn room(mine: &Side, peer: &Side, base: u32, head: u64, count: usize) -> usize {
    let to = |tail: u64| u64::from(base).wrapping_add(tail).wrapping_sub(head) as usize;
    let seen = to(mine.seen.load(order::mpmc_seen()));
    // What was seen too long ago leaves less than no room: beyond 32 bits, as an unsigned number.
    if count <= seen && seen <= u32::MAX as usize {
        return seen;
    }
    let tail = peer.tail.load(order::mpmc_peer());
    // Another thread may store an older tail after ours, which is still true.
    mine.seen.store(tail, order::mpmc_note());
    to(tail)
}

/// How the threads of an MP/MC side get out of each other's way.
#[derive(Debug)]
pub enum Mpmc {}

/// A producer of an MP/MC ring.
pub type Producer<T> = shared::Producer<T, Mpmc>;
/// A consumer of an MP/MC ring.
pub type Consumer<T> = shared::Consumer<T, Mpmc>;

/// Creates a ring of exactly `capacity` elements in newly allocated memory.
///
/// # Errors
/// [`RingError::Capacity`] and [`RingError::NoMemory`].
#[doc(alias = "rte_ring_create")]
pub fn ring<T>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), RingError> {
    shared::ring_from(Plan::new(Kind::Mpmc, capacity))
}

/// Creates a ring in the given memory, overwriting its contents.
///
/// # Errors
/// [`RingError::Capacity`], [`RingError::RegionTooSmall`] and [`RingError::Misaligned`].
pub fn in_region<T: Plain>(
    span: RegionSpan,
    capacity: usize,
) -> Result<(Producer<T>, Consumer<T>), RingError> {
    shared::in_region(span, Plan::new(Kind::Mpmc, capacity))
}

/// Attaches to an existing ring in a region, possibly created by another process.
///
/// # Errors
/// [`RingError::Header`], [`RingError::RegionTooSmall`] and [`RingError::Misaligned`].
pub fn attach<T: Plain>(span: RegionSpan) -> Result<(Producer<T>, Consumer<T>), RingError> {
    shared::attach(span)
}

/// Empties the ring, dropping what is inside, and starts its positions at zero, whatever was claimed.
///
/// # Errors
/// [`RingError::NotExclusive`] when the two are not the ends of one ring, or the ring has other ends.
pub fn reset<T>(producer: &mut Producer<T>, consumer: &mut Consumer<T>) -> Result<(), RingError> {
    shared::reset(producer, consumer)
}

impl Discipline for Mpmc {
    const KIND: Kind = Kind::Mpmc;
    const NAMES: [&'static str; 2] = ["mpmc::Producer", "mpmc::Consumer"];

    #[inline(always)]
    fn claim(mine: &Side, peer: &Side, base: u32, count: usize, want: Want) -> Claim {
        let mut head = mine.head.load(order::mpmc_head());
        loop {
            // If others have moved the head on since, the room is off, and the swap fails.
            let room = room(mine, peer, base, head, count);
            let taken = want.of(count, room);
            if taken == 0 {
                return Claim { word: head, count: 0, left: room };
            }
            match mine.head.compare_exchange_weak(
                head,
                head.wrapping_add(taken as u64),
                order::mpmc_claim(),
                order::mpmc_claim_lost(),
            ) {
                Ok(_) => return Claim { word: head, count: taken, left: room - taken },
                Err(now) => head = now,
            }
        }
    }

    #[inline(always)]
    fn publish(mine: &Side, claim: Claim) {
        let mut wait = Wait::default();
        while mine.tail.load(order::mpmc_turn()) != claim.word {
            wait.turn();
        }
        mine.tail.store(claim.word.wrapping_add(claim.count as u64), order::mpmc_publish());
    }
}
