//! Where a ring lives: memory of its own, or a region that it was given.
#![expect(
    unsafe_code,
    reason = "allocates the ring, maps it onto given memory, and moves elements as raw memory"
)]

use crate::error::RingError;
use crate::header::{Header, Kind, Plan};
use crate::index::{Seq, Want};
use crate::order;
use crate::primitive::{AtomicU32, Ordering};
use std::alloc::{self, Layout};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Data that any process may read from memory it shares with others.
///
/// Implemented for the integers, the floats and arrays of them.
///
/// # Safety
/// Every bit pattern is a value, and none of it is a pointer, a reference or anything else that has a meaning in one
/// process only. The layout is the same in every program that maps the ring (`#[repr(C)]` or `transparent`).
pub unsafe trait Plain: Copy + Send + 'static {}

macro_rules! plain {
    ($($number:ty)*) => { $(
        // SAFETY: a number has no padding, no pointer, and takes every bit pattern.
        unsafe impl Plain for $number {}
    )* };
}
plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);
// SAFETY: an array is its elements side by side.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Returns the size of a region for a ring of `capacity` elements, in bytes.
///
/// # Errors
/// [`RingError::Capacity`] when no ring can be that large.
pub fn region_bytes<T>(capacity: usize) -> Result<usize, RingError> {
    Ok(Header::layout::<T>(capacity)?.0.size())
}

/// Returns the alignment of a region for a ring of `T`, in bytes.
#[must_use]
pub const fn region_align<T>() -> usize {
    if align_of::<T>() > align_of::<Header>() { align_of::<T>() } else { align_of::<Header>() }
}

/// Memory for a ring, and the owner that keeps it mapped.
pub struct RegionSpan {
    base: NonNull<u8>,
    bytes: usize,
    keeper: Keeper,
}

type Keeper = Box<dyn Any + Send + Sync>;

impl RegionSpan {
    /// `bytes` of memory at `base`. `keeper` is dropped after the last end of the ring in this process: give it the
    /// owner of the memory, or `()` when the memory lives long enough anyway.
    ///
    /// # Safety
    /// As long as `keeper` is not dropped, the memory is mapped, initialised, readable and writable, and accessed only
    /// through ends of a ring of this crate, in this process or another. Whoever lays a new ring there (`in_region`)
    /// or resets one sees to it that no other ends of a ring in that memory are left.
    ///
    /// Another process that breaks this can make an end give elements that nobody put ([`Plain`] makes them values all the
    /// same), find the ring full or empty, and wait for ever; no call reaches past the ring's memory by what stands in it.
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, keeper: impl Any + Send + Sync) -> RegionSpan {
        RegionSpan { base, bytes, keeper: Box::new(keeper) }
    }

    fn check<T>(&self, capacity: usize) -> Result<usize, RingError> {
        let (layout, slots_at) = Header::layout::<T>(capacity)?;
        let (bytes, needed) = (self.bytes, layout.size());
        if bytes < needed { Err(RingError::RegionTooSmall { bytes, capacity, needed }) } else { Ok(slots_at) }
    }

    fn check_align<T>(&self) -> Result<(), RingError> {
        let (address, align) = (self.base.as_ptr() as usize, region_align::<T>());
        if address.is_multiple_of(align) { Ok(()) } else { Err(RingError::Misaligned { address, align }) }
    }
}

impl fmt::Debug for RegionSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionSpan({:p}, {} bytes)", self.base, self.bytes)
    }
}

enum Owner {
    Heap(Layout),
    Region { _keeper: Keeper },
}

/// The memory of a ring; the last end drops it, and with it the elements left inside.
struct Memory<T> {
    header: NonNull<Header>,
    slots: NonNull<T>,
    capacity: usize,
    kind: Kind,
    owner: Owner,
    /// How many ends there are. `Arc`'s own count says so too, but to see it go down is not to see what the end did before.
    ends: AtomicU32,
    #[cfg(loom)]
    shadow: Shadow,
}

impl<T> Memory<T> {
    fn mask(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "Header::layout bounds the slots by 2^31")]
        let slots = self.capacity.next_power_of_two() as u32;
        slots - 1
    }

    /// The elements that are left when nobody is at work: where the first is, and how many there are.
    fn inside(&self) -> (Seq, usize) {
        // SAFETY: the header was written when the memory was made.
        let header = unsafe { self.header.as_ref() };
        let from = header.consumer.taken(self.kind, order::left_inside());
        (from, header.producer.published(order::left_inside()).since(from) as usize)
    }

    /// Drops elements in place.
    ///
    /// # Safety
    /// So many slots from there on hold elements that are the caller's, and nobody looks at them afterwards.
    unsafe fn drop_elements(&self, (from, count): (Seq, usize)) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        for offset in 0..count {
            // SAFETY: the caller's promise; the mask keeps the index inside.
            unsafe { ptr::drop_in_place(self.slots.as_ptr().add(from.plus(offset).slot(self.mask()))) };
        }
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        let Owner::Heap(layout) = self.owner else { return };
        // SAFETY: this was the last end (`Arc` saw to it), so what was published and not moved out is ours. The memory
        // came from one allocation of `layout` in `Core::heap`, where the header was written, and is given up here.
        unsafe {
            self.drop_elements(self.inside());
            ptr::drop_in_place(self.header.as_ptr());
            alloc::dealloc(self.header.as_ptr().cast(), layout);
        }
    }
}

