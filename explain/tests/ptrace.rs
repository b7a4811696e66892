//! `explain --pid --follow` of a program that is none of ours: its calls, threads, signals and ends, and how it is left.
//!
//! The program is this test's own, which starts itself in a mount namespace that has a `/dev/infiniband/uverbs0`: an ordinary file, which
//! knows no ioctl and takes every write. It does what it reads on its standard input, and ends when that does.
#![expect(unsafe_code, reason = "system calls as a foreign program makes them")]

#[path = "ptrace/target.rs"]
mod target;

use std::process::Command;
use std::time::{Duration, Instant};

use pollux_tests::patience::patient;
use pollux_tests::program::{Running, with_default_signals};

use self::target::Target;

const END: Duration = Duration::from_secs(20);

/// The program; what it says goes to standard error, where a test sees it at once.
fn explain(arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" >&2", env!("CARGO_BIN_EXE_explain")]).args(arguments);
    with_default_signals(&command)
}

/// Watches a program, whose calls are told once this returns.
fn follow(target: &Target) -> Running {
    let mut running = Running::start(explain(&["--pid", &target.pid().to_string(), "--follow"]));
    let _ = running.wait_for("calls from now on:");
    running
}

/// A line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn wait(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < patient(END), "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Nobody traces any thread of it, and it does what it is told.
fn is_unharmed(target: &mut Target) {
    let pid = target.pid();
    wait("a program that nobody traces", || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut tracers = threads.map(|thread| {
            let thread = thread.file_name().to_str().and_then(|name| name.parse().ok());
            status(thread.unwrap_or(pid), "TracerPid")
        });
        tracers.all(|tracer| tracer == "0")
    });
    assert_eq!(target.ask("count"), "0 0 0", "signals that nobody sent");
    assert_eq!(target.ask("open"), "done");
}

