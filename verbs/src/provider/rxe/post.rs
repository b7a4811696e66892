//! Sends: entries built one by one, given to the kernel together with one call.

use std::sync::{MutexGuard, PoisonError};

use crate::provider::request::{FlushRange, Kind, PostError, Use, Window};
use pollux_uverbs::abi::flags::DeviceCaps;

use super::abi::{Atomic, Bind, Datagram, Remote, Sge, flag, opcode};
use super::qp::Qp;
use super::track::Track;
use super::written::{Request, Written};
use crate::mr::{Held, Piece};

/// Sends that go to the kernel together. Dropped, it posts nothing, and what it was given goes home.
#[derive(Debug)]
pub(crate) struct Batch<'q> {
    qp: &'q mut Qp,
}

impl Drop for Batch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.qp.written.forget();
    }
}

impl Qp {
    pub(crate) fn batch(&mut self) -> Batch<'_> {
        self.keys.follow();
        // Of a batch that was forgotten.
        self.written.forget();
        Batch { qp: self }
    }

    /// Writes the open request into the queue; the kernel does not see it yet.
    fn close(&mut self) -> Result<(), PostError> {
        let Self { send_queue: queue, written, .. } = self;
        let Written { open: Some(request), closed, .. } = &mut **written else { return Ok(()) };
        if request.lacks {
            return Err(PostError::Incomplete("a datagram without an address"));
        }
        let count = closed.len() as u32;
        let track = locked(&self.sends);
        let (producer, consumer) = (queue.producer(), queue.consumer());
        let is_full =
            queue.between(consumer, producer) + count >= queue.capacity() || track.room() <= count as usize;
        let number = track.next() + u64::from(count);
        drop(track);
        if is_full {
            return Err(PostError::Full);
        }
        let (index, mut at) = (queue.after(producer, count), 0);
        for part in request.encode(number)? {
            queue.write(index, at, part);
            at += part.len();
        }
        written.close();
        Ok(())
    }
}

