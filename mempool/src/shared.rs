//! What all handles of one pool share: the per-slot caches over the back end, and the pool's end of life.
//!
//! # Life and death
//! A pool is *closed* when its last handle goes. Objects may be out then, so the memory stays until each is home.
//! From there on nothing can be taken out, so objects at home only grow in number, and the pool is reclaimed when
//! their sum over back end and caches is the capacity. Two things make that sum trustworthy:
//! - the fast path of a put touches the pool last with the store (Release) that publishes the cache's new length, and then
//!   looks, beside the pool, whether it is closed, and takes the sum itself if so;
//! - everything slower, which moves objects between cache and back end, stands between the marks of a [`passage`]. The
//!   reclaimer takes a sum only if no passage was open before it and none was entered until after it.
#![expect(unsafe_code, reason = "hands out and takes back pieces of pinned memory")]

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use pollux_eal::slot;

use crate::area::{Area, Places};
use crate::audit::{Fault, Watch};
use crate::backend::{Backend, Store};
use crate::cache::{Caches, Moves, PLACES, Room, SlotCache, bump, copy_objects};
use crate::event::PoolInfo;
use crate::external::Owner;
use crate::mbuf::header::{Header, Lengths};
use crate::{Object, PoolError};

mod give;
mod handle;
pub(crate) mod passage;

pub(crate) use handle::Handle;
use passage::Passages;

/// What an mbuf pool adds: how its objects are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MbufShape {
    /// The lengths that a fresh mbuf gets.
    pub(crate) fresh: Lengths,
    /// Bytes of data room, headroom included.
    pub(crate) room: u32,
    pub(crate) private_bytes: u32,
    /// Bytes from header to data room; not used when data lies apart.
    pub(crate) room_at: u32,
}

#[repr(C)]
pub(crate) struct Shared {
    // What the fast path reads, in lines that nobody writes while the pool lives.
    pub(crate) shape: MbufShape,
    caches: Caches,
    /// A put that would bring the cache above this goes the slow way. 0 for a pool without caches.
    put_limit: usize,
    cache_size: u32,
    pub(crate) id: u16,
    /// How objects are copied here.
    pub(crate) moves: Moves,

    // The rest is read and written off the fast path.
    pub(crate) info: Arc<PoolInfo>,
    pub(crate) capacity: usize,
    pub(crate) object_bytes: usize,
    pub(crate) places: Places,
    /// Where the data rooms lie, if not behind the headers.
    pub(crate) rooms: Option<Places>,
    store: Store,
    pub(crate) backend: Backend,
    pub(crate) watch: Option<Watch>,
    externals: OnceLock<Box<[ExternalSlot]>>,
    handles: CachePadded<AtomicUsize>,
    passages: Passages,
    /// Gets that failed on threads without a slot.
    pub(crate) shared_failures: AtomicU64,
    pub(crate) overflows: AtomicU64,
}

/// The owner of the external buffer that an mbuf shows. Only whoever owns the mbuf touches its slot.
#[derive(Default)]
pub(crate) struct ExternalSlot(UnsafeCell<Option<Arc<Owner>>>);

// SAFETY: a slot is touched by the owner of its mbuf only (`Shared::set_external`), and `Arc<Owner>` is `Send`.
unsafe impl Sync for ExternalSlot {}

/// What a pool is made from.
pub struct Plan {
    pub(crate) name: String,
    pub(crate) capacity: usize,
    /// Bytes from an object's start to what lies behind it; guard bytes come there.
    pub(crate) object_bytes: usize,
    pub(crate) stride: usize,
    pub(crate) align: usize,
    pub(crate) cache_size: usize,
    pub(crate) backend: Backend,
    pub(crate) watched: bool,
    /// What an mbuf pool adds.
    pub(crate) mbuf: Option<MbufPlan>,
}

/// What an mbuf pool adds to its plan.
pub(crate) struct MbufPlan {
    pub(crate) shape: MbufShape,
    /// Memory for data that lies apart, and the bytes of each piece of it.
    pub(crate) apart: Option<(Vec<Area>, usize)>,
}

