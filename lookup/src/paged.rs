//! An array of words in pages that are copied when they change: what readers have of it never does.
//!
//! ```text
//!   version 7 ─► root: [ place of page 0 | page 1 | page 2 | ... ]       page 1 ── as it was
//!   version 8 ─► root: [ the same page 0 | its copy | page 2 | ... ]     its copy ── may be written until 8 is published
//! ```
//!
//! There are [`ROOTS`] roots, which versions take in turn, and three times the pages; what was replaced comes back when every reader has
//! passed. Memory is address space until it is written to.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::LookupError;
use crate::memory::{Word, Words, copy_words};
use crate::reader::Shared;
use crate::units::Units;
use crate::version::Versions;

/// Versions that readers and the writer can have at once.
const ROOTS: usize = 16;

/// What writer and readers share.
#[derive(Debug)]
pub(crate) struct Pages {
    words: Words<AtomicU64>,
    versions: Versions,
    pages: usize,
    /// Words from one root to the next.
    stride: usize,
}

impl Pages {
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// The places of a version's pages.
    #[inline(always)]
    pub(crate) fn root(&self, version: u64) -> &[AtomicU64] {
        let at = version as usize % ROOTS * self.stride;
        &self.words[at..][..self.pages]
    }
}

impl Shared for Pages {
    #[inline(always)]
    fn versions(&self) -> &Versions {
        &self.versions
    }
}

/// The writer's end.
#[derive(Debug)]
pub(crate) struct Paged {
    shared: Arc<Pages>,
    /// The version that is worked on, one above the published.
    working: u64,
    page_words: usize,
    units: Units,
    /// A page of zeros that nobody writes to.
    zeros: usize,
    /// For each root, which of its places changed in its version; each may stand there more than once.
    changes: [Vec<u32>; ROOTS],
}

impl Paged {
    /// So many pages of zeros.
    pub(crate) fn new(pages: usize, page_words: usize) -> Result<Self, LookupError> {
        let stride = pages.next_multiple_of(32);
        let zeros = (ROOTS * stride).next_multiple_of(page_words);
        let base = zeros + page_words;
        // One more: a page is given up after its copy was taken.
        let most = pages + 1;
        let room = Units::room(page_words, most).and_then(|room| room.checked_add(base));
        let words = Words::new(room.ok_or(LookupError::TooLarge { words: usize::MAX })?)?;
        let shared = Arc::new(Pages { words, versions: Versions::new(), pages, stride });
        // Readers meet it: they shall not have to wait until the kernel has found memory for it.
        shared.words[zeros..][..page_words].iter().for_each(|word| word.set(0));
        for version in 0..2 {
            shared.root(version).iter().for_each(|place| place.set(zeros as u64));
        }
        Ok(Self {
            shared,
            working: 1,
            page_words,
            units: Units::new(base, page_words, most),
            zeros,
            changes: [const { Vec::new() }; ROOTS],
        })
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Arc<Pages> {
        &self.shared
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.shared.words
    }

    /// The version that is worked on.
    #[inline(always)]
    pub(crate) fn working(&self) -> u64 {
        self.working
    }

    #[inline(always)]
    fn root(&self) -> &[AtomicU64] {
        self.shared.root(self.working)
    }

    /// Bytes that have been written to.
    pub(crate) fn touched_bytes(&self) -> usize {
        (ROOTS * self.shared.stride + self.units.touched()) * size_of::<AtomicU64>()
    }

    /// The first word of a page that may be written: the page itself, or a copy that takes its place.
    pub(crate) fn own(&mut self, page: usize) -> usize {
        let place = self.root()[page].get() as usize;
        if place != self.zeros && self.units.is_own(place, self.working) {
            return place;
        }
        let copy = self.units.take(self.working);
        copy_words(&self.shared.words[place..][..self.page_words], &self.shared.words[copy..]);
        self.root()[page].set(copy as u64);
        self.changes[self.working as usize % ROOTS].push(page as u32);
        if place != self.zeros {
            self.units.give(place, self.working);
        }
        copy
    }

    /// Publishes what was changed, if anything was.
    pub(crate) fn publish(&mut self) -> Result<(), LookupError> {
        if self.changes[self.working as usize % ROOTS].is_empty() {
            return Ok(());
        }
        let published = self.working - 1;
        let oldest = self.shared.versions.oldest().min(published);
        self.units.reclaim(oldest);
        let next = self.working + 1;
        // The root that comes next was that of `next - ROOTS`, which nobody may read any more.
        if oldest + ROOTS as u64 <= next || !self.units.has_spare() {
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
