//! The capture's side: takes records out.

use pollux_atomic::{AtomicU64, Ordering};

use super::memory::{Layout, Memory};
use super::{BLOCK_WORDS, Counts, HEAD_WORDS, VOID, blocks, stamp};
use crate::{Passage, SNAPLEN_MAX, order};

/// Takes frames out of a ring that another process fills.
#[derive(Debug)]
pub struct Reader {
    memory: Memory,
    layout: Layout,
    position: u64,
}

/// A record that cannot be: the application's memory was damaged. Nothing more can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is damaged: a record at block {position} claims {bytes} bytes")]
pub struct Damaged {
    /// Where.
    pub position: u64,
    /// What it claims.
    pub bytes: u64,
}

/// What stands before a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The interface, as numbered in the request.
    pub interface: u16,
    /// When and where it passed.
    pub passage: Passage,
    /// How long the frame was.
    pub wire_bytes: u32,
}

fn copy(places: &mut [[u8; 8]], words: &[AtomicU64]) {
    for (place, word) in places.iter_mut().zip(words) {
        *place = word.load(Ordering::Relaxed).to_le_bytes();
    }
}

impl Reader {
    /// A reader of the memory behind a file that the application sent.
    ///
    /// # Errors
    /// The file is too short or not sealed, or the kernel refuses.
    #[cfg(not(loom))]
    pub fn of_file(file: std::os::fd::OwnedFd, layout: Layout) -> std::io::Result<Self> {
        Ok(Self::over(Memory::of_file(file, layout.words())?, layout))
    }

    pub(crate) fn over(memory: Memory, layout: Layout) -> Self {
        Self { memory, layout, position: 0 }
    }

    /// The next frame, whose bytes replace those in `frame`; none when there is none yet. Its room is given back by
    /// [`release`](Self::release).
    ///
    /// # Errors
    /// [`Damaged`].
    pub fn next(&mut self, frame: &mut Vec<u8>) -> Result<Option<Record>, Damaged> {
        loop {
            let found = self.layout.stamp(self.memory.words(), self.position).load(order::stamp_read());
            if found & !VOID != stamp(self.position) {
                return Ok(None);
            }
            let record = self.read((found & VOID == 0).then_some(&mut *frame))?;
            if found & VOID == 0 {
                return Ok(Some(record));
            }
        }
    }

    /// Steps over the next record; `frame` is for its frame.
    fn read(&mut self, frame: Option<&mut Vec<u8>>) -> Result<Record, Damaged> {
        let data = self.layout.data(self.memory.words());
        let start = self.layout.slot(self.position) * BLOCK_WORDS;
        // A block does not lie across the ring's end.
        let [ticks, lengths, place] = [0, 1, 2].map(|at| data[start + at].load(Ordering::Relaxed));
        let bytes = lengths >> 32;
        let own = blocks(bytes as usize);
        if bytes > SNAPLEN_MAX.into() || own > self.layout.blocks() {
            return Err(Damaged { position: self.position, bytes });
        }
        if let Some(frame) = frame {
            let bytes = bytes as usize;
            // What stood there is written over.
            frame.resize(bytes.next_multiple_of(8), 0);
            let (places, _) = frame.as_chunks_mut::<8>();
            // A block is longer than its head, so that a frame begins before the ring's end; it may go on at the ring's beginning.
            let begin = start + HEAD_WORDS;
            let (first, rest) = places.split_at_mut(places.len().min(data.len() - begin));
            copy(first, &data[begin..]);
            copy(rest, data);
            frame.truncate(bytes);
        }
        self.position = self.position.wrapping_add(own as u64);
        let passage = Passage { ticks, queue: (place >> 16) as u16, sent: place >> 32 & 1 == 1 };
        Ok(Record { interface: place as u16, passage, wire_bytes: lengths as u32 })
    }

    /// Gives back the room of all frames that were read.
    pub fn release(&mut self) {
        self.layout.tail(self.memory.words()).store(self.position, order::tail_write());
    }

    /// Passes over a record that its writer, which is dead, did not finish; false if there is nothing behind it.
    pub fn skip_unfinished(&mut self) -> bool {
        let words = self.memory.words();
        let mut ahead = (1..self.layout.blocks() as u64).map(|over| self.position.wrapping_add(over));
        let whole = |position: &u64| {
            self.layout.stamp(words, *position).load(order::stamp_read()) & !VOID == stamp(*position)
        };
        let next = ahead.find(whole);
        self.position = next.unwrap_or(self.position);
        next.is_some()
    }

    /// What the application counted of an interface.
    #[must_use]
    pub fn counts(&self, interface: usize) -> Counts {
        let counters = self.layout.counts(self.memory.words(), interface);
        let [captured, filtered, dropped] = [0, 1, 2].map(|at: usize| counters[at].load(Ordering::Relaxed));
        Counts { captured, filtered, dropped }
    }
}
