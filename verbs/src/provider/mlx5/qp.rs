//! Queue pairs: made, reset, and destroyed before their memory goes.
//!
//! ```text
//!   one zone    receive ring: entries of 1 << n pieces │ send ring: blocks of 64 bytes
//!   raw         the send ring is told to the kernel apart, and lies behind it all the same
//! ```
//!
//! Source: rdma-core `providers/mlx5/verbs.c`, `create_qp`, `mlx5_calc_sq_size`, `mlx5_calc_rq_size`; Linux
//! `drivers/infiniband/hw/mlx5/qp.c`, `set_rq_size`, `set_user_buf_size`.

use std::sync::Arc;

use pollux_eal::region::PAGE_BYTES;
use pollux_mlx5_abi::command::ece;
use pollux_mlx5_abi::kernel::context::ContextAnswer;
use pollux_mlx5_abi::kernel::queue_pair::{self, CreateQpAnswer, ModifyQpAnswer, qp_flag};
use pollux_mlx5_abi::wqe::{BLOCK_BYTES, SEGMENT_BYTES, SEGMENTS_MAX, blocks, inline_segments};
use pollux_uverbs::abi::flags::{QpFlags, QpMask};
use pollux_uverbs::abi::queue_pair::ModifyQp;
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::{Driver, QpHandle, UverbsError};
use zerocopy::{FromZeros, IntoBytes};

use super::hca::{Hca, Index};
use super::poll::Poller;
use super::poll::home::{Home, Message};
use super::poll::target::{Receiver, Target, serial};
use super::post::track::{Consumer, Producer, track};
use super::post::{Batch, Kind, Layout, Limits, Opening, Parts, PostError, Poster, Span, headers};
use super::srq::Srq;
use crate::mr::Piece;
use crate::options::{QpOptions, QpSizes};
use crate::provider::request::NO_RECEIVES;
use crate::provider::{Ends, QueueBase};
use crate::view::{Errors, Gauge};
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Pinning;
use pollux_mlx5_common::object::{Id, Object};
use pollux_mlx5_common::send_ring::SendRing;
use pollux_mlx5_common::uar::{Uar, page as page_of};

/// Segments of an entry that binds a memory window: control, change of key, its context, one piece of translation in a block
/// of its own.
const BIND_SEGMENTS: usize = 12;

/// What a queue pair was made with.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// What users have of it.
    room: QpSizes,
    /// Blocks of its send ring.
    send_blocks: u32,
    /// Blocks of its longest entry.
    entry_blocks: u32,
}

/// A queue pair. When it is dropped it is destroyed, and then its memory goes; if the kernel refuses, its memory stays.
pub(crate) struct Qp {
    /// Until it is dropped.
    poster: Option<Poster>,
    object: Object,
    sizes: Sizes,
    number: u32,
    kind: Kind,
    index: Option<Arc<Index>>,
    homes: Vec<(Arc<Home>, u64)>,
    send_home: Option<Arc<Home>>,
    recv_home: Option<Arc<Home>>,
    srq: Option<Srq>,
    kept: Option<Box<dyn Send>>,
    errors: Arc<Errors>,
    /// Options of its connection: those that the next change asks for, those that the device told last.
    wanted: u32,
    told: u32,
}

impl std::fmt::Debug for Qp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qp").field("number", &self.number).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Bytes of a frame that the card wants in its entry.
fn frame_headers(hca: &Hca, kind: Kind) -> u32 {
    if kind == Kind::Raw { hca.device.inline_min() as u32 } else { 0 }
}

/// Segments behind the control segment and before the data, of a card that wants so many bytes of frames there.
fn header_segments(kind: Kind, headers: u32) -> usize {
    match kind {
        // Address and operands of an atomic.
        Kind::Rc | Kind::Uc => 2,
        Kind::XrcSend => 3,
        Kind::Ud | Kind::Gsi => 3,
        Kind::Raw => headers::segments(headers) as usize - 1,
        Kind::XrcReceive => 0,
    }
}

