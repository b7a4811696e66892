//! What is posted to a queue: the user's word of each entry, and the memory that went along.

use std::collections::VecDeque;

use crate::mr::Piece;

/// What requests that are done took along, in order.
#[derive(Debug, Default)]
pub(super) struct Taken(VecDeque<std::vec::IntoIter<Piece>>);

impl Taken {
    fn add(&mut self, note: Note) {
        if !note.pieces.is_empty() {
            self.0.push_back(note.pieces.into_iter());
        }
    }

    pub(super) fn next(&mut self) -> Option<Piece> {
        (self.left_of_request() > 0).then(|| self.0.front_mut()?.next()).flatten()
    }

    /// How many are left of the request that the next one is of; 0 when there is none.
    pub(super) fn left_of_request(&mut self) -> u32 {
        while let Some(request) = self.0.front() {
            if request.len() > 0 {
                return request.len() as u32;
            }
            self.0.pop_front();
        }
        0
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Piece> {
        self.0.iter_mut().flat_map(|request| request.as_mut_slice())
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What an entry was posted with.
#[derive(Debug, Default)]
pub(super) struct Note {
    pub(super) id: u64,
    pub(super) pieces: Vec<Piece>,
}

/// Entries of a queue that completes in order, by number.
#[derive(Debug)]
pub(super) struct Track {
    notes: VecDeque<Note>,
    /// Number of the oldest.
    first: u64,
    capacity: usize,
}

impl Track {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self { notes: VecDeque::with_capacity(capacity), first: 0, capacity }
    }

    /// How many more fit.
    pub(super) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.notes.len())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.notes.len()
    }

    /// Number of the next one.
    pub(super) fn next(&self) -> u64 {
        self.first + self.notes.len() as u64
    }

    pub(super) fn push(&mut self, note: Note) {
        self.notes.push_back(note);
    }

    /// Takes the entry of that number, and what it and all before it took along, into `taken`. The answer is the user's word; `None` when
    /// there is no such entry.
    pub(super) fn complete(&mut self, number: u64, taken: &mut Taken) -> Option<u64> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        if place >= self.notes.len() {
            return None;
        }
        let mut id = 0;
        for note in self.notes.drain(..=place) {
            id = note.id;
            taken.add(note);
        }
        self.first = number + 1;
        Some(id)
    }

    /// Takes all that is left.
    pub(super) fn clear(&mut self) -> Vec<Note> {
        self.first = self.next();
        self.notes.drain(..).collect()
    }
}

/// Entries of a shared queue, which complete in any order, by place.
#[derive(Debug)]
pub(super) struct Places {
    notes: Vec<Option<Note>>,
    free: Vec<u32>,
}

impl Places {
    pub(super) fn new(capacity: u32) -> Self {
        Self { notes: (0..capacity).map(|_| None).collect(), free: (0..capacity).rev().collect() }
    }

    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Keeps a note; the answer is its place. `None`, and the note is gone, when there is none.
    pub(super) fn keep(&mut self, note: Note) -> Option<u64> {
        let place = self.free.pop()?;
        self.notes[place as usize] = Some(note);
        Some(place.into())
    }

    pub(super) fn complete(&mut self, place: u64, taken: &mut Taken) -> Option<u64> {
        let note = self.notes.get_mut(usize::try_from(place).ok()?)?.take()?;
        self.free.push(place as u32);
        let id = note.id;
        taken.add(note);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(id: u64) -> Note {
        Note { id, pieces: Vec::new() }
    }

    #[test]
    fn entries_complete_with_those_before_them() {
        let mut track = Track::new(4);
        let mut taken = Taken::default();
        for id in 10..14 {
            assert_eq!(track.next(), id - 10);
            track.push(note(id));
        }
        assert_eq!(track.room(), 0);
        assert_eq!(track.complete(2, &mut taken), Some(12));
        assert_eq!(track.complete(1, &mut taken), None, "it is over");
        assert_eq!(track.complete(4, &mut taken), None, "it is not there yet");
        assert_eq!(track.room(), 3);
        assert_eq!(track.clear().len(), 1);
        assert_eq!((track.next(), track.room()), (4, 4));
        track.push(note(1));
        assert_eq!(track.complete(4, &mut taken), Some(1));
    }

    #[test]
    fn places_are_used_again() {
        let mut places = Places::new(2);
        let mut taken = Taken::default();
        let (one, two) = (places.keep(note(1)).expect("room"), places.keep(note(2)).expect("room"));
        assert!(places.keep(note(3)).is_none());
        assert_eq!(places.complete(two, &mut taken), Some(2));
        assert_eq!(places.complete(two, &mut taken), None);
        assert_eq!(places.complete(9, &mut taken), None);
        assert_eq!(places.keep(note(3)), Some(two));
        assert_eq!(places.complete(one, &mut taken), Some(1));
        assert_eq!(places.room(), 1);
    }
}
