//! Posting: entries of a queue pair's rings, and the batch that ends in one doorbell.
//!
//! ```text
//!   batch.send(id)            a free entry is found; its control segment is left out
//!        .inline / .piece     segments behind it, as they come
//!   batch.write(..)           the entry before is closed: control segment, note, tokens
//!   batch.ring()              note count with release; barrier; record; one store, or 64 bytes by BlueFlame
//!   drop(batch)               nothing was counted: the device and the completions know of nothing
//! ```
//!
//! Sources: rdma-core `providers/mlx5/qp.c`, `mlx5_send_wr_*`, `post_send_db`; `providers/mlx5/wqe.h`.
#![expect(unsafe_code, reason = "writes entries that a device reads, and owns the memory that they name")]

mod receive;
pub(crate) mod shared;
pub(crate) mod track;
mod window;

use std::ptr::NonNull;

use pollux_eal::barrier;
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    AddressVector, Atomic, BLOCK_BYTES, Completion, Control, Data, EXTENDED_UD_AV, Fence, InlineHeader,
    RemoteAddress, SEGMENT_BYTES, SOLICITED, Xrc, blocks, inline_segments,
};
use pollux_uverbs::Registers;
use zerocopy::byteorder::big_endian::{U32, U64};

use crate::dbrec::{DoorbellRecord, SECOND};
use crate::key::Keys;
pub use receive::Receives;
use track::{Note, Producer};
pub use window::Window;

/// A piece of memory as the device knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its address under the key.
    pub address: u64,
    /// The key.
    pub lkey: u32,
    /// Bytes.
    pub bytes: u32,
}

/// What a device does with a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It reads what is in it.
    Read,
    /// It writes over what is in it.
    Write,
    /// It fills its room with a message.
    Fill,
}

/// Memory that a request takes along.
///
/// # Safety
/// The span that [`span`](Self::span) told stays mapped, registered and unused by anybody else until the value is dropped
/// or used again; for [`Use::Read`] others may read it too. A value that is leaked leaves the memory so for ever.
pub unsafe trait Lend: Send {
    /// Where the device finds it; `None` if no key covers it, or it may not be used so.
    fn span(&mut self, keys: &mut Keys, what_for: Use) -> Option<Span>;

    /// Says that the device filled in the first `bytes` bytes of what was told for [`Use::Fill`].
    fn filled(&mut self, bytes: u32);

    /// Bytes that [`filled`](Self::filled) can take.
    fn room(&self) -> u32;
}

/// Memory that outlives every queue which it is posted to, and that nobody has a reference into.
///
/// # Safety
/// The span stays mapped and registered until the device's queue is destroyed, and is never part of a Rust object that
/// anybody refers to.
pub unsafe trait Lasting {
    /// Where the device finds it.
    fn span(&self) -> Span;
}

/// Why a request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No free entry.
    #[error(
        "the queue is full; poll its completions, and ask for one at least every so many requests as it has room for"
    )]
    Full,
    /// More pieces of memory than an entry has room for.
    #[error("more than {limit} pieces of memory in a request; the queue was made with that limit")]
    Pieces {
        /// The limit.
        limit: u32,
    },
    /// More inline data than an entry has room for.
    #[error("{bytes} bytes of inline data, the queue was made for {limit}")]
    Inline {
        /// How many.
        bytes: usize,
        /// The limit.
        limit: u32,
    },
    /// An operation that the transport does not have.
    #[error("{kind} queue pairs cannot {operation}")]
    Operation {
        /// The transport.
        kind: Kind,
        /// The operation.
        operation: &'static str,
    },
    /// Memory without a key.
    #[error("memory that is not registered with the queue's protection domain, or that others can see")]
    Memory,
    /// A request that lacks what its operation needs, or has what it cannot.
    #[error("{0}")]
    Incomplete(&'static str),
}

