//! BlueFlame over a bus that has no write combining.
//!
//! A processor collects the stores to a BlueFlame buffer and sends them as one; a guest's arrive one by one, 8 bytes each, and
//! nothing in the first says whether it is a doorbell or the head of an entry. So the first entry in a buffer is taken for a
//! doorbell and carried out from its copy in memory, as a card does when the processor's buffer was evicted early. The store behind
//! it tells that software writes entries there; from then on a store to the buffer's head waits for the rest.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::wqe::{self, BLOCK_BYTES};

/// How long a head waits: many times what a guest needs from one store to the next.
const PATIENCE: Duration = Duration::from_micros(50);

/// Collects stores to the UAR pages of a function.
#[derive(Debug, Default)]
pub(super) struct WriteCombining(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Buffers, by page and offset, that hold entries.
    used: BTreeSet<(u32, usize)>,
    /// Where the store behind a doorbell would go on.
    next: Option<(u32, usize)>,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    page: u32,
    offset: usize,
    bytes: Vec<u8>,
    /// Length of the entry, in whole blocks.
    whole: usize,
    since: Instant,
}

/// Stores to a page, to be carried out.
pub(super) type Stores = Vec<(u32, usize, Vec<u8>)>;

impl WriteCombining {
    /// A store; what it and those before it come to.
    pub(super) fn store(&self, page: u32, offset: usize, bytes: &[u8]) -> Stores {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = Stores::new();
        if let Some(pending) =
            state.pending.as_mut().filter(|it| it.page == page && it.offset + it.bytes.len() == offset)
        {
            pending.bytes.extend_from_slice(bytes);
            if pending.bytes.len() >= pending.whole {
                out.extend(state.take());
            }
            return out;
        }
        out.extend(state.take());
        let buffer = (page, offset - offset % uar::BLUE_FLAME_BYTES);
        let is_head = offset >= uar::BLUE_FLAME && offset == buffer.1 && bytes.len() == 8;
        if state.next.take() == Some((page, offset)) {
            // The entry was carried out already.
            state.used.insert(buffer);
            let end = offset + bytes.len();
            state.next = (end - buffer.1 < uar::BLUE_FLAME_BYTES).then_some((page, end));
        } else if is_head && state.used.contains(&buffer) {
            let whole = wqe::blocks(usize::from(bytes[7] & 0x3f)).max(1) * BLOCK_BYTES;
            state.pending =
                Some(Pending { page, offset, bytes: bytes.to_vec(), whole, since: Instant::now() });
        } else {
            state.next = is_head.then_some((page, offset + bytes.len()));
            out.push((page, offset, bytes.to_vec()));
        }
        out
    }

    /// What waits, if it waited long enough or `all` is wanted.
    pub(super) fn waited(&self, all: bool) -> Stores {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = state.pending.as_ref().is_some_and(|pending| all || pending.since.elapsed() >= PATIENCE);
        if over { state.take().into_iter().collect() } else { Stores::new() }
    }

    /// Whether something waits.
    pub(super) fn is_pending(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pending.is_some()
    }

    /// Forgets everything.
    pub(super) fn reset(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }
}

impl State {
    /// The pending store: an entry when all of it came, a doorbell otherwise.
    fn take(&mut self) -> Option<(u32, usize, Vec<u8>)> {
        let mut pending = self.pending.take()?;
        pending.bytes.truncate(if pending.bytes.len() < pending.whole { 8 } else { pending.whole });
        Some((pending.page, pending.offset, pending.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_buffer_is_learned_and_then_collected() {
        let combining = WriteCombining::default();
        assert_eq!(entry(&combining, 0x800, 1), [(300, 0x800, head(4).to_vec())]);
        for blocks in 1..=4 {
            let stores = entry(&combining, 0x800, blocks);
            assert_eq!(stores.len(), 1);
            assert_eq!((stores[0].1, stores[0].2.len()), (0x800, blocks * 64));
            assert_eq!(stores[0].2[8..16], [1; 8]);
        }
        // The other buffer of the pair is its own.
        assert_eq!(entry(&combining, 0x900, 1)[0].2.len(), 8);
        combining.reset();
        assert_eq!(entry(&combining, 0x800, 1)[0].2.len(), 8);
    }

    #[test]
    fn a_doorbell_in_a_buffer_of_entries_waits_for_no_more_than_it_must() {
        let combining = WriteCombining::default();
        entry(&combining, 0x800, 1);
        assert!(combining.store(300, 0x800, &head(4)).is_empty());
        assert!(combining.is_pending());
        // Something else comes first.
        let arm = combining.store(300, 0x20, &[1; 8]);
        assert_eq!(arm, [(300, 0x800, head(4).to_vec()), (300, 0x20, vec![1; 8])]);
        assert!(combining.store(300, 0x800, &head(4)).is_empty());
        assert_eq!(combining.waited(true).len(), 1);
        assert!(combining.store(300, 0x800, &head(4)).is_empty());
        std::thread::sleep(PATIENCE * 2);
        assert_eq!(combining.waited(false), [(300, 0x800, head(4).to_vec())]);
        assert!(!combining.is_pending());
        // Cut off in the middle: a doorbell.
        combining.store(300, 0x800, &head(4));
        combining.store(300, 0x808, &[1; 8]);
        assert_eq!(combining.waited(true), [(300, 0x800, head(4).to_vec())]);
    }

    #[test]
    fn plain_doorbells_pass() {
        let combining = WriteCombining::default();
        for _ in 0..10 {
            assert_eq!(combining.store(300, 0xa00, &head(3)).len(), 1);
            assert_eq!(combining.store(300, 0x20, &[1; 8]).len(), 1);
            assert_eq!(combining.store(300, 0x40, &[1; 4]).len(), 1);
        }
    }
}