impl Shared {
    /// Lays objects out over `areas` and runs `construct(index, address)` on each.
    pub(crate) fn new(
        plan: Plan,
        areas: Vec<Area>,
        id: u16,
        mut construct: impl FnMut(usize, NonNull<u8>),
    ) -> Result<Box<Self>, PoolError> {
        let Plan { name, capacity, object_bytes, stride, align, cache_size, backend, watched, mbuf } = plan;
        let lay = |areas, stride, align| {
            Places::lay(areas, capacity, stride, align).map_err(|fit| PoolError::AreasTooSmall {
                name: name.clone(),
                fit,
                count: capacity,
                stride,
            })
        };
        let places = lay(areas, stride, align)?;
        let (shape, apart) = mbuf.map(|mbuf| (mbuf.shape, mbuf.apart)).unzip();
        let rooms = apart.flatten().map(|(areas, bytes)| lay(areas, bytes, 1)).transpose()?;
        let store = Store::new(backend, capacity).map_err(|source| PoolError::Backend {
            name: name.clone(),
            count: capacity,
            source,
        })?;
        let regions = places.describe(rooms.is_none()).chain(rooms.iter().flat_map(|at| at.describe(true)));
        let info = PoolInfo { id, regions: regions.collect(), name: name.clone(), mbufs: shape.is_some() };
        // What is watched goes through the back end each time.
        let cache_size = if watched { 0 } else { cache_size };
        let unused = MbufShape { fresh: Lengths::fresh(0), room: 0, private_bytes: 0, room_at: 0 };
        let shared = Box::new(Self {
            shape: shape.unwrap_or(unused),
            caches: Caches::new(),
            put_limit: cache_size + cache_size / 2,
            cache_size: cache_size as u32,
            id,
            moves: Moves::best(),
            info: Arc::new(info),
            capacity,
            object_bytes,
            places,
            rooms,
            store,
            backend,
            watch: watched.then(|| Watch::new(capacity, object_bytes, stride - object_bytes)),
            externals: OnceLock::new(),
            handles: CachePadded::new(AtomicUsize::new(1)),
            passages: Passages::default(),
            shared_failures: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
        });
        // A stack gives the last one first, a ring the first one.
        let stacked = backend == Backend::Stack;
        for at in 0..capacity {
            let index = if stacked { capacity - 1 - at } else { at };
            let address = shared.places.address(index);
            if shape.is_some() {
                let room = shared.data_room(index);
                // SAFETY: `stride` bytes at `address` are the pool's, aligned to 64 as `align` and `stride` are.
                unsafe { Header::construct(address, id, index as u32, room, shared.shape.room) };
            }
            construct(index, address);
            if let Some(watch) = &shared.watch {
                watch.arm(address);
            }
            shared.store.give(&[Object(address)]);
        }
        Ok(shared)
    }

    /// The data room of mbuf `index`.
    pub(crate) fn data_room(&self, index: usize) -> NonNull<u8> {
        match &self.rooms {
            Some(rooms) => rooms.address(index),
            // SAFETY: the room is inside the object.
            None => unsafe { self.places.address(index).add(self.shape.room_at as usize) },
        }
    }

    /// Index of the object whose bytes, data that lies apart included, `address` is one of.
    pub(crate) fn index_of(&self, address: usize) -> Option<usize> {
        let in_rooms = || self.rooms.as_ref().and_then(|rooms| rooms.index_of(address));
        self.places.index_of(address).or_else(in_rooms)
    }

    /// Sets the owner of the external buffer that mbuf `index` shows, and gives back the last one.
    ///
    /// # Safety
    /// The caller owns the mbuf.
    pub(crate) unsafe fn set_external(&self, index: usize, owner: Option<Arc<Owner>>) -> Option<Arc<Owner>> {
        let slots =
            self.externals.get_or_init(|| (0..self.capacity).map(|_| ExternalSlot::default()).collect());
        // SAFETY: the caller owns the mbuf and so its slot.
        unsafe { std::mem::replace(&mut *slots[index].0.get(), owner) }
    }

