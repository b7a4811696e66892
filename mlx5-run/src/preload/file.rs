//! Files by path and by descriptor: those of the devices, and what describes them, stand in for what the program names.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::plan::Plan;
use libc::{DIR, FILE, c_char, c_int, c_uint, mode_t, size_t, ssize_t};
use pollux_uverbs::Errno;

use super::errno::fail;
use super::{descriptor, manager, netdev, opened, planned};
use pollux_preload::{errno, real};

/// A file that this library answers.
#[derive(Clone, Copy)]
enum Special {
    /// A device's, by number.
    Device(usize),
    /// The connection manager's.
    Manager,
}

/// Where a path leads.
enum Place {
    /// A file that this library answers.
    Special(&'static Plan, Special),
    /// A file of the folder that stands for `/sys`.
    Ours(CString),
    /// Somewhere else.
    Elsewhere,
}

/// Parts of `/sys` that are the plan's alone.
const WHOLE: &[&str] =
    &["class/infiniband", "class/infiniband_verbs", "bus/pci/devices", "bus/pci/drivers/mlx5_core"];

fn place(path: *const c_char) -> Place {
    let Some(plan) = planned::plan() else { return Place::Elsewhere };
    if path.is_null() {
        return Place::Elsewhere;
    }
    // SAFETY: a path of the program's, which the C library would read as far as its zero too.
    let path = unsafe { CStr::from_ptr(path) };
    let Ok(text) = path.to_str() else { return Place::Elsewhere };
    if let Some(number) = plan.by_file(text) {
        return Place::Special(plan, Special::Device(number));
    }
    if text == manager::PATH {
        return Place::Special(plan, Special::Manager);
    }
    let Some(below) = text.strip_prefix("/sys/") else {
        // Programs that know the folder name its files.
        netdev::live::bring(plan, Path::new(text));
        return Place::Elsewhere;
    };
    let ours = plan.sysfs.join(below);
    let whole = WHOLE.iter().any(|part| Path::new(below).starts_with(part));
    if !whole && !exists(&ours) {
        return Place::Elsewhere;
    }
    netdev::live::bring(plan, &ours);
    CString::new(ours.as_os_str().as_bytes()).map_or(Place::Elsewhere, Place::Ours)
}

fn exists(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a path that ends with a zero.
    unsafe { real!(c"access": fn(*const c_char, c_int) -> c_int, path.as_ptr(), libc::F_OK) == 0 }
}

impl Place {
    /// The path that a function goes on with, of what the program named.
    fn path(&self, named: *const c_char) -> *const c_char {
        match self {
            Self::Ours(ours) => ours.as_ptr(),
            Self::Special(..) | Self::Elsewhere => named,
        }
    }
}

fn open_special(plan: &Plan, which: Special, flags: c_int) -> c_int {
    let open = || match which {
        Special::Device(number) => opened::open(plan, number, flags & libc::O_CLOEXEC != 0),
        Special::Manager => manager::open(plan, flags),
    };
    match std::panic::catch_unwind(open) {
        Ok(Ok(fd)) => fd,
        Ok(Err(errno)) => fail(errno),
        Err(_) => fail(Errno::EIO),
    }
}

/// Functions that open a file by its path, with the flags behind it, and a mode for files that are made.
macro_rules! opens {
    ($($name:ident, $real:literal);+ $(;)?) => {$(
        /// As open(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let place = place(path);
            if let Place::Special(plan, which) = place {
                return open_special(plan, which, flags);
            }
            // SAFETY: the program's arguments, or a path of ours.
            unsafe { real!($real: fn(*const c_char, c_int, mode_t) -> c_int, place.path(path), flags, mode) }
        }
    )+};
}

opens! {
    open, c"open";
    open64, c"open64";
    __open_2, c"__open_2";
    __open64_2, c"__open64_2";
}

/// The same, relative to a folder.
macro_rules! opens_at {
    ($($name:ident, $real:literal);+ $(;)?) => {$(
        /// As openat(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let place = place(path);
            if let Place::Special(plan, which) = place {
                return open_special(plan, which, flags);
            }
            // SAFETY: the program's arguments, or a path of ours.
            unsafe {
                real!($real: fn(c_int, *const c_char, c_int, mode_t) -> c_int, folder, place.path(path), flags, mode)
            }
        }
    )+};
}

opens_at! {
    openat, c"openat";
    openat64, c"openat64";
    __openat_2, c"__openat_2";
    __openat64_2, c"__openat64_2";
}

impl Special {
    /// The file of a descriptor, if it is one of these.
    fn of(fd: c_int) -> Option<Self> {
        let device = opened::find(fd).map(|(number, _)| Self::Device(number));
        device.or_else(|| manager::find(fd).map(|_| Self::Manager))
    }

    /// Numbers of the device that it is, major and minor.
    fn numbers(self) -> (c_uint, c_uint) {
        match self {
            Self::Device(number) => {
                let (major, first) = Plan::FIRST_FILE;
                (major, first + u32::try_from(number).unwrap_or(0))
            }
            Self::Manager => manager::NUMBERS,
        }
    }
}

/// Makes what stat tells of a descriptor's or a path's file that of a device's.
fn as_device(which: Special, into: *mut libc::stat) {
    let (major, minor) = which.numbers();
    // SAFETY: room of the program's that the C library has just written.
    unsafe {
        (*into).st_mode = libc::S_IFCHR | 0o666;
        (*into).st_rdev = libc::makedev(major, minor);
    }
}

