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
use pollux_uverbs::abi::flags::{QpFlags, QpMask, QpType};
use pollux_uverbs::abi::queue_pair::{ModifyQp, QpCap};
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::{Driver, QpHandle, UverbsError};
use zerocopy::{FromZeros, IntoBytes};

use super::cq::{Home, Message, serial};
use super::hca::{Hca, Index};
use super::poll::{Poller, Receiver, Target};
use super::post::track::{Consumer, track};
use super::post::{Kind, Limits, Opening, PostError, Poster, ReceiveRing, State, headers, send_ring};
use super::srq::Srq;
use crate::mr::Piece;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Pinning;
use pollux_mlx5_common::dbrec::FIRST;
use pollux_mlx5_common::key::Keys;
use pollux_mlx5_common::object::{Id, Object};
use pollux_mlx5_common::uar::{Uar, page as page_of};

/// Segments of an entry that binds a memory window: control, change of key, its context, one piece of translation in a block
/// of its own.
const BIND_SEGMENTS: usize = 12;

/// What queue pair to make.
pub(crate) struct QpSpec<'a> {
    /// Its transport.
    pub kind: Kind,
    /// Where it belongs.
    pub home: QpHome,
    /// Where sends complete.
    pub send_cq: Option<&'a Poller>,
    /// Where receives complete.
    pub recv_cq: Option<&'a Poller>,
    /// What it receives through, instead of a ring of its own.
    pub srq: Option<&'a Srq>,
    /// Sends that it has room for.
    pub sends: u32,
    /// Receives that it has room for.
    pub receives: u32,
    /// Pieces of a send.
    pub send_pieces: u32,
    /// Pieces of a receive.
    pub recv_pieces: u32,
    /// Inline bytes of a send.
    pub inline: u32,
    /// Every send makes a completion.
    pub all_signalled: bool,
    /// Options for the kernel.
    pub flags: QpFlags,
    /// A page of its own to which entries can be copied.
    pub blueflame: bool,
    /// Keys of packet memory.
    pub keys: Keys,
    /// What its events carry.
    pub user_handle: u64,
    /// Kept until it is destroyed, and for ever if that fails.
    pub kept: Option<Box<dyn Send>>,
}

/// What a queue pair was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Blocks of its send ring.
    pub send_blocks: u32,
    /// Blocks of its longest entry.
    pub entry_blocks: u32,
    /// Longest sends that fit at once.
    pub sends: u32,
    /// Receives that fit at once.
    pub receives: u32,
    /// Pieces of a send.
    pub send_pieces: u32,
    /// Pieces of a receive.
    pub recv_pieces: u32,
    /// Inline bytes of a send.
    pub inline: u32,
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
        Kind::Ud => 3,
        Kind::Raw => headers::segments(headers) as usize - 1,
        Kind::XrcReceive => 0,
    }
}

fn kernel_kind(kind: Kind) -> QpType {
    match kind {
        Kind::Rc => QpType::RC,
        Kind::Uc => QpType::UC,
        Kind::Ud => QpType::UD,
        Kind::Raw => QpType::RAW_PACKET,
        Kind::XrcSend => QpType::XRC_INI,
        Kind::XrcReceive => QpType::XRC_TGT,
    }
}

