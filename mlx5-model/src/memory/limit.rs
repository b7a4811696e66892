//! The limit on locked memory that a kernel would hold this process to.
//!
//! Linux counts pinned pages of all devices and contexts of a process together, holds the sum to the soft limit of
//! `RLIMIT_MEMLOCK` at each pin, and exempts `CAP_IPC_LOCK`; with a limit of 0 nothing may be pinned at all, by another error.
//! Source: Linux `drivers/infiniband/core/umem.c`, `ib_umem_get`; `mm/mlock.c`, `can_do_mlock`.

use std::sync::atomic::{AtomicU64, Ordering};

use pollux_uverbs::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Bytes that models of this process have pinned which go by its limit.
static LOCKED: AtomicU64 = AtomicU64::new(0);

/// Bytes counted against the process's limit, until they are dropped.
#[derive(Debug)]
pub(super) struct Charge(u64);

impl Charge {
    /// Counts `bytes`, unless the process's limit is too low.
    pub(super) fn take(bytes: u64) -> Result<Self, Errno> {
        let limit = getrlimit(Resource::Memlock).current;
        Self::under(bytes, limit, || {
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
        })
    }

    fn under(bytes: u64, limit: Option<u64>, exempt: impl FnOnce() -> bool) -> Result<Self, Errno> {
        let all = LOCKED.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        // Gives back what it took when it is dropped here.
        let charge = Self(bytes);
        match limit {
            Some(limit) if all > limit && !exempt() => {
                Err(if limit == 0 { Errno::EPERM } else { Errno::ENOMEM })
            }
            _ => Ok(charge),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        LOCKED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_all_is_held_to_the_limit() {
        // No other test of this library charges anything.
        let first = Charge::under(4096, Some(8192), || false).expect("fits");
        let second = Charge::under(4096, Some(8192), || false).expect("fits exactly");
        assert_eq!(Charge::under(1, Some(8192), || false).expect_err("full"), Errno::ENOMEM);
        assert!(Charge::under(1, Some(8192), || true).is_ok(), "CAP_IPC_LOCK");
        assert!(Charge::under(1, None, || false).is_ok(), "no limit");
        drop(first);
        assert!(Charge::under(4096, Some(8192), || false).is_ok(), "what went is not counted");
        drop(second);
        assert_eq!(Charge::under(1, Some(0), || false).expect_err("nothing at all"), Errno::EPERM);
        assert_eq!(LOCKED.load(Ordering::Relaxed), 0);
    }
}
