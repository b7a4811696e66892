//! Cache slots: small process-wide numbers, each leased to at most one live thread.
//!
//! A per-thread cache (of a mempool, say) is an array indexed by slot. An lcore id cannot index it: two `Eal`s
//! in one process both have an lcore 0, and a thread the EAL did not make has none. A slot is unique among the
//! living threads of the process, so the holder of slot `n` is the only thread that touches entry `n`.
//!
//! A thread without a lease has no slot ([`current`] is `None`) and takes the shared path.

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use pollux_atomic::{AtomicU64, Ordering};

use crate::order;
use crate::panic::each;

/// Number of cache slots: how many threads of the process can hold one at a time.
pub const SLOTS: usize = 128;

const NONE: usize = usize::MAX;

#[cfg(not(loom))]
static TAKEN: Taken = Taken([const { AtomicU64::new(0) }; SLOTS / 64]);
// Never used: the model makes its own.
#[cfg(loom)]
static TAKEN: std::sync::LazyLock<Taken> = std::sync::LazyLock::new(Taken::new);
static HOOKS: Mutex<Vec<fn(usize)>> = Mutex::new(Vec::new());

thread_local! {
    // Const-initialised and without a destructor, so that reading it is one load relative to the thread pointer.
    static SLOT: Cell<usize> = const { Cell::new(NONE) };
    // With one, and so apart.
    static THREAD_END: ThreadEnd = const { ThreadEnd };
}

/// Gives back what a thread holds when it ends, as a lease may have been forgotten.
struct ThreadEnd;

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        // Nobody is left for a hook's panic to go to.
        let _ended = give_back();
    }
}

/// Returns the slot of the calling thread, if it holds one. Hot: one thread-local load.
#[inline(always)]
#[must_use]
pub fn current() -> Option<usize> {
    let slot = SLOT.get();
    // Every slot ever stored is below SLOTS, so one comparison also proves the index in bounds to the caller.
    (slot < SLOTS).then_some(slot)
}

/// A thread's hold on a slot; dropping it gives the slot back, and at the latest the end of the thread does. It cannot leave
/// its thread.
#[derive(Debug)]
pub struct SlotLease {
    slot: usize,
    _on_this_thread: PhantomData<*const ()>,
}

impl SlotLease {
    /// Returns the slot.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }
}

/// Leases a slot for the calling thread. `None` when the thread already holds one, is about to end, or all [`SLOTS`] are taken.
#[must_use]
pub fn lease() -> Option<SlotLease> {
    if current().is_some() || THREAD_END.try_with(|_| ()).is_err() {
        return None;
    }
    let slot = TAKEN.take()?;
    SLOT.set(slot);
    Some(SlotLease { slot, _on_this_thread: PhantomData })
}

/// Which slots are taken, a bit each.
struct Taken([AtomicU64; SLOTS / 64]);

impl Taken {
    #[cfg(loom)]
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Takes the first that is free.
    fn take(&self) -> Option<usize> {
        for (word_index, word) in self.0.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != u64::MAX {
                let bit = (!bits).trailing_zeros();
                let taken = bits | 1 << bit;
                match word.compare_exchange_weak(bits, taken, order::slot_take(), Ordering::Relaxed) {
                    Ok(_) => return Some(word_index * 64 + bit as usize),
                    Err(seen) => bits = seen,
                }
            }
        }
        None
    }

    fn give_back(&self, slot: usize) {
        self.0[slot / 64].fetch_and(!(1 << (slot % 64)), order::slot_give_back());
    }
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
        // Another destructor of an ending thread may have been first.
        if current() == Some(self.slot)
            && let Err(panic) = give_back()
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

/// Gives back the calling thread's slot, if it holds one. The error is what a hook panicked with.
fn give_back() -> std::thread::Result<()> {
    let Some(slot) = current() else { return Ok(()) };
    // The hooks run while the slot is still ours, so what they put away is put away by the owner.
    let hooks = HOOKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    let told = catch_unwind(AssertUnwindSafe(|| each(hooks, |hook| hook(slot))));
    SLOT.set(NONE);
    TAKEN.give_back(slot);
    told
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
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
    fn a_forgotten_lease_ends_with_its_thread() {
        // More than there are, one after the other: each finds a slot only if the last one's came back.
        for thread in 0..SLOTS + 20 {
            let leased = std::thread::spawn(|| lease().map(std::mem::forget).is_some()).join();
            assert!(leased.expect("the thread ends well"), "thread {thread}");
        }
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
