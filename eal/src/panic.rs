//! What happens when a thread of an `Eal` panics: it is noted, and all others are told to stop.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::stop::StopReason;
use crate::{LcoreId, StopFlag};

/// The end of something that panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{thread} panicked: {message}")]
#[non_exhaustive]
pub struct Panicked {
    /// The thread, such as `lcore-1`.
    pub thread: String,
    /// The lcore, if it is one.
    pub lcore: Option<LcoreId>,
    /// What it said.
    pub message: String,
}

/// Where the threads of one `Eal` report panics.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    pub(crate) stop: StopFlag,
    seen: Arc<Mutex<Vec<Panicked>>>,
}

impl Reporter {
    pub(crate) fn new(stop: StopFlag) -> Self {
        Self { stop, seen: Arc::default() }
    }

    /// Runs `work`; a panic of it stops the `Eal` and is returned. Itself it does not panic.
    pub(crate) fn guard<R>(&self, work: impl FnOnce() -> R) -> Result<R, Panicked> {
        // What `work` left half done stays with `work`: the caller only learns that it did not return.
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
            let thread = std::thread::current().name().unwrap_or("a thread").to_owned();
            let panicked = Panicked { thread, lcore: crate::lcore::current(), message: message(&*payload) };
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(panicked.clone());
            self.stop.set_because(StopReason::Panic);
            dispose(payload);
            // Where the log goes may be code of the application.
            let log = || tracing::error!(target: "lib.eal", "{panicked}; stopping");
            if let Err(payload) = catch_unwind(log) {
                dispose(payload);
            }
            panicked
        })
    }

    /// Drops what the application handed over; a panic of that is one of the `Eal`'s thread.
    pub(crate) fn let_go<T>(&self, value: T) {
        let _reported = self.guard(|| drop(value));
    }

    pub(crate) fn seen(&self) -> Vec<Panicked> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Does `work` for each value, whatever it does for another one; then the first of its panics goes on.
pub(crate) fn each<T>(values: impl IntoIterator<Item = T>, mut work: impl FnMut(T)) {
    let mut first = None;
    for value in values {
        match (catch_unwind(AssertUnwindSafe(|| work(value))), &first) {
            (Ok(()), _) => {}
            (Err(payload), None) => first = Some(payload),
            (Err(payload), Some(_)) => dispose(payload),
        }
    }
    match first {
        // A second panic would end the process.
        Some(payload) if std::thread::panicking() => dispose(payload),
        Some(payload) => resume_unwind(payload),
        None => {}
    }
}

/// Drops what a panic carried. That may panic in turn, with a payload of the same kind; that one is left in memory, as
/// there need be no end to it.
fn dispose(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).into(),
        (None, Some(text)) => text.clone(),
        (None, None) => "(no message)".into(),
    }
}