/// Sizes of the rings for what was asked.
fn sizes(hca: &Hca, options: &QpOptions, has_srq: bool) -> Result<Sizes, MlxError> {
    let &QpOptions { kind, room: ref asked, tso_header, .. } = options;
    let answer = &hca.device.answer;
    let refuse = |problem: String| MlxError::Queue { queue: format!("{kind} queue pair"), problem };
    let room = QpSizes { sends: 0, receives: 0, send_pieces: 0, recv_pieces: 0, inline: 0 };
    let mut sizes = Sizes { room, send_blocks: 0, entry_blocks: 0 };
    if kind != Kind::XrcReceive && asked.sends > 0 {
        let header = 1 + header_segments(kind, frame_headers(hca, kind));
        let pieces = asked.send_pieces.max(1) as usize;
        let data = pieces.max(if asked.inline == 0 { 0 } else { inline_segments(asked.inline as usize) });
        // A frame to be segmented has its headers in the entry, and pieces. Source: rdma-core `providers/mlx5/verbs.c`,
        // `mlx5_calc_send_wqe`.
        let cut = if tso_header == 0 { 0 } else { SendRing::header_segments(tso_header) as usize + pieces };
        let segments = (header + data).max(cut);
        let limit = SEGMENTS_MAX.min(usize::from(answer.max_sq_desc_sz) / SEGMENT_BYTES);
        if cut > limit {
            return Err(refuse(format!(
                "{pieces} SGEs and a TSO header of {tso_header} bytes per send; the device allows {limit} segments of 16 bytes, \
                 of which these take {cut}",
            )));
        }
        if segments > limit {
            return Err(refuse(format!(
                "{pieces} SGEs and {} inline bytes per send; the device allows {} SGEs or {} bytes",
                asked.inline,
                limit.saturating_sub(header),
                (limit.saturating_sub(header) * SEGMENT_BYTES).saturating_sub(4),
            )));
        }
        let binds = matches!(kind, Kind::Rc | Kind::Uc | Kind::XrcSend);
        let longest = segments.max(if binds { BIND_SEGMENTS.min(limit) } else { 0 });
        let blocks_each = blocks(longest) as u32;
        let wanted = asked.sends.checked_mul(blocks(segments) as u32);
        let most = answer.max_send_wqebb.min(1 << 15);
        // A send is begun where the longest one has room.
        let spare = blocks_each - blocks(segments) as u32;
        let total = wanted
            .filter(|blocks| *blocks <= most)
            .map(|blocks| (blocks + spare).max(2 * blocks_each).max(4).next_power_of_two().min(most));
        let Some(total) = total else {
            return Err(refuse(format!(
                "{} sends of {} blocks; the device has room for {most} blocks",
                asked.sends,
                blocks(segments),
            )));
        };
        sizes.send_blocks = total;
        sizes.entry_blocks = blocks_each;
        sizes.room.sends = (total - spare) / blocks(segments) as u32;
        sizes.room.send_pieces = pieces as u32;
        // What is left over in the last segment is there to be used.
        sizes.room.inline = if asked.inline == 0 { 0 } else { (data * SEGMENT_BYTES - 4) as u32 };
    }
    let own = !has_srq && !matches!(kind, Kind::XrcSend | Kind::XrcReceive);
    if own && asked.receives > 0 {
        (sizes.room.receives, sizes.room.recv_pieces) =
            receive_ring(answer, asked.receives, asked.recv_pieces).map_err(refuse)?;
    }
    Ok(sizes)
}

