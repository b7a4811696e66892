//! Posting: entries of a queue pair's rings, and the batch that ends in one doorbell.
//!
//! ```text
//!   batch.send(id)            a free entry is found; its control segment is left out
//!        .inline / .piece     segments behind it, as they come
//!   batch.write(..)           the entry before is closed: control segment, note
//!   batch.ring()              note count with release; post: fence, record, doorbell or BlueFlame
//!   drop(batch)               nothing was counted: the device and the completions know of nothing
//! ```
//!
//! The ring itself is [`SendRing`]. Sources: rdma-core `providers/mlx5/qp.c`, `mlx5_send_wr_*`; `providers/mlx5/wqe.h`.
#![expect(unsafe_code, reason = "writes entries that a device reads, and owns the memory that they name")]

mod batch;
pub(super) mod headers;
mod receive;
pub(crate) mod shared;
pub(crate) mod track;
mod window;

use crate::mr::Piece;
use crate::provider::request::{NO_RECEIVES, NOT_IDLE};

use pollux_eal::region::Zone;
use pollux_mlx5_abi::wqe::{AddressVector, BLOCK_BYTES, Completion, InlineHeader};

pub(super) use crate::provider::request::{Kind, PostError, Span, Use};
pub(crate) use batch::Batch;
pub(crate) use batch::State;
use batch::op;
use pollux_mlx5_common::dbrec::{DoorbellRecord, FIRST};
use pollux_mlx5_common::key::Keys;
use pollux_mlx5_common::send_ring::SendRing;
use pollux_mlx5_common::uar::SendDoorbell;
pub(crate) use receive::{ReceiveRing, Receives};
use track::Producer;

/// What of an entry depends on where it goes: the first segments behind the control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The vector, with the peer's queue key and number left out.
    pub vector: AddressVector,
}

/// Limits of a queue pair's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Blocks of the longest send entry.
    pub(crate) blocks: u32,
    /// Pieces of a send.
    pub(crate) send_pieces: u32,
    /// Inline bytes of a send.
    pub(crate) inline: u32,
    /// The device fills in the checksums of frames.
    pub(crate) checksums: bool,
    /// Bytes of a frame that stand in its entry.
    pub(crate) headers: u32,
    /// Longest header of a frame to be segmented; 0: none is.
    pub(crate) tso_header: u32,
    /// Longest payload of one, in bytes.
    pub(crate) max_tso: u32,
}

/// How every send entry of a queue pair begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Segments before those of the operation.
    segments: u32,
    state: State,
    /// Operations that the transport has: bits of [`op`].
    operations: u8,
}

impl Opening {
    pub(crate) fn of(kind: Kind, all_signalled: bool, headers: u32, sends: u32) -> Self {
        let connected = op::SEND | op::INVALIDATE | op::WRITE | op::BIND;
        let (segments, state, operations) = match kind {
            Kind::Rc => (1, 0, connected | op::READ | op::ATOMIC),
            Kind::Uc => (1, 0, connected),
            Kind::Ud | Kind::Gsi => (4, State::LACKS, op::SEND),
            Kind::XrcSend => (2, State::LACKS, connected | op::READ | op::ATOMIC),
            // The Ethernet segment.
            Kind::Raw if headers > 0 => (2, State::RAW | State::HEADERS, op::SEND | op::TSO),
            Kind::Raw => (2, State::RAW, op::SEND | op::TSO),
            Kind::XrcReceive => (0, 0, 0),
        };
        let signalled = if all_signalled { Completion::Always as u32 } else { 0 };
        // Without a ring nothing is begun.
        let operations = if sends == 0 { 0 } else { operations };
        Self { segments, state: State(state | State::OPEN | signalled), operations }
    }
}

/// Where the rings stand in the zone of a queue pair: the receive ring at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Where the send ring begins, in bytes.
    pub(crate) send_at: usize,
    /// Its blocks, as a power of two.
    pub(crate) send_log: u8,
    /// Receives, as a power of two.
    pub(crate) recv_log: u8,
    /// Pieces of a receive; 0: there are none.
    pub(crate) recv_pieces: u32,
}

/// The half of a queue pair that posts.
pub(crate) struct Poster {
    ring: SendRing,
    pub(crate) send: Producer<Piece>,
    /// It owns the zone, in which the send ring stands behind it.
    recv_ring: ReceiveRing,
    pub(crate) recv: Option<Producer<Piece>>,
    pub(crate) kind: Kind,
    pub(crate) limits: Limits,
    pub(crate) opening: Opening,
    pub(crate) keys: Keys,
    /// What the first entry of a batch begins with: whether it waits for one that changed keys.
    pub(crate) before: State,
    /// Why the batch is not posted whose state says that it failed.
    pub(crate) failed: PostError,
}

/// What of a queue pair its poster is made of, beside its rings.
pub(crate) struct Parts {
    pub(crate) send: Producer<Piece>,
    pub(crate) recv: Option<Producer<Piece>>,
    pub(crate) kind: Kind,
    pub(crate) limits: Limits,
    pub(crate) opening: Opening,
    pub(crate) keys: Keys,
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").field("ring", &self.ring).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Poster {
    /// A poster over rings in `zone`, of the queue pair that the device calls `number`.
    ///
    /// # Panics
    /// When the rings do not fit the zone: it is our mistake.
    pub(crate) fn new(
        zone: Zone,
        layout: Layout,
        number: u32,
        record: DoorbellRecord,
        doorbell: SendDoorbell,
        parts: Parts,
    ) -> Self {
        let Layout { send_at, send_log, recv_log, recv_pieces } = layout;
        assert!(ReceiveRing::bytes(recv_log, recv_pieces) <= send_at, "a receive ring in the send ring");
        assert!(send_at + (BLOCK_BYTES << send_log) <= zone.bytes(), "a send ring outside its zone");
        let base = zone.base().map_addr(|address| address.saturating_add(send_at));
        // SAFETY: so many blocks stand there, as just asserted, in a zone that the poster's receive ring keeps. Entries name the memory of
        // pieces, which stay with the queue until they are done, and of regions, which it keeps.
        let ring = unsafe { SendRing::new(base, send_log, number, record, doorbell) };
        let recv_ring = ReceiveRing::new(zone, recv_log, recv_pieces);
        let Parts { send, recv, kind, limits, opening, keys } = parts;
        let (before, failed) = (State::FIRST, PostError::Full);
        Self { ring, send, recv_ring, recv, kind, limits, opening, keys, before, failed }
    }

