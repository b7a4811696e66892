//! What was posted and is not known to be done: a ring of notes, one an entry, and a ring of what they own.
//!
//! One side writes, the other takes; each is a value of its own, so that a queue pair and its completion queue may be on two
//! lcores. What one has written the other may read once it has seen the count behind it, stored with release and loaded with
//! acquire. What is left when both have gone is dropped if the device let go of it, and leaked otherwise.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::view::{Fill, Gauge};

/// What an entry was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Note {
    /// The user's word.
    pub(crate) id: u64,
    /// Where it begins, and where the next one does.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Tokens posted in all, its own included.
    pub(crate) tokens: u32,
    /// Of a receive: tokens before its own. Of a send: 1 if it invalidated a key.
    pub(crate) extra: u32,
}

#[repr(align(64))]
#[derive(Debug, Default)]
struct Posted {
    places: AtomicU32,
    tokens: AtomicU32,
    /// Read by views alone.
    requests: AtomicU64,
}

#[repr(align(64))]
#[derive(Debug, Default)]
struct Counts {
    places: AtomicU32,
    tokens: AtomicU32,
}

struct Track<T> {
    notes: Box<[UnsafeCell<Note>]>,
    tokens: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Posted in all. Written by the side that posts.
    posted: Posted,
    /// Done in all. Written by the side that takes.
    done: Counts,
    let_go: AtomicBool,
    /// Entries have no notes: each is one place without tokens, called by where it stands in the ring.
    linked: AtomicBool,
}

// SAFETY: a place is written by the producer while it is not posted, and read by the consumer while it is; see `Producer`.
unsafe impl<T: Send> Sync for Track<T> {}

impl<T> Track<T> {
    #[inline(always)]
    fn token(&self, index: u32) -> *mut MaybeUninit<T> {
        // SAFETY: a power of two of them, at least one, by `track`; so the masked index is below it.
        unsafe { self.tokens.get_unchecked(index as usize & (self.tokens.len() - 1)).get() }
    }

    #[inline(always)]
    fn note(&self, index: u32) -> *mut Note {
        // SAFETY: as above.
        unsafe { self.notes.get_unchecked(index as usize & (self.notes.len() - 1)).get() }
    }
}

impl<T: Send> Gauge for Track<T> {
    fn fill(&self) -> Fill {
        let places = self.notes.len() as u32;
        // In this order: what is posted meanwhile makes the queue seem fuller, never emptier, and never fuller than it is long.
        let done = self.done.places.load(Ordering::Acquire);
        let posted = self.posted.requests.load(Ordering::Relaxed);
        let used = self.posted.places.load(Ordering::Relaxed).wrapping_sub(done).min(places);
        Fill { places, used, posted }
    }
}

impl<T> Drop for Track<T> {
    fn drop(&mut self) {
        if !*self.let_go.get_mut() {
            // The device may still reach what is left: nobody else ever will.
            return;
        }
        let mut index = *self.done.tokens.get_mut();
        while index != *self.posted.tokens.get_mut() {
            // SAFETY: between the two counts there are tokens, and both sides are gone.
            unsafe { (*self.token(index)).assume_init_drop() };
            index = index.wrapping_add(1);
        }
    }
}

/// The side that posts. There is one of it.
pub(crate) struct Producer<T> {
    track: Arc<Track<T>>,
    posted: u32,
    tokens: u32,
    /// Tokens with those that are not posted yet.
    kept: u32,
    done: u32,
    requests: u64,
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.drop_kept();
    }
}

/// The side that takes. There is one of it.
pub(crate) struct Consumer<T> {
    track: Arc<Track<T>>,
}

impl<T> std::fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").finish_non_exhaustive()
    }
}

/// A track of `1 << log` places, with room for `1 << token_log` tokens: all that entries of so many places can have. An entry
/// may have a token that the device is not told of.
pub(crate) fn track<T>(log: u8, token_log: u8) -> (Producer<T>, Consumer<T>) {
    let track = Arc::new(Track {
        notes: (0..1_usize << log).map(|_| UnsafeCell::new(Note::default())).collect(),
        tokens: (0..1_usize << token_log).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        posted: Posted::default(),
        done: Counts::default(),
        let_go: AtomicBool::new(false),
        linked: AtomicBool::new(false),
    });
    (
        Producer { track: Arc::clone(&track), posted: 0, tokens: 0, kept: 0, done: 0, requests: 0 },
        Consumer { track },
    )
}

