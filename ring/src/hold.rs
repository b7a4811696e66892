//! Working inside the ring's own storage: room reserved by a producer, elements peeked at by a consumer.
//!
//! Both are guards over a claim that only one holder can have: the SP/SC ends have it by `&mut`, HTS by its lock. Each
//! shows two spans, since a claim may run past the end of the storage and go on at its start.
#![expect(unsafe_code, reason = "hands out slots of the ring as references and moves elements in place")]

use crate::index::Seq;
use crate::order;
use crate::primitive::AtomicU64;
use crate::storage::Core;
use crate::transfer::{Dequeued, Enqueued, Sink};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::ptr::{self, NonNull};
use std::slice;

/// A claim by the only one who can claim: `publish` of its elements are given to the other side when it drops, or before
/// ([`give`](Hold::give)).
pub(crate) struct Hold<'a> {
    pub(crate) tail: &'a AtomicU64,
    pub(crate) start: Seq,
    pub(crate) publish: usize,
    /// SP/SC: the end's own copy of its position. HTS: none, and the word holds the claim, too.
    pub(crate) own: Option<&'a mut Seq>,
}

impl Hold<'_> {
    /// `count` elements were moved out. Nobody may come upon them again, not even when the guard is forgotten and this never
    /// drops. SP/SC: so they are published now. HTS: the word says that all of the claim is taken until it is published.
    #[inline(always)]
    fn give(&mut self, count: usize) {
        self.publish += count;
        if let Some(own) = &mut self.own {
            self.start = self.start.plus(self.publish);
            self.publish = 0;
            **own = self.start;
            self.tail.store(self.start.under(0), order::spsc_hold_get());
        }
    }
}

impl Drop for Hold<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let seq = self.start.plus(self.publish);
        match &mut self.own {
            Some(_) if self.publish == 0 => {}
            Some(own) => {
                **own = seq;
                self.tail.store(seq.under(0), order::spsc_hold_put());
            }
            None => self.tail.store(seq.under(seq.get()), order::hts_hold()),
        }
    }
}

/// Slots that a claim covers, and how many of them were used up from the front.
struct Slots<'a, T> {
    spans: [(NonNull<T>, usize); 2],
    done: usize,
    _slots: PhantomData<&'a mut [T]>,
}

impl<T> Slots<'_, T> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.spans[0].1 + self.spans[1].1
    }

    #[inline(always)]
    fn left(&self) -> usize {
        self.len() - self.done
    }

    /// The slots that are left, in order.
    #[inline(always)]
    fn rest(&self) -> [(NonNull<T>, usize); 2] {
        let [(first, first_len), (second, second_len)] = self.spans;
        let in_first = self.done.min(first_len);
        let in_second = self.done - in_first;
        // SAFETY: `done` is at most the length of both spans together, so neither pointer leaves its span.
        unsafe {
            [(first.add(in_first), first_len - in_first), (second.add(in_second), second_len - in_second)]
        }
    }

    /// The first slot that is left; there is one.
    #[inline(always)]
    fn next(&self) -> NonNull<T> {
        let [first, second] = self.rest();
        if first.1 > 0 { first.0 } else { second.0 }
    }
}

/// Reserved entries of a ring, for writing in place; returned by `reserve_bulk` and `reserve_burst`.
///
/// Elements are appended by [`push`](Reserved::push), [`push_slice`](Reserved::push_slice) or through
/// [`spans`](Reserved::spans). [`finish`](Reserved::finish) publishes what was written; without it the ring stays as it
/// was, and what was written is dropped.
pub struct Reserved<'a, T> {
    hold: Hold<'a>,
    slots: Slots<'a, T>,
    left: usize,
}

impl<'a, T> Reserved<'a, T> {
    /// # Safety
    /// `hold` covers `count` empty slots of `core`.
    #[inline(always)]
    pub(crate) unsafe fn new(core: &Core<T>, hold: Hold<'a>, count: usize, left: usize) -> Self {
        let spans = core.spans(hold.start, count);
        Reserved { hold, slots: Slots { spans, done: 0, _slots: PhantomData }, left }
    }

