//! The objects of a context as other threads read them while they are at work, such as telemetry.
//!
//! ```text
//!   Qp, Cq, Srq, Wq, Mr ── Listed ──► Registry of the context ◄── ContextView ── telemetry
//!            record: what the object was made with
//!            Meter:  the counts that posting and polling keep anyway (Gauge)
//! ```
//!
//! A record stands in its list as long as its object. The lists are locked when objects come and go and while a view reads them, never
//! by who posts or polls. A view that counts or lists objects looks at no ring; one of an object looks at that object's. Keys of memory
//! are not told: they are what a peer needs to reach it.

mod list;
mod meter;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pollux_uverbs::abi::flags::{Access, QpState};

use crate::WcStatus;
use crate::options::QpSizes;
use crate::provider::request::Kind;
use list::{List, Record, Totals, counted};

pub(crate) use list::{Errors, Listed};
pub use meter::Level;
pub(crate) use meter::{Fill, Gauge, Meter};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QpRecord {
    pub(crate) qpn: u32,
    pub(crate) kind: Kind,
    pub(crate) sizes: QpSizes,
    pub(crate) send: Meter,
    pub(crate) receive: Meter,
    pub(crate) errors: Arc<Errors>,
    state: AtomicU8,
    /// The peer's number, and whether it is known in the bit above.
    peer: AtomicU32,
}

const PEER: u32 = 1 << 24;

impl QpRecord {
    pub(crate) fn new(
        (qpn, kind, sizes): (u32, Kind, QpSizes),
        [send, receive]: [Option<Arc<dyn Gauge>>; 2],
        errors: Arc<Errors>,
    ) -> Self {
        let (send, receive) = (Meter::new(send), Meter::new(receive));
        let (state, peer) = (AtomicU8::new(QpState::RESET.0), AtomicU32::new(0));
        Self { qpn, kind, sizes, send, receive, errors, state, peer }
    }

    /// After a change, of the peer's number too if it was one.
    pub(crate) fn changed(&self, state: QpState, peer: Option<u32>) {
        self.state.store(state.0, Ordering::Relaxed);
        if state == QpState::RESET {
            self.peer.store(0, Ordering::Relaxed);
        }
        if let Some(peer) = peer {
            self.peer.store(peer & 0xff_ffff | PEER, Ordering::Relaxed);
        }
    }

    fn view(&self) -> QpView {
        let peer = self.peer.load(Ordering::Relaxed);
        QpView {
            qpn: self.qpn,
            kind: self.kind,
            state: QpState(self.state.load(Ordering::Relaxed)),
            peer: (peer & PEER != 0).then_some(peer & 0xff_ffff),
            sizes: self.sizes,
            send: self.send.level(),
            receive: self.receive.level(),
            errors: counted(&self.errors.counts()),
        }
    }
}

impl Record for QpRecord {
    fn number(&self) -> u64 {
        self.qpn.into()
    }

    fn totals(&self) -> Totals {
        let sent = self.send.level().map_or(0, |level| level.posted);
        Totals {
            sent,
            received: self.receive.level().map_or(0, |level| level.completed),
            errors: self.errors.counts(),
        }
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct CqRecord {
    pub(crate) number: u32,
    pub(crate) vector: u32,
    pub(crate) has_channel: bool,
    pub(crate) ring: Meter,
    armed: AtomicU8,
}

impl CqRecord {
    pub(crate) fn new(number: u32, vector: u32, has_channel: bool, ring: Arc<dyn Gauge>) -> Self {
        Self { number, vector, has_channel, ring: Meter::new(Some(ring)), armed: AtomicU8::new(0) }
    }

    /// An event was asked for, or taken.
    pub(crate) fn set_armed(&self, armed: Armed) {
        self.armed.store(armed as u8, Ordering::Relaxed);
    }

    fn view(&self) -> CqView {
        let armed = match self.armed.load(Ordering::Relaxed) {
            1 => Armed::Next,
            2 => Armed::Solicited,
            _ => Armed::No,
        };
        let level = self.ring.level().unwrap_or_default();
        let &Self { number, vector, has_channel, .. } = self;
        CqView { number, vector, has_channel, armed, level }
    }
}

impl Record for CqRecord {
    fn number(&self) -> u64 {
        self.number.into()
    }
}

/// The event that a completion queue was asked for and that was not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Armed {
    /// None.
    No = 0,
    /// At the next completion.
    Next = 1,
    /// At the next solicited completion or error.
    Solicited = 2,
}

/// A receive queue without a queue pair of its own: shared, or a work queue.
#[derive(Debug)]
pub(crate) struct RqRecord {
    pub(crate) number: u32,
    pub(crate) depth: u32,
    pub(crate) pieces: u32,
    pub(crate) ring: Meter,
    pub(crate) errors: Arc<Errors>,
}

impl RqRecord {
    fn view(&self) -> RqView {
        RqView {
            number: self.number,
            depth: self.depth,
            pieces: self.pieces,
            level: self.ring.level().unwrap_or_default(),
            errors: counted(&self.errors.counts()),
        }
    }
}

impl Record for RqRecord {
    fn number(&self) -> u64 {
        self.number.into()
    }

