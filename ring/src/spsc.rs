//! One producer, one consumer: no locked instruction, no loop.
//!
//! Each end keeps its own position and the last one it saw of its peer in its handle. It reads the peer's line only
//! when, by what it last saw, the ring seems full (or empty), so that between two such reads the ends share no more
//! than the slots. What is enqueued is visible at once: every call publishes.
//!
//! Elements moved one by one stream as well as bursts do: the slots' lines are asked for ahead, and an end that is in
//! lock-step with its peer (it has just taken what few elements or slots there were, and finds few again) may wait for
//! some 0.1 µs before it takes more, so that the peer gets ahead. Nothing waits to be found, and no call that finds
//! nothing waits.
//!
//! ```
//! let (mut producer, mut consumer) = pollux_ring::spsc::ring(1000)?;
//! let sent = producer.enqueue_burst(&[1, 2, 3]);
//! assert_eq!((sent.count, sent.free), (3, 997));
//! let mut out = [0; 8];
//! let got = consumer.dequeue_burst(&mut out, 8);
//! assert_eq!(out[..got.count], [1, 2, 3]);
//! # Ok::<(), pollux_ring::RingError>(())
//! ```
//!
//! The ends cannot be cloned, and no two threads can use one at once:
//!
//! ```compile_fail,E0599
//! let (producer, _consumer) = pollux_ring::spsc::ring::<u64>(8).unwrap();
//! let second = producer.clone();
//! ```
//!
//! ```compile_fail,E0599
//! let (_producer, consumer) = pollux_ring::spsc::ring::<u64>(8).unwrap();
//! let second = consumer.clone();
//! ```
//!
//! ```compile_fail,E0596
//! let (producer, _consumer) = pollux_ring::spsc::ring::<u64>(8).unwrap();
//! let shared = &producer;
//! shared.enqueue(1);
//! ```
#![expect(unsafe_code, reason = "moves elements into and out of claimed slots")]

use crate::counts::counts;
use crate::error::RingError;
use crate::header::{Kind, Plan};
use crate::hold::{Hold, Peeked, Reserved};
use crate::index::{Seq, Want, room};
use crate::order;
use crate::pace::Pace;
use crate::storage::{Core, Plain, RegionSpan};
use crate::transfer::{Dequeued, Enqueued, Sink, Source};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};

/// The only producer of an SP/SC ring.
pub struct Producer<T> {
    core: Core<T>,
    /// Our own position, as published.
    seq: Seq,
    /// The consumer's position when we last looked: it can only have gone on since. Never one that gives more room than there
    /// are slots.
    seen: Seq,
    pace: Pace,
}

/// The only consumer of an SP/SC ring.
pub struct Consumer<T> {
    core: Core<T>,
    /// Our own position, as published.
    seq: Seq,
    /// The producer's position when we last looked: it can only have gone on since. Never further ahead than there are slots.
    seen: Seq,
    pace: Pace,
}

/// Creates a ring of exactly `capacity` elements in newly allocated memory.
///
/// # Errors
/// [`RingError::Capacity`] and [`RingError::NoMemory`].
pub fn ring<T>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), RingError> {
    ring_from(Plan::new(Kind::Spsc, capacity))
}

pub(crate) fn ring_from<T>(plan: Plan) -> Result<(Producer<T>, Consumer<T>), RingError> {
    Ok(ends(Core::heap(&plan)?))
}

/// Creates a ring in the given memory, overwriting its contents.
///
/// # Errors
/// [`RingError::Capacity`], [`RingError::RegionTooSmall`] and [`RingError::Misaligned`].
pub fn in_region<T: Plain>(
    span: RegionSpan,
    capacity: usize,
) -> Result<(Producer<T>, Consumer<T>), RingError> {
    Ok(ends(Core::region(&Plan::new(Kind::Spsc, capacity), span)?))
}

/// Attaches to the producer end of an existing ring in a region, possibly created by another process.
///
/// # Safety
/// No other producer of this ring lives, in any process.
///
/// # Errors
/// [`RingError::Header`], [`RingError::RegionTooSmall`] and [`RingError::Misaligned`].
pub unsafe fn attach_producer<T: Plain>(span: RegionSpan) -> Result<Producer<T>, RingError> {
    Ok(Producer::new(Core::attach(Kind::Spsc, span)?))
}

