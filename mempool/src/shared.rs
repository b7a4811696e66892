//! What all handles of one pool share: the per-slot caches over the back end, and the pool's end of life.
//!
//! # Life and death
//! A pool is *closed* when its last handle goes. Objects may be out then, so the memory stays until each is home.
//! From there on nothing can be taken out, so objects at home only grow in number, and the pool is reclaimed when
//! their sum over back end and caches is the capacity. Two things make that sum trustworthy:
//! - the fast path of a put touches the pool last with the store (Release) that publishes the cache's new length;
//! - everything slower, which moves objects between cache and back end, stands between [`Passage`] marks. The
//!   reclaimer takes a sum only if no passage was open before it and none was entered until after it.
#![expect(unsafe_code, reason = "hands out and takes back pieces of pinned memory")]

use std::alloc::Layout;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use pollux_eal::region::Zone;
use pollux_eal::slot;

use crate::PoolError;
use crate::backend::{Backend, Object, Store};
use crate::mbuf::header::Lengths;

/// Largest cache that a pool may have per slot.
pub const CACHE_MAX: usize = 512;
/// Places in a cache: it may grow to one and a half times its nominal size before it is flushed.
const PLACES: usize = CACHE_MAX + CACHE_MAX / 2;
/// How many pools may live at once in the process.
pub const POOLS_MAX: usize = 1 << 16;

/// The cache of one slot. Only the thread that holds the slot writes it; anyone may read `len`.
#[repr(C, align(128))]
pub(crate) struct SlotCache {
    len: AtomicU32,
    /// Refills from the back end, flushes to it, gets that failed: counted off the fast path.
    refills: AtomicU64,
    flushes: AtomicU64,
    failures: AtomicU64,
    _pad: [u64; 4],
    objects: [Object; PLACES],
}

impl SlotCache {
    #[inline(always)]
    fn objects(this: *const Self) -> *mut Object {
        // SAFETY: `this` points into the pool's cache array, so the field is in bounds; no reference is made.
        unsafe { (&raw const (*this).objects).cast_mut().cast() }
    }
}

/// Room on the calling thread's cache.
pub(crate) struct Places {
    cache: *mut SlotCache,
    pub(crate) to: *mut Object,
    len: u32,
}

impl Places {
    /// Makes the objects that were written count.
    ///
    /// # Safety
    /// All of them were written, and the pool was not used by this thread since [`Shared::places`]. If the pool is
    /// closed it is not used afterwards.
    #[inline(always)]
    pub(crate) unsafe fn publish(self) {
        // Release: whoever sums up the caches of a closed pool sees the objects there, and that this thread is done
        // with the pool.
        // SAFETY: the cache is this thread's, of a pool that lives until here (caller).
        unsafe { (*self.cache).len.store(self.len, Ordering::Release) };
    }
}

/// What an mbuf pool adds: how its objects are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MbufShape {
    /// The lengths that a fresh mbuf gets.
    pub(crate) fresh: Lengths,
    pub(crate) room: u32,
    pub(crate) private_bytes: u32,
    /// Bytes from header to data room.
    pub(crate) room_at: u32,
}

/// A run of objects that lie one after another.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) base: NonNull<u8>,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

pub(crate) struct Shared {
    // What the fast path reads, in one cache line that nobody writes while the pool lives.
    caches: NonNull<SlotCache>,
    /// A put that would bring the cache above this goes the slow way. 0 for a pool without caches or a closed one.
    put_limit: AtomicU32,
    pub(crate) id: u16,
    cache_size: u32,
    pub(crate) shape: MbufShape,

    // The rest is read and written off the fast path.
    pub(crate) name: String,
    pub(crate) capacity: usize,
    pub(crate) stride: usize,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) zones: Vec<Zone>,
    store: Store,
    pub(crate) backend: Backend,
    handles: CachePadded<AtomicUsize>,
    entered: CachePadded<AtomicU64>,
    left: CachePadded<AtomicU64>,
    shared_failures: AtomicU64,
    overflows: AtomicU64,
}

// SAFETY: the raw pointers name memory that `Shared` owns. Cache entries are touched by the slot's holder only
// (`slot_cache`), everything else is atomic, locked or never written after construction.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

static POOLS: [AtomicPtr<Shared>; POOLS_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; POOLS_MAX];

