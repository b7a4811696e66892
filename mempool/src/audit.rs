//! What a pool in debug mode watches: which object is out, and the guard bytes behind each.
#![expect(unsafe_code, reason = "writes and reads guard bytes in pinned memory")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Fewest guard bytes behind an object of a pool in debug mode.
pub(crate) const GUARD_BYTES: usize = 64;
const GUARD: u8 = 0xa5;
/// Faults kept for [`faults`](crate::ObjectPool::faults); later ones are only counted.
const FAULTS_MAX: usize = 64;

/// Misuse that a pool in debug mode caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// An object came back that was home already. It was not taken in a second time.
    DoubleFree {
        /// Which object of the pool.
        index: usize,
    },
    /// Somebody wrote behind the object's end, `offset` bytes after it. The guard was mended.
    Overrun {
        /// Which object of the pool.
        index: usize,
        /// First byte that was changed, counted from the object's end.
        offset: usize,
    },
    /// Somebody wrote over an mbuf's header. The mbuf was not taken in, since it cannot be trusted any more.
    HeaderOverwritten {
        /// Which object of the pool.
        index: usize,
    },
    /// An address came back that is no object of the pool. It was not taken in.
    Foreign {
        /// The address.
        address: usize,
    },
}

/// The books of a pool in debug mode.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Bytes from an object's start to its guard, and the guard's length.
    guard_at: usize,
    guard_bytes: usize,
    out: Vec<AtomicBool>,
    pub(crate) taken: AtomicU64,
    pub(crate) given: AtomicU64,
    pub(crate) fault_count: AtomicU64,
    faults: Mutex<Vec<Fault>>,
}

impl Watch {
    pub(crate) fn new(capacity: usize, guard_at: usize, guard_bytes: usize) -> Self {
        Self {
            guard_at,
            guard_bytes,
            out: (0..capacity).map(|_| AtomicBool::new(false)).collect(),
            taken: AtomicU64::new(0),
            given: AtomicU64::new(0),
            fault_count: AtomicU64::new(0),
            faults: Mutex::default(),
        }
    }

    /// A byte of an object's guard. Atomic: an audit looks at it, and mends it, while the object comes and goes.
    fn guard(&self, object: NonNull<u8>, at: usize) -> &AtomicU8 {
        // SAFETY: the guard is the last part of the object's stride (`Shared::open`), which lives as long as the pool
        // and its books. Only the pool touches it.
        unsafe { AtomicU8::from_ptr(object.add(self.guard_at + at).as_ptr()) }
    }

    /// Writes the guard of an object.
    pub(crate) fn arm(&self, object: NonNull<u8>) {
        for at in 0..self.guard_bytes {
            self.guard(object, at).store(GUARD, Ordering::Relaxed);
        }
    }

    /// Looks at the guard of an object and mends it.
    fn look(&self, index: usize, object: NonNull<u8>) -> Option<Fault> {
        let is_changed = |at: &usize| self.guard(object, *at).load(Ordering::Relaxed) != GUARD;
        let changed = (0..self.guard_bytes).find(is_changed)?;
        self.arm(object);
        Some(Fault::Overrun { index, offset: changed })
    }

    pub(crate) fn report(&self, pool: &str, fault: Fault) {
        self.fault_count.fetch_add(1, Ordering::Relaxed);
        tracing::error!(target: "lib.mempool", pool, ?fault, "misuse of a pool object");
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() < FAULTS_MAX {
            faults.push(fault);
        }
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Object `index` goes out.
    pub(crate) fn take(&self, pool: &str, index: usize, object: NonNull<u8>) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.out[index].store(true, Ordering::Relaxed);
        if let Some(fault) = self.look(index, object) {
            self.report(pool, fault);
        }
    }

    /// Object `index` comes back; tells whether it may.
    pub(crate) fn give(&self, pool: &str, index: usize, object: NonNull<u8>) -> bool {
        if !self.out[index].swap(false, Ordering::Relaxed) {
            self.report(pool, Fault::DoubleFree { index });
            return false;
        }
        self.given.fetch_add(1, Ordering::Relaxed);
        if let Some(fault) = self.look(index, object) {
            self.report(pool, fault);
        }
        true
    }

    /// Looks at the guards of all objects.
    pub(crate) fn audit(&self, pool: &str, address: impl Fn(usize) -> NonNull<u8>) {
        for index in 0..self.out.len() {
            if let Some(fault) = self.look(index, address(index)) {
                self.report(pool, fault);
            }
        }
    }
}
