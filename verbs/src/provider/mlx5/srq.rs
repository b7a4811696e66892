//! Shared receive queues: a ring whose entries are linked, in the order in which they were given back.
//!
//! ```text
//!   head ─► entry ─► entry ─► ... ─► tail      free; posting takes from the head, what was taken comes back at the tail
//! ```
//!
//! The device follows the links, so the entry behind the last posted one is always known: one entry stays free.
//! Source: rdma-core `providers/mlx5/srq.c`, `mlx5_post_srq_recv`, `mlx5_free_srq_wqe`, `mlx5_alloc_srq_buf`; Linux
//! `drivers/infiniband/hw/mlx5/srq.c`, `mlx5_ib_create_srq`.

use std::sync::Arc;

use pollux_eal::barrier;
use pollux_eal::region::{PAGE_BYTES, Zone};
use pollux_mlx5_abi::kernel::queue_pair::{CreateSrq, CreateSrqAnswer};
use pollux_mlx5_abi::wqe::{Data, INVALID_LKEY, NextSegment, SEGMENT_BYTES};
use pollux_uverbs::srq::{SrqKind, SrqRequest};
use pollux_uverbs::{Driver, PdHandle, SrqHandle, XrcdHandle};
use zerocopy::byteorder::big_endian::U16;
use zerocopy::{FromZeros, IntoBytes};

use super::hca::{Hca, Index};
use super::left::{Left, Parts};
use super::poll::Poller;
use super::poll::home::{Home, Message};
use super::poll::target::{Receiver, SRQ_KEY, Target, serial};
use super::post::shared::{SharedConsumer, SharedProducer, shared};
use super::post::{PostError, Span, Use};
use crate::mr::{Held, Piece};
use crate::options::SrqOptions;
use crate::provider::QueueBase;
use crate::view::Gauge;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Pinning;
use pollux_mlx5_common::dbrec::FIRST;
use pollux_mlx5_common::key::Keys;
use pollux_mlx5_common::object::{Id, Object};

/// What a shared receive queue's queue pairs keep of it: it is destroyed, and its memory goes, after the last of them.
#[derive(Debug)]
pub(crate) struct Srq(Arc<Core>);

impl Clone for Srq {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Core {
    object: Object,
    number: u32,
    consumer: SharedConsumer<Piece>,
    /// Of an XRC one.
    home: Option<(Arc<Home>, u64)>,
    _index: Option<Arc<Index>>,
    /// What the half that posts left behind.
    left: Left<SharedProducer<Piece>, Zone>,
}

impl Srq {
    /// The kernel's handle.
    #[must_use]
    pub(crate) fn handle(&self) -> SrqHandle {
        match self.0.object.id() {
            Id::Srq(handle) => handle,
            other => unreachable!("{other:?} is no shared receive queue"),
        }
    }

    /// Its number, by which requests of XRC name it.
    #[must_use]
    pub(crate) fn number(&self) -> u32 {
        self.0.number
    }

    pub(crate) fn consumer(&self) -> SharedConsumer<Piece> {
        self.0.consumer.clone()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let destroyed = self.object.destroy_now();
        if let Some((home, serial)) = &self.home {
            home.tell_gone(*serial);
        }
        self.left.release(destroyed, SharedProducer::let_go);
        if !destroyed {
            std::mem::forget(self.home.take());
        }
    }
}

/// The half of a shared receive queue that posts.
pub(crate) struct SrqPoster {
    srq: Srq,
    /// Until it is left behind.
    parts: Option<Parts<SharedProducer<Piece>, Zone>>,
    keys: Keys,
    entries: usize,
    pieces: usize,
    stride: usize,
    head: usize,
    tail: usize,
    /// Free entries, the one at the tail included.
    free: usize,
    /// Posted in all.
    posted: u32,
}

impl std::fmt::Debug for SrqPoster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SrqPoster")
            .field("srq", &self.srq.number())
            .field("free", &self.free)
            .finish_non_exhaustive()
    }
}

