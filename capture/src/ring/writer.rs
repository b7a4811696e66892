//! The application's side: lcores put bursts in.

use crossbeam_utils::CachePadded;
use pollux_atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use pollux_eal::region::MemoryError;

use super::memory::{Layout, Memory};
use super::{BLOCK_WORDS, HEAD_WORDS, VOID, blocks, stamp};
use crate::{Frame, Program, order};

/// Most frames of a burst: as many as a word has bits.
pub const BURST_MAX: usize = u64::BITS as usize;

/// Puts frames into a ring. All lcores share it.
#[derive(Debug)]
pub struct Writer {
    memory: Memory,
    layout: Layout,
    /// Blocks reserved so far. The reader cannot change it.
    head: CachePadded<AtomicU64>,
}

/// What a capture wants of an interface.
#[derive(Debug)]
pub struct Interface {
    /// Its number in the capture.
    pub number: u16,
    /// Longest part of a frame that is kept.
    pub snaplen: u32,
    /// Which frames are kept; all without one.
    pub filter: Option<Program>,
}

/// Where and when a burst passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When, in ticks of the application's clock.
    pub ticks: u64,
    /// Through which queue.
    pub queue: u16,
    /// Sent rather than received.
    pub sent: bool,
}

impl Writer {
    /// A writer into memory of its own making.
    ///
    /// # Errors
    /// [`MemoryError::Map`] when the kernel refuses.
    #[cfg(not(loom))]
    pub fn new(layout: Layout) -> Result<Self, MemoryError> {
        Ok(Self::over(Memory::new("capture", layout.words())?, layout))
    }

    pub(crate) fn over(memory: Memory, layout: Layout) -> Self {
        Self { memory, layout, head: CachePadded::new(AtomicU64::new(0)) }
    }

    /// The file of the memory, for the reader's process.
    #[cfg(not(loom))]
    #[must_use]
    pub fn file(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.memory.file()
    }

    /// Filters a burst of up to 64 frames and writes those that are to be kept, from the first on as many as there is room for. The reader
    /// sees them with [`Reserved::commit`].
    ///
    /// Hot while somebody captures: the filter for each frame, one compare-and-swap, a copy of what is kept. Neither waits nor allocates.
    pub fn reserve<F: Frame>(
        &self,
        interface: &Interface,
        passage: Passage,
        frames: impl Iterator<Item = F> + Clone,
    ) -> Reserved<'_> {
        let mut reserved = Reserved {
            writer: self,
            interface: interface.number,
            start: 0,
            accepted: 0,
            written: 0,
            blocks: [0; BURST_MAX],
        };
        let mut kept = [0; BURST_MAX];
        let mut needed = 0;
        for (at, frame) in frames.clone().take(BURST_MAX).enumerate() {
            let limit = interface.filter.as_ref().map_or(u32::MAX, |filter| filter.run(&frame));
            if limit == 0 {
                continue;
            }
            let bytes = frame.bytes().min(limit.min(interface.snaplen) as usize);
            kept[at] = bytes;
            // At most 4097: a snap length is 256 KiB at most.
            reserved.blocks[at] = blocks(bytes) as u16;
            needed += blocks(bytes) as u64;
            reserved.accepted |= 1 << at;
        }
        if needed == 0 {
            return reserved;
        }
        let (start, room) = self.take(needed, &reserved.blocks);
        reserved.start = start;
        let (mut position, mut left) = (start, room);
        for (at, frame) in frames.take(BURST_MAX).enumerate() {
            let own = u64::from(reserved.blocks[at]);
            if own > left {
                break;
            }
            if own > 0 {
                self.put(position, interface.number, passage, &frame, kept[at]);
                reserved.written |= 1 << at;
                position = position.wrapping_add(own);
                left -= own;
            }
        }
        reserved
    }

    /// Takes room for records of so many blocks each, for all or, from the first on, for as many as fit: where, and blocks.
    fn take(&self, needed: u64, records: &[u16]) -> (u64, u64) {
        let words = self.memory.words();
        loop {
            // The reader's position first: the head is never behind it then, if it tells the truth.
            let tail = self.layout.tail(words).load(order::tail_read());
            let head = self.head.load(Ordering::Relaxed);
            // A position that cannot be is no room.
            let free = (self.layout.blocks() as u64).saturating_sub(head.wrapping_sub(tail));
            let room = if needed <= free { needed } else { fitting(records, free) };
            let next = head.wrapping_add(room);
            if room == 0
                || self.head.compare_exchange_weak(head, next, order::room_take(), Ordering::Relaxed).is_ok()
            {
                return (head, room);
            }
        }
    }

    /// Gives back room from `cut` on that was taken up to `end` and not stamped; false when somebody has taken room behind it.
    ///
    /// The head is never before the end of a reservation that somebody has, or has stamped: whoever finds it at the own end is the last, and
    /// moves it to no earlier than the own beginning. So no position is stamped that another has, and the reader, which stops before the
    /// first one without a stamp, is not beyond the head.
    fn give_back(&self, cut: u64, end: u64) -> bool {
        self.head.compare_exchange(end, cut, order::room_back(), Ordering::Relaxed).is_ok()
    }

    fn put(&self, position: u64, interface: u16, passage: Passage, frame: &impl Frame, bytes: usize) {
        let data = self.layout.data(self.memory.words());
        let mut pen = Pen { data, at: self.layout.slot(position) * BLOCK_WORDS, half: 0, held: 0 };
        let wire = u32::try_from(frame.bytes()).unwrap_or(u32::MAX);
        let place = u64::from(interface) | u64::from(passage.queue) << 16 | u64::from(passage.sent) << 32;
        let head: [u64; HEAD_WORDS] = [passage.ticks, u64::from(wire) | (bytes as u64) << 32, place];
        head.into_iter().for_each(|word| pen.word(word));
        let mut left = bytes;
        for piece in frame.pieces() {
            let count = piece.len().min(left);
            pen.bytes(&piece[..count]);
            left -= count;
            if left == 0 {
                break;
            }
        }
        pen.finish();
    }
}

