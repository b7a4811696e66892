//! A handful of mbufs that move together.
#![expect(unsafe_code, reason = "frees its mbufs in bulk")]

use arrayvec::ArrayVec;
use pollux_ring::{Sink, Source};

use crate::Mbuf;
use crate::mbuf::free_bulk;

/// Capacity of a burst.
pub const BURST_MAX: usize = 64;

/// Up to [`BURST_MAX`] owned mbufs. Dropping or clearing it frees them in bulk.
#[derive(Debug, Default)]
pub struct Burst(pub(crate) ArrayVec<Mbuf, BURST_MAX>);

impl Burst {
    /// Creates an empty burst.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(ArrayVec::new())
    }

    /// Returns how many more mbufs it can hold.
    #[inline]
    #[must_use]
    pub fn remaining_capacity(&self) -> usize {
        self.0.remaining_capacity()
    }

    /// Returns whether it holds [`BURST_MAX`] mbufs.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// Appends an mbuf.
    ///
    /// # Panics
    /// When the burst is full, at the place of the call; [`try_push`](Self::try_push) does not.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, mbuf: Mbuf) {
        self.0.push(mbuf);
    }

    /// Appends an mbuf, or returns it if the burst is full.
    ///
    /// # Errors
    /// The mbuf that found no room.
    #[inline]
    pub fn try_push(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        self.0.try_push(mbuf).map_err(|full| full.element())
    }

    /// Removes and returns the last mbuf.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.0.pop()
    }

    /// Removes and returns mbuf `index`; the last one takes its place. `None` if there is none.
    #[inline]
    pub fn swap_remove(&mut self, index: usize) -> Option<Mbuf> {
        self.0.swap_pop(index)
    }

    /// Removes and returns mbuf `index`; those after it move up. `None` if there is none.
    #[inline]
    pub fn remove(&mut self, index: usize) -> Option<Mbuf> {
        self.0.pop_at(index)
    }

    /// Keeps the mbufs for which `keep` returns true and frees the others.
    #[inline]
    pub fn retain(&mut self, keep: impl FnMut(&mut Mbuf) -> bool) {
        self.0.retain(keep);
    }

    /// Removes the mbufs in `range`; those after it move up.
    ///
    /// # Panics
    /// When the range goes past the end.
    #[inline]
    pub fn drain(
        &mut self,
        range: impl std::ops::RangeBounds<usize>,
    ) -> arrayvec::Drain<'_, Mbuf, BURST_MAX> {
        self.0.drain(range)
    }

    /// Removes and returns the first `count` mbufs, or as many as there are; the others move up.
    #[inline]
    #[must_use]
    pub fn take_front(&mut self, count: usize) -> Self {
        let mut front = Self::new();
        self.move_front(count, &mut front);
        front
    }

    /// Moves mbufs from the front of this burst to the end of `to`: `count`, or as many as there are and find room.
    /// Tells how many.
    #[inline]
    pub fn move_front(&mut self, count: usize, to: &mut Self) -> usize {
        let count = count.min(self.len()).min(to.remaining_capacity());
        let (len, to_len) = (self.len(), to.len());
        // SAFETY: `count` mbufs are here and find room there; they are moved, and both lengths follow.
        unsafe {
            // Lengths before pointers: `set_len` borrows the whole array, which ends the right of a pointer taken before.
            self.0.set_len(0);
            let from = self.0.as_mut_ptr();
            std::ptr::copy_nonoverlapping(from, to.0.as_mut_ptr().add(to_len), count);
            if count < len {
                std::ptr::copy(from.add(count), from, len - count);
            }
            to.0.set_len(to_len + count);
            self.0.set_len(len - count);
        }
        count
    }

    /// Frees the first `count` mbufs in bulk, or as many as there are; the others move up.
    #[inline]
    pub fn free_front(&mut self, count: usize) {
        let len = self.len();
        let count = count.min(len);
        // SAFETY: `count` mbufs are freed and forgotten; the others move up, and the length follows.
        unsafe {
            self.0.set_len(0);
            let mbufs = self.0.as_mut_ptr();
            free_bulk(mbufs, count);
            if count < len {
                std::ptr::copy(mbufs.add(count), mbufs, len - count);
            }
            self.0.set_len(len - count);
        }
    }

    /// The room behind the mbufs, for a port that fills it in place; [`filled`](Self::filled) says how far.
    #[inline(always)]
    #[must_use]
    pub fn spare(&mut self) -> &mut [std::mem::MaybeUninit<Mbuf>] {
        let len = self.0.len();
        // SAFETY: `BURST_MAX` places, of which `len` hold mbufs.
        unsafe {
            let start = self.0.as_mut_ptr().add(len).cast();
            std::slice::from_raw_parts_mut(start, BURST_MAX - len)
        }
    }

    /// Says that the first `count` places of [`spare`](Self::spare) hold mbufs now.
    ///
    /// # Safety
    /// They do.
    #[inline(always)]
    pub unsafe fn filled(&mut self, count: usize) {
        debug_assert!(count <= self.remaining_capacity());
        // SAFETY: the caller's promise.
        unsafe { self.0.set_len(self.0.len() + count) };
    }

    /// Forgets the first `count` mbufs, whose addresses somebody has taken over; the others move up.
    ///
    /// # Safety
    /// There are so many, and whoever has the addresses owns the mbufs from now on.
    #[inline(always)]
    pub unsafe fn forget_front(&mut self, count: usize) {
        let left = self.0.len() - count;
        // SAFETY: `left` mbufs remain behind those that are gone.
        unsafe {
            if left > 0 {
                let start = self.0.as_mut_ptr();
                std::ptr::copy(start.add(count), start, left);
            }
            self.0.set_len(left);
        }
    }

    /// Frees all mbufs in bulk.
    #[inline]
    #[doc(alias = "rte_pktmbuf_free_bulk")]
    pub fn clear(&mut self) {
        let len = self.0.len();
        // SAFETY: `len` mbufs are freed and forgotten.
        unsafe {
            self.0.set_len(0);
            free_bulk(self.0.as_ptr(), len);
        }
    }
}

