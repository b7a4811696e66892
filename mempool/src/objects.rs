//! Pools of objects of any fixed size.
#![expect(unsafe_code, reason = "hands out and takes back pieces of pinned memory")]

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use pollux_eal::memory::Memory;
use pollux_eal::topology::SocketId;

use crate::audit::{Fault, GUARD_BYTES};
use crate::cache::copy_objects;
use crate::pool::COUNT_MAX;
use crate::pool::builder::{From, cache_size, check, obtain};
use crate::shared::{Handle, Plan, Shared};
use crate::stats::{PoolStats, stats};
use crate::user_cache::UserCache;
use crate::{Area, Backend, Object, PoolError, PoolRegion};

/// Largest object in bytes.
pub const OBJECT_BYTES_MAX: usize = 1 << 30;
/// Largest alignment of objects.
const ALIGN_MAX: usize = 4096;

/// A pool of objects of one size, each a piece of pinned memory that the pool only hands out and takes back. Clones are
/// handles of the same pool; objects that are out when the last handle goes keep the memory.
///
/// [`MbufPool`](crate::MbufPool) is this with mbufs in it.
#[derive(Clone)]
pub struct ObjectPool(Handle);

type Construct = Box<dyn FnMut(usize, NonNull<u8>)>;

/// What an object pool is made from; see [`ObjectPool::builder`].
#[must_use]
pub struct ObjectPoolBuilder {
    name: String,
    object_bytes: usize,
    count: usize,
    align: usize,
    cache: Option<usize>,
    backend: Backend,
    debug: bool,
    socket: Option<SocketId>,
    construct: Option<Construct>,
}

impl ObjectPoolBuilder {
    /// The alignment of each object, a power of two; a cache line (64) if not set, so that no two share one.
    pub fn align(mut self, bytes: usize) -> Self {
        self.align = bytes;
        self
    }

    /// Objects that each slot's cache holds nominally; as [`MbufPoolBuilder::cache`](crate::MbufPoolBuilder::cache).
    pub fn cache(mut self, count: usize) -> Self {
        self.cache = Some(count);
        self
    }

    /// The structure behind the caches.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Watches for objects that come back twice or are written out of bounds ([`ObjectPool::faults`]). Slow: no caches
    /// are used.
    pub fn debug(mut self, on: bool) -> Self {
        self.debug = on;
        self
    }

    /// The NUMA node that the memory is to be on.
    pub fn socket(mut self, socket: Option<SocketId>) -> Self {
        self.socket = socket;
        self
    }

    /// Runs once on each object, with its index and address, when the pool is made.
    pub fn constructor(mut self, construct: impl FnMut(usize, NonNull<u8>) + 'static) -> Self {
        self.construct = Some(Box::new(construct));
        self
    }

    fn stride(&self) -> usize {
        let guard = if self.debug { GUARD_BYTES } else { 0 };
        (self.object_bytes + guard).next_multiple_of(self.align)
    }

    fn check(&self) -> Result<usize, PoolError> {
        let check = |what, value, least, most| check(&self.name, what, value, least, most);
        check("number of objects", self.count, 1, COUNT_MAX)?;
        check("object size", self.object_bytes, 1, OBJECT_BYTES_MAX)?;
        if !self.align.is_power_of_two() {
            let what = "alignment (a power of two)";
            return Err(PoolError::OutOfRange {
                name: self.name.clone(),
                what,
                value: self.align,
                least: 1,
                most: ALIGN_MAX,
            });
        }
        check("alignment", self.align, 1, ALIGN_MAX)?;
        cache_size(&self.name, self.cache, self.count)
    }

    /// Makes the pool in `memory`.
    ///
    /// # Errors
    /// When a size is out of range, the memory cannot be had, or there are too many pools.
    pub fn build(self, memory: &Memory) -> Result<ObjectPool, PoolError> {
        self.check()?;
        let area = obtain(&self.name, self.count, self.stride(), &From::Memory(memory, self.socket))?;
        self.build_over(vec![area])
    }

    /// Makes the pool in ordinary pages of its own.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_anonymous(self) -> Result<ObjectPool, PoolError> {
        self.check()?;
        let area = obtain(&self.name, self.count, self.stride(), &From::Anonymous)?;
        self.build_over(vec![area])
    }

    /// Makes the pool in memory given, which it owns from then on. Each area takes as many objects as fit.
    ///
    /// # Errors
    /// When a size is out of range, the areas are too small, or there are too many pools.
    pub fn build_over(self, areas: Vec<Area>) -> Result<ObjectPool, PoolError> {
        let cache_size = self.check()?;
        let stride = self.stride();
        let plan = Plan {
            name: self.name,
            capacity: self.count,
            object_bytes: self.object_bytes,
            stride,
            align: self.align,
            cache_size,
            backend: self.backend,
            watched: self.debug,
            mbuf: None,
        };
        let mut construct = self.construct;
        let construct = move |index, address| {
            if let Some(construct) = &mut construct {
                construct(index, address);
            }
        };
        Shared::open(plan, areas, construct).map(ObjectPool)
    }
}

