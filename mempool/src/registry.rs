//! All pools of the process by number, and their end.
#![expect(unsafe_code, reason = "owns the pools that objects find by number")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_eal::barrier;

use crate::event::{Panic, PoolEvent, PoolInfo, first_of, go_on_with, subscribers, telling};
use crate::shared::Shared;

/// How many pools may live at once in the process.
pub const POOLS_MAX: usize = 1 << 16;

static POOLS: [AtomicPtr<Shared>; POOLS_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; POOLS_MAX];

/// Which pools are closed. Beside the pools, so that a thread may look after it has left one for good.
static CLOSED: [AtomicBool; POOLS_MAX] = [const { AtomicBool::new(false) }; POOLS_MAX];

struct Registry {
    /// Numbers of the pools that live, closed ones included.
    live: Vec<u16>,
    /// Numbers that live or are about to.
    taken: BTreeSet<u16>,
    next: u16,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { live: Vec::new(), taken: BTreeSet::new(), next: 0 });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The number of the pool that this thread last brought an mbuf home to.
    static LAST: Cell<u16> = const { Cell::new(0) };
}

/// The pool with number `id`.
///
/// An mbuf taken right after one was freed waits for the cache's new length, and finding that cache from the freed mbuf
/// is a chain of five loads. So the chain starts from a guess, which a branch checks: the processor goes on with the
/// guess while the mbuf's header is still on its way. That makes one mbuf at a time nearly three times as fast.
///
/// # Safety
/// The caller holds an object of that pool that is out, so the pool lives; the pointer is not used after the object
/// has gone home.
#[inline(always)]
pub(crate) unsafe fn pool_of_object(id: u16) -> NonNull<Shared> {
    let last = LAST.with(Cell::as_ptr);
    // SAFETY: a cell of this thread, to which no reference exists. The second read is volatile, so that the compiler
    // does not see that it can only be `id`.
    let id = unsafe {
        if *last != id {
            *last = id;
        }
        last.read_volatile()
    };
    // Relaxed is enough: whoever gave the caller the object made the pool visible with it.
    // SAFETY: an object is out, so the pool is neither reclaimed nor its entry cleared (caller).
    unsafe { NonNull::new_unchecked(POOLS[id as usize].load(Ordering::Relaxed)) }
}

/// A pool number that no pool has yet; given back unless a pool is entered under it.
pub(crate) struct Number(u16);

impl Number {
    pub(crate) fn reserve() -> Option<Self> {
        let mut registry = registry();
        if registry.taken.len() == POOLS_MAX {
            return None;
        }
        let mut id = registry.next;
        while !registry.taken.insert(id) {
            id = id.wrapping_add(1);
        }
        // Numbers go round, so that a stale one is noticed rather than taken for a new pool's.
        registry.next = id.wrapping_add(1);
        Some(Self(id))
    }

    pub(crate) fn get(&self) -> u16 {
        self.0
    }

    /// Enters the pool and tells the subscribers; what one of them panicked with is to go on once the pool has its handle.
    pub(crate) fn enter(self, shared: Box<Shared>) -> (NonNull<Shared>, Option<Panic>) {
        let id = self.0;
        std::mem::forget(self);
        let subscribers = subscribers();
        let info = Arc::clone(&shared.info);
        let shared = NonNull::from(Box::leak(shared));
        POOLS[id as usize].store(shared.as_ptr(), Ordering::Release);
        registry().live.push(id);
        (shared, subscribers.tell_all(&PoolEvent::Created(info)))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        registry().taken.remove(&self.0);
    }
}

/// What is known of the pools that live.
pub(crate) fn living() -> Vec<Arc<PoolInfo>> {
    let registry = registry();
    // SAFETY: a live pool's entry points to it, and only `reclaim_closed` ends it, under this lock.
    let info = |id: &u16| unsafe { Arc::clone(&(*POOLS[*id as usize].load(Ordering::Acquire)).info) };
    registry.live.iter().map(info).collect()
}

/// Marks a pool closed. The caller does not touch it afterwards.
pub(crate) fn close(id: u16) {
    // SeqCst: see `Shared::may_go`.
    CLOSED[id as usize].store(true, Ordering::SeqCst);
    // For the puts on the fast path, see `Room::publish`.
    barrier::heavy();
    reclaim_closed();
}

/// As [`is_closed`], for who passed [`barrier::light`] before.
#[inline(always)]
pub(crate) fn was_closed(id: u16) -> bool {
    CLOSED[id as usize].load(Ordering::Relaxed)
}

pub(crate) fn is_closed(id: u16) -> bool {
    CLOSED[id as usize].load(Ordering::SeqCst)
}

/// The hook of `eal::slot`: runs on a thread that is about to give its slot back.
pub(crate) fn flush_slot(slot: usize) {
    let registry = registry();
    for &id in &registry.live {
        // SAFETY: a live pool's entry points to it, and only `reclaim_closed` ends it, under this lock. The calling
        // thread holds the slot (`slot::on_release`).
        unsafe { (*POOLS[id as usize].load(Ordering::Acquire)).flush(slot) };
    }
    drop(registry);
    reclaim_closed();
}

/// Ends every closed pool whose objects are all home.
#[cold]
pub(crate) fn reclaim_closed() {
    if telling() {
        // A callback freed an object; whoever tells events holds the lock and looks again when it is done.
        return;
    }
    let mut panic = None;
    loop {
        let subscribers = subscribers();
        let gone = take_gone();
        if gone.is_empty() {
            break;
        }
        for shared in &gone {
            let told = subscribers.tell_all(&PoolEvent::Destroyed(Arc::clone(&shared.info)));
            panic = first_of(panic, told);
        }
        drop(subscribers);
        // Unmapping takes its time: not under a lock. What goes with the pools may have freed objects of others.
        drop(gone);
    }
    go_on_with(panic);
}

#[expect(clippy::vec_box, reason = "each was boxed alone, and is too large to be moved about")]
fn take_gone() -> Vec<Box<Shared>> {
    let mut gone = Vec::new();
    let mut registry = registry();
    let Registry { live, taken, .. } = &mut *registry;
    live.retain(|&id| {
        let entry = &POOLS[id as usize];
        let shared = entry.load(Ordering::Acquire);
        // SAFETY: a live pool's entry points to it, and only this function ends it, under the registry's lock.
        let may_go = is_closed(id) && unsafe { (*shared).may_go() };
        if may_go {
            CLOSED[id as usize].store(false, Ordering::SeqCst);
            entry.store(std::ptr::null_mut(), Ordering::Release);
            taken.remove(&id);
            // SAFETY: made by `Box::leak` in `enter`. No handle and no object is out, and no thread is inside.
            gone.push(unsafe { Box::from_raw(shared) });
        }
        !may_go
    });
    gone
}
