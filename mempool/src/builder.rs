//! How a pool is described and made, whatever is in it.

use pollux_eal::memory::Memory;
use pollux_eal::region::{MemoryError, Region, Zone};
use pollux_eal::topology::SocketId;

use crate::audit::GUARD_BYTES;
use crate::shared::Plan;
use crate::{Area, Backend, CACHE_MAX, PoolError};

/// Largest number of objects in a pool.
pub const COUNT_MAX: usize = 1 << 31;

/// What a pool is made from: mbufs ([`MbufPool::builder`](crate::MbufPool::builder)) or objects of any size
/// ([`ObjectPool::builder`](crate::ObjectPool::builder)).
#[must_use]
pub struct PoolBuilder<C> {
    name: String,
    count: usize,
    cache: Option<usize>,
    backend: Backend,
    debug: bool,
    socket: Option<SocketId>,
    pub(crate) contents: C,
}

/// What a pool is made of.
pub(crate) mod contents {
    use super::{Area, Plan, PoolError, Range};

    /// Where one object lies.
    pub struct Layout {
        pub bytes: usize,
        /// From one object to the next.
        pub stride: usize,
        pub align: usize,
    }

    pub trait Contents {
        type Pool;
        /// For errors: what there is a number of.
        const COUNTED: &'static str;
        fn check(&self, range: &Range<'_>) -> Result<(), PoolError>;
        /// With so many bytes of guard behind each object.
        fn layout(&self, guard_bytes: usize) -> Layout;
        fn open(self, plan: Plan, areas: Vec<Area>) -> Result<Self::Pool, PoolError>;
    }
}
use contents::{Contents, Layout};

/// Refuses what is out of range, of the pool of that name.
pub struct Range<'a>(&'a str);

impl Range<'_> {
    pub(crate) fn check(
        &self,
        what: &'static str,
        value: usize,
        least: usize,
        most: usize,
    ) -> Result<(), PoolError> {
        if (least..=most).contains(&value) { Ok(()) } else { Err(self.wrong(what, value, least, most)) }
    }

    pub(crate) fn wrong(&self, what: &'static str, value: usize, least: usize, most: usize) -> PoolError {
        PoolError::OutOfRange { name: self.0.into(), what, value, least, most }
    }
}

impl<C: Contents> PoolBuilder<C> {
    pub(crate) fn new(name: &str, count: usize, contents: C) -> Self {
        let (cache, backend, debug, socket) = (None, Backend::default(), false, None);
        Self { name: name.into(), count, cache, backend, debug, socket, contents }
    }

    /// Objects that each slot's cache holds nominally, up to [`CACHE_MAX`]; it may hold half as many again. 0: no caches.
    /// If not set: 256, or an eighth of the count if that is less.
    pub fn cache(mut self, count: usize) -> Self {
        self.cache = Some(count);
        self
    }

    /// The structure behind the caches.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Watches for objects that come back twice or are written out of bounds ([`MbufPool::faults`](crate::MbufPool::faults),
    /// [`ObjectPool::faults`](crate::ObjectPool::faults)). Slow: no caches are used.
    pub fn debug(mut self, on: bool) -> Self {
        self.debug = on;
        self
    }

    /// The NUMA node that the memory is to be on.
    pub fn socket(mut self, socket: Option<SocketId>) -> Self {
        self.socket = socket;
        self
    }

    fn layout(&self) -> Layout {
        self.contents.layout(if self.debug { GUARD_BYTES } else { 0 })
    }

    /// Bytes that the pool takes when its memory is one piece, data of mbufs that lies apart not counted; `usize::MAX` for
    /// more than that.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.layout().stride)
    }

    /// The size of a cache, where all is in range.
    fn check(&self) -> Result<usize, PoolError> {
        let range = Range(&self.name);
        range.check(C::COUNTED, self.count, 1, COUNT_MAX)?;
        self.contents.check(&range)?;
        let cache = self.cache.unwrap_or(256.min(self.count / 8));
        // A cache may grow to 1.5 times its size; it must not be able to hold more than there is.
        range.check("cache", cache, 0, CACHE_MAX.min(self.count * 2 / 3))?;
        Ok(cache)
    }

    /// Makes the pool in `memory`.
    ///
    /// # Errors
    /// When a size is out of range, the memory cannot be had, or there are too many pools.
    pub fn build(self, memory: &Memory) -> Result<C::Pool, PoolError> {
        let zone = |builder: &Self, bytes| {
            memory.reserve(&format!("pool {}", builder.name), bytes, 4096, builder.socket)
        };
        self.build_where(zone)
    }

    /// Makes the pool in ordinary pages of its own: for tests, and for ports that no device reads from.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_anonymous(self) -> Result<C::Pool, PoolError> {
        self.build_where(|builder, bytes| Region::anonymous(&builder.name, bytes).map(Region::into_zone))
    }

    fn build_where(
        self,
        zone: impl FnOnce(&Self, usize) -> Result<Zone, MemoryError>,
    ) -> Result<C::Pool, PoolError> {
        self.check()?;
        let (count, stride) = (self.count, self.layout().stride);
        match zone(&self, self.bytes()) {
            Ok(zone) => self.build_in(vec![zone]),
            Err(source) => Err(PoolError::Memory { name: self.name, count, stride, source }),
        }
    }

    /// Makes the pool in zones given, which it owns from then on. Each takes as many objects as fit.
    ///
    /// # Errors
    /// When a size is out of range, the zones are too small, or there are too many pools.
    pub fn build_in(self, zones: Vec<Zone>) -> Result<C::Pool, PoolError> {
        self.build_over(zones.into_iter().map(Area::from).collect())
    }

    /// As [`build_in`](Self::build_in), in memory of any origin.
    ///
    /// # Errors
    /// As [`build_in`](Self::build_in).
    pub fn build_over(self, areas: Vec<Area>) -> Result<C::Pool, PoolError> {
        let cache_size = self.check()?;
        let Layout { bytes: object_bytes, stride, align } = self.layout();
        let plan = Plan {
            name: self.name,
            capacity: self.count,
            object_bytes,
            stride,
            align,
            cache_size,
            backend: self.backend,
            watched: self.debug,
            mbuf: None,
        };
        self.contents.open(plan, areas)
    }
}

impl<C> std::fmt::Debug for PoolBuilder<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolBuilder")
            .field("name", &self.name)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
