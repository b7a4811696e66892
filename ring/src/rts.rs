//! Relaxed tail sync: threads publish in any order, so one that loses its core holds up the others less.
//!
//! Head and tail each carry a count of operations beside the position. A thread claims as in [`mpmc`](crate::mpmc), and
//! counts its claim; when it has moved its elements it counts itself finished in the tail, and the last to finish moves
//! the tail's position up to the head. Nobody waits for anybody, except that the head may not run further than a set
//! distance before the tail: else a side could claim for ever without publishing.
//!
//! It costs a second compare and swap an operation. And a ring may say that it is full, or empty, for longer than it is: what
//! the others of a side moved does not count before the one that is held up has finished. A ring that must never refuse,
//! such as a list of what is free, needs room for twice as many elements as there are, and for the distance.
//!
//! ```
//! let (producer, consumer) = pollux_ring::rts::ring(1024)?;
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
use crate::index::{Seq, Want, high, room};
use crate::order;
use crate::primitive::{Ordering, Wait};
use crate::shared::{self, Claim, Discipline};
use crate::storage::{Plain, RegionSpan};

/// How the threads of an RTS side get out of each other's way.
#[derive(Debug)]
pub enum Rts {}

/// A producer of an RTS ring.
pub type Producer<T> = shared::Producer<T, Rts>;
/// A consumer of an RTS ring.
pub type Consumer<T> = shared::Consumer<T, Rts>;

/// Creates a ring of exactly `capacity` elements in newly allocated memory.
///
/// # Errors
/// [`RingError::Capacity`] and [`RingError::NoMemory`].
pub fn ring<T>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), RingError> {
    shared::ring_from(Plan::new(Kind::Rts, capacity))
}

/// Creates a ring in the given memory, overwriting its contents.
///
/// # Errors
/// [`RingError::Capacity`], [`RingError::RegionTooSmall`] and [`RingError::Misaligned`].
pub fn in_region<T: Plain>(
    span: RegionSpan,
    capacity: usize,
) -> Result<(Producer<T>, Consumer<T>), RingError> {
    shared::in_region(span, Plan::new(Kind::Rts, capacity))
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

/// How far each side's head may run before its tail, in elements; a new ring has an eighth of its capacity.
///
/// A shorter distance publishes sooner under contention, a longer one waits less.
///
/// # Errors
/// [`RingError::Distance`] when it is zero or more than the capacity.
pub fn set_distance_max<T>(producer: &Producer<T>, distance: usize) -> Result<(), RingError> {
    let capacity = producer.capacity();
    if distance == 0 || distance > capacity {
        return Err(RingError::Distance { distance, capacity });
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most the capacity, which is 32 bits")]
    for side in [&producer.core.header().producer, &producer.core.header().consumer] {
        side.distance_max.store(distance as u32, Ordering::Relaxed);
    }
    Ok(())
}

/// The head, once it is no further before the tail than allowed.
#[inline(always)]
fn head_in_reach(mine: &Side) -> u64 {
    let distance_max = mine.distance_max.load(Ordering::Relaxed);
    let mut wait = Wait::default();
    loop {
        let head = mine.head.load(order::rts_head());
        // A tail that is read later may have passed this head: then the distance is huge, and we look again.
        if Seq::of(head).since(mine.published(Ordering::Relaxed)) <= distance_max {
            return head;
        }
        wait.turn();
    }
}

impl Discipline for Rts {
    const KIND: Kind = Kind::Rts;
    const NAMES: [&'static str; 2] = ["rts::Producer", "rts::Consumer"];

    #[inline(always)]
    fn claim(mine: &Side, peer: &Side, base: u32, count: usize, want: Want) -> Claim {
        loop {
            let head = head_in_reach(mine);
            let peer = peer.published(order::rts_peer());
            // If others have moved the head on since, this is off, and the swap fails: it compares their count, too.
            let room = room(base, peer, Seq::of(head));
            let taken = want.of(count, room);
            if taken == 0 {
                return Claim { word: head, count: 0, left: room };
            }
            let next = Seq::of(head).plus(taken).under(high(head).wrapping_add(1));
            let swap = mine.head.compare_exchange_weak(head, next, order::rts_claim(), Ordering::Relaxed);
            if swap.is_ok() {
                return Claim { word: head, count: taken, left: room - taken };
            }
        }
    }

    #[inline(always)]
    fn publish(mine: &Side, _claim: Claim) {
        let mut tail = mine.tail.load(order::rts_tail());
        loop {
            // Relaxed: the tail that was acquired brings a head that is new enough, and what it covers comes by the tail.
            let head = mine.head.load(Ordering::Relaxed);
            let finished = high(tail).wrapping_add(1);
            let position = if finished == high(head) { Seq::of(head) } else { Seq::of(tail) };
            // The chain of swaps on the tail hands the peer the slots of all who finished, not only those of the last.
            match mine.tail.compare_exchange_weak(
                tail,
                position.under(finished),
                order::rts_publish(),
                order::rts_publish_lost(),
            ) {
                Ok(_) => return,
                Err(now) => tail = now,
            }
        }
    }
}
