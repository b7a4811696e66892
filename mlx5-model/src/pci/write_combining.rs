//! BlueFlame over a bus that has no write combining.
//!
//! A processor collects the stores to a BlueFlame buffer and sends them as one; a guest's arrive one by one, 8 bytes each, and
//! nothing in the first says whether it is a doorbell or the head of an entry. What comes behind it does: the rest of the entry
//! goes on where the head ended, at once. So a store to a buffer's head waits for that, once long enough for any guest, and
//! what came of it is what the buffer is used for: behind doorbells nothing waits any more, where entries come each head waits
//! a little. A buffer that changes its use is noticed: the first entry in it is carried out from its copy in memory, as a card
//! does when the processor's buffer was evicted early.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::wqe::{self, BLOCK_BYTES};

use crate::time::Clock;

/// How long the first head in a buffer waits. A guess, not measured: it should be longer than a guest's processor that shares
/// one of ours is away. Too short, and an entry is carried out from its copy in memory; too long, and the first doorbell of
/// a buffer, once, is late by this.
const FIRST_PATIENCE: Duration = Duration::from_millis(2);
/// How long the head of what may be an entry waits. A guess too: it should be many times what a guest needs from one store to
/// the next. Where a doorbell comes to a buffer of entries, it is late by this.
const PATIENCE: Duration = Duration::from_micros(50);

/// Collects stores to the UAR pages of a function.
#[derive(Debug)]
pub(super) struct WriteCombining {
    /// The device's, looked at only when a head comes and while it waits.
    clock: Clock,
    /// Bytes of a buffer.
    buffer_bytes: usize,
    state: Mutex<State>,
}

/// What a buffer is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Doorbells,
    Entries,
}

/// A buffer: page, and offset in it.
type Buffer = (u32, usize);

#[derive(Debug, Default)]
struct State {
    buffer_bytes: usize,
    /// Of the buffers that were stored to.
    uses: BTreeMap<Buffer, Use>,
    /// By page, where the store behind a doorbell would go on.
    next: BTreeMap<u32, usize>,
    /// By page: processors store to pages of their own at the same time.
    pending: BTreeMap<u32, Pending>,
}

#[derive(Debug)]
struct Pending {
    offset: usize,
    bytes: Vec<u8>,
    /// Length of the entry, in whole blocks.
    whole: usize,
    /// By the clock.
    since: Duration,
    patience: Duration,
}

/// Stores to a page, to be carried out.
pub(super) type Stores = Vec<(u32, usize, Vec<u8>)>;