/// Which pools are closed. Beside the pools, so that a thread may look after it has left one for good.
static CLOSED: [AtomicBool; POOLS_MAX] = [const { AtomicBool::new(false) }; POOLS_MAX];

struct Registry {
    /// Numbers of the pools that live, closed ones included.
    live: Vec<u16>,
    /// Numbers that live or are about to.
    taken: BTreeSet<u16>,
    next: u16,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { live: Vec::new(), taken: BTreeSet::new(), next: 0 });

/// A pool number that no pool has yet; given back unless the pool opens.
struct Number(u16);

impl Number {
    fn reserve() -> Option<Self> {
        let mut registry = registry();
        if registry.taken.len() == POOLS_MAX {
            return None;
        }
        let mut id = registry.next;
        while !registry.taken.insert(id) {
            id = id.wrapping_add(1);
        }
        // Numbers go round, so that a stale one is noticed rather than taken for a new pool's.
        registry.next = id.wrapping_add(1);
        Some(Self(id))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        registry().taken.remove(&self.0);
    }
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The number of the pool that this thread last brought an mbuf home to.
    static LAST: Cell<u16> = const { Cell::new(0) };
}

/// The pool with number `id`.
///
/// An mbuf taken right after one was freed waits for the cache's new length, and finding that cache from the freed mbuf
/// is a chain of five loads. So the chain starts from a guess, which a branch checks: the processor goes on with the
/// guess while the mbuf's header is still on its way. Measured for one mbuf at a time: 29 TSC cycles without, 9 with.
///
/// # Safety
/// The caller holds an object of that pool that is out, so the pool lives; the reference is not used after the object
/// has gone home.
#[inline(always)]
pub(crate) unsafe fn pool_of_object<'a>(id: u16) -> &'a Shared {
    LAST.with(|last| {
        if last.get() != id {
            last.set(id);
        }
        // SAFETY: a cell of this thread. Volatile, so that the compiler does not see that it can only be `id`.
        let id = unsafe { last.as_ptr().read_volatile() };
        // Relaxed is enough: whoever gave the caller the object made the pool visible with it.
        // SAFETY: an object is out, so the pool is neither reclaimed nor its entry cleared (caller).
        unsafe { &*POOLS[id as usize].load(Ordering::Relaxed) }
    })
}

/// Marks a time in which objects move between caches and back end. See the module's head.
struct Passage<'a>(&'a Shared);

impl<'a> Passage<'a> {
    fn enter(shared: &'a Shared) -> Self {
        shared.entered.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}

/// What a pool is made from.
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) capacity: usize,
    pub(crate) stride: usize,
    pub(crate) cache_size: usize,
    pub(crate) backend: Backend,
    pub(crate) shape: MbufShape,
}

