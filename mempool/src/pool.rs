//! Pools of mbufs.
#![expect(unsafe_code, reason = "takes mbufs from pinned memory")]

use std::ptr::NonNull;

use crate::audit::Fault;
use crate::backend::Backend;
use crate::cache::copy_objects;
use crate::mbuf::header::Lengths;
use crate::shared::{Handle, Shared};
use crate::stats::{PoolStats, stats};
use crate::user_cache::MbufCache;
use crate::{Burst, Mbuf, Object, PoolRegion};

mod builder;

pub use builder::{DATA_ROOM, DATA_ROOM_MAX, HEADROOM, MbufPoolBuilder, Mbufs};

/// A pool of mbufs of one size. Clones are handles of the same pool; mbufs that are out when the last handle goes keep
/// the memory until they are home.
#[derive(Clone)]
pub struct MbufPool(pub(crate) Handle);

impl MbufPool {
    /// Allocates an empty mbuf of one segment, with headroom. `None` if the pool is empty.
    #[inline]
    #[must_use]
    #[doc(alias = "rte_pktmbuf_alloc")]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: this handle is held, and the object is then this caller's.
        unsafe {
            let object = self.0.take_one()?;
            Mbuf::freshen(object, &self.0.shape.fresh);
            Some(Mbuf::from_header(object.0.cast()))
        }
    }

    /// Allocates `count` empty mbufs into `burst`; none and `false` if the pool has fewer or the burst lacks room.
    #[inline]
    #[doc(alias = "rte_pktmbuf_alloc_bulk")]
    pub fn alloc_burst(&self, burst: &mut Burst, count: usize) -> bool {
        // SAFETY: a fresh mbuf is sound.
        unsafe { self.alloc_with(burst, count, |object| Mbuf::freshen(object, &self.0.shape.fresh)) }
    }

    /// Allocates up to `count` empty mbufs into `burst`, limited by the pool and the burst's room. Returns their number.
    #[inline]
    pub fn alloc_up_to(&self, burst: &mut Burst, count: usize) -> usize {
        // SAFETY: a fresh mbuf is sound.
        unsafe { self.alloc_up_to_with(burst, count, |object| Mbuf::freshen(object, &self.0.shape.fresh)) }
    }

    /// As [`alloc_up_to`](Self::alloc_up_to), for a driver: each mbuf holds `bytes` bytes, whichever were there, and says
    /// that it came in at `port`. One write to each header does both. None when one segment cannot hold so many.
    #[inline]
    pub fn alloc_received(&self, burst: &mut Burst, count: usize, bytes: usize, port: u16) -> usize {
        let shape = &self.0.shape;
        if bytes > (shape.room - shape.fresh.data_off) as usize {
            return 0;
        }
        let (data_len, pkt_len) = (bytes as u32, bytes as u32);
        let lengths = Lengths { data_len, pkt_len, port, ..Lengths::fresh(shape.fresh.data_off) };
        // SAFETY: the data fits in the room.
        unsafe { self.alloc_up_to_with(burst, count, |object| Mbuf::freshen(object, &lengths)) }
    }

    /// # Safety
    /// `freshen` makes an object fresh from this pool a sound mbuf.
    #[inline(always)]
    unsafe fn alloc_with(&self, burst: &mut Burst, count: usize, freshen: impl Fn(Object)) -> bool {
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
                freshen(object);
            }
            burst.0.set_len(len + count);
        }
        true
    }

    /// # Safety
    /// As for [`alloc_with`](Self::alloc_with).
    #[inline(always)]
    unsafe fn alloc_up_to_with(&self, burst: &mut Burst, count: usize, freshen: impl Fn(Object)) -> usize {
        let count = count.min(burst.remaining_capacity());
        // SAFETY: passed on.
        if unsafe { self.alloc_with(burst, count, &freshen) } {
            return count;
        }
        self.few(count, |count| {
            // SAFETY: passed on.
            unsafe { self.alloc_with(burst, count, &freshen) }
        })
    }

    /// Takes as many as there are when `count` are too many.
    #[cold]
    #[inline(never)]
    fn few(&self, count: usize, mut alloc: impl FnMut(usize) -> bool) -> usize {
        let count = count.min(self.0.within_reach());
        // Another thread may be quicker.
        if alloc(count) {
            return count;
        }
        (0..count).take_while(|_| alloc(1)).count()
    }

    /// Takes as many mbufs as `to` has places and writes the address of each there, for a driver that fills a
    /// device's ring and sets up the mbuf when data has come. Their lengths and flags are whatever the last user left.
    /// `false` and nothing taken when the pool has not so many.
    ///
    /// Each comes back by [`Mbuf::adopt`].
    #[inline]
    #[must_use]
    pub fn alloc_raw(&self, to: &mut [std::mem::MaybeUninit<NonNull<u8>>]) -> bool {
        let at = to.as_mut_ptr().cast::<Object>();
        // SAFETY: there is room for `to.len()` objects, which are one address each; they are copied at once.
        unsafe {
            let Some(from) = self.0.take(at, to.len()) else { return false };
            if !std::ptr::eq(from, at) {
                copy_objects(self.0.moves, from, at, to.len());
            }
        }
        true
    }

    /// Frees mbufs of this pool that were converted by [`Mbuf::into_raw`], without reading their headers.
    ///
    /// # Safety
    /// Each is of this pool, one segment, shows its own data room and has one owner, who gives it up here.
    #[inline]
    pub unsafe fn give_raw(&self, raws: &[NonNull<u8>]) {
        // SAFETY: such an mbuf is at rest when its address is home; `Object` is one address.
        unsafe { Shared::give(self.0.pool(), raws.as_ptr().cast(), raws.len()) }
    }

    /// Returns the number of free mbufs. A snapshot while other threads use the pool.
    #[must_use]
    #[doc(alias = "rte_mempool_avail_count")]
    pub fn available(&self) -> usize {
        self.0.at_home()
    }

    /// Returns the number of allocated mbufs. A snapshot while other threads use the pool.
    #[must_use]
    #[doc(alias = "rte_mempool_in_use_count")]
    pub fn in_use(&self) -> usize {
        self.0.capacity.saturating_sub(self.0.at_home())
    }

    /// Returns the number of mbufs of the pool.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Returns the name of the pool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// Returns the pool ID; it may be reused after the pool is gone.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.0.id
    }

    /// Returns the data room of each mbuf in bytes, headroom included.
    #[must_use]
    pub fn data_room(&self) -> usize {
        self.0.shape.room as usize
    }

    /// Returns the headroom of a new mbuf in bytes.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.0.shape.fresh.data_off as usize
    }

    /// Returns the backend behind the caches.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.0.backend
    }

    /// Returns the nominal size of each cache.
    #[must_use]
    pub fn cache_size(&self) -> usize {
        self.0.cache_size()
    }

    /// Returns the memory of the pool, to be registered with devices.
    #[must_use]
    pub fn regions(&self) -> Vec<PoolRegion> {
        self.0.info.regions.clone()
    }

    /// The raw address, as of [`Mbuf::into_raw`], of the mbuf whose header, private area or data room has the byte at
    /// `address`. `None` when that byte is not in this pool.
    #[must_use]
    pub fn address_of(&self, address: usize) -> Option<NonNull<u8>> {
        self.0.index_of(address).map(|index| self.0.places.address(index))
    }

    /// The raw addresses of all mbufs, at home or out, with where the data room of each starts. What they may be used for
    /// is up to whoever owns the mbuf at that address.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = (NonNull<u8>, NonNull<u8>)> + '_ {
        (0..self.0.capacity).map(|index| (self.0.places.address(index), self.0.data_room(index)))
    }

    /// A cache of `size` mbufs that belongs to the caller rather than to a thread.
    #[must_use]
    pub fn user_cache(&self, size: usize) -> MbufCache {
        MbufCache::new(self.0.clone(), size)
    }

    /// Flushes the calling thread's cache to the backend, for other threads to use.
    pub fn flush_cache(&self) {
        self.0.flush_own();
    }

    /// Returns the statistics of the pool.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        stats(&self.0)
    }

    /// Returns the faults detected by debug mode so far. Empty without debug mode.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.0.watch.as_ref().map_or_else(Vec::new, |watch| watch.faults())
    }

    /// Checks the guards of all mbufs in debug mode and returns all faults detected so far.
    pub fn audit(&self) -> Vec<Fault> {
        self.0.audit()
    }
}

impl Mbuf {
    /// Whether it is one segment of `pool` that shows its own data room and that nobody else refers to: what a port can
    /// receive into once its packet is sent.
    #[inline(always)]
    #[must_use]
    pub fn is_plain_of(&self, pool: &MbufPool) -> bool {
        self.is_plain_in(pool.id())
    }

    /// Returns the pool it belongs to; `None` if all handles of the pool were dropped.
    #[must_use]
    pub fn pool(&self) -> Option<MbufPool> {
        // SAFETY: an mbuf is out.
        unsafe { Handle::of_object(self.pool_id()) }.map(MbufPool)
    }
}

impl std::fmt::Debug for MbufPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MbufPool")
            .field("name", &self.name())
            .field("capacity", &self.capacity())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}