/// Attaches to the consumer end of an existing ring in a region, possibly created by another process.
///
/// # Safety
/// No other consumer of this ring lives, in any process.
///
/// # Errors
/// [`RingError::Header`], [`RingError::RegionTooSmall`] and [`RingError::Misaligned`].
pub unsafe fn attach_consumer<T: Plain>(span: RegionSpan) -> Result<Consumer<T>, RingError> {
    Ok(Consumer::new(Core::attach(Kind::Spsc, span)?))
}

fn ends<T>(core: Core<T>) -> (Producer<T>, Consumer<T>) {
    (Producer::new(core.clone()), Consumer::new(core))
}

/// Empties the ring, dropping what is inside, and starts its positions at zero.
///
/// # Errors
/// [`RingError::NotExclusive`] when the two are not the ends of one ring.
pub fn reset<T>(producer: &mut Producer<T>, consumer: &mut Consumer<T>) -> Result<(), RingError> {
    if !producer.core.is_same(&consumer.core) {
        return Err(RingError::NotExclusive { holders: producer.core.holders() });
    }
    let zero = Seq::new(0);
    (producer.seq, producer.seen, consumer.seq, consumer.seen) = (zero, zero, zero, zero);
    // SAFETY: these are the two ends, and both are borrowed exclusively.
    unsafe { producer.core.reset() };
    Ok(())
}

impl<T> Producer<T> {
    fn new(core: Core<T>) -> Self {
        let seq = core.header().producer.published(order::spsc_begin());
        let mut producer = Producer { seen: core.full_at(seq), core, seq, pace: Pace::default() };
        producer.look();
        producer
    }

    /// Room for `count`, if it is there; looks at the consumer only when it does not seem to be.
    #[inline(always)]
    fn room(&mut self, count: usize) -> usize {
        let seems = room(self.core.capacity(), self.seen, self.seq);
        if count <= seems {
            return seems;
        }
        let found = self.look();
        if count != 1 {
            return found;
        }
        let mut pace = std::mem::take(&mut self.pace);
        let found = pace.settle(self.core.capacity(), found, || self.look());
        self.pace = pace;
        found
    }

    #[inline(always)]
    fn look(&mut self) -> usize {
        let seen = self.core.header().consumer.published(order::spsc_look_room());
        let found = room(self.core.capacity(), seen, self.seq);
        // Where no consumer can be, none is: another process may write anything.
        if found > self.core.capacity() as usize {
            self.seen = self.core.full_at(self.seq);
            return 0;
        }
        self.seen = seen;
        found
    }

    #[inline(always)]
    unsafe fn enqueue_raw(&mut self, src: *const T, count: usize, want: Want) -> Enqueued {
        let room = self.room(count);
        if count <= room {
            if count == 1 {
                self.core.ask_ahead(self.seq, room, true);
            }
            // SAFETY: the slots are free, and the caller has `count` elements.
            unsafe { self.put(src, count) };
            return Enqueued { count, free: room - count };
        }
        let fits = want.of(count, room);
        if fits > 0 {
            // SAFETY: as above, for the first of them.
            unsafe { self.put(src, fits) };
        }
        Enqueued { count: fits, free: room - fits }
    }

    /// # Safety
    /// There is room for `count`, and `src` has so many.
    #[inline(always)]
    unsafe fn put(&mut self, src: *const T, count: usize) {
        // SAFETY: the caller's promise; nobody else claims slots on this side.
        unsafe { self.core.copy_in(self.seq, src, count) };
        self.seq = self.seq.plus(count);
        self.core.header().producer.tail.store(self.seq.under(0), order::spsc_put());
    }

    /// Enqueues one element.
    ///
    /// # Errors
    /// Gives it back when the ring is full.
    #[inline(always)]
    pub fn enqueue(&mut self, value: T) -> Result<(), T> {
        let value = ManuallyDrop::new(value);
        // SAFETY: one element, which is forgotten here if it was taken.
        match unsafe { self.enqueue_raw(&raw const *value, 1, Want::Bulk) }.count {
            0 => Err(ManuallyDrop::into_inner(value)),
            _ => Ok(()),
        }
    }

    /// Enqueues all elements of the source, or none.
    #[inline(always)]
    pub fn enqueue_bulk(&mut self, source: impl Source<T>) -> Enqueued {
        self.enqueue_from(source, Want::Bulk)
    }