// SAFETY: the run is the mbufs; those left are moved down before the length says so.
unsafe impl Source<Mbuf> for &mut Burst {
    #[inline(always)]
    fn run(&self) -> &[Mbuf] {
        self
    }

    #[inline(always)]
    unsafe fn moved(&mut self, count: usize) {
        let left = self.len() - count;
        // SAFETY: `count` mbufs are gone, `left` remain behind them, as the caller promised.
        unsafe {
            let start = self.0.as_mut_ptr();
            if left > 0 {
                std::ptr::copy(start.add(count), start, left);
            }
            self.0.set_len(left);
        }
    }
}

// SAFETY: the room is what is left of the array behind the mbufs.
unsafe impl Sink<Mbuf> for &mut Burst {
    #[inline(always)]
    fn room(&mut self) -> (*mut Mbuf, usize) {
        let (len, room) = (self.len(), self.remaining_capacity());
        // SAFETY: `len` is at most the array's capacity.
        (unsafe { self.0.as_mut_ptr().add(len) }, room)
    }

    #[inline(always)]
    unsafe fn filled(&mut self, count: usize) {
        // SAFETY: the caller wrote so many mbufs behind the last one.
        unsafe { self.0.set_len(self.0.len() + count) };
    }
}

impl Drop for Burst {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}

impl std::ops::Deref for Burst {
    type Target = [Mbuf];

    #[inline(always)]
    fn deref(&self) -> &[Mbuf] {
        &self.0
    }
}

impl std::ops::DerefMut for Burst {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Mbuf] {
        &mut self.0
    }
}

impl<'a> IntoIterator for &'a Burst {
    type Item = &'a Mbuf;
    type IntoIter = std::slice::Iter<'a, Mbuf>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a mut Burst {
    type Item = &'a mut Mbuf;
    type IntoIter = std::slice::IterMut<'a, Mbuf>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

impl Extend<Mbuf> for Burst {
    /// # Panics
    /// When there are more than find room.
    fn extend<I: IntoIterator<Item = Mbuf>>(&mut self, mbufs: I) {
        self.0.extend(mbufs);
    }
}