/// Functions that tell about a file by its path.
macro_rules! tells {
    ($($name:ident, $real:literal);+ $(;)?) => {$(
        /// As stat(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, into: *mut libc::stat) -> c_int {
            let place = place(path);
            if let Place::Special(_, which) = place {
                // Where it would stand is a file for the rest.
                // SAFETY: the program's room, and a path of ours.
                let status = unsafe {
                    real!($real: fn(*const c_char, *mut libc::stat) -> c_int, c"/dev/null".as_ptr(), into)
                };
                if status == 0 {
                    as_device(which, into);
                }
                return status;
            }
            // SAFETY: the program's arguments, or a path of ours.
            unsafe { real!($real: fn(*const c_char, *mut libc::stat) -> c_int, place.path(path), into) }
        }
    )+};
}

tells! {
    stat, c"stat";
    stat64, c"stat64";
    lstat, c"lstat";
    lstat64, c"lstat64";
}

/// Functions that tell about a descriptor's file.
macro_rules! tells_by_descriptor {
    ($($name:ident, $real:literal);+ $(;)?) => {$(
        /// As fstat(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(fd: c_int, into: *mut libc::stat) -> c_int {
            // SAFETY: the program's arguments.
            let status = unsafe { real!($real: fn(c_int, *mut libc::stat) -> c_int, fd, into) };
            if status == 0
                && let Some(which) = Special::of(fd)
            {
                as_device(which, into);
            }
            status
        }
    )+};
}

tells_by_descriptor! {
    fstat, c"fstat";
    fstat64, c"fstat64";
}

/// As access(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn access(path: *const c_char, rights: c_int) -> c_int {
    let place = place(path);
    if let Place::Special(..) = place {
        return 0;
    }
    // SAFETY: the program's arguments, or a path of ours.
    unsafe { real!(c"access": fn(*const c_char, c_int) -> c_int, place.path(path), rights) }
}

/// As opendir(3).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    let place = place(path);
    // SAFETY: the program's argument, or a path of ours.
    unsafe { real!(c"opendir": fn(*const c_char) -> *mut DIR, place.path(path)) }
}

/// As readlink(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn readlink(path: *const c_char, into: *mut c_char, bytes: size_t) -> ssize_t {
    let place = place(path);
    // SAFETY: the program's arguments, or a path of ours.
    unsafe {
        real!(c"readlink": fn(*const c_char, *mut c_char, size_t) -> ssize_t, place.path(path), into, bytes)
    }
}

/// As realpath(3).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    let place = place(path);
    // SAFETY: the program's arguments, or a path of ours.
    unsafe { real!(c"realpath": fn(*const c_char, *mut c_char) -> *mut c_char, place.path(path), into) }
}

/// Functions that open a stream.
macro_rules! streams {
    ($($name:ident, $real:literal);+ $(;)?) => {$(
        /// As fopen(3).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            let place = place(path);
            // SAFETY: the program's arguments, or a path of ours.
            unsafe { real!($real: fn(*const c_char, *const c_char) -> *mut FILE, place.path(path), mode) }
        }
    )+};
}

streams! {
    fopen, c"fopen";
    fopen64, c"fopen64";
}

/// Ends the files whose last descriptor is closed.
fn end_closed() {
    opened::end_closed();
    manager::end_closed();
}

/// As close(2): with a file's last descriptor all that was made through it goes.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if descriptor::is_kept(fd) {
        // The program has none of that number.
        return fail(Errno::EBADF);
    }
    let is_ours = Special::of(fd).is_some();
    netdev::netlink::closed(fd);
    // SAFETY: the program's argument.
    let status = unsafe { real!(c"close": fn(c_int) -> c_int, fd) };
    if is_ours {
        let told = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let _panicked = std::panic::catch_unwind(end_closed);
        errno::set(told);
    }
    status
}

/// As close_range(2), but for descriptors that are not the program's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: the program's arguments, or a part of the range.
    let real = |first: c_uint, last: c_uint| unsafe {
        real!(c"close_range": fn(c_uint, c_uint, c_int) -> c_int, first, last, flags)
    };
    let mut from = first;
    for kept in descriptor::kept_in(first, last) {
        if from < kept && real(from, kept - 1) != 0 {
            return -1;
        }
        from = kept + 1;
    }
    let status = if from <= last || first > last { real(from, last) } else { 0 };
    if opened::any() || manager::any() {
        let told = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let _panicked = std::panic::catch_unwind(end_closed);
        errno::set(told);
    }
    status
}

/// As closefrom(3).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the program's argument.
    let _status = unsafe { close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) };
}

/// As statx(2), which tells of a device's file only that it is there and what it is.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut libc::statx,
) -> c_int {
    let by_path = place(path);
    let which = match &by_path {
        Place::Special(_, which) => Some(*which),
        // An empty path means the descriptor's own file.
        Place::Elsewhere if flags & libc::AT_EMPTY_PATH != 0 => Special::of(folder),
        _ => None,
    };
    let (folder, path) = match &by_path {
        Place::Special(..) => (libc::AT_FDCWD, c"/dev/null".as_ptr()),
        _ => (folder, by_path.path(path)),
    };
    // SAFETY: the program's arguments, or a path of ours.
    let status = unsafe {
        real!(c"statx": fn(c_int, *const c_char, c_int, c_uint, *mut libc::statx) -> c_int, folder, path, flags, mask, into)
    };
    if let (0, Some(which)) = (status, which) {
        let (major, minor) = which.numbers();
        // SAFETY: room of the program's that the C library has just written.
        unsafe {
            (*into).stx_mode = (libc::S_IFCHR | 0o666) as u16;
            (*into).stx_rdev_major = major;
            (*into).stx_rdev_minor = minor;
        }
    }
    status
}
