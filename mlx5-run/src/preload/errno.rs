//! How a function of the C library fails.

use pollux_uverbs::Errno;

/// Sets `errno`, and gives what the function returns then.
pub(crate) fn fail(errno: Errno) -> libc::c_int {
    set(errno.0);
    -1
}

/// What a function returns that only succeeds or fails.
pub(crate) fn status(answer: Result<(), Errno>) -> libc::c_int {
    answer.map_or_else(fail, |()| 0)
}

/// Sets `errno`.
pub(crate) fn set(errno: i32) {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}
