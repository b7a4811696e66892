//! Device registers: doorbell stores and copies to write-combining pages; and doorbell records.
//!
//! A [`Window`] is the right to store to a mapped page of registers. Values are stored as they stand in memory, so a caller
//! hands over big-endian bytes already swapped. Source of the rules (one store instruction of the full width, 64 bytes in
//! ascending order): rdma-core `util/mmio.h`.
//!
//! # Seeing the stores
//! With the feature `mmio-trace` a test can have a function called at each store to a range of addresses, after the
//! store and on the thread that made it (`trace::observe`): a device model is stepped there, as hardware would begin to
//! act there. `trace::watch` tells of stores to doorbell records too, and of [barriers](crate::barrier). It is a feature and not a `cfg` flag because a driver's dev-dependency can turn it on, so that plain
//! `cargo test` runs with it while `cargo build` and `cargo run` do not; it only adds, so unification does no harm. Without it
//! no trace of it is compiled. With it and with nobody observing, a store costs one more load.
#![expect(unsafe_code, reason = "stores to device registers")]

#[cfg(any(test, feature = "mmio-trace"))]
pub mod trace;

use std::ptr::NonNull;

/// The right to store to a range of device registers. It is neither `Clone` nor `Sync`: a queue owns the registers that it
/// rings, and goes where the queue goes.
#[derive(Debug)]
pub struct Window {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the registers belong to no thread; by `new` the window is the only way to them, and it stores by `&mut`.
unsafe impl Send for Window {}

impl Window {
    /// The registers at `base`, which is aligned to 64.
    ///
    /// # Safety
    /// The range is mapped, for reading and writing, as long as the window lives, holds no Rust object, and nobody else
    /// stores to it.
    ///
    /// # Panics
    /// When `base` is not aligned to 64.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        assert!(base.as_ptr().addr().is_multiple_of(64), "registers at {base:?} are not aligned to 64");
        Self { base, bytes }
    }

    /// Address of the first register.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stores 4 bytes with one instruction. Order against other stores is the caller's: see [`barrier`](crate::barrier).
    ///
    /// # Panics
    /// When `offset` is no multiple of 4 inside the window.
    #[inline(always)]
    pub fn store32(&mut self, offset: usize, value: u32) {
        let to = self.register(offset, 4).cast::<u32>();
        // SAFETY: `register` checked range and alignment; the mapping lives and is ours alone, by the caller of `new`.
        unsafe { to.write_volatile(value) };
        #[cfg(any(test, feature = "mmio-trace"))]
        trace::stored(to.as_ptr().addr(), &value.to_ne_bytes());
    }

    /// Stores 8 bytes with one instruction. Order against other stores is the caller's.
    ///
    /// # Panics
    /// When `offset` is no multiple of 8 inside the window.
    #[inline(always)]
    pub fn store64(&mut self, offset: usize, value: u64) {
        const { assert!(usize::BITS == 64, "a 64-bit register takes a 64-bit store") };
        let to = self.register(offset, 8).cast::<u64>();
        // SAFETY: as in `store32`.
        unsafe { to.write_volatile(value) };
        #[cfg(any(test, feature = "mmio-trace"))]
        trace::stored(to.as_ptr().addr(), &value.to_ne_bytes());
    }

    /// Copies 64 bytes, ascending, to a write-combining page, where they should leave as one write on the bus.
    /// [`wc_flush`](crate::barrier::wc_flush) goes before and after, by the caller.
    ///
    /// # Panics
    /// When `offset` is no multiple of 64 inside the window.
    #[inline(always)]
    pub fn copy64(&mut self, offset: usize, bytes: &[u8; 64]) {
        let to = self.register(offset, 64);
        let (words, _) = bytes.as_chunks::<8>();
        for (index, word) in words.iter().enumerate() {
            // SAFETY: as in `store32`; the eight words are the 64 bytes that were checked.
            unsafe { to.cast::<u64>().add(index).write_volatile(u64::from_ne_bytes(*word)) };
        }
        #[cfg(any(test, feature = "mmio-trace"))]
        trace::stored(to.as_ptr().addr(), bytes);
    }

    /// Reads 4 bytes with one instruction. Slow on hardware: the answer crosses the bus and back, some microseconds.
    ///
    /// # Panics
    /// When `offset` is no multiple of 4 inside the window.
    #[inline(always)]
    #[must_use]
    pub fn load32(&self, offset: usize) -> u32 {
        // SAFETY: as in `store32`.
        unsafe { self.register(offset, 4).cast::<u32>().read_volatile() }
    }

    /// Reads 8 bytes with one instruction. Slow, as [`load32`](Self::load32).
    ///
    /// # Panics
    /// When `offset` is no multiple of 8 inside the window.
    #[inline(always)]
    #[must_use]
    pub fn load64(&self, offset: usize) -> u64 {
        // SAFETY: as in `store32`.
        unsafe { self.register(offset, 8).cast::<u64>().read_volatile() }
    }

    #[inline(always)]
    fn register(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(
            offset.is_multiple_of(bytes) && offset < self.bytes && self.bytes - offset >= bytes,
            "no register at that offset"
        );
        // SAFETY: inside the window, as just checked.
        unsafe { self.base.add(offset) }
    }
}

/// Stores a doorbell record, a word in memory that a device reads when it wants to, as it stands in memory. Order against other
/// stores is the caller's.
///
/// # Safety
/// `to` is aligned and mapped for writing, holds no Rust object, and nobody else stores to it.
#[inline(always)]
pub unsafe fn store_record(to: NonNull<u32>, value: u32) {
    // SAFETY: by the caller; a volatile store bears a device that reads.
    unsafe { to.write_volatile(value) };
    #[cfg(any(test, feature = "mmio-trace"))]
    trace::recorded(to.as_ptr().addr(), &value.to_ne_bytes());
}

#[cfg(test)]
mod tests;
