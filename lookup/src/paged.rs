//! An array of words in pages that are copied when they change: what readers have of it never does.
//!
//! ```text
//!   version 7 ─► root: [ place of page 0 | page 1 | page 2 | ... ]       page 1 ── as it was
//!   version 8 ─► root: [ the same page 0 | its copy | page 2 | ... ]     its copy ── may be written until 8 is published
//! ```
//!
//! There are [`ROOTS`] roots, which versions take in turn, and three times the pages; what was replaced comes back when every reader has
//! passed. Memory is address space until it is written to.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::LookupError;
use crate::memory::{Word, Words};
use crate::units::Units;
use crate::version::{Seat, Versions};

/// Versions that readers and the writer can have at once.
const ROOTS: usize = 16;

/// What writer and readers share.
#[derive(Debug)]
pub(crate) struct Shared<W> {
    words: Words<W>,
    versions: Versions,
    pages: usize,
    /// Words from one root to the next.
    stride: usize,
}

impl<W: Word> Shared<W> {
    #[inline(always)]
    pub(crate) fn words(&self) -> &[W] {
        &self.words
    }

    /// The places of a version's pages.
    #[inline(always)]
    pub(crate) fn root(&self, version: u64) -> &[W] {
        let at = version as usize % ROOTS * self.stride;
        &self.words[at..][..self.pages]
    }
}

/// A page that several places of the array have, since all its words are one value.
#[derive(Debug)]
struct Uniform<V> {
    value: V,
    uses: usize,
}

/// The writer's end.
#[derive(Debug)]
pub(crate) struct Paged<W: Word> {
    shared: Arc<Shared<W>>,
    /// The version that is worked on, one above the published.
    working: u64,
    page_words: usize,
    units: Units,
    /// A page of zeros that nobody writes to.
    zeros: usize,
    uniform: HashMap<usize, Uniform<W::Value>>,
    uniform_of: HashMap<W::Value, usize>,
    /// For each root, which of its places changed in its version; each may stand there more than once.
    changes: [Vec<u32>; ROOTS],
}

