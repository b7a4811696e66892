//! The threads of a process that is traced: seized, stopped for each system call, and sent on with the signals that they get.
//! Source: ptrace(2), "Stopped states" and "PTRACE_SEIZE".

use std::collections::BTreeSet;
use std::fs;
use std::io;

use pollux_eal::ptrace::{self, CallStop};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};
use rustix::thread::gettid;

use super::calls::Calls;
use super::refused::{because, number, status};
use super::{Said, Shared};
use crate::process::Process;

/// How often the list of threads is read until no new one is in it: those that are seized are followed from then on.
const LOOKS: usize = 1000;
/// Stops that are taken in one turn at most.
const TURN_MAX: usize = 1 << 16;
/// A stop for a system call, as `PTRACE_O_TRACESYSGOOD` marks it.
const CALL: i32 = libc::SIGTRAP | 0x80;
/// Signals that stop a process.
const STOPS: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Traces a process to its end, or until no more is wanted.
///
/// # Errors
/// It cannot be traced.
pub(super) fn watch(process: &Process, shared: &Shared) -> io::Result<()> {
    let mut said = Vec::new();
    let mut threads = Threads::seize(process, &mut said)?;
    shared.say(said);
    // No other child of this process, nor of another thread of it.
    let others = (libc::__WALL | libc::__WNOTHREAD).cast_unsigned();
    let look = WaitIdOptions::from_bits_retain(others)
        | WaitIdOptions::EXITED
        | WaitIdOptions::STOPPED
        | WaitIdOptions::NOWAIT;
    let take = WaitOptions::from_bits_retain(others) | WaitOptions::NOHANG;
    loop {
        match waitid(WaitId::All, look) {
            Err(Errno::INTR) => continue,
            // None is left, nor was the first one there.
            Err(_) => {
                let mut said = Vec::new();
                threads.calls.ended(&mut said);
                said.push(Said::word(format!("process {} has ended", threads.pid)));
                shared.say(said);
                return Ok(());
            }
            Ok(_) => {}
        }
        let turn = shared.turn.lock();
        if shared.state().stopped {
            return Ok(());
        }
        // All that wait, so that none of them waits for one that is always there first.
        let mut stops = Vec::new();
        while let (Ok(Some(stop)), true) = (wait(take), stops.len() < TURN_MAX) {
            stops.push(stop);
        }
        let mut said = Vec::new();
        let mut is_over = Ok(false);
        for (thread, stop) in stops {
            match threads.stopped(thread.as_raw_nonzero().get(), stop, &mut said) {
                Ok(false) => {}
                over => is_over = over,
            }
        }
        if threads.new.is_empty() {
            shared.state().begun = true;
        }
        drop(turn);
        shared.say(said);
        if is_over? {
            return Ok(());
        }
        shared.wait_for_room();
    }
}

pub(super) struct Threads {
    pid: u32,
    known: BTreeSet<i32>,
    /// Those that have not stopped since they were seized.
    new: BTreeSet<i32>,
    calls: Calls,
}

