//! Shared receive queues of rxe.

use std::sync::{Arc, Mutex, PoisonError};

use pollux_mlx5_common::key::Keys;
use pollux_uverbs::srq::{SrqKind, SrqRequest};
use pollux_uverbs::{Driver, PdHandle, SrqHandle};
use zerocopy::{FromZeros, IntoBytes};

use super::Rxe;
use super::abi::{CreateSrqAnswer, ReceiveEntry};
use super::queue::Queue;
use super::receive::{Notes, Receives, Target};
use super::track::{Note, Places};
use crate::VerbsError;
use crate::options::SrqOptions;
use crate::provider::QueueBase;
use crate::view::Gauge;

/// The kernel's queue. Queue pairs that receive through it keep it.
pub(crate) struct SrqCore {
    rxe: Rxe,
    handle: SrqHandle,
    number: u32,
    places: Arc<Mutex<Places>>,
    kept: Mutex<Option<Box<dyn Send>>>,
}

impl std::fmt::Debug for SrqCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SrqCore").field("number", &self.number).finish_non_exhaustive()
    }
}

impl SrqCore {
    pub(crate) fn handle(&self) -> SrqHandle {
        self.handle
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn places(&self) -> &Arc<Mutex<Places>> {
        &self.places
    }
}

impl Drop for SrqCore {
    fn drop(&mut self) {
        if let Err(error) = self.rxe.context().destroy_srq(self.handle) {
            tracing::warn!(target: "lib.verbs", "rxe: {error}");
            std::mem::forget(Arc::clone(&self.places));
            std::mem::forget(self.kept.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// The half that posts.
#[derive(Debug)]
pub(crate) struct Poster {
    core: Arc<SrqCore>,
    queue: Arc<Queue>,
    keys: Keys,
    receives: u32,
    pieces: u32,
    waiting: Vec<Note>,
}

impl Rxe {
    pub(crate) fn create_srq(
        &self,
        pd: PdHandle,
        options: &SrqOptions,
        base: QueueBase,
    ) -> Result<Poster, VerbsError> {
        let request = SrqRequest {
            pd,
            kind: SrqKind::Basic,
            max_wr: options.receives,
            max_sge: options.pieces,
            limit: options.limit,
            user_handle: base.user_handle,
        };
        let mut answer = CreateSrqAnswer::new_zeroed();
        let made = self
            .context()
            .create_srq(&request, Driver::new(&[], answer.as_mut_bytes()))
            .map_err(VerbsError::kernel("create a shared receive queue"))?;
        let queue = match Queue::map(self.context(), &answer.queue, size_of::<ReceiveEntry>()) {
            Ok(queue) => queue,
            Err(error) => {
                let _ = self.context().destroy_srq(made.handle);
                return Err(error);
            }
        };
        let core = Arc::new(SrqCore {
            rxe: self.clone(),
            handle: made.handle,
            number: answer.number,
            places: Arc::new(Mutex::new(Places::new(queue.capacity()))),
            kept: Mutex::new(Some(base.kept)),
        });
        let receives = made.max_wr.min(queue.capacity());
        Ok(Poster {
            core,
            queue: Arc::new(queue),
            keys: base.keys,
            receives,
            pieces: made.max_sge,
            waiting: Vec::new(),
        })
    }
}

impl Poster {
    pub(crate) fn srq(&self) -> &Arc<SrqCore> {
        &self.core
    }

    /// What is posted, for other threads.
    pub(crate) fn gauge(&self) -> Option<Arc<dyn Gauge>> {
        Some(Arc::clone(&self.queue) as Arc<dyn Gauge>)
    }

    pub(crate) fn sizes(&self) -> (u32, u32) {
        (self.receives, self.pieces)
    }

    pub(crate) fn receives(&mut self) -> Receives<'_> {
        let target = Target {
            queue: &self.queue,
            notes: Notes::AnyOrder(&self.core.places),
            keys: &mut self.keys,
            pieces: self.pieces,
            waiting: &mut self.waiting,
        };
        Receives::new(target, None)
    }
}