/// Entries of a receive ring, and pieces of one, for what was asked; or what is too much.
pub(super) fn receive_ring(answer: &ContextAnswer, receives: u32, pieces: u32) -> Result<(u32, u32), String> {
    let pieces = pieces.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
    if u64::from(pieces) * SEGMENT_BYTES as u64 > u64::from(answer.max_rq_desc_sz).max(SEGMENT_BYTES as u64) {
        let most = usize::from(answer.max_rq_desc_sz) / SEGMENT_BYTES;
        return Err(format!("{pieces} SGEs per receive; the device allows {most}"));
    }
    // The ring is a block long at least (rdma-core `providers/mlx5/verbs.c`, `mlx5_calc_rq_size`).
    let fewest = (BLOCK_BYTES / (pieces as usize * SEGMENT_BYTES)) as u32;
    let most = answer.max_recv_wr.min(1 << 15);
    let entries = receives.max(fewest).checked_next_power_of_two().filter(|entries| *entries <= most);
    let entries =
        entries.ok_or_else(|| format!("receive queue depth {receives}; the device allows {most}"))?;
    Ok((entries, pieces))
}

pub(super) fn log2(value: u32) -> u8 {
    value.max(1).trailing_zeros() as u8
}

/// Tracks of both rings.
type Sides = (Producer<Piece>, Consumer<Piece>);

fn sides(sizes: &Sizes) -> (Sides, Option<Sides>) {
    // An entry is a block at least, however many of its pieces have no bytes and so no segment; a block has four segments.
    let pieces = log2(sizes.room.send_pieces.next_power_of_two()).max(2);
    let send = track(log2(sizes.send_blocks), log2(sizes.send_blocks) + pieces);
    let recv = (sizes.room.receives > 0)
        .then(|| track(log2(sizes.room.receives), log2(sizes.room.receives) + log2(sizes.room.recv_pieces)));
    (send, recv)
}