/// The blocks of as many records, from the first on, as fit into `free`.
#[cold]
fn fitting(records: &[u16], free: u64) -> u64 {
    let ends = records.iter().scan(0, |end, record| {
        *end += u64::from(*record);
        Some(*end)
    });
    ends.take_while(|end| *end <= free).last().unwrap_or(0)
}

/// Writes bytes as words, on from the ring's end at its beginning.
struct Pen<'a> {
    data: &'a [AtomicU64],
    at: usize,
    /// Bytes that do not make a word yet, and how many.
    half: u64,
    held: u32,
}

impl Pen<'_> {
    #[inline]
    fn word(&mut self, word: u64) {
        self.data[self.at].store(word, Ordering::Relaxed);
        self.at += 1;
        if self.at == self.data.len() {
            self.at = 0;
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        if self.held == 0 {
            // All at once up to the ring's end, then the others.
            let run = words.len().min(self.data.len() - self.at);
            for (place, word) in self.data[self.at..].iter().zip(&words[..run]) {
                place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
            }
            self.at = if self.at + run == self.data.len() { 0 } else { self.at + run };
            words[run..].iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        } else {
            for word in words {
                let word = u64::from_le_bytes(*word);
                self.word(self.half | word << (8 * self.held));
                self.half = word >> (64 - 8 * self.held);
            }
        }
        for byte in rest {
            self.half |= u64::from(*byte) << (8 * self.held);
            self.held += 1;
            if self.held == 8 {
                self.word(self.half);
                (self.half, self.held) = (0, 0);
            }
        }
    }

    fn finish(mut self) {
        if self.held > 0 {
            self.word(self.half);
        }
    }
}

/// The records of a burst, written and not to be seen yet. Dropped without [`commit`](Self::commit), they are passed over by the
/// reader.
#[derive(Debug)]
pub struct Reserved<'a> {
    writer: &'a Writer,
    interface: u16,
    start: u64,
    /// Frames of the burst, a bit each: the filter let them pass.
    accepted: u64,
    /// And there was room.
    written: u64,
    /// Of each frame's record.
    blocks: [u16; BURST_MAX],
}

impl Reserved<'_> {
    /// Shows the reader the first `count` frames of the burst, and counts them. The others did not pass after all.
    pub fn commit(mut self, count: usize) {
        let all = if count >= BURST_MAX { u64::MAX } else { (1 << count) - 1 };
        self.publish(all);
        let (accepted, written) = (self.accepted & all, self.written & all);
        // It goes without publishing again.
        self.written = 0;
        let dropped = accepted & !written;
        let filtered = count.min(BURST_MAX) as u32 - accepted.count_ones();
        let words = self.writer.memory.words();
        let counters = self.writer.layout.counts(words, self.interface.into());
        for (counter, count) in counters.iter().zip([written.count_ones(), filtered, dropped.count_ones()]) {
            if count > 0 {
                counter.fetch_add(count.into(), Ordering::Relaxed);
            }
        }
    }

    /// Stamps the records that were written. The room of those outside of `passed`, which are the last ones, is given back; else they
    /// are stamped as void.
    fn publish(&self, passed: u64) {
        let words = self.writer.memory.words();
        let (cut, end) = (self.end_of(self.written & passed), self.end_of(self.written));
        let given_back = cut != end && self.writer.give_back(cut, end);
        let (mut position, mut left) =
            (self.start, if given_back { self.written & passed } else { self.written });
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let void = if passed >> at & 1 == 0 { VOID } else { 0 };
            let place = self.writer.layout.stamp(words, position);
            place.store(stamp(position) | void, order::stamp_write());
            position = position.wrapping_add(self.blocks[at].into());
        }
    }

    /// Where the records of these frames end, which are the first ones that were written.
    fn end_of(&self, mut frames: u64) -> u64 {
        let mut position = self.start;
        while frames != 0 {
            position = position.wrapping_add(self.blocks[frames.trailing_zeros() as usize].into());
            frames &= frames - 1;
        }
        position
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.publish(0);
    }
}
