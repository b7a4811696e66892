//! Buffers that are not a pool's: an mbuf can show one instead of its own data room.
#![expect(unsafe_code, reason = "owns memory that others gave")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

type Free = Box<dyn FnOnce(NonNull<u8>, usize) + Send>;

/// The memory behind an external buffer.
struct Backing {
    base: NonNull<u8>,
    bytes: usize,
    free: Option<Free>,
}

// SAFETY: an address range and a callback that is `Send`.
unsafe impl Send for Backing {}
// SAFETY: nothing can be done through `&Backing`.
unsafe impl Sync for Backing {}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Some(free) = self.free.take() {
            free(self.base, self.bytes);
        }
    }
}

/// What all parts of one external buffer share: who has one may use its bytes of the memory.
pub(crate) struct Owner(Arc<Backing>);

/// The memory of an external buffer, kept from being freed. It gives no right to the bytes: a port is told by it of memory that
/// is no pool's, so that its device can send from there (`Port::register_memory`). Clones are handles of the same memory.
#[derive(Clone)]
pub struct ExternalMemory(Arc<Backing>);

impl ExternalMemory {
    /// First byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    /// Number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }
}

impl std::fmt::Debug for ExternalMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalMemory").field("base", &self.base()).field("bytes", &self.bytes()).finish()
    }
}

/// A buffer, or a part of one, that [`Mbuf::attach_external`](crate::Mbuf::attach_external) can show as an mbuf's data
/// room. Parts do not overlap, so each can be written by whoever owns it. When the last part and the last mbuf that
/// shows one are gone, and no port [knows](Self::memory) the memory any more, the buffer's free callback runs, on whatever
/// thread that happens.
pub struct External {
    owner: Arc<Owner>,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the only right to use these bytes, on whatever thread.
unsafe impl Send for External {}
// SAFETY: nothing can be done to the bytes through `&External`.
unsafe impl Sync for External {}

impl External {
    /// A buffer of memory that the caller gives away until `free` is called with it.
    ///
    /// # Safety
    /// `bytes` bytes at `base` are mapped, initialised, readable and writable, and nobody else uses them, until then.
    #[must_use]
    pub unsafe fn new(
        base: NonNull<u8>,
        bytes: usize,
        free: impl FnOnce(NonNull<u8>, usize) + Send + 'static,
    ) -> Self {
        let backing = Backing { base, bytes, free: Some(Box::new(free)) };
        Self { owner: Arc::new(Owner(Arc::new(backing))), base, bytes }
    }

    /// All of the buffer's memory, whichever part this is, to tell ports of it.
    #[must_use]
    pub fn memory(&self) -> ExternalMemory {
        ExternalMemory(Arc::clone(&self.owner.0))
    }

    /// Number of bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// First byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many parts of the buffer there are, those that mbufs show included. A passing figure.
    #[must_use]
    pub fn shares(&self) -> usize {
        Arc::strong_count(&self.owner)
    }

    /// Cuts off the first `bytes` bytes as a part of their own; `None` when there are not so many.
    #[must_use]
    pub fn split_to(&mut self, bytes: usize) -> Option<Self> {
        if bytes > self.bytes {
            return None;
        }
        let front = Self { owner: Arc::clone(&self.owner), base: self.base, bytes };
        // SAFETY: inside the part, or just past its end.
        self.base = unsafe { self.base.add(bytes) };
        self.bytes -= bytes;
        Some(front)
    }

    /// A second right to `bytes` bytes at `offset`, for who keeps the buffer and lends parts of it again and again. `None`
    /// when they are not in this part.
    ///
    /// # Safety
    /// Until it and the mbuf that shows it are gone, nobody uses these bytes through this part or another: see
    /// [`is_sole`](Self::is_sole).
    #[inline]
    #[must_use]
    pub unsafe fn lend(&self, offset: usize, bytes: usize) -> Option<Self> {
        if offset > self.bytes || bytes > self.bytes - offset {
            return None;
        }
        // SAFETY: inside the part, or just past its end.
        let base = unsafe { self.base.add(offset) };
        Some(Self { owner: Arc::clone(&self.owner), base, bytes })
    }

    /// Whether this is the only part left, and no mbuf shows the buffer: what others did with its bytes is over.
    #[inline]
    #[must_use]
    pub fn is_sole(&self) -> bool {
        let sole = Arc::strong_count(&self.owner) == 1;
        // Pairs with the Release by which the last other part went.
        fence(Ordering::Acquire);
        sole
    }

    pub(crate) fn into_owner(self) -> Arc<Owner> {
        self.owner
    }
}

impl From<Vec<u8>> for External {
    /// The vector's bytes (its length, not its capacity) become the buffer.
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        let base = NonNull::from(Box::leak(bytes.into_boxed_slice())).cast();
        // SAFETY: a leaked box of `len` bytes, made whole again and freed by the callback.
        unsafe {
            Self::new(base, len, |base, len| {
                drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(base.as_ptr(), len)));
            })
        }
    }
}

impl std::fmt::Debug for External {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("External")
            .field("base", &self.base)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn memory_that_a_port_knows_is_not_freed() {
        let freed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&freed);
        let bytes = Box::leak(vec![0_u8; 64].into_boxed_slice());
        // SAFETY: a leaked box of 64 bytes that nobody else uses.
        let external = unsafe {
            External::new(NonNull::from(bytes).cast(), 64, move |base, bytes| {
                // SAFETY: the box from above.
                drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(base.as_ptr(), bytes)));
                told.store(true, Ordering::Relaxed);
            })
        };
        let mut rest = external;
        let front = rest.split_to(16).expect("there are so many");
        let memory = rest.memory();
        assert_eq!(
            (memory.base(), memory.bytes()),
            (front.base(), 64),
            "all of it, whichever part was asked"
        );
        drop(front);
        assert!(rest.is_sole(), "who knows the memory is no part of the buffer");
        drop(rest);
        assert!(!freed.load(Ordering::Relaxed));
        drop(memory.clone());
        assert!(!freed.load(Ordering::Relaxed));
        drop(memory);
        assert!(freed.load(Ordering::Relaxed));
    }
}
