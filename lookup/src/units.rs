//! Pieces of equal size that a table's words are dealt out in, and which of them may be written.

use std::collections::VecDeque;

/// The pieces of one size. A piece that a published version has is never written; it comes back once no reader can have it.
#[derive(Debug)]
pub(crate) struct Units {
    /// The first piece's first word.
    base: usize,
    words: usize,
    /// Pieces that the table may have at once; there are three times as many: for the version that readers have, for its copy that
    /// is worked on, and for what waits for readers.
    most: usize,
    live: usize,
    /// Pieces before this one have been used.
    fresh: usize,
    free: Vec<u32>,
    /// Those that were replaced, and in which version.
    retired: VecDeque<(u64, u32)>,
    /// For each that was used: in which version it was taken.
    born: Vec<u64>,
}

/// Copies of each piece that there is room for.
const COPIES: usize = 3;

impl Units {
    /// `most` pieces of so many words, behind `base`, a multiple of that.
    pub(crate) fn new(base: usize, words: usize, most: usize) -> Self {
        debug_assert!(base.is_multiple_of(words));
        Self {
            base,
            words,
            most,
            live: 0,
            fresh: 0,
            free: Vec::new(),
            retired: VecDeque::new(),
            born: Vec::new(),
        }
    }

    /// Words that `most` pieces need, with their copies.
    pub(crate) fn room(words: usize, most: usize) -> Option<usize> {
        most.checked_mul(COPIES)?.checked_mul(words)
    }

    /// Pieces that the working version has.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Words that were ever used, each of which takes memory.
    pub(crate) fn touched(&self) -> usize {
        self.fresh * self.words
    }

    /// Whether the working version may have `more` pieces.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.live + more <= self.most
    }

    /// Pieces that can be taken at once.
    fn available(&self) -> usize {
        self.free.len() + COPIES * self.most - self.fresh
    }

    /// Whether a whole copy of the table's pieces, and as many more as it may have, can be taken: then no change of a version fails
    /// halfway.
    pub(crate) fn has_spare(&self) -> bool {
        self.available() >= self.most
    }

    /// Takes a piece: its first word. There is one, as `has_spare` held when this version was begun.
    pub(crate) fn take(&mut self, version: u64) -> usize {
        self.live += 1;
        let unit = self.free.pop().unwrap_or_else(|| {
            assert!(self.fresh < COPIES * self.most, "a change needs more memory than was set aside for it");
            self.fresh += 1;
            self.born.push(0);
            self.fresh as u32 - 1
        });
        self.born[unit as usize] = version;
        self.base + unit as usize * self.words
    }

    /// Whether a piece is of this version, so that no reader has it.
    pub(crate) fn is_own(&self, place: usize, version: u64) -> bool {
        self.born[self.unit(place)] == version
    }

    /// Gives a piece up that the working `version` has no more.
    pub(crate) fn give(&mut self, place: usize, version: u64) {
        self.live -= 1;
        let own = self.is_own(place, version);
        let unit = self.unit(place) as u32;
        if own { self.free.push(unit) } else { self.retired.push_back((version, unit)) }
    }

    /// Takes back what was replaced in a version that every reader has, or a later one.
    pub(crate) fn reclaim(&mut self, oldest: u64) {
        while let Some((version, unit)) =
            self.retired.front().copied().filter(|(version, _)| *version <= oldest)
        {
            debug_assert!(version <= oldest);
            self.retired.pop_front();
            self.free.push(unit);
        }
    }

    fn unit(&self, place: usize) -> usize {
        (place - self.base) / self.words
    }
}
