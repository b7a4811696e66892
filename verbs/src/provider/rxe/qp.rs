//! Queue pairs of rxe.

use std::sync::{Arc, Mutex, PoisonError};

use crate::provider::mlx5::post::Kind;
use pollux_mlx5_common::key::Keys;
use pollux_uverbs::abi::flags::QpType;
use pollux_uverbs::abi::queue_pair::QpCap;
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::{Driver as Data, QpHandle};
use zerocopy::{FromZeros, IntoBytes};

use super::Rxe;
use super::abi::{CreateQpAnswer, ReceiveEntry, SendEntry};
use super::cq::{self, CqCore, Posted};
use super::post::{Batch, Written};
use super::queue::Queue;
use super::receive::{Notes, Receives, Target};
use super::srq::SrqCore;
use super::track::Track;
use crate::VerbsError;

/// What queue pair to make.
pub(crate) struct QpSpec<'a> {
    pub(crate) kind: Kind,
    pub(crate) home: QpHome,
    pub(crate) send_cq: Option<&'a Arc<CqCore>>,
    pub(crate) recv_cq: Option<&'a Arc<CqCore>>,
    pub(crate) srq: Option<&'a Arc<SrqCore>>,
    pub(crate) cap: QpCap,
    pub(crate) all_signalled: bool,
    pub(crate) keys: Keys,
    pub(crate) user_handle: u64,
    /// What must not go before the kernel's queue pair does.
    pub(crate) kept: Box<dyn Send>,
}

/// A queue pair.
pub(crate) struct Qp {
    rxe: Rxe,
    handle: QpHandle,
    number: u32,
    pub(super) kind: Kind,
    cap: QpCap,
    pub(super) inline: u32,
    pub(super) send_pieces: u32,
    pub(super) all_signalled: bool,
    pub(super) keys: Keys,
    pub(super) send_queue: Queue,
    receive_queue: Option<Queue>,
    pub(super) sends: Arc<Mutex<Track>>,
    pub(super) written: Box<Written>,
    receives: Option<Arc<Mutex<Track>>>,
    send_cq: Arc<CqCore>,
    recv_cq: Arc<CqCore>,
    srq: Option<Arc<SrqCore>>,
    kept: Option<Box<dyn Send>>,
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qp").field("number", &self.number).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Qp {
    pub(crate) fn create(rxe: &Rxe, spec: QpSpec<'_>) -> Result<Self, VerbsError> {
        let kind = match spec.kind {
            Kind::Rc => QpType::RC,
            Kind::Uc => QpType::UC,
            Kind::Ud => QpType::UD,
            kind => {
                return Err(VerbsError::Unsupported {
                    what: "queue pair",
                    why: format!("rxe has RC, UC and UD, not {kind}"),
                });
            }
        };
        let (Some(send_cq), Some(recv_cq)) = (spec.send_cq, spec.recv_cq) else {
            return Err(VerbsError::Unsupported {
                what: "queue pair",
                why: "it has no completion queues".into(),
            });
        };
        let request = QpRequest {
            send_cq: Some(send_cq.handle()),
            recv_cq: Some(recv_cq.handle()),
            srq: spec.srq.map(|srq| srq.handle()),
            cap: spec.cap,
            sq_sig_all: spec.all_signalled,
            user_handle: spec.user_handle,
            ..QpRequest::new(kind, spec.home)
        };
        let mut answer = CreateQpAnswer::new_zeroed();
        let made = rxe
            .context()
            .create_qp(&request, Data::new(&[], answer.as_mut_bytes()))
            .map_err(VerbsError::kernel("make a queue pair"))?;
        let queues = (|| {
            let send = Queue::map(rxe.context(), &answer.send, size_of::<SendEntry>())?;
            let has_receives = spec.srq.is_none() && spec.cap.max_recv_wr > 0;
            let receive = has_receives
                .then(|| Queue::map(rxe.context(), &answer.receive, size_of::<ReceiveEntry>()))
                .transpose()?;
            Ok((send, receive))
        })();
        let (send_queue, receive_queue) = match queues {
            Ok(queues) => queues,
            Err(error) => {
                let _ = rxe.context().destroy_qp(made.handle);
                return Err(error);
            }
        };
        // What the kernel made room for, as far as the entries have it.
        let room = (send_queue.entry_bytes() - size_of::<SendEntry>()) as u32;
        let cap = QpCap {
            max_send_wr: made.cap.max_send_wr.min(send_queue.capacity()),
            max_recv_wr: receive_queue.as_ref().map_or(0, |queue| made.cap.max_recv_wr.min(queue.capacity())),
            max_send_sge: made.cap.max_send_sge.min(room / 16),
            max_inline_data: made.cap.max_inline_data.min(room),
            ..made.cap
        };
        let sends = Arc::new(Mutex::new(Track::new(send_queue.capacity())));
        let receives = receive_queue.as_ref().map(|queue| Arc::new(Mutex::new(Track::new(queue.capacity()))));
        let noted = match (&receives, spec.srq) {
            (Some(track), _) => cq::Receives::Own(Arc::clone(track)),
            (None, Some(srq)) => cq::Receives::Shared(Arc::clone(srq.places())),
            (None, None) => cq::Receives::None,
        };
        let posted = Posted { sends: Arc::clone(&sends), receives: noted };
        send_cq.add(made.qpn, &posted);
        recv_cq.add(made.qpn, &posted);
        Ok(Self {
            rxe: rxe.clone(),
            handle: made.handle,
            number: made.qpn,
            kind: spec.kind,
            cap,
            inline: cap.max_inline_data,
            send_pieces: cap.max_send_sge,
            all_signalled: spec.all_signalled,
            keys: spec.keys,
            send_queue,
            receive_queue,
            sends,
            written: Box::default(),
            receives,
            send_cq: Arc::clone(send_cq),
            recv_cq: Arc::clone(recv_cq),
            srq: spec.srq.cloned(),
            kept: Some(spec.kept),
        })
    }

