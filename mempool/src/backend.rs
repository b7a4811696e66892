//! Back ends: where objects rest that are in no thread's cache.
#![expect(unsafe_code, reason = "moves objects from and to memory the caller names")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use pollux_ring::{RingError, hts, mpmc, rts, spsc};

use crate::Object;

/// The structure that holds a pool's objects behind the caches. Each is safe for any number of threads; none is kept
/// in the pool's regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// A lock-free ring: first in, first out.
    #[default]
    RingMpMc,
    /// A ring whose threads wait for each other less where they outnumber the cores.
    RingRts,
    /// A ring that one thread a side uses at a time.
    RingHts,
    /// A ring for one thread a side; each end stands under a lock, which costs little when nobody else wants it, so that
    /// a second thread waits rather than corrupts.
    RingSpSc,
    /// Last in, first out, under a lock: the most recently used memory, the warmest, goes out first.
    Stack,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::RingMpMc, Self::RingRts, Self::RingHts, Self::RingSpSc, Self::Stack];

    /// The back end that DPDK's `--mbuf-pool-ops-name` calls `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }

    /// DPDK's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RingMpMc => "ring_mp_mc",
            Self::RingRts => "ring_mt_rts",
            Self::RingHts => "ring_mt_hts",
            Self::RingSpSc => "ring_sp_sc",
            Self::Stack => "stack",
        }
    }
}

#[derive(Debug)]
pub(crate) enum Store {
    RingMpMc(mpmc::Producer<Object>, mpmc::Consumer<Object>),
    RingRts(rts::Producer<Object>, rts::Consumer<Object>),
    RingHts(hts::Producer<Object>, hts::Consumer<Object>),
    RingSpSc(Mutex<spsc::Producer<Object>>, Mutex<spsc::Consumer<Object>>),
    Stack(Mutex<Vec<Object>>),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks, so a poisoned one cannot be; going on is right all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places that an RTS ring needs so that `capacity` objects always find room.
///
/// A consumer that loses its core in the middle holds back the places of all who claimed after it, and what those took may
/// be home again before. So, at worst, all objects are in the ring and the consumers' tail is behind their head by the
/// `distance` that it may be when a claim begins, and by that claim, which may be of all objects.
fn relaxed_room(capacity: usize, distance: usize) -> usize {
    2 * capacity + distance
}

impl Store {
    pub(crate) fn new(backend: Backend, capacity: usize) -> Result<Self, RingError> {
        Ok(match backend {
            Backend::RingMpMc => {
                let (producer, consumer) = mpmc::ring(capacity)?;
                Self::RingMpMc(producer, consumer)
            }
            Backend::RingRts => {
                let distance = (capacity / 8).max(1);
                let (producer, consumer) = rts::ring(relaxed_room(capacity, distance))?;
                rts::set_distance_max(&producer, distance)?;
                Self::RingRts(producer, consumer)
            }
            Backend::RingHts => {
                let (producer, consumer) = hts::ring(capacity)?;
                Self::RingHts(producer, consumer)
            }
            Backend::RingSpSc => {
                let (producer, consumer) = spsc::ring(capacity)?;
                Self::RingSpSc(Mutex::new(producer), Mutex::new(consumer))
            }
            Backend::Stack => Self::Stack(Mutex::new(Vec::with_capacity(capacity))),
        })
    }

    /// Objects that rest here now.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::RingMpMc(_, consumer) => consumer.count(),
            Self::RingRts(_, consumer) => consumer.count(),
            Self::RingHts(_, consumer) => consumer.count(),
            Self::RingSpSc(_, consumer) => locked(consumer).count(),
            Self::Stack(stack) => locked(stack).len(),
        }
    }

    /// Puts all of `objects` in and tells how many found room: all of them, unless one was given back twice.
    pub(crate) fn give(&self, objects: &[Object]) -> usize {
        match self {
            Self::RingMpMc(producer, _) => producer.enqueue_burst(objects).count,
            Self::RingRts(producer, _) => producer.enqueue_burst(objects).count,
            Self::RingHts(producer, _) => producer.enqueue_burst(objects).count,
            Self::RingSpSc(producer, _) => locked(producer).enqueue_burst(objects).count,
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
        // In two steps, so that what is too little is never taken from those whom it would be enough for.
        macro_rules! from_ring {
            ($consumer:expr) => {{
                let consumer = $consumer;
                // SAFETY: `least` and then `most - least` objects fit at `to` (caller).
                unsafe {
                    if consumer.dequeue_bulk_raw(to, least).count < least {
                        return 0;
                    }
                    least + consumer.dequeue_burst_raw(to.add(least), most - least).count
                }
            }};
        }
        match self {
            Self::RingMpMc(_, consumer) => from_ring!(consumer),
            Self::RingRts(_, consumer) => from_ring!(consumer),
            Self::RingHts(_, consumer) => from_ring!(consumer),
            Self::RingSpSc(_, consumer) => from_ring!(&mut *locked(consumer)),
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
