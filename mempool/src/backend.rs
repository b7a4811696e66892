//! Back ends: where objects rest that are in no thread's cache.
#![expect(unsafe_code, reason = "moves objects out to memory the caller names")]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One object of a pool, as its address. What may be done with it is decided by whoever took it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Object(pub(crate) NonNull<u8>);

// SAFETY: an `Object` is an address; the holder of a taken-out object is its only user, whatever thread that is.
unsafe impl Send for Object {}

/// The structure that holds a pool's objects behind the caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Last in, first out, under a lock: the most recently used memory comes first.
    #[default]
    Stack,
}

#[derive(Debug)]
pub(crate) enum Store {
    Stack(Mutex<Vec<Object>>),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks, so a poisoned one cannot be; going on is right all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    pub(crate) fn new(backend: Backend, capacity: usize) -> Self {
        match backend {
            Backend::Stack => Self::Stack(Mutex::new(Vec::with_capacity(capacity))),
        }
    }

    /// Objects that rest here now.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Stack(stack) => locked(stack).len(),
        }
    }

    /// Puts all of `objects` in and tells how many found room: all of them, unless one was given back twice.
    pub(crate) fn give(&self, objects: &[Object]) -> usize {
        match self {
            Self::Stack(stack) => {
                let mut stack = locked(stack);
                let fit = objects.len().min(stack.capacity() - stack.len());
                stack.extend_from_slice(&objects[..fit]);
                fit
            }
        }
    }

    /// Takes at least `least` and at most `most` objects to `to`, or none. Tells how many.
    ///
    /// # Safety
    /// `to` is valid for writes of `most` objects.
    pub(crate) unsafe fn take(&self, to: *mut Object, least: usize, most: usize) -> usize {
        match self {
            Self::Stack(stack) => {
                let mut stack = locked(stack);
                if stack.len() < least {
                    return 0;
                }
                let count = most.min(stack.len());
                let rest = stack.len() - count;
                // SAFETY: `count <= most` objects fit at `to` (caller); they are the last `count` of the vector,
                // and no memory of a pool's vector is lent to a caller, so the two do not overlap.
                unsafe { std::ptr::copy_nonoverlapping(stack.as_ptr().add(rest), to, count) };
                stack.truncate(rest);
                count
            }
        }
    }
}
