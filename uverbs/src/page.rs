//! Pages of a device: registers to store to, clocks to read.
#![expect(unsafe_code, reason = "maps device pages and reads them; hands out their registers")]

use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use pollux_eal::mmio::Window;
use pollux_eal::region::Zone;

use crate::{Errno, UverbsError};

/// What may be done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Loads alone: clocks.
    Read,
    /// Stores; on x86-64 loads too.
    Write,
    /// Both.
    ReadWrite,
}

/// Mapped pages of a device, or memory of a model that stands for them.
///
/// Queues take [`Registers`] of it, each its own; loads go through [`read32`](Self::read32) and [`read64`](Self::read64).
#[derive(Debug)]
pub struct Page {
    base: NonNull<u8>,
    bytes: usize,
    protection: Protection,
    taken: Mutex<Vec<Range<usize>>>,
    /// What keeps the bytes mapped: the zone, or, without one, the mapping that `drop` undoes.
    zone: Option<Arc<Zone>>,
}

// SAFETY: the pages belong to no thread; loads are volatile, and stores go through windows that no two hold at once.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Maps pages of a file.
    ///
    /// # Errors
    /// What mmap(2) says; `EINVAL` for no bytes at all.
    pub fn map(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        protection: Protection,
    ) -> Result<Self, Errno> {
        // Not by memmap2, which maps for reading or for both: doorbells are mapped for stores alone, as the kernel's side expects.
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let rights = match protection {
            Protection::Read => libc::PROT_READ,
            Protection::Write => libc::PROT_WRITE,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Self { base, bytes, protection, taken: Mutex::default(), zone: None })
    }

    /// Memory of a model: `bytes` at `offset` of a zone. The model keeps another handle of the zone and looks at what is
    /// stored there, by volatile or atomic loads.
    ///
    /// # Panics
    /// When that is not inside the zone.
    #[must_use]
    pub fn of_zone(zone: Arc<Zone>, offset: usize, bytes: usize, protection: Protection) -> Self {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= zone.bytes()),
            "{bytes} bytes at {offset} are not inside a zone of {} bytes",
            zone.bytes()
        );
        // SAFETY: inside the zone, as just checked.
        let base = unsafe { zone.base().add(offset) };
        Self { base, bytes, protection, taken: Mutex::default(), zone: Some(zone) }
    }

    /// Address of the first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file behind a model's memory, and where in it the page begins, for another process to map it.
    ///
    /// # Safety
    /// As of [`Region::fd`](pollux_eal::region::Region::fd): through the descriptor nobody does but what may be done to this page.
    #[must_use]
    pub unsafe fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        let region = self.zone.as_ref()?.region();
        // SAFETY: by the caller.
        let fd = unsafe { region.fd()? };
        Some((fd, (self.base.as_ptr().addr() - region.base().as_ptr().addr()) as u64))
    }

    /// The same, of which no more may be done than `protection` says: a model's page as the one who maps it asked for it.
    #[must_use]
    pub fn limited_to(mut self, protection: Protection) -> Self {
        if self.protection == Protection::ReadWrite {
            self.protection = protection;
        }
        self
    }

    /// What may be done with it.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// Takes the registers in `range`, which begins at a multiple of 64, for one owner. They go back when dropped.
    ///
    /// # Errors
    /// [`UverbsError::Registers`] when they are not there, cannot be stored to, or somebody else has some of them.
    pub fn registers(self: &Arc<Self>, range: Range<usize>) -> Result<Registers, UverbsError> {
        let refuse = |problem| UverbsError::Registers {
            start: range.start,
            end: range.end,
            bytes: self.bytes,
            problem,
        };
        if range.start >= range.end || range.end > self.bytes {
            return Err(refuse("the page ends before"));
        }
        if self.protection == Protection::Read {
            return Err(refuse("the page is for reading alone"));
        }
        if !self.base.as_ptr().addr().wrapping_add(range.start).is_multiple_of(64) {
            return Err(refuse("not at a multiple of 64"));
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.iter().any(|other| other.start < range.end && range.start < other.end) {
            return Err(refuse("another queue has some of them"));
        }
        taken.push(range.clone());
        // SAFETY: the range is inside the page; the page lives as long as `Registers`, which keeps a handle of it; no other
        // window overlaps, by the list of what is taken; writable pages can be read on the processors that are supported,
        // and hold no Rust object.
        let window = unsafe { Window::new(self.base.add(range.start), range.end - range.start) };
        Ok(Registers { window, range, page: Arc::clone(self) })
    }

    /// Loads 4 bytes with one instruction. `None` when no such register is there.
    #[must_use]
    pub fn read32(&self, offset: usize) -> Option<u32> {
        let from = self.readable(offset, 4)?;
        // SAFETY: mapped, readable, inside and aligned, as `readable` checked.
        Some(unsafe { from.cast::<u32>().read_volatile() })
    }

    /// Loads 8 bytes with one instruction. `None` when no such register is there.
    #[must_use]
    pub fn read64(&self, offset: usize) -> Option<u64> {
        let from = self.readable(offset, 8)?;
        // SAFETY: as in `read32`.
        Some(unsafe { from.cast::<u64>().read_volatile() })
    }

    fn readable(&self, offset: usize, bytes: usize) -> Option<NonNull<u8>> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if !inside || self.protection == Protection::Write {
            return None;
        }
        // SAFETY: inside the page, as just checked.
        let at = unsafe { self.base.add(offset) };
        at.as_ptr().addr().is_multiple_of(bytes).then_some(at)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.zone.is_none() {
            // SAFETY: `map` made exactly this mapping, and nobody has an address in it: registers keep the page alive.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        }
    }
}