impl Hca {
    /// Makes a queue pair, in state RESET.
    ///
    /// # Errors
    /// Sizes that the device does not have, no memory, or what the kernel says.
    pub(crate) fn create_qp(
        &self,
        home: QpHome,
        ends: Ends<'_, Poller, Srq>,
        options: &QpOptions,
        base: QueueBase,
    ) -> Result<Qp, MlxError> {
        let device = &self.device;
        let &QpOptions { kind, all_signalled, blueflame, .. } = options;
        let sizes = sizes(self, options, ends.srq.is_some())?;
        let room = sizes.room;
        let recv_bytes = (room.receives * room.recv_pieces) as usize * SEGMENT_BYTES;
        // The send ring begins on a block, and the kernel knows it to come right behind.
        let recv_bytes = recv_bytes.next_multiple_of(BLOCK_BYTES);
        let send_at = if kind == Kind::Raw { recv_bytes.next_multiple_of(PAGE_BYTES) } else { recv_bytes };
        // Without sends there is a block that nothing is written to.
        let bytes = (send_at + sizes.send_blocks.max(1) as usize * BLOCK_BYTES).max(PAGE_BYTES);
        let mut zone = device.zone("queue pair", bytes)?;
        zone.clear();
        let record = device.record()?;
        let (page, doorbell) = self.uars.for_sends(blueflame)?.unzip();
        let index = self.indexed().then(|| Arc::new(self.index()));
        let start = zone.base().as_ptr().addr() as u64;
        let driver = queue_pair::CreateQp {
            buf_addr: start,
            db_addr: record.address(),
            sq_wqe_count: sizes.send_blocks,
            rq_wqe_count: room.receives,
            rq_wqe_shift: if room.receives == 0 { 0 } else { u32::from(log2(room.recv_pieces)) + 4 },
            flags: if page.is_some() { qp_flag::UAR_PAGE_INDEX } else { 0 },
            uidx: index.as_ref().map_or(0xff_ffff, |index| index.value),
            bfreg_index: page.as_ref().map_or(0, Uar::number),
            sq_buf_addr: if kind == Kind::Raw { start + send_at as u64 } else { 0 },
            ece_options: if self.has_ece() { ece::BEGIN } else { 0 },
            ..queue_pair::CreateQp::default()
        };
        let mut flags = QpFlags::empty();
        flags.set(QpFlags::BLOCK_MULTICAST_LOOPBACK, options.block_loopback);
        let request = QpRequest {
            send_cq: ends.send_cq.map(Poller::handle),
            recv_cq: ends.recv_cq.map(Poller::handle),
            srq: ends.srq.map(Srq::handle),
            cap: room.cap(),
            sq_sig_all: all_signalled,
            flags,
            user_handle: base.user_handle,
            ..QpRequest::new(kind.qp_type(), home)
        };
        let mut answer = CreateQpAnswer::new_zeroed();
        let made = device.pinning("create a queue pair", Pinning::Queue, bytes as u64, |context| {
            context.create_qp(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
        })?;
        let object =
            Object::pinning(device, Id::Qp(made.handle), page_of(page.as_ref()).collect(), bytes as u64);
        // From here on whatever fails destroys it first, by the order in which these are dropped.
        let doorbell = match doorbell {
            Some(doorbell) => doorbell,
            None => self.uars.static_doorbell(answer.bfreg_index, blueflame)?,
        };
        let ((send, send_consumer), recv) = sides(&sizes);
        let (recv, recv_consumer) = recv.unzip();
        let headers = frame_headers(self, kind);
        let parts = Parts {
            send,
            recv,
            kind,
            limits: Limits {
                blocks: sizes.entry_blocks,
                send_pieces: room.send_pieces,
                inline: room.inline,
                checksums: device.does_checksums(),
                headers,
                tso_header: options.tso_header,
                max_tso: device.mlx5.tso_caps.max_tso,
            },
            opening: Opening::of(kind, all_signalled, headers, room.sends),
            keys: base.keys,
        };
        let layout = Layout {
            send_at,
            send_log: log2(sizes.send_blocks),
            recv_log: log2(room.receives),
            recv_pieces: room.recv_pieces,
        };
        let poster = Poster::new(zone, layout, made.qpn, record, doorbell, parts);
        let mut qp = Qp {
            poster: Some(poster),
            object,
            sizes,
            number: made.qpn,
            kind,
            index,
            homes: Vec::new(),
            send_home: ends.send_cq.map(|cq| Arc::clone(cq.home())),
            recv_home: ends.recv_cq.map(|cq| Arc::clone(cq.home())),
            srq: ends.srq.cloned(),
            kept: Some(base.kept),
            errors: base.errors,
            wanted: 0,
            told: answer.ece_options,
        };
        qp.enrol(send_consumer, recv_consumer);
        Ok(qp)
    }
}

impl Qp {
    /// Tells the completion queues of it.
    fn enrol(&mut self, send: Consumer<Piece>, recv: Option<Consumer<Piece>>) {
        let key = self.index.as_ref().map_or(self.number, |index| index.value);
        let receiver = match (&self.srq, recv) {
            (Some(srq), _) => Receiver::Shared(srq.consumer()),
            (None, Some(recv)) => Receiver::Own(recv),
            (None, None) => Receiver::None,
        };
        let target = |serial, send, recv| Target {
            key,
            serial,
            number: self.number,
            send,
            recv,
            errors: Arc::clone(&self.errors),
            until: None,
            _index: self.index.clone(),
        };
        let mut homes = Vec::new();
        match (&self.send_home, &self.recv_home) {
            (Some(one), Some(two)) if Arc::ptr_eq(one, two) => {
                homes.push((Arc::clone(one), target(serial(), Some(send), receiver)));
            }
            (one, two) => {
                if let Some(home) = one {
                    homes.push((Arc::clone(home), target(serial(), Some(send), Receiver::None)));
                }
                if let Some(home) = two {
                    homes.push((Arc::clone(home), target(serial(), None, receiver)));
                }
            }
        }
        for (home, target) in homes {
            let serial = target.serial;
            home.tell(Message::Came(target));
            self.homes.push((home, serial));
        }
    }

    fn leave_homes(&mut self) {
        for (home, serial) in self.homes.drain(..) {
            home.tell_gone(serial);
        }
    }

    /// The half that posts.
    #[inline(always)]
    pub(crate) fn poster(&mut self) -> &mut Poster {
        match &mut self.poster {
            Some(poster) => poster,
            None => unreachable!("it is there until the queue pair is dropped"),
        }
    }

    pub(crate) fn may_link(&self) -> Result<(), PostError> {
        match &self.poster {
            Some(poster) => poster.may_link(),
            None => Err(NO_RECEIVES),
        }
    }