impl Hca {
    /// Makes a shared receive queue; for XRC with its domain, and where it completes.
    ///
    /// # Errors
    /// Sizes that the device does not have, no memory, or what the kernel says.
    pub(crate) fn create_srq(
        &self,
        pd: PdHandle,
        xrc: Option<(XrcdHandle, &Poller)>,
        options: &SrqOptions,
        base: QueueBase,
    ) -> Result<SrqPoster, MlxError> {
        let device = &self.device;
        let refuse = |problem: String| MlxError::Queue { queue: "shared receive queue".into(), problem };
        // As the kernel counts.
        let entries = options.receives.checked_add(1).and_then(u32::checked_next_power_of_two);
        let most = device.answer.max_srq_recv_wr.min(1 << 15);
        let Some(entries) = entries.filter(|entries| *entries <= most && options.receives > 0) else {
            return Err(refuse(format!(
                "depth {}; the device allows 1 to {}",
                options.receives,
                most.saturating_sub(1)
            )));
        };
        let stride = ((1 + options.pieces.max(1) as usize) * SEGMENT_BYTES).next_power_of_two();
        if stride > usize::from(device.answer.max_rq_desc_sz).max(2 * SEGMENT_BYTES) {
            let most = usize::from(device.answer.max_rq_desc_sz) / SEGMENT_BYTES;
            return Err(refuse(format!(
                "{} SGEs per receive; the device allows {}",
                options.pieces,
                most.saturating_sub(1)
            )));
        }
        let (entries, pieces) = (entries as usize, stride / SEGMENT_BYTES - 1);
        let mut zone = device.zone("shared receive queue", (entries * stride).max(PAGE_BYTES))?;
        zone.clear();
        for entry in 0..entries - 1 {
            link(&mut zone, stride, entry, entry + 1);
        }
        let record = device.record()?;
        // Completions name the queue pair of a basic one, and an XRC one itself.
        let index = (xrc.is_some() && self.indexed()).then(|| Arc::new(self.index()));
        let driver = CreateSrq {
            buf_addr: zone.base().as_ptr().addr() as u64,
            db_addr: record.address(),
            uidx: index.as_ref().map_or(0xff_ffff, |index| index.value),
            ..CreateSrq::default()
        };
        let request = SrqRequest {
            pd,
            kind: match xrc {
                None => SrqKind::Basic,
                Some((xrcd, cq)) => SrqKind::Xrc { xrcd, cq: cq.handle() },
            },
            max_wr: entries as u32 - 1,
            max_sge: pieces as u32,
            limit: options.limit,
            user_handle: base.user_handle,
        };
        let bytes = zone.bytes() as u64;
        let mut answer = CreateSrqAnswer::new_zeroed();
        let made = device.pinning("create a shared receive queue", Pinning::Queue, bytes, |context| {
            context.create_srq(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
        })?;
        let object = Object::pinning(device, Id::Srq(made.handle), Vec::new(), bytes);
        let number = made.srqn.unwrap_or(answer.srqn);
        let (producer, consumer) = shared(entries, pieces);
        let home = xrc.map(|(_, cq)| {
            let serial = serial();
            let target = Target {
                key: index.as_ref().map_or(number | SRQ_KEY, |index| index.value),
                serial,
                number: 0,
                send: None,
                recv: Receiver::Shared(consumer.clone()),
                errors: Arc::clone(&base.errors),
                until: None,
                _index: index.clone(),
            };
            cq.home().tell(Message::Came(target));
            (Arc::clone(cq.home()), serial)
        });
        let core = Core { object, number, consumer, home, _index: index, left: Left::default() };
        Ok(SrqPoster {
            srq: Srq(Arc::new(core)),
            parts: Some(Parts { producer, memory: zone, record, _kept: base.kept }),
            keys: base.keys,
            entries,
            pieces,
            stride,
            head: 0,
            tail: entries - 1,
            free: entries,
            posted: 0,
        })
    }
}

fn link(zone: &mut Zone, stride: usize, entry: usize, next: usize) {
    let segment = NextSegment { next_wqe_index: U16::new(next as u16), ..NextSegment::default() };
    zone.copy_in(entry * stride, segment.as_bytes());
}

impl SrqPoster {
    /// What queue pairs keep of it.
    #[must_use]
    pub(crate) fn srq(&self) -> &Srq {
        &self.srq
    }

    /// What is posted, for other threads.
    pub(crate) fn gauge(&self) -> Option<Arc<dyn Gauge>> {
        self.parts.as_ref().map(|parts| parts.producer.gauge())
    }

    /// Receives that it has room for, and pieces of one.
    #[must_use]
    pub(crate) fn sizes(&self) -> (u32, u32) {
        (self.entries as u32 - 1, self.pieces as u32)
    }
}

impl SrqPoster {
    /// Begins a list of receives.
    pub(crate) fn receives(&mut self) -> SrqReceives<'_> {
        self.keys.follow();
        self.reclaim();
        let (at, next) = (self.head, self.posted);
        SrqReceives { poster: self, at, next, failed: None }
    }

    /// Links what was given back behind the tail.
    fn reclaim(&mut self) {
        let Self { parts, tail, free, stride, .. } = self;
        let Some(Parts { producer, memory: zone, .. }) = parts else { return };
        producer.take_freed(|place| {
            link(zone, *stride, *tail, place);
            *tail = place;
            *free += 1;
        });
    }