/// Transport of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Raw frames.
    Raw,
    /// Sender of XRC.
    XrcSend,
    /// Receiver of XRC.
    XrcReceive,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Raw => "RAW_PACKET",
            Self::XrcSend => "XRC_SEND",
            Self::XrcReceive => "XRC_RECV",
        })
    }
}

/// What of an entry depends on where it goes: the first segments behind the control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
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
    /// Pieces of a receive.
    pub(crate) recv_pieces: u32,
}

/// How every send entry of a queue pair begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Segments before those of the operation. 0: it cannot send.
    segments: u32,
    /// Some of them must be filled in.
    lacks: bool,
}

impl Opening {
    pub(crate) fn of(kind: Kind) -> Self {
        let (segments, lacks) = match kind {
            Kind::Rc | Kind::Uc => (1, false),
            Kind::Ud => (4, true),
            Kind::XrcSend => (2, true),
            // The Ethernet segment.
            Kind::Raw => (2, false),
            Kind::XrcReceive => (0, false),
        };
        Self { segments, lacks }
    }
}

/// The rings' places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    /// Of the send ring.
    pub(crate) send: NonNull<u8>,
    /// Its segments, less one: all ones.
    pub(crate) send_mask: u32,
    /// Of the receive ring.
    pub(crate) recv: NonNull<u8>,
    /// Its entries, as a power of two.
    pub(crate) recv_log: u8,
}

/// The half of a queue pair that posts.
pub struct Poster<T> {
    pub(crate) rings: Rings,
    pub(crate) send: Producer<T>,
    pub(crate) recv: Option<Producer<T>>,
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) limits: Limits,
    pub(crate) all_signalled: bool,
    pub(crate) opening: Opening,
    pub(crate) keys: Keys,
    /// What the next entry waits for, after one that changed keys.
    pub(crate) small_fence: bool,
    pub(crate) registers: Registers,
    pub(crate) turn: usize,
    pub(crate) blueflame: bool,
    pub(crate) record: DoorbellRecord,
}

// SAFETY: the rings belong to no thread; whoever made the poster keeps their memory.
unsafe impl<T: Send> Send for Poster<T> {}

impl<T> std::fmt::Debug for Poster<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster")
            .field("number", &self.number)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<T> Poster<T> {
    /// Says that the device has no more to do with what is posted.
    pub(crate) fn let_go(&self) {
        self.send.let_go();
        if let Some(recv) = &self.recv {
            recv.let_go();
        }
    }
}

