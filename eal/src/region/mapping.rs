//! The mapping behind a region: made, aligned, bound, populated, kept from children, and unmapped.
//!
//! Sources: Linux `Documentation/admin-guide/mm/hugetlbpage.rst` (pools, reservation at mmap), memfd_create(2),
//! madvise(2) (`MADV_POPULATE_WRITE`, `MADV_DONTFORK`), mbind(2), mlock(2).
//!
//! Mapped by hand: memmap2 has the kernel choose the address, and a region's is a multiple of more than a page, for transparent
//! huge pages and for zones that are aligned.
#![expect(unsafe_code, reason = "maps, binds, populates, locks and unmaps memory")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
    open,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::sched_getcpu;

use crate::topology::SocketId;

/// `MADV_POPULATE_WRITE`, Linux 5.14 (`include/uapi/asm-generic/mman-common.h`).
const MADV_POPULATE_WRITE: i32 = 23;

/// Where the bytes come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backing<'a> {
    /// Private pages of no file. The kernel may back them with transparent huge pages.
    Anonymous,
    /// Ordinary pages of a memfd, so that another process can be given them.
    Memfd,
    /// The same, kept by forked children.
    Registers,
    /// Huge pages of a memfd.
    HugeMemfd,
    /// Huge pages of a nameless file in a hugetlbfs mount.
    HugeDir(&'a Path),
}

/// What to map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Shown in `/proc/PID/maps` for memfd.
    pub(crate) label: &'a str,
    pub(crate) backing: Backing<'a>,
    /// A multiple of `page_size`.
    pub(crate) bytes: usize,
    pub(crate) page_size: usize,
    /// A power of two.
    pub(crate) align: usize,
    /// Bind to this node.
    pub(crate) node: Option<SocketId>,
    pub(crate) lock: bool,
    pub(crate) keep_fd: bool,
}

/// At which step the kernel refused.
#[derive(Debug)]
pub(crate) enum Refused {
    Map(io::Error),
    Bind(io::Error),
    Populate(io::Error),
}

/// An address range that this value owns.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    fd: Option<OwnedFd>,
    locked: Locked,
}

/// Whether the pages were locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    Yes,
    NotAsked,
    /// With the kernel's error number.
    Refused(i32),
}

// SAFETY: `Mapping` is an address range and a descriptor; what may be done to the bytes is decided by whoever holds
// a `Zone` of them.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`: no method of `Mapping` reads or writes the mapped bytes once it is made.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are those of the mapping made in `new`, and this value is its only owner: every
        // `Zone` and `Region` holds it alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Mapping {
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    pub(crate) fn locked(&self) -> Locked {
        self.locked
    }

    /// Maps, binds, populates and, if asked, locks. On an error nothing is left mapped.
    pub(crate) fn new(wanted: &Wanted<'_>) -> Result<Self, Refused> {
        let fd = open_backing(wanted).map_err(Refused::Map)?;
        let base = map(wanted, fd.as_ref()).map_err(Refused::Map)?;
        let mut mapping = Self { base, bytes: wanted.bytes, fd, locked: Locked::NotAsked };
        // Before any page exists: a child must never see the bytes that a device may be writing, and copy-on-write in
        // the parent would take the pages away from under the device.
        if !matches!(wanted.backing, Backing::Registers) {
            mapping.advise(libc::MADV_DONTFORK).map_err(Refused::Map)?;
        }
        if let Some(node) = wanted.node {
            mapping.bind(node).map_err(Refused::Bind)?;
        }
        if matches!(wanted.backing, Backing::Anonymous) && wanted.bytes >= THP_BYTES {
            // Only a wish: where transparent huge pages are off, ordinary pages serve.
            let _ = mapping.advise(libc::MADV_HUGEPAGE);
        }
        mapping.populate().map_err(Refused::Populate)?;
        if wanted.lock {
            // SAFETY: the range is the mapping that this value owns; locking changes no byte.
            let answer = unsafe { libc::mlock(mapping.base.as_ptr().cast(), mapping.bytes) };
            mapping.locked = match check(answer) {
                Ok(()) => Locked::Yes,
                Err(error) => Locked::Refused(error.raw_os_error().unwrap_or(0)),
            };
        }
        if !wanted.keep_fd {
            // A forked child inherits descriptors whatever their flags, and would hold the pages after we are gone.
            mapping.fd = None;
        }
        Ok(mapping)
    }

    /// Maps the first `bytes` bytes of a file of memory that another process made.
    pub(crate) fn of_file(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        let base =
            mmap(null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd())?;
        Ok(Self { base, bytes, fd: Some(file), locked: Locked::NotAsked })
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is the mapping that this value owns, and none of the advices used here drops its bytes.
        check(unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) })
    }

    /// Binds the pages yet to come to one node. Source: mbind(2), `include/uapi/linux/mempolicy.h` (`MPOL_BIND` = 2).
    fn bind(&self, node: SocketId) -> io::Result<()> {
        const MPOL_BIND: libc::c_ulong = 2;
        const BITS: usize = libc::c_ulong::BITS as usize;
        let mut mask: [libc::c_ulong; 1024 / BITS] = [0; 1024 / BITS];
        let node = usize::from(node.0);
        let word = mask.get_mut(node / BITS).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node % BITS);
        // SAFETY: the range is the mapping that this value owns; the mask is as long as is said (the kernel reads one
        // bit fewer than `maxnode`, hence the + 1).
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.bytes,
                MPOL_BIND,
                mask.as_ptr(),
                mask.len() * BITS + 1,
                0,
            )
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives every page its memory now, so that no later access can fail.
    ///
    /// `MAP_POPULATE` is not used: it hides failure, and a page that a control group or a node's pool refuses would then
    /// be a SIGBUS at the first touch.
    fn populate(&self) -> io::Result<()> {
        let mut tries = 0;
        loop {
            match self.advise(MADV_POPULATE_WRITE) {
                Ok(()) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINVAL) => return self.populate_by_hand(),
                    Some(libc::EAGAIN | libc::EINTR) if tries < 16 => tries += 1,
                    _ => return Err(error),
                },
            }
        }
    }

    /// For kernels before 5.14. `fallocate` takes a file's pages and reports failure; touching them is then safe.
    fn populate_by_hand(&self) -> io::Result<()> {
        if let Some(fd) = &self.fd {
            fallocate(fd, FallocateFlags::empty(), 0, self.bytes as u64)?;
        }
        for offset in (0..self.bytes).step_by(4096) {
            // SAFETY: `offset` is inside the mapping, which nobody else knows yet; its pages are zero, so zero is what
            // the write leaves there.
            unsafe { self.base.add(offset).write_volatile(0) };
        }
        Ok(())
    }
}

