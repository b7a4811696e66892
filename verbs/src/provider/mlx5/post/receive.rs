//! Receives of a queue pair's own ring: entries of as many segments as a receive has pieces, the last one marked where it is
//! not full. Source: rdma-core `providers/mlx5/qp.c`, `mlx5_post_recv`.

use std::ptr::NonNull;

use pollux_eal::barrier;
use pollux_eal::region::Zone;
use pollux_mlx5_abi::wqe::{Data, INVALID_LKEY, SEGMENT_BYTES};

use super::track::Producer;
use super::{PostError, Span, Use};
use crate::mr::{Held, Piece};
use crate::provider::request::{LINKED, NOT_IDLE, NOT_LINKED};
use pollux_mlx5_common::dbrec::{DoorbellRecord, FIRST};
use pollux_mlx5_common::key::Keys;

/// A receive ring, at the start of the memory that it owns.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    place: Place,
    _zone: Zone,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    base: NonNull<u8>,
    /// Its entries, as a power of two.
    log: u8,
    /// Pieces of an entry.
    pieces: u32,
}

impl Place {
    /// Writes segment `at` of the entry that is posted as number `index`, which is not posted yet.
    #[inline(always)]
    fn write(self, index: u32, at: u32, data: Data) {
        let Self { base, log, pieces } = self;
        debug_assert!(at < pieces, "a segment of another entry");
        let entry = (index & ((1 << log) - 1)) as usize;
        let segment = entry * pieces as usize + at as usize;
        // SAFETY: `at` is below the pieces of an entry, and the masked index below the entries that fill the ring; the entry
        // is not posted.
        let place = unsafe { base.add(segment * SEGMENT_BYTES) };
        // SAFETY: as above.
        unsafe { place.cast::<[u64; 2]>().write(zerocopy::transmute!(data)) };
    }
}

// SAFETY: the memory is the zone's, which belongs to no thread.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// A ring of `1 << log` entries of `pieces` segments.
    ///
    /// # Panics
    /// When it does not fit the zone: it is our mistake.
    pub(crate) fn new(zone: Zone, log: u8, pieces: u32) -> Self {
        assert!(Self::bytes(log, pieces) <= zone.bytes(), "a receive ring outside its zone");
        Self { place: Place { base: zone.base(), log, pieces }, _zone: zone }
    }

    pub(crate) fn bytes(log: u8, pieces: u32) -> usize {
        (pieces as usize * SEGMENT_BYTES) << log
    }
}

/// Receives that go to the device together. Dropped, it posts nothing, and what it was given goes home.
pub(crate) struct Receives<'q> {
    recv: &'q mut Producer<Piece>,
    keys: &'q mut Keys,
    record: &'q mut DoorbellRecord,
    ring: Place,
    /// Of all places, those that are taken when an entry still fits.
    room: u32,
    at: u32,
    failed: Option<PostError>,
}

impl std::fmt::Debug for Receives<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receives").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<'q> Receives<'q> {
    #[inline(always)]
    pub(in crate::provider::mlx5) fn begin(
        recv: &'q mut Producer<Piece>,
        keys: &'q mut Keys,
        record: &'q mut DoorbellRecord,
        ring: &ReceiveRing,
    ) -> Self {
        // Of a list that was forgotten.
        if recv.has_kept() {
            recv.drop_kept();
        }
        let (room, at) = (recv.places() - 1, recv.posted());
        let failed = recv.is_linked().then_some(LINKED);
        Self { recv, keys, record, ring: ring.place, room, at, failed }
    }
}

impl ReceiveRing {
    /// Writes every entry for good: the entry at place `k` is filled at the `k`-th piece behind `first`.
    ///
    /// # Errors
    /// Some are posted.
    pub(in crate::provider::mlx5) fn link(
        &mut self,
        recv: &mut Producer<Piece>,
        first: Span,
    ) -> Result<(), PostError> {
        if !recv.link() {
            return Err(NOT_IDLE);
        }
        for index in 0..1 << self.place.log {
            let span = first.after(index);
            self.place.write(index, 0, Data::new(span.bytes, span.lkey, span.address));
            if self.place.pieces > 1 {
                self.place.write(index, 1, Data::new(0, INVALID_LKEY, 0));
            }
        }
        Ok(())
    }
}

