//! The memory of a process that calls, by addresses that it may have wrong: copied by the kernel, which answers `EFAULT` where there is
//! none; and its descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use libc::pid_t;
use pollux_uverbs::Errno;

/// A process that makes a device's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client(pid_t);

fn copied(count: isize, bytes: usize) -> Result<(), Errno> {
    if usize::try_from(count) == Ok(bytes) { Ok(()) } else { Err(Errno::EFAULT) }
}

impl Client {
    /// This process.
    pub(crate) fn own() -> Self {
        // SAFETY: it asks for a number.
        Self(unsafe { libc::getpid() })
    }

    /// Another process, which has asked for its calls to be carried out here.
    pub(crate) fn of(process: pid_t) -> Self {
        Self(process)
    }

    /// Copies from the process's memory.
    pub(crate) fn read(self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        if into.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: into.len() };
        // SAFETY: the local part is a slice; the other is read by the kernel, which looks whether it is there.
        let count = unsafe { libc::process_vm_readv(self.0, &raw const local, 1, &raw const remote, 1, 0) };
        copied(count, into.len())
    }

    /// Copies to the process's memory.
    pub(crate) fn write(self, address: u64, from: &[u8]) -> Result<(), Errno> {
        if from.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
        let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(at), iov_len: from.len() };
        // SAFETY: the local part is a slice, which is only read; the other is written by the kernel, where the process said that an
        // answer goes.
        let count = unsafe { libc::process_vm_writev(self.0, &raw const local, 1, &raw const remote, 1, 0) };
        copied(count, from.len())
    }

    /// Writes the number of a descriptor of this process's, which is the program's from now on.
    pub(crate) fn hand_over(place: u64, fd: OwnedFd) -> Result<(), Errno> {
        write(place, &fd.into_raw_fd().to_ne_bytes())
    }

    /// A descriptor of the process's, for this one. Source: pidfd_getfd(2), Linux 5.6.
    pub(crate) fn descriptor(self, number: RawFd) -> Result<OwnedFd, Errno> {
        if self == Self::own() {
            // SAFETY: a number of the program's, which the kernel looks up.
            let file = unsafe { BorrowedFd::borrow_raw(number) };
            return file.try_clone_to_owned().map_err(|_| Errno::EBADF);
        }
        let made = |fd: libc::c_long| {
            let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or(Errno::EBADF)?;
            // SAFETY: a new descriptor, which nobody else knows.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        // SAFETY: numbers alone.
        let process = made(unsafe { libc::syscall(libc::SYS_pidfd_open, self.0, 0) })?;
        // SAFETY: as above.
        made(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
    }
}

/// The process at the other end of a socket, and its user, as they were when it was made. None for a process that has no number here:
/// it is in a container of its own. Source: unix(7), `SO_PEERCRED`; pid_namespaces(7).
pub(super) fn peer(socket: impl AsFd) -> Option<(pid_t, libc::uid_t)> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (fd, place) = (socket.as_fd().as_raw_fd(), (&raw mut found).cast());
    // SAFETY: room for three numbers, which is as long as it is said.
    let status = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut bytes) };
    (status == 0 && found.pid > 0).then_some((found.pid, found.uid))
}

/// Copies from this process's memory.
pub(crate) fn read(address: u64, into: &mut [u8]) -> Result<(), Errno> {
    Client::own().read(address, into)
}

/// Copies to this process's memory.
pub(crate) fn write(address: u64, from: &[u8]) -> Result<(), Errno> {
    Client::own().write(address, from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_a_fault() {
        let mut bytes = [0; 8];
        assert_eq!(read(8, &mut bytes), Err(Errno::EFAULT));
        assert_eq!(write(8, &bytes), Err(Errno::EFAULT));
        let there = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        read(there.as_ptr().expose_provenance() as u64, &mut bytes).expect("there");
        assert_eq!(bytes, there);
    }
}