    fn totals(&self) -> Totals {
        Totals {
            sent: 0,
            received: self.ring.level().map_or(0, |level| level.completed),
            errors: self.errors.counts(),
        }
    }
}

/// Registered memory.
#[derive(Debug)]
pub(crate) struct MrRecord {
    number: u64,
    of: MrKind,
    bytes: AtomicU64,
    access: AtomicU32,
}

impl MrRecord {
    /// What was registered is another length, or has other rights.
    pub(crate) fn set(&self, bytes: u64, access: Access) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.access.store(access.bits(), Ordering::Relaxed);
    }

    fn view(&self) -> MrView {
        MrView {
            number: self.number,
            kind: self.of,
            bytes: self.bytes.load(Ordering::Relaxed),
            access: Access::from_bits_retain(self.access.load(Ordering::Relaxed)),
        }
    }
}

impl Record for MrRecord {
    fn number(&self) -> u64 {
        self.number
    }
}

/// What registered memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrKind {
    /// A region ([`Mr`](crate::Mr)).
    Region,
    /// A pool of [`Buffers`](crate::Buffers).
    Buffers,
    /// Packets of a pool of mbufs.
    Packets,
}

/// All objects of a context.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) qps: Arc<List<QpRecord>>,
    pub(crate) cqs: Arc<List<CqRecord>>,
    pub(crate) srqs: Arc<List<RqRecord>>,
    pub(crate) wqs: Arc<List<RqRecord>>,
    mrs: Arc<List<MrRecord>>,
    regions: AtomicU64,
}

impl Registry {
    /// Lists registered memory.
    pub(crate) fn add_memory(&self, of: MrKind, bytes: u64, access: Access) -> Listed<MrRecord> {
        let number = self.regions.fetch_add(1, Ordering::Relaxed);
        let (bytes, access) = (AtomicU64::new(bytes), AtomicU32::new(access.bits()));
        self.mrs.add(MrRecord { number, of, bytes, access })
    }
}

/// A queue pair as it is now.
#[derive(Clone, Debug)]
pub struct QpView {
    /// Its number.
    pub qpn: u32,
    /// Transport type.
    pub kind: Kind,
    /// The state set last.
    pub state: QpState,
    /// Number of the peer's queue pair, once connected.
    pub peer: Option<u32>,
    /// What it was made with.
    pub sizes: QpSizes,
    /// Its send queue.
    pub send: Option<Level>,
    /// Its own receive queue; `None` where it receives through a shared one.
    pub receive: Option<Level>,
    /// Completions with an error, by status.
    pub errors: Vec<(WcStatus, u64)>,
}

/// A completion queue as it is now.
#[derive(Clone, Copy, Debug)]
pub struct CqView {
    /// The device's number; of rxe the kernel's handle.
    pub number: u32,
    /// Completion vector.
    pub vector: u32,
    /// Whether it has a completion channel.
    pub has_channel: bool,
    /// What event it was asked for last.
    pub armed: Armed,
    /// Its entries, and those that wait to be polled.
    pub level: Level,
}

/// A receive queue without a queue pair of its own, as it is now.
#[derive(Clone, Debug)]
pub struct RqView {
    /// Its number.
    pub number: u32,
    /// Receives that it has room for.
    pub depth: u32,
    /// Pieces of a receive.
    pub pieces: u32,
    /// Its entries, and those that wait for a message.
    pub level: Level,
    /// Completions with an error, by status.
    pub errors: Vec<(WcStatus, u64)>,
}

/// Registered memory as it is now, without its keys.
#[derive(Clone, Copy, Debug)]
pub struct MrView {
    /// Which of the context's it is, counted from 0.
    pub number: u64,
    /// What it is.
    pub kind: MrKind,
    /// Its length.
    pub bytes: u64,
    /// Rights.
    pub access: Access,
}

/// Sums over the queues of a context, of those that are gone too.
#[derive(Clone, Debug)]
pub struct Operations {
    /// Requests posted to send queues.
    pub sent: u64,
    /// Receives that completed, flushed ones included.
    pub received: u64,
    /// Completions with an error, by status.
    pub errors: Vec<(WcStatus, u64)>,
}

/// A kind of object that a view tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// Queue pairs.
    QueuePair,
    /// Completion queues.
    CompletionQueue,
    /// Shared receive queues.
    SharedReceiveQueue,
    /// Receive work queues.
    WorkQueue,
    /// Registered memory.
    Memory,
}

/// Does the same with the list of a kind.
macro_rules! of_kind {
    ($registry:expr, $kind:expr, $list:ident => $what:expr) => {
        match $kind {
            ObjectKind::QueuePair => {
                let $list = &$registry.qps;
                $what
            }
            ObjectKind::CompletionQueue => {
                let $list = &$registry.cqs;
                $what
            }
            ObjectKind::SharedReceiveQueue => {
                let $list = &$registry.srqs;
                $what
            }
            ObjectKind::WorkQueue => {
                let $list = &$registry.wqs;
                $what
            }
            ObjectKind::Memory => {
                let $list = &$registry.mrs;
                $what
            }
        }
    };
}

