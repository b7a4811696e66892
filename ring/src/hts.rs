//! Head/tail sync: one thread at a time on a side, so that it can look before it takes, and write in place.
//!
//! A side is one word with a head and a tail. A thread may claim only when they are equal, and publishes by making them
//! equal again. That serialises the side, and makes [`reserve_bulk`](crate::hts::Producer::reserve_bulk) and
//! [`peek_bulk`](crate::hts::Consumer::peek_bulk) possible: while a guard lives, the other threads of its side wait.
//! Keep it short, and do not use the same side again in the same thread meanwhile: that would wait for ever.
//!
//! ```
//! let (producer, consumer) = pollux_ring::hts::ring(1024)?;
//! std::thread::scope(|scope| {
//!     for thread in 0..2_u64 {
//!         let producer = producer.clone();
//!         scope.spawn(move || producer.enqueue_bulk(&[thread; 32]).count);
//!     }
//! });
//! assert_eq!(consumer.count(), 64);
//! # Ok::<(), pollux_ring::RingError>(())
//! ```
#![expect(unsafe_code, reason = "hands claimed slots to the guards")]

use crate::error::RingError;
use crate::header::{Kind, Plan, Side};
use crate::hold::{Hold, Peeked, Reserved};
use crate::index::{Seq, Want, high, room};
use crate::order;
use crate::primitive::{Ordering, Wait};
use crate::shared::{self, Claim, Discipline};
use crate::storage::{Plain, RegionSpan};
use crate::transfer::Enqueued;

/// How the threads of an HTS side get out of each other's way.
#[derive(Debug)]
pub enum Hts {}

/// A producer of an HTS ring.
pub type Producer<T> = shared::Producer<T, Hts>;
/// A consumer of an HTS ring.
pub type Consumer<T> = shared::Consumer<T, Hts>;

/// Creates a ring of exactly `capacity` elements in newly allocated memory.
///
/// # Errors
/// [`RingError::Capacity`] and [`RingError::NoMemory`].
pub fn ring<T>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), RingError> {
    shared::ring_from(Plan::new(Kind::Hts, capacity))
}

/// Creates a ring in the given memory, overwriting its contents.
///
/// # Errors
/// [`RingError::Capacity`], [`RingError::RegionTooSmall`] and [`RingError::Misaligned`].
pub fn in_region<T: Plain>(
    span: RegionSpan,
    capacity: usize,
) -> Result<(Producer<T>, Consumer<T>), RingError> {
    shared::in_region(span, Plan::new(Kind::Hts, capacity))
}

/// Attaches to an existing ring in a region, possibly created by another process.
///
/// # Errors
/// [`RingError::Header`], [`RingError::RegionTooSmall`] and [`RingError::Misaligned`].
pub fn attach<T: Plain>(span: RegionSpan) -> Result<(Producer<T>, Consumer<T>), RingError> {
    shared::attach(span)
}

/// Empties the ring, dropping what is inside, and starts its positions at zero, whatever was claimed. What a forgotten guard
/// held is leaked.
///
/// # Errors
/// [`RingError::NotExclusive`] when the two are not the ends of one ring, or the ring has other ends.
pub fn reset<T>(producer: &mut Producer<T>, consumer: &mut Consumer<T>) -> Result<(), RingError> {
    shared::reset(producer, consumer)
}

impl Discipline for Hts {
    const KIND: Kind = Kind::Hts;
    const NAMES: [&'static str; 2] = ["hts::Producer", "hts::Consumer"];

    #[inline(always)]
    fn claim(mine: &Side, peer: &Side, base: u32, count: usize, want: Want) -> Claim {
        let mut wait = Wait::default();
        loop {
            let word = mine.tail.load(order::hts_enter());
            let start = Seq::of(word);
            if high(word) != start.get() {
                wait.turn();
                continue;
            }
            let room = room(base, peer.published(order::hts_peer()), start);
            let taken = want.of(count, room);
            if taken == 0 {
                return Claim { word, count: 0, left: room };
            }
            let claimed = start.under(start.plus(taken).get());
            if mine.tail.compare_exchange_weak(word, claimed, order::hts_claim(), Ordering::Relaxed).is_ok() {
                return Claim { word, count: taken, left: room - taken };
            }
        }
    }

    #[inline(always)]
    fn publish(mine: &Side, claim: Claim) {
        let end = claim.start().plus(claim.count);
        mine.tail.store(end.under(end.get()), order::hts_publish());
    }
}

impl<T> Producer<T> {
    /// Reserves room for exactly `count` elements in the ring's own storage. `None` when so many do not fit, or for 0.
    #[inline(always)]
    pub fn reserve_bulk(&self, count: usize) -> Option<Reserved<'_, T>> {
        self.reserve(count, Want::Bulk)
    }

    /// Reserves room for as many elements as fit, `max` at most, in the ring's own storage. `None` when none fits.
    #[inline(always)]
    pub fn reserve_burst(&self, max: usize) -> Option<Reserved<'_, T>> {
        self.reserve(max, Want::Burst)
    }

    #[inline(always)]
    fn reserve(&self, count: usize, want: Want) -> Option<Reserved<'_, T>> {
        let (mine, peer) = (&self.core.header().producer, &self.core.header().consumer);
        let claim = Hts::claim(mine, peer, self.core.capacity(), self.core.at_once(count, want), want);
        let hold = held(mine, claim)?;
        let left = claim.left.min(self.capacity() - claim.count);
        // SAFETY: the claim is ours, and its slots, no more than there are, are empty.
        Some(unsafe { Reserved::new(&self.core, hold, claim.count, left) })
    }

    /// Enqueues elements from an iterator until the ring is full or the iterator ends. Takes none that does not fit.
    ///
    /// They are published together; the iterator runs while the other producers wait, so it had better be short. When
    /// it panics, the elements that it gave are dropped.
    pub fn enqueue_iter(&self, elements: impl IntoIterator<Item = T>) -> Enqueued {
        match self.reserve_burst(usize::MAX) {
            Some(room) => room.fill(elements),
            None => Enqueued { count: 0, free: 0 },
        }
    }
}

impl<T> Consumer<T> {
    /// Looks at exactly `count` elements where they lie. `None` when there are not so many, or for 0.
    #[inline(always)]
    pub fn peek_bulk(&self, count: usize) -> Option<Peeked<'_, T>> {
        self.peek(count, Want::Bulk)
    }

    /// Looks at as many elements as there are, `max` at most, where they lie. `None` when there is none.
    #[inline(always)]
    pub fn peek_burst(&self, max: usize) -> Option<Peeked<'_, T>> {
        self.peek(max, Want::Burst)
    }

    #[inline(always)]
    fn peek(&self, count: usize, want: Want) -> Option<Peeked<'_, T>> {
        let (mine, peer) = (&self.core.header().consumer, &self.core.header().producer);
        let claim = Hts::claim(mine, peer, 0, self.core.at_once(count, want), want);
        let hold = held(mine, claim)?;
        let left = claim.left.min(self.capacity() - claim.count);
        // SAFETY: the claim is ours, and its slots, no more than there are, hold elements.
        Some(unsafe { Peeked::new(&self.core, hold, claim.count, left) })
    }
}

#[inline(always)]
fn held(mine: &Side, claim: Claim) -> Option<Hold<'_>> {
    (claim.count > 0).then(|| Hold { tail: &mine.tail, start: claim.start(), publish: 0, own: None })
}
