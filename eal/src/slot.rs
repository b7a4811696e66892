//! Cache slots: small process-wide numbers, each leased to at most one live thread.
//!
//! A per-thread cache (of a mempool, say) is an array indexed by slot. An lcore id cannot index it: two `Eal`s
//! in one process both have an lcore 0, and a thread the EAL did not make has none. A slot is unique among the
//! living threads of the process, so the holder of slot `n` is the only thread that touches entry `n`.
//!
//! A thread without a lease has no slot ([`current`] is `None`) and takes the shared path.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many threads of the process can hold a slot at once.
pub const SLOTS: usize = 128;

const NONE: usize = usize::MAX;

static TAKEN: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];
static HOOKS: Mutex<Vec<fn(usize)>> = Mutex::new(Vec::new());

thread_local! {
    // Const-initialised and without a destructor, so that reading it is one load relative to the thread pointer.
    static SLOT: Cell<usize> = const { Cell::new(NONE) };
}

/// The calling thread's slot, if it holds one. Hot: one thread-local load.
#[inline(always)]
#[must_use]
pub fn current() -> Option<usize> {
    let slot = SLOT.get();
    // Every slot ever stored is below SLOTS, so one comparison also proves the index in bounds to the caller.
    (slot < SLOTS).then_some(slot)
}

/// A thread's hold on a slot; dropping it gives the slot back. It cannot leave its thread.
#[derive(Debug)]
pub struct SlotLease {
    slot: usize,
    _on_this_thread: PhantomData<*const ()>,
}

impl SlotLease {
    /// The slot that is held.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }
}

/// Leases a slot for the calling thread. `None` when the thread already holds one or all [`SLOTS`] are taken.
#[must_use]
pub fn lease() -> Option<SlotLease> {
    if current().is_some() {
        return None;
    }
    for (word_index, word) in TAKEN.iter().enumerate() {
        let mut bits = word.load(Ordering::Relaxed);
        while bits != u64::MAX {
            let bit = (!bits).trailing_zeros();
            // Acquire pairs with the Release in `drop`: what the last holder left in its caches is seen by this one.
            match word.compare_exchange_weak(bits, bits | 1 << bit, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    let slot = word_index * 64 + bit as usize;
                    SLOT.set(slot);
                    return Some(SlotLease { slot, _on_this_thread: PhantomData });
                }
                Err(seen) => bits = seen,
            }
        }
    }
    None
}

/// Registers a function that runs on a leaving thread, with its slot, just before the slot becomes free.
///
/// It is meant for crates that keep per-slot caches: they empty the leaving thread's cache there. A hook is kept for
/// the life of the process and is registered once however often this is called with it.
pub fn on_release(hook: fn(usize)) {
    let mut hooks = HOOKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !hooks.iter().any(|known| std::ptr::fn_addr_eq(*known, hook)) {
        hooks.push(hook);
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        // The hooks run while the slot is still ours, so what they put away is put away by the owner.
        let hooks = HOOKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        for hook in hooks {
            hook(self.slot);
        }
        SLOT.set(NONE);
        TAKEN[self.slot / 64].fetch_and(!(1 << (self.slot % 64)), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_holds_one_slot_and_gives_it_back() {
        std::thread::spawn(|| {
            assert!(current().is_none());
            let held = lease().expect("a slot is free");
            assert_eq!(current(), Some(held.slot()));
            assert!(lease().is_none(), "a second lease on one thread");
            drop(held);
            assert!(current().is_none());
        })
        .join()
        .expect("the thread ends well");
    }

    #[test]
    fn living_threads_never_share_a_slot() {
        let barrier = std::sync::Barrier::new(16);
        let slots: std::collections::HashSet<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        let held = lease().expect("a slot is free");
                        barrier.wait();
                        held.slot()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("the thread ends well")).collect()
        });
        assert_eq!(slots.len(), 16);
    }
}