/// A view of a context's objects for other threads. It keeps neither the device open nor any object; once the context is closed there
/// are none. Clones are the same.
#[derive(Clone, Debug)]
pub struct ContextView(pub(crate) Weak<Registry>);

impl ContextView {
    /// Whether the context is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    fn all<V>(&self, of: impl FnOnce(&Registry) -> Vec<V>) -> Vec<V> {
        self.0.upgrade().map(|registry| of(&registry)).unwrap_or_default()
    }

    fn one<V>(&self, of: impl FnOnce(&Registry) -> Option<V>) -> Option<V> {
        self.0.upgrade().and_then(|registry| of(&registry))
    }

    /// How many objects of a kind there are. No ring is looked at.
    #[must_use]
    pub fn count(&self, kind: ObjectKind) -> usize {
        self.0.upgrade().map_or(0, |registry| of_kind!(registry, kind, list => list.len()))
    }

    /// Numbers of the objects of a kind, in the order in which they were made. No ring is looked at.
    #[must_use]
    pub fn numbers(&self, kind: ObjectKind) -> Vec<u64> {
        self.all(|registry| of_kind!(registry, kind, list => list.numbers()))
    }

    /// The queue pair of that number; of this kind and the others, no other one's rings are looked at.
    #[must_use]
    pub fn queue_pair(&self, qpn: u64) -> Option<QpView> {
        self.one(|registry| registry.qps.find(qpn, QpRecord::view))
    }

    /// The completion queue of that number.
    #[must_use]
    pub fn completion_queue(&self, number: u64) -> Option<CqView> {
        self.one(|registry| registry.cqs.find(number, CqRecord::view))
    }

    /// The shared receive queue of that number.
    #[must_use]
    pub fn shared_receive_queue(&self, number: u64) -> Option<RqView> {
        self.one(|registry| registry.srqs.find(number, RqRecord::view))
    }

    /// The receive work queue of that number.
    #[must_use]
    pub fn work_queue(&self, number: u64) -> Option<RqView> {
        self.one(|registry| registry.wqs.find(number, RqRecord::view))
    }

    /// The registered memory of that number.
    #[must_use]
    pub fn region(&self, number: u64) -> Option<MrView> {
        self.one(|registry| registry.mrs.find(number, MrRecord::view))
    }

    /// Queue pairs, in the order in which they were made, as all of these.
    #[must_use]
    pub fn queue_pairs(&self) -> Vec<QpView> {
        self.all(|registry| registry.qps.each(QpRecord::view))
    }

    /// Completion queues.
    #[must_use]
    pub fn completion_queues(&self) -> Vec<CqView> {
        self.all(|registry| registry.cqs.each(CqRecord::view))
    }

    /// Shared receive queues.
    #[must_use]
    pub fn shared_receive_queues(&self) -> Vec<RqView> {
        self.all(|registry| registry.srqs.each(RqRecord::view))
    }

    /// Receive work queues.
    #[must_use]
    pub fn work_queues(&self) -> Vec<RqView> {
        self.all(|registry| registry.wqs.each(RqRecord::view))
    }

    /// Registered memory.
    #[must_use]
    pub fn memory(&self) -> Vec<MrView> {
        self.all(|registry| registry.mrs.each(MrRecord::view))
    }

    /// What all queues of the context did so far.
    #[must_use]
    pub fn operations(&self) -> Operations {
        let mut all = Totals::default();
        if let Some(registry) = self.0.upgrade() {
            all.add(&registry.qps.totals());
            all.add(&registry.srqs.totals());
            all.add(&registry.wqs.totals());
        }
        Operations { sent: all.sent, received: all.received, errors: counted(&all.errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::meter::tests::Ring;
    use super::*;

    #[test]
    fn objects_are_counted_and_listed_without_a_look_at_their_rings() {
        let registry = Arc::new(Registry::default());
        let rings = [Arc::new(Ring::default()), Arc::new(Ring::default())];
        let _listed = [7_u32, 9].map(|number| {
            let ring = Arc::clone(&rings[usize::from(number == 9)]);
            registry.cqs.add(CqRecord::new(number, 0, false, ring))
        });
        let view = ContextView(Arc::downgrade(&registry));
        let looks = || rings.each_ref().map(|ring| ring.looks.load(Ordering::Relaxed));
        assert_eq!(view.count(ObjectKind::CompletionQueue), 2);
        assert_eq!(view.numbers(ObjectKind::CompletionQueue), [7, 9]);
        assert!(view.completion_queue(8).is_none() && view.queue_pair(7).is_none());
        assert_eq!(looks(), [0, 0]);
        assert_eq!(view.completion_queue(9).map(|queue| queue.number), Some(9));
        assert_eq!(looks(), [0, 1], "no other one's");
    }
}
