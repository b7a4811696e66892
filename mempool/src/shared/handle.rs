//! Holds on a pool; the last one to go closes it.
#![expect(unsafe_code, reason = "reaches the pool that it holds")]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use pollux_eal::slot;

use super::{Plan, Shared};
use crate::event::{go_on_with, telling};
use crate::registry::{Number, POOLS_MAX, close, flush_slot, pool_of_object, reclaim_closed};
use crate::{Area, PoolError};

/// A counted hold on a pool: while one exists, objects can be taken out.
pub(crate) struct Handle(NonNull<Shared>);

// SAFETY: `Shared` is `Send` and `Sync`, and the count is atomic.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

const _: () = {
    const fn shareable<T: Send + Sync>() {}
    shareable::<Shared>();
};

impl Handle {
    /// Lays objects out over `areas`, runs `construct(index, address)` on each and opens the pool.
    pub(crate) fn open(
        plan: Plan,
        areas: Vec<Area>,
        construct: impl FnMut(usize, NonNull<u8>),
    ) -> Result<Self, PoolError> {
        if telling() {
            return Err(PoolError::InsideEvent { name: plan.name });
        }
        slot::on_release(flush_slot);
        reclaim_closed();
        let Some(number) = Number::reserve() else {
            return Err(PoolError::TooManyPools { name: plan.name, limit: POOLS_MAX });
        };
        let shared = Shared::new(plan, areas, number.get(), construct)?;
        // With the hold that a new pool is made with.
        let (shared, panic) = number.enter(shared);
        let handle = Self(shared);
        // A callback may have freed objects of closed pools.
        reclaim_closed();
        // The pool ends with the handle then.
        go_on_with(panic);
        Ok(handle)
    }

    /// A new handle of the pool that an object is of, if the pool still has one.
    ///
    /// # Safety
    /// As for [`pool_of_object`].
    pub(crate) unsafe fn of_object(id: u16) -> Option<Self> {
        // SAFETY: passed on.
        let shared = unsafe { pool_of_object(id) };
        // SAFETY: the object keeps the pool alive for as long as this takes (caller).
        unsafe { shared.as_ref() }
            .handles
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count > 0).then_some(count + 1))
            .is_ok()
            .then_some(Self(shared))
    }
}

impl Handle {
    /// The pool, which lives while this handle does.
    #[inline(always)]
    pub(crate) fn pool(&self) -> NonNull<Shared> {
        self.0
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
        // AcqRel: what was taken out through any handle was taken out before the pool is closed.
        if self.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // The pool may be gone once it is marked closed: nothing of it is touched afterwards.
        close(self.id);
    }
}

#[cfg(test)]
mod tests {
    use pollux_eal::slot;

    use crate::{MbufPool, PoolEvent, subscribe};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A put on the fast path looks for room, writes there and publishes; the last handle goes in between.
    #[test]
    fn a_put_under_way_as_the_last_handle_goes_ends_the_pool() {
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let _subscription = subscribe(move |event| {
            if let PoolEvent::Destroyed(info) = event
                && info.name == "under way"
            {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let _lease = slot::lease().expect("a slot is free");
        let pool = MbufPool::builder("under way", 64).data_room(64).headroom(0).cache(16);
        let pool = pool.build_anonymous().expect("a small pool");
        // SAFETY: the pool has its handle.
        let object = unsafe { pool.0.take_one() }.expect("a fresh pool");
        let room = pool.0.room(1).expect("its own place");
        // SAFETY: the object is written to the room for one before that is published, and not used afterwards. It is out
        // until then, so the pool lives without a handle.
        unsafe {
            room.to.write(object);
            drop(pool);
            assert_eq!(ended.load(Ordering::SeqCst), 0, "one is out");
            room.publish();
        }
        assert_eq!(ended.load(Ordering::SeqCst), 1, "all are home");
    }
}