    /// Says that the device has no more to do with what is posted.
    pub(crate) fn let_go(&self) {
        self.send.let_go();
        if let Some(recv) = &self.recv {
            recv.let_go();
        }
    }

    /// After the device's queue was reset: nothing is posted, by other tracks.
    pub(crate) fn restart(&mut self, send: Producer<Piece>, recv: Option<Producer<Piece>>) {
        self.let_go();
        (self.send, self.recv, self.before) = (send, recv, State::FIRST);
        self.ring.record().store(FIRST, 0);
        self.ring.restart(0);
    }

    /// Turns BlueFlame off, or on again where the register can do it.
    pub(crate) fn set_blueflame(&mut self, on: bool) {
        self.ring.set_blueflame(on);
    }

    /// Begins a batch of sends.
    #[inline(always)]
    pub(crate) fn batch(&mut self) -> Batch<'_> {
        self.keys.follow();
        if self.send.has_kept() {
            // A batch was forgotten.
            self.send.drop_kept();
        }
        let at = self.ring.posted();
        Batch {
            at,
            last: at,
            count: 0,
            id: 0,
            segments: 0,
            imm: 0,
            state: self.before,
            room: self.ring.blocks() - self.limits.blocks,
            poster: self,
        }
    }

    /// Begins a list of receives. `None`: it receives through a shared queue, or not at all.
    #[inline(always)]
    pub(crate) fn receives(&mut self) -> Option<Receives<'_>> {
        self.keys.follow();
        let Self { ring, recv_ring, recv, keys, .. } = self;
        Some(Receives::begin(recv.as_mut()?, keys, ring.record(), recv_ring))
    }

    /// Whether its receive queue can be linked now.
    ///
    /// # Errors
    /// There is no such queue, or receives are posted.
    pub(crate) fn may_link(&self) -> Result<(), PostError> {
        if self.recv.as_ref().ok_or(NO_RECEIVES)?.is_idle() { Ok(()) } else { Err(NOT_IDLE) }
    }

    /// Links the entries of its own receive queue to pieces one after the other, the first of which is `first`.
    ///
    /// # Errors
    /// There is no such queue, or receives are posted.
    pub(crate) fn link_receives(&mut self, first: Span) -> Result<(), PostError> {
        self.recv_ring.link(self.recv.as_mut().ok_or(NO_RECEIVES)?, first)
    }

    /// Posts linked receives.
    ///
    /// # Errors
    /// They are not linked, or there is no room.
    #[inline(always)]
    pub(crate) fn post_linked(&mut self, count: u32) -> Result<(), PostError> {
        receive::post_linked(self.recv.as_mut().ok_or(NO_RECEIVES)?, self.ring.record(), count)
    }

    /// Whether no more than `taken` blocks before block `at` are under way. Hot: a comparison, and a load when that says no.
    #[inline(always)]
    fn has_room(&mut self, at: u32, taken: u32) -> bool {
        if self.ring.has_room(at, taken) {
            return true;
        }
        self.ring.give_back(self.send.done());
        self.ring.has_room(at, taken)
    }

    /// Inline data of `bytes` at segment `index`, wrapping at the ring's end.
    #[inline(always)]
    fn write_inline(&mut self, index: u32, bytes: &[u8]) {
        self.ring.inline_head(index, bytes.len() as u32);
        let skip = size_of::<InlineHeader>();
        // SAFETY: head and data lie in segments that were found free, and what `copy_short` writes ends at the ring's end at the
        // latest.
        unsafe {
            if bytes.len() <= self.ring.before_end(index) - skip {
                copy_short(bytes.as_ptr(), self.ring.segment(index).add(skip), bytes.len());
            } else {
                self.ring.copy(index, skip, bytes.as_ptr(), bytes.len());
            }
        }
    }
}

/// Copies the few bytes of an entry without a call: in words that overlap at the end. Bytes of a length that the compiler
/// knows cost a move or two.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy_short(from: *const u8, to: *mut u8, bytes: usize) {
    /// One word of `N` bytes, `at` from the start.
    #[inline(always)]
    unsafe fn word<const N: usize>(from: *const u8, to: *mut u8, at: usize) {
        // SAFETY: by the caller, these bytes are among those to copy.
        unsafe { to.add(at).cast::<[u8; N]>().write(from.add(at).cast::<[u8; N]>().read()) };
    }
    // SAFETY: each word lies within the bytes that the caller vouches for.
    unsafe {
        match bytes {
            0..4 => (0..bytes).for_each(|at| word::<1>(from, to, at)),
            4..8 => {
                word::<4>(from, to, 0);
                word::<4>(from, to, bytes - 4);
            }
            8 => word::<8>(from, to, 0),
            9..16 => {
                word::<8>(from, to, 0);
                word::<8>(from, to, bytes - 8);
            }
            16..=64 => {
                word::<16>(from, to, 0);
                if bytes > 32 {
                    word::<16>(from, to, 16);
                    word::<16>(from, to, bytes - 32);
                }
                word::<16>(from, to, bytes - 16);
            }
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}