/// Sizes of the rings for what was asked.
fn sizes(hca: &Hca, spec: &QpSpec<'_>) -> Result<Sizes, MlxError> {
    let answer = &hca.device.answer;
    let refuse = |problem: String| MlxError::Queue { queue: format!("{} queue pair", spec.kind), problem };
    let mut sizes = Sizes {
        send_blocks: 0,
        entry_blocks: 0,
        sends: 0,
        receives: 0,
        send_pieces: 0,
        recv_pieces: 0,
        inline: 0,
    };
    if spec.kind != Kind::XrcReceive && spec.sends > 0 {
        let header = 1 + header_segments(spec.kind, frame_headers(hca, spec.kind));
        let pieces = spec.send_pieces.max(1) as usize;
        let data = pieces.max(if spec.inline == 0 { 0 } else { inline_segments(spec.inline as usize) });
        let segments = header + data;
        let limit = SEGMENTS_MAX.min(usize::from(answer.max_sq_desc_sz) / SEGMENT_BYTES);
        if segments > limit {
            return Err(refuse(format!(
                "{pieces} pieces and {} inline bytes of a send; the device allows {} pieces or {} bytes",
                spec.inline,
                limit.saturating_sub(header),
                (limit.saturating_sub(header) * SEGMENT_BYTES).saturating_sub(4),
            )));
        }
        let binds = matches!(spec.kind, Kind::Rc | Kind::Uc | Kind::XrcSend);
        let longest = segments.max(if binds { BIND_SEGMENTS.min(limit) } else { 0 });
        let blocks_each = blocks(longest) as u32;
        let wanted = spec.sends.checked_mul(blocks(segments) as u32);
        let most = answer.max_send_wqebb.min(1 << 15);
        // A send is begun where the longest one has room.
        let spare = blocks_each - blocks(segments) as u32;
        let total = wanted
            .filter(|blocks| *blocks <= most)
            .map(|blocks| (blocks + spare).max(2 * blocks_each).max(4).next_power_of_two().min(most));
        let Some(total) = total else {
            return Err(refuse(format!(
                "{} sends of {} blocks; the device has room for {most} blocks",
                spec.sends,
                blocks(segments),
            )));
        };
        sizes.send_blocks = total;
        sizes.entry_blocks = blocks_each;
        sizes.sends = (total - spare) / blocks(segments) as u32;
        sizes.send_pieces = pieces as u32;
        // What is left over in the last segment is there to be used.
        sizes.inline = if spec.inline == 0 { 0 } else { (data * SEGMENT_BYTES - 4) as u32 };
    }
    let own = spec.srq.is_none() && !matches!(spec.kind, Kind::XrcSend | Kind::XrcReceive);
    if own && spec.receives > 0 {
        (sizes.receives, sizes.recv_pieces) =
            receive_ring(answer, spec.receives, spec.recv_pieces).map_err(refuse)?;
    }
    Ok(sizes)
}

/// Entries of a receive ring, and pieces of one, for what was asked; or what is too much.
pub(super) fn receive_ring(answer: &ContextAnswer, receives: u32, pieces: u32) -> Result<(u32, u32), String> {
    let pieces = pieces.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
    if u64::from(pieces) * SEGMENT_BYTES as u64 > u64::from(answer.max_rq_desc_sz).max(SEGMENT_BYTES as u64) {
        let most = usize::from(answer.max_rq_desc_sz) / SEGMENT_BYTES;
        return Err(format!("{pieces} pieces of a receive; the device allows {most}"));
    }
    // The ring is a block long at least (rdma-core `providers/mlx5/verbs.c`, `mlx5_calc_rq_size`).
    let fewest = (BLOCK_BYTES / (pieces as usize * SEGMENT_BYTES)) as u32;
    let most = answer.max_recv_wr.min(1 << 15);
    let entries = receives.max(fewest).checked_next_power_of_two().filter(|entries| *entries <= most);
    let entries = entries.ok_or_else(|| format!("{receives} receives; the device allows {most}"))?;
    Ok((entries, pieces))
}

pub(super) fn log2(value: u32) -> u8 {
    value.max(1).trailing_zeros() as u8
}

/// Tracks of both rings.
type Sides = (super::post::track::Producer<Piece>, Consumer<Piece>);

fn sides(sizes: &Sizes) -> (Sides, Option<Sides>) {
    // An entry is a block at least, however many of its pieces have no bytes and so no segment; a block has four segments.
    let pieces = log2(sizes.send_pieces.next_power_of_two()).max(2);
    let send = track(log2(sizes.send_blocks), log2(sizes.send_blocks) + pieces);
    let recv = (sizes.receives > 0)
        .then(|| track(log2(sizes.receives), log2(sizes.receives) + log2(sizes.recv_pieces)));
    (send, recv)
}

