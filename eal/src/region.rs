//! Pinned memory: a [`Region`] owns a mapping, a [`Zone`] is a piece of one.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that names a region for the life of the process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u64);

/// Why memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The kernel refused a mapping.
    #[error("cannot map {bytes} bytes for {name}")]
    Map {
        /// What the memory was for.
        name: String,
        /// How much was asked for.
        bytes: usize,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
    page_size: usize,
    id: RegionId,
    name: String,
}

// SAFETY: `Mapping` is an address range; what may be done to the bytes is decided by whoever holds a `Zone` of it.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`: no method of `Mapping` reads or writes the mapped bytes.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping made in `anonymous`, and this is its only owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A mapping that is populated, never moves, and lives until its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Region(Arc<Mapping>);

impl Region {
    /// Maps ordinary pages, zeroed and populated.
    ///
    /// # Errors
    /// [`MemoryError::Map`] when the kernel refuses.
    pub fn anonymous(name: &str, bytes: usize) -> Result<Self, MemoryError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let len = bytes.max(1).next_multiple_of(4096);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        let refused =
            || MemoryError::Map { name: name.into(), bytes: len, source: std::io::Error::last_os_error() };
        if base == libc::MAP_FAILED {
            return Err(refused());
        }
        let base = NonNull::new(base.cast()).ok_or_else(refused)?;
        let id = RegionId(NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Self(Arc::new(Mapping { base, len, page_size: 4096, id, name: name.into() })))
    }

    /// Address of the first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    /// Length in bytes, a multiple of the page size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len
    }

    /// Size in bytes of the pages behind it.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.0.page_size
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.0.id
    }

    /// What it was made for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The whole region as one zone.
    #[must_use]
    pub fn whole(&self) -> Zone {
        Zone { region: self.clone(), offset: 0, bytes: self.bytes() }
    }
}

/// A contiguous piece of a region, and the right to use those bytes: no two living zones overlap, so it is not `Clone`.
#[derive(Debug)]
pub struct Zone {
    region: Region,
    offset: usize,
    bytes: usize,
}

impl Zone {
    /// The region it is part of.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Address of the first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        // SAFETY: `offset` is inside the region, checked where the zone was made.
        unsafe { self.region.base().add(self.offset) }
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
