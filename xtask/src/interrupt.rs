//! SIGINT and SIGTERM while a task runs that leaves things behind: a flag, which whoever waits looks at.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};

/// How long a child that was asked to end may take.
const GRACE: Duration = Duration::from_secs(5);
/// How often who waits looks.
const LOOK: Duration = Duration::from_millis(5);

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From here on a signal sets the flag, and a second one ends the process at once.
///
/// # Errors
/// What the kernel says.
pub(crate) fn listen() -> Result<(), String> {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(asked))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(asked)))
            .map_err(|why| format!("cannot listen for signal {signal}: {why}"))?;
    }
    Ok(())
}

/// Whether a signal sets the flag, and no longer ends the process: then children are to lead groups of their own, by which [`wait`]
/// finds all that they started.
pub(crate) fn listening() -> bool {
    ASKED.get().is_some()
}

/// Fails once a signal came.
///
/// # Errors
/// One line that says so.
pub(crate) fn check() -> Result<(), String> {
    let asked = ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed));
    if asked { Err("interrupted: nothing is left running".into()) } else { Ok(()) }
}

/// Waits for a child that leads a group of its own where this is [`listening`]; when a signal comes the whole group is told to end:
/// a shell or cargo that ends does not take along what it started.
///
/// # Errors
/// What waiting says.
pub(crate) fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    while check().is_ok() {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(LOOK);
    }
    let group = Pid::from_child(child);
    let _ended_already = kill_process_group(group, Signal::TERM);
    let begin = Instant::now();
    let mut leader = None;
    while begin.elapsed() < GRACE {
        leader = match leader {
            None => child.try_wait()?,
            ended => ended,
        };
        if let Some(status) = leader
            && test_kill_process_group(group).is_err()
        {
            return Ok(status);
        }
        std::thread::sleep(LOOK);
    }
    let _ended_just_now = kill_process_group(group, Signal::KILL);
    leader.map_or_else(|| child.wait(), Ok)
}
