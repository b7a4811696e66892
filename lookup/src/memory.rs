//! The memory of tables: anonymous mappings, in huge pages where the kernel has some. Words are read by many threads while one writes,
//! bytes are the writer's alone.
#![expect(
    unsafe_code,
    reason = "views a mapping as words; the allocator gives no memory that is aligned to huge pages and zeroed lazily"
)]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};

use crate::LookupError;

/// Bytes of a huge page on x86-64 and on AArch64 with pages of 4 KiB.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// A word that one thread stores and others load; [`Versions`](crate::version::Versions) order the two.
///
/// Implemented below alone: each is an integer in memory, for which any bytes are a value.
pub(crate) trait Word: Send + Sync + 'static {
    type Value: Copy + Eq;

    fn get(&self) -> Self::Value;
    fn set(&self, value: Self::Value);
}

impl Word for AtomicU32 {
    type Value = u32;

    #[inline(always)]
    fn get(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, value: u32) {
        self.store(value, Ordering::Relaxed);
    }
}

impl Word for AtomicU64 {
    type Value = u64;

    #[inline(always)]
    fn get(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, value: u64) {
        self.store(value, Ordering::Relaxed);
    }
}

/// Zeros at first. What nobody has written to takes address space, no memory.
#[derive(Debug)]
pub(crate) struct Words<W> {
    mapping: MmapRaw,
    /// Bytes in front of the first word, which begins a huge page.
    front: usize,
    count: usize,
    words: PhantomData<[W]>,
}

impl<W: Word> Words<W> {
    pub(crate) fn new(count: usize) -> Result<Self, LookupError> {
        let (mapping, front) = map(count, size_of::<W>())?;
        Ok(Self { mapping: MmapRaw::from(mapping), front, count, words: PhantomData })
    }
}

impl<W: Word> Deref for Words<W> {
    type Target = [W];

    #[inline(always)]
    fn deref(&self) -> &[W] {
        // SAFETY: `new` has mapped `front` bytes, less than a huge page, and `count` words behind them, readable and writable, aligned,
        // and for as long as `self`; nobody reads or writes them but through these words, which are atomic integers.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(self.front).cast::<W>(), self.count) }
    }
}

/// Bytes of one thread, zeros at first. What nobody has written to takes address space, no memory.
#[derive(Debug)]
pub(crate) struct Bytes {
    mapping: MmapMut,
    /// Bytes in front of the first, which begins a huge page.
    front: usize,
    count: usize,
}

impl Bytes {
    pub(crate) fn new(count: usize) -> Result<Self, LookupError> {
        let (mapping, front) = map(count, 1)?;
        Ok(Self { mapping, front, count })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.mapping[self.front..][..self.count]
    }
}

impl DerefMut for Bytes {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.mapping[self.front..][..self.count]
    }
}

/// A mapping with room for `count` items of so many bytes, and how many bytes stand in front of its first huge page.
fn map(count: usize, item: usize) -> Result<(MmapMut, usize), LookupError> {
    let bytes = count.checked_mul(item).and_then(|bytes| bytes.checked_add(HUGE_PAGE));
    let bytes =
        bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or(LookupError::TooLarge { words: count })?;
    let mapping = MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
    let mapping = mapping.map_err(|source| LookupError::Memory { bytes, source })?;
    // Without huge pages it is slower and no less right.
    let _ = mapping.advise(Advice::HugePage);
    let front = mapping.as_ptr().align_offset(HUGE_PAGE);
    Ok((mapping, front))
}

/// Copies words to where no reader is.
pub(crate) fn copy_words<W: Word>(from: &[W], to: &[W]) {
    for (from, to) in from.iter().zip(to) {
        to.set(from.get());
    }
}