    pub(crate) fn handle(&self) -> QpHandle {
        self.handle
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn cap(&self) -> QpCap {
        self.cap
    }

    pub(crate) fn batch(&mut self) -> Batch<'_> {
        Batch::new(self)
    }

    pub(crate) fn receives(&mut self) -> Option<Receives<'_>> {
        let (queue, track) = (self.receive_queue.as_ref()?, self.receives.as_ref()?);
        Some(Receives::new(Target {
            queue,
            notes: Notes::InOrder(track),
            keys: &mut self.keys,
            pieces: self.cap.max_recv_sge,
        }))
    }

    /// Tells the kernel that entries are there.
    pub(super) fn ring(&self) {
        // What it does not take now it takes with the next call; a queue pair in error flushes it.
        if let Err(error) = self.rxe.context().ring_qp(self.handle) {
            tracing::warn!(target: "lib.verbs", "rxe: {error}");
        }
    }

    /// The kernel forgot what was posted: the memory goes home.
    pub(crate) fn was_reset(&mut self) {
        self.clear();
    }

    fn clear(&self) {
        for track in [Some(&self.sends), self.receives.as_ref()].into_iter().flatten() {
            let notes = track.lock().unwrap_or_else(PoisonError::into_inner).clear();
            drop(notes);
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if let Err(error) = self.rxe.context().destroy_qp(self.handle) {
            tracing::warn!(target: "lib.verbs", "rxe: {error}");
            // The kernel may still use what was posted: none of it is ever free again.
            std::mem::forget((Arc::clone(&self.sends), self.receives.clone(), self.srq.clone()));
            std::mem::forget(self.kept.take());
            return;
        }
        self.send_cq.remove(self.number);
        self.recv_cq.remove(self.number);
        self.clear();
    }
}