/// What each end has of its ring: the hot constants, and a share in the memory.
pub(crate) struct Core<T> {
    header: NonNull<Header>,
    slots: NonNull<T>,
    mask: u32,
    capacity: u32,
    memory: Arc<Memory<T>>,
    /// Elements go in by one end and come out by the other, so the life of what they borrow can be neither shortened here nor
    /// lengthened there.
    _invariant: PhantomData<fn(T) -> T>,
}

// SAFETY: a core is a shared handle. Everything in the header that is written after set-up is atomic; elements are
// moved only by the ends, each of which claims slots for itself before touching them, so an element changes threads
// (`T: Send`) but is never seen by two.
unsafe impl<T: Send> Send for Core<T> {}
// SAFETY: as above; a shared core gives access to the header's atomics, and to slots by unsafe functions only.
unsafe impl<T: Send> Sync for Core<T> {}

impl<T> Clone for Core<T> {
    fn clone(&self) -> Self {
        self.memory.ends.fetch_add(1, Ordering::Relaxed);
        Core { memory: Arc::clone(&self.memory), ..*self }
    }
}

impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        self.memory.ends.fetch_sub(1, order::end());
    }
}

impl<T> Core<T> {
    /// A ring in memory of its own.
    pub(crate) fn heap(plan: &Plan) -> Result<Core<T>, RingError> {
        let (layout, slots_at) = Header::layout::<T>(plan.capacity)?;
        // SAFETY: the layout is not of size zero, it has a header.
        let base = unsafe { alloc::alloc(layout) };
        let base = NonNull::new(base).ok_or(RingError::NoMemory { bytes: layout.size() })?;
        // SAFETY: fresh memory of that layout.
        Ok(unsafe { Self::lay(base, slots_at, plan, Owner::Heap(layout)) })
    }

    /// A new ring in a region.
    pub(crate) fn region(plan: &Plan, span: RegionSpan) -> Result<Core<T>, RingError>
    where
        T: Plain,
    {
        span.check_align::<T>()?;
        let slots_at = span.check::<T>(plan.capacity)?;
        // SAFETY: checked to be large enough and aligned; whoever made the span promised that it is ours.
        Ok(unsafe { Self::lay(span.base, slots_at, plan, Owner::Region { _keeper: span.keeper }) })
    }

    /// The ring that somebody has laid in the region.
    pub(crate) fn attach(kind: Kind, span: RegionSpan) -> Result<Core<T>, RingError>
    where
        T: Plain,
    {
        span.check_align::<T>()?;
        let (bytes, needed) = (span.bytes, size_of::<Header>());
        if bytes < needed {
            return Err(RingError::RegionTooSmall { bytes, capacity: 0, needed });
        }
        // SAFETY: aligned, large enough and initialised, as whoever made the span promised; every field of a header is
        // an integer, so any bytes will do, and no other thread writes but through atomics.
        let capacity = unsafe { span.base.cast::<Header>().as_ref() }.check::<T>(kind)?;
        let slots_at = span.check::<T>(capacity)?;
        // SAFETY: the header stands at `base`, and the slots end inside the region.
        Ok(unsafe { Self::over(span.base, slots_at, kind, capacity, Owner::Region { _keeper: span.keeper }) })
    }

    /// # Safety
    /// `base` is aligned and has room for the header and slots of the plan, and nobody else uses it.
    unsafe fn lay(base: NonNull<u8>, slots_at: usize, plan: &Plan, owner: Owner) -> Core<T> {
        // SAFETY: as promised by the caller.
        unsafe {
            base.cast::<Header>().write(Header::new::<T>(plan));
            base.cast::<Header>().as_ref().announce();
            Self::over(base, slots_at, plan.kind, plan.capacity, owner)
        }
    }

