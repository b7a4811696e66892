//! The four rings: entries of one or two words between a count that the kernel moves and a count that we move.
//!
//! Counts run free and wrap at 2^32; the size is a power of two. Ours is kept in the ring's owner and only ever written to the shared word;
//! the kernel's is read and held against the size. So no index leaves the ring, whatever the kernel's word says.
#![expect(unsafe_code, reason = "memory shared with the kernel")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Bit of a ring's flags: the kernel sleeps and wants a call (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// A mapped ring whose entries have `WORDS` words.
#[derive(Debug)]
pub(super) struct Ring<const WORDS: usize> {
    // Keeps the memory that the pointers below point into.
    _memory: MmapRaw,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<AtomicU64>,
    size: u32,
}

// SAFETY: the pointers point into the mapping that the value owns, and everything there is accessed atomically.
unsafe impl<const WORDS: usize> Send for Ring<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for Ring<WORDS> {}

impl<const WORDS: usize> Ring<WORDS> {
    /// The ring over `memory`, which begins page-aligned. What does not lie inside of it is refused.
    fn over(memory: MmapRaw, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let bytes = memory.len();
        let inside = |offset: u64, length: usize, align: usize| {
            let offset = usize::try_from(offset).ok()?;
            let fits = offset.checked_add(length).is_some_and(|end| end <= bytes);
            if !fits || !offset.is_multiple_of(align) {
                return None;
            }
            // SAFETY: `offset` is inside the mapping.
            NonNull::new(unsafe { memory.as_mut_ptr().add(offset) })
        };
        let outside = || io::Error::from_raw_os_error(libc::EPROTO);
        if !size.is_power_of_two() {
            return Err(outside());
        }
        let word = |offset| inside(offset, 4, 4).map(NonNull::cast);
        let entries = inside(offsets.desc, size as usize * WORDS * 8, 8).ok_or_else(outside)?.cast();
        Ok(Self {
            producer: word(offsets.producer).ok_or_else(outside)?,
            consumer: word(offsets.consumer).ok_or_else(outside)?,
            flags: word(offsets.flags).ok_or_else(outside)?,
            entries,
            size,
            _memory: memory,
        })
    }

    /// Bytes of its mapping.
    fn bytes(offsets: &libc::xdp_ring_offset, size: u32) -> usize {
        usize::try_from(offsets.desc).unwrap_or(usize::MAX).saturating_add(size as usize * WORDS * 8)
    }

