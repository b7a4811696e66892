//! Completion queues of rxe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pollux_uverbs::cq::CqRequest;
use pollux_uverbs::{CqHandle, Driver};
use zerocopy::{FromZeros, IntoBytes};

use super::Rxe;
use super::abi::{Completion, MapInfo, completed};
use super::queue::Queue;
use super::track::{Places, Taken, Track};
use crate::mr::Piece;
use crate::view::{Errors, Gauge};
use crate::{VerbsError, WcOpcode, WcStatus};

/// Where receives of a queue pair are noted.
#[derive(Clone, Debug)]
pub(super) enum Receives {
    Own(Arc<Mutex<Track>>),
    Shared(Arc<Mutex<Places>>),
    None,
}

/// What a queue pair has posted.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) sends: Arc<Mutex<Track>>,
    pub(super) receives: Receives,
    pub(super) errors: Arc<Errors>,
}

/// The kernel's queue. Queue pairs that complete there keep it.
#[derive(Debug)]
pub(crate) struct CqCore {
    rxe: Rxe,
    handle: CqHandle,
    /// Queue pairs by their numbers.
    pairs: Mutex<BTreeMap<u32, Posted>>,
}

impl CqCore {
    pub(super) fn handle(&self) -> CqHandle {
        self.handle
    }

    pub(super) fn add(&self, number: u32, posted: &Posted) {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).insert(number, posted.clone());
    }

    pub(super) fn remove(&self, number: u32) {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }
}

impl Drop for CqCore {
    fn drop(&mut self) {
        if let Err(error) = self.rxe.context().destroy_cq(self.handle) {
            tracing::warn!(target: "lib.verbs", "rxe: {error}");
        }
    }
}

/// The half that polls.
#[derive(Debug)]
pub(crate) struct Poller {
    core: Arc<CqCore>,
    queue: Arc<Queue>,
    entries: u32,
    taken: Taken,
    strange: u64,
}

/// A completion that was taken out of the queue.
#[derive(Debug)]
pub(crate) struct Wc<'c> {
    entry: Completion,
    id: u64,
    taken: &'c mut Taken,
}

impl Rxe {
    /// Makes a completion queue; its completions are as long as they are.
    pub(crate) fn create_cq(&self, request: &CqRequest<'_>, _wide: bool) -> Result<Poller, VerbsError> {
        let mut info = MapInfo::new_zeroed();
        let cq = self
            .context()
            .create_cq(request, Driver::new(&[], info.as_mut_bytes()))
            .map_err(VerbsError::kernel("create a completion queue"))?;
        let core = Arc::new(CqCore { rxe: self.clone(), handle: cq.handle, pairs: Mutex::default() });
        let queue = Arc::new(Queue::map(self.context(), &info, size_of::<Completion>())?);
        let entries = cq.entries.min(queue.capacity());
        Ok(Poller { core, queue, entries, taken: Taken::default(), strange: 0 })
    }
}

impl Poller {
    pub(crate) fn core(&self) -> &Arc<CqCore> {
        &self.core
    }

    /// What is written and not polled, for other threads; of another ring after it was resized.
    pub(crate) fn gauge(&self) -> Arc<dyn Gauge> {
        Arc::clone(&self.queue) as Arc<dyn Gauge>
    }

    /// What it is told by: the kernel tells no number.
    pub(crate) fn number(&self) -> u32 {
        self.core.handle.0
    }

    pub(crate) fn handle(&self) -> CqHandle {
        self.core.handle
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.entries
    }

    pub(crate) fn strange(&self) -> u64 {
        self.strange
    }

    pub(crate) fn arm(&self, solicited_only: bool) -> Result<(), VerbsError> {
        self.core
            .rxe
            .context()
            .req_notify_cq(self.core.handle, solicited_only)
            .map_err(VerbsError::kernel("arm a completion queue"))
    }

    /// Changes its size; what is in it goes over.
    pub(crate) fn resize(&mut self, entries: u32) -> Result<(), VerbsError> {
        let rxe = &self.core.rxe;
        let mut info = MapInfo::new_zeroed();
        let has = rxe
            .context()
            .resize_cq(self.core.handle, entries, Driver::new(&[], info.as_mut_bytes()))
            .map_err(VerbsError::kernel("resize a completion queue"))?;
        self.queue = Arc::new(Queue::map(rxe.context(), &info, size_of::<Completion>())?);
        self.entries = has.min(self.queue.capacity());
        Ok(())
    }

