//! Receives, of a queue pair or of a shared queue: entries given to the kernel together, without a call.

use std::mem::offset_of;
use std::sync::{Mutex, PoisonError};

use crate::provider::request::{PostError, Span, Use};
use pollux_mlx5_common::key::Keys;
use zerocopy::IntoBytes;

use super::abi::{Dma, ReceiveEntry, Sge};
use super::cq::RECEIVE;
use super::queue::Queue;
use super::track::{Note, Places, Track};
use crate::mr::{Held, Piece};

/// Where receives are noted. The lock is held for as long as a note is made.
#[derive(Clone, Copy)]
pub(super) enum Notes<'q> {
    InOrder(&'q Mutex<Track>),
    AnyOrder(&'q Mutex<Places>),
}

impl Notes<'_> {
    /// How many more fit.
    fn room(self) -> usize {
        match self {
            Self::InOrder(track) => track.lock().unwrap_or_else(PoisonError::into_inner).room(),
            Self::AnyOrder(places) => places.lock().unwrap_or_else(PoisonError::into_inner).room(),
        }
    }

    /// Keeps a note; the answer is the entry's number. `None` when there is no room.
    fn keep(self, note: Note) -> Option<u64> {
        match self {
            Self::InOrder(track) => {
                let mut track = track.lock().unwrap_or_else(PoisonError::into_inner);
                let number = track.next();
                track.push(note);
                Some(number)
            }
            Self::AnyOrder(places) => places.lock().unwrap_or_else(PoisonError::into_inner).keep(note),
        }
    }
}

/// What receives are posted to.
pub(super) struct Target<'q> {
    pub(super) queue: &'q Queue,
    pub(super) notes: Notes<'q>,
    pub(super) keys: &'q mut Keys,
    /// Pieces of a receive.
    pub(super) pieces: u32,
    /// Of entries that are written and not given to the kernel yet.
    pub(super) waiting: &'q mut Vec<Note>,
}

/// Receives that go to the kernel together. Dropped, it posts nothing, and what it was given goes home.
pub(crate) struct Receives<'q> {
    target: Target<'q>,
    failed: Option<PostError>,
}

impl std::fmt::Debug for Receives<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receives").field("waiting", &self.target.waiting.len()).finish_non_exhaustive()
    }
}

impl Drop for Receives<'_> {
    fn drop(&mut self) {
        self.target.waiting.clear();
    }
}

impl<'q> Receives<'q> {
    /// A list that is not posted if there is a reason by now: `refused`.
    pub(super) fn new(target: Target<'q>, refused: Option<PostError>) -> Self {
        target.keys.follow();
        // Of a list that was forgotten.
        target.waiting.clear();
        let room = target.queue.entry_bytes() - size_of::<ReceiveEntry>();
        let pieces = target.pieces.min((room / size_of::<Sge>()) as u32);
        Self { target: Target { pieces, ..target }, failed: refused }
    }

    fn fail(&mut self, error: PostError) {
        self.failed.get_or_insert(error);
    }

    /// Where the next entry stands. `None`: it is not to be written.
    fn place(&mut self) -> Option<u32> {
        let Target { queue, notes, ref waiting, .. } = self.target;
        if self.failed.is_some() {
            return None;
        }
        let (producer, count) = (queue.producer(), waiting.len());
        let used = queue.between(queue.consumer(), producer) as usize + count;
        if used >= queue.capacity() as usize || notes.room() <= count {
            self.fail(PostError::Full);
            return None;
        }
        Some(queue.after(producer, count as u32))
    }

    /// Writes a piece of an entry. Whether there is room for it.
    fn write(&mut self, index: u32, piece: u32, span: Span) -> bool {
        let limit = self.target.pieces;
        if piece >= limit {
            self.fail(PostError::Pieces { limit });
            return false;
        }
        let sge = Sge { addr: span.address, length: span.bytes, lkey: span.lkey };
        let at = size_of::<ReceiveEntry>() + piece as usize * size_of::<Sge>();
        self.target.queue.write(index, at, sge.as_bytes());
        true
    }

    /// Writes the front of an entry, whose number comes last.
    fn close(&mut self, index: u32, num_sge: u32, length: u32, note: Note) {
        let dma = Dma { length, resid: length, num_sge, ..Dma::default() };
        self.target.queue.write(index, 0, ReceiveEntry { dma, ..ReceiveEntry::default() }.as_bytes());
        self.target.waiting.push(note);
    }

    pub(crate) fn piece(&mut self, id: u64, piece: Piece) {
        self.pieces(id, std::iter::once(piece));
    }

    pub(crate) fn pieces(&mut self, id: u64, pieces: impl Iterator<Item = Piece>) {
        let Some(index) = self.place() else { return };
        let mut note = Note { id, pieces: Vec::new() };
        let (mut count, mut length) = (0, 0_u32);
        for mut piece in pieces {
            let Some(span) = piece.span(self.target.keys, Use::Fill) else {
                return self.fail(PostError::Memory);
            };
            if !self.write(index, count, span) {
                return;
            }
            (count, length) = (count + 1, length.saturating_add(span.bytes));
            note.pieces.push(piece);
        }
        self.close(index, count, length, note);
    }

    pub(crate) fn lasting(&mut self, id: u64, held: &Held) {
        self.span(id, held.span());
    }

    /// A receive into memory that the queue keeps.
    pub(super) fn span(&mut self, id: u64, span: Span) {
        let Some(index) = self.place() else { return };
        if self.write(index, 0, span) {
            self.close(index, 1, span.bytes, Note { id, pieces: Vec::new() });
        }
    }

    pub(crate) fn ring(self) -> Result<u32, PostError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let queue = self.target.queue;
        let mut producer = queue.producer();
        let mut outcome = Ok(self.target.waiting.len() as u32);
        for note in self.target.waiting.drain(..) {
            // `place` saw the room.
            let Some(number) = self.target.notes.keep(note) else {
                outcome = Err(PostError::Full);
                break;
            };
            queue.write(producer, offset_of!(ReceiveEntry, wr_id), &(number | RECEIVE).to_ne_bytes());
            producer = queue.after(producer, 1);
        }
        // Those that are noted are the kernel's, and all become so at once.
        queue.set_producer(producer);
        outcome
    }

    /// Posts nothing, and gives back what the receives were given.
    pub(crate) fn abort(self, mut each: impl FnMut(Piece)) {
        self.target.waiting.drain(..).flat_map(|note| note.pieces).for_each(&mut each);
    }
}
