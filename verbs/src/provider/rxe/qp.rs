//! Queue pairs of rxe.

use std::sync::{Arc, Mutex, PoisonError};

use pollux_mlx5_common::key::Keys;
use pollux_uverbs::abi::flags::{DeviceCaps, QpMask};
use pollux_uverbs::abi::queue_pair::ModifyQp;
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::{Driver, QpHandle, UverbsError};
use zerocopy::{FromZeros, IntoBytes};

use super::Rxe;
use super::abi::{CreateQpAnswer, ReceiveEntry, SendEntry, Sge};
use super::cq::{self, CqCore, Posted};
use super::queue::Queue;
use super::receive::{Notes, Receives, Target};
use super::srq::SrqCore;
use super::track::{Note, Track};
use super::written::Written;
use crate::VerbsError;
use crate::options::{QpOptions, QpSizes};
use crate::provider::request::{Kind, LINKED, NO_RECEIVES, NOT_IDLE, NOT_LINKED, PostError, Span};
use crate::provider::{Ends, QueueBase};
use crate::view::Gauge;

/// A queue pair.
pub(crate) struct Qp {
    rxe: Rxe,
    handle: QpHandle,
    number: u32,
    pub(super) kind: Kind,
    pub(super) caps: DeviceCaps,
    pub(super) room: QpSizes,
    pub(super) all_signalled: bool,
    pub(super) keys: Keys,
    pub(super) send_queue: Arc<Queue>,
    receive_queue: Option<Arc<Queue>>,
    pub(super) sends: Arc<Mutex<Track>>,
    pub(super) written: Box<Written>,
    receives: Option<Arc<Mutex<Track>>>,
    waiting: Vec<Note>,
    linked: Option<Linked>,
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

/// Where linked receives go.
#[derive(Clone, Copy, Debug)]
struct Linked {
    first: Span,
    /// The piece that is posted next.
    next: u32,
}

impl Rxe {
    pub(crate) fn create_qp(
        &self,
        home: QpHome,
        ends: Ends<'_, Arc<CqCore>, Arc<SrqCore>>,
        options: &QpOptions,
        base: QueueBase,
    ) -> Result<Qp, VerbsError> {
        let &QpOptions { kind, room, all_signalled, .. } = options;
        let unsupported = |why: String| VerbsError::Unsupported { what: "queue pair", why };
        if !matches!(kind, Kind::Rc | Kind::Uc | Kind::Ud) {
            return Err(unsupported(format!("rxe has RC, UC and UD, not {kind}")));
        }
        let (Some(send_cq), Some(recv_cq), srq) = (ends.send_cq, ends.recv_cq, ends.srq) else {
            return Err(unsupported("it has no completion queues".into()));
        };
        let room = QpSizes { receives: if srq.is_some() { 0 } else { room.receives }, ..room };
        let request = QpRequest {
            send_cq: Some(send_cq.handle()),
            recv_cq: Some(recv_cq.handle()),
            srq: srq.map(|srq| srq.handle()),
            cap: room.cap(),
            sq_sig_all: all_signalled,
            user_handle: base.user_handle,
            ..QpRequest::new(kind.qp_type(), home)
        };
        let mut answer = CreateQpAnswer::new_zeroed();
        let made = self
            .context()
            .create_qp(&request, Driver::new(&[], answer.as_mut_bytes()))
            .map_err(VerbsError::kernel("create a queue pair"))?;
        let queues = (|| {
            let send = Queue::map(self.context(), &answer.send, size_of::<SendEntry>())?;
            let receive = (room.receives > 0)
                .then(|| Queue::map(self.context(), &answer.receive, size_of::<ReceiveEntry>()))
                .transpose()?;
            Ok((send, receive))
        })();
        let (send_queue, receive_queue) = match queues {
            Ok(queues) => queues,
            Err(error) => {
                let _ = self.context().destroy_qp(made.handle);
                return Err(error);
            }
        };
        // What the kernel made room for, as far as the entries have it.
        let (cap, bytes) = (made.cap, (send_queue.entry_bytes() - size_of::<SendEntry>()) as u32);
        let room = QpSizes {
            sends: cap.max_send_wr.min(send_queue.capacity()),
            receives: receive_queue.as_ref().map_or(0, |queue| cap.max_recv_wr.min(queue.capacity())),
            send_pieces: cap.max_send_sge.min(bytes / size_of::<Sge>() as u32),
            recv_pieces: cap.max_recv_sge,
            inline: cap.max_inline_data.min(bytes),
        };
        let sends = Arc::new(Mutex::new(Track::new(send_queue.capacity())));
        let receives = receive_queue.as_ref().map(|queue| Arc::new(Mutex::new(Track::new(queue.capacity()))));
        let noted = match (&receives, srq) {
            (Some(track), _) => cq::Receives::Own(Arc::clone(track)),
            (None, Some(srq)) => cq::Receives::Shared(Arc::clone(srq.places())),
            (None, None) => cq::Receives::None,
        };
        let posted = Posted { sends: Arc::clone(&sends), receives: noted, errors: base.errors };
        send_cq.add(made.qpn, &posted);
        recv_cq.add(made.qpn, &posted);
        Ok(Qp {
            rxe: self.clone(),
            handle: made.handle,
            number: made.qpn,
            kind,
            caps: self.caps,
            room,
            all_signalled,
            keys: base.keys,
            send_queue: Arc::new(send_queue),
            receive_queue: receive_queue.map(Arc::new),
            sends,
            written: Box::default(),
            receives,
            waiting: Vec::new(),
            linked: None,
            send_cq: Arc::clone(send_cq),
            recv_cq: Arc::clone(recv_cq),
            srq: srq.cloned(),
            kept: Some(base.kept),
        })
    }
}

impl Qp {
    pub(crate) fn handle(&self) -> QpHandle {
        self.handle
    }