#[test]
fn calls_are_told_with_what_the_kernel_answered() {
    let Some(mut target) = Target::start() else { return };
    let mut explain = follow(&target);
    for word in ["open", "ioctl", "write", "extended", "map", "unmap", "dup", "close", "missing"] {
        assert_eq!(target.ask(word), "done", "{word}");
    }
    let last = explain.wait_for("open uverbs9 -> ");
    assert!(last.ends_with(" open uverbs9 -> ENOENT"), "{last}");
    explain.signal(libc::SIGINT);
    let finished = explain.finish(END);
    let said = finished.stderr.join("\n");
    for wanted in [
        "   1 open uverbs0 -> ok",
        "   2 QP/CREATE, ioctl method -> ENOTTY",
        "        PD_HANDLE handle 7",
        "        USER_HANDLE 0x1122334455667788",
        "        CAP ib_uverbs_qp_cap: max_send_wr=0x10",
        "        SEND_CQ_HANDLE handle 3",
        "   3 ALLOC_PD, write(2) -> ok",
        "        core ib_uverbs_alloc_pd: response=0x",
        "     => core ib_uverbs_alloc_pd_resp: pd_handle=0x2a",
        "   4 EX_QUERY_DEVICE, write(2) -> ok",
        "   5 mmap pages of the device (offset 0x500000): 4096 bytes, Read -> ok",
        "   6 munmap pages of the device (offset 0x500000): 4096 bytes -> ok",
        "   7 dup: descriptor ",
        "   8 close: the channel is gone, and 0 queue pairs with it",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(finished.status.code(), Some(0), "{said}");
    let all = "in all: 1 dups, 1 maps, 1 methods, 2 opens, 2 plain writes, 1 unmaps";
    assert_eq!(finished.stderr.last().map(String::as_str), Some(all), "{said}");
    is_unharmed(&mut target);
}

#[test]
fn threads_are_followed_from_their_beginning() {
    let Some(mut target) = Target::start() else { return };
    assert_eq!(target.ask("open"), "done");
    assert_eq!(target.ask("threads"), "done");
    let mut explain = follow(&target);
    // Two that were there, and one that is made now.
    for word in ["first", "second", "made"] {
        assert_eq!(target.ask(word), "done", "{word}");
    }
    let _ = explain.wait_for("   3 QP/CREATE, ioctl method -> ENOTTY");
    let finished = explain.interrupt();
    assert!(finished.status.success());
    is_unharmed(&mut target);
}

#[test]
fn every_signal_goes_on() {
    let Some(mut target) = Target::start() else { return };
    let explain = follow(&target);
    let mut counts = [0; 3];
    let signals = [libc::SIGUSR1, libc::SIGTRAP, libc::SIGRTMIN() + 3];
    for (index, signal) in signals.into_iter().enumerate().cycle().take(9) {
        target.signal(signal);
        counts[index] += 1;
        let wanted = counts.map(|count: i32| count.to_string()).join(" ");
        wait("a signal", || target.ask("count") == wanted);
    }
    assert_eq!(target.ask("zero"), "done");
    assert!(explain.interrupt().status.success());
    is_unharmed(&mut target);
}

#[test]
fn a_program_that_is_stopped_stays_so_until_it_goes_on() {
    let Some(mut target) = Target::start() else { return };
    let mut explain = follow(&target);
    for left in [false, true] {
        target.signal(libc::SIGSTOP);
        assert!(target.is_stopped(), "its parent was not told");
        target.tell("open");
        assert_eq!(target.hear(Duration::from_millis(300)), None, "it runs");
        if left {
            // Stopped it is left, and stopped it stays.
            explain.signal(libc::SIGTERM);
            assert!(explain.finish(END).status.success());
            assert!(status(target.pid(), "State").starts_with('T'), "{}", status(target.pid(), "State"));
            assert_eq!(target.hear(Duration::from_millis(300)), None, "it runs");
            target.signal(libc::SIGCONT);
            assert_eq!(target.hear(END).as_deref(), Some("done"));
            break;
        }
        target.signal(libc::SIGCONT);
        assert_eq!(target.hear(END).as_deref(), Some("done"));
        let _ = explain.wait_for("   1 open uverbs0 -> ok");
    }
    is_unharmed(&mut target);
}

#[test]
fn a_program_that_is_stopped_already_can_be_watched() {
    let Some(mut target) = Target::start() else { return };
    target.signal(libc::SIGSTOP);
    assert!(target.is_stopped());
    let mut explain = follow(&target);
    target.tell("open");
    assert_eq!(target.hear(Duration::from_millis(300)), None, "it runs");
    target.signal(libc::SIGCONT);
    assert_eq!(target.hear(END).as_deref(), Some("done"));
    let _ = explain.wait_for("   1 open uverbs0 -> ok");
    assert!(explain.interrupt().status.success());
    is_unharmed(&mut target);
}

#[test]
fn children_are_let_go_and_programs_that_are_executed_followed() {
    let Some(mut target) = Target::start() else { return };
    let mut explain = follow(&target);
    assert_eq!(target.ask("open"), "done");
    // The child makes a call, too.
    assert_eq!(target.ask("child"), "done");
    let pid = target.pid();
    let child = explain.wait_for(&format!("process {pid} makes process "));
    assert!(child.ends_with(", whose calls are not told here"), "{child}");
    assert_eq!(target.ask("spawn"), "done");
    assert_eq!(target.ask("threads"), "done");
    // By a thread that is not the first one.
    assert_eq!(target.ask("exec"), "ready");
    let executes = explain.wait_for(&format!("process {pid} executes: "));
    assert!(executes.contains("target_program"), "{executes}");
    let _ = explain.wait_for("close: the channel is gone");
    for word in ["open", "ioctl"] {
        assert_eq!(target.ask(word), "done", "{word}");
    }
    let _ = explain.wait_for(" QP/CREATE, ioctl method -> ENOTTY");
    let finished = explain.interrupt();
    let opens = finished.stderr.iter().filter(|line| line.contains("open uverbs0 -> ok")).count();
    assert_eq!((opens, finished.status.code()), (2, Some(0)), "{:?}", finished.stderr);
    let children = finished.stderr.iter().filter(|line| line.contains(" makes process ")).count();
    assert_eq!(children, 2, "{:?}", finished.stderr);
    is_unharmed(&mut target);
}

#[test]
fn the_end_of_explain_leaves_the_program_as_it_was() {
    let Some(mut target) = Target::start() else { return };
    assert_eq!(target.ask("threads"), "done");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL] {
        // While a thread makes calls as fast as it can, and others wait.
        assert_eq!(target.ask("busy"), "done");
        let explain = follow(&target);
        assert_ne!(status(target.pid(), "TracerPid"), "0");
        explain.signal(signal);
        if signal == libc::SIGKILL {
            explain.kill();
        } else {
            let finished = explain.finish(END);
            assert_eq!(finished.status.code(), Some(0), "{:?}", finished.stderr);
            assert!(finished.stderr.last().is_some_and(|line| line.starts_with("in all: ")));
        }
        assert_eq!(target.ask("idle"), "done");
        is_unharmed(&mut target);
    }
}

