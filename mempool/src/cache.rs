//! The cache that each slot has in each pool.
#![expect(unsafe_code, reason = "one thread writes what others may look at")]

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
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
    /// Those below `len` are there. In a cell: the holder of the slot writes them while others look at the rest.
    objects: UnsafeCell<[MaybeUninit<Object>; PLACES]>,
}

impl SlotCache {
    #[inline(always)]
    pub(crate) fn objects(this: *const Self) -> *mut Object {
        // SAFETY: `this` points into a cache array, so the field is in bounds; no reference is made.
        unsafe { UnsafeCell::raw_get(&raw const (*this).objects).cast() }
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
        // SAFETY: the layout's size is not zero. All-zero bytes are a valid `SlotCache`.
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
/// Not `memcpy`: which moves it uses depends on how the two places lie, and what was stored by one kind of move, or
/// across two lines, is slow to load by another, as a get after a put does. The same program took 0.6 or 1.4 cycles an
/// object, as its stack happened to lie. Moves of half a line, always in the same order, take 0.45.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub(crate) unsafe fn copy_objects(from: *const Object, to: *mut Object, count: usize) {
    let mut at = 0;
    // SAFETY: passed on; each object is copied once.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if count >= LINE {
            at = count - count % LINE;
            // A branch, as a call through a pointer costs more than the wide moves save.
            if std::arch::is_x86_feature_detected!("avx") {
                copy_lines_wide(from, to, at);
            } else {
                copy_lines(from, to, at);
            }
        }
        while at < count {
            to.add(at).write(from.add(at).read());
            // The empty assembly keeps the compiler from making the loop `memcpy`.
            std::arch::asm!("", options(nostack, preserves_flags));
            at += 1;
        }
    }
}

/// Copies whole lines by moves of half a line.
///
/// # Safety
/// As for [`copy_objects`]; `count` is a multiple of `LINE`, and the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy_lines_wide(from: *const Object, to: *mut Object, count: usize) {
    let mut at = 0;
    // Assembly, since a function compiled for AVX cannot be inlined into one that is not.
    // SAFETY: the caller's promise; `LINE` objects are two moves of 32 bytes.
    unsafe {
        while at < count {
            std::arch::asm!(
                "vmovdqu ymm0, [{from}]",
                "vmovdqu ymm1, [{from} + 32]",
                "vmovdqu [{to}], ymm0",
                "vmovdqu [{to} + 32], ymm1",
                from = in(reg) from.add(at),
                to = in(reg) to.add(at),
                out("ymm0") _,
                out("ymm1") _,
                options(nostack, preserves_flags),
            );
            at += LINE;
        }
        // Moves of older kinds are slow while upper halves are in use. All of those are lost, which matters where this
        // is inlined into code compiled for AVX.
        std::arch::asm!(
            "vzeroupper",
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack, nomem, preserves_flags),
        );
    }
}

/// Copies whole lines by moves of 16 bytes, which every processor has.
///
/// # Safety
/// As for [`copy_objects`]; `count` is a multiple of `LINE`.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn copy_lines(from: *const Object, to: *mut Object, count: usize) {
    let mut at = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while at < count {
            to.add(at).cast::<[Object; LINE]>().write(from.add(at).cast::<[Object; LINE]>().read());
            std::arch::asm!("", options(nostack, preserves_flags));
            at += LINE;
        }
    }
}

/// Addresses in a cache line.
const LINE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: usize) -> Object {
        Object(NonNull::without_provenance(std::num::NonZero::new(number).expect("not zero")))
    }

    type Copy = unsafe fn(*const Object, *mut Object, usize);

    fn copies_just_so_many(copy: Copy, counts: impl Iterator<Item = usize> + Clone) {
        let from: Vec<_> = (1..=100).map(object).collect();
        for (skip_from, skip_to) in (0..9).flat_map(|from| (0..9).map(move |to| (from, to))) {
            for count in counts.clone() {
                let mut to = vec![object(1000); 100];
                // SAFETY: both vectors reach `count` past the places skipped.
                unsafe { copy(from.as_ptr().add(skip_from), to.as_mut_ptr().add(skip_to), count) };
                let (before, rest) = to.split_at(skip_to);
                let (copied, after) = rest.split_at(count);
                assert_eq!(copied, &from[skip_from..skip_from + count]);
                assert!(before.iter().chain(after).all(|other| *other == object(1000)), "{count} too many");
            }
        }
    }

    #[test]
    fn so_many_objects_are_copied_and_no_more() {
        copies_just_so_many(copy_objects, 0..80);
    }

    #[test]
    fn lines_are_copied_by_narrow_moves_alike() {
        copies_just_so_many(copy_lines, (0..80).step_by(LINE));
    }
}
