//! Who is told what happens: completions, errors of queues, the port, the device.
//!
//! Events come on the device's thread, so nothing here waits or executes a command: a lock is held for as long as a table
//! is looked at.

pub(crate) mod file;
pub(crate) mod queue;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::eqe::{self, Eqe, event, port_change, queue_kind};
use pollux_uverbs::abi::device::{AsyncEventDesc, CompEventDesc};
use pollux_uverbs::event::AsyncKind;
use zerocopy::{FromBytes, IntoBytes};

use file::{Count, EventFile, FileKind};

/// Stands for shared receive queues among the kinds of queues: their events name no kind, since these alone have them.
pub(crate) const SHARED_RECEIVE_QUEUE: u8 = 0xff;

/// The tables.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    completion_queues: HashMap<u32, CqTarget>,
    queues: HashMap<(u8, u32), Vec<QueueTarget>>,
    /// Descriptors that hear of ports and the device.
    everybody: Vec<Weak<EventFile>>,
    subscriptions: Vec<Subscription>,
    /// The function whose port is told of as well, and that port's number there.
    joined: Option<(Weak<Events>, u64)>,
}

/// Who is told of a completion queue.
#[derive(Clone, Debug)]
pub(crate) struct CqTarget {
    pub(crate) channel: Option<Arc<EventFile>>,
    pub(crate) file: Option<Arc<EventFile>>,
    pub(crate) user_handle: u64,
    pub(crate) completions: Count,
    pub(crate) events: Count,
}

/// Who is told of a queue pair or a work queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueTarget {
    pub(crate) file: Option<Arc<EventFile>>,
    pub(crate) user_handle: u64,
    pub(crate) events: Count,
    /// A work queue, not a queue pair.
    pub(crate) is_wq: bool,
}

/// A DevX subscription: one kind of event, of one object or of none.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) file: Weak<EventFile>,
    pub(crate) event: u16,
    /// Command that made the object, and its number.
    pub(crate) object: Option<(u16, u32)>,
    pub(crate) cookie: u64,
    /// Counter of events (eventfd(2)) that is raised instead of the file.
    pub(crate) redirect: Option<OwnedFd>,
    /// Marks its events in a file that keeps one at a time.
    pub(crate) count: Count,
}

impl Events {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Tables are never half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has those of another function told, too, of what becomes of this one's port: as of a port of that number.
    pub(crate) fn join(&self, first: &Arc<Self>, port: u64) {
        self.tables().joined = Some((Arc::downgrade(first), port));
    }

    pub(crate) fn add_file(&self, file: &Arc<EventFile>) {
        let mut tables = self.tables();
        tables.everybody.retain(|other| other.strong_count() > 0);
        tables.everybody.push(Arc::downgrade(file));
    }

    pub(crate) fn add_cq(&self, cqn: u32, target: CqTarget) {
        self.tables().completion_queues.insert(cqn, target);
    }

    pub(crate) fn remove_cq(&self, cqn: u32) -> Option<CqTarget> {
        self.tables().completion_queues.remove(&cqn)
    }

    /// Adds one who is told of a queue; a receiver of XRC has several.
    pub(crate) fn add_queue(&self, kind: u8, number: u32, target: QueueTarget) {
        self.tables().queues.entry((kind, number)).or_default().push(target);
    }

    /// Takes away the one who counts in `events`.
    pub(crate) fn remove_queue(&self, kind: u8, number: u32, events: &Count) {
        let mut tables = self.tables();
        if let Some(targets) = tables.queues.get_mut(&(kind, number)) {
            targets.retain(|target| !Arc::ptr_eq(&target.events, events));
            if targets.is_empty() {
                tables.queues.remove(&(kind, number));
            }
        }
    }

    pub(crate) fn subscribe(&self, subscription: Subscription) {
        let mut tables = self.tables();
        tables.subscriptions.retain(|other| other.file.strong_count() > 0);
        tables.subscriptions.push(subscription);
    }