    /// # Safety
    /// A header of `capacity` stands at `base`, and its slots `slots_at` bytes on.
    unsafe fn over(base: NonNull<u8>, slots_at: usize, kind: Kind, capacity: usize, owner: Owner) -> Core<T> {
        // SAFETY: as promised by the caller, this is inside the same allocation.
        let slots = unsafe { base.add(slots_at) }.cast::<T>();
        let memory = Memory {
            header: base.cast(),
            slots,
            capacity,
            kind,
            owner,
            ends: AtomicU32::new(1),
            #[cfg(loom)]
            shadow: Shadow::new(capacity.next_power_of_two()),
        };
        #[expect(clippy::cast_possible_truncation, reason = "Header::layout bounds the capacity by 2^31")]
        let capacity = capacity as u32;
        Core {
            header: base.cast(),
            slots,
            mask: memory.mask(),
            capacity,
            memory: Arc::new(memory),
            _invariant: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header stands there as long as `memory` lives, and is only ever changed through its atomics.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many of `count` elements can be moved at once by any positions: those may be written by another process, and no
    /// claim may reach past the slots for that.
    #[inline(always)]
    pub(crate) fn at_once(&self, count: usize, want: Want) -> usize {
        want.of(count, self.capacity as usize)
    }

    /// Where the consumer is when the ring is full with the producer at `seq`.
    pub(crate) fn full_at(&self, seq: Seq) -> Seq {
        seq.minus(self.capacity)
    }

    /// Elements inside, as a moment saw them; exact when nobody else is at work.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        // The consumers' position first: producers may run on in between, but no consumer passes what we read after.
        let from = self.header().consumer.published(order::count());
        let count = self.header().producer.published(order::count()).since(from);
        count.min(self.capacity) as usize
    }

    /// Moves `count` elements from `src` into the slots from `to` on.
    ///
    /// # Safety
    /// The caller has claimed those slots, which hold nothing; `src` has `count` elements, which it forgets.
    #[inline(always)]
    pub(crate) unsafe fn copy_in(&self, to: Seq, src: *const T, count: usize) {
        #[cfg(loom)]
        self.memory.shadow.touch(to, count);
        let slot = to.slot(self.mask);
        let straight = self.slot_count() - slot;
        // SAFETY: the slots from `slot` to the end, then those from 0 on; the claim is at most the capacity, so they
        // do not overlap each other. The caller's elements lie elsewhere.
        unsafe {
            if count == 1 || count <= straight {
                copy(src, self.slots.as_ptr().add(slot), count);
            } else {
                ptr::copy_nonoverlapping(src, self.slots.as_ptr().add(slot), straight);
                ptr::copy_nonoverlapping(src.add(straight), self.slots.as_ptr(), count - straight);
            }
        }
    }

    /// Moves `count` elements out of the slots from `from` on, to `dst`.
    ///
    /// # Safety
    /// The caller has claimed those slots, which hold elements; `dst` has room for `count`.
    #[inline(always)]
    pub(crate) unsafe fn copy_out(&self, from: Seq, dst: *mut T, count: usize) {
        #[cfg(loom)]
        self.memory.shadow.touch(from, count);
        let slot = from.slot(self.mask);
        let straight = self.slot_count() - slot;
        // SAFETY: as in `copy_in`.
        unsafe {
            if count == 1 || count <= straight {
                copy(self.slots.as_ptr().add(slot), dst, count);
            } else {
                ptr::copy_nonoverlapping(self.slots.as_ptr().add(slot), dst, straight);
                ptr::copy_nonoverlapping(self.slots.as_ptr(), dst.add(straight), count - straight);
            }
        }
    }

    /// Asks for a line of slots some way ahead, for an end that goes through them one by one from `at`: a line takes
    /// as long to come as many elements take to move. Only slots that are this end's by `room`: others are in use.
    #[inline(always)]
    pub(crate) fn ask_ahead(&self, at: Seq, room: usize, write: bool) {
        let slots_per_line = const { LINE / slot_bytes::<T>() };
        if size_of::<T>() == 0 || slots_per_line == 0 {
            return;
        }
        let ahead = LINES_AHEAD * slots_per_line;
        if room > ahead && at.get() as usize & (slots_per_line - 1) == 0 {
            // SAFETY: the mask keeps the index inside.
            let slot = unsafe { self.slots.add(at.plus(ahead).slot(self.mask)) };
            if write { ask_to_write(slot.as_ptr()) } else { ask_to_read(slot.as_ptr()) }
        }
    }

    /// The `count` slots from `from` on: up to the end of the storage, and from its start.
    pub(crate) fn spans(&self, from: Seq, count: usize) -> [(NonNull<T>, usize); 2] {
        #[cfg(loom)]
        self.memory.shadow.touch(from, count);
        let slot = from.slot(self.mask);
        let first = count.min(self.slot_count() - slot);
        // SAFETY: the mask keeps `slot` inside the storage.
        [(unsafe { self.slots.add(slot) }, first), (self.slots, count - first)]
    }

    #[inline(always)]
    fn slot_count(&self) -> usize {
        self.mask as usize + 1
    }

    /// How many ends share this memory. What those that are gone did to the ring happened before.
    pub(crate) fn holders(&self) -> usize {
        self.memory.ends.load(order::ends()) as usize
    }

    pub(crate) fn is_same(&self, other: &Core<T>) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Empties the ring and puts both sides back to zero, whatever was claimed.
    ///
    /// # Safety
    /// The caller holds every end exclusively.
    pub(crate) unsafe fn reset(&self) {
        let kind = self.memory.kind;
        let inside = self.memory.inside();
        self.header().producer.restart(kind, Seq::new(0));
        self.header().consumer.restart(kind, Seq::new(0));
        // SAFETY: nobody else is at work, and no position leads to these elements any more, even if a drop panics.
        unsafe { self.memory.drop_elements(inside) };
    }

    /// One line for an end's `Debug`.
    pub(crate) fn dump(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (producer, consumer) = (&self.header().producer, &self.header().consumer);
        let load = |word: &crate::primitive::AtomicU64| {
            format_args!("{:#x}", word.load(Ordering::Relaxed)).to_string()
        };
        f.debug_struct(name)
            .field("capacity", &self.capacity)
            .field("count", &self.count())
            .field("element_bytes", &size_of::<T>())
            .field("producer_head", &load(&producer.head))
            .field("producer_tail", &load(&producer.tail))
            .field("consumer_head", &load(&consumer.head))
            .field("consumer_tail", &load(&consumer.tail))
            .finish()
    }
}

const LINE: usize = 64;

/// Eight lines on their way hide the time each takes; fewer do not, and more gain nothing.
const LINES_AHEAD: usize = 8;

/// An element as a part of a line.
const fn slot_bytes<T>() -> usize {
    if size_of::<T>() == 0 { 1 } else { size_of::<T>().next_power_of_two() }
}

/// Has the line brought here for reading.
#[inline(always)]
fn ask_to_read<T>(_slot: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    // SAFETY: a hint that reads nothing, and every x86-64 processor has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(_slot.cast());
    }
}

