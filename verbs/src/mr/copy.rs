//! Copies in and out of memory that peers reach meanwhile.
//!
//! Atomic accesses of different widths to one place may not race, so each place has one width, chosen by its address alone: words
//! of 8 bytes at multiples of 8 that lie whole inside the memory, and the single bytes before the first and behind the last. A part
//! of a word is read by loading all of it, and written by an exchange that leaves the other bytes what they are.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = 8;

/// Memory of a region: where it begins, and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    base: *mut u8,
    bytes: usize,
}

/// What one access is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    /// Where it begins in the memory.
    at: usize,
    /// 8 or 1.
    width: usize,
    /// Which of its bytes are meant.
    skip: usize,
    count: usize,
}

impl Shared {
    /// # Safety
    /// `bytes` from `base` on stay mapped, readable and writable, as long as this is used; all of the process touch them by this
    /// alone, and nobody has a reference there.
    pub(super) unsafe fn new(base: *mut u8, bytes: usize) -> Self {
        Self { base, bytes }
    }

    /// The words: where the first begins, and where the last ends.
    #[inline(always)]
    fn words(&self) -> Range<usize> {
        let head = (self.base.addr().wrapping_neg() % WORD).min(self.bytes);
        head..head + (self.bytes - head) / WORD * WORD
    }

    /// The access by which the bytes from `at` on are reached, of which `left` are wanted.
    #[inline(always)]
    fn access(&self, words: &Range<usize>, at: usize, left: usize) -> Access {
        if !words.contains(&at) {
            return Access { at, width: 1, skip: 0, count: 1 };
        }
        let skip = (at - words.start) % WORD;
        Access { at: at - skip, width: WORD, skip, count: (WORD - skip).min(left) }
    }

    #[inline(always)]
    fn check(&self, at: usize, bytes: usize) {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{bytes} bytes at {at} are not inside a region of {}", self.bytes);
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `access` and `aligned` name words inside the memory, by whose addresses they are aligned; every access there is of
        // this width, by `new`.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }
    }

    #[inline(always)]
    fn byte(&self, at: usize) -> &AtomicU8 {
        // SAFETY: `access` names bytes inside the memory that are in no word; every access there is of this width, by `new`.
        unsafe { AtomicU8::from_ptr(self.base.add(at)) }
    }

    /// Copies out.
    ///
    /// # Panics
    /// When there are fewer bytes.
    pub(super) fn read(&self, at: usize, target: &mut [u8]) {
        self.check(at, target.len());
        let words = self.words();
        let mut done = 0;
        while done < target.len() {
            let Access { at, width, skip, count } = self.access(&words, at + done, target.len() - done);
            let rest = &mut target[done..];
            if width == 1 {
                rest[0] = self.byte(at).load(Ordering::Relaxed);
            } else {
                let word = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
                match rest.first_chunk_mut::<WORD>() {
                    Some(whole) if count == WORD => *whole = word,
                    _ => rest[..count].copy_from_slice(&word[skip..skip + count]),
                }
            }
            done += count;
        }
    }

    /// Copies in.
    ///
    /// # Panics
    /// When it would not fit.
    pub(super) fn write(&self, at: usize, source: &[u8]) {
        self.check(at, source.len());
        let words = self.words();
        let mut done = 0;
        while done < source.len() {
            let Access { at, width, skip, count } = self.access(&words, at + done, source.len() - done);
            let rest = &source[done..];
            if width == 1 {
                self.byte(at).store(rest[0], Ordering::Relaxed);
            } else {
                match rest.first_chunk::<WORD>() {
                    Some(whole) if count == WORD => {
                        self.word(at).store(u64::from_ne_bytes(*whole), Ordering::Relaxed);
                    }
                    _ => self.exchange(at, skip, &rest[..count]),
                }
            }
            done += count;
        }
    }