/// Registers of a page, taken by one owner. Used as the [`Window`] that it is.
#[derive(Debug)]
pub struct Registers {
    window: Window,
    range: Range<usize>,
    page: Arc<Page>,
}

impl Registers {
    /// The page they are on.
    #[must_use]
    pub fn page(&self) -> &Arc<Page> {
        &self.page
    }
}

impl Deref for Registers {
    type Target = Window;

    fn deref(&self) -> &Window {
        &self.window
    }
}

impl DerefMut for Registers {
    fn deref_mut(&mut self) -> &mut Window {
        &mut self.window
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        let mut taken = self.page.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|other| *other != self.range);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use pollux_eal::region::Region;

    use super::*;

    fn of_zone(protection: Protection) -> (Arc<Zone>, Arc<Page>) {
        let zone = Arc::new(Region::anonymous("page", 8192).expect("memory").into_zone());
        let page = Arc::new(Page::of_zone(Arc::clone(&zone), 4096, 4096, protection));
        (zone, page)
    }

    #[test]
    fn what_is_stored_is_seen_by_the_model() {
        let (zone, page) = of_zone(Protection::ReadWrite);
        let mut registers = page.registers(0x800..0x900).expect("registers");
        registers.store64(8, 0x1122_3344_5566_7788);
        let mut seen = [0; 8];
        zone.copy_out(4096 + 0x808, &mut seen);
        assert_eq!(u64::from_ne_bytes(seen), 0x1122_3344_5566_7788);
        assert_eq!(page.read64(0x808), Some(0x1122_3344_5566_7788));
    }

    #[test]
    fn nobody_gets_registers_twice() {
        let (_zone, page) = of_zone(Protection::Write);
        let first = page.registers(0x800..0x900).expect("free");
        for range in [0x800..0x840, 0x8c0..0x940, 0x7c0..0x801, 0..4096] {
            let refused = page.registers(range).map(|_| ()).expect_err("taken");
            assert!(refused.to_string().contains("another queue"), "{refused}");
        }
        let beside = page.registers(0x900..0xa00).expect("free");
        drop(first);
        page.registers(0x800..0x900).expect("given back");
        drop(beside);
    }

    #[test]
    fn registers_that_are_not_there_are_refused() {
        let (_zone, page) = of_zone(Protection::Write);
        #[expect(clippy::reversed_empty_ranges, reason = "what is wrong is the point")]
        for range in [4096..4160, 0..4097, 64..64, 128..64, 8..16, usize::MAX - 63..usize::MAX] {
            page.registers(range.clone()).map(|_| ()).expect_err("refused");
        }
        let (_zone, page) = of_zone(Protection::Read);
        let refused = page.registers(0..64).map(|_| ()).expect_err("not writable");
        assert!(refused.to_string().contains("reading alone"), "{refused}");
    }

    #[test]
    fn loads_stay_inside() {
        let (_zone, page) = of_zone(Protection::Read);
        assert_eq!(page.read32(4092), Some(0));
        assert_eq!(page.read64(4088), Some(0));
        for offset in [4089, 4096, 4095, usize::MAX, usize::MAX - 3, 1] {
            assert_eq!(page.read32(offset), None, "{offset}");
            assert_eq!(page.read64(offset), None, "{offset}");
        }
        let (_zone, page) = of_zone(Protection::Write);
        assert_eq!(page.read32(0), None);
    }

    #[test]
    fn pages_of_a_file_are_shared_with_it() {
        let file: File = tempfile::tempfile().expect("file");
        file.set_len(8192).expect("length");
        let page = Arc::new(Page::map(file.as_fd(), 4096, 4096, Protection::ReadWrite).expect("mapped"));
        page.registers(0..64).expect("registers").store32(4, 7);
        let mut seen = [0; 4];
        file.read_exact_at(&mut seen, 4096 + 4).expect("read");
        assert_eq!(u32::from_ne_bytes(seen), 7);
        drop(page);
        assert_eq!(Page::map(file.as_fd(), 1, 4096, Protection::Read).map(|_| ()), Err(Errno::EINVAL));
        assert_eq!(Page::map(file.as_fd(), 0, 0, Protection::Read).map(|_| ()), Err(Errno::EINVAL));
        assert_eq!(Page::map(file.as_fd(), u64::MAX, 4096, Protection::Read).map(|_| ()), Err(Errno::EINVAL));
    }
}
