//! The cache that each slot has in each pool.
#![expect(unsafe_code, reason = "one thread writes what others may look at")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pollux_eal::slot;

use crate::Object;

/// Largest cache that a pool may have per slot.
pub const CACHE_MAX: usize = 512;
/// Places in a cache: it may grow to one and a half times its nominal size before it is flushed.
pub(crate) const PLACES: usize = CACHE_MAX + CACHE_MAX / 2;

/// The cache of one slot. Only the thread that holds the slot writes it; anyone may read `len` and the counters.
#[repr(C, align(128))]
pub(crate) struct SlotCache {
    pub(crate) len: AtomicU32,
    pub(crate) refills: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) failures: AtomicU64,
    _to_its_own_line: [u64; 4],
    objects: [Object; PLACES],
}

impl SlotCache {
    #[inline(always)]
    pub(crate) fn objects(this: *const Self) -> *mut Object {
        // SAFETY: `this` points into a cache array, so the field is in bounds; no reference is made.
        unsafe { (&raw const (*this).objects).cast_mut().cast() }
    }
}

/// The caches of all slots in one pool.
#[derive(Debug)]
pub(crate) struct Caches(NonNull<SlotCache>);

// SAFETY: an entry is written by the holder of its slot only (`own`); all else about it is atomic.
unsafe impl Send for Caches {}
// SAFETY: as above.
unsafe impl Sync for Caches {}

impl Caches {
    fn layout() -> Layout {
        Layout::array::<SlotCache>(slot::SLOTS).expect("a small constant")
    }

    pub(crate) fn new() -> Self {
        let layout = Self::layout();
        // Zeroed memory costs nothing until a slot uses its part.
        // SAFETY: the layout's size is not zero. All-zero bytes are a valid `SlotCache` but for `objects`, which are
        // only read below `len`, after they were written.
        let caches = unsafe { std::alloc::alloc_zeroed(layout) }.cast();
        Self(NonNull::new(caches).unwrap_or_else(|| std::alloc::handle_alloc_error(layout)))
    }

    /// The calling thread's cache.
    #[inline(always)]
    pub(crate) fn own(&self) -> Option<*mut SlotCache> {
        slot::current().map(|slot| self.of(slot))
    }

    #[inline(always)]
    pub(crate) fn of(&self, slot: usize) -> *mut SlotCache {
        // SAFETY: a slot is below `SLOTS`, the length of the array.
        unsafe { self.0.as_ptr().add(slot) }
    }

    /// Sums a figure of all slots.
    pub(crate) fn sum(&self, figure: impl Fn(&SlotCache) -> u64) -> u64 {
        // SAFETY: the entry is valid, and `figure` can reach its atomic fields only, the rest being private here.
        (0..slot::SLOTS).map(|slot| figure(unsafe { &*self.of(slot) })).sum()
    }

    /// Objects in all caches.
    pub(crate) fn len(&self) -> usize {
        self.sum(|cache| cache.len.load(Ordering::Acquire).into()) as usize
    }
}

impl Drop for Caches {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.0.as_ptr().cast(), Self::layout()) };
    }
}

/// Room on the calling thread's cache.
pub(crate) struct Room {
    pub(crate) cache: *mut SlotCache,
    pub(crate) to: *mut Object,
    pub(crate) len: u32,
}

impl Room {
    /// Makes the objects that were written count.
    ///
    /// # Safety
    /// All of them were written, and the pool was not used by this thread since `Shared::room`. If the pool is closed it
    /// is not used afterwards.
    #[inline(always)]
    pub(crate) unsafe fn publish(self) {
        // Release: whoever sums up the caches of a closed pool sees the objects there, and that this thread is done
        // with the pool.
        // SAFETY: the cache is this thread's, of a pool that lives until here (caller).
        unsafe { (*self.cache).len.store(self.len, Ordering::Release) };
    }
}

/// Adds one to a counter that only this thread writes.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Copies addresses between places that do not overlap.
///
/// Not `memcpy`: its wide moves straddle cache lines when an array on the stack starts in the middle of one, and what was
/// stored across two lines is slow to load again, as a get after a put does. The same program took 0.6 or 1.4 cycles an
/// object, as its stack happened to lie.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub(crate) unsafe fn copy_objects(from: *const Object, to: *mut Object, count: usize) {
    let mut at = 0;
    // SAFETY: passed on; each object is copied once. The empty assembly keeps the compiler from making it `memcpy`.
    unsafe {
        while at + LINE <= count {
            to.add(at).cast::<[Object; LINE]>().write(from.add(at).cast::<[Object; LINE]>().read());
            std::arch::asm!("", options(nostack, preserves_flags));
            at += LINE;
        }
        while at < count {
            to.add(at).write(from.add(at).read());
            std::arch::asm!("", options(nostack, preserves_flags));
            at += 1;
        }
    }
}

/// Addresses in a cache line.
const LINE: usize = 8;
