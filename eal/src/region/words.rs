//! Memory that another process has mapped as well, as words that are read and written one by one.
#![expect(unsafe_code, reason = "maps a file that another process maps too, and shows it as atomic words")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};

use super::mapping::{Backing, Mapping, Refused, Wanted};
use super::{MemoryError, PAGE_BYTES};

/// Words in memory that two processes share: one [makes](Self::new) it, the other [maps](Self::of_file) the file that it was sent.
///
/// Each word is an atomic, so that whatever the other process does to it, at any time, is a value that was read and no more: there is
/// no reference to plain bytes, and the file cannot be made shorter. What a word says is for the reader to check.
///
/// The other process can free pages of the file (`fallocate` with `FALLOC_FL_PUNCH_HOLE`; the only seal against it would forbid to write, too):
/// their words are 0 then, and whoever reaches one next has a page fault.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Mapping,
    words: usize,
}

impl SharedWords {
    /// Makes zeroed and populated memory of `words` words, rounded up to whole pages. Forked children do not have it.
    ///
    /// # Errors
    /// [`MemoryError::Map`] when the kernel refuses.
    pub fn new(name: &str, words: usize) -> Result<Self, MemoryError> {
        let bytes = words.max(1).checked_mul(8).and_then(|bytes| bytes.checked_next_multiple_of(PAGE_BYTES));
        let refused = |source| MemoryError::Map {
            name: name.to_owned(),
            bytes: bytes.unwrap_or(usize::MAX),
            page_size: PAGE_BYTES,
            mend: String::new(),
            source,
        };
        let bytes = bytes.ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
        let wanted = Wanted {
            label: name,
            backing: Backing::Memfd,
            bytes,
            page_size: PAGE_BYTES,
            align: PAGE_BYTES,
            node: None,
            lock: false,
            keep_fd: true,
        };
        let mapping = Mapping::new(&wanted).map_err(|why| match why {
            Refused::Map(source) | Refused::Bind(source) | Refused::Populate(source) => refused(source),
        })?;
        Ok(Self { mapping, words })
    }

    /// Maps the file of another process's `SharedWords`, of which `words` words are used here.
    ///
    /// # Errors
    /// The file is shorter, or its owner could make it shorter (it is not sealed), or the kernel refuses.
    pub fn of_file(file: OwnedFd, words: usize) -> io::Result<Self> {
        let bytes = words.max(1).checked_mul(8).and_then(|bytes| bytes.checked_next_multiple_of(PAGE_BYTES));
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        if !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::other("the shared memory is not sealed against shrinking"));
        }
        let there = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if there < bytes as u64 {
            let problem = format!("the shared memory has {there} bytes, {bytes} are needed");
            return Err(io::Error::other(problem));
        }
        Ok(Self { mapping: Mapping::of_file(file, bytes)?, words })
    }

    /// The words.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, at least `words * 8` bytes long, and mapped as long as `self` lives; the file cannot
        // be made shorter (both constructors see to it). Any bits are a valid `AtomicU64`. Whoever maps the file in this process, twice
        // or more, does it by this type, and reaches the bytes by these atomics alone; others are other processes.
        unsafe { std::slice::from_raw_parts(self.mapping.base().as_ptr().cast_const().cast(), self.words) }
    }

    /// The file, to be sent to the other process. Whoever has it can change every word.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.mapping.fd().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn both_sides_see_the_same_words() {
        let ours = SharedWords::new("test", 1000).expect("memory");
        let file = ours.file().expect("a file").try_clone_to_owned().expect("a descriptor");
        let theirs = SharedWords::of_file(file, 1000).expect("mapped");
        assert_eq!((ours.words().len(), theirs.words().len()), (1000, 1000));
        ours.words()[999].store(7, Ordering::Relaxed);
        theirs.words()[0].store(8, Ordering::Relaxed);
        assert_eq!(theirs.words()[999].load(Ordering::Relaxed), 7);
        assert_eq!(ours.words()[0].load(Ordering::Relaxed), 8);
    }

    #[test]
    fn a_file_that_could_shrink_or_is_short_is_refused() {
        let open = memfd_create("test", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&open, 1 << 20).expect("grown");
        let error = SharedWords::of_file(open, 10).expect_err("its owner could make it shorter");
        assert!(error.to_string().contains("sealed"), "{error}");
        let ours = SharedWords::new("test", 512).expect("memory");
        let file = ours.file().expect("a file").try_clone_to_owned().expect("a descriptor");
        let error = SharedWords::of_file(file, 513).expect_err("one word too many");
        assert_eq!(error.to_string(), "the shared memory has 4096 bytes, 8192 are needed");
        assert!(SharedWords::new("test", usize::MAX).is_err());
    }
}
