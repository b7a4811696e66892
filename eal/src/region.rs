//! Pinned memory: a [`Region`] owns a mapping, a [`Zone`] is a piece of one.
#![expect(unsafe_code, reason = "whoever is handed the file behind a region can write what others own")]

mod error;
mod free_list;
mod mapping;
mod words;
mod zone;

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::topology::SocketId;
pub use error::MemoryError;
use free_list::FreeList;
#[cfg(test)]
pub(crate) use mapping::tests::skipped_without_mbind;
pub(crate) use mapping::{Backing, Locked, Mapping, Refused, THP_BYTES, Wanted, current_cpu, lock_limit};
pub use words::SharedWords;
pub use zone::Zone;

/// Size in bytes of an ordinary page.
pub const PAGE_BYTES: usize = 4096;

/// A number that names a region for the life of the process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u64);

#[derive(Debug)]
struct Inner {
    mapping: Mapping,
    page_size: usize,
    id: RegionId,
    name: String,
    socket: Option<SocketId>,
    free: Mutex<FreeList>,
}

/// A mapping that is populated, never moves, and lives until its last handle and its last zone are dropped.
///
/// A clone is another handle of the same mapping. The bytes belong to the zones, of which no two overlap.
#[derive(Clone, Debug)]
pub struct Region(Arc<Inner>);

impl Region {
    /// Maps ordinary pages, zeroed and populated, for tests and pools that have no `Eal`.
    ///
    /// # Errors
    /// [`MemoryError::Map`] or [`MemoryError::Populate`] when the kernel refuses.
    pub fn anonymous(name: &str, bytes: usize) -> Result<Self, MemoryError> {
        Self::ordinary(name, bytes, Backing::Anonymous)
    }

    /// The same, of a file in memory that other processes can be given and that forked children keep: registers of a device that is
    /// software, as a device's own stay mapped in a child.
    ///
    /// # Errors
    /// As [`anonymous`](Self::anonymous).
    pub fn shared(name: &str, bytes: usize) -> Result<Self, MemoryError> {
        Self::ordinary(name, bytes, Backing::Registers)
    }

    fn ordinary(name: &str, bytes: usize, backing: Backing<'_>) -> Result<Self, MemoryError> {
        let refused = |source| MemoryError::Map {
            name: name.to_owned(),
            bytes,
            page_size: PAGE_BYTES,
            mend: String::new(),
            source,
        };
        let rounded = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
        let rounded = rounded.ok_or_else(|| refused(std::io::ErrorKind::OutOfMemory.into()))?;
        let wanted = Wanted {
            label: name,
            backing,
            bytes: rounded,
            page_size: PAGE_BYTES,
            align: if rounded >= THP_BYTES { THP_BYTES } else { PAGE_BYTES },
            node: None,
            lock: false,
            keep_fd: matches!(backing, Backing::Registers),
        };
        match Mapping::new(&wanted) {
            Ok(mapping) => Ok(Self::over(mapping, name, PAGE_BYTES, None)),
            Err(Refused::Map(source) | Refused::Bind(source) | Refused::Populate(source)) => {
                Err(refused(source))
            }
        }
    }

    /// A region over a fresh mapping.
    pub(crate) fn over(mapping: Mapping, name: &str, page_size: usize, socket: Option<SocketId>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let free = FreeList::new(mapping.base().as_ptr() as usize, mapping.bytes());
        Self(Arc::new(Inner {
            mapping,
            page_size,
            id: RegionId(NEXT.fetch_add(1, Ordering::Relaxed)),
            name: name.to_owned(),
            socket,
            free: Mutex::new(free),
        }))
    }