    pub(crate) fn link_receives(&mut self, first: Span) -> Result<(), PostError> {
        self.poster().link_receives(first)
    }

    #[inline(always)]
    pub(crate) fn post_linked(&mut self, count: u32) -> Result<(), PostError> {
        self.poster().post_linked(count)
    }

    /// Begins a batch of sends.
    #[inline(always)]
    pub(crate) fn batch(&mut self) -> Batch<'_> {
        self.poster().batch()
    }

    /// What is posted to both its rings, for other threads; of other rings after a reset.
    pub(crate) fn gauges(&self) -> [Option<Arc<dyn Gauge>>; 2] {
        let poster = self.poster.as_ref();
        let sends = self.sizes.send_blocks > 0;
        let send = poster.filter(|_| sends).map(|poster| poster.send.gauge());
        [send, poster.and_then(|poster| poster.recv.as_ref()).map(Producer::gauge)]
    }

    /// The kernel's handle.
    #[must_use]
    pub(crate) fn handle(&self) -> QpHandle {
        match self.object.id() {
            Id::Qp(handle) => handle,
            other => unreachable!("{other:?} is no queue pair"),
        }
    }

    /// Its number.
    #[must_use]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn object(&self) -> &Object {
        &self.object
    }

    /// What it was made with.
    #[must_use]
    pub(crate) fn sizes(&self) -> QpSizes {
        self.sizes.room
    }

    /// The most completions that can be unpolled: the shortest send is a block.
    pub(crate) fn completions(&self) -> u32 {
        self.sizes.send_blocks + self.sizes.room.receives
    }

    /// Options of its connection for the next change to ask for; what was told before is forgotten. Source: rdma-core
    /// `providers/mlx5/verbs.c`, `mlx5_set_ece`.
    pub(crate) fn set_options(&mut self, options: u32) {
        (self.wanted, self.told) = (options, 0);
    }

    /// Options of its connection, as the device told them last.
    #[must_use]
    pub(crate) fn options(&self) -> u32 {
        self.told
    }

    /// Changes it, with the options of its connection that were set since the last change. Source: rdma-core
    /// `providers/mlx5/verbs.c`, `mlx5_modify_qp`.
    ///
    /// # Errors
    /// What the kernel says; the options are asked for again then.
    pub(crate) fn change(
        &mut self,
        mask: QpMask,
        values: &ModifyQp,
        rate_limit: Option<u32>,
    ) -> Result<(), UverbsError> {
        let (handle, context) = (self.handle(), self.object.device().context());
        if self.wanted == 0 {
            return context.change_qp(handle, mask, values, rate_limit);
        }
        let request = queue_pair::ModifyQp { ece_options: self.wanted, ..queue_pair::ModifyQp::default() };
        let mut answer = ModifyQpAnswer::default();
        let driver = Driver::new(request.as_bytes(), answer.as_mut_bytes());
        context.modify_qp_extended(handle, mask, values, rate_limit, driver)?;
        (self.wanted, self.told) = (0, answer.ece_options);
        Ok(())
    }

    /// After the kernel took it to RESET: nothing is posted any more. What was goes home once the completion queues have been
    /// polled.
    pub(crate) fn was_reset(&mut self) {
        self.leave_homes();
        let ((send, send_consumer), recv) = sides(&self.sizes);
        let (recv, recv_consumer) = recv.unzip();
        self.poster().restart(send, recv);
        self.enrol(send_consumer, recv_consumer);
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let destroyed = self.object.destroy_now();
        self.leave_homes();
        let poster = self.poster.take();
        if destroyed {
            if let Some(poster) = &poster {
                poster.let_go();
            }
        } else {
            // The device may still use all of it, and the queues that it completes on.
            std::mem::forget(poster);
            std::mem::forget(self.send_home.take());
            std::mem::forget(self.recv_home.take());
            std::mem::forget(self.srq.take());
            std::mem::forget(self.kept.take());
        }
    }
}