impl<W: Word<Value: Hash>> Paged<W> {
    /// So many pages of zeros; behind them `others`, pieces of so many words, as many as they say.
    pub(crate) fn new(
        pages: usize,
        page_words: usize,
        others: Option<(usize, usize)>,
    ) -> Result<(Self, Units), LookupError> {
        let stride = pages.next_multiple_of(32);
        let zeros = (ROOTS * stride).next_multiple_of(page_words);
        let base = zeros + page_words;
        // One more: a page is given up after its copy was taken.
        let most = pages + 1;
        let (other_words, other_most) = others.unwrap_or((1, 0));
        let too_large = || LookupError::TooLarge { words: usize::MAX };
        let other_base =
            Units::room(page_words, most).and_then(|room| room.checked_add(base)).ok_or_else(too_large)?;
        let other_base = other_base.next_multiple_of(other_words);
        let other_room = Units::room(other_words, other_most).ok_or_else(too_large)?;
        let words = Words::<W>::new(other_base.checked_add(other_room).ok_or_else(too_large)?)?;
        // Places of pages fit the smallest word.
        if u32::try_from(other_base).is_err() {
            return Err(LookupError::TooLarge { words: words.len() });
        }
        let shared = Arc::new(Shared { words, versions: Versions::new(), pages, stride });
        // Readers meet it: they shall not have to wait until the kernel has found memory for it.
        shared.words[zeros..][..page_words].iter().for_each(|word| word.set(W::place(0)));
        for version in 0..2 {
            shared.root(version).iter().for_each(|place| place.set(W::place(zeros as u32)));
        }
        let paged = Self {
            shared,
            working: 1,
            page_words,
            units: Units::new(base, page_words, most),
            zeros,
            uniform: HashMap::new(),
            uniform_of: HashMap::new(),
            changes: [const { Vec::new() }; ROOTS],
        };
        Ok((paged, Units::new(other_base, other_words, other_most)))
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Arc<Shared<W>> {
        &self.shared
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[W] {
        &self.shared.words
    }

    /// The version that is worked on.
    #[inline(always)]
    pub(crate) fn working(&self) -> u64 {
        self.working
    }

    #[inline(always)]
    pub(crate) fn root(&self) -> &[W] {
        self.shared.root(self.working)
    }

    /// Bytes that have been written to.
    pub(crate) fn touched_bytes(&self) -> usize {
        (ROOTS * self.shared.stride + self.units.touched()) * size_of::<W>()
    }

    /// The first word of a page that may be written: the page itself, or a copy that takes its place.
    pub(crate) fn own(&mut self, page: usize) -> usize {
        let place = self.root()[page].as_place();
        if place != self.zeros && self.units.is_own(place, self.working) && !self.uniform.contains_key(&place)
        {
            return place;
        }
        let copy = self.units.take(self.working);
        copy_words(&self.shared.words, place, copy, self.page_words);
        self.replace(page, place, copy);
        copy
    }

    /// Makes all words of a page one value.
    pub(crate) fn fill(&mut self, page: usize, value: W::Value) {
        let place = self.root()[page].as_place();
        let filled = match self.uniform_of.get(&value).copied() {
            Some(filled) if filled == place => return,
            Some(filled) => filled,
            None if self.shared.words[self.zeros].get() == value => self.zeros,
            None => {
                let filled = self.units.take(self.working);
                self.shared.words[filled..][..self.page_words].iter().for_each(|word| word.set(value));
                self.uniform.insert(filled, Uniform { value, uses: 0 });
                self.uniform_of.insert(value, filled);
                filled
            }
        };
        if let Some(uniform) = self.uniform.get_mut(&filled) {
            uniform.uses += 1;
        }
        self.replace(page, place, filled);
    }

    /// Puts another page in place of one.
    fn replace(&mut self, page: usize, old: usize, new: usize) {
        self.root()[page].set(W::place(new as u32));
        self.changes[self.working as usize % ROOTS].push(page as u32);
        if old == self.zeros {
            return;
        }
        if let Some(uniform) = self.uniform.get_mut(&old) {
            uniform.uses -= 1;
            if uniform.uses > 0 {
                return;
            }
            self.uniform_of.remove(&uniform.value);
            self.uniform.remove(&old);
        }
        self.units.give(old, self.working);
    }

    /// Publishes what was changed, if anything was; `others` are the pieces that the caller deals out.
    pub(crate) fn publish(&mut self, others: &mut Units) -> Result<(), LookupError> {
        if self.changes[self.working as usize % ROOTS].is_empty() {
            return Ok(());
        }
        let published = self.working - 1;
        let oldest = self.shared.versions.oldest().min(published);
        for units in [&mut self.units, &mut *others] {
            units.reclaim(oldest);
        }
        let next = self.working + 1;
        // The root that comes next was that of `next - ROOTS`, which nobody may read any more.
        if oldest + ROOTS as u64 <= next || !self.units.has_spare() || !others.has_spare() {
            return Err(LookupError::ReadersBehind { behind: published - oldest });
        }
        self.shared.versions.publish(self.working);
        self.working = next;
        self.advance_root();
        Ok(())
    }

    /// Brings the root that comes next, sixteen versions old, up to the one before it.
    fn advance_root(&mut self) {
        let (from, to) = (self.shared.root(self.working - 1), self.shared.root(self.working));
        let own = self.working as usize % ROOTS;
        let others = || (0..ROOTS).filter(|root| *root != own).map(|root| &self.changes[root]);
        if self.working < ROOTS as u64 || others().map(Vec::len).sum::<usize>() > from.len() {
            for (from, to) in from.iter().zip(to) {
                to.set(from.get());
            }
        } else {
            others().flatten().for_each(|page| to[*page as usize].set(from[*page as usize].get()));
        }
        self.changes[own].clear();
    }
}

/// Copies words to where no reader is.
pub(crate) fn copy_words<W: Word>(words: &[W], from: usize, to: usize, count: usize) {
    for (from, to) in words[from..][..count].iter().zip(&words[to..][..count]) {
        to.set(from.get());
    }
}

/// A reader's end: it reads one version until it passes.
#[derive(Debug)]
pub(crate) struct PageReader<W: Word> {
    shared: Arc<Shared<W>>,
    seat: Seat,
}

impl<W: Word> PageReader<W> {
    /// A reader of the newest version.
    pub(crate) fn new(shared: &Arc<Shared<W>>) -> Self {
        Self { seat: shared.versions.seat(), shared: Arc::clone(shared) }
    }

    /// Takes the newest version.
    #[inline(always)]
    pub(crate) fn pass(&mut self) -> (&Shared<W>, u64) {
        let version = self.seat.pass(&self.shared.versions);
        (&self.shared, version)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<W>> {
        &self.shared
    }
}

impl<W: Word> Drop for PageReader<W> {
    fn drop(&mut self) {
        self.shared.versions.leave(&self.seat);
    }
}