    fn next_of(&self, entry: usize) -> usize {
        let mut segment = NextSegment::default();
        if let Some(parts) = &self.parts {
            parts.memory.copy_out(entry * self.stride, segment.as_mut_bytes());
        }
        usize::from(segment.next_wqe_index.get()) % self.entries
    }
}

impl Drop for SrqPoster {
    fn drop(&mut self) {
        self.srq.0.left.leave(self.parts.take());
    }
}

/// Receives that go to the device together. Dropped, it posts nothing, and what it was given goes home.
pub(crate) struct SrqReceives<'q> {
    poster: &'q mut SrqPoster,
    at: usize,
    next: u32,
    failed: Option<PostError>,
}

impl std::fmt::Debug for SrqReceives<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SrqReceives").field("poster", &self.poster).finish_non_exhaustive()
    }
}

impl SrqReceives<'_> {
    /// A receive into one piece.
    pub(crate) fn piece(&mut self, id: u64, piece: Piece) -> &mut Self {
        self.pieces(id, std::iter::once(piece))
    }

    /// A receive into several pieces, one after the other.
    pub(crate) fn pieces(&mut self, id: u64, pieces: impl IntoIterator<Item = Piece>) -> &mut Self {
        if !self.begin() {
            return self;
        }
        let (mut kept, mut at) = (0, 0);
        for mut piece in pieces {
            let poster = &mut *self.poster;
            let Some(parts) = &mut poster.parts else { break };
            let error = if kept == poster.pieces {
                Some(PostError::Pieces { limit: poster.pieces as u32 })
            } else {
                match piece.span(&mut poster.keys, Use::Fill) {
                    Some(span) => {
                        parts.producer.keep(self.at, kept, piece);
                        kept += 1;
                        at = self.data(at, span);
                        None
                    }
                    None => Some(PostError::Memory),
                }
            };
            if let Some(error) = error {
                self.end(id, kept, at, Some(error));
                return self;
            }
        }
        self.end(id, kept, at, None);
        self
    }

    /// A receive into memory that outlives the queue.
    pub(crate) fn lasting(&mut self, id: u64, piece: &Held<'_>) -> &mut Self {
        if self.begin() {
            let at = self.data(0, piece.span());
            self.end(id, 0, at, None);
        }
        self
    }

    fn begin(&mut self) -> bool {
        if self.failed.is_none() && self.at == self.poster.tail {
            self.failed = Some(PostError::Full);
        }
        self.failed.is_none()
    }

    fn data(&mut self, at: usize, span: Span) -> usize {
        if span.bytes == 0 {
            return at;
        }
        self.write(at, Data::new(span.bytes, span.lkey, span.address));
        at + 1
    }

    fn write(&mut self, at: usize, data: Data) {
        let offset = self.at * self.poster.stride + (1 + at) * SEGMENT_BYTES;
        if let Some(parts) = &mut self.poster.parts {
            parts.memory.copy_in(offset, data.as_bytes());
        }
    }

    fn end(&mut self, id: u64, kept: usize, at: usize, failed: Option<PostError>) {
        if at < self.poster.pieces {
            self.write(at, Data::new(0, INVALID_LKEY, 0));
        }
        let next = self.poster.next_of(self.at);
        let Some(parts) = &mut self.poster.parts else { return };
        parts.producer.post(self.at, id, kept);
        if failed.is_some() {
            parts.producer.unpost(self.at, drop);
            self.failed = failed;
            return;
        }
        self.at = next;
        self.next = self.next.wrapping_add(1);
    }

    /// Posts them all, with one store to the record. How many they were.
    ///
    /// # Errors
    /// What was wrong with the first that could not be posted; then none is, and what they took along goes home.
    pub(crate) fn ring(self) -> Result<u32, PostError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let count = self.next.wrapping_sub(self.poster.posted);
        (self.poster.head, self.poster.posted) = (self.at, self.next);
        self.poster.free -= count as usize;
        if count != 0
            && let Some(parts) = &mut self.poster.parts
        {
            parts.producer.count(count);
            barrier::to_device();
            parts.record.store(FIRST, self.next & 0xffff);
        }
        Ok(count)
    }

    /// Posts nothing, and gives back what the requests took along.
    pub(crate) fn abort(mut self, each: impl FnMut(Piece)) {
        self.take_back(each);
    }

    fn take_back(&mut self, mut each: impl FnMut(Piece)) {
        let mut place = self.poster.head;
        while place != self.at {
            let next = self.poster.next_of(place);
            if let Some(parts) = &mut self.poster.parts {
                parts.producer.unpost(place, &mut each);
            }
            place = next;
        }
        self.at = self.poster.head;
    }
}

impl Drop for SrqReceives<'_> {
    fn drop(&mut self) {
        // After `ring` there is nothing between the two.
        self.take_back(drop);
    }
}
