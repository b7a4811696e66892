//! The batch: requests described step by step, each written to the ring as it is described.
//!
//! What an entry is so far stands in a few words, among them one of bits, [`State`], so that a step looks at one of them once.
//! No step hands the batch itself to a function that is called: the compiler keeps these words in registers from the first
//! request to the doorbell. What goes wrong is kept by the poster, for that reason.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    Atomic, Completion, Data, EXTENDED_UD_AV, Ethernet, Fence, RemoteAddress, SOLICITED, Xrc, blocks,
    checksum, inline_segments,
};
use pollux_mlx5_common::send_ring::SendRing;
use zerocopy::byteorder::big_endian::{U32, U64};

use super::headers::{self, HEADERS_MAX, HEADERS_MIN};
use super::{Address, PostError, Poster, Span, Use};
use crate::mr::{Held, Piece};
use crate::provider::request::FlushRange;

/// Operations, as bits.
pub(crate) mod op {
    pub(crate) const SEND: u8 = 1;
    pub(crate) const INVALIDATE: u8 = 1 << 1;
    pub(crate) const WRITE: u8 = 1 << 2;
    pub(crate) const READ: u8 = 1 << 3;
    pub(crate) const ATOMIC: u8 = 1 << 4;
    pub(crate) const BIND: u8 = 1 << 5;
    pub(crate) const TSO: u8 = 1 << 6;

    /// What a queue pair cannot do that lacks it.
    pub(super) fn name(operation: u8) -> &'static str {
        match operation {
            SEND => "send",
            INVALIDATE => "invalidate the peer's keys",
            WRITE => "write to the peer's memory",
            READ => "read the peer's memory",
            ATOMIC => "do atomics",
            TSO => "segment a frame (TSO)",
            _ => "bind memory windows",
        }
    }
}

/// What the open entry is: its flags for the control segment in the low byte, its opcode in the next, and bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u32);

impl State {
    const OPCODE: u32 = 8;
    /// There is one.
    pub(crate) const OPEN: u32 = 1 << 16;
    /// It lacks an address or a shared receive queue's number.
    pub(crate) const LACKS: u32 = 1 << 17;
    /// An Ethernet segment stands behind its control segment.
    pub(crate) const RAW: u32 = 1 << 18;
    /// The device writes its pieces.
    pub(super) const WRITES: u32 = 1 << 19;
    /// It has no data, or inline data.
    pub(super) const BARE: u32 = 1 << 20;
    /// What comes after it waits for it.
    pub(super) const CHANGES_KEY: u32 = 1 << 21;
    /// It invalidates a key: its completion does not tell this from binding one.
    pub(super) const INVALIDATES: u32 = 1 << 22;
    /// It comes after one that changed a key.
    const WAITS: u32 = 1 << 23;
    /// Something went wrong, which the poster keeps: nothing is opened any more.
    const FAILED: u32 = 1 << 24;
    /// The card wants more bytes of the frame in it, or it is a frame to be segmented: pieces and its end are looked at.
    pub(crate) const HEADERS: u32 = 1 << 25;
    /// Its pieces are counted from here on.
    const PIECE: u32 = 1 << 26;

    /// Nothing is open, and nothing came before.
    pub(crate) const FIRST: Self = Self(0);

    #[inline(always)]
    fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    #[inline(always)]
    fn opcode(self) -> u8 {
        (self.0 >> Self::OPCODE) as u8
    }

    #[inline(always)]
    fn set_opcode(&mut self, opcode: u8) {
        self.0 = self.0 & !(0xff << Self::OPCODE) | u32::from(opcode) << Self::OPCODE;
    }
}

/// Sends that go to the device together. Dropped, it posts nothing, and what it was given goes home.
pub(crate) struct Batch<'q> {
    pub(super) poster: &'q mut Poster,
    /// Where the next entry begins, or the open one.
    pub(super) at: u32,
    /// Where the last closed one begins.
    pub(super) last: u32,
    pub(super) count: u32,
    /// Of the ring's blocks, those that may be taken when another entry is opened.
    pub(super) room: u32,
    /// Of the open entry: the user's word, segments so far, the word of its control segment.
    pub(super) id: u64,
    pub(super) segments: u32,
    pub(super) imm: u32,
    pub(super) state: State,
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("poster", &self.poster)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Poster {
    #[cold]
    #[inline(never)]
    fn fail(&mut self, error: PostError) {
        self.failed = error;
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, operation: u8) {
        self.fail(match self.opening.operations {
            0 if self.kind != super::Kind::XrcReceive => {
                PostError::Incomplete("a send on a queue pair that was made without room for sends")
            }
            _ => PostError::Operation { kind: self.kind, operation: op::name(operation) },
        });
    }
}