    /// What is posted to both its rings, for other threads.
    pub(crate) fn gauges(&self) -> [Option<Arc<dyn Gauge>>; 2] {
        let gauge = |queue: &Arc<Queue>| Arc::clone(queue) as Arc<dyn Gauge>;
        [Some(gauge(&self.send_queue)), self.receive_queue.as_ref().map(gauge)]
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn sizes(&self) -> QpSizes {
        self.room
    }

    /// The most completions that can be unpolled: both queues full.
    pub(crate) fn completions(&self) -> u32 {
        self.send_queue.capacity() + self.receive_queue.as_ref().map_or(0, |queue| queue.capacity())
    }

    pub(crate) fn change(
        &self,
        mask: QpMask,
        values: &ModifyQp,
        rate_limit: Option<u32>,
    ) -> Result<(), UverbsError> {
        self.rxe.context().change_qp(self.handle, mask, values, rate_limit)
    }

    pub(crate) fn receives(&mut self) -> Option<Receives<'_>> {
        let refused = self.linked.is_some().then_some(LINKED);
        self.list(refused)
    }

    fn list(&mut self, refused: Option<PostError>) -> Option<Receives<'_>> {
        let (queue, track) = (self.receive_queue.as_ref()?, self.receives.as_ref()?);
        let target = Target {
            queue,
            notes: Notes::InOrder(track),
            keys: &mut self.keys,
            pieces: self.room.recv_pieces,
            waiting: &mut self.waiting,
        };
        Some(Receives::new(target, refused))
    }

    /// Whether its receives can be linked now.
    ///
    /// # Errors
    /// There is no receive queue, or receives are posted.
    pub(crate) fn may_link(&self) -> Result<(), PostError> {
        let track = self.receives.as_ref().ok_or(NO_RECEIVES)?;
        let posted = track.lock().unwrap_or_else(PoisonError::into_inner).len();
        if posted == 0 { Ok(()) } else { Err(NOT_IDLE) }
    }

    /// Links its receives to pieces one after the other, the first of which is `first`.
    ///
    /// # Errors
    /// There is no receive queue, or receives are posted.
    pub(crate) fn link_receives(&mut self, first: Span) -> Result<(), PostError> {
        self.may_link()?;
        self.linked = Some(Linked { first, next: 0 });
        Ok(())
    }

    /// Posts linked receives. The kernel counts down in entries as it fills them, so they are written again.
    ///
    /// # Errors
    /// They are not linked, or there is no room.
    pub(crate) fn post_linked(&mut self, count: u32) -> Result<(), PostError> {
        let Linked { first, mut next } = self.linked.ok_or(NOT_LINKED)?;
        let pieces = self.room.receives;
        let track = self.receives.as_ref().ok_or(NO_RECEIVES)?;
        let posted = track.lock().unwrap_or_else(PoisonError::into_inner).len();
        if posted + count as usize > pieces as usize {
            return Err(PostError::Full);
        }
        let mut list = self.list(None).ok_or(NO_RECEIVES)?;
        for _ in 0..count {
            list.span(u64::from(next), first.after(next));
            next = (next + 1) % pieces;
        }
        list.ring()?;
        self.linked = Some(Linked { first, next });
        Ok(())
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
        self.linked = None;
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
