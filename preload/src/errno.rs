//! The errno of the calling thread.
#![expect(unsafe_code, reason = "a place that the C library names")]

use libc::c_int;

/// Its value.
#[must_use]
pub fn get() -> c_int {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Changes it.
pub fn set(errno: c_int) {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_threads_own() {
        set(libc::EAGAIN);
        std::thread::spawn(|| set(libc::EBADF)).join().expect("it ends");
        assert_eq!(get(), libc::EAGAIN);
    }
}
