//! A queue that is shared with the kernel: one side fills entries and moves the producer's index, the other takes them and
//! moves the consumer's. It is full with one entry free.
#![expect(unsafe_code, reason = "memory that the kernel reads and writes at the same time")]

use std::sync::atomic::{AtomicU32, Ordering};

use pollux_eal::counter::Counter;
use pollux_uverbs::{Context, Page, Protection};

use super::abi::{MapInfo, head};
use crate::VerbsError;
use crate::view::{Fill, Gauge};

/// A mapped queue. Its entries are written and read by copies alone, and indices from the kernel are masked.
#[derive(Debug)]
pub(super) struct Queue {
    page: Page,
    log_entry_bytes: u32,
    mask: u32,
    /// Entries given to the kernel in all, by the one side that posts.
    posted: Counter,
}

impl Gauge for Queue {
    fn fill(&self) -> Fill {
        let posted = self.posted.get();
        let used = self.between(self.consumer(), self.producer());
        Fill { places: self.capacity(), used, posted }
    }
}

impl Queue {
    /// Maps a queue whose entries are at least so long.
    pub(super) fn map(context: &Context, info: &MapInfo, entry_bytes: usize) -> Result<Self, VerbsError> {
        let failed = VerbsError::kernel("map a queue of rxe");
        let page = context.map(info.offset, info.size as usize, Protection::ReadWrite).map_err(failed)?;
        let word = |at: usize| page.read32(at).unwrap_or(0);
        let (log_entry_bytes, mask) = (word(head::LOG_ENTRY_BYTES), word(head::INDEX_MASK));
        let entries = u64::from(mask) + 1;
        let fits = log_entry_bytes < 20
            && entries.is_power_of_two()
            && 1 << log_entry_bytes >= entry_bytes
            && head::DATA as u64 + (entries << log_entry_bytes) <= page.bytes() as u64;
        if !fits {
            return Err(VerbsError::Unsupported {
                what: "queue of rxe",
                why: format!(
                    "{entries} entries of {} bytes in {} bytes are not the shape that is known here",
                    1_u64 << log_entry_bytes.min(63),
                    page.bytes()
                ),
            });
        }
        Ok(Self { page, log_entry_bytes, mask, posted: Counter::new() })
    }

    pub(super) fn entry_bytes(&self) -> usize {
        1 << self.log_entry_bytes
    }

    /// Entries that it has room for at once.
    pub(super) fn capacity(&self) -> u32 {
        self.mask
    }

    /// The index after `index` by `count`.
    pub(super) fn after(&self, index: u32, count: u32) -> u32 {
        index.wrapping_add(count) & self.mask
    }

    /// Entries between a consumer and a producer.
    pub(super) fn between(&self, consumer: u32, producer: u32) -> u32 {
        producer.wrapping_sub(consumer) & self.mask
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        let word = self.page.base().as_ptr().wrapping_add(at).cast::<u32>();
        // SAFETY: the head is in the page (`map`), which lives as long as the queue; a page is aligned, and both sides use the
        // word atomically.
        unsafe { AtomicU32::from_ptr(word) }
    }

    pub(super) fn producer(&self) -> u32 {
        self.index(head::PRODUCER).load(Ordering::Acquire) & self.mask
    }

    pub(super) fn consumer(&self) -> u32 {
        self.index(head::CONSUMER).load(Ordering::Acquire) & self.mask
    }

    /// Gives the kernel the entries before `index`.
    pub(super) fn set_producer(&self, index: u32) {
        self.posted.add(self.between(self.producer(), index).into());
        self.index(head::PRODUCER).store(index & self.mask, Ordering::Release);
    }

    /// Gives the entries before `index` back to the kernel.
    pub(super) fn set_consumer(&self, index: u32) {
        self.index(head::CONSUMER).store(index & self.mask, Ordering::Release);
    }

    /// The words of an entry.
    fn words(&self, index: u32) -> *mut u64 {
        let at = head::DATA + (((index & self.mask) as usize) << self.log_entry_bytes);
        self.page.base().as_ptr().wrapping_add(at).cast()
    }

    /// Writes a part of an entry, from a word's beginning on and in whole words; the rest stays.
    ///
    /// # Panics
    /// When it is not in the entry.
    pub(super) fn write(&self, index: u32, at: usize, bytes: &[u8]) {
        let fits = at.is_multiple_of(8) && at + bytes.len() <= self.entry_bytes();
        assert!(fits, "{} bytes at {at} of an entry of {}", bytes.len(), self.entry_bytes());
        let to = self.words(index).wrapping_add(at / 8);
        // SAFETY: below the entry's end, since entries are whole words; the entry lies in the page (`map`) and is ours until
        // the producer's index passes it, and the kernel may be believed no more than that.
        let put = |place, word| unsafe { to.add(place).write_volatile(u64::from_ne_bytes(word)) };
        // In words of a known length: else each is a call.
        let (words, rest) = bytes.as_chunks::<8>();
        for (place, word) in words.iter().enumerate() {
            put(place, *word);
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            put(words.len(), word);
        }
    }

    /// Copies the front of an entry out.
    ///
    /// # Panics
    /// When it is longer than an entry, or no whole words.
    pub(super) fn read(&self, index: u32, bytes: &mut [u8]) {
        assert!(bytes.len() <= self.entry_bytes() && bytes.len().is_multiple_of(8));
        let from = self.words(index);
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // SAFETY: as in `write`.
            *word = unsafe { from.add(place).read_volatile() }.to_ne_bytes();
        }
    }
}
