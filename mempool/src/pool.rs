//! Pools of mbufs.
#![expect(unsafe_code, reason = "lays mbufs out in pinned memory and takes them from there")]

use std::ptr::NonNull;

use pollux_eal::region::{Region, Zone};

use crate::backend::{Backend, Object};
use crate::mbuf::header::{HEADER_BYTES, Lengths};
use crate::shared::{CACHE_MAX, Handle, MbufShape, Plan, Shared};
use crate::{Burst, Mbuf, PoolError};

/// Largest data room, headroom included, in bytes.
pub const DATA_ROOM_MAX: usize = 1 << 30;
/// Usual headroom in bytes.
pub const HEADROOM: usize = 128;
/// Usual data room in bytes: the headroom and a frame of up to 2 KiB.
pub const DATA_ROOM: usize = HEADROOM + 2048;
/// Largest number of mbufs in a pool.
pub const COUNT_MAX: usize = 1 << 31;

/// A pool of mbufs of one size. Clones are handles of the same pool; mbufs that are out when the last handle goes keep
/// the memory until they are home.
#[derive(Clone)]
pub struct MbufPool(Handle);

/// A piece of pinned memory that a pool uses.
#[derive(Clone, Debug)]
pub struct PoolRegion {
    /// The region; it has page size and id.
    pub region: Region,
    /// First byte of the piece.
    pub base: NonNull<u8>,
    /// Length of the piece.
    pub bytes: usize,
}

// SAFETY: names memory, and gives no right to touch it.
unsafe impl Send for PoolRegion {}
// SAFETY: as above.
unsafe impl Sync for PoolRegion {}

/// What an mbuf pool is made from; see [`MbufPool::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MbufPoolBuilder {
    name: String,
    count: usize,
    data_room: usize,
    headroom: usize,
    private_bytes: usize,
    cache: Option<usize>,
    backend: Backend,
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

    fn stride(&self) -> usize {
        HEADER_BYTES + self.private_bytes.next_multiple_of(64) + self.data_room.next_multiple_of(64)
    }

    /// Bytes that the pool takes when its memory is one piece.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.stride())
    }

    fn check(&self) -> Result<usize, PoolError> {
        let check = |what, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(PoolError::OutOfRange {
                name: self.name.clone(),
                what,
                value,
                allowed: format!("{least} to {most}"),
            })
        };
        check("number of mbufs", self.count, 1, COUNT_MAX)?;
        check("data room", self.data_room, 1, DATA_ROOM_MAX)?;
        check("headroom", self.headroom, 0, self.data_room)?;
        check("private area", self.private_bytes, 0, u16::MAX.into())?;
        let cache = self.cache.unwrap_or(256.min(self.count / 8));
        check("cache", cache, 0, CACHE_MAX.min(self.count * 2 / 3))?;
        Ok(cache)
    }

    /// Makes the pool in the zones given, which it owns from then on. Each zone takes as many mbufs as fit.
    ///
    /// # Errors
    /// When a size is out of range, the zones are too small, or there are too many pools.
    pub fn build_in(self, zones: Vec<Zone>) -> Result<MbufPool, PoolError> {
        let cache_size = self.check()?;
        let stride = self.stride();
        let room_at = HEADER_BYTES + self.private_bytes.next_multiple_of(64);
        let room = self.data_room as u32;
        let shape = MbufShape {
            fresh: Lengths::fresh(self.headroom as u32),
            room,
            private_bytes: self.private_bytes as u32,
            room_at: room_at as u32,
        };
        let plan =
            Plan { name: self.name, capacity: self.count, stride, cache_size, backend: self.backend, shape };
        Shared::open(plan, zones, |index, at, pool| {
            // SAFETY: `stride` bytes at `at` are the pool's, aligned to 64 as zone and stride are.
            unsafe { Mbuf::construct(at, pool, index as u32, at.add(room_at), room) }
        })
        .map(MbufPool)
    }

    /// Makes the pool in ordinary pages of its own: for tests, and for ports that no device reads from.
    ///
    /// # Errors
    /// As [`build_in`](Self::build_in), and when the kernel refuses the memory.
    pub fn build_anonymous(self) -> Result<MbufPool, PoolError> {
        self.check()?;
        let region = Region::anonymous(&self.name, self.bytes()).map_err(|source| PoolError::Memory {
            name: self.name.clone(),
            count: self.count,
            stride: self.stride(),
            source,
        })?;
        self.build_in(vec![region.into_zone()])
    }
}

impl MbufPool {
    /// Starts a pool of `count` mbufs.
    pub fn builder(name: &str, count: usize) -> MbufPoolBuilder {
        MbufPoolBuilder {
            name: name.into(),
            count,
            data_room: DATA_ROOM,
            headroom: HEADROOM,
            private_bytes: 0,
            cache: None,
            backend: Backend::default(),
        }
    }

    pub(crate) fn from_handle(handle: Handle) -> Self {
        Self(handle)
    }

