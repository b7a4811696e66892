//! Ends that many threads share: one surface over the three ways to let many threads onto one side.
//!
//! An operation claims slots, moves the elements, and publishes. [`mpmc`](crate::mpmc), [`rts`](crate::rts) and
//! [`hts`](crate::hts) differ in how they claim and publish, and in nothing else. Ends are handles: clone one for each
//! thread, or share one by reference.
#![expect(unsafe_code, reason = "moves elements into and out of claimed slots")]

use crate::counts::counts;
use crate::error::RingError;
use crate::header::{Kind, Plan, Side};
use crate::index::{Seq, Want};
use crate::storage::{Core, Plain, RegionSpan};
use crate::transfer::{Dequeued, Enqueued, Sink, Source};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};

pub(crate) use discipline::{Claim, Discipline};

mod discipline {
    use super::{Kind, Seq, Side, Want};

    /// Slots that one thread has for itself: `count` from the position in the low half of `word`.
    #[derive(Clone, Copy)]
    pub struct Claim {
        pub word: u64,
        pub count: usize,
        /// How much more could have been claimed.
        pub left: usize,
    }

    impl Claim {
        #[inline(always)]
        pub(crate) fn start(self) -> Seq {
            Seq::of(self.word)
        }
    }

    /// How threads share one side of a ring. Sealed: the three are here.
    pub trait Discipline: Send + Sync + 'static {
        #[doc(hidden)]
        const KIND: Kind;
        /// For `Debug`.
        #[doc(hidden)]
        const NAMES: [&'static str; 2];

        /// Claims slots on `mine`, up to `base` beyond where `peer` has published, and `count` at most, whatever the
        /// positions say. A claim of none changes nothing, and is not published.
        #[doc(hidden)]
        fn claim(mine: &Side, peer: &Side, base: u32, count: usize, want: Want) -> Claim;

        /// Gives the slots of a claim to the other side.
        #[doc(hidden)]
        fn publish(mine: &Side, claim: Claim);
    }
}

/// A producer end. Clones are producers of the same ring.
pub struct Producer<T, D: Discipline> {
    pub(crate) core: Core<T>,
    _discipline: PhantomData<D>,
}

/// A consumer end. Clones are consumers of the same ring.
pub struct Consumer<T, D: Discipline> {
    pub(crate) core: Core<T>,
    _discipline: PhantomData<D>,
}

type Ends<T, D> = (Producer<T, D>, Consumer<T, D>);

pub(crate) fn ring_from<T, D: Discipline>(plan: Plan) -> Result<Ends<T, D>, RingError> {
    Ok(ends(Core::heap(&plan)?))
}

pub(crate) fn in_region<T: Plain, D: Discipline>(
    span: RegionSpan,
    plan: Plan,
) -> Result<Ends<T, D>, RingError> {
    Ok(ends(Core::region(&plan, span)?))
}

pub(crate) fn attach<T: Plain, D: Discipline>(span: RegionSpan) -> Result<Ends<T, D>, RingError> {
    Ok(ends(Core::attach(D::KIND, span)?))
}

fn ends<T, D: Discipline>(core: Core<T>) -> Ends<T, D> {
    let producer = Producer { core: core.clone(), _discipline: PhantomData };
    (producer, Consumer { core, _discipline: PhantomData })
}

pub(crate) fn reset<T, D: Discipline>(
    producer: &mut Producer<T, D>,
    consumer: &mut Consumer<T, D>,
) -> Result<(), RingError> {
    let holders = producer.core.holders();
    if holders != 2 || !producer.core.is_same(&consumer.core) {
        return Err(RingError::NotExclusive { holders });
    }
    // SAFETY: these two are all ends there are, and both are borrowed exclusively.
    unsafe { producer.core.reset() };
    Ok(())
}

impl<T, D: Discipline> Producer<T, D> {
    #[inline(always)]
    unsafe fn enqueue_raw(&self, src: *const T, count: usize, want: Want) -> Enqueued {
        let (mine, peer) = (&self.core.header().producer, &self.core.header().consumer);
        let claim = D::claim(mine, peer, self.core.capacity(), self.core.at_once(count, want), want);
        let free = claim.left.min(self.capacity() - claim.count);
        if claim.count == 0 {
            return Enqueued { count: 0, free };
        }
        // SAFETY: the slots are claimed and free, no more than there are; the caller has at least so many elements.
        // Two calls, so that a count that the compiler knows is known in the first.
        unsafe {
            if claim.count == count {
                self.core.copy_in(claim.start(), src, count);
            } else {
                self.core.copy_in(claim.start(), src, claim.count);
            }
        }
        D::publish(mine, claim);
        Enqueued { count: claim.count, free }
    }

    /// Enqueues one element.
    ///
    /// # Errors
    /// Gives it back when the ring is full.
    #[inline(always)]
    pub fn enqueue(&self, value: T) -> Result<(), T> {
        let value = ManuallyDrop::new(value);
        // SAFETY: one element, which is forgotten here if it was taken.
        match unsafe { self.enqueue_raw(&raw const *value, 1, Want::Bulk) }.count {
            0 => Err(ManuallyDrop::into_inner(value)),
            _ => Ok(()),
        }
    }

    /// Enqueues all elements of the source, or none.
    #[inline(always)]
    #[doc(alias = "rte_ring_enqueue_bulk")]
    #[doc(alias = "rte_ring_mp_enqueue_bulk")]
    pub fn enqueue_bulk(&self, source: impl Source<T>) -> Enqueued {
        self.enqueue_from(source, Want::Bulk)
    }