/// What the kernel makes transparent huge pages of on x86-64 and on aarch64 with 4 KiB pages.
pub(crate) const THP_BYTES: usize = 2 << 20;

fn check(answer: i32) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn open_backing(wanted: &Wanted<'_>) -> io::Result<Option<OwnedFd>> {
    let fd = match wanted.backing {
        Backing::Anonymous => return Ok(None),
        Backing::Memfd | Backing::Registers => memfd(wanted.label, MemfdFlags::empty())?,
        Backing::HugeMemfd => {
            let size = wanted.page_size.trailing_zeros() << libc::MFD_HUGE_SHIFT;
            memfd(wanted.label, MemfdFlags::HUGETLB | MemfdFlags::from_bits_retain(size))?
        }
        Backing::HugeDir(dir) => nameless_file(dir)?,
    };
    ftruncate(&fd, wanted.bytes as u64)?;
    if matches!(wanted.backing, Backing::Memfd | Backing::Registers | Backing::HugeMemfd) {
        // Nobody who is given the descriptor can make the file shorter under us, which would be a SIGBUS.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    }
    Ok(Some(fd))
}

fn memfd(label: &str, flags: MemfdFlags) -> io::Result<OwnedFd> {
    // The kernel takes at most 249 bytes (memfd_create(2)), and no zero byte.
    let label: Vec<u8> = label.bytes().filter(|&byte| byte != 0).take(200).collect();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
    // A kernel can be set to refuse files that could be run (vm.memfd_noexec); those before 6.3 do not know the flag.
    match memfd_create(&*label, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => Ok(memfd_create(&*label, flags)?),
        other => Ok(other?),
    }
}

/// A file without a name in `dir`, so that nothing is left there whatever way the process ends.
fn nameless_file(dir: &Path) -> io::Result<OwnedFd> {
    let rights = Mode::RUSR | Mode::WUSR;
    if let Ok(fd) = open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, rights) {
        return Ok(fd);
    }
    // hugetlbfs has nameless files since Linux 5.1; before it, a name that lives for a moment.
    let path = dir.join(format!("pollux-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file.into())
}

fn map(wanted: &Wanted<'_>, fd: Option<&OwnedFd>) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (flags, fd) = match fd {
        Some(fd) => (libc::MAP_SHARED, fd.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    if wanted.align <= wanted.page_size {
        return mmap(null_mut(), wanted.bytes, protection, flags, fd);
    }
    // More address space than needed, so that an aligned piece is inside; the mapping replaces that piece, and the rest
    // is given back.
    let room = wanted.bytes.checked_add(wanted.align).ok_or(io::ErrorKind::OutOfMemory)?;
    let spare = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = mmap(null_mut(), room, libc::PROT_NONE, spare, -1)?;
    let before = start.as_ptr().align_offset(wanted.align);
    // SAFETY: `before` is less than `align`, and the space is `align` longer than `bytes`.
    let aligned = unsafe { start.add(before) };
    let mapped = mmap(aligned.as_ptr(), wanted.bytes, protection, flags | libc::MAP_FIXED, fd);
    let (keep_from, keep) = if mapped.is_ok() { (before, wanted.bytes) } else { (0, 0) };
    for (from, len) in [(0, keep_from), (keep_from + keep, room - keep_from - keep)] {
        if len > 0 {
            // SAFETY: these are the parts of the space reserved above that the mapping did not take; nobody else knows
            // them.
            unsafe { libc::munmap(start.as_ptr().add(from).cast(), len) };
        }
    }
    mapped
}

fn mmap(at: *mut u8, bytes: usize, protection: i32, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: without `MAP_FIXED` the kernel chooses an unused range; with it, `map` passes a range that it reserved.
    let base = unsafe { libc::mmap(at.cast(), bytes, protection, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// The processor that the calling thread runs on, at the moment.
pub(crate) fn current_cpu() -> Option<u16> {
    u16::try_from(sched_getcpu()).ok()
}

/// `RLIMIT_MEMLOCK` in bytes.
pub(crate) fn lock_limit() -> usize {
    let limit = getrlimit(Resource::Memlock).current;
    limit.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn wanted(backing: Backing<'_>) -> Wanted<'_> {
        let bytes = 16 * 4096;
        Wanted {
            label: "test",
            backing,
            bytes,
            page_size: 4096,
            align: 4096,
            node: None,
            lock: false,
            keep_fd: true,
        }
    }

    /// Kernels before 5.14 go this way.
    #[test]
    fn pages_can_be_populated_by_hand() {
        for backing in [Backing::Anonymous, Backing::Memfd] {
            let mapping = Mapping::new(&wanted(backing)).expect("memory");
            // SAFETY: the mapping is ours alone; dropping its pages makes them as they were before they were populated.
            unsafe { libc::madvise(mapping.base().as_ptr().cast(), mapping.bytes(), libc::MADV_DONTNEED) };
            mapping.populate_by_hand().expect("memory");
            let mut present = [0_u8; 16];
            // SAFETY: one byte for each of the 16 pages.
            let answer = unsafe {
                libc::mincore(mapping.base().as_ptr().cast(), mapping.bytes(), present.as_mut_ptr())
            };
            assert_eq!(answer, 0);
            assert!(present.iter().all(|page| page & 1 == 1), "{backing:?}: {present:?}");
        }
    }

    #[test]
    fn pages_of_a_size_that_does_not_exist_are_refused() {
        let refused =
            Mapping::new(&Wanted { page_size: 1 << 34, bytes: 1 << 34, ..wanted(Backing::HugeMemfd) });
        assert!(matches!(refused, Err(Refused::Map(_))), "{refused:?}");
    }

    /// Containers forbid mbind by default.
    pub(crate) fn skipped_without_mbind() -> bool {
        let mapping = Mapping::new(&wanted(Backing::Anonymous)).expect("memory");
        let forbidden = matches!(
            mapping.bind(SocketId(0)).map_err(|error| error.raw_os_error()),
            Err(Some(libc::EPERM | libc::ENOSYS))
        );
        if forbidden {
            eprintln!("skipped: needs mbind, which is forbidden here");
        }
        forbidden
    }

    #[test]
    fn a_node_that_does_not_exist_is_refused() {
        if skipped_without_mbind() {
            return;
        }
        for node in [1023, 1024, u16::MAX] {
            let refused = Mapping::new(&Wanted { node: Some(SocketId(node)), ..wanted(Backing::Anonymous) });
            assert!(matches!(refused, Err(Refused::Bind(_))), "{refused:?}");
        }
    }

    #[test]
    fn the_node_that_exists_is_bound_to() {
        if skipped_without_mbind() {
            return;
        }
        let node = crate::topology::Topology::read(Path::new("/")).nodes()[0].id;
        let mapping =
            Mapping::new(&Wanted { node: Some(node), ..wanted(Backing::Anonymous) }).expect("memory");
        let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        let start = format!("{:x} ", mapping.base().as_ptr().addr());
        // A kernel without NUMA has no such file.
        if let Some(line) = maps.lines().find(|line| line.starts_with(&start)) {
            assert!(line.contains(&format!("bind:{node}")), "{line}");
            assert!(line.contains(&format!("N{node}=16")), "{line}");
        }
    }
}