impl std::fmt::Debug for ObjectPoolBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectPoolBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ObjectPool {
    /// Starts a pool of `count` objects of `object_bytes` bytes.
    #[doc(alias = "rte_mempool_create")]
    pub fn builder(name: &str, object_bytes: usize, count: usize) -> ObjectPoolBuilder {
        ObjectPoolBuilder {
            name: name.into(),
            object_bytes,
            count,
            align: 64,
            cache: None,
            backend: Backend::default(),
            debug: false,
            socket: None,
            construct: None,
        }
    }

    /// Takes an object; `None` when the pool is empty.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Object> {
        let mut spare = Object(NonNull::dangling());
        // SAFETY: there is room for one object, which is read at once. A handle is held.
        unsafe { self.0.take(&mut spare, 1).map(|object| *object) }
    }

    /// Puts an object back.
    ///
    /// # Safety
    /// As for [`put_bulk`](Self::put_bulk).
    #[inline]
    pub unsafe fn put(&self, object: Object) {
        // SAFETY: passed on.
        unsafe { Shared::give(self.0.pool(), &object, 1) }
    }

    /// Takes as many objects as `to` has places; `None` and nothing taken when there are not so many.
    #[inline]
    #[doc(alias = "rte_mempool_get_bulk")]
    pub fn get_bulk<'a>(&self, to: &'a mut [MaybeUninit<Object>]) -> Option<&'a mut [Object]> {
        let at = to.as_mut_ptr().cast::<Object>();
        // SAFETY: `to` has room, and is written when there were so many. A handle is held.
        unsafe {
            let from = self.0.take(at, to.len())?;
            if !std::ptr::eq(from, at) {
                copy_objects(self.0.moves, from, at, to.len());
            }
            Some(std::slice::from_raw_parts_mut(at, to.len()))
        }
    }

    /// Puts objects back.
    ///
    /// # Safety
    /// They were taken from this pool, are not home, and nobody uses them afterwards.
    #[inline]
    #[doc(alias = "rte_mempool_put_bulk")]
    pub unsafe fn put_bulk(&self, objects: &[Object]) {
        // SAFETY: passed on. This handle keeps the pool open.
        unsafe { Shared::give(self.0.pool(), objects.as_ptr(), objects.len()) }
    }

    /// A cache of `size` objects that belongs to the caller rather than to a thread.
    #[must_use]
    pub fn user_cache(&self, size: usize) -> UserCache {
        UserCache::new(self.0.clone(), size)
    }

    /// Addresses of all objects, at home or out, by index.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = Object> + '_ {
        (0..self.0.capacity).map(|index| Object(self.0.places.address(index)))
    }

    /// Index of the object that has the byte at `address`.
    #[must_use]
    pub fn index_of(&self, address: usize) -> Option<usize> {
        self.0.index_of(address)
    }

    /// Size of an object in bytes.
    #[must_use]
    pub fn object_bytes(&self) -> usize {
        self.0.object_bytes
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// The pool's number; it may be another pool's once this one is gone.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.0.id
    }

    /// Number of objects in the pool.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Number of objects at home now. A passing figure while others use the pool.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.at_home()
    }

    /// Number of objects that are out now. A passing figure while others use the pool.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.0.capacity.saturating_sub(self.0.at_home())
    }

    /// The memory that the pool uses.
    #[must_use]
    pub fn regions(&self) -> Vec<PoolRegion> {
        self.0.info.regions.clone()
    }

    /// Moves what the calling thread's cache holds to the back end, for other threads to take.
    pub fn flush_cache(&self) {
        self.0.flush_own();
    }

    /// What the pool counted.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        stats(&self.0)
    }

    /// Misuse that debug mode caught so far. Empty without debug mode.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.0.watch.as_ref().map_or_else(Vec::new, |watch| watch.faults())
    }

    /// Looks at the guards of all objects, at home or out, in debug mode, and gives all misuse that was caught so far.
    pub fn audit(&self) -> Vec<Fault> {
        audit(&self.0)
    }
}

pub(crate) fn audit(shared: &Shared) -> Vec<Fault> {
    shared.watch.as_ref().map_or_else(Vec::new, |watch| {
        watch.audit(&shared.info.name, |index| shared.places.address(index));
        watch.faults()
    })
}

impl std::fmt::Debug for ObjectPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectPool")
            .field("name", &self.name())
            .field("capacity", &self.capacity())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}
