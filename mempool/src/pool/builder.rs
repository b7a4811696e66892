//! How a pool of mbufs is described and made.

use pollux_eal::memory::Memory;
use pollux_eal::region::{Region, Zone};
use pollux_eal::topology::SocketId;

use super::MbufPool;
use crate::audit::GUARD_BYTES;
use crate::mbuf::header::{HEADER_BYTES, Lengths};
use crate::shared::{MbufPlan, MbufShape, Plan, Shared};
use crate::{Area, Backend, CACHE_MAX, PoolError};

/// Largest data room, headroom included, in bytes.
pub const DATA_ROOM_MAX: usize = 1 << 30;
/// Usual headroom in bytes.
pub const HEADROOM: usize = 128;
/// Usual data room in bytes: the headroom and a frame of up to 2 KiB.
pub const DATA_ROOM: usize = HEADROOM + 2048;
/// Largest number of objects in a pool.
pub const COUNT_MAX: usize = 1 << 31;

/// Where headers, private areas and data rooms start, so that no two mbufs share a cache line.
const ALIGN: usize = 64;

/// What an mbuf pool is made from; see [`MbufPool::builder`].
#[derive(Debug)]
#[must_use]
pub struct MbufPoolBuilder {
    name: String,
    count: usize,
    data_room: usize,
    headroom: usize,
    private_bytes: usize,
    cache: Option<usize>,
    backend: Backend,
    debug: bool,
    socket: Option<SocketId>,
    apart: Option<(Vec<Area>, usize)>,
}

/// Refuses what is out of range.
pub(crate) fn check(
    name: &str,
    what: &'static str,
    value: usize,
    least: usize,
    most: usize,
) -> Result<(), PoolError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(PoolError::OutOfRange { name: name.into(), what, value, least, most })
}

/// The cache size that was asked for, or a usual one.
pub(crate) fn cache_size(name: &str, cache: Option<usize>, count: usize) -> Result<usize, PoolError> {
    let cache = cache.unwrap_or(256.min(count / 8));
    // A cache may grow to 1.5 times its size; it must not be able to hold more than there is.
    check(name, "cache", cache, 0, CACHE_MAX.min(count * 2 / 3))?;
    Ok(cache)
}

/// Where the memory of a pool comes from.
pub(crate) enum From<'a> {
    Memory(&'a Memory, Option<SocketId>),
    Anonymous,
}

/// Gets one piece of memory for `count` objects.
pub(crate) fn obtain(name: &str, count: usize, stride: usize, from: &From<'_>) -> Result<Area, PoolError> {
    let bytes = count.saturating_mul(stride);
    let zone = match from {
        From::Memory(memory, socket) => memory.reserve(&format!("pool {name}"), bytes, 4096, *socket),
        From::Anonymous => Region::anonymous(name, bytes).map(Region::into_zone),
    };
    zone.map(Area::from).map_err(|source| PoolError::Memory { name: name.into(), count, stride, source })
}

impl MbufPool {
    /// Starts a pool of `count` mbufs.
    #[doc(alias = "rte_pktmbuf_pool_create")]
    pub fn builder(name: &str, count: usize) -> MbufPoolBuilder {
        MbufPoolBuilder {
            name: name.into(),
            count,
            data_room: DATA_ROOM,
            headroom: HEADROOM,
            private_bytes: 0,
            cache: None,
            backend: Backend::default(),
            debug: false,
            socket: None,
            apart: None,
        }
    }
}

impl MbufPoolBuilder {
    /// Bytes of data room of each mbuf, headroom included; 2,176 if not set.
    pub fn data_room(mut self, bytes: usize) -> Self {
        self.data_room = bytes;
        self
    }

    /// Bytes left free before the data of a fresh mbuf; 128 if not set.
    pub fn headroom(mut self, bytes: usize) -> Self {
        self.headroom = bytes;
        self
    }

    /// Bytes of private area between header and data room.
    pub fn private_bytes(mut self, bytes: usize) -> Self {
        self.private_bytes = bytes;
        self
    }

    /// Mbufs that each slot's cache holds nominally, up to [`CACHE_MAX`]; it may hold half as many again. 0: no caches.
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