impl<T: Lend> Poster<T> {
    /// Begins a batch of sends.
    #[inline(always)]
    pub fn batch(&mut self) -> Batch<'_, T> {
        self.keys.follow();
        let (at, tokens) = (self.send.posted(), self.send.tokens());
        Batch {
            at,
            tokens,
            last: at,
            entry: Entry::default(),
            open: false,
            failed: None,
            count: 0,
            poster: self,
        }
    }

    /// Begins a list of receives. `None`: it receives through a shared queue, or not at all.
    #[inline(always)]
    pub fn receives(&mut self) -> Option<Receives<'_, T>> {
        self.keys.follow();
        let Self { recv, rings, limits, keys, record, .. } = self;
        let recv = recv.as_mut()?;
        let (at, tokens) = (recv.posted(), recv.tokens());
        Some(Receives {
            at,
            tokens,
            rings: *rings,
            pieces: limits.recv_pieces,
            recv,
            keys,
            record,
            failed: None,
        })
    }

    /// Blocks of sends, and receives, that are not known to be done.
    #[must_use]
    pub fn pending(&self) -> (u32, u32) {
        (self.send.pending(), self.recv.as_ref().map_or(0, Producer::pending))
    }

    /// Turns BlueFlame off, or on again where the device has it; for comparison.
    pub fn set_blueflame(&mut self, on: bool) {
        self.blueflame = on && self.registers.bytes() >= 2 * uar::BLUE_FLAME_BYTES;
    }

    /// The place of a segment of the send ring, counted from its start and past its end.
    #[inline(always)]
    fn segment(&self, index: u32) -> *mut u8 {
        let segment = (index & self.rings.send_mask) as usize;
        // SAFETY: the masked index is below the number of segments that fill the ring.
        unsafe { self.rings.send.as_ptr().add(segment * SEGMENT_BYTES) }
    }

    #[inline(always)]
    fn write(&mut self, index: u32, words: [u64; 2]) {
        // SAFETY: the segment is in the ring and not posted, so the device does not read it yet.
        unsafe { self.segment(index).cast::<[u64; 2]>().write(words) };
    }

    /// Inline data of `bytes` at segment `index`, wrapping at the ring's end.
    #[inline(always)]
    fn write_inline(&mut self, index: u32, bytes: &[u8]) {
        let header = InlineHeader::new(bytes.len() as u32);
        let to = self.segment(index);
        let behind = self.rings.send_mask - (index & self.rings.send_mask);
        let room = behind as usize * SEGMENT_BYTES + SEGMENT_BYTES - 4;
        // SAFETY: head and data lie in segments that were found free; what does not fit before the ring's end goes on at its
        // start. A segment is 16 bytes, so the head always fits.
        unsafe {
            to.cast::<[u8; 4]>().write(zerocopy::transmute!(header));
            if bytes.len() <= room {
                copy_short(bytes.as_ptr(), to.add(4), bytes.len());
            } else {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(4), room);
                let rest = bytes.as_ptr().add(room);
                std::ptr::copy_nonoverlapping(rest, self.rings.send.as_ptr(), bytes.len() - room);
            }
        }
    }

    /// Tells the device of the entries up to `to`, the last of which begins at `last`.
    #[inline(always)]
    fn doorbell(&mut self, first: u32, last: u32, to: u32) {
        barrier::to_device();
        self.record.store(SECOND, to & 0xffff);
        barrier::wc_flush();
        let head = self.segment(last.wrapping_mul(4));
        if self.blueflame && to.wrapping_sub(first) == 1 {
            // SAFETY: a block of the ring, written by us alone.
            let block = unsafe { head.cast::<[u8; BLOCK_BYTES]>().read() };
            self.registers.copy64(self.turn, &block);
        } else {
            // SAFETY: as above.
            self.registers.store64(self.turn, unsafe { head.cast::<u64>().read() });
        }
        if self.blueflame {
            barrier::wc_flush();
            // The other buffer next: this one may still be on its way.
            self.turn ^= uar::BLUE_FLAME_BYTES;
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

/// The entry that is being written.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    id: u64,
    /// Segments so far.
    segments: u32,
    /// Tokens before its own.
    before: u32,
    pieces: u32,
    opcode: u8,
    modifier: u8,
    flags: u8,
    imm: u32,
    /// It lacks an address or a shared receive queue's number.
    lacks: bool,
    /// The device writes its pieces.
    writes: bool,
    /// It has no data, or inline data.
    bare: bool,
    /// What comes after it waits for it.
    changes_key: bool,
    /// It invalidates a key: its completion does not tell this from binding one.
    invalidates: bool,
}

/// Sends that go to the device together. Dropped, it posts nothing, and what it was given goes home.
pub struct Batch<'q, T: Lend> {
    poster: &'q mut Poster<T>,
    /// Where the next entry begins, or the open one.
    at: u32,
    tokens: u32,
    /// Where the last closed one begins.
    last: u32,
    entry: Entry,
    open: bool,
    failed: Option<PostError>,
    count: u32,
}