/// Makes a queue pair, in state RESET.
///
/// # Errors
/// Sizes that the device does not have, no memory, or what the kernel says.
pub(crate) fn create(hca: &Hca, spec: QpSpec<'_>) -> Result<Qp, MlxError> {
    let device = &hca.device;
    let sizes = sizes(hca, &spec)?;
    let recv_bytes = (sizes.receives * sizes.recv_pieces) as usize * SEGMENT_BYTES;
    // The send ring begins on a block, and the kernel knows it to come right behind.
    let recv_bytes = recv_bytes.next_multiple_of(BLOCK_BYTES);
    let send_at = if spec.kind == Kind::Raw { recv_bytes.next_multiple_of(PAGE_BYTES) } else { recv_bytes };
    // Without sends there is a block that nothing is written to.
    let bytes = (send_at + sizes.send_blocks.max(1) as usize * BLOCK_BYTES).max(PAGE_BYTES);
    let mut zone = device.zone("queue pair", bytes)?;
    zone.clear();
    let record = device.record()?;
    let (page, doorbell) = Uar::for_sends(device, spec.blueflame)?.unzip();
    let index = hca.indexed().then(|| Arc::new(hca.index()));
    let base = zone.base().as_ptr().addr() as u64;
    let driver = queue_pair::CreateQp {
        buf_addr: base,
        db_addr: record.address(),
        sq_wqe_count: sizes.send_blocks,
        rq_wqe_count: sizes.receives,
        rq_wqe_shift: if sizes.receives == 0 { 0 } else { u32::from(log2(sizes.recv_pieces)) + 4 },
        flags: if page.is_some() { qp_flag::UAR_PAGE_INDEX } else { 0 },
        uidx: index.as_ref().map_or(0xff_ffff, |index| index.value),
        bfreg_index: page.as_ref().map_or(0, Uar::number),
        sq_buf_addr: if spec.kind == Kind::Raw { base + send_at as u64 } else { 0 },
        ece_options: if hca.has_ece() { ece::BEGIN } else { 0 },
        ..queue_pair::CreateQp::default()
    };
    let request = QpRequest {
        send_cq: spec.send_cq.map(Poller::handle),
        recv_cq: spec.recv_cq.map(Poller::handle),
        srq: spec.srq.map(Srq::handle),
        cap: QpCap {
            max_send_wr: sizes.sends,
            max_recv_wr: sizes.receives,
            max_send_sge: sizes.send_pieces,
            max_recv_sge: sizes.recv_pieces,
            max_inline_data: sizes.inline,
        },
        sq_sig_all: spec.all_signalled,
        flags: spec.flags,
        user_handle: spec.user_handle,
        ..QpRequest::new(kernel_kind(spec.kind), spec.home)
    };
    let mut answer = CreateQpAnswer::new_zeroed();
    let made = device.pinning("make a queue pair", Pinning::Queue, bytes as u64, |context| {
        context.create_qp(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
    })?;
    let object = Object::pinning(device, Id::Qp(made.handle), page_of(page.as_ref()).collect(), bytes as u64);
    // From here on whatever fails destroys it first, by the order in which these are dropped.
    let doorbell = match doorbell {
        Some(doorbell) => doorbell,
        None => Uar::static_doorbell(device, answer.bfreg_index, spec.blueflame)?,
    };
    let ((send, send_consumer), recv) = sides(&sizes);
    let (recv, recv_consumer) = recv.unzip();
    let ring = send_ring(&zone, send_at, log2(sizes.send_blocks), made.qpn, record, doorbell);
    let headers = frame_headers(hca, spec.kind);
    let poster = Poster {
        ring,
        send,
        recv_ring: ReceiveRing { base: zone.base(), log: log2(sizes.receives), pieces: sizes.recv_pieces },
        recv,
        kind: spec.kind,
        limits: Limits {
            blocks: sizes.entry_blocks,
            send_pieces: sizes.send_pieces,
            inline: sizes.inline,
            checksums: device.does_checksums(),
            headers,
        },
        opening: Opening::of(spec.kind, spec.all_signalled, headers, sizes.sends),
        keys: spec.keys,
        before: State::FIRST,
        failed: PostError::Full,
        _zone: zone,
    };
    let mut qp = Qp {
        poster: Some(poster),
        object,
        sizes,
        number: made.qpn,
        kind: spec.kind,
        index,
        homes: Vec::new(),
        send_home: spec.send_cq.map(|cq| Arc::clone(cq.home())),
        recv_home: spec.recv_cq.map(|cq| Arc::clone(cq.home())),
        srq: spec.srq.cloned(),
        kept: spec.kept,
        wanted: 0,
        told: answer.ece_options,
    };
    qp.enrol(send_consumer, recv_consumer);
    Ok(qp)
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
    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
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
            return match rate_limit {
                Some(_) => context.modify_qp_extended(handle, mask, values, rate_limit, Driver::none()),
                None => context.modify_qp(handle, mask, values, Driver::none()),
            };
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
        let poster = self.poster();
        poster.let_go();
        poster.send = send;
        poster.recv = recv;
        poster.before = State::FIRST;
        poster.ring.record().store(FIRST, 0);
        poster.ring.restart(0);
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