impl<T: Send + 'static> Producer<T> {
    /// What is posted and done, for other threads.
    pub(crate) fn gauge(&self) -> Arc<dyn Gauge> {
        Arc::clone(&self.track) as Arc<dyn Gauge>
    }
}

impl<T> Producer<T> {
    /// Places posted in all.
    #[inline(always)]
    pub(crate) fn posted(&self) -> u32 {
        self.posted
    }

    /// Tokens kept in all, posted or not.
    #[inline(always)]
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    /// Whether tokens are kept that are not posted.
    #[inline(always)]
    pub(crate) fn has_kept(&self) -> bool {
        self.kept != self.tokens
    }

    /// Places in all.
    pub(crate) fn places(&self) -> u32 {
        self.track.notes.len() as u32
    }

    /// Whether all but `room` of the places are free from `at` on. Hot: a comparison, and a load when that says no.
    #[inline(always)]
    pub(crate) fn is_free(&mut self, at: u32, room: u32) -> bool {
        if at.wrapping_sub(self.done) <= room {
            return true;
        }
        self.done = self.done();
        at.wrapping_sub(self.done) <= room
    }

    /// Places done in all.
    #[inline(always)]
    pub(crate) fn done(&self) -> u32 {
        // Acquire pairs with the Release in `Taken`: tokens of these places have been read.
        self.track.done.places.load(Ordering::Acquire)
    }

    /// Entries that are not known to be done.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> u32 {
        self.posted.wrapping_sub(self.done())
    }

    /// Keeps a token of an entry whose places are free, until the entry is [committed](Self::commit) or it is
    /// [taken back](Self::take_back).
    #[inline(always)]
    pub(crate) fn keep(&mut self, token: T) {
        // The ring was made for as many tokens as its places can have, and places are given back after their tokens, so where
        // the places are free there is room; asserted, for a token that is overwritten is lost.
        let room = self.track.tokens.len() as u32;
        debug_assert!(
            self.kept.wrapping_sub(self.track.done.tokens.load(Ordering::Acquire)) < room,
            "no room for tokens"
        );
        // SAFETY: not posted, so the consumer does not look there.
        unsafe { (*self.track.token(self.kept)).write(token) };
        self.kept = self.kept.wrapping_add(1);
    }

    /// Takes back the last token that was kept and not committed.
    #[inline(always)]
    pub(crate) fn take_back(&mut self) -> Option<T> {
        if !self.has_kept() {
            return None;
        }
        self.kept = self.kept.wrapping_sub(1);
        // SAFETY: from the posted count up to the kept one there are tokens, and the consumer does not look there.
        Some(unsafe { (*self.track.token(self.kept)).assume_init_read() })
    }

    /// Drops the tokens that were kept and not committed.
    #[cold]
    #[inline(never)]
    pub(crate) fn drop_kept(&mut self) {
        while let Some(token) = self.take_back() {
            drop(token);
        }
    }

    /// Writes the note of an entry that is not committed yet, and has the tokens kept last.
    #[inline(always)]
    pub(crate) fn note(&mut self, id: u64, start: u32, end: u32, extra: u32) {
        let note = Note { id, start, end, tokens: self.kept, extra };
        // SAFETY: not posted, so the consumer does not look there.
        unsafe { self.track.note(start).write(note) };
    }

    /// Posts places up to `to`, so many requests, and the tokens that are kept. Comes before the doorbell.
    #[inline(always)]
    pub(crate) fn commit(&mut self, to: u32, requests: u32) {
        (self.posted, self.tokens) = (to, self.kept);
        self.requests += u64::from(requests);
        self.track.posted.tokens.store(self.tokens, Ordering::Relaxed);
        self.track.posted.requests.store(self.requests, Ordering::Relaxed);
        // Release pairs with the Acquire in `Consumer::find`.
        self.track.posted.places.store(to, Ordering::Release);
    }

    /// Whether nothing is posted that is not known to be done.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted == self.done() && !self.has_kept()
    }

    /// Entries have no notes from now on. `false`: some are posted that have.
    pub(crate) fn link(&mut self) -> bool {
        let is_idle = self.is_idle();
        if is_idle {
            // Seen by the consumer with the first that is committed after.
            self.track.linked.store(true, Ordering::Relaxed);
        }
        is_idle
    }

    /// Whether entries have no notes.
    #[inline(always)]
    pub(crate) fn is_linked(&self) -> bool {
        self.track.linked.load(Ordering::Relaxed)
    }

    /// Says that the device has no more to do with any of it.
    pub(crate) fn let_go(&self) {
        self.track.let_go.store(true, Ordering::Release);
    }
}