impl<T: Lend> std::fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("poster", &self.poster)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl<T: Lend> Batch<'_, T> {
    #[cold]
    #[inline(never)]
    fn fail(&mut self, error: PostError) {
        self.open = false;
        self.failed.get_or_insert(error);
    }

    /// Opens an entry. What comes after it is ignored where that fails.
    #[inline(always)]
    fn begin(&mut self, id: u64, opcode: u8) {
        self.close();
        if self.failed.is_some() {
            return;
        }
        if !self.poster.send.is_free(self.at, self.poster.limits.blocks) {
            self.fail(PostError::Full);
            return;
        }
        let flags = if self.poster.all_signalled { Completion::Always as u8 } else { 0 };
        let Opening { segments, lacks } = self.poster.opening;
        if segments == 0 {
            self.fail(PostError::Operation { kind: self.poster.kind, operation: "send" });
            return;
        }
        self.entry = Entry { id, segments, before: self.tokens, opcode, flags, lacks, ..Entry::default() };
        if self.poster.kind == Kind::Raw {
            self.poster.write(self.at * 4 + 1, [0; 2]);
        }
        self.open = true;
    }

    #[inline(always)]
    fn close(&mut self) {
        if !self.open {
            return;
        }
        let entry = self.entry;
        if entry.lacks {
            self.fail(PostError::Incomplete(
                "a datagram without an address, or a request of XRC without its shared receive queue",
            ));
            return;
        }
        let mut flags = entry.flags;
        if self.poster.small_fence {
            flags = match flags >> 5 {
                0 => flags | Fence::InitiatorSmall as u8,
                _ => flags & 0x1f | Fence::SmallAndFence as u8,
            };
        }
        self.poster.small_fence = entry.changes_key;
        let number = self.poster.number;
        let segments = entry.segments;
        let control = Control::new(
            entry.opcode,
            entry.modifier,
            self.at as u16,
            number,
            segments as u8,
            flags,
            entry.imm,
        );
        self.poster.write(self.at.wrapping_mul(4), control.words());
        let end = self.at.wrapping_add(blocks(segments as usize) as u32);
        let mark = u32::from(entry.invalidates);
        let note =
            Note { id: entry.id, start: self.at, end, tokens: self.tokens, before: entry.before, mark };
        self.poster.send.note(note);
        (self.last, self.at) = (self.at, end);
        self.count += 1;
        self.open = false;
    }

    #[inline(always)]
    fn push(&mut self, words: [u64; 2]) {
        let index = self.at.wrapping_mul(4).wrapping_add(self.entry.segments);
        self.poster.write(index, words);
        self.entry.segments += 1;
    }

    #[inline(always)]
    fn needs(&mut self, operation: &'static str, allowed: fn(Kind) -> bool) {
        let kind = self.poster.kind;
        if self.open && !allowed(kind) {
            self.fail(PostError::Operation { kind, operation });
        }
    }

    #[inline(always)]
    fn remote(&mut self, address: u64, rkey: u32) {
        if self.open {
            self.push(zerocopy::transmute!(RemoteAddress::new(address, rkey)));
        }
    }

    /// A message.
    #[inline(always)]
    pub fn send(&mut self, id: u64) -> &mut Self {
        self.begin(id, send::SEND);
        self
    }

    /// A message that invalidates a key of the peer.
    #[inline(always)]
    pub fn send_invalidate(&mut self, id: u64, rkey: u32) -> &mut Self {
        self.begin(id, send::SEND_INVAL);
        self.entry.imm = rkey;
        self.needs("invalidate the peer's keys", |kind| matches!(kind, Kind::Rc | Kind::Uc | Kind::XrcSend));
        self
    }

    /// Writes to the peer's memory.
    #[inline(always)]
    pub fn write(&mut self, id: u64, address: u64, rkey: u32) -> &mut Self {
        self.begin(id, send::RDMA_WRITE);
        self.needs("write to the peer's memory", |kind| matches!(kind, Kind::Rc | Kind::Uc | Kind::XrcSend));
        self.remote(address, rkey);
        self
    }

    /// Reads the peer's memory into the pieces.
    #[inline(always)]
    pub fn read(&mut self, id: u64, address: u64, rkey: u32) -> &mut Self {
        self.begin(id, send::RDMA_READ);
        self.needs("read the peer's memory", |kind| matches!(kind, Kind::Rc | Kind::XrcSend));
        self.entry.writes = true;
        self.remote(address, rkey);
        self
    }

    /// Puts `swap` in the place of 8 bytes of the peer's memory if they are `compare`; what they were goes to the one piece.
    #[inline(always)]
    pub fn compare_swap(&mut self, id: u64, address: u64, rkey: u32, compare: u64, swap: u64) -> &mut Self {
        self.atomic(
            id,
            send::ATOMIC_CS,
            (address, rkey),
            Atomic { swap_add: U64::new(swap), compare: U64::new(compare) },
        )
    }

    /// Adds to 8 bytes of the peer's memory; what they were goes to the one piece.
    #[inline(always)]
    pub fn fetch_add(&mut self, id: u64, address: u64, rkey: u32, add: u64) -> &mut Self {
        self.atomic(
            id,
            send::ATOMIC_FA,
            (address, rkey),
            Atomic { swap_add: U64::new(add), compare: U64::ZERO },
        )
    }

    #[inline(always)]
    fn atomic(&mut self, id: u64, opcode: u8, remote: (u64, u32), operands: Atomic) -> &mut Self {
        self.begin(id, opcode);
        self.needs("do atomics", |kind| matches!(kind, Kind::Rc | Kind::XrcSend));
        self.entry.writes = true;
        self.remote(remote.0, remote.1);
        if self.open {
            self.push(zerocopy::transmute!(operands));
        }
        self
    }

    /// To whom a datagram goes.
    #[inline(always)]
    pub fn to(&mut self, address: &Address, qpn: u32, qkey: u32) -> &mut Self {
        if !self.open {
            return self;
        }
        if self.poster.kind != Kind::Ud {
            self.fail(PostError::Incomplete("an address, where requests go to the peer of the connection"));
            return self;
        }
        let mut vector = address.vector;
        vector.key = U64::new(u64::from(qkey) << 32);
        vector.dqp_dct = U32::new(qpn & 0xff_ffff | EXTENDED_UD_AV);
        let words: [[u64; 2]; 3] = zerocopy::transmute!(vector);
        let first = self.at.wrapping_mul(4).wrapping_add(1);
        for (at, words) in words.into_iter().enumerate() {
            self.poster.write(first.wrapping_add(at as u32), words);
        }
        self.entry.lacks = false;
        self
    }

    /// To which of the peer's shared receive queues a request of XRC goes.
    #[inline(always)]
    pub fn to_srq(&mut self, srqn: u32) -> &mut Self {
        if !self.open {
            return self;
        }
        if self.poster.kind != Kind::XrcSend {
            self.fail(PostError::Incomplete("the number of a shared receive queue, which XRC alone has"));
            return self;
        }
        let segment = Xrc { xrc_srqn: U32::new(srqn), reserved: [0; 12] };
        self.poster.write(self.at.wrapping_mul(4).wrapping_add(1), zerocopy::transmute!(segment));
        self.entry.lacks = false;
        self
    }

    /// 4 bytes that go along, of a message or a write.
    #[inline(always)]
    pub fn imm(&mut self, value: u32) -> &mut Self {
        if !self.open {
            return self;
        }
        self.entry.opcode = match self.entry.opcode {
            send::SEND | send::SEND_IMM if self.poster.kind != Kind::Raw => send::SEND_IMM,
            send::RDMA_WRITE | send::RDMA_WRITE_IMM => send::RDMA_WRITE_IMM,
            _ => {
                self.fail(PostError::Incomplete("immediate data, which messages and writes alone carry"));
                return self;
            }
        };
        self.entry.imm = value;
        self
    }

    /// It makes a completion. Those before it that were not asked to are done when it is.
    #[inline(always)]
    pub fn signalled(&mut self) -> &mut Self {
        self.entry.flags |= Completion::Always as u8;
        self
    }

    /// The peer is asked to raise an event.
    #[inline(always)]
    pub fn solicited(&mut self) -> &mut Self {
        self.entry.flags |= SOLICITED;
        self
    }

    /// It waits for reads and atomics before it.
    #[inline(always)]
    pub fn fenced(&mut self) -> &mut Self {
        self.entry.flags |= Fence::Fence as u8;
        self
    }

    /// The bytes stand in the entry: they are copied now.
    #[inline(always)]
    pub fn inline(&mut self, bytes: &[u8]) -> &mut Self {
        if !self.open {
            return self;
        }
        let limit = self.poster.limits.inline;
        if bytes.len() > limit as usize || self.entry.pieces > 0 || self.entry.writes || self.entry.bare {
            self.fail(if bytes.len() > limit as usize {
                PostError::Inline { bytes: bytes.len(), limit }
            } else {
                PostError::Incomplete("inline data in a request that has pieces, or that takes none")
            });
            return self;
        }
        if !bytes.is_empty() {
            let index = self.at.wrapping_mul(4).wrapping_add(self.entry.segments);
            self.poster.write_inline(index, bytes);
            self.entry.segments += inline_segments(bytes.len()) as u32;
        }
        // No more of either kind: the room was counted for one.
        self.entry.bare = true;
        self
    }

    /// A piece of memory that goes along and comes back with the completion.
    #[inline(always)]
    pub fn piece(&mut self, mut piece: T) -> &mut Self {
        if !self.may_have_piece() {
            return self;
        }
        let what_for = if self.entry.writes { Use::Write } else { Use::Read };
        let Some(span) = piece.span(&mut self.poster.keys, what_for) else {
            self.fail(PostError::Memory);
            return self;
        };
        self.poster.send.keep(self.tokens, piece);
        self.tokens = self.tokens.wrapping_add(1);
        self.data(span);
        self
    }

    /// A piece of memory that outlives the queue.
    #[inline(always)]
    pub fn lasting(&mut self, piece: &impl Lasting) -> &mut Self {
        if self.may_have_piece() {
            self.data(piece.span());
        }
        self
    }

    #[inline(always)]
    fn may_have_piece(&mut self) -> bool {
        if !self.open {
            return false;
        }
        let limit = self.poster.limits.send_pieces;
        if self.entry.pieces >= limit || self.entry.bare {
            self.fail(if self.entry.bare {
                PostError::Incomplete("pieces in a request that has inline data, or that takes none")
            } else {
                PostError::Pieces { limit }
            });
            return false;
        }
        true
    }

    #[inline(always)]
    fn data(&mut self, span: Span) {
        self.entry.pieces += 1;
        // A length of 0 would mean 2^31.
        if span.bytes != 0 {
            self.push(zerocopy::transmute!(Data::new(span.bytes, span.lkey, span.address)));
        }
    }

    /// Entries so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count + u32::from(self.open)
    }

    /// Posts them all, with one doorbell. How many they were.
    ///
    /// # Errors
    /// What was wrong with the first that could not be posted; then none is, and what they took along goes home.
    #[inline(always)]
    pub fn ring(mut self) -> Result<u32, PostError> {
        self.close();
        if let Some(error) = self.failed {
            return Err(error);
        }
        let (first, to) = (self.poster.send.posted(), self.at);
        if first != to {
            self.poster.send.commit(to, self.tokens);
            self.poster.doorbell(first, self.last, to);
        }
        Ok(self.count)
    }

    /// Posts nothing, and gives back what the requests took along.
    pub fn abort(mut self, mut each: impl FnMut(T)) {
        while let Some(token) = self.take_back() {
            each(token);
        }
    }

    #[inline(always)]
    fn take_back(&mut self) -> Option<T> {
        if self.tokens == self.poster.send.tokens() {
            return None;
        }
        self.tokens = self.tokens.wrapping_sub(1);
        // SAFETY: kept by `piece` and not committed; the count goes back with it.
        Some(unsafe { self.poster.send.take_back(self.tokens) })
    }
}

impl<T: Lend> Drop for Batch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // After `ring` the counts are equal.
        while let Some(token) = self.take_back() {
            drop(token);
        }
    }
}
