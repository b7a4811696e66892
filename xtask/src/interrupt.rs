//! SIGINT and SIGTERM while a task runs that leaves things behind: a flag, which whoever waits looks at.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::run::Outcome;

/// How long a child that was asked to end may take.
const GRACE: Duration = Duration::from_secs(5);
/// How often who waits looks.
const LOOK: Duration = Duration::from_millis(5);

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From here on a signal sets the flag, and a second one ends the process at once.
///
/// # Errors
/// What the kernel says.
pub(crate) fn listen() -> Outcome {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(asked))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(asked)))
            .map_err(|why| format!("cannot listen for signal {signal}: {why}"))?;
    }
    Ok(())
}

/// Fails once a signal came.
///
/// # Errors
/// One line that says so.
pub(crate) fn check() -> Outcome {
    let asked = ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed));
    if asked { Err("interrupted: nothing is left running".into()) } else { Ok(()) }
}

/// Waits for a child; one that still runs when a signal comes is told to end, too.
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
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ended_already = kill_process(pid, Signal::TERM);
    }
    let begin = Instant::now();
    while begin.elapsed() < GRACE {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(LOOK);
    }
    child.kill()?;
    child.wait()
}
