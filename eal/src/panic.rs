//! What happens when a thread of an `Eal` panics: it is noted, and all others are told to stop.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

    /// Runs `work`; a panic of it stops the `Eal` and is returned.
    pub(crate) fn guard<R>(&self, work: impl FnOnce() -> R) -> Result<R, Panicked> {
        // What `work` left half done stays with `work`: the caller only learns that it did not return.
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
            let thread = std::thread::current().name().unwrap_or("a thread").to_owned();
            let panicked = Panicked { thread, lcore: crate::lcore::current(), message: message(&*payload) };
            tracing::error!(target: "lib.eal", "{panicked}; stopping");
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(panicked.clone());
            self.stop.set_because(StopReason::Panic);
            panicked
        })
    }

    pub(crate) fn seen(&self) -> Vec<Panicked> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).into(),
        (None, Some(text)) => text.clone(),
        (None, None) => "(no message)".into(),
    }
}