impl Shared {
    /// Lays objects out over `zones`, runs `construct(index, address, pool number)` on each and opens the pool.
    pub(crate) fn open(
        plan: Plan,
        zones: Vec<Zone>,
        mut construct: impl FnMut(usize, NonNull<u8>, u16),
    ) -> Result<Handle, PoolError> {
        let Plan { name, capacity, stride, cache_size, backend, shape } = plan;
        let mut chunks = Vec::new();
        let mut placed = 0;
        for zone in &zones {
            let count = (zone.bytes() / stride).min(capacity - placed);
            if count > 0 {
                chunks.push(Chunk { base: zone.base(), first: placed, count });
                placed += count;
            }
        }
        if placed < capacity {
            return Err(PoolError::ZonesTooSmall { name, fit: placed, count: capacity, stride });
        }

        let layout = Layout::array::<SlotCache>(slot::SLOTS).expect("a small constant");
        // SAFETY: the layout's size is not zero. All-zero bytes are a valid `SlotCache` but for `objects`, which are
        // only read below `len`, after they were written.
        let caches = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }.cast::<SlotCache>())
            .unwrap_or_else(|| std::alloc::handle_alloc_error(layout));

        let mut shared = Box::new(Self {
            caches,
            put_limit: AtomicU32::new((cache_size + cache_size / 2) as u32),
            id: 0,
            cache_size: cache_size as u32,
            shape,
            name,
            capacity,
            stride,
            chunks,
            zones,
            store: Store::new(backend, capacity),
            backend,
            handles: CachePadded::new(AtomicUsize::new(1)),
            entered: CachePadded::new(AtomicU64::new(0)),
            left: CachePadded::new(AtomicU64::new(0)),
            shared_failures: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
        });

        slot::on_release(flush_slot);
        reclaim_closed();
        let Some(number) = Number::reserve() else {
            return Err(PoolError::TooManyPools { name: shared.name.clone(), limit: POOLS_MAX });
        };
        let id = number.0;
        shared.id = id;
        for index in (0..capacity).rev() {
            let address = shared.address(index);
            construct(index, address, id);
            shared.store.give(&[Object(address)]);
        }
        std::mem::forget(number);
        let shared = NonNull::from(Box::leak(shared));
        POOLS[id as usize].store(shared.as_ptr(), Ordering::Release);
        registry().live.push(id);
        Ok(Handle(shared))
    }

    /// Address of object `index`.
    pub(crate) fn address(&self, index: usize) -> NonNull<u8> {
        let at = self.chunks.partition_point(|chunk| chunk.first <= index) - 1;
        let chunk = &self.chunks[at];
        // SAFETY: `index - first < count` objects of `stride` bytes lie in the chunk's zone (`open`).
        unsafe { chunk.base.add((index - chunk.first) * self.stride) }
    }

    /// The data room of mbuf `index`.
    pub(crate) fn room(&self, index: usize) -> NonNull<u8> {
        // SAFETY: the room is inside the object.
        unsafe { self.address(index).add(self.shape.room_at as usize) }
    }

    /// Index of the object whose bytes `address` lies in.
    pub(crate) fn index_of(&self, address: usize) -> Option<usize> {
        self.chunks.iter().find_map(|chunk| {
            let offset = address.checked_sub(chunk.base.as_ptr().addr())?;
            let index = offset / self.stride;
            (index < chunk.count).then_some(chunk.first + index)
        })
    }

    /// The calling thread's cache.
    #[inline(always)]
    fn slot_cache(&self) -> Option<*mut SlotCache> {
        // SAFETY: a slot is below `SLOTS`, the length of the array.
        slot::current().map(|slot| unsafe { self.caches.as_ptr().add(slot) })
    }

    /// Takes `count` objects: where they lie, or `None` if there are not so many. On the fast path that is the calling
    /// thread's cache, else they were put at `spare`.
    ///
    /// # Safety
    /// `spare` is valid for writes of `count` objects. The result is read before this thread uses the pool again. A
    /// handle of the pool is held.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, spare: *mut Object, count: usize) -> Option<*const Object> {
        if let Some(cache) = self.slot_cache() {
            // SAFETY: the cache is this thread's (it holds the slot), so nobody else writes it.
            unsafe {
                let len = (*cache).len.load(Ordering::Relaxed) as usize;
                if count <= len {
                    let rest = len - count;
                    (*cache).len.store(rest as u32, Ordering::Release);
                    return Some(SlotCache::objects(cache).add(rest));
                }
            }
        }
        // SAFETY: passed on.
        unsafe { self.take_slow(spare, count) }.then_some(spare.cast_const())
    }

    /// # Safety
    /// As for [`take`](Self::take).
    #[cold]
    #[inline(never)]
    unsafe fn take_slow(&self, to: *mut Object, count: usize) -> bool {
        let _passage = Passage::enter(self);
        let size = self.cache_size as usize;
        // SAFETY: `to` has room for `count` (caller); the cache is this thread's, and `len <= PLACES` always.
        unsafe {
            let cache = match self.slot_cache() {
                Some(cache) if size > 0 => cache,
                _ => {
                    let done = count == 0 || self.store.take(to, count, count) == count;
                    if !done {
                        self.shared_failures.fetch_add(1, Ordering::Relaxed);
                    }
                    return done;
                }
            };
            let len = (*cache).len.load(Ordering::Relaxed) as usize;
            let objects = SlotCache::objects(cache);
            bump(&(*cache).refills);
            let missing = count - len;
            if count <= size {
                // Up to the nominal size after the objects asked for are gone: as far from the next refill as from
                // the next flush.
                let got = self.store.take(objects.add(len), missing, (size + missing).min(PLACES - len));
                if got > 0 {
                    let rest = len + got - count;
                    std::ptr::copy_nonoverlapping(objects.add(rest), to, count);
                    (*cache).len.store(rest as u32, Ordering::Release);
                    return true;
                }
            } else if self.store.take(to.add(len), missing, missing) == missing {
                std::ptr::copy_nonoverlapping(objects, to, len);
                (*cache).len.store(0, Ordering::Release);
                return true;
            }
            bump(&(*cache).failures);
            false
        }
    }

    /// How many objects the calling thread can take just now.
    pub(crate) fn within_reach(&self) -> usize {
        // SAFETY: reads the length of this thread's cache.
        let cached = self.slot_cache().map_or(0, |cache| unsafe { (*cache).len.load(Ordering::Relaxed) });
        cached as usize + self.store.count()
    }

    /// Where `count` objects may be written on the calling thread's cache, if they find room there; they count once
    /// [`publish`](Self::publish) is called.
    #[inline(always)]
    pub(crate) fn places(&self, count: usize) -> Option<Places> {
        let cache = self.slot_cache()?;
        // SAFETY: the cache is this thread's; `put_limit <= PLACES` bounds what is written.
        unsafe {
            let len = (*cache).len.load(Ordering::Relaxed) as usize;
            (len + count <= self.put_limit.load(Ordering::Relaxed) as usize).then(|| Places {
                cache,
                to: SlotCache::objects(cache).add(len),
                len: (len + count) as u32,
            })
        }
    }

    /// Puts `count` objects back.
    ///
    /// # Safety
    /// The objects are of this pool, out, and the caller's; they are not used afterwards. If the pool is closed,
    /// `self` is not used afterwards either.
    #[inline(always)]
    pub(crate) unsafe fn give(&self, objects: *const Object, count: usize) {
        match self.places(count) {
            // SAFETY: `places` has room for `count`, and all are written before they are published.
            Some(places) => unsafe {
                copy_objects(objects, places.to, count);
                places.publish();
            },
            // SAFETY: passed on.
            None => unsafe { self.give_slow(objects, count) },
        }
    }

    /// # Safety
    /// As for [`give`](Self::give).
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn give_slow(&self, objects: *const Object, count: usize) {
        let passage = Passage::enter(self);
        let id = self.id;
        // SAFETY: the caller's objects.
        let objects = unsafe { std::slice::from_raw_parts(objects, count) };
        let size = self.cache_size as usize;
        let closed = self.is_closed();
        match self.slot_cache() {
            // SAFETY: the cache is this thread's, `keep <= len <= PLACES`, and `keep + count <= 1.5 * size`.
            Some(cache) if size > 0 && count <= size && !closed => unsafe {
                let len = (*cache).len.load(Ordering::Relaxed) as usize;
                let at = SlotCache::objects(cache);
                bump(&(*cache).flushes);
                // Keep the most recently used half: its memory is the warmest.
                let keep = len.min(size / 2);
                self.store_give(std::slice::from_raw_parts(at, len - keep));
                std::ptr::copy(at.add(len - keep), at, keep);
                copy_objects(objects.as_ptr(), at.add(keep), count);
                (*cache).len.store((keep + count) as u32, Ordering::Release);
            },
            _ => self.store_give(objects),
        }
        drop(passage);
        // `self` may be gone from here on.
        if CLOSED[id as usize].load(Ordering::SeqCst) {
            reclaim_closed();
        }
    }

    fn store_give(&self, objects: &[Object]) {
        let fit = self.store.give(objects);
        if fit < objects.len() {
            // More came back than the pool has: somebody gave an object back twice through the unsafe doors.
            self.overflows.fetch_add((objects.len() - fit) as u64, Ordering::Relaxed);
        }
    }

    fn is_closed(&self) -> bool {
        CLOSED[self.id as usize].load(Ordering::SeqCst)
    }

    /// Objects at home: in the back end and in all caches. While others work this is a passing figure.
    pub(crate) fn at_home(&self) -> usize {
        self.cached() + self.store.count()
    }

    /// Objects in the caches of all slots.
    pub(crate) fn cached(&self) -> usize {
        (0..slot::SLOTS)
            // SAFETY: in bounds; `len` is atomic.
            .map(|slot| unsafe { (*self.caches.as_ptr().add(slot)).len.load(Ordering::Acquire) as usize })
            .sum()
    }

    /// Moves what a slot's cache holds to the back end.
    ///
    /// # Safety
    /// The calling thread holds `slot`.
    unsafe fn flush(&self, slot: usize) {
        let _passage = Passage::enter(self);
        // SAFETY: the cache is this thread's (caller), and `len` objects in it are valid.
        unsafe {
            let cache = self.caches.as_ptr().add(slot);
            let len = (*cache).len.load(Ordering::Relaxed) as usize;
            self.store_give(std::slice::from_raw_parts(SlotCache::objects(cache), len));
            (*cache).len.store(0, Ordering::Release);
        }
    }

    /// Moves what the calling thread's cache holds to the back end.
    pub(crate) fn flush_own(&self) {
        if let Some(slot) = slot::current() {
            // SAFETY: the slot is this thread's.
            unsafe { self.flush(slot) };
        }
    }

    /// Whether every object of this closed pool is home and no thread is inside it any more.
    fn may_go(&self) -> bool {
        if !self.is_closed() {
            return false;
        }
        // SeqCst with `CLOSED`: a thread that leaves either is seen here to have left, or sees that the pool is closed
        // and tries again itself.
        let left = self.left.load(Ordering::SeqCst);
        if self.entered.load(Ordering::SeqCst) != left || self.at_home() != self.capacity {
            return false;
        }
        // A passage whose effect the sum has seen was entered before that effect was published (Release in its
        // stores, Acquire in our loads), so it shows here.
        self.entered.load(Ordering::Acquire) == left
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let layout = Layout::array::<SlotCache>(slot::SLOTS).expect("a small constant");
        // SAFETY: allocated in `open` with this layout.
        unsafe { std::alloc::dealloc(self.caches.as_ptr().cast(), layout) };
    }
}