    /// Takes an empty mbuf: one segment, headroom in front. `None` when the pool is empty.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<Mbuf> {
        let mut spare = Object(NonNull::dangling());
        // SAFETY: there is room for one object, read at once; it is then this caller's.
        unsafe {
            let object = *self.0.take(&mut spare, 1)?;
            Mbuf::freshen(object, &self.0.shape.fresh);
            Some(Mbuf::from_header(object.0.cast()))
        }
    }

    /// Adds `count` empty mbufs to `burst`, or none and `false` when the pool has not so many or the burst no room.
    #[inline]
    pub fn alloc_burst(&self, burst: &mut Burst, count: usize) -> bool {
        self.alloc_with(burst, count, Lengths::fresh(self.0.shape.headroom))
    }

    /// Adds up to `count` empty mbufs to `burst`: as many as the pool has and the burst has room for. Tells how many.
    #[inline]
    pub fn alloc_up_to(&self, burst: &mut Burst, count: usize) -> usize {
        self.alloc_up_to_with(burst, count, Lengths::fresh(self.0.shape.headroom))
    }

    /// As [`alloc_up_to`](Self::alloc_up_to), for a driver: each mbuf holds `bytes` bytes, whichever were there, and says
    /// that it came in at `port`. One write to each header does both. None when one segment cannot hold so many.
    #[inline]
    pub fn alloc_received(&self, burst: &mut Burst, count: usize, bytes: usize, port: u16) -> usize {
        let shape = &self.0.shape;
        if bytes > (shape.room - shape.headroom) as usize {
            return 0;
        }
        let (data_len, pkt_len) = (bytes as u32, bytes as u32);
        self.alloc_up_to_with(
            burst,
            count,
            Lengths { data_len, pkt_len, port, ..Lengths::fresh(shape.headroom) },
        )
    }

    #[inline(always)]
    fn alloc_with(&self, burst: &mut Burst, count: usize, lengths: Lengths) -> bool {
        if count > burst.remaining_capacity() {
            return false;
        }
        let len = burst.0.len();
        // SAFETY: there is room for `count` objects after the burst's `len`; `Mbuf` and `Object` are both one address.
        unsafe {
            let to = burst.0.as_mut_ptr().add(len).cast::<Object>();
            let Some(from) = self.0.take(to, count) else { return false };
            for at in 0..count {
                let object = *from.add(at);
                *to.add(at) = object;
                Mbuf::freshen(object, &self.0.shape.fresh);
            }
            burst.0.set_len(len + count);
        }
        true
    }

    #[inline(always)]
    fn alloc_up_to_with(&self, burst: &mut Burst, count: usize, lengths: Lengths) -> usize {
        let count = count.min(burst.remaining_capacity());
        if self.alloc_with(burst, count, lengths) { count } else { self.alloc_rest(burst, count, lengths) }
    }

    #[cold]
    #[inline(never)]
    fn alloc_rest(&self, burst: &mut Burst, count: usize, lengths: Lengths) -> usize {
        let count = count.min(self.0.within_reach());
        // Another thread may be quicker.
        if self.alloc_with(burst, count, lengths) {
            return count;
        }
        (0..count).take_while(|_| self.alloc_with(burst, 1, lengths)).count()
    }

    /// Number of mbufs at home now. A passing figure while others use the pool.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.at_home()
    }

    /// Number of mbufs that are out now. A passing figure while others use the pool.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.0.capacity.saturating_sub(self.0.at_home())
    }

    /// Number of mbufs in the pool.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The pool's number; it may be another pool's once this one is gone.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.0.id
    }

    /// Bytes of data room of each mbuf, headroom included.
    #[must_use]
    pub fn data_room(&self) -> usize {
        self.0.shape.room as usize
    }

    /// Bytes left free before the data of a fresh mbuf.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.0.shape.fresh.data_off as usize
    }

    /// The structure behind the caches.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.0.backend
    }

    /// The regions that the pool's memory lies in: for each, the region and the zones' extent in it. A device registers
    /// these.
    #[must_use]
    pub fn regions(&self) -> Vec<PoolRegion> {
        self.0
            .zones
            .iter()
            .map(|zone| PoolRegion { region: zone.region().clone(), base: zone.base(), bytes: zone.bytes() })
            .collect()
    }

    /// The address that [`Mbuf::from_raw`] takes, of the mbuf whose header, private area or data room has the byte at
    /// `address`. `None` when that byte is not in this pool.
    #[must_use]
    pub fn address_of(&self, address: usize) -> Option<NonNull<u8>> {
        self.0.index_of(address).map(|index| self.0.address(index))
    }

    /// Moves what the calling thread's cache holds to the back end, for other threads to take.
    pub fn flush_cache(&self) {
        self.0.flush_own();
    }
}

impl std::fmt::Debug for MbufPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MbufPool")
            .field("name", &self.0.name)
            .field("capacity", &self.0.capacity)
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}