    /// Ends the subscriptions of a DevX object.
    pub(crate) fn unsubscribe(&self, object: (u16, u32)) {
        self.tables().subscriptions.retain(|subscription| subscription.object != Some(object));
    }

    /// Tells everybody that a port came up or went down, or that the device is gone.
    pub(crate) fn tell_everybody(&self, kind: AsyncKind, element: u64) {
        let files: Vec<Arc<EventFile>> = self.tables().everybody.iter().filter_map(Weak::upgrade).collect();
        for file in files {
            tell_async(&file, kind, element, None);
        }
    }

    /// Tells of an event of the device. `true` when it says that the device failed.
    pub(crate) fn dispatch(&self, entry: &Eqe) -> bool {
        match entry.kind {
            event::COMP => {
                if let Ok((completion, _)) = eqe::Completion::read_from_prefix(&entry.data) {
                    self.completed(completion.cqn.get() & 0xff_ffff, entry);
                }
                return false;
            }
            event::CMD | event::PAGE_REQUEST | event::PAGE_FAULT => return false,
            event::CQ_ERROR => {
                if let Ok((error, _)) = eqe::CqError::read_from_prefix(&entry.data) {
                    let target = self.tables().completion_queues.get(&(error.cqn.get() & 0xff_ffff)).cloned();
                    if let Some(CqTarget { file: Some(file), user_handle, events, .. }) = target {
                        tell_async(&file, AsyncKind::CQ_ERR, user_handle, Some(&events));
                    }
                }
            }
            event::PORT_CHANGE => {
                let port = eqe::Port::read_from_prefix(&entry.data).map_or(1, |(port, _)| port.port >> 4);
                let kind = match entry.sub_type {
                    port_change::ACTIVE => Some(AsyncKind::PORT_ACTIVE),
                    port_change::DOWN | port_change::INITIALIZED => Some(AsyncKind::PORT_ERR),
                    port_change::LID => Some(AsyncKind::LID_CHANGE),
                    port_change::PKEY => Some(AsyncKind::PKEY_CHANGE),
                    port_change::GUID => Some(AsyncKind::GID_CHANGE),
                    port_change::CLIENT_REREG => Some(AsyncKind::CLIENT_REREGISTER),
                    _ => None,
                };
                if let Some(kind) = kind {
                    self.tell_everybody(kind, u64::from(port));
                    let joined = self.tables().joined.clone();
                    if let Some((first, port)) =
                        joined.and_then(|(first, port)| Some((first.upgrade()?, port)))
                    {
                        first.tell_everybody(kind, port);
                    }
                }
            }
            _ => {
                if let (Some(subject), Ok((queue, _))) =
                    (queue_event(entry.kind), eqe::Queue::read_from_prefix(&entry.data))
                {
                    let shared = matches!(entry.kind, event::SRQ_CATAS_ERROR | event::SRQ_RQ_LIMIT);
                    let kind = if shared { SHARED_RECEIVE_QUEUE } else { queue.kind };
                    self.queue_event(subject, (kind, queue.qp_srq_n.get() & 0xff_ffff));
                }
            }
        }
        self.tell_subscribers(entry);
        entry.kind == event::INTERNAL_ERROR
    }

    fn completed(&self, cqn: u32, entry: &Eqe) {
        let target = self.tables().completion_queues.get(&cqn).cloned();
        if let Some(CqTarget { channel: Some(channel), user_handle, completions, .. }) = target {
            channel.tell(CompEventDesc { cq_handle: user_handle }.as_bytes(), Some(&completions));
        }
        self.tell_matching(event::COMP.into(), Some((opcode::CREATE_CQ, cqn)), entry);
    }