/// Adds one to a counter that only this thread writes.
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Copies addresses between places that do not overlap.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
pub(crate) unsafe fn copy_objects(from: *const Object, to: *mut Object, count: usize) {
    // SAFETY: passed on.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count) };
}

/// The hook of `eal::slot`: runs on a thread that is about to give its slot back.
fn flush_slot(slot: usize) {
    let registry = registry();
    for &id in &registry.live {
        // SAFETY: a live pool's entry points to it, and only `reclaim_closed` ends it, under this lock. The calling
        // thread holds the slot (`slot::on_release`).
        unsafe { (*POOLS[id as usize].load(Ordering::Acquire)).flush(slot) };
    }
    drop(registry);
    reclaim_closed();
}

/// Ends every closed pool whose objects are all home.
#[cold]
pub(crate) fn reclaim_closed() {
    let (mut gone, mut ended) = (Vec::new(), Vec::new());
    let mut registry = registry();
    registry.live.retain(|&id| {
        let entry = &POOLS[id as usize];
        let shared = entry.load(Ordering::Acquire);
        // SAFETY: a live pool's entry points to it, and only this function ends it, under the registry's lock.
        let may_go = unsafe { (*shared).may_go() };
        if may_go {
            CLOSED[id as usize].store(false, Ordering::SeqCst);
            entry.store(std::ptr::null_mut(), Ordering::Release);
            ended.push(id);
            // SAFETY: made by `Box::leak` in `open`. No handle and no object is out, and no thread is inside.
            gone.push(unsafe { Box::from_raw(shared) });
        }
        !may_go
    });
    for id in ended {
        registry.taken.remove(&id);
    }
    drop(registry);
    // Unmapping takes its time: not under the lock.
    drop(gone);
}

/// A counted hold on a pool: while one exists, objects can be taken out.
pub(crate) struct Handle(NonNull<Shared>);

// SAFETY: `Shared` is `Send` and `Sync`, and the count is atomic.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// A new handle of a pool found by number, if it still has one.
    ///
    /// # Safety
    /// As for [`pool_of_object`].
    pub(crate) unsafe fn of_object(id: u16) -> Option<Self> {
        // SAFETY: passed on.
        let shared = unsafe { pool_of_object(id) };
        shared
            .handles
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count > 0).then_some(count + 1))
            .is_ok()
            .then(|| Self(NonNull::from(shared)))
    }
}

impl std::ops::Deref for Handle {
    type Target = Shared;

    #[inline(always)]
    fn deref(&self) -> &Shared {
        // SAFETY: the pool lives while a handle exists.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.handles.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // From here on no put may rest in a cache: each goes the slow way, which tries to reclaim.
        self.put_limit.store(0, Ordering::Relaxed);
        // The pool may be gone once it is marked closed: nothing of it is touched afterwards.
        CLOSED[self.id as usize].store(true, Ordering::SeqCst);
        reclaim_closed();
    }
}