    /// Puts bytes into a word. What others put into the rest of it meanwhile stays.
    fn exchange(&self, at: usize, skip: usize, bytes: &[u8]) {
        let word = self.word(at);
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let mut new = old.to_ne_bytes();
            new[skip..skip + bytes.len()].copy_from_slice(bytes);
            let new = u64::from_ne_bytes(new);
            match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// The byte at `at`, and what was written before it.
    #[inline(always)]
    pub(super) fn load8(&self, at: usize) -> u8 {
        self.check(at, 1);
        let Access { at, width, skip, .. } = self.access(&self.words(), at, 1);
        match width {
            1 => self.byte(at).load(Ordering::Acquire),
            _ => self.word(at).load(Ordering::Acquire).to_ne_bytes()[skip],
        }
    }

    /// The word at `at`.
    ///
    /// # Panics
    /// When there is none.
    #[inline(always)]
    pub(super) fn aligned(&self, at: usize) -> &AtomicU64 {
        self.check(at, WORD);
        let access = self.access(&self.words(), at, WORD);
        assert!((access.skip, access.width) == (0, WORD), "8 bytes at {at} are not aligned");
        self.word(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory's bytes, a misalignment in front of them.
    fn shared(room: &mut [u64], head: usize, bytes: usize) -> Shared {
        assert!(head + bytes <= size_of_val(room));
        // SAFETY: inside `room`, which nobody looks into meanwhile.
        unsafe { Shared::new(room.as_mut_ptr().cast::<u8>().add(head), bytes) }
    }

    #[test]
    fn each_place_is_always_reached_by_the_same_width() {
        let mut room = [0_u64; 6];
        for head in 0..8 {
            for bytes in 0..=40 {
                let memory = shared(&mut room, head, bytes);
                let words = memory.words();
                let mut width_of = vec![None; bytes];
                for at in 0..bytes {
                    for len in 1..=bytes - at {
                        let mut done = 0;
                        while done < len {
                            let access = memory.access(&words, at + done, len - done);
                            assert_eq!(access.at + access.skip, at + done, "it begins where it should");
                            assert!(access.skip + access.count <= access.width && access.count > 0);
                            assert!(access.at + access.width <= bytes, "{access:?} of {bytes}");
                            assert!((memory.base.addr() + access.at).is_multiple_of(access.width));
                            for place in &mut width_of[access.at..access.at + access.width] {
                                assert_eq!(*place.get_or_insert(access.width), access.width, "{access:?}");
                            }
                            done += access.count;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn copies_touch_what_they_are_told_to_and_nothing_else() {
        let mut room = [0_u64; 6];
        let source: Vec<u8> = (1..=40).collect();
        for head in 0..8 {
            for at in 0..=40 {
                for len in 0..=40 - at {
                    let memory = shared(&mut room, head, 40);
                    memory.write(0, &[0xee; 40]);
                    memory.write(at, &source[..len]);
                    let mut expected = [0xee; 40];
                    expected[at..at + len].copy_from_slice(&source[..len]);
                    let mut all = [0; 40];
                    memory.read(0, &mut all);
                    assert_eq!(all, expected);
                    let mut part = vec![0; len];
                    memory.read(at, &mut part);
                    assert_eq!(part, source[..len]);
                    assert!((0..40).all(|at| memory.load8(at) == expected[at]));
                }
            }
        }
    }

    #[test]
    fn writers_of_neighbours_in_a_word_do_not_undo_each_other() {
        struct Everywhere(Shared);
        // SAFETY: its accesses are atomic.
        unsafe impl Sync for Everywhere {}
        impl Everywhere {
            fn count(&self, at: usize) {
                for value in 0..=u8::MAX {
                    self.0.write(at, &[value]);
                    assert_eq!(self.0.load8(at), value);
                }
            }
        }
        let mut room = [0_u64; 1];
        let memory = Everywhere(shared(&mut room, 0, 8));
        std::thread::scope(|scope| {
            for at in 0..4 {
                let memory = &memory;
                scope.spawn(move || memory.count(at));
            }
        });
        let mut all = [0; 8];
        memory.0.read(0, &mut all);
        assert_eq!(all, [255, 255, 255, 255, 0, 0, 0, 0]);
    }
}
