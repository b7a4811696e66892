//! The cache that each slot has in each pool.
#![expect(unsafe_code, reason = "one thread writes what others may look at")]

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_eal::slot;

use crate::Object;
use length::Length;

pub(crate) mod length;

/// Largest cache that a pool may have per slot.
pub const CACHE_MAX: usize = 512;
/// Places in a cache: it may grow to one and a half times its nominal size before it is flushed.
pub(crate) const PLACES: usize = CACHE_MAX + CACHE_MAX / 2;

/// The cache of one slot. Only the thread that holds the slot writes it; anyone may read `len` and the counters.
#[repr(C, align(128))]
pub(crate) struct SlotCache {
    pub(crate) len: Length,
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
        slot::current().map(|slot| in_register(self.of(slot)))
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
        self.sum(|cache| cache.len.sum() as u64) as usize
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
    pub(crate) len: usize,
    pub(crate) pool: u16,
}

/// Adds one to a counter that only this thread writes.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// The same address, which the compiler takes for one it cannot compute: it stays in one register rather than being added up
/// in each load and store. See [`Length`].
#[expect(clippy::pointers_in_nomem_asm_block, reason = "what it points to is not touched")]
#[inline(always)]
fn in_register(mut cache: *mut SlotCache) -> *mut SlotCache {
    // SAFETY: no instruction.
    unsafe {
        std::arch::asm!("/* {} */", inout(reg) cache, options(pure, nomem, nostack, preserves_flags));
    }
    cache
}

/// Addresses in a cache line.
const LINE: usize = 8;
/// Lines that are copied without a look at the count.
const BLOCK: usize = 4 * LINE;

/// The moves by which whole lines of addresses are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    /// Of 16 bytes, which every processor has.
    Narrow,
    /// Of half a line.
    #[cfg(target_arch = "x86_64")]
    Half,
    /// Of a line.
    #[cfg(target_arch = "x86_64")]
    Line,
}

impl Moves {
    /// The widest that this processor has, that it may use and that cost it nothing.
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use pollux_eal::processor::Processor;
            use pollux_eal::simd::allows;
            use std::arch::is_x86_feature_detected as has;
            // The first processors with AVX-512 lower their clock when it is used; those that have VBMI, too, do not. AMD's hand
            // on what was stored sooner by half lines: a round of 32 takes 12.1 cycles on family 1Ah (Zen 5), by lines 14.4; family
            // 19h (Zen 4) makes two halves of a line anyway.
            let amd = Processor::first().is_some_and(|processor| processor.vendor == "AuthenticAMD");
            if allows(512) && has!("avx512f") && has!("avx512vbmi") && !amd {
                return Self::Line;
            }
            if allows(256) && has!("avx") {
                return Self::Half;
            }
        }
        Self::Narrow
    }
}

