//! The way of objects home, and with the last one the end of a closed pool.
#![expect(unsafe_code, reason = "takes back pieces of pinned memory")]

use std::ptr::NonNull;

use pollux_eal::barrier;

use super::Shared;
use crate::Object;
use crate::cache::{Room, SlotCache, bump, copy_objects};
use crate::registry::{is_closed, reclaim_closed, was_closed};

impl Room {
    /// Makes the objects that were written count, and ends the pool if they were the last ones out of a closed one. Hot: a
    /// store, and a load from a line that changes when a pool ends.
    ///
    /// # Safety
    /// All of them were written, and the pool was not used by this thread since `Shared::room`. If the pool is closed it
    /// is not used afterwards.
    #[inline(always)]
    pub(crate) unsafe fn publish(self) {
        // SAFETY: the cache is this thread's, of a pool that lives until here (caller).
        unsafe { (*self.cache).len.publish(self.len) };
        // Its other side is in `registry::close`: either the sum taken there has this store, or the mark is seen here.
        barrier::light();
        if was_closed(self.pool) {
            reclaim_closed();
        }
    }
}

impl Shared {
    /// Puts `count` objects back.
    ///
    /// # Safety
    /// The pool lives. The objects are of it, out, and the caller's; they are not used afterwards. If the pool is closed, it is not
    /// used afterwards either: with the last object home, this call or another thread ends it. So it takes a pointer, for what a
    /// reference is passed as must live until the call returns.
    #[inline(always)]
    pub(crate) unsafe fn give(this: NonNull<Self>, objects: *const Object, count: usize) {
        // SAFETY: the pool lives until the objects are home (caller); no reference to it is used after they are published.
        let (room, moves) = unsafe { (this.as_ref().room(count), this.as_ref().moves) };
        match room {
            // SAFETY: there is room for `count`, and all are written before they are published.
            Some(room) => unsafe {
                copy_objects(moves, objects, room.to, count);
                room.publish();
            },
            // SAFETY: passed on.
            None => unsafe { Self::give_slow(this, objects, count) },
        }
    }

    /// # Safety
    /// As for [`give`](Self::give).
    #[cold]
    #[inline(never)]
    unsafe fn give_slow(this: NonNull<Self>, objects: *const Object, count: usize) {
        // SAFETY: the pool lives until the objects are home and the passage is left (caller). The passage alone holds a reference
        // then, to atomics, which may go while one of their own calls returns.
        let id = unsafe { this.as_ref().id };
        // SAFETY: as above; passed on.
        let passage = unsafe {
            let passage = this.as_ref().passages.enter();
            this.as_ref().give_inside(objects, count);
            passage
        };
        drop(passage);
        // The pool may be gone from here on.
        if is_closed(id) {
            reclaim_closed();
        }
    }

    /// What [`give_slow`](Self::give_slow) does within its passage.
    ///
    /// # Safety
    /// As for [`give`](Self::give).
    unsafe fn give_inside(&self, objects: *const Object, count: usize) {
        let id = self.id;
        // SAFETY: the caller's objects.
        let objects = unsafe { std::slice::from_raw_parts(objects, count) };
        let size = self.cache_size as usize;
        match self.caches.own() {
            // SAFETY: the cache is this thread's, `keep <= len <= PLACES`, and `keep + count <= 1.5 * size`.
            Some(cache) if size > 0 && count <= size && !is_closed(id) => unsafe {
                let len = (*cache).len.own();
                let at = SlotCache::objects(cache);
                bump(&(*cache).flushes);
                // Keep the most recently used half: its memory is the warmest.
                let keep = len.min(size / 2);
                self.settle(std::slice::from_raw_parts(at, len - keep));
                std::ptr::copy(at.add(len - keep), at, keep);
                copy_objects(self.moves, objects.as_ptr(), at.add(keep), count);
                (*cache).len.publish(keep + count);
            },
            _ => self.settle(objects),
        }
    }
}