impl<T> Consumer<T> {
    /// Where the entry begins that the device calls by the low 16 bits of that, if it is posted.
    #[inline(always)]
    fn start(&self, counter: u16) -> Option<u32> {
        let done = self.track.done.places.load(Ordering::Relaxed);
        let ahead = u32::from(counter.wrapping_sub(done as u16));
        // Acquire pairs with the Release in `commit`.
        let posted = self.track.posted.places.load(Ordering::Acquire);
        (ahead < posted.wrapping_sub(done)).then(|| done.wrapping_add(ahead))
    }

    /// The entry that the device calls by the low 16 bits of its start, if one that is posted begins there.
    #[inline(always)]
    pub(crate) fn find(&self, counter: u16) -> Option<Note> {
        let start = self.start(counter)?;
        self.noted(start)
    }

    #[inline(always)]
    fn noted(&self, start: u32) -> Option<Note> {
        // SAFETY: posted, so the producer does not write there until it is done.
        let note = unsafe { *self.track.note(start) };
        (note.start == start).then_some(note)
    }

    /// The same of receives, which may be [linked](Producer::link).
    #[inline(always)]
    pub(crate) fn find_receive(&self, counter: u16) -> Option<Note> {
        let start = self.start(counter)?;
        // After the count was acquired: what is posted behind it was linked before.
        if !self.track.linked.load(Ordering::Relaxed) {
            return self.noted(start);
        }
        let id = start as usize & (self.track.notes.len() - 1);
        let tokens = self.track.done.tokens.load(Ordering::Relaxed);
        Some(Note { id: id as u64, start, end: start.wrapping_add(1), tokens, extra: tokens })
    }

    /// The tokens of all entries up to `note`'s, which is done.
    #[inline(always)]
    pub(crate) fn take(&mut self, note: &Note) -> Taken<'_, T> {
        let next = self.track.done.tokens.load(Ordering::Relaxed);
        Taken { track: &self.track, next, last: note.tokens, end: note.end, entry: note.end }
    }
}

/// Tokens of entries that are done. What is not taken is dropped.
pub(crate) struct Taken<'c, T> {
    track: &'c Track<T>,
    next: u32,
    last: u32,
    end: u32,
    /// Where the entry of the next token begins, or one before it; `end` until somebody asks.
    entry: u32,
}

impl<T> Taken<'_, T> {
    /// How many tokens are left of the entry that the next one is of; 0 when there is none.
    pub(crate) fn left_of_entry(&mut self) -> u32 {
        if self.next == self.last {
            return 0;
        }
        if self.entry == self.end {
            self.entry = self.track.done.places.load(Ordering::Relaxed);
        }
        loop {
            // SAFETY: an entry begins where the places that are done end, and where the one before it does; up to `end` they
            // are posted, and the producer does not write there until they are given back. The last one's count is not
            // reached, so it ends there.
            let note = unsafe { *self.track.note(self.entry) };
            if note.tokens != self.next {
                return note.tokens.wrapping_sub(self.next);
            }
            self.entry = note.end;
        }
    }

    /// How many tokens are left from `from` of the count of all on.
    pub(crate) fn left_from(&self, from: u32) -> u32 {
        let skipped = (from.wrapping_sub(self.next) as i32).max(0) as u32;
        self.last.wrapping_sub(self.next).saturating_sub(skipped)
    }

    /// The next one, with its place in the count of all tokens.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<(u32, T)> {
        if self.next == self.last {
            return None;
        }
        let index = self.next;
        // SAFETY: from `done` up to the note's count there are tokens, for the producer counts them before it posts; each is
        // read once, for the count goes on before anything else can happen.
        let token = unsafe { (*self.track.token(index)).assume_init_read() };
        self.next = index.wrapping_add(1);
        self.track.done.tokens.store(self.next, Ordering::Relaxed);
        Some((index, token))
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        while let Some(token) = self.next() {
            drop(token);
        }
        // Release pairs with the Acquire in `is_free`.
        self.track.done.places.store(self.end, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
