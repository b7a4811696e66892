//! Threads of this library's own in a program.

use std::io;

/// Starts one, which gets none of the program's signals: they are its own threads' to take.
///
/// # Errors
/// The program may not have another.
pub(super) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // SAFETY: sets of signals, which are numbers alone; one is filled, and the other written.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    // SAFETY: the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started.map(drop)
}