#[test]
fn the_end_of_the_program_is_told() {
    for (word, wanted) in [("exit", "has ended, status 7"), ("kill", "was ended by signal 9")] {
        let Some(mut target) = Target::start() else { return };
        assert_eq!(target.ask("open"), "done");
        assert_eq!(target.ask("threads"), "done");
        let explain = follow(&target);
        let pid = target.pid();
        match word {
            "kill" => target.signal(libc::SIGKILL),
            _ => target.tell(word),
        }
        let finished = explain.finish(END);
        assert_eq!(finished.status.code(), Some(0), "{:?}", finished.stderr);
        let line = format!("process {pid} {wanted}");
        assert!(finished.stderr.contains(&line), "{line}: {:?}", finished.stderr);
        let close = "   1 close: the channel is gone, and 0 queue pairs with it";
        assert!(finished.stderr.iter().any(|line| line == close), "{:?}", finished.stderr);
    }
}

#[test]
fn what_a_hostile_program_says_is_borne() {
    let Some(mut target) = Target::start() else { return };
    let mut explain = follow(&target);
    for word in ["open", "hostile", "missing"] {
        assert_eq!(target.ask(word), "done", "{word}");
    }
    let _ = explain.wait_for("open uverbs9 -> ENOENT");
    let finished = explain.interrupt();
    let said = finished.stderr.join("\n");
    for wanted in [
        "uverbs0: a call whose frame at 0x10 cannot be read -> ENOTTY",
        "uverbs0: a call whose frame at 0xffffffffffffffff cannot be read -> ENOTTY",
        "uverbs0: a call 0x0004/0x0000 whose frame says 65535 bytes and 65535 attributes, which are 1048584 -> ENOTTY",
        "        CAP unreadable",
        "uverbs0: a write command at 0x10 that cannot be read -> EFAULT",
        "uverbs0: a write of 3 bytes, which is no command -> ok",
        "uverbs0: a write command 0x00000003 that says 262140 bytes, of a write of 8 -> ok",
        "uverbs0: ioctl 0x5401, which is not one of uverbs -> ENOTTY",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(finished.status.code(), Some(0), "{said}");
    is_unharmed(&mut target);
}

#[test]
fn what_cannot_be_traced_is_one_line() {
    let ended = |pid: &str| {
        let finished = Running::start(explain(&["--pid", pid, "--follow"])).finish(END);
        let line = finished.stderr.last().cloned().unwrap_or_default();
        assert_eq!(finished.status.code(), Some(1), "{:?}", finished.stderr);
        line
    };
    assert_eq!(ended("2147483647"), "explain: process 2147483647: there is no such process");
    let Some(mut target) = Target::start() else { return };
    let first = follow(&target);
    let pid = target.pid().to_string();
    let line = ended(&pid);
    let wanted = format!(
        "explain: process {pid}: cannot be traced: process {} (explain) traces it already",
        first.pid()
    );
    assert_eq!(line, wanted);
    // The first one still does.
    assert_eq!(target.ask("open"), "done");
    let finished = first.interrupt();
    assert!(finished.stderr.iter().any(|line| line.contains("open uverbs0 -> ok")), "{:?}", finished.stderr);
    let fast = Running::start(explain(&["--pid", &pid, "--follow", "--fast-path"])).finish(END);
    assert!(
        fast.stderr.last().is_some_and(|line| line.contains("is no program of Pollux")),
        "{:?}",
        fast.stderr
    );
    is_unharmed(&mut target);
}

/// The program that is watched, where one of the other tests starts it.
#[test]
fn target_program() {
    target::run();
}