impl Batch<'_> {
    /// Nothing more is opened, so this comes once a batch at most.
    #[inline(always)]
    fn fail(&mut self, error: PostError) {
        self.poster.fail(error);
        self.state = State(State::FAILED);
    }

    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.state.has(State::OPEN)
    }

    /// Opens an entry. What comes after it is ignored where that fails.
    #[inline(always)]
    pub(super) fn begin(&mut self, id: u64, opcode: u8, operation: u8) {
        self.close();
        if self.state.has(State::FAILED) {
            return;
        }
        if self.poster.opening.operations & operation == 0 {
            self.poster.refuse(operation);
            self.state = State(State::FAILED);
            return;
        }
        if !self.poster.has_room(self.at, self.room) {
            self.fail(PostError::Full);
            return;
        }
        let opening = self.poster.opening;
        (self.id, self.imm, self.segments) = (id, 0, opening.segments);
        self.state.0 = self.state.0 & State::WAITS | opening.state.0 | u32::from(opcode) << State::OPCODE;
        if self.state.has(State::RAW) {
            self.poster.ring.write(self.segment(1), [0; 2]);
        }
    }

    /// Closes the open entry: its control segment, and its note. What remains of the state is what concerns the next one.
    #[inline(always)]
    fn close(&mut self) {
        let state = self.state;
        if !state.has(State::OPEN) {
            return;
        }
        let (mut flags, mut next) = (state.0 as u8, State::FIRST);
        if state.has(State::LACKS | State::WAITS | State::CHANGES_KEY | State::HEADERS) {
            if state.has(State::HEADERS) {
                let checked = match state.opcode() {
                    send::TSO => self.poster.check_payload(self.at, self.segments),
                    _ if self.poster.headers(self.at) >= HEADERS_MIN => Ok(()),
                    _ => Err(PostError::Incomplete(
                        "a frame of less than 18 bytes, which this card does not send",
                    )),
                };
                if let Err(error) = checked {
                    self.fail(error);
                    return;
                }
            }
            if state.has(State::LACKS) {
                self.fail(PostError::Incomplete(
                    "a datagram without an address, or a request of XRC without its shared receive queue",
                ));
                return;
            }
            if state.has(State::WAITS) {
                flags = match flags >> 5 {
                    0 => flags | Fence::InitiatorSmall as u8,
                    _ => flags & 0x1f | Fence::SmallAndFence as u8,
                };
            }
            if state.has(State::CHANGES_KEY) {
                next = State(State::WAITS);
            }
        }
        let (at, segments) = (self.at, self.segments);
        self.poster.ring.control(at, state.opcode(), segments, flags, self.imm);
        let end = at.wrapping_add(blocks(segments as usize) as u32);
        self.poster.send.note(self.id, at, end, u32::from(state.has(State::INVALIDATES)));
        (self.last, self.at, self.state) = (at, end, next);
        self.count += 1;
    }

    /// Of the open entry: one of its segments.
    #[inline(always)]
    fn segment(&self, at: u32) -> u32 {
        SendRing::first_segment(self.at).wrapping_add(at)
    }

    #[inline(always)]
    pub(super) fn push(&mut self, words: [u64; 2]) {
        self.poster.ring.write(self.segment(self.segments), words);
        self.segments += 1;
    }

    #[inline(always)]
    fn remote(&mut self, address: u64, rkey: u32) {
        if self.is_open() {
            self.push(zerocopy::transmute!(RemoteAddress::new(address, rkey)));
        }
    }

    /// A message.
    #[inline(always)]
    pub(crate) fn send(&mut self, id: u64) -> &mut Self {
        self.begin(id, send::SEND, op::SEND);
        self
    }

    /// A message that invalidates a key of the peer.
    #[inline(always)]
    pub(crate) fn send_invalidate(&mut self, id: u64, rkey: u32) -> &mut Self {
        self.begin(id, send::SEND_INVAL, op::INVALIDATE);
        self.imm = rkey;
        self
    }

    /// Writes to the peer's memory.
    #[inline(always)]
    pub(crate) fn write(&mut self, id: u64, address: u64, rkey: u32) -> &mut Self {
        self.begin(id, send::RDMA_WRITE, op::WRITE);
        self.remote(address, rkey);
        self
    }

    /// Reads the peer's memory into the pieces.
    #[inline(always)]
    pub(crate) fn read(&mut self, id: u64, address: u64, rkey: u32) -> &mut Self {
        self.begin(id, send::RDMA_READ, op::READ);
        self.state.0 |= State::WRITES;
        self.remote(address, rkey);
        self
    }

    /// Puts `swap` in the place of 8 bytes of the peer's memory if they are `compare`; what they were goes to the one piece.
    #[inline(always)]
    pub(crate) fn compare_swap(
        &mut self,
        id: u64,
        address: u64,
        rkey: u32,
        compare: u64,
        swap: u64,
    ) -> &mut Self {
        let operands = Atomic { swap_add: U64::new(swap), compare: U64::new(compare) };
        self.atomic(id, send::ATOMIC_CS, (address, rkey), operands)
    }

    /// Adds to 8 bytes of the peer's memory; what they were goes to the one piece.
    #[inline(always)]
    pub(crate) fn fetch_add(&mut self, id: u64, address: u64, rkey: u32, add: u64) -> &mut Self {
        let operands = Atomic { swap_add: U64::new(add), compare: U64::ZERO };
        self.atomic(id, send::ATOMIC_FA, (address, rkey), operands)
    }

    #[inline(always)]
    fn atomic(&mut self, id: u64, opcode: u8, remote: (u64, u32), operands: Atomic) -> &mut Self {
        self.begin(id, opcode, op::ATOMIC);
        self.state.0 |= State::WRITES;
        self.remote(remote.0, remote.1);
        if self.is_open() {
            self.push(zerocopy::transmute!(operands));
        }
        self
    }

    /// No card has it.
    pub(crate) fn atomic_write(&mut self, _: u64, _: u64, _: u32, _: u64) -> &mut Self {
        self.not_on_a_card("atomic write")
    }

    /// No card has it.
    pub(crate) fn flush(&mut self, _: u64, _: &FlushRange) -> &mut Self {
        self.not_on_a_card("flush")
    }

    /// What is wrong with the entry before is told first. Source: rdma-core `providers/mlx5/verbs.c`, whose kinds of queue pair have
    /// neither operation.
    fn not_on_a_card(&mut self, operation: &'static str) -> &mut Self {
        self.close();
        if !self.state.has(State::FAILED) {
            self.fail(PostError::Device { operation });
        }
        self
    }

    /// A frame to be segmented; its payload are the pieces.
    #[inline(always)]
    pub(crate) fn send_tso(&mut self, id: u64, header: &[u8], mss: u16) -> &mut Self {
        self.begin(id, send::TSO, op::TSO);
        if self.is_open() {
            match self.poster.begin_cut(self.at, header, mss) {
                Ok(segments) => {
                    self.segments = segments;
                    self.state.0 |= State::HEADERS;
                }
                Err(error) => self.fail(error),
            }
        }
        self
    }

    /// To whom a datagram goes.
    #[inline(always)]
    pub(crate) fn to(&mut self, address: &Address, qpn: u32, qkey: u32) -> &mut Self {
        if !self.is_open() {
            return self;
        }
        // A datagram's entry begins with the vector's three segments.
        if self.poster.opening.segments != 4 {
            self.fail(PostError::Incomplete("an address, where requests go to the peer of the connection"));
            return self;
        }
        let mut vector = address.vector;
        vector.key = U64::new(u64::from(qkey) << 32);
        vector.dqp_dct = U32::new(qpn & 0xff_ffff | EXTENDED_UD_AV);
        let words: [[u64; 2]; 3] = zerocopy::transmute!(vector);
        for (at, words) in (1..).zip(words) {
            self.poster.ring.write(self.segment(at), words);
        }
        self.state.0 &= !State::LACKS;
        self
    }

    /// To which of the peer's shared receive queues a request of XRC goes.
    #[inline(always)]
    #[expect(clippy::wrong_self_convention, reason = "the request goes there")]
    pub(crate) fn to_srq(&mut self, srqn: u32) -> &mut Self {
        if !self.is_open() {
            return self;
        }
        if self.poster.kind != super::Kind::XrcSend {
            self.fail(PostError::Incomplete("the number of a shared receive queue, which XRC alone has"));
            return self;
        }
        let segment = Xrc { xrc_srqn: U32::new(srqn), reserved: [0; 12] };
        self.poster.ring.write(self.segment(1), zerocopy::transmute!(segment));
        self.state.0 &= !State::LACKS;
        self
    }

    /// 4 bytes that go along, of a message or a write.
    #[inline(always)]
    pub(crate) fn imm(&mut self, value: u32) -> &mut Self {
        if !self.is_open() {
            return self;
        }
        let opcode = match self.state.opcode() {
            send::SEND | send::SEND_IMM if !self.state.has(State::RAW) => send::SEND_IMM,
            send::RDMA_WRITE | send::RDMA_WRITE_IMM => send::RDMA_WRITE_IMM,
            _ => {
                self.fail(PostError::Incomplete("immediate data, which messages and writes alone carry"));
                return self;
            }
        };
        self.state.set_opcode(opcode);
        self.imm = value;
        self
    }

    /// The device fills in a frame's checksums: IPv4's, and TCP's or UDP's.
    #[inline(always)]
    pub(crate) fn checksums(&mut self) -> &mut Self {
        if !self.is_open() {
            return self;
        }
        if !self.state.has(State::RAW) {
            self.fail(PostError::Incomplete("checksums to be filled in, which frames alone have"));
            return self;
        }
        if !self.poster.limits.checksums {
            self.fail(PostError::Incomplete("checksums to be filled in, which this device does not do"));
            return self;
        }
        let cs_flags = checksum::L3 | checksum::L4;
        if self.poster.limits.headers > 0 || self.state.has(State::HEADERS) {
            self.poster.set_checksums(self.at, cs_flags);
            return self;
        }
        let segment = Ethernet { cs_flags, ..Ethernet::default() };
        self.poster.ring.write(self.segment(1), zerocopy::transmute!(segment));
        self
    }

    #[inline(always)]
    fn flag(&mut self, flag: u8) -> &mut Self {
        self.state.0 |= u32::from(flag);
        self
    }

    /// Requests a CQE, which also completes the unsignaled requests before it.
    #[inline(always)]
    pub(crate) fn signalled(&mut self) -> &mut Self {
        self.flag(Completion::Always as u8)
    }

    /// The peer is asked to raise an event.
    #[inline(always)]
    pub(crate) fn solicited(&mut self) -> &mut Self {
        self.flag(SOLICITED)
    }

    /// It waits for reads and atomics before it.
    #[inline(always)]
    pub(crate) fn fenced(&mut self) -> &mut Self {
        self.flag(Fence::Fence as u8)
    }

    /// The bytes stand in the entry: they are copied now.
    #[inline(always)]
    pub(crate) fn inline(&mut self, bytes: &[u8]) -> &mut Self {
        let limit = self.poster.limits.inline;
        let state = self.state.0;
        // Open, and nothing of it above the bits that come before: neither data nor pieces.
        let fits = state & (State::OPEN | State::BARE | State::WRITES) == State::OPEN
            && state < State::PIECE
            && bytes.len() <= limit as usize;
        // Apart, so that here the compiler knows the length where the caller does.
        if !fits || state & State::HEADERS != 0 {
            if fits {
                self.inline_frame(bytes);
            } else if self.is_open() {
                self.fail(if bytes.len() > limit as usize {
                    PostError::Inline { bytes: bytes.len(), limit }
                } else {
                    PostError::Incomplete("inline data in a request that has pieces, or that takes none")
                });
            }
            return self;
        }
        if !bytes.is_empty() {
            self.poster.write_inline(self.segment(self.segments), bytes);
            self.segments += inline_segments(bytes.len()) as u32;
        }
        // No more of either kind: the room was counted for one.
        self.state.0 |= State::BARE;
        self
    }

    /// The same of a frame whose first bytes stand before.
    #[inline(always)]
    fn inline_frame(&mut self, bytes: &[u8]) {
        if self.state.opcode() == send::TSO {
            self.fail(PostError::Incomplete("inline data in a TSO request, whose payload stands in pieces"));
            return;
        }
        let rest = &bytes[self.headers(bytes) as usize..];
        if !rest.is_empty() {
            self.poster.write_rest(self.segment(self.segments), rest);
            self.segments += inline_segments(rest.len()) as u32;
        }
        self.state.0 |= State::BARE;
    }

    /// A piece of memory that goes along and comes back with the completion.
    #[inline(always)]
    pub(crate) fn piece(&mut self, mut piece: Piece) -> &mut Self {
        let may = self.may_have_piece();
        if !may && !self.state.has(State::HEADERS) {
            return self;
        }
        let what_for = if self.state.has(State::WRITES) { Use::Write } else { Use::Read };
        let Some(mut span) = piece.span(&mut self.poster.keys, what_for) else {
            self.fail(PostError::Memory);
            return self;
        };
        if !may {
            span = span.behind(self.headers(piece.bytes()));
        }
        self.poster.send.keep(piece);
        self.data(span);
        self
    }

    /// A piece of memory that outlives the queue.
    #[inline(always)]
    pub(crate) fn lasting(&mut self, piece: &Held<'_>) -> &mut Self {
        if self.may_have_piece() {
            self.data(piece.span());
        } else if self.state.has(State::HEADERS) {
            let span = piece.span();
            if self.state.opcode() == send::TSO {
                self.data(span);
                return self;
            }
            let mut first = [0; HEADERS_MAX];
            let first = &mut first[..HEADERS_MAX.min(span.bytes as usize)];
            if !piece.copy_first(first) {
                self.fail(PostError::Incomplete(
                    "a frame's header in memory that this process cannot read; this card wants it in the entry",
                ));
                return self;
            }
            let taken = self.headers(first);
            self.data(span.behind(taken));
        }
        self
    }

    /// Copies what the card wants of a frame's first bytes into the entry: how many they were.
    #[inline(always)]
    fn headers(&mut self, bytes: &[u8]) -> u32 {
        if self.state.opcode() == send::TSO {
            // It has its header, whole.
            return 0;
        }
        let (taken, all) = self.poster.copy_headers(self.at, bytes);
        self.segments = headers::segments(all);
        if all == self.poster.limits.headers {
            self.state.0 &= !State::HEADERS;
        }
        taken
    }

    /// `false` too while the entry [lacks header](State::HEADERS), which the piece has then; whatever is wrong leaves no such state.
    #[inline(always)]
    fn may_have_piece(&mut self) -> bool {
        let limit = self.poster.limits.send_pieces;
        let state = self.state;
        let is_open = state.0 & (State::OPEN | State::BARE | State::HEADERS) == State::OPEN;
        let room = state.0 / State::PIECE < limit;
        if is_open && room {
            return true;
        }
        if state.has(State::HEADERS) && !state.has(State::BARE) && room {
            return false;
        }
        if state.has(State::OPEN) {
            self.fail(if state.has(State::BARE) {
                PostError::Incomplete("pieces in a request that has inline data, or that takes none")
            } else {
                PostError::Pieces { limit }
            });
        }
        false
    }

    #[inline(always)]
    fn data(&mut self, span: Span) {
        self.state.0 += State::PIECE;
        // A length of 0 would mean 2^31.
        if span.bytes != 0 {
            self.push(zerocopy::transmute!(Data::new(span.bytes, span.lkey, span.address)));
        }
    }

    /// Entries so far.
    #[must_use]
    pub(crate) fn count(&self) -> u32 {
        self.count + u32::from(self.is_open())
    }

    /// Posts them all, with one doorbell. How many they were.
    ///
    /// # Errors
    /// What was wrong with the first that could not be posted; then none is, and what they took along goes home.
    #[inline(always)]
    pub(crate) fn ring(mut self) -> Result<u32, PostError> {
        self.close();
        if self.state.has(State::FAILED) {
            return Err(self.poster.failed);
        }
        let to = self.at;
        if self.poster.ring.posted() != to {
            self.poster.before = self.state;
            self.poster.send.commit(to, self.count);
            self.poster.ring.post(self.last, to);
        }
        Ok(self.count)
    }

    /// Posts nothing, and gives back what the requests took along.
    pub(crate) fn abort(self, mut each: impl FnMut(Piece)) {
        while let Some(token) = self.poster.send.take_back() {
            each(token);
        }
    }
}

impl Drop for Batch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // After `ring` there are none.
        if self.poster.send.has_kept() {
            self.poster.send.drop_kept();
        }
    }
}