    /// Enqueues as many elements as fit, from the front of the source.
    #[inline(always)]
    #[doc(alias = "rte_ring_sp_enqueue_burst")]
    pub fn enqueue_burst(&mut self, source: impl Source<T>) -> Enqueued {
        self.enqueue_from(source, Want::Burst)
    }

    #[inline(always)]
    fn enqueue_from(&mut self, mut source: impl Source<T>, want: Want) -> Enqueued {
        let run = source.run();
        let (src, count) = (run.as_ptr(), run.len());
        // SAFETY: the source has them, and forgets those that were taken.
        unsafe {
            let done = self.enqueue_raw(src, count, want);
            source.moved(done.count);
            done
        }
    }

    /// Enqueues elements from an iterator until the ring is full or the iterator ends. Takes none that does not fit.
    ///
    /// They are published together. When the iterator panics, those it gave are dropped.
    pub fn enqueue_iter(&mut self, elements: impl IntoIterator<Item = T>) -> Enqueued {
        self.reserve_burst(usize::MAX).fill(elements)
    }

    /// Enqueues `count` elements from `src`, or none.
    ///
    /// # Safety
    /// `src` is valid for reading `count` elements. Those that were taken are the ring's: the caller forgets them.
    #[inline(always)]
    pub unsafe fn enqueue_bulk_raw(&mut self, src: *const T, count: usize) -> Enqueued {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue_raw(src, count, Want::Bulk) }
    }

    /// Enqueues the first of `count` elements from `src`, as many as fit.
    ///
    /// # Safety
    /// `src` is valid for reading `count` elements. Those that were taken are the ring's: the caller forgets them.
    #[inline(always)]
    pub unsafe fn enqueue_burst_raw(&mut self, src: *const T, count: usize) -> Enqueued {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue_raw(src, count, Want::Burst) }
    }

    /// Reserves room for exactly `count` elements in the ring's own storage. `None` when so many do not fit.
    #[inline(always)]
    #[doc(alias = "rte_ring_enqueue_zc_bulk_start")]
    pub fn reserve_bulk(&mut self, count: usize) -> Option<Reserved<'_, T>> {
        let room = self.room(count);
        (count <= room).then(|| self.reserve(count, room))
    }

    /// Reserves room for as many elements as fit, `max` at most, in the ring's own storage.
    #[inline(always)]
    pub fn reserve_burst(&mut self, max: usize) -> Reserved<'_, T> {
        let room = self.room(max);
        self.reserve(max.min(room), room)
    }

    #[inline(always)]
    fn reserve(&mut self, count: usize, room: usize) -> Reserved<'_, T> {
        let (start, tail) = (self.seq, &self.core.header().producer.tail);
        let hold = Hold { tail, start, publish: 0, own: Some(&mut self.seq) };
        // SAFETY: there is room for `count`, and no other claim on this side while we are borrowed.
        unsafe { Reserved::new(&self.core, hold, count, room - count) }
    }

    counts!();
}

impl<T> Consumer<T> {
    fn new(core: Core<T>) -> Self {
        let seq = core.header().consumer.published(order::spsc_begin());
        let mut consumer = Consumer { core, seq, seen: seq, pace: Pace::default() };
        consumer.look();
        consumer
    }

    /// Elements that can be taken; looks at the producer only when there do not seem to be `count`.
    #[inline(always)]
    fn room(&mut self, count: usize) -> usize {
        let seems = room(0, self.seen, self.seq);
        if count <= seems {
            return seems;
        }
        let found = self.look();
        if count != 1 {
            return found;
        }
        let mut pace = std::mem::take(&mut self.pace);
        let found = pace.settle(self.core.capacity(), found, || self.look());
        self.pace = pace;
        found
    }

    #[inline(always)]
    fn look(&mut self) -> usize {
        let seen = self.core.header().producer.published(order::spsc_look_elements());
        let found = room(0, seen, self.seq);
        // Where no producer can be, none is: another process may write anything.
        if found > self.core.capacity() as usize {
            self.seen = self.seq;
            return 0;
        }
        self.seen = seen;
        found
    }