    /// Returns the number of entries not written yet.
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.left()
    }

    /// Returns the number of elements written.
    #[must_use]
    pub fn written(&self) -> usize {
        self.slots.done
    }

    /// Appends an element.
    ///
    /// # Errors
    /// Gives the element back when the room is used up.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.room() == 0 {
            return Err(value);
        }
        // SAFETY: a slot of the claim that holds nothing yet.
        unsafe { self.slots.next().write(value) };
        self.slots.done += 1;
        Ok(())
    }

    /// Appends as many elements as fit and returns their number.
    #[inline]
    pub fn push_slice(&mut self, values: &[T]) -> usize
    where
        T: Copy,
    {
        let mut rest = values;
        for (slots, len) in self.slots.rest() {
            let (now, later) = rest.split_at(rest.len().min(len));
            // SAFETY: slots of the claim that hold nothing yet; the slice lies elsewhere.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), slots.as_ptr(), now.len()) };
            rest = later;
        }
        let count = values.len() - rest.len();
        self.slots.done += count;
        count
    }

    /// The room that is left, in order, to be written in place; then see [`assume_written`](Reserved::assume_written).
    #[inline(always)]
    pub fn spans(&mut self) -> (&mut [MaybeUninit<T>], &mut [MaybeUninit<T>]) {
        let [(first, first_len), (second, second_len)] = self.slots.rest();
        // SAFETY: slots of the claim, ours alone as long as it is borrowed; the spans do not overlap.
        unsafe {
            (
                slice::from_raw_parts_mut(first.as_ptr().cast(), first_len),
                slice::from_raw_parts_mut(second.as_ptr().cast(), second_len),
            )
        }
    }

    /// Marks the first `count` entries of the [`spans`](Reserved::spans) as written.
    ///
    /// # Panics
    /// When `count` is more than the room.
    ///
    /// # Safety
    /// They were.
    #[inline(always)]
    pub unsafe fn assume_written(&mut self, count: usize) {
        assert!(count <= self.room(), "{count} elements cannot have been written to {} slots", self.room());
        self.slots.done += count;
    }

    /// Publishes the written elements and releases the rest.
    #[inline(always)]
    pub fn finish(mut self) -> Enqueued {
        let count = mem::take(&mut self.slots.done);
        self.hold.publish = count;
        Enqueued { count, free: self.left + self.slots.len() - count }
    }

    /// Appends from an iterator as long as there is room, and publishes.
    pub(crate) fn fill(mut self, elements: impl IntoIterator<Item = T>) -> Enqueued {
        let mut elements = elements.into_iter();
        while self.room() > 0 {
            let Some(element) = elements.next() else { break };
            // There is room, so nothing comes back.
            let _ = self.push(element);
        }
        self.finish()
    }

    /// Aborts the reservation and drops the written elements, like dropping the guard.
    pub fn abort(self) {}
}

impl<T> Drop for Reserved<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Nothing is left to drop after `finish`. `hold` drops last, even if the drop of an element panics.
        if mem::needs_drop::<T>() {
            for index in 0..self.slots.done {
                self.slots.done = index;
                // SAFETY: the slot was written, and is passed by this loop once.
                unsafe { ptr::drop_in_place(self.slots.next().as_ptr()) };
            }
        }
    }
}

impl<T> fmt::Debug for Reserved<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").field("written", &self.written()).field("room", &self.room()).finish()
    }
}

/// Elements at the head of a ring, for reading in place; returned by `peek_bulk` and `peek_burst`.
///
/// What is taken or discarded is gone at once, and its slots are free when the guard ends, at the latest; the others stay in
/// the ring, as if never seen. A guard that is forgotten (`mem::forget`) leaves an SP/SC ring as a dropped one does. An HTS
/// ring's side stays claimed until the ring is reset, and elements of the claim that were not taken are leaked.
pub struct Peeked<'a, T> {
    hold: Hold<'a>,
    slots: Slots<'a, T>,
    left: usize,
}

impl<'a, T> Peeked<'a, T> {
    /// # Safety
    /// `hold` covers `count` slots of `core` that hold elements.
    #[inline(always)]
    pub(crate) unsafe fn new(core: &Core<T>, hold: Hold<'a>, count: usize, left: usize) -> Self {
        let spans = core.spans(hold.start, count);
        Peeked { hold, slots: Slots { spans, done: 0, _slots: PhantomData }, left }
    }

    /// Returns the number of elements not taken yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.left()
    }

    /// Returns whether no elements are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements not taken yet, in order, in place.
    #[inline(always)]
    #[must_use]
    pub fn spans(&self) -> (&[T], &[T]) {
        let [(first, first_len), (second, second_len)] = self.slots.rest();
        // SAFETY: slots of the claim that hold elements, which nobody moves as long as the guard is borrowed.
        unsafe {
            (
                slice::from_raw_parts(first.as_ptr(), first_len),
                slice::from_raw_parts(second.as_ptr(), second_len),
            )
        }
    }

    /// Iterates over the elements not taken yet.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (first, second) = self.spans();
        first.iter().chain(second)
    }

    /// Dequeues the first element.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the slot holds an element that was not yet taken, and counts as taken from here on.
        let element = unsafe { self.slots.next().read() };
        self.advance(1);
        Some(element)
    }

    /// Dequeues up to `max` elements, as many as fit into the sink, and returns their number.
    #[inline]
    pub fn take_into(&mut self, mut sink: impl Sink<T>, max: usize) -> usize {
        let (dst, room) = sink.room();
        let count = max.min(room).min(self.len());
        let [(first, first_len), (second, _)] = self.slots.rest();
        let in_first = count.min(first_len);
        // SAFETY: the slots hold elements that were not yet taken; the sink has room for `count`, apart from the ring.
        unsafe {
            ptr::copy_nonoverlapping(first.as_ptr(), dst, in_first);
            ptr::copy_nonoverlapping(second.as_ptr(), dst.add(in_first), count - in_first);
            self.advance(count);
            sink.filled(count);
        }
        count
    }

    /// Drops up to `max` elements and returns their number. Costs nothing for elements without a destructor.
    #[inline]
    pub fn discard(&mut self, max: usize) -> usize {
        let count = max.min(self.len());
        if mem::needs_drop::<T>() {
            for _ in 0..count {
                drop(self.take());
            }
        } else {
            self.advance(count);
        }
        count
    }

    /// Finishes and returns how many elements were taken and how many are left in the ring.
    #[inline]
    pub fn finish(self) -> Dequeued {
        Dequeued { count: self.slots.done, used: self.left + self.slots.left() }
    }

    #[inline(always)]
    fn advance(&mut self, count: usize) {
        self.slots.done += count;
        self.hold.give(count);
    }
}

impl<T: fmt::Debug> fmt::Debug for Peeked<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
