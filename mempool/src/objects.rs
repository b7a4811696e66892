//! Pools of objects of any fixed size.
#![expect(unsafe_code, reason = "hands out and takes back pieces of pinned memory")]

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::audit::Fault;
use crate::builder::contents::{Contents, Layout};
use crate::builder::{PoolBuilder, Range};
use crate::cache::copy_objects;
use crate::shared::{Handle, Plan, Shared};
use crate::stats::{PoolStats, stats};
use crate::user_cache::UserCache;
use crate::{Area, Object, PoolError, PoolRegion};

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
pub type ObjectPoolBuilder = PoolBuilder<Objects>;

/// Objects of one size.
pub struct Objects {
    bytes: usize,
    align: usize,
    construct: Option<Construct>,
}

impl ObjectPoolBuilder {
    /// The alignment of each object, a power of two; a cache line (64) if not set, so that no two share one.
    pub fn align(mut self, bytes: usize) -> Self {
        self.contents.align = bytes;
        self
    }

    /// Runs once on each object, with its index and address, when the pool is made.
    pub fn constructor(mut self, construct: impl FnMut(usize, NonNull<u8>) + 'static) -> Self {
        self.contents.construct = Some(Box::new(construct));
        self
    }
}

impl Contents for Objects {
    type Pool = ObjectPool;
    const COUNTED: &'static str = "number of objects";

    fn check(&self, range: &Range<'_>) -> Result<(), PoolError> {
        range.check("object size", self.bytes, 1, OBJECT_BYTES_MAX)?;
        if !self.align.is_power_of_two() {
            return Err(range.wrong("alignment (a power of two)", self.align, 1, ALIGN_MAX));
        }
        range.check("alignment", self.align, 1, ALIGN_MAX)
    }

    fn layout(&self, guard_bytes: usize) -> Layout {
        let Self { bytes, align, .. } = *self;
        // What `check` refuses has a stride as well.
        let stride = bytes.saturating_add(guard_bytes).div_ceil(align.max(1)).saturating_mul(align);
        Layout { bytes, stride, align }
    }

    fn open(self, plan: Plan, areas: Vec<Area>) -> Result<ObjectPool, PoolError> {
        let mut construct = self.construct;
        let construct = move |index, address| {
            if let Some(construct) = &mut construct {
                construct(index, address);
            }
        };
        Handle::open(plan, areas, construct).map(ObjectPool)
    }
}

impl ObjectPool {
    /// Starts a pool of `count` objects of `object_bytes` bytes.
    #[doc(alias = "rte_mempool_create")]
    pub fn builder(name: &str, object_bytes: usize, count: usize) -> ObjectPoolBuilder {
        PoolBuilder::new(name, count, Objects { bytes: object_bytes, align: 64, construct: None })
    }

    /// Takes an object; `None` when the pool is empty.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Object> {
        // SAFETY: this handle.
        unsafe { self.0.take_one() }
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
        self.0.audit()
    }
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
