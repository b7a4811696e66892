//! How a function of the C library fails.

use pollux_preload::errno::set;
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
