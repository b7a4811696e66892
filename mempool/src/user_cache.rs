//! Caches that belong to whoever made them rather than to a thread.
#![expect(unsafe_code, reason = "hands out and takes back pieces of pinned memory")]

use std::mem::MaybeUninit;

use crate::burst::Burst;
use crate::cache::copy_objects;
use crate::mbuf::all_plain_of;
use crate::shared::Handle;
use crate::{Mbuf, Object};

/// A cache of objects that belongs to the caller, for a thread without a slot or a stage that should not share its
/// thread's cache. `&mut` stands in for the slot. What it holds counts as in use; dropping it takes that home.
pub struct UserCache {
    handle: Handle,
    size: usize,
    objects: Vec<Object>,
}

impl UserCache {
    pub(crate) fn new(handle: Handle, size: usize) -> Self {
        // Debug mode sees each object go out and come back. More than the pool has cannot be held.
        let size = if handle.watch.is_some() { 0 } else { size.min(handle.capacity) };
        Self { handle, size, objects: Vec::with_capacity(size + size / 2) }
    }

    /// How many objects it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Takes as many objects as `to` has places; `None` and nothing taken when there are not so many.
    #[inline]
    pub fn get_bulk<'a>(&mut self, to: &'a mut [MaybeUninit<Object>]) -> Option<&'a mut [Object]> {
        let count = to.len();
        if count > self.objects.len() && !self.fill(count) {
            return self.get_past(to);
        }
        let rest = self.objects.len() - count;
        // SAFETY: `count` objects are there and are moved out; `to` has room for them and is then written.
        unsafe {
            let at = to.as_mut_ptr().cast::<Object>();
            copy_objects(self.handle.moves, self.objects.as_ptr().add(rest), at, count);
            self.objects.set_len(rest);
            Some(std::slice::from_raw_parts_mut(at, count))
        }
    }

    /// Brings it to at least `count` objects if that is few enough, and to its nominal size beyond them if there are.
    #[cold]
    #[inline(never)]
    fn fill(&mut self, count: usize) -> bool {
        if count > self.size {
            return false;
        }
        let len = self.objects.len();
        let most = (self.size - len + count).min(self.objects.capacity() - len);
        // SAFETY: the vector has room for `most` more, and the first `got` of them are then written. A handle is held.
        unsafe {
            let got = self.handle.fetch_counted(self.objects.as_mut_ptr().add(len), count - len, most);
            self.objects.set_len(len + got);
            got > 0
        }
    }

    #[cold]
    #[inline(never)]
    fn get_past<'a>(&mut self, to: &'a mut [MaybeUninit<Object>]) -> Option<&'a mut [Object]> {
        let count = to.len();
        let own = self.objects.len().min(count);
        let at = to.as_mut_ptr().cast::<Object>();
        // SAFETY: `to` has room for `count`: `count - own` come from the back end, then `own` from here. A handle is
        // held.
        unsafe {
            let missing = count - own;
            if self.handle.fetch_counted(at.add(own), missing, missing) < missing {
                return None;
            }
            let rest = self.objects.len() - own;
            copy_objects(self.handle.moves, self.objects.as_ptr().add(rest), at, own);
            self.objects.set_len(rest);
            Some(std::slice::from_raw_parts_mut(at, count))
        }
    }

    /// Puts objects back.
    ///
    /// # Safety
    /// They were taken from this pool, are not home, and nobody uses them afterwards.
    #[inline]
    pub unsafe fn put_bulk(&mut self, objects: &[Object]) {
        if self.objects.len() + objects.len() > self.size + self.size / 2 {
            // SAFETY: passed on.
            return unsafe { self.put_past(objects) };
        }
        self.objects.extend_from_slice(objects);
    }

    /// # Safety
    /// As for [`put_bulk`](Self::put_bulk).
    #[cold]
    #[inline(never)]
    unsafe fn put_past(&mut self, objects: &[Object]) {
        // SAFETY: what is held here is out and the cache's; the others are the caller's. A handle is held.
        unsafe {
            if objects.len() > self.size {
                return self.handle.give_past_caches(objects);
            }
            let cut = self.objects.len() - self.objects.len().min(self.size / 2);
            self.handle.give_past_caches(&self.objects[..cut]);
        }
        let cut = self.objects.len() - self.objects.len().min(self.size / 2);
        self.objects.drain(..cut);
        self.objects.extend_from_slice(objects);
    }

    /// Takes all it holds home.
    pub fn flush(&mut self) {
        // SAFETY: what is held here is out and the cache's. A handle is held.
        unsafe { self.handle.give_past_caches(&self.objects) };
        self.objects.clear();
    }
}

impl Drop for UserCache {
    fn drop(&mut self) {
        self.flush();
    }
}

impl std::fmt::Debug for UserCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserCache")
            .field("size", &self.size)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A [`UserCache`] of mbufs; see [`MbufPool::user_cache`](crate::MbufPool::user_cache).
#[derive(Debug)]
pub struct MbufCache(UserCache);

impl MbufCache {
    pub(crate) fn new(handle: Handle, size: usize) -> Self {
        Self(UserCache::new(handle, size))
    }

    /// How many mbufs it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `count` empty mbufs to `burst`, as [`MbufPool::alloc_burst`](crate::MbufPool::alloc_burst).
    #[inline]
    pub fn alloc_burst(&mut self, burst: &mut Burst, count: usize) -> bool {
        if count > burst.remaining_capacity() {
            return false;
        }
        let len = burst.0.len();
        // SAFETY: there is room for `count` after the burst's `len`; `Mbuf` and `Object` are both one address. What was
        // got is of an mbuf pool.
        unsafe {
            let to = burst.0.as_mut_ptr().add(len).cast();
            let Some(objects) = self.0.get_bulk(std::slice::from_raw_parts_mut(to, count)) else {
                return false;
            };
            for object in objects {
                Mbuf::freshen(*object, &self.0.handle.shape.fresh);
            }
            burst.0.set_len(len + count);
        }
        true
    }

    /// Frees all mbufs of `burst`: to this cache if all are plain and of its pool, else each to its own pool.
    #[inline]
    pub fn free_burst(&mut self, burst: &mut Burst) {
        let count = burst.len();
        // SAFETY: the burst's mbufs, which are forgotten there once they are put away here. Plain ones are wholly home.
        unsafe {
            if count > 0 && all_plain_of(burst.0.as_ptr(), count, self.0.handle.id) {
                burst.0.set_len(0);
                self.0.put_bulk(std::slice::from_raw_parts(burst.0.as_ptr().cast(), count));
            } else {
                burst.clear();
            }
        }
    }

    /// Takes all it holds home.
    pub fn flush(&mut self) {
        self.0.flush();
    }
}