/// Posts the next `count` entries as they stand, with one store to the record.
///
/// # Errors
/// They are not linked, or so many are not free; then none is posted.
#[inline(always)]
pub(in crate::provider::mlx5) fn post_linked(
    recv: &mut Producer<Piece>,
    record: &mut DoorbellRecord,
    count: u32,
) -> Result<(), PostError> {
    if !recv.is_linked() {
        return Err(NOT_LINKED);
    }
    let places = recv.places();
    let end = recv.posted().wrapping_add(count);
    if count > places || !recv.is_free(end, places) {
        return Err(PostError::Full);
    }
    if count != 0 {
        recv.commit(end, count);
        barrier::to_device();
        record.store(FIRST, end & 0xffff);
    }
    Ok(())
}

impl Receives<'_> {
    /// A receive into one piece.
    #[inline(always)]
    pub(crate) fn piece(&mut self, id: u64, piece: Piece) -> &mut Self {
        self.pieces(id, std::iter::once(piece))
    }

    /// A receive into several pieces, one after the other.
    #[inline(always)]
    pub(crate) fn pieces(&mut self, id: u64, pieces: impl IntoIterator<Item = Piece>) -> &mut Self {
        let Some((before, mut at)) = self.open() else { return self };
        for mut piece in pieces {
            // One without room is kept as well, and takes no segment.
            if self.recv.kept().wrapping_sub(before) == self.ring.pieces {
                return self.fail(PostError::Pieces { limit: self.ring.pieces });
            }
            let Some(span) = piece.span(self.keys, Use::Fill) else { return self.fail(PostError::Memory) };
            self.recv.keep(piece);
            at = self.data(at, span);
        }
        self.end(id, before, at);
        self
    }

    /// A receive into memory that outlives the queue.
    #[inline(always)]
    pub(crate) fn lasting(&mut self, id: u64, piece: &Held<'_>) -> &mut Self {
        let Some((before, at)) = self.open() else { return self };
        let at = self.data(at, piece.span());
        self.end(id, before, at);
        self
    }

    #[inline(always)]
    fn open(&mut self) -> Option<(u32, u32)> {
        if self.failed.is_some() {
            return None;
        }
        if !self.recv.is_free(self.at, self.room) {
            self.fail(PostError::Full);
            return None;
        }
        Some((self.recv.kept(), 0))
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, error: PostError) -> &mut Self {
        self.failed.get_or_insert(error);
        self
    }

    #[inline(always)]
    fn data(&mut self, at: u32, span: Span) -> u32 {
        if span.bytes == 0 {
            return at;
        }
        self.write(at, Data::new(span.bytes, span.lkey, span.address));
        at + 1
    }

    #[inline(always)]
    fn end(&mut self, id: u64, before: u32, at: u32) {
        if at < self.ring.pieces {
            self.write(at, Data::new(0, INVALID_LKEY, 0));
        }
        let end = self.at.wrapping_add(1);
        self.recv.note(id, self.at, end, before);
        self.at = end;
    }

    #[inline(always)]
    fn write(&mut self, at: u32, data: Data) {
        self.ring.write(self.at, at, data);
    }

    /// Posts them all, with one store to the record. How many they were.
    ///
    /// # Errors
    /// What was wrong with the first that could not be posted; then none is, and what they took along goes home.
    #[inline(always)]
    pub(crate) fn ring(self) -> Result<u32, PostError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let count = self.at.wrapping_sub(self.recv.posted());
        if count != 0 {
            self.recv.commit(self.at, count);
            barrier::to_device();
            self.record.store(FIRST, self.at & 0xffff);
        }
        Ok(count)
    }

    /// Posts nothing, and gives back what the requests took along.
    pub(crate) fn abort(self, mut each: impl FnMut(Piece)) {
        while let Some(token) = self.recv.take_back() {
            each(token);
        }
    }
}

impl Drop for Receives<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // After `ring` there are none.
        if self.recv.has_kept() {
            self.recv.drop_kept();
        }
    }
}
