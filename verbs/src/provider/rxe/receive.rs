//! Receives, of a queue pair or of a shared queue: entries given to the kernel together, without a call.

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
}

/// Receives that go to the kernel together. Dropped, it posts nothing, and what it was given goes home.
pub(crate) struct Receives<'q> {
    target: Target<'q>,
    /// Requests, with their pieces as the kernel knows them.
    waiting: Vec<(Note, Vec<Sge>)>,
    failed: Option<PostError>,
}

impl std::fmt::Debug for Receives<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receives").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl<'q> Receives<'q> {
    /// A list that is not posted if there is a reason by now: `refused`.
    pub(super) fn new(target: Target<'q>, refused: Option<PostError>) -> Self {
        target.keys.follow();
        Self { target, waiting: Vec::new(), failed: refused }
    }

    fn fail(&mut self, error: PostError) {
        self.failed.get_or_insert(error);
    }

    fn add(&mut self, note: Note, sges: Vec<Sge>) {
        let limit = self.target.pieces;
        if self.failed.is_some() {
            return;
        }
        if sges.len() > limit as usize {
            return self.fail(PostError::Pieces { limit });
        }
        let queue = self.target.queue;
        let used = queue.between(queue.consumer(), queue.producer()) as usize + self.waiting.len();
        if used >= queue.capacity() as usize || self.target.notes.room() <= self.waiting.len() {
            return self.fail(PostError::Full);
        }
        self.waiting.push((note, sges));
    }

    pub(crate) fn piece(&mut self, id: u64, piece: Piece) {
        self.pieces(id, std::iter::once(piece));
    }

    pub(crate) fn pieces(&mut self, id: u64, pieces: impl Iterator<Item = Piece>) {
        let mut note = Note { id, pieces: Vec::new() };
        let mut sges = Vec::new();
        for mut piece in pieces {
            let Some(span) = piece.span(self.target.keys, Use::Fill) else {
                return self.fail(PostError::Memory);
            };
            sges.push(Sge { addr: span.address, length: span.bytes, lkey: span.lkey });
            note.pieces.push(piece);
        }
        self.add(note, sges);
    }

    pub(crate) fn lasting(&mut self, id: u64, held: &Held) {
        self.span(id, held.span());
    }

    /// A receive into memory that the queue keeps.
    pub(super) fn span(&mut self, id: u64, span: Span) {
        let sge = Sge { addr: span.address, length: span.bytes, lkey: span.lkey };
        self.add(Note { id, pieces: Vec::new() }, vec![sge]);
    }

    pub(crate) fn ring(mut self) -> Result<u32, PostError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let queue = self.target.queue;
        let mut producer = queue.producer();
        let mut outcome = Ok(self.waiting.len() as u32);
        for (note, sges) in self.waiting.drain(..) {
            // `add` saw the room.
            let Some(number) = self.target.notes.keep(note) else {
                outcome = Err(PostError::Full);
                break;
            };
            let length = sges.iter().map(|sge| sge.length).fold(0, u32::saturating_add);
            let dma = Dma { length, resid: length, num_sge: sges.len() as u32, ..Dma::default() };
            let entry = ReceiveEntry { wr_id: number | RECEIVE, dma, ..ReceiveEntry::default() };
            let mut whole = entry.as_bytes().to_vec();
            whole.extend_from_slice(sges.as_bytes());
            queue.write(producer, &whole);
            producer = queue.after(producer, 1);
        }
        // Those that are noted are the kernel's, and all become so at once.
        queue.set_producer(producer);
        outcome
    }

    /// Posts nothing, and gives back what the receives were given.
    pub(crate) fn abort(self, mut each: impl FnMut(Piece)) {
        self.waiting.into_iter().flat_map(|(note, _)| note.pieces).for_each(&mut each);
    }
}
