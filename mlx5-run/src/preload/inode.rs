//! What file a descriptor is of.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use libc::c_int;

use pollux_preload::real;

/// The inode of a descriptor's file, if that is a socket, as all files of devices are here.
pub(super) fn of(fd: RawFd) -> Option<u64> {
    let mut room = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for what is told.
    let status = unsafe { real!(c"fstat": fn(c_int, *mut libc::stat) -> c_int, fd, room.as_mut_ptr()) };
    if status != 0 {
        return None;
    }
    // SAFETY: written, as the status says.
    let told = unsafe { room.assume_init() };
    (told.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(told.st_ino)
}