    /// Maps a ring of a socket, which stands at `page` of its file.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let memory =
            MmapOptions::new().offset(page).len(Self::bytes(offsets, size)).populate().map_raw(&fd)?;
        Self::over(memory, offsets, size)
    }

    fn word(at: NonNull<AtomicU32>) -> &'static AtomicU32 {
        // SAFETY: inside the mapping and aligned (`over`); callers do not keep it beyond the borrow of their ring.
        unsafe { &*at.as_ptr() }
    }

    fn entry(&self, count: u32, word: usize) -> &AtomicU64 {
        debug_assert!(word < WORDS);
        let slot = (count & (self.size - 1)) as usize;
        // SAFETY: `slot < size` and `word < WORDS`; so many words lie in the mapping, aligned (`over`).
        unsafe { &*self.entries.as_ptr().add(slot * WORDS + word) }
    }

    fn needs_wakeup(&self) -> bool {
        Self::word(self.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// A ring that the kernel fills.
#[derive(Debug)]
pub(super) struct Consumer<const WORDS: usize> {
    ring: Ring<WORDS>,
    /// Entries taken so far.
    head: u32,
    /// Entries there are, as last seen.
    seen: u32,
}

impl<const WORDS: usize> From<Ring<WORDS>> for Consumer<WORDS> {
    fn from(ring: Ring<WORDS>) -> Self {
        Self { ring, head: 0, seen: 0 }
    }
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// Entries that wait, as the kernel's count says now; never more than the ring has.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        // Acquire pairs with the kernel's store-release: the entries, and the frames they speak of, are there.
        let there = Ring::<WORDS>::word(self.ring.producer).load(Ordering::Acquire);
        there.wrapping_sub(self.head).min(self.ring.size)
    }

    /// Takes the next entry. Cost when there is none: one load.
    #[inline]
    pub(super) fn next(&mut self) -> Option<[u64; WORDS]> {
        if self.head == self.seen {
            self.seen = self.head.wrapping_add(self.waiting());
            if self.head == self.seen {
                return None;
            }
        }
        let entry = std::array::from_fn(|word| self.ring.entry(self.head, word).load(Ordering::Relaxed));
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all entries that were taken back.
    #[inline]
    pub(super) fn release(&mut self) {
        // Release: the entries are read.
        Ring::<WORDS>::word(self.ring.consumer).store(self.head, Ordering::Release);
    }

    pub(super) fn size(&self) -> u32 {
        self.ring.size
    }
}

/// A ring that we fill.
#[derive(Debug)]
pub(super) struct Producer<const WORDS: usize> {
    ring: Ring<WORDS>,
    /// Entries written so far.
    tail: u32,
    /// Entries that the kernel had taken when it was last looked at.
    taken: u32,
}

impl<const WORDS: usize> From<Ring<WORDS>> for Producer<WORDS> {
    fn from(ring: Ring<WORDS>) -> Self {
        Self { ring, tail: 0, taken: 0 }
    }
}

impl<const WORDS: usize> Producer<WORDS> {
    /// Entries that the kernel has not taken; never more than the ring has.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        // Acquire pairs with the kernel's store-release: it has read the entries whose places we write again.
        let taken = Ring::<WORDS>::word(self.ring.consumer).load(Ordering::Acquire);
        self.tail.wrapping_sub(taken).min(self.ring.size)
    }

    /// Whether `count` more entries fit. Looks at the kernel's count only when they do not by what is known.
    #[inline]
    pub(super) fn has_room(&mut self, count: u32) -> bool {
        if self.ring.size - self.tail.wrapping_sub(self.taken) < count {
            self.taken = self.tail.wrapping_sub(self.pending());
        }
        self.ring.size - self.tail.wrapping_sub(self.taken) >= count
    }

    /// Writes an entry, which the kernel sees with [`publish`](Self::publish).
    ///
    /// # Panics
    /// When there is no room.
    #[inline]
    pub(super) fn push(&mut self, entry: [u64; WORDS]) {
        assert!(self.has_room(1), "the caller has looked for room");
        for (word, value) in entry.into_iter().enumerate() {
            self.ring.entry(self.tail, word).store(value, Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    pub(super) fn publish(&mut self) {
        // Release: the entries, and the frames they speak of, are written.
        Ring::<WORDS>::word(self.ring.producer).store(self.tail, Ordering::Release);
    }

    /// Whether the kernel wants a call to go on.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    pub(super) fn size(&self) -> u32 {
        self.ring.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u32 = 8;

    fn offsets() -> libc::xdp_ring_offset {
        // As `struct xdp_ring` has them, net/xdp/xsk_queue.h.
        libc::xdp_ring_offset { producer: 0, consumer: 128, flags: 196, desc: 256 }
    }

    fn ring<const WORDS: usize>() -> Ring<WORDS> {
        let bytes = Ring::<WORDS>::bytes(&offsets(), SIZE);
        let memory = MmapRaw::from(memmap2::MmapMut::map_anon(bytes).expect("memory"));
        Ring::over(memory, &offsets(), SIZE).expect("fits")
    }

    fn set(at: NonNull<AtomicU32>, value: u32) {
        Ring::<1>::word(at).store(value, Ordering::Release);
    }

    #[test]
    fn entries_go_round_past_the_wrap_of_the_counts() {
        let start = u32::MAX - 5;
        let mut consumer = Consumer { ring: ring::<2>(), head: start, seen: start };
        let mut produced = start;
        set(consumer.ring.producer, start);
        for round in 0..10_u64 {
            assert_eq!(consumer.next(), None);
            for at in 0..u64::from(SIZE) {
                consumer.ring.entry(produced, 0).store(round << 8 | at, Ordering::Relaxed);
                consumer.ring.entry(produced, 1).store(at, Ordering::Relaxed);
                produced = produced.wrapping_add(1);
            }
            set(consumer.ring.producer, produced);
            assert_eq!(consumer.waiting(), SIZE);
            for at in 0..u64::from(SIZE) {
                assert_eq!(consumer.next(), Some([round << 8 | at, at]));
            }
            consumer.release();
            assert_eq!(Ring::<2>::word(consumer.ring.consumer).load(Ordering::Relaxed), produced);
        }
    }

    #[test]
    fn a_producer_stops_when_the_ring_is_full_and_goes_on_past_the_wrap() {
        let start = u32::MAX - 2;
        let mut producer = Producer { ring: ring::<1>(), tail: start, taken: start };
        set(producer.ring.consumer, start);
        for round in 0..10_u64 {
            assert!(producer.has_room(SIZE) && !producer.has_room(SIZE + 1));
            for at in 0..u64::from(SIZE) {
                producer.push([round << 8 | at]);
            }
            assert!(!producer.has_room(1));
            producer.publish();
            let tail = producer.tail;
            assert_eq!(Ring::<1>::word(producer.ring.producer).load(Ordering::Relaxed), tail);
            for at in 0..SIZE {
                let count = tail.wrapping_sub(SIZE).wrapping_add(at);
                let entry = producer.ring.entry(count, 0).load(Ordering::Relaxed);
                assert_eq!(entry, round << 8 | u64::from(at));
            }
            set(producer.ring.consumer, tail.wrapping_sub(3));
            assert_eq!(producer.pending(), 3);
            assert!(producer.has_room(SIZE - 3) && !producer.has_room(SIZE - 2));
            set(producer.ring.consumer, tail);
        }
    }

    #[test]
    fn counts_that_make_no_sense_stay_inside_the_ring() {
        let mut consumer = Consumer { ring: ring::<2>(), head: 0, seen: 0 };
        let mut producer = Producer { ring: ring::<1>(), tail: 0, taken: 0 };
        for count in [SIZE + 1, 1000, u32::MAX / 2, u32::MAX - 1, u32::MAX] {
            set(consumer.ring.producer, count);
            assert!(consumer.waiting() <= SIZE, "{count}");
            let mut taken = 0;
            while taken < 3 * SIZE && consumer.next().is_some() {
                taken += 1;
            }
            set(producer.ring.consumer, count);
            assert!(producer.pending() <= SIZE, "{count}");
            let mut pushed = 0;
            while pushed < 3 * SIZE && producer.has_room(1) {
                producer.push([0]);
                pushed += 1;
            }
        }
    }

    #[test]
    fn the_kernel_says_when_it_wants_a_call() {
        let producer = Producer { ring: ring::<2>(), tail: 0, taken: 0 };
        assert!(!producer.needs_wakeup());
        set(producer.ring.flags, NEED_WAKEUP);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn a_ring_outside_its_memory_is_refused() {
        let bytes = Ring::<2>::bytes(&offsets(), SIZE);
        let made = |offsets: &libc::xdp_ring_offset, size| {
            let memory = MmapRaw::from(memmap2::MmapMut::map_anon(bytes).expect("memory"));
            Ring::<2>::over(memory, offsets, size).is_ok()
        };
        assert!(made(&offsets(), SIZE));
        assert!(!made(&offsets(), 2 * SIZE) && !made(&offsets(), 0) && !made(&offsets(), SIZE - 1));
        for wild in [bytes as u64, u64::MAX - 3, 2] {
            assert!(!made(&libc::xdp_ring_offset { desc: wild, ..offsets() }, SIZE), "{wild}");
            assert!(!made(&libc::xdp_ring_offset { producer: wild, ..offsets() }, SIZE), "{wild}");
        }
    }
}
