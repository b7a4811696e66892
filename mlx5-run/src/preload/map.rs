//! Pages of a device in the program's address space.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use libc::{c_int, c_void, off_t, size_t};
use pollux_uverbs::Errno;

use super::errno::fail;
use super::host;
use super::opened::{self, Answers};
use super::pages::{self, COUNT, protection};
use pollux_preload::errno::set;
use pollux_preload::real;

fn map(
    fd: c_int,
    hint: *mut c_void,
    bytes: usize,
    rights: c_int,
    flags: c_int,
    offset: off_t,
) -> Option<Result<*mut c_void, Errno>> {
    if flags & libc::MAP_ANONYMOUS != 0 {
        return None;
    }
    let (_, answers) = opened::find(fd)?;
    let mapped = || {
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let channel = match answers {
            Answers::Channel(channel) => channel,
            Answers::Host(_) if flags & libc::MAP_SHARED == 0 => return Err(Errno::EINVAL),
            Answers::Host(inode) => return host::map(inode, hint, bytes, rights, flags, offset),
        };
        // Pages stand where the device has them.
        if flags & libc::MAP_FIXED != 0 && !hint.is_null() || flags & libc::MAP_SHARED == 0 {
            return Err(Errno::EINVAL);
        }
        let page = channel.map(offset, bytes, protection(rights))?;
        let base = page.base();
        let mut pages = pages::lock();
        pages.entry(base.as_ptr().addr()).or_default().push(page);
        COUNT.store(pages.len(), Ordering::Release);
        Ok(base.as_ptr().cast())
    };
    Some(catch_unwind(AssertUnwindSafe(mapped)).unwrap_or(Err(Errno::EIO)))
}

/// Functions that map a file.
macro_rules! maps {
    ($($name:ident, $real:literal);+ $(;)?) => {$(
        /// As mmap(2).
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            hint: *mut c_void,
            bytes: size_t,
            rights: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            match map(fd, hint, bytes, rights, flags, offset) {
                Some(Ok(base)) => base,
                Some(Err(errno)) => {
                    set(errno.0);
                    libc::MAP_FAILED
                }
                // SAFETY: the program's arguments.
                None => unsafe {
                    real!($real: fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void,
                        hint, bytes, rights, flags, fd, offset)
                },
            }
        }
    )+};
}

maps! {
    mmap, c"mmap";
    mmap64, c"mmap64";
}

/// As munmap(2).
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(base: *mut c_void, bytes: size_t) -> c_int {
    if COUNT.load(Ordering::Acquire) > 0 {
        let mut pages = pages::lock();
        let mapped = pages.get_mut(&base.addr());
        let taken = mapped.map(|mapped| {
            let index = mapped.iter().position(|page| page.bytes() == bytes)?;
            Some((mapped.swap_remove(index), mapped.is_empty()))
        });
        let whole = taken.as_ref().map(Option::is_some);
        let page = taken.flatten().map(|(page, last)| {
            if last {
                pages.remove(&base.addr());
            }
            page
        });
        COUNT.store(pages.len(), Ordering::Release);
        drop(pages);
        match whole {
            Some(true) => {
                drop(page);
                return 0;
            }
            Some(false) => return fail(Errno::EINVAL),
            None => {}
        }
    }
    // SAFETY: the program's arguments.
    unsafe { real!(c"munmap": fn(*mut c_void, size_t) -> c_int, base, bytes) }
}