    /// Enqueues as many elements as fit, from the front of the source.
    #[inline(always)]
    #[doc(alias = "rte_ring_enqueue_burst")]
    #[doc(alias = "rte_ring_mp_enqueue_burst")]
    pub fn enqueue_burst(&self, source: impl Source<T>) -> Enqueued {
        self.enqueue_from(source, Want::Burst)
    }

    #[inline(always)]
    fn enqueue_from(&self, mut source: impl Source<T>, want: Want) -> Enqueued {
        let run = source.run();
        let (src, count) = (run.as_ptr(), run.len());
        // SAFETY: the source has them, and forgets those that were taken.
        unsafe {
            let done = self.enqueue_raw(src, count, want);
            source.moved(done.count);
            done
        }
    }

    /// Enqueues `count` elements from `src`, or none.
    ///
    /// # Safety
    /// `src` is valid for reading `count` elements. Those that were taken are the ring's: the caller forgets them.
    #[inline(always)]
    pub unsafe fn enqueue_bulk_raw(&self, src: *const T, count: usize) -> Enqueued {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue_raw(src, count, Want::Bulk) }
    }

    /// Enqueues the first of `count` elements from `src`, as many as fit.
    ///
    /// # Safety
    /// `src` is valid for reading `count` elements. Those that were taken are the ring's: the caller forgets them.
    #[inline(always)]
    pub unsafe fn enqueue_burst_raw(&self, src: *const T, count: usize) -> Enqueued {
        // SAFETY: the caller's promise.
        unsafe { self.enqueue_raw(src, count, Want::Burst) }
    }

    counts!();
}

impl<T, D: Discipline> Consumer<T, D> {
    #[inline(always)]
    unsafe fn dequeue_raw(&self, dst: *mut T, count: usize, want: Want) -> Dequeued {
        let (mine, peer) = (&self.core.header().consumer, &self.core.header().producer);
        let claim = D::claim(mine, peer, 0, self.core.at_once(count, want), want);
        let used = claim.left.min(self.capacity() - claim.count);
        if claim.count == 0 {
            return Dequeued { count: 0, used };
        }
        // SAFETY: the slots are claimed and hold elements, no more than there are; the caller has room for so many.
        // Two calls, so that a count that the compiler knows is known in the first.
        unsafe {
            if claim.count == count {
                self.core.copy_out(claim.start(), dst, count);
            } else {
                self.core.copy_out(claim.start(), dst, claim.count);
            }
        }
        D::publish(mine, claim);
        Dequeued { count: claim.count, used }
    }

    /// Dequeues one element.
    #[inline(always)]
    pub fn dequeue(&self) -> Option<T> {
        let mut value = MaybeUninit::uninit();
        // SAFETY: room for one element, which is there when the count says so.
        unsafe {
            (self.dequeue_raw(value.as_mut_ptr(), 1, Want::Bulk).count == 1).then(|| value.assume_init())
        }
    }

    /// Dequeues exactly `count` elements into the sink, or none: also when the sink has no room for so many.
    #[inline(always)]
    #[doc(alias = "rte_ring_dequeue_bulk")]
    #[doc(alias = "rte_ring_mc_dequeue_bulk")]
    pub fn dequeue_bulk(&self, sink: impl Sink<T>, count: usize) -> Dequeued {
        self.dequeue_to(sink, count, Want::Bulk)
    }

    /// Dequeues as many elements as there are and as fit, `max` at most.
    #[inline(always)]
    #[doc(alias = "rte_ring_dequeue_burst")]
    #[doc(alias = "rte_ring_mc_dequeue_burst")]
    pub fn dequeue_burst(&self, sink: impl Sink<T>, max: usize) -> Dequeued {
        self.dequeue_to(sink, max, Want::Burst)
    }

    #[inline(always)]
    fn dequeue_to(&self, mut sink: impl Sink<T>, count: usize, want: Want) -> Dequeued {
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
    pub unsafe fn dequeue_bulk_raw(&self, dst: *mut T, count: usize) -> Dequeued {
        // SAFETY: the caller's promise.
        unsafe { self.dequeue_raw(dst, count, Want::Bulk) }
    }

    /// Dequeues as many elements as there are to `dst`, `count` at most.
    ///
    /// # Safety
    /// `dst` is valid for writing `count` elements.
    #[inline(always)]
    pub unsafe fn dequeue_burst_raw(&self, dst: *mut T, count: usize) -> Dequeued {
        // SAFETY: the caller's promise.
        unsafe { self.dequeue_raw(dst, count, Want::Burst) }
    }

    /// Drops the elements in the ring, at most one ring full, and returns their number.
    pub fn clear(&self) -> usize {
        (0..self.capacity()).map_while(|_| self.dequeue()).count()
    }

    counts!();
}

impl<T, D: Discipline> Clone for Producer<T, D> {
    fn clone(&self) -> Self {
        Producer { core: self.core.clone(), _discipline: PhantomData }
    }
}

impl<T, D: Discipline> Clone for Consumer<T, D> {
    fn clone(&self) -> Self {
        Consumer { core: self.core.clone(), _discipline: PhantomData }
    }
}

impl<T, D: Discipline> fmt::Debug for Producer<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.dump(D::NAMES[0], f)
    }
}

impl<T, D: Discipline> fmt::Debug for Consumer<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.dump(D::NAMES[1], f)
    }
}