    /// Watches for mbufs that are freed twice or written out of bounds ([`MbufPool::faults`]). Slow: no caches are used.
    pub fn debug(mut self, on: bool) -> Self {
        self.debug = on;
        self
    }

    /// The NUMA node that the memory is to be on.
    pub fn socket(mut self, socket: Option<SocketId>) -> Self {
        self.socket = socket;
        self
    }

    /// Puts data rooms apart from headers: piece `i` of `piece_bytes` in `areas` is the data room of mbuf `i`, headroom
    /// included, and replaces [`data_room`](Self::data_room). Pieces lie one after another from the start of each
    /// area, as a device or the kernel wants them. Debug mode cannot guard them.
    pub fn data_apart(mut self, areas: Vec<Area>, piece_bytes: usize) -> Self {
        self.apart = Some((areas, piece_bytes));
        self.data_room = piece_bytes;
        self
    }

    fn room_at(&self) -> usize {
        self.private_bytes.div_ceil(ALIGN).saturating_mul(ALIGN).saturating_add(HEADER_BYTES)
    }

    fn object_bytes(&self) -> usize {
        if self.apart.is_some() { self.room_at() } else { self.room_at().saturating_add(self.data_room) }
    }

    fn stride(&self) -> usize {
        let guard = if self.debug { GUARD_BYTES } else { 0 };
        let lines = self.object_bytes().saturating_add(guard).div_ceil(ALIGN);
        // An odd number of lines: with an even one, headers would fall on half of a cache's sets or fewer.
        (lines | 1).saturating_mul(ALIGN)
    }

    /// Bytes that the pool takes when its memory is one piece, data that lies apart not counted; `usize::MAX` for more
    /// than that.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.stride())
    }

    fn check(&self) -> Result<usize, PoolError> {
        let check = |what, value, least, most| check(&self.name, what, value, least, most);
        check("number of mbufs", self.count, 1, COUNT_MAX)?;
        check("data room", self.data_room, 1, DATA_ROOM_MAX)?;
        check("headroom", self.headroom, 0, self.data_room)?;
        check("private area", self.private_bytes, 0, u16::MAX.into())?;
        cache_size(&self.name, self.cache, self.count)
    }

    /// Makes the pool in `memory`.
    ///
    /// # Errors
    /// When a size is out of range, the memory cannot be had, or there are too many pools.
    pub fn build(self, memory: &Memory) -> Result<MbufPool, PoolError> {
        self.check()?;
        let area = obtain(&self.name, self.count, self.stride(), &From::Memory(memory, self.socket))?;
        self.build_over(vec![area])
    }

    /// Makes the pool in ordinary pages of its own: for tests, and for ports that no device reads from.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_anonymous(self) -> Result<MbufPool, PoolError> {
        self.check()?;
        let area = obtain(&self.name, self.count, self.stride(), &From::Anonymous)?;
        self.build_over(vec![area])
    }

    /// Makes the pool in zones given, which it owns from then on. Each takes as many mbufs as fit.
    ///
    /// # Errors
    /// When a size is out of range, the zones are too small, or there are too many pools.
    pub fn build_in(self, zones: Vec<Zone>) -> Result<MbufPool, PoolError> {
        self.build_over(zones.into_iter().map(Area::from).collect())
    }

    /// As [`build_in`](Self::build_in), in memory of any origin.
    ///
    /// # Errors
    /// As [`build_in`](Self::build_in).
    pub fn build_over(self, areas: Vec<Area>) -> Result<MbufPool, PoolError> {
        let cache_size = self.check()?;
        let (object_bytes, stride, room_at) = (self.object_bytes(), self.stride(), self.room_at());
        let shape = MbufShape {
            fresh: Lengths::fresh(self.headroom as u32),
            room: self.data_room as u32,
            private_bytes: self.private_bytes as u32,
            room_at: room_at as u32,
        };
        let plan = Plan {
            name: self.name,
            capacity: self.count,
            object_bytes,
            stride,
            align: ALIGN,
            cache_size,
            backend: self.backend,
            watched: self.debug,
            mbuf: Some(MbufPlan { shape, apart: self.apart }),
        };
        Shared::open(plan, areas, |_, _| ()).map(MbufPool)
    }
}
