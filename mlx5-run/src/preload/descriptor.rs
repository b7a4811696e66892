//! Descriptors of this library's own in a program.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use pollux_uverbs::Errno;

/// The same descriptor where programs that count on small numbers are not disturbed.
pub(crate) fn high(fd: RawFd) -> Result<OwnedFd, Errno> {
    const FIRST: libc::c_int = 900;
    for first in [FIRST, 0] {
        // SAFETY: a number of a descriptor, which the kernel looks up.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, first) };
        if copy >= 0 {
            // SAFETY: a new descriptor, which nobody else knows.
            return Ok(unsafe { OwnedFd::from_raw_fd(copy) });
        }
    }
    Err(io::Error::last_os_error().into())
}

/// A descriptor moved there.
pub(super) fn raised(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    high(fd.as_raw_fd())
}
