//! For tests: who is told of each store to device registers and doorbell records, and of the barriers around them.
//!
//! Observers are found by address, not by thread, because a queue may be moved to another lcore than the test's; addresses
//! of living mappings are unique in the process, so tests that run side by side do not meet. Barriers have no address: of
//! one, those are told whose device the thread has stored to.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What orders a store after those before it, the stronger the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fence {
    /// Nothing since the thread's last store that was seen.
    #[default]
    None,
    /// [`to_device`](crate::barrier::to_device): stores to ordinary memory come first.
    ToDevice,
    /// [`wc_flush`](crate::barrier::wc_flush): stores to memory of any kind come first.
    Flush,
}

/// A store that has been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Where.
    pub address: usize,
    /// Which bytes, as they now stand there: 4, 8 or 64.
    pub bytes: &'a [u8],
    /// The strongest barrier that the thread passed since its last store to a register or a record.
    pub fence: Fence,
}

/// Who is told, on the thread that does what it is told of.
pub trait Observer: Send + Sync {
    /// A store to a register of its range was made.
    fn register(&self, store: Store<'_>);

    /// A store to some device's doorbell record was made. Whether it is a record of this one's.
    fn record(&self, _store: Store<'_>) -> bool {
        false
    }

    /// The thread, which stored to its range, passed [`wc_flush`](crate::barrier::wc_flush).
    fn flushed(&self) {}

    /// The thread passed [`from_device`](crate::barrier::from_device), and stored to registers or records of this one before, or
    /// to nobody's.
    fn sees_device(&self) {}
}

struct Stores<F>(F);

impl<F: Fn(Store<'_>) + Send + Sync> Observer for Stores<F> {
    fn register(&self, store: Store<'_>) {
        self.0(store);
    }
}

struct Entry {
    id: usize,
    range: Range<usize>,
    observer: Arc<dyn Observer>,
}

static OBSERVERS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// How many there are, so that without any a store takes no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static FENCE: Cell<Fence> = const { Cell::new(Fence::None) };
    /// Observers to whose registers this thread stored since it last flushed.
    static UNFLUSHED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// Observers of the devices that this thread stored to.
    static KNOWN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Holds an observer in place; dropping it ends the observation. A call that is under way on another thread then may
/// still finish.
#[derive(Debug)]
#[must_use = "dropping it ends the observation"]
pub struct Observation {
    id: usize,
}

/// Has `observer` called after each store to an address in `range`, on the thread that made it. It may itself store,
/// observe and end observations.
///
/// # Panics
/// When another observer has part of the range: a register belongs to one device.
pub fn observe(range: Range<usize>, observer: impl Fn(Store<'_>) + Send + Sync + 'static) -> Observation {
    watch(range, Stores(observer))
}

/// The same for an observer that is told of records and barriers too.
///
/// # Panics
/// As [`observe`].
pub fn watch(range: Range<usize>, observer: impl Observer + 'static) -> Observation {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut observers = locked();
    let overlap = observers.iter().any(|old| old.range.start < range.end && range.start < old.range.end);
    assert!(!overlap, "{range:x?} is observed already");
    observers.push(Entry { id, range, observer: Arc::new(observer) });
    COUNT.store(observers.len(), Ordering::Release);
    Observation { id }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let mut observers = locked();
        let at = observers.iter().position(|entry| entry.id == self.id);
        let ended = at.map(|at| observers.swap_remove(at));
        COUNT.store(observers.len(), Ordering::Release);
        // What the observer owns may have a destructor that comes back here.
        drop(observers);
        drop(ended);
    }
}

#[inline(always)]
pub(super) fn stored(address: usize, bytes: &[u8]) {
    if COUNT.load(Ordering::Acquire) > 0 {
        register(Store { address, bytes, fence: FENCE.take() });
    }
}

#[inline(always)]
pub(super) fn recorded(address: usize, bytes: &[u8]) {
    if COUNT.load(Ordering::Acquire) > 0 {
        record(Store { address, bytes, fence: FENCE.take() });
    }
}

/// The thread passed `to_device`.
#[inline(always)]
pub(crate) fn to_device() {
    FENCE.set(FENCE.get().max(Fence::ToDevice));
}

/// The thread passed `wc_flush`.
#[inline(always)]
pub(crate) fn flushed() {
    FENCE.set(Fence::Flush);
    if COUNT.load(Ordering::Acquire) > 0 {
        flush();
    }
}

/// The thread passed `from_device`.
#[inline(always)]
pub(crate) fn from_device() {
    if COUNT.load(Ordering::Acquire) > 0 {
        acquire();
    }
}

#[cold]
fn register(store: Store<'_>) {
    let found = locked()
        .iter()
        .find(|entry| entry.range.contains(&store.address))
        .map(|entry| (entry.id, Arc::clone(&entry.observer)));
    // Called without the lock, so that it may use this module itself.
    if let Some((id, observer)) = found {
        remember(&UNFLUSHED, id);
        remember(&KNOWN, id);
        tell(|| observer.register(store));
    }
}

#[cold]
fn record(store: Store<'_>) {
    let known = KNOWN.with_borrow(Vec::clone);
    let mut all = living(None);
    // Most likely it is one that this thread has to do with.
    all.sort_by_key(|(id, _)| !known.contains(id));
    tell(|| {
        if let Some((id, _)) = all.iter().find(|(_, observer)| observer.record(store)) {
            remember(&KNOWN, *id);
        }
    });
}

#[cold]
fn flush() {
    let unflushed = UNFLUSHED.take();
    if !unflushed.is_empty() {
        tell(|| living(Some(&unflushed)).iter().for_each(|(_, observer)| observer.flushed()));
    }
}

#[cold]
fn acquire() {
    let known = KNOWN.with_borrow(Vec::clone);
    let mut told = living(Some(&known));
    if told.is_empty() {
        told = living(None);
    }
    tell(|| told.iter().for_each(|(_, observer)| observer.sees_device()));
}

/// What an observer does on the thread, a device's work and the interrupts of it, is not the thread's own: barriers that this has
/// passed still stand.
fn tell(observers: impl FnOnce()) {
    let fence = FENCE.get();
    observers();
    FENCE.set(fence);
}

fn remember(list: &'static std::thread::LocalKey<RefCell<Vec<usize>>>, id: usize) {
    list.with_borrow_mut(|list| {
        if !list.contains(&id) {
            list.push(id);
        }
    });
}

/// The observers that are there, all or some.
fn living(only: Option<&[usize]>) -> Vec<(usize, Arc<dyn Observer>)> {
    let observers = locked();
    let wanted = observers.iter().filter(|entry| only.is_none_or(|only| only.contains(&entry.id)));
    wanted.map(|entry| (entry.id, Arc::clone(&entry.observer))).collect()
}

fn locked() -> MutexGuard<'static, Vec<Entry>> {
    OBSERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}