    /// Address of the first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.0.mapping.base()
    }

    /// Length in bytes, a multiple of the page size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.mapping.bytes()
    }

    /// Size in bytes of the pages that are certainly behind it (transparent huge pages do not count).
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.0.page_size
    }

    /// Its number, unique in the process.
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.0.id
    }

    /// What it was made for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The NUMA node that its pages are on, if there is more than one or it was asked for.
    #[must_use]
    pub fn socket(&self) -> Option<SocketId> {
        self.0.socket
    }

    /// Whether the pages can never be swapped out: huge pages, or ordinary ones that could be locked.
    #[must_use]
    pub fn locked(&self) -> bool {
        self.0.page_size > PAGE_BYTES || self.0.mapping.locked() == Locked::Yes
    }

    /// Why the pages could not be locked, if that was tried.
    pub(crate) fn lock_refused(&self) -> Option<std::io::Error> {
        match self.0.mapping.locked() {
            Locked::Refused(number) => Some(std::io::Error::from_raw_os_error(number)),
            Locked::Yes | Locked::NotAsked => None,
        }
    }

    /// The file behind it, kept only where sharing was asked for: another process can map it.
    ///
    /// To have it is to have the bytes, which belong to zones: they are read by reference while the zone's owner thinks that nobody
    /// writes them.
    ///
    /// ```compile_fail,E0133
    /// fn overwrite(region: &pollux_eal::region::Region) {
    ///     let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
    ///     std::io::Write::write_all(&mut std::fs::File::from(fd), b"behind a living &[u8]").unwrap();
    /// }
    /// ```
    ///
    /// # Safety
    /// Through the descriptor, whoever it is given to and as long as any copy of it is open, nobody writes or maps writable
    /// bytes but those that the owner of their zone lets them write, as a ring's end (`pollux_ring::RegionSpan`) or a device does.
    #[must_use]
    pub unsafe fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.mapping.fd().map(AsFd::as_fd)
    }

    /// Bytes in no zone.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.free_list().free_bytes()
    }

    /// The whole region as one zone.
    ///
    /// # Panics
    /// When a zone of this region is alive.
    #[must_use]
    pub fn into_zone(self) -> Zone {
        let bytes = self.bytes();
        let name = self.name().to_owned();
        self.take(&name, bytes, 1, None).expect("a region becomes a zone only while no zone of it is alive")
    }

    /// Takes a piece. `align` and `bound` are powers of two, `bound` at least `bytes`, `bytes` not 0.
    pub(crate) fn take(&self, name: &str, bytes: usize, align: usize, bound: Option<usize>) -> Option<Zone> {
        let place = self.free_list().take(name, bytes, align, bound)?;
        let mut zone = Zone::new(self.clone(), place.offset, bytes);
        if place.dirty {
            zone.clear();
        }
        Some(zone)
    }

    fn name_at(&self, offset: usize) -> String {
        self.free_list().taken().get(&offset).map(|taken| taken.name.clone()).unwrap_or_default()
    }

    fn give_back(&self, offset: usize) {
        self.free_list().give_back(offset);
    }

    pub(crate) fn free_list(&self) -> MutexGuard<'_, FreeList> {
        // The list is changed by steps that do not panic half way, so a poisoned lock says nothing against it.
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::{Memory, MemoryOptions, PageLock};
    use pollux_config::MemorySpec;

    #[test]
    fn shared_memory_has_a_file_and_other_memory_has_none() {
        let spec = MemorySpec { no_huge: true, ..MemorySpec::default() };
        let options = MemoryOptions { share: true, spec, lock: PageLock::Never, ..MemoryOptions::default() };
        let memory = Memory::new(options).expect("nothing to map yet");
        let mut zone = memory.reserve("shared", 100, 64, None).expect("memory");
        zone.copy_in(0, b"seen through the file");
        // SAFETY: it is read, and cannot be made shorter.
        let fd = unsafe { zone.region().fd() }.expect("sharing was asked for").try_clone_to_owned();
        let file = std::fs::File::from(fd.expect("a descriptor"));
        let mut bytes = [0; 21];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, zone.offset() as u64).expect("it reads");
        assert_eq!(&bytes, b"seen through the file");
        let error = file.set_len(0).expect_err("nobody may pull the pages from under us");
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);

        let zone = Memory::ordinary().reserve("private", 100, 64, None).expect("memory");
        // SAFETY: there is none.
        assert!(unsafe { zone.region().fd() }.is_none());
    }
}
