//! The program while it runs: the signals that it gets, and how it ends.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use pollux_eal::signal::PassedOn;
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;

use crate::program::{NOT_EXECUTABLE, NOT_FOUND, Refusal};

/// How often [`Program::wait`] looks.
const LOOK: Duration = Duration::from_millis(2);

/// Starts a program.
///
/// # Errors
/// It cannot be run.
pub fn start(command: &mut Command) -> Result<Child, Refusal> {
    command.spawn().map_err(|why| {
        let name = command.get_program().to_string_lossy();
        match why.kind() {
            ErrorKind::NotFound => (format!("there is no interpreter for {name}"), NOT_FOUND),
            _ => (format!("cannot run {name}: {why}"), NOT_EXECUTABLE),
        }
    })
}

/// A program that runs.
#[derive(Debug)]
pub struct Program {
    child: Child,
    signals: PassedOn,
}

impl Program {
    /// One that was started. The signals that come are its own.
    #[must_use]
    pub fn new(child: Child, signals: PassedOn) -> Self {
        Self { child, signals }
    }

    /// Whether a signal came since the last look: of use after the program's end.
    pub fn is_told_to_end(&mut self) -> bool {
        self.signals.pending().next().is_some()
    }

    /// Passes on the signals that came. The status for whoever ran it once it has ended, 128 and the signal's number if one ended it.
    pub fn look(&mut self) -> Option<u8> {
        for signal in self.signals.pending() {
            // A terminal has sent its own to all of the foreground.
            if (signal != Signal::INT.as_raw() || !is_in_foreground())
                && let Some(signal) = Signal::from_named_raw(signal)
            {
                // It is not waited for yet, so that the number is its own.
                kill_process(Pid::from_child(&self.child), signal).ok();
            }
        }
        match self.child.try_wait() {
            Ok(status) => status.map(code),
            // Nobody else waits for it: it is gone.
            Err(_) => Some(1),
        }
    }

    /// Waits for its end, of which it tells the status.
    pub fn wait(mut self) -> u8 {
        loop {
            if let Some(status) = self.look() {
                return status;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Whether the terminal's Ctrl-C goes to this process and its program.
fn is_in_foreground() -> bool {
    let terminal = fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Program {
        let signals = PassedOn::catch().expect("signals");
        Program::new(start(Command::new("sh").args(["-c", script])).expect("a shell"), signals)
    }

    #[test]
    fn its_status_is_told() {
        assert_eq!(run("exit 7").wait(), 7);
        assert_eq!(run("kill -9 $$").wait(), 137);
    }

    #[test]
    fn what_cannot_be_run_is_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("script");
        fs::write(&script, "#!/there/is/none\n").expect("written");
        let (line, status) = start(&mut Command::new(&script)).expect_err("it may not be run");
        assert_eq!((status, line.starts_with("cannot run ")), (NOT_EXECUTABLE, true), "{line}");
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("may be run");
        let (line, status) = start(&mut Command::new(&script)).expect_err("nothing runs it");
        assert_eq!((status, line.starts_with("there is no interpreter for ")), (NOT_FOUND, true), "{line}");
    }
}