impl Threads {
    /// Seizes every thread of a process.
    fn seize(process: &Process, said: &mut Vec<Said>) -> io::Result<Self> {
        let pid = process.pid;
        let calls = Calls::of(pid, &process.pages, said);
        let mut threads = Self { pid, known: BTreeSet::new(), new: BTreeSet::new(), calls };
        for _ in 0..LOOKS {
            let mut is_new = false;
            for entry in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                    continue;
                };
                if !threads.known.contains(&thread) && threads.seize_one(thread)? {
                    let _ = threads.known.insert(thread);
                    is_new = true;
                }
            }
            if !is_new {
                break;
            }
        }
        if threads.known.is_empty() {
            return Err(because(pid, Errno::PERM.into()));
        }
        Ok(threads)
    }

    /// Whether a thread is seized now.
    fn seize_one(&mut self, thread: i32) -> io::Result<bool> {
        let number_of = thread.cast_unsigned();
        match ptrace::seize(thread) {
            Ok(()) => {
                // Where it is gone it does not stop either.
                if ptrace::interrupt(thread).is_ok() {
                    let _ = self.new.insert(thread);
                }
                Ok(true)
            }
            Err(why) if Errno::from_io_error(&why) == Some(Errno::SRCH) => Ok(false),
            // Made by one that is seized, and seized with it.
            Err(_) if number(number_of, "TracerPid") == Some(own()) => Ok(true),
            // Ended, while others of the process run.
            Err(_) if status(number_of, "State").is_none_or(|state| state.starts_with(['Z', 'X'])) => {
                Ok(false)
            }
            Err(why) => Err(because(self.pid, why)),
        }
    }

    /// A thread has stopped, or ended: it is looked at and sent on. Whether the process is over.
    fn stopped(&mut self, thread: i32, stop: WaitStatus, said: &mut Vec<Said>) -> io::Result<bool> {
        let Some(signal) = stop.stopping_signal() else {
            return Ok(self.ended(thread, stop, said));
        };
        let _ = self.new.remove(&thread);
        let event = stop.as_raw() >> 16;
        if !self.known.contains(&thread) && event != libc::PTRACE_EVENT_EXEC {
            if number(thread.cast_unsigned(), "Tgid") != Some(self.pid) {
                self.let_go(thread, said);
                return Ok(false);
            }
            let _ = self.known.insert(thread);
        }
        // A thread that is gone meanwhile ends by itself.
        let _gone = match event {
            0 if signal == CALL => {
                self.call(thread, said)?;
                ptrace::run_to_call(thread, 0)
            }
            0 => ptrace::run_to_call(thread, signal),
            libc::PTRACE_EVENT_STOP if STOPS.contains(&signal) => ptrace::listen(thread),
            libc::PTRACE_EVENT_EXEC => {
                self.known = BTreeSet::from([thread]);
                self.new.clear();
                self.calls.executed(said);
                ptrace::run_to_call(thread, 0)
            }
            _ => ptrace::run_to_call(thread, 0),
        };
        Ok(false)
    }

    fn call(&mut self, thread: i32, said: &mut Vec<Said>) -> io::Result<()> {
        match ptrace::call_stop(thread) {
            Ok(CallStop::Entry { arch, number, arguments }) => {
                self.calls.entry(thread, (arch, number), arguments, said);
            }
            Ok(CallStop::Exit { value, failed }) => self.calls.exit(thread, value, failed, said),
            Ok(CallStop::Neither) => {}
            Err(why) if Errno::from_io_error(&why) == Some(Errno::SRCH) => {}
            Err(why) => {
                return Err(io::Error::new(
                    why.kind(),
                    format!("its calls cannot be told ({why}): this needs Linux 5.3"),
                ));
            }
        }
        Ok(())
    }

    /// A process that the one made: it is seized with the thread that made it.
    fn let_go(&self, other: i32, said: &mut Vec<Said>) {
        // Where it is gone there is nothing to tell.
        if ptrace::detach(other).is_ok() {
            said.push(Said::word(format!(
                "process {} makes process {other}, whose calls are not told here",
                self.pid
            )));
        }
    }

    fn ended(&mut self, thread: i32, stop: WaitStatus, said: &mut Vec<Said>) -> bool {
        let _ = (self.known.remove(&thread), self.new.remove(&thread));
        self.calls.gone(thread);
        // The first thread's end is told when it is the last one's.
        if thread.cast_unsigned() != self.pid {
            return false;
        }
        self.calls.ended(said);
        let how = match (stop.exit_status(), stop.terminating_signal()) {
            (Some(status), _) => format!("has ended, status {status}"),
            (_, Some(signal)) => format!("was ended by signal {signal}"),
            _ => "has ended".into(),
        };
        said.push(Said::word(format!("process {} {how}", self.pid)));
        true
    }
}

/// The number of the thread that traces, as `TracerPid` has it.
fn own() -> u32 {
    gettid().as_raw_nonzero().get().cast_unsigned()
}
