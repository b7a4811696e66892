//! How many objects rest in a cache: one thread writes it, any may read it.

use pollux_atomic::{AtomicUsize, Ordering};

use crate::order;

/// The length of one slot's cache.
///
/// # Why it is as wide as a register
/// Each get and put waits for the length that the last one stored. Recent processors hand such a value on without
/// going through memory, provided that load and store name the address by one register and a constant, and that
/// the register stored from is the one loaded to, in full width. With 32 bits, or an address made of two registers, it
/// takes some 7 cycles instead, twice a round. [`Caches::own`](super::Caches::own) sees to the address.
#[repr(transparent)]
pub(crate) struct Length(AtomicUsize);

impl Length {
    /// For the model; in a pool it is all zeroes at first.
    #[cfg(all(test, loom))]
    pub(crate) fn new(len: usize) -> Self {
        Self(AtomicUsize::new(len))
    }

    /// For the thread that writes it.
    #[inline(always)]
    pub(crate) fn own(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Objects were taken, by the thread that writes it. Relaxed: a cache is summed up once nothing more can be taken, and nobody else
    /// looks at the objects.
    #[inline(always)]
    pub(crate) fn lower(&self, len: usize) {
        self.0.store(len, Ordering::Relaxed);
    }

    /// The objects below `len` are there, or have gone to the back end; whoever sums up a closed pool's caches sees that this thread
    /// is done with the pool.
    #[inline(always)]
    pub(crate) fn publish(&self, len: usize) {
        self.0.store(len, order::cache_publish());
    }

    /// For whoever sums up. Relaxed: who acts on the sum has a fence behind it (`Passages::none_while`).
    pub(crate) fn sum(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
