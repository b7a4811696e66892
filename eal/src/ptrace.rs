//! ptrace(2), as one who watches system calls of a process needs it.
//!
//! Signals are numbers here, and all of them are passed on: the type for signals of crates that wrap the call has no real-time
//! signals. A stop of one is then lost in their wait. They lack `PTRACE_LISTEN`, too, without which a process that was stopped by
//! SIGSTOP would not stay so while it is watched.
//!
//! Who seizes a thread is a thread itself, not its process: it alone makes these calls, and when it ends the kernel lets go of
//! all that it has seized, whatever they are about.
#![expect(unsafe_code, reason = "ptrace(2)")]

use std::io;

/// `PTRACE_GET_SYSCALL_INFO`. Source: Linux `include/uapi/linux/ptrace.h`.
const GET_SYSCALL_INFO: libc::c_int = 0x420e;
/// Numbers of [`CallStop`], of the same file.
const ENTRY: u8 = 1;
const EXIT: u8 = 2;

/// Where a thread stands that stopped for a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStop {
    /// In front of the call.
    Entry {
        /// The processor's architecture that the call is of. Source: Linux `include/uapi/linux/audit.h`.
        arch: u32,
        /// Number of the call.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// Behind it.
    Exit {
        /// What it returns; of a failed one the negative error number.
        value: i64,
        /// Whether it failed.
        failed: bool,
    },
    /// At neither.
    Neither,
}

/// A request without memory of ours in it.
fn ask(request: libc::c_uint, thread: i32, data: usize) -> io::Result<()> {
    // SAFETY: the requests of this module carry numbers alone. What they change is the other process, which the kernel decides on.
    let answer = unsafe { libc::ptrace(request as _, thread, std::ptr::null_mut::<libc::c_void>(), data) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Begins to watch a thread, which runs on. Threads and processes that it makes are seized with it, and stop when they begin; it
/// stops when it executes a program.
///
/// # Errors
/// EPERM: not allowed, or somebody watches it already. ESRCH: there is no such thread.
pub fn seize(thread: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC;
    ask(libc::PTRACE_SEIZE, thread, usize::try_from(options).unwrap_or_default())
}

/// Has a seized thread stop.
///
/// # Errors
/// ESRCH: it is gone.
pub fn interrupt(thread: i32) -> io::Result<()> {
    ask(libc::PTRACE_INTERRUPT, thread, 0)
}

/// Lets a stopped thread run up to the next system call or its end, with a signal (0 is none).
///
/// # Errors
/// ESRCH: it is gone, or does not stand still.
pub fn run_to_call(thread: i32, signal: i32) -> io::Result<()> {
    ask(libc::PTRACE_SYSCALL, thread, usize::try_from(signal).unwrap_or_default())
}

/// Leaves a thread of a stopped process (SIGSTOP) as it is, and waits for SIGCONT with it.
///
/// # Errors
/// ESRCH: it is gone, or not stopped so.
pub fn listen(thread: i32) -> io::Result<()> {
    ask(libc::PTRACE_LISTEN, thread, 0)
}

/// Lets go of a thread that stands still.
///
/// # Errors
/// ESRCH: it is gone, or does not stand still.
pub fn detach(thread: i32) -> io::Result<()> {
    ask(libc::PTRACE_DETACH, thread, 0)
}

/// Which call a thread stopped for.
///
/// # Errors
/// ESRCH: it is gone. EIO: the kernel is older than Linux 5.3.
pub fn call_stop(thread: i32) -> io::Result<CallStop> {
    let mut info = [0_u64; 11];
    let room = size_of_val(&info);
    // SAFETY: the kernel writes `room` bytes to `info` at most, and that is how long it is.
    let answer = unsafe { libc::ptrace(GET_SYSCALL_INFO as _, thread, room, info.as_mut_ptr()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(parse(&info))
}

/// Takes a `struct ptrace_syscall_info` apart. Source: Linux `include/uapi/linux/ptrace.h`.
fn parse(info: &[u64; 11]) -> CallStop {
    let [head, _instruction, _stack, first, second, ..] = *info;
    let [op, _, _, _, arch @ ..] = head.to_ne_bytes();
    match op {
        ENTRY => {
            let mut arguments = [0; 6];
            arguments.copy_from_slice(&info[4..10]);
            CallStop::Entry { arch: u32::from_ne_bytes(arch), number: first, arguments }
        }
        EXIT => CallStop::Exit { value: first.cast_signed(), failed: second.to_ne_bytes()[0] != 0 },
        _ => CallStop::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_told_apart() {
        let head = |op: u8| u64::from_ne_bytes([op, 0, 0, 0, 0x3e, 0, 0, 0xc0]);
        let arch = u32::from_ne_bytes([0x3e, 0, 0, 0xc0]);
        let entry = parse(&[head(1), 1, 2, 16, 3, 4, 5, 6, 7, 8, 0]);
        assert_eq!(entry, CallStop::Entry { arch, number: 16, arguments: [3, 4, 5, 6, 7, 8] });
        let failed = u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]);
        let exit = parse(&[head(2), 1, 2, (-25_i64).cast_unsigned(), failed, 0, 0, 0, 0, 0, 0]);
        assert_eq!(exit, CallStop::Exit { value: -25, failed: true });
        let exit = parse(&[head(2), 1, 2, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(exit, CallStop::Exit { value: 7, failed: false });
        assert_eq!(parse(&[head(0); 11]), CallStop::Neither);
    }

    #[test]
    fn what_is_refused_is_an_error() {
        // No process has this number.
        for refused in [
            seize(i32::MAX),
            interrupt(i32::MAX),
            run_to_call(i32::MAX, 0),
            listen(i32::MAX),
            detach(i32::MAX),
        ] {
            assert_eq!(refused.map_err(|why| why.raw_os_error()), Err(Some(libc::ESRCH)));
        }
        assert!(call_stop(i32::MAX).is_err());
    }
}
