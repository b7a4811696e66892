//! Whether memory of another process's file can be touched directly, and how it is touched where it cannot; and how another process's
//! own memory is.
//!
//! Who holds a file can make it shorter after it was mapped here, and a touch of what is gone is a SIGBUS, the end of every
//! device of the process. So memory is touched directly only where the kernel rules that out: an ordinary memfd that is sealed
//! against shrinking, as QEMU's `memory-backend-memfd` makes it unless `seal=off` is given. Anything else in tmpfs or hugetlbfs
//! (`memory-backend-file`, huge pages) is copied by system calls on this process's own memory, which answer with an error
//! instead. A seal does not help huge pages: a hole punched in the file may find the pool empty when it is touched.
//!
//! Sources: memfd_create(2) and fcntl(2), file seals; process_vm_readv(2); Linux `mm/shmem.c`, `shmem_fallocate`, and
//! `fs/hugetlbfs/inode.c`, `hugetlbfs_punch_hole`; QEMU `qapi/qom.json`, `MemoryBackendMemfdProperties`.
#![expect(unsafe_code, reason = "process_vm_readv(2) and process_vm_writev(2) take addresses")]

use std::fs::File;
use std::io;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};

use super::Unreachable;

/// Magic numbers of file systems. Source: Linux `include/uapi/linux/magic.h`.
const TMPFS: u32 = 0x0102_1994;
const HUGETLBFS: u32 = 0x9584_58f6;

/// How mapped bytes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// By loads and stores: they cannot go away.
    Direct,
    /// By system calls: a touch may fail.
    SystemCall,
}

/// How bytes of `file` have to be reached.
///
/// # Errors
/// What is no file in memory: a page that has to be fetched from elsewhere would hold up all devices.
pub(super) fn reach(file: &File) -> io::Result<Reach> {
    // The type of `f_type` differs by architecture; magic numbers have 32 bits.
    let system = fstatfs(file)?.f_type as u32;
    if !file.metadata()?.is_file() || ![TMPFS, HUGETLBFS].contains(&system) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "guest memory in a file system of type {system:#x} (allowed: tmpfs, hugetlbfs); give the machine \
                 -object memory-backend-memfd,share=on"
            ),
        ));
    }
    let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    Ok(if sealed && system == TMPFS { Reach::Direct } else { Reach::SystemCall })
}

/// This process.
pub(super) fn own() -> i32 {
    // SAFETY: it asks for a number.
    unsafe { libc::getpid() }
}

/// Copies from `at` of a process.
pub(super) fn read(process: i32, at: usize, into: &mut [u8]) -> Result<(), Unreachable> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes at `into`, which is borrowed mutably for the call, and checks every
    // byte at `at` that it reads.
    let copied = unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    all(copied, into.len())
}

/// Copies to `at` of a process.
///
/// # Safety
/// `from.len()` bytes at `at` are a mapping that holds no Rust object, or what that process registered for a device to write; whether
/// they are there is checked.
pub(super) unsafe fn write(process: i32, at: usize, from: &[u8]) -> Result<(), Unreachable> {
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: from.len() };
    // SAFETY: the kernel only reads `from`, and writes where the caller says that nothing of ours is.
    let copied = unsafe { libc::process_vm_writev(process, &raw const local, 1, &raw const remote, 1, 0) };
    all(copied, from.len())
}

/// Copies to `at`, the last byte after all others: the kernel promises no order within a copy.
///
/// # Safety
/// As [`write`].
pub(super) unsafe fn publish(process: i32, at: usize, from: &[u8]) -> Result<(), Unreachable> {
    let (body, last) = from.split_at(from.len().saturating_sub(1));
    // SAFETY: by the caller.
    unsafe { write(process, at, body)? };
    fence(Ordering::Release);
    // SAFETY: by the caller.
    unsafe { write(process, at + body.len(), last) }
}

/// Loads 4 bytes before all loads after it.
pub(super) fn load(process: i32, at: usize) -> Result<[u8; 4], Unreachable> {
    let (mut one, mut two) = ([0; 4], [0; 4]);
    // The kernel may copy byte by byte: two copies that agree are one value. A guest that stores all the time gets the last.
    for _ in 0..4 {
        read(process, at, &mut one)?;
        read(process, at, &mut two)?;
        if one == two {
            break;
        }
    }
    fence(Ordering::Acquire);
    Ok(two)
}

fn all(copied: libc::ssize_t, wanted: usize) -> Result<(), Unreachable> {
    if usize::try_from(copied).is_ok_and(|copied| copied == wanted) { Ok(()) } else { Err(Unreachable) }
}