impl Batch<'_> {
    fn fail(&mut self, error: PostError) {
        self.qp.written.open = None;
        self.qp.written.failed.get_or_insert(error);
    }

    fn operation(&mut self, operation: &'static str) {
        self.fail(PostError::Operation { kind: self.qp.kind, operation });
    }

    fn begin(&mut self, id: u64, opcode: u32) -> Option<&mut Request> {
        self.close();
        if self.qp.written.failed.is_some() {
            return None;
        }
        let kind = self.qp.kind;
        let flags = if self.qp.all_signalled { flag::SIGNALED } else { 0 };
        let request = self.qp.written.begin(id, opcode, flags);
        request.lacks = kind == Kind::Ud;
        Some(request)
    }

    /// An operation of connected transports.
    fn begin_remote(&mut self, id: u64, code: u32, name: &'static str, address: u64, rkey: u32) {
        let reads = !matches!(code, opcode::WRITE | opcode::WRITE_IMM);
        if !matches!(self.qp.kind, Kind::Rc | Kind::Uc) || reads && self.qp.kind != Kind::Rc {
            self.close();
            return self.operation(name);
        }
        let Some(request) = self.begin(id, code) else { return };
        request.writes = reads;
        request.entry.iova = address;
        request.set_operation(&Remote { address, rkey, reserved: 0 });
    }

    fn begin_atomic(&mut self, id: u64, code: u32, name: &'static str, atomic: Atomic) {
        if self.qp.kind != Kind::Rc {
            self.close();
            return self.operation(name);
        }
        let Some(request) = self.begin(id, code) else { return };
        request.writes = true;
        request.entry.iova = atomic.address;
        request.set_operation(&atomic);
    }

    /// An operation that RC alone has, of kernels since 6.2. Source: Linux `drivers/infiniband/sw/rxe/rxe_opcode.c`,
    /// `rxe_wr_opcode_info`.
    fn begin_newer(
        &mut self,
        id: u64,
        code: u32,
        name: &'static str,
        caps: DeviceCaps,
    ) -> Option<&mut Request> {
        if self.qp.kind == Kind::Rc && self.qp.caps.contains(caps) {
            return self.begin(id, code);
        }
        self.close();
        if self.qp.kind == Kind::Rc {
            self.fail(PostError::Device { operation: name });
        } else {
            self.operation(name);
        }
        None
    }

    pub(crate) fn atomic_write(&mut self, id: u64, address: u64, rkey: u32, value: u64) {
        let request = self.begin_newer(id, opcode::ATOMIC_WRITE, "atomic write", DeviceCaps::ATOMIC_WRITE);
        if let Some(request) = request {
            request.set_atomic_write(address, rkey, value);
        }
    }

    pub(crate) fn flush(&mut self, id: u64, range: &FlushRange) {
        if let Some(request) = self.begin_newer(id, opcode::FLUSH, "flush", range.caps()) {
            request.set_flush(range);
        }
    }

    pub(crate) fn send_tso(&mut self, _: u64, _: &[u8], _: u16) {
        self.close();
        self.operation("segment a frame (TSO)");
    }

    pub(crate) fn send(&mut self, id: u64) {
        self.begin(id, opcode::SEND);
    }

    pub(crate) fn send_invalidate(&mut self, id: u64, rkey: u32) {
        if self.qp.kind != Kind::Rc {
            self.close();
            return self.operation("send with invalidate");
        }
        if let Some(request) = self.begin(id, opcode::SEND_INVALIDATE) {
            request.entry.ex = rkey.to_ne_bytes();
        }
    }

    pub(crate) fn write(&mut self, id: u64, address: u64, rkey: u32) {
        self.begin_remote(id, opcode::WRITE, "write", address, rkey);
    }

    pub(crate) fn read(&mut self, id: u64, address: u64, rkey: u32) {
        self.begin_remote(id, opcode::READ, "read", address, rkey);
    }

    pub(crate) fn compare_swap(&mut self, id: u64, address: u64, rkey: u32, compare_add: u64, swap: u64) {
        let atomic = Atomic { address, compare_add, swap, rkey, reserved: 0 };
        self.begin_atomic(id, opcode::COMPARE_SWAP, "compare and swap", atomic);
    }

    pub(crate) fn fetch_add(&mut self, id: u64, address: u64, rkey: u32, compare_add: u64) {
        let atomic = Atomic { address, compare_add, swap: 0, rkey, reserved: 0 };
        self.begin_atomic(id, opcode::FETCH_ADD, "fetch and add", atomic);
    }

    pub(crate) fn invalidate(&mut self, id: u64, key: u32) {
        if self.qp.kind != Kind::Rc {
            self.close();
            return self.operation("invalidate a key");
        }
        if let Some(request) = self.begin(id, opcode::LOCAL_INVALIDATE) {
            request.entry.ex = key.to_ne_bytes();
            request.bare = true;
        }
    }

    /// Opens a window under its next key on a piece of a region.
    pub(crate) fn bind(&mut self, id: u64, window: &Window, held: &Held) {
        if !matches!(self.qp.kind, Kind::Rc | Kind::Uc) {
            self.close();
            return self.operation("bind a window");
        }
        let span = held.span();
        let Some(request) = self.begin(id, opcode::BIND) else { return };
        request.bare = true;
        let bind = Bind {
            address: span.address,
            length: span.bytes.into(),
            mr_lkey: span.lkey,
            mw_rkey: window.key,
            rkey: window.next_key,
            access: window.access.bits(),
        };
        request.set_operation(&bind);
    }

    #[expect(clippy::wrong_self_convention, reason = "the request goes there")]
    pub(crate) fn to_srq(&mut self, _: u32) {
        self.operation("name a shared receive queue");
    }

    pub(crate) fn checksums(&mut self) {
        self.fail(PostError::Incomplete("checksums to be filled in, which frames alone have"));
    }

    pub(crate) fn imm(&mut self, value: u32) {
        let Some(request) = &mut self.qp.written.open else { return };
        request.entry.ex = value.to_be_bytes();
        request.entry.opcode = match request.entry.opcode {
            opcode::SEND | opcode::SEND_IMM => opcode::SEND_IMM,
            opcode::WRITE | opcode::WRITE_IMM => opcode::WRITE_IMM,
            _ => {
                return self
                    .fail(PostError::Incomplete("immediate data with an operation that carries none"));
            }
        };
    }

    fn flag(&mut self, flag: u32) {
        if let Some(request) = &mut self.qp.written.open {
            request.entry.send_flags |= flag;
        }
    }

    pub(crate) fn signalled(&mut self) {
        self.flag(flag::SIGNALED);
    }

    pub(crate) fn solicited(&mut self) {
        self.flag(flag::SOLICITED);
    }

    pub(crate) fn fenced(&mut self) {
        self.flag(flag::FENCE);
    }

    pub(crate) fn to(&mut self, ah_num: u32, remote_qpn: u32, remote_qkey: u32) {
        let Some(request) = &mut self.qp.written.open else { return };
        if !request.lacks {
            return self.fail(PostError::Incomplete("an address for what is no datagram, or a second one"));
        }
        request.lacks = false;
        let datagram = Datagram { remote_qpn, remote_qkey, ah_num, ..Datagram::default() };
        request.set_operation(&datagram);
    }

    pub(crate) fn inline(&mut self, bytes: &[u8]) {
        let limit = self.qp.room.inline;
        let Some(request) = &mut self.qp.written.open else { return };
        if request.writes || request.bare || !request.sges.is_empty() {
            return self
                .fail(PostError::Incomplete("inline data where pieces of memory are, or none can be"));
        }
        let all = request.inline.len() + bytes.len();
        if all > limit as usize {
            return self.fail(PostError::Inline { bytes: all, limit });
        }
        request.entry.send_flags |= flag::INLINE;
        request.inline.extend_from_slice(bytes);
    }

    pub(crate) fn piece(&mut self, mut piece: Piece) {
        let Some(request) = &mut self.qp.written.open else { return };
        let how = if request.writes { Use::Write } else { Use::Read };
        let Some(span) = piece.span(&mut self.qp.keys, how) else { return self.fail(PostError::Memory) };
        request.note.pieces.push(piece);
        self.add(Sge { addr: span.address, length: span.bytes, lkey: span.lkey });
    }

    pub(crate) fn lasting(&mut self, held: &Held) {
        let span = held.span();
        self.add(Sge { addr: span.address, length: span.bytes, lkey: span.lkey });
    }

    fn add(&mut self, sge: Sge) {
        let limit = self.qp.room.send_pieces;
        let Some(request) = &mut self.qp.written.open else { return };
        if request.bare || request.entry.send_flags & flag::INLINE != 0 {
            return self
                .fail(PostError::Incomplete("a piece of memory where inline data are, or none can be"));
        }
        if request.sges.len() >= limit as usize {
            return self.fail(PostError::Pieces { limit });
        }
        request.sges.push(sge);
    }

    fn close(&mut self) {
        if let Err(error) = self.qp.close() {
            self.fail(error);
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.qp.written.closed.len() as u32 + u32::from(self.qp.written.open.is_some())
    }

    pub(crate) fn ring(mut self) -> Result<u32, PostError> {
        self.close();
        if let Some(error) = self.qp.written.failed {
            return Err(error);
        }
        let count = self.qp.written.closed.len() as u32;
        if count == 0 {
            return Ok(0);
        }
        // Noted first: a completion may come before the call is back.
        let mut track = locked(&self.qp.sends);
        self.qp.written.closed.drain(..).for_each(|note| track.push(note));
        drop(track);
        let queue = &self.qp.send_queue;
        queue.set_producer(queue.after(queue.producer(), count));
        self.qp.ring();
        Ok(count)
    }

    /// Posts nothing; the pieces, the newest first.
    pub(crate) fn abort(self, mut each: impl FnMut(Piece)) {
        if let Some(request) = self.qp.written.open.take() {
            request.note.pieces.into_iter().rev().for_each(&mut each);
        }
        while let Some(note) = self.qp.written.closed.pop() {
            note.pieces.into_iter().rev().for_each(&mut each);
        }
    }
}

fn locked(track: &std::sync::Mutex<Track>) -> MutexGuard<'_, Track> {
    track.lock().unwrap_or_else(PoisonError::into_inner)
}
