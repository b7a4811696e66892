//! Pool events: a driver learns of each pool once, to register its memory with a device, and of its end.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::PoolRegion;

/// What is known of a pool that was made or is about to end.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// Its number; another pool may get it after the end of this one.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Its memory. Who registers it with a device keeps a clone of the region as long as the device may reach it.
    pub regions: Vec<PoolRegion>,
    /// Whether it is a pool of mbufs, whose data a device reads and writes.
    pub mbufs: bool,
}

/// Something happened to a pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PoolEvent {
    /// It was made; or it lived already when the subscription began.
    Created(Arc<PoolInfo>),
    /// Its last object is home and its last handle gone. Its memory goes when the callback has returned.
    Destroyed(Arc<PoolInfo>),
}

pub(crate) type Callback = Arc<dyn Fn(&PoolEvent) + Send + Sync>;

/// The subscribers. Its lock orders the events: it is held from the change of the registry until all are told.
pub(crate) struct Subscribers {
    pub(crate) next: u64,
    pub(crate) callbacks: Vec<(u64, Callback)>,
}

static SUBSCRIBERS: Mutex<Subscribers> = Mutex::new(Subscribers { next: 0, callbacks: Vec::new() });

thread_local! {
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a callback.
pub(crate) fn telling() -> bool {
    TELLING.get()
}

pub(crate) fn subscribers() -> MutexGuard<'static, Subscribers> {
    SUBSCRIBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn tell(callback: &Callback, event: &PoolEvent) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            TELLING.set(false);
        }
    }
    TELLING.set(true);
    let _reset = Reset;
    callback(event);
}

impl Subscribers {
    /// Tells all, whichever of them panics. What the first one panicked with is for the caller to go on with once the
    /// lock is open and all is in order.
    #[must_use]
    pub(crate) fn tell_all(&self, event: &PoolEvent) -> Option<Panic> {
        let mut panic = None;
        for (_, callback) in &self.callbacks {
            // A callback sees of the pools only what it is told, so none of their state can be broken by its end.
            let told = catch_unwind(AssertUnwindSafe(|| tell(callback, event)));
            panic = first_of(panic, told.err());
        }
        panic
    }
}

/// What a callback panicked with.
pub(crate) type Panic = Box<dyn Any + Send>;

/// The first of two panics.
pub(crate) fn first_of(first: Option<Panic>, second: Option<Panic>) -> Option<Panic> {
    if first.is_none() {
        return second;
    }
    if let Some(second) = second {
        dispose(second);
    }
    first
}

/// Drops a payload. That may panic in turn, with a payload of the same kind; that one is left in memory, as there need be no
/// end to it.
fn dispose(panic: Panic) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
}

/// Goes on with a callback's panic, unless one is under way.
pub(crate) fn go_on_with(panic: Option<Panic>) {
    match panic {
        Some(panic) if std::thread::panicking() => dispose(panic),
        Some(panic) => resume_unwind(panic),
        None => {}
    }
}