impl WriteCombining {
    /// Of a card whose BlueFlame buffers have so many bytes.
    pub(super) fn new(clock: Clock, buffer_bytes: usize) -> Self {
        Self { clock, buffer_bytes, state: Mutex::new(State::new(buffer_bytes)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A store; what it and those before it come to.
    pub(super) fn store(&self, page: u32, offset: usize, bytes: &[u8]) -> Stores {
        let mut state = self.state();
        let mut out = Stores::new();
        if let Some(pending) =
            state.pending.get_mut(&page).filter(|pending| pending.offset + pending.bytes.len() == offset)
        {
            pending.bytes.extend_from_slice(bytes);
            if pending.bytes.len() >= pending.whole {
                out.extend(state.take(page));
            }
            return out;
        }
        out.extend(state.take(page));
        let buffer = state.buffer(page, offset);
        let is_head = offset >= uar::BLUE_FLAME && offset == buffer.1 && bytes.len() == 8;
        let known = state.uses.get(&buffer).copied();
        if state.next.remove(&page) == Some(offset) {
            // The entry was carried out already.
            state.uses.insert(buffer, Use::Entries);
            state.goes_on(page, offset + bytes.len());
        } else if is_head && known != Some(Use::Doorbells) {
            let whole = wqe::blocks(usize::from(bytes[7] & 0x3f)).max(1) * BLOCK_BYTES;
            let patience = if known.is_some() { PATIENCE } else { FIRST_PATIENCE };
            let bytes = bytes.to_vec();
            let since = self.clock.now();
            state.pending.insert(page, Pending { offset, bytes, whole, since, patience });
        } else {
            if is_head {
                state.goes_on(page, offset + bytes.len());
            }
            out.push((page, offset, bytes.to_vec()));
        }
        out
    }

    /// What waits, if it waited long enough or `all` is wanted.
    pub(super) fn waited(&self, all: bool) -> Stores {
        let mut state = self.state();
        let over =
            |pending: &Pending| all || self.clock.now().saturating_sub(pending.since) >= pending.patience;
        let pages: Vec<u32> =
            state.pending.iter().filter(|(_, pending)| over(pending)).map(|(page, _)| *page).collect();
        pages.into_iter().filter_map(|page| state.take(page)).collect()
    }

    /// Whether something waits.
    pub(super) fn is_pending(&self) -> bool {
        !self.state().pending.is_empty()
    }

    /// Forgets everything.
    pub(super) fn reset(&self) {
        *self.state() = State::new(self.buffer_bytes);
    }
}

impl State {
    fn new(buffer_bytes: usize) -> Self {
        Self { buffer_bytes, ..Self::default() }
    }

    fn buffer(&self, page: u32, offset: usize) -> Buffer {
        (page, offset - offset % self.buffer_bytes)
    }

    /// A store that goes on at `end` belongs to what was stored before.
    fn goes_on(&mut self, page: u32, end: usize) {
        if end < self.buffer(page, end - 1).1 + self.buffer_bytes {
            self.next.insert(page, end);
        }
    }

    /// The pending store: an entry when all of it came, a doorbell otherwise.
    fn take(&mut self, page: u32) -> Option<(u32, usize, Vec<u8>)> {
        let mut pending = self.pending.remove(&page)?;
        let came = pending.bytes.len();
        let entry = came >= pending.whole;
        let buffer = self.buffer(page, pending.offset);
        let used = if came > 8 { Use::Entries } else { Use::Doorbells };
        // A buffer that had entries may have more of them, whatever came last.
        if self.uses.get(&buffer) != Some(&Use::Entries) {
            self.uses.insert(buffer, used);
        }
        if !entry {
            self.goes_on(page, pending.offset + came);
        }
        pending.bytes.truncate(if entry { pending.whole } else { 8 });
        Some((page, pending.offset, pending.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::STEP;

    /// By a clock that the test moves.
    fn stepped() -> (WriteCombining, Clock) {
        let clock = Clock::stepped();
        (WriteCombining::new(clock.clone(), uar::BLUE_FLAME_BYTES), clock)
    }

    /// The head of an entry of `segments` segments of 16 bytes.
    fn head(segments: u8) -> [u8; 8] {
        [0, 0, 7, 10, 0, 16, 0, segments]
    }

    fn entry(combining: &WriteCombining, at: usize, blocks: usize) -> Stores {
        let mut out = combining.store(300, at, &head(blocks as u8 * 4));
        for index in 1..blocks * 8 {
            out.extend(combining.store(300, at + index * 8, &[index as u8; 8]));
        }
        out
    }

    #[test]
    fn every_entry_is_collected_from_the_first_on() {
        let (combining, _) = stepped();
        for (round, blocks) in [1, 1, 2, 3, 4].into_iter().enumerate() {
            for at in [0x800, 0x900] {
                let stores = entry(&combining, at, blocks);
                assert_eq!(stores.len(), 1, "round {round}");
                assert_eq!((stores[0].1, stores[0].2.len()), (at, blocks * 64));
                assert_eq!(
                    (&stores[0].2[..8], &stores[0].2[8..16]),
                    (&head(blocks as u8 * 4)[..], &[1; 8][..])
                );
            }
        }
    }

    #[test]
    fn a_doorbell_in_a_buffer_of_entries_waits_for_no_more_than_it_must() {
        let (combining, clock) = stepped();
        entry(&combining, 0x800, 1);
        assert!(combining.store(300, 0x800, &head(4)).is_empty());
        assert!(combining.is_pending());
        // Something else comes first.
        let arm = combining.store(300, 0x20, &[1; 8]);
        assert_eq!(arm, [(300, 0x800, head(4).to_vec()), (300, 0x20, vec![1; 8])]);
        assert!(combining.store(300, 0x800, &head(4)).is_empty());
        assert_eq!(combining.waited(true).len(), 1);
        assert!(combining.store(300, 0x800, &head(4)).is_empty());
        clock.advance(PATIENCE - STEP);
        assert!(combining.waited(false).is_empty(), "not yet");
        clock.advance(STEP);
        assert_eq!(combining.waited(false), [(300, 0x800, head(4).to_vec())]);
        assert!(!combining.is_pending());
        // Cut off in the middle: a doorbell, and what comes of the rest is nothing.
        combining.store(300, 0x800, &head(4));
        combining.store(300, 0x808, &[1; 8]);
        assert_eq!(combining.waited(true), [(300, 0x800, head(4).to_vec())]);
        assert!(combining.store(300, 0x810, &[2; 8]).is_empty());
    }

    #[test]
    fn buffers_are_as_long_as_the_cards() {
        for bytes in [64, 128, 512] {
            let combining = WriteCombining::new(Clock::stepped(), bytes);
            // A doorbell right behind a whole buffer is in the next one: it belongs to no entry.
            for at in [0x800, 0x800 + bytes, 0x800 + 2 * bytes] {
                assert!(
                    combining.store(300, at, &head(4)).is_empty(),
                    "buffer {at:#x} of {bytes}: a head waits"
                );
                assert_eq!(
                    combining.waited(true),
                    [(300, at, head(4).to_vec())],
                    "buffer {at:#x} of {bytes}"
                );
                assert_eq!(
                    combining.store(300, at, &head(4)).len(),
                    1,
                    "buffer {at:#x} of {bytes}: doorbells"
                );
            }
        }
    }

    #[test]
    fn processors_do_not_disturb_each_other() {
        let (combining, _) = stepped();
        for part in 0..8 {
            for page in [300, 301] {
                let bytes = if part == 0 { head(4) } else { [part as u8; 8] };
                let stores = combining.store(page, 0x800 + part * 8, &bytes);
                assert_eq!(stores.len(), usize::from(part == 7), "page {page}, part {part}");
                assert!(stores.iter().all(|(at, _, bytes)| *at == page && bytes.len() == 64));
            }
            assert_eq!(combining.store(302, 0x20, &[1; 8]).len(), 1);
        }
    }

    #[test]
    fn doorbells_wait_once() {
        let (combining, clock) = stepped();
        assert!(combining.store(300, 0xa00, &head(3)).is_empty());
        clock.advance(FIRST_PATIENCE - STEP);
        assert!(combining.waited(false).is_empty(), "not yet");
        clock.advance(STEP);
        assert_eq!(combining.waited(false), [(300, 0xa00, head(3).to_vec())]);
        for _ in 0..10 {
            assert_eq!(combining.store(300, 0xa00, &head(3)).len(), 1);
            assert_eq!(combining.store(300, 0x20, &[1; 8]).len(), 1);
            assert_eq!(combining.store(300, 0x40, &[1; 4]).len(), 1);
        }
        // It is used for entries now: the first is carried out from memory, the others from the bus.
        assert_eq!(entry(&combining, 0xa00, 1), [(300, 0xa00, head(4).to_vec())]);
        assert_eq!(entry(&combining, 0xa00, 1)[0].2.len(), 64);
        combining.reset();
        assert!(combining.store(300, 0xa00, &head(3)).is_empty(), "a function that was reset knows nothing");
    }
}