    /// Takes `count` objects: where they lie, or `None` if there are not so many. On the fast path that is the calling
    /// thread's cache, else they were put at `spare`.
    ///
    /// # Safety
    /// `spare` is valid for writes of `count` objects. The result is read before this thread uses the pool again. A
    /// handle of the pool is held.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, spare: *mut Object, count: usize) -> Option<*const Object> {
        if let Some(cache) = self.caches.own() {
            // SAFETY: the cache is this thread's (it holds the slot), so nobody else writes it.
            unsafe {
                let len = (*cache).len.own();
                if count <= len {
                    let rest = len - count;
                    (*cache).len.lower(rest);
                    return Some(SlotCache::objects(cache).add(rest));
                }
            }
        }
        // SAFETY: passed on.
        unsafe { self.take_slow(spare, count) }.then_some(spare.cast_const())
    }

    /// Takes an object, if there is one.
    ///
    /// # Safety
    /// A handle of the pool is held.
    #[inline(always)]
    pub(crate) unsafe fn take_one(&self) -> Option<Object> {
        // SAFETY: the cache is this thread's (it holds the slot), so nobody else writes it; objects below its length are there.
        unsafe {
            if let Some(cache) = self.caches.own()
                && let Some(rest) = (*cache).len.own().checked_sub(1)
            {
                (*cache).len.lower(rest);
                return Some(*SlotCache::objects(cache).add(rest));
            }
        }
        let mut spare = Object(NonNull::dangling());
        // SAFETY: there is room for one; passed on.
        unsafe { self.take_slow(&mut spare, 1) }.then_some(spare)
    }

    /// # Safety
    /// As for [`take`](Self::take).
    #[cold]
    #[inline(never)]
    unsafe fn take_slow(&self, to: *mut Object, count: usize) -> bool {
        let _passage = self.passages.enter();
        let size = self.cache_size as usize;
        // SAFETY: `to` has room for `count` (caller); the cache is this thread's, and `len <= PLACES` always.
        unsafe {
            let cache = match self.caches.own() {
                Some(cache) if size > 0 => cache,
                _ => {
                    let done = count == 0 || self.fetch(to, count, count) == count;
                    if !done {
                        self.shared_failures.fetch_add(1, Ordering::Relaxed);
                    }
                    return done;
                }
            };
            let len = (*cache).len.own();
            let objects = SlotCache::objects(cache);
            bump(&(*cache).refills);
            let missing = count - len;
            if count <= size {
                // Up to the nominal size after the objects asked for are gone: as far from the next refill as from
                // the next flush.
                let got = self.fetch(objects.add(len), missing, (size + missing).min(PLACES - len));
                if got > 0 {
                    let rest = len + got - count;
                    copy_objects(self.moves, objects.add(rest), to, count);
                    (*cache).len.publish(rest);
                    return true;
                }
            } else if self.fetch(to.add(len), missing, missing) == missing {
                copy_objects(self.moves, objects, to, len);
                (*cache).len.publish(0);
                return true;
            }
            bump(&(*cache).failures);
            false
        }
    }

    /// Takes from the back end, past all caches: between `least` and `most` objects, or none.
    ///
    /// # Safety
    /// `to` is valid for writes of `most` objects. A handle of the pool is held.
    pub(crate) unsafe fn fetch(&self, to: *mut Object, least: usize, most: usize) -> usize {
        // SAFETY: passed on.
        let count = unsafe { self.store.take(to, least, most) };
        if let Some(watch) = &self.watch {
            // SAFETY: so many were written.
            for object in unsafe { std::slice::from_raw_parts(to, count) } {
                if let Some(index) = self.places.index_of(object.0.as_ptr().addr()) {
                    watch.take(&self.info.name, index, object.0);
                }
            }
        }
        count
    }

    /// As [`fetch`](Self::fetch), on behalf of whoever holds a handle.
    ///
    /// # Safety
    /// As for [`fetch`](Self::fetch).
    pub(crate) unsafe fn fetch_counted(&self, to: *mut Object, least: usize, most: usize) -> usize {
        let _passage = self.passages.enter();
        // SAFETY: passed on.
        let count = unsafe { self.fetch(to, least, most) };
        if count < least {
            self.shared_failures.fetch_add(1, Ordering::Relaxed);
        }
        count
    }

    /// How many objects the calling thread can take just now.
    pub(crate) fn within_reach(&self) -> usize {
        // SAFETY: reads the length of this thread's cache.
        let cached = self.caches.own().map_or(0, |cache| unsafe { (*cache).len.own() });
        cached + self.store.count()
    }

    /// Where `count` objects may be written on the calling thread's cache, if they find room there; they count once
    /// they are published.
    #[inline(always)]
    pub(crate) fn room(&self, count: usize) -> Option<Room> {
        let cache = self.caches.own()?;
        // SAFETY: the cache is this thread's; `put_limit <= PLACES` bounds what is written.
        unsafe {
            let len = (*cache).len.own();
            (len + count <= self.put_limit).then(|| Room {
                cache,
                to: SlotCache::objects(cache).add(len),
                len: len + count,
                pool: self.id,
            })
        }
    }

    /// Puts objects to the back end, past all caches, on behalf of whoever holds a handle.
    ///
    /// # Safety
    /// As for [`give`](Self::give).
    pub(crate) unsafe fn give_past_caches(&self, objects: &[Object]) {
        let _passage = self.passages.enter();
        self.settle(objects);
    }

    fn settle(&self, objects: &[Object]) {
        if let Some(watch) = &self.watch {
            for object in objects {
                if self.may_come_home(watch, *object) {
                    self.store.give(&[*object]);
                }
            }
            return;
        }
        let fit = self.store.give(objects);
        if fit < objects.len() {
            // More came back than the pool has: somebody gave an object back twice through the unsafe API.
            self.overflows.fetch_add((objects.len() - fit) as u64, Ordering::Relaxed);
        }
    }

    fn may_come_home(&self, watch: &Watch, object: Object) -> bool {
        let address = object.0.as_ptr().addr();
        let index = self.places.index_of(address).filter(|index| self.places.address(*index) == object.0);
        let Some(index) = index else {
            watch.report(&self.info.name, Fault::Foreign { address });
            return false;
        };
        // SAFETY: a place of this pool; mbuf pools have headers there.
        if self.info.mbufs && !unsafe { Header::is_whole(object.0, self.id, index as u32) } {
            watch.report(&self.info.name, Fault::HeaderOverwritten { index });
            return false;
        }
        watch.give(&self.info.name, index, object.0)
    }

    /// Objects at home: in the back end and in all caches. While others work this is a passing figure.
    pub(crate) fn at_home(&self) -> usize {
        self.caches.len() + self.store.count()
    }

    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    pub(crate) fn cache_size(&self) -> usize {
        self.cache_size as usize
    }

    /// Moves what a slot's cache holds to the back end.
    ///
    /// # Safety
    /// The calling thread holds `slot`.
    pub(crate) unsafe fn flush(&self, slot: usize) {
        let _passage = self.passages.enter();
        // SAFETY: the cache is this thread's (caller), and `len` objects in it are valid.
        unsafe {
            let cache = self.caches.of(slot);
            let len = (*cache).len.own();
            self.settle(std::slice::from_raw_parts(SlotCache::objects(cache), len));
            (*cache).len.publish(0);
        }
    }

    /// Moves what the calling thread's cache holds to the back end.
    pub(crate) fn flush_own(&self) {
        if let Some(slot) = slot::current() {
            // SAFETY: the slot is this thread's.
            unsafe { self.flush(slot) };
        }
    }

    /// Looks at the guards of all objects, where the pool is watched, and gives all misuse that was caught so far.
    pub(crate) fn audit(&self) -> Vec<Fault> {
        self.watch.as_ref().map_or_else(Vec::new, |watch| {
            watch.audit(&self.info.name, |index| self.places.address(index));
            watch.faults()
        })
    }

    /// Whether every object of this closed pool is home and no thread is inside it any more.
    pub(crate) fn may_go(&self) -> bool {
        self.passages.none_while(|| self.at_home() == self.capacity)
    }
}