/// Copies addresses between places that do not overlap.
///
/// Not `memcpy`: which moves it uses depends on how the two places lie, and what was stored by one kind of move, or
/// across two lines, is slow to load by another, as a get after a put does. Here the same moves are used in the same order
/// always, and wide ones: what a put stores and the next get loads is handed on move by move, each some 7 cycles.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`], and the processor has these `moves` ([`Moves::best`]).
#[inline(always)]
pub(crate) unsafe fn copy_objects(moves: Moves, from: *const Object, to: *mut Object, count: usize) {
    let mut at = 0;
    // SAFETY: passed on; each object is copied once.
    unsafe {
        if count >= LINE {
            at = count - count % LINE;
            // A branch, as a call through a pointer costs more than the wide moves save.
            match moves {
                #[cfg(target_arch = "x86_64")]
                Moves::Line => x86::copy_by_lines(from, to, at),
                #[cfg(target_arch = "x86_64")]
                Moves::Half => x86::copy_by_halves(from, to, at),
                Moves::Narrow => copy_narrow(from, to, at),
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

/// Copies whole lines by moves of 16 bytes.
///
/// # Safety
/// As for [`copy_objects`]; `count` is a multiple of `LINE`.
#[inline(never)]
unsafe fn copy_narrow(from: *const Object, to: *mut Object, count: usize) {
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

/// In assembly, since a function compiled for AVX cannot be inlined into one that is not.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, LINE, Object};

    /// Runs the lines with `from` and `to`; registers 16 to 19 are lost.
    macro_rules! move_upper {
        ($from:expr, $to:expr, $($line:literal),+) => {
            std::arch::asm!(
                $($line),+,
                from = in(reg) $from, to = in(reg) $to,
                out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
                options(nostack, preserves_flags),
            )
        };
    }

    /// Runs the lines with `from` and `to`; registers 0 to 3 are lost.
    macro_rules! move_lower {
        ($from:expr, $to:expr, $($line:literal),+) => {
            std::arch::asm!(
                $($line),+,
                from = in(reg) $from, to = in(reg) $to,
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                options(nostack, preserves_flags),
            )
        };
    }

    /// Registers from 16 on do not slow down moves of older kinds, so there is nothing to clean up.
    ///
    /// # Safety
    /// As for [`copy_objects`](super::copy_objects); `count` is a multiple of `LINE`, and the processor has AVX-512.
    #[inline(always)]
    pub(super) unsafe fn copy_by_lines(from: *const Object, to: *mut Object, count: usize) {
        let mut at = 0;
        // SAFETY: the caller's promise; a block is four moves of 64 bytes, a line one.
        unsafe {
            while at + BLOCK <= count {
                move_upper!(
                    from.add(at),
                    to.add(at),
                    "vmovdqu64 zmm16, [{from}]",
                    "vmovdqu64 zmm17, [{from} + 64]",
                    "vmovdqu64 [{to}], zmm16",
                    "vmovdqu64 [{to} + 64], zmm17",
                    "vmovdqu64 zmm18, [{from} + 128]",
                    "vmovdqu64 zmm19, [{from} + 192]",
                    "vmovdqu64 [{to} + 128], zmm18",
                    "vmovdqu64 [{to} + 192], zmm19"
                );
                at += BLOCK;
            }
            while at < count {
                move_upper!(from.add(at), to.add(at), "vmovdqu64 zmm16, [{from}]", "vmovdqu64 [{to}], zmm16");
                at += LINE;
            }
        }
    }

    /// # Safety
    /// As for [`copy_objects`](super::copy_objects); `count` is a multiple of `LINE`, and the processor has AVX.
    #[inline(always)]
    pub(super) unsafe fn copy_by_halves(from: *const Object, to: *mut Object, count: usize) {
        let mut at = 0;
        // SAFETY: the caller's promise; a block is eight moves of 32 bytes, a line two.
        unsafe {
            while at + BLOCK <= count {
                move_lower!(
                    from.add(at),
                    to.add(at),
                    "vmovdqu ymm0, [{from}]",
                    "vmovdqu ymm1, [{from} + 32]",
                    "vmovdqu [{to}], ymm0",
                    "vmovdqu [{to} + 32], ymm1",
                    "vmovdqu ymm2, [{from} + 64]",
                    "vmovdqu ymm3, [{from} + 96]",
                    "vmovdqu [{to} + 64], ymm2",
                    "vmovdqu [{to} + 96], ymm3",
                    "vmovdqu ymm0, [{from} + 128]",
                    "vmovdqu ymm1, [{from} + 160]",
                    "vmovdqu [{to} + 128], ymm0",
                    "vmovdqu [{to} + 160], ymm1",
                    "vmovdqu ymm2, [{from} + 192]",
                    "vmovdqu ymm3, [{from} + 224]",
                    "vmovdqu [{to} + 192], ymm2",
                    "vmovdqu [{to} + 224], ymm3"
                );
                at += BLOCK;
            }
            while at < count {
                move_lower!(
                    from.add(at),
                    to.add(at),
                    "vmovdqu ymm0, [{from}]",
                    "vmovdqu ymm1, [{from} + 32]",
                    "vmovdqu [{to}], ymm0",
                    "vmovdqu [{to} + 32], ymm1"
                );
                at += LINE;
            }
            // Moves of older kinds are slow while upper halves are in use. All of those are lost, which matters where
            // this is inlined into code compiled for AVX.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: usize) -> Object {
        Object(NonNull::without_provenance(std::num::NonZero::new(number).expect("not zero")))
    }

    fn copies_just_so_many(moves: Moves) {
        let from: Vec<_> = (1..=200).map(object).collect();
        for (skip_from, skip_to) in (0..9).flat_map(|from| (0..9).map(move |to| (from, to))) {
            for count in 0..140 {
                let mut to = vec![object(1000); 200];
                // SAFETY: both vectors reach `count` past the places skipped; the caller asked the processor.
                unsafe {
                    copy_objects(moves, from.as_ptr().add(skip_from), to.as_mut_ptr().add(skip_to), count)
                };
                let (before, rest) = to.split_at(skip_to);
                let (copied, after) = rest.split_at(count);
                assert_eq!(copied, &from[skip_from..skip_from + count]);
                assert!(before.iter().chain(after).all(|other| *other == object(1000)), "{count} too many");
            }
        }
    }

    #[test]
    fn so_many_objects_are_copied_and_no_more() {
        copies_just_so_many(Moves::Narrow);
        copies_just_so_many(Moves::best());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn and_by_each_of_the_wider_moves() {
        use std::arch::is_x86_feature_detected as has;
        let able = [(Moves::Half, has!("avx")), (Moves::Line, has!("avx512f"))];
        for (moves, able) in able {
            if able {
                copies_just_so_many(moves);
            } else {
                eprintln!("skipped: {moves:?}: the processor has no such moves");
            }
        }
    }
}