/// Has the line brought here for writing, so that no other core has it any more.
#[inline(always)]
fn ask_to_write<T>(_slot: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    // SAFETY: a hint that changes nothing. Written out, since the intrinsic becomes a prefetch for reading where the
    // target is not known to have PREFETCHW; 64-bit processors without it take it for a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) _slot, options(nostack, preserves_flags));
    }
}

/// Copies up to this many bytes in line; a call of memcpy costs as much as that.
const INLINE_BYTES: usize = 512;

/// Copies as wide moves, in line while it is short: a burst's length is often known where this is inlined.
///
/// # Safety
/// As for `ptr::copy_nonoverlapping`.
#[inline(always)]
unsafe fn copy<T>(src: *const T, dst: *mut T, count: usize) {
    let bytes = count * size_of::<T>();
    if bytes > INLINE_BYTES {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(src, dst, count) };
        return;
    }
    let (src, dst) = (src.cast::<u8>(), dst.cast::<u8>());
    let mut at = 0;
    // SAFETY: every step copies bytes `at..at + step` with `at + step <= bytes`: `at` is a multiple of 64 in the loop,
    // and the rest below 64 is the sum of the powers of two that are set in `bytes`.
    unsafe {
        while at + 64 <= bytes {
            ptr::copy_nonoverlapping(src.add(at), dst.add(at), 64);
            at += 64;
        }
        macro_rules! rest {
            ($($step:literal)*) => { $(
                if bytes & $step != 0 {
                    ptr::copy_nonoverlapping(src.add(at), dst.add(at), $step);
                    at += $step;
                }
            )* };
        }
        rest!(32 16 8 4 2 1);
    }
    debug_assert_eq!(at, bytes);
}

/// One tracked cell a slot, so that loom sees the accesses to elements, which are raw memory to it.
#[cfg(loom)]
struct Shadow {
    cells: Vec<loom::cell::UnsafeCell<()>>,
    tick: AtomicU32,
}

#[cfg(loom)]
impl Shadow {
    fn new(slots: usize) -> Shadow {
        let cells = (0..slots).map(|_| loom::cell::UnsafeCell::new(())).collect();
        Shadow { cells, tick: AtomicU32::new(0) }
    }

    /// An exclusive access: elements are moved in or out.
    fn touch(&self, from: Seq, count: usize) {
        // Loom's clock of a thread goes on with its atomic accesses only. Without this one, what is touched after a swap
        // that releases would bear that swap's time, and whoever acquires the swap would seem to have seen it.
        self.tick.load(Ordering::Relaxed);
        for offset in 0..count {
            self.cells[from.plus(offset).slot(self.cells.len() as u32 - 1)].with_mut(|_| ());
        }
    }
}