    pub(crate) fn poll(&mut self, max: usize, mut each: impl FnMut(&mut Wc<'_>)) -> usize {
        let mut consumer = self.queue.consumer();
        let mut count = 0;
        while count < max && consumer != self.queue.producer() {
            let mut entry = Completion::new_zeroed();
            self.queue.read(consumer, entry.as_mut_bytes());
            consumer = self.queue.after(consumer, 1);
            self.queue.set_consumer(consumer);
            let Some(id) = self.find(&entry) else {
                self.strange += 1;
                continue;
            };
            count += 1;
            each(&mut Wc { entry, id, taken: &mut self.taken });
            self.taken.clear();
        }
        count
    }

    /// The user's word of a completion; what its request took along is in `taken` then.
    fn find(&mut self, entry: &Completion) -> Option<u64> {
        let pairs = self.core.pairs.lock().unwrap_or_else(PoisonError::into_inner);
        let posted = pairs.get(&entry.qp_num)?;
        if entry.status != 0 {
            posted.errors.count(status_of(entry));
        }
        let taken = &mut self.taken;
        if !is_receive(entry) {
            return posted.sends.lock().unwrap_or_else(PoisonError::into_inner).complete(entry.wr_id, taken);
        }
        let number = entry.wr_id & !RECEIVE;
        let id = match &posted.receives {
            Receives::Own(track) => {
                track.lock().unwrap_or_else(PoisonError::into_inner).complete(number, taken)
            }
            Receives::Shared(places) => {
                places.lock().unwrap_or_else(PoisonError::into_inner).complete(number, taken)
            }
            Receives::None => None,
        };
        // A message's bytes are in the pieces; those of a write are where the peer said.
        let is_message = entry.status == 0 && entry.opcode == u32::from(WcOpcode::RECV.0);
        fill(taken, if is_message { entry.byte_len } else { 0 });
        id
    }
}

/// In the word of an entry: it is a receive. What failed tells no operation.
pub(super) const RECEIVE: u64 = 1 << 63;

fn status_of(entry: &Completion) -> WcStatus {
    u8::try_from(entry.status).map_or(WcStatus::GENERAL_ERR, WcStatus)
}

fn is_receive(entry: &Completion) -> bool {
    entry.wr_id & RECEIVE != 0
}

/// Tells received pieces how much is in them.
fn fill(taken: &mut Taken, bytes: u32) {
    let mut left = bytes;
    for piece in taken.iter_mut() {
        let here = left.min(piece.room());
        piece.filled(here);
        left -= here;
    }
}

impl Wc<'_> {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn status(&self) -> WcStatus {
        status_of(&self.entry)
    }

    pub(crate) fn operation(&self) -> WcOpcode {
        let told = WcOpcode(self.entry.opcode as u8);
        if self.is_receive() && told != WcOpcode::RECV_RDMA_WITH_IMM { WcOpcode::RECV } else { told }
    }

    pub(crate) fn number(&self) -> u32 {
        self.entry.qp_num
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.entry.byte_len
    }

    pub(crate) fn is_receive(&self) -> bool {
        is_receive(&self.entry)
    }

    pub(crate) fn source(&self) -> u32 {
        self.entry.src_qp
    }

    pub(crate) fn has_global_header(&self) -> bool {
        self.entry.wc_flags & completed::GRH != 0
    }

    pub(crate) fn service_level(&self) -> u8 {
        self.entry.sl
    }

    pub(crate) fn source_lid(&self) -> u16 {
        self.entry.slid
    }

    pub(crate) fn imm(&self) -> Option<u32> {
        (self.entry.wc_flags & completed::WITH_IMM != 0).then(|| u32::from_be_bytes(self.entry.ex))
    }

    pub(crate) fn invalidated(&self) -> Option<u32> {
        (self.entry.wc_flags & completed::WITH_INVALIDATE != 0).then(|| u32::from_ne_bytes(self.entry.ex))
    }

    pub(crate) fn vendor_error(&self) -> u32 {
        self.entry.vendor_err
    }

    pub(crate) fn left_of_request(&mut self) -> u32 {
        self.taken.left_of_request()
    }

    pub(crate) fn take(&mut self) -> Option<Piece> {
        self.taken.next()
    }
}

/// What the other provider's completions tell, and rxe's do not.
macro_rules! untold {
    ($($name:ident: $type:ty = $nothing:expr;)*) => {
        impl Wc<'_> {
            $(pub(crate) fn $name(&self) -> $type {
                $nothing
            })*
        }
    };
}

untold! {
    timestamp: u64 = 0;
    is_solicited: bool = false;
    rss_hash: u32 = 0;
    flow_tag: u32 = 0;
    vlan: Option<u16> = None;
    are_checksums_ok: bool = false;
}
