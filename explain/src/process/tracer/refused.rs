//! Why a process cannot be traced, where the kernel says only that it cannot.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{geteuid, getpid};

use crate::process::plain;

/// A line of `/proc/PID/status`, by its name.
pub(super) fn status(thread: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// A number at the beginning of such a line.
pub(super) fn number(thread: u32, name: &str) -> Option<u32> {
    status(thread, name)?.split_whitespace().next()?.parse().ok()
}

/// What the kernel's answer means for this process, in one line.
pub(crate) fn because(pid: u32, why: io::Error) -> io::Error {
    let errno = Errno::from_io_error(&why);
    if matches!(errno, Some(Errno::NOENT | Errno::SRCH)) {
        return io::Error::new(why.kind(), "there is no such process");
    }
    if !matches!(errno, Some(Errno::PERM | Errno::ACCESS)) {
        return why;
    }
    io::Error::new(why.kind(), format!("cannot be traced: {}", reason(pid)))
}

fn reason(pid: u32) -> String {
    if getpid().as_raw_nonzero().get().cast_unsigned() == pid {
        return "it is `explain` itself".into();
    }
    if status(pid, "State").is_some_and(|state| state.starts_with('Z')) {
        return "it has ended, and nobody has waited for it yet".into();
    }
    if let Some(tracer) = number(pid, "TracerPid").filter(|tracer| *tracer != 0) {
        // It is a thread, whose process has the name that people know.
        let tracer = number(tracer, "Tgid").unwrap_or(tracer);
        let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        return format!("process {tracer} ({}) traces it already", plain(name.trim()));
    }
    let (own, its) = (geteuid().as_raw(), number(pid, "Uid"));
    if let Some(its) = its.filter(|its| own != 0 && *its != own) {
        return format!("it is of user {its}, and this is user {own}; run `explain` as that user or as root");
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "1" if own != 0 => "kernel.yama.ptrace_scope is 1: a process traces its own children alone; run `explain` as root, or set it to 0".into(),
        "2" => "kernel.yama.ptrace_scope is 2: this needs CAP_SYS_PTRACE; run `explain` as root".into(),
        "3" => "kernel.yama.ptrace_scope is 3: nobody may trace until the next boot".into(),
        _ => "it has rights that `explain` lacks, is a kernel thread, or is not dumpable (prctl(2), PR_SET_DUMPABLE); run `explain` as root, in the same container".into(),
    }
}