    #[inline(always)]
    unsafe fn dequeue_raw(&mut self, dst: *mut T, count: usize, want: Want) -> Dequeued {
        let room = self.room(count);
        if count <= room {
            if count == 1 {
                self.core.ask_ahead(self.seq, room, false);
            }
            // SAFETY: the elements are there, and the caller has room for `count`.
            unsafe { self.get(dst, count) };
            return Dequeued { count, used: room - count };
        }
        let there = want.of(count, room);
        if there > 0 {
            // SAFETY: as above.
            unsafe { self.get(dst, there) };
        }
        Dequeued { count: there, used: room - there }
    }

    /// # Safety
    /// There are `count` elements, and `dst` has room for so many.
    #[inline(always)]
    unsafe fn get(&mut self, dst: *mut T, count: usize) {
        // SAFETY: the caller's promise; nobody else claims slots on this side.
        unsafe { self.core.copy_out(self.seq, dst, count) };
        self.seq = self.seq.plus(count);
        self.core.header().consumer.tail.store(self.seq.under(0), order::spsc_get());
    }

    /// Dequeues one element.
    #[inline(always)]
    pub fn dequeue(&mut self) -> Option<T> {
        let mut value = MaybeUninit::uninit();
        // SAFETY: room for one element, which is there when the count says so.
        unsafe {
            (self.dequeue_raw(value.as_mut_ptr(), 1, Want::Bulk).count == 1).then(|| value.assume_init())
        }
    }

    /// Dequeues exactly `count` elements into the sink, or none: also when the sink has no room for so many.
    #[inline(always)]
    pub fn dequeue_bulk(&mut self, sink: impl Sink<T>, count: usize) -> Dequeued {
        self.dequeue_to(sink, count, Want::Bulk)
    }

    /// Dequeues as many elements as there are and as fit, `max` at most.
    #[inline(always)]
    #[doc(alias = "rte_ring_sc_dequeue_burst")]
    pub fn dequeue_burst(&mut self, sink: impl Sink<T>, max: usize) -> Dequeued {
        self.dequeue_to(sink, max, Want::Burst)
    }

    #[inline(always)]
    fn dequeue_to(&mut self, mut sink: impl Sink<T>, count: usize, want: Want) -> Dequeued {
        let (dst, fits) = sink.room();
        // SAFETY: the sink has room for so many, and is told how many came.
        unsafe {
            let done = self.dequeue_raw(dst, want.of(count, fits), want);
            sink.filled(done.count);
            done
        }
    }

    /// Dequeues exactly `count` elements to `dst`, or none.
    ///
    /// # Safety
    /// `dst` is valid for writing `count` elements.
    #[inline(always)]
    pub unsafe fn dequeue_bulk_raw(&mut self, dst: *mut T, count: usize) -> Dequeued {
        // SAFETY: the caller's promise.
        unsafe { self.dequeue_raw(dst, count, Want::Bulk) }
    }

    /// Dequeues as many elements as there are to `dst`, `count` at most.
    ///
    /// # Safety
    /// `dst` is valid for writing `count` elements.
    #[inline(always)]
    pub unsafe fn dequeue_burst_raw(&mut self, dst: *mut T, count: usize) -> Dequeued {
        // SAFETY: the caller's promise.
        unsafe { self.dequeue_raw(dst, count, Want::Burst) }
    }

    /// Looks at exactly `count` elements where they lie. `None` when there are not so many.
    #[inline(always)]
    #[doc(alias = "rte_ring_dequeue_bulk_start")]
    pub fn peek_bulk(&mut self, count: usize) -> Option<Peeked<'_, T>> {
        let room = self.room(count);
        (count <= room).then(|| self.peek(count, room))
    }

    /// Looks at as many elements as there are, `max` at most, where they lie.
    #[inline(always)]
    pub fn peek_burst(&mut self, max: usize) -> Peeked<'_, T> {
        let room = self.room(max);
        self.peek(max.min(room), room)
    }

    #[inline(always)]
    fn peek(&mut self, count: usize, room: usize) -> Peeked<'_, T> {
        let (start, tail) = (self.seq, &self.core.header().consumer.tail);
        let hold = Hold { tail, start, publish: 0, own: Some(&mut self.seq) };
        // SAFETY: there are `count` elements, and no other claim on this side while we are borrowed.
        unsafe { Peeked::new(&self.core, hold, count, room - count) }
    }

    /// Drops all elements and returns their number.
    pub fn clear(&mut self) -> usize {
        self.peek_burst(usize::MAX).discard(usize::MAX)
    }

    counts!();
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.dump("spsc::Producer", f)
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.dump("spsc::Consumer", f)
    }
}
