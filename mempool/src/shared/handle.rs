//! Holds on a pool; the last one to go closes it.
#![expect(unsafe_code, reason = "reaches the pool that it holds")]

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::Shared;
use crate::registry::{close, pool_of_object};

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
    /// The hold that a new pool is made with.
    pub(crate) fn first(shared: NonNull<Shared>) -> Self {
        Self(shared)
    }

    /// A new handle of the pool that an object is of, if the pool still has one.
    ///
    /// # Safety
    /// As for [`pool_of_object`].
    pub(crate) unsafe fn of_object(id: u16) -> Option<Self> {
        // SAFETY: passed on.
        let shared = unsafe { pool_of_object(id) };
        shared
            .handles
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count > 0).then_some(count + 1))
            .is_ok()
            .then(|| Self(NonNull::from(shared)))
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
        // From here on no put may rest in a cache: each goes the slow way, which tries to reclaim.
        self.put_limit.store(0, Ordering::Relaxed);
        // The pool may be gone once it is marked closed: nothing of it is touched afterwards.
        close(self.id);
    }
}
