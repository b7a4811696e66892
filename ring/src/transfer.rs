//! How elements get in and out: the places they move from and to, and what a call reports.
#![expect(unsafe_code, reason = "moves elements as raw memory")]

use std::mem::MaybeUninit;
use std::ptr;

/// What an enqueue did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "says how many elements were taken"]
pub struct Enqueued {
    /// Elements moved into the ring, from the front of the source.
    pub count: usize,
    /// Elements that still fit. SP/SC and MP/MC: at least so many, since they look at the consumers only when they must.
    pub free: usize,
}

/// What a dequeue did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "says how many elements were given"]
pub struct Dequeued {
    /// Elements moved out of the ring.
    pub count: usize,
    /// Elements still inside. SP/SC and MP/MC: at least so many, since they look at the producers only when they must.
    pub used: usize,
}

/// A run of elements that can be moved out from its front.
///
/// Implemented for slices of `Copy` elements and for `&mut Vec<T>`; a container of another crate implements it for a
/// mutable reference to itself.
///
/// # Safety
/// `run` gives the same elements until `moved` is called; neither panics.
pub unsafe trait Source<T> {
    /// The elements, in the order in which they go into the ring.
    fn run(&self) -> &[T];

    /// The first `count` elements of the run were moved out bitwise: forgets them, and closes the gap.
    ///
    /// # Safety
    /// `count` is at most the length of the run, and the caller owns those elements now.
    unsafe fn moved(&mut self, count: usize);
}

/// A place that elements can be moved into.
///
/// Implemented for slices of `Copy` elements, for slices of `MaybeUninit`, and for `&mut Vec<T>`, which takes as many as
/// fit without growing, after those it has.
///
/// # Safety
/// `room` gives a pointer that is valid for writing so many elements until `filled` is called; neither panics.
pub unsafe trait Sink<T> {
    /// Where the elements go, and how many fit.
    fn room(&mut self) -> (*mut T, usize);

    /// The first `count` elements of the room were written.
    ///
    /// # Safety
    /// They were, and `count` is at most the length of the room.
    unsafe fn filled(&mut self, count: usize);
}

// SAFETY: the run is the slice; the elements are copies, so nothing is to be forgotten.
unsafe impl<T: Copy> Source<T> for &[T] {
    #[inline(always)]
    fn run(&self) -> &[T] {
        self
    }

    #[inline(always)]
    unsafe fn moved(&mut self, _count: usize) {}
}

// SAFETY: as for the slice.
unsafe impl<T: Copy, const N: usize> Source<T> for &[T; N] {
    #[inline(always)]
    fn run(&self) -> &[T] {
        *self
    }

    #[inline(always)]
    unsafe fn moved(&mut self, _count: usize) {}
}

// SAFETY: the run is the vector's elements; those left are moved down before the length says so.
unsafe impl<T> Source<T> for &mut Vec<T> {
    #[inline(always)]
    fn run(&self) -> &[T] {
        self
    }

    #[inline]
    unsafe fn moved(&mut self, count: usize) {
        let left = self.len() - count;
        // SAFETY: `count` elements are gone, `left` remain behind them, as the caller promised.
        unsafe {
            let start = self.as_mut_ptr();
            if left > 0 {
                ptr::copy(start.add(count), start, left);
            }
            self.set_len(left);
        }
    }
}

// SAFETY: the room is the slice, in which a `Copy` element may be overwritten.
unsafe impl<T: Copy> Sink<T> for &mut [T] {
    #[inline(always)]
    fn room(&mut self) -> (*mut T, usize) {
        (self.as_mut_ptr(), self.len())
    }

    #[inline(always)]
    unsafe fn filled(&mut self, _count: usize) {}
}

// SAFETY: as for the slice.
unsafe impl<T: Copy, const N: usize> Sink<T> for &mut [T; N] {
    #[inline(always)]
    fn room(&mut self) -> (*mut T, usize) {
        (self.as_mut_ptr(), N)
    }

    #[inline(always)]
    unsafe fn filled(&mut self, _count: usize) {}
}

// SAFETY: the room is the slice; what stood there is overwritten without a drop, as ever with `MaybeUninit`.
unsafe impl<T> Sink<T> for &mut [MaybeUninit<T>] {
    #[inline(always)]
    fn room(&mut self) -> (*mut T, usize) {
        (self.as_mut_ptr().cast(), self.len())
    }

    #[inline(always)]
    unsafe fn filled(&mut self, _count: usize) {}
}

// SAFETY: the room is the vector's spare capacity.
unsafe impl<T> Sink<T> for &mut Vec<T> {
    #[inline(always)]
    fn room(&mut self) -> (*mut T, usize) {
        let spare = self.spare_capacity_mut();
        (spare.as_mut_ptr().cast(), spare.len())
    }

    #[inline(always)]
    unsafe fn filled(&mut self, count: usize) {
        // SAFETY: the caller wrote so many elements behind the last one.
        unsafe { self.set_len(self.len() + count) };
    }
}
