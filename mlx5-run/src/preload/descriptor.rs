//! Descriptors of this library's own in a program.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use libc::{c_int, c_uint};
use pollux_uverbs::Errno;

use crate::DESCRIPTORS_FROM;
use pollux_preload::real;

/// Makes what has descriptors of its own, such as a device with its wire, so that they have none of the small numbers: a program that puts
/// a file on a number of its choice, as a shell does, would end them. Wires' sockets and devices' memory among
/// them are kept from the program for as long as it lives.
pub(super) fn high_inside<T>(make: impl FnOnce() -> T) -> T {
    let mut small = Vec::new();
    // SAFETY: no arguments but numbers.
    let mut next = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    while (0..DESCRIPTORS_FROM).contains(&next) {
        // SAFETY: new, and nobody else knows it.
        small.push(unsafe { OwnedFd::from_raw_fd(next) });
        // SAFETY: a descriptor that is ours.
        next = unsafe { libc::fcntl(next, libc::F_DUPFD_CLOEXEC, 0) };
    }
    if next < 0 {
        // The program may not have so many: what is made has what it finds.
        small.clear();
    } else {
        // SAFETY: as above.
        small.push(unsafe { OwnedFd::from_raw_fd(next) });
    }
    let before = of_devices();
    let made = make();
    drop(small);
    of_devices().into_iter().filter(|fd| !before.contains(fd)).for_each(keep);
    made
}

/// The descriptors from [`DESCRIPTORS_FROM`] on that are of a kind that devices have. Other threads of the program may make some of
/// their own at the same time, and rarely of these.
fn of_devices() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let entries = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let fd = entry.file_name().to_str()?.parse().ok().filter(|fd| *fd >= DESCRIPTORS_FROM)?;
        let is_memory = std::fs::read_link(entry.path())
            .is_ok_and(|file| file.as_os_str().as_bytes().starts_with(b"/memfd:mlx5"));
        (is_memory || is_wires(fd)).then_some(fd)
    });
    entries.collect()
}

/// Whether a descriptor is a socket as wires have: datagrams of this machine's, or frames of an interface's.
fn is_wires(fd: RawFd) -> bool {
    let option = |name| {
        let (mut value, mut bytes) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        let place = (&raw mut value).cast();
        // SAFETY: room for a number, which is as long as it is said.
        let status = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &raw mut bytes) };
        (status == 0).then_some(value)
    };
    match option(libc::SO_DOMAIN) {
        Some(libc::AF_UNIX) => option(libc::SO_TYPE) == Some(libc::SOCK_DGRAM),
        domain => domain == Some(libc::AF_PACKET),
    }
}

/// The same descriptor where programs that count on small numbers are not disturbed.
pub(crate) fn high(fd: RawFd) -> Result<OwnedFd, Errno> {
    for first in [DESCRIPTORS_FROM, 0] {
        // SAFETY: a number of a descriptor, which the kernel looks up.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, first) };
        if copy >= 0 {
            // SAFETY: a new descriptor, which nobody else knows.
            return Ok(unsafe { OwnedFd::from_raw_fd(copy) });
        }
    }
    Err(io::Error::last_os_error().into())
}

/// Most files of the connection manager at a time: an ID that waits for its events by itself has one of its own.
pub(super) const FILES_MAX: usize = 4096;
/// Most descriptors that are kept from the program: two for each of those files, its other end and a copy for a thread that waits, and those
/// of the devices.
const KEPT_MAX: usize = 2 * FILES_MAX + 256;
/// Numbers of them; 0 where there is none. No lock: a process may fork at any time.
static KEPT: [AtomicI32; KEPT_MAX] = [const { AtomicI32::new(0) }; KEPT_MAX];
/// Places that were ever taken.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A descriptor of this library's own: programs that close what they find do not close it.
#[derive(Debug)]
pub(super) struct Kept(ManuallyDrop<OwnedFd>);

/// Keeps a descriptor from the program. Beyond so many places one is the program's to close.
fn keep(number: RawFd) {
    let free =
        |place: &&AtomicI32| place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if let Some(place) = KEPT.iter().position(|place| free(&place)) {
        USED.fetch_max(place + 1, Ordering::AcqRel);
    }
}

impl Kept {
    /// Moves a descriptor out of the program's way.
    pub(super) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        Self::copy_of(fd.as_raw_fd())
    }

    /// A further descriptor of a file, out of the program's way.
    pub(super) fn copy_of(fd: RawFd) -> Result<Self, Errno> {
        let fd = high(fd)?;
        keep(fd.as_raw_fd());
        Ok(Self(ManuallyDrop::new(fd)))
    }
}

impl Deref for Kept {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.0
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let number = self.0.as_raw_fd();
        for place in kept() {
            let _other = place.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        // SAFETY: it is not used again.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) }.into_raw_fd();
        // Not by the program's close(2), which asks whose file it was and takes locks for that: whoever drops this may have them.
        // SAFETY: a descriptor that nobody else knows.
        unsafe { real!(c"close": fn(c_int) -> c_int, fd) };
    }
}

fn kept() -> &'static [AtomicI32] {
    &KEPT[..USED.load(Ordering::Acquire)]
}

/// Whether a descriptor is this library's own.
pub(super) fn is_kept(fd: RawFd) -> bool {
    fd > 0 && kept().iter().any(|place| place.load(Ordering::Acquire) == fd)
}

/// Those of a range of numbers that are, in order.
pub(super) fn kept_in(first: c_uint, last: c_uint) -> Vec<c_uint> {
    let numbers = kept().iter().map(|place| place.load(Ordering::Acquire)).filter(|number| *number > 0);
    let mut all: Vec<c_uint> =
        numbers.map(i32::cast_unsigned).filter(|number| (first..=last).contains(number)).collect();
    all.sort_unstable();
    all
}