    fn queue_event(&self, kind: AsyncKind, queue: (u8, u32)) {
        let targets = self.tables().queues.get(&queue).cloned().unwrap_or_default();
        for QueueTarget { file, user_handle, events, is_wq } in targets {
            let Some(file) = file else { continue };
            // Of a work queue only its end is told. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `mlx5_ib_wq_event`.
            let kind = match (is_wq, kind) {
                (true, AsyncKind::QP_FATAL) => AsyncKind::WQ_FATAL,
                (true, _) => continue,
                (false, kind) => kind,
            };
            tell_async(&file, kind, user_handle, Some(&events));
        }
    }

    fn tell_subscribers(&self, entry: &Eqe) {
        let object = match entry.kind {
            event::PORT_CHANGE | event::INTERNAL_ERROR => None,
            event::CQ_ERROR => eqe::CqError::read_from_prefix(&entry.data)
                .ok()
                .map(|(error, _)| (opcode::CREATE_CQ, error.cqn.get() & 0xff_ffff)),
            _ => eqe::Queue::read_from_prefix(&entry.data).ok().map(|(queue, _)| {
                let made_by = match queue.kind {
                    queue_kind::RQ => opcode::CREATE_RQ,
                    queue_kind::SQ => opcode::CREATE_SQ,
                    _ => opcode::CREATE_QP,
                };
                (made_by, queue.qp_srq_n.get() & 0xff_ffff)
            }),
        };
        self.tell_matching(entry.kind.into(), object, entry);
    }

    fn tell_matching(&self, kind: u16, object: Option<(u16, u32)>, entry: &Eqe) {
        let tables = self.tables();
        for subscription in &tables.subscriptions {
            if subscription.event != kind || subscription.object != object {
                continue;
            }
            if let Some(counter) = &subscription.redirect {
                // One more, as eventfd(2) counts. A full counter stays full.
                let _ = rustix::io::write(counter, &1_u64.to_ne_bytes());
                continue;
            }
            let Some(file) = subscription.file.upgrade() else { continue };
            let mut record = subscription.cookie.to_ne_bytes().to_vec();
            if file.kind == (FileKind::DevxEvent { omit_data: true }) {
                if !file.has_unread(&subscription.count) {
                    file.tell(&record, Some(&subscription.count));
                }
                continue;
            }
            record.extend_from_slice(entry.as_bytes());
            file.tell(&record, None);
        }
    }
}

fn tell_async(file: &EventFile, kind: AsyncKind, element: u64, count: Option<&Count>) {
    let record = AsyncEventDesc { element, event_type: kind.0, reserved: 0 };
    file.tell(record.as_bytes(), count);
}

/// What an event on a queue means to its user. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `mlx5_ib_qp_event`;
/// `srq.c`, `mlx5_ib_srq_event`.
fn queue_event(kind: u8) -> Option<AsyncKind> {
    Some(match kind {
        event::PATH_MIG => AsyncKind::PATH_MIG,
        event::COMM_EST => AsyncKind::COMM_EST,
        event::SQ_DRAINED => AsyncKind::SQ_DRAINED,
        event::SRQ_LAST_WQE => AsyncKind::QP_LAST_WQE_REACHED,
        event::WQ_CATAS_ERROR => AsyncKind::QP_FATAL,
        event::PATH_MIG_FAILED => AsyncKind::PATH_MIG_ERR,
        event::WQ_INVAL_REQ_ERROR => AsyncKind::QP_REQ_ERR,
        event::WQ_ACCESS_ERROR => AsyncKind::QP_ACCESS_ERR,
        event::SRQ_CATAS_ERROR => AsyncKind::SRQ_ERR,
        event::SRQ_RQ_LIMIT => AsyncKind::SRQ_LIMIT_REACHED,
        _ => return None,
    })
}

/// What was read of an object's events, after those that were not are taken back.
pub(crate) fn reported(file: Option<&Arc<EventFile>>, count: &Count) -> u32 {
    if let Some(file) = file {
        file.forget(count);
    }
    count.load(Ordering::Relaxed)
}
