//! The program, and what it says.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pollux_tests::program::with_default_signals;
use tempfile::TempDir;

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Two devices on a cable, in one process.
pub(crate) struct Devices {
    pub(crate) child: Child,
    pub(crate) folder: TempDir,
}

impl Devices {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = command();
        for name in ["one", "two"] {
            command.arg("--socket").arg(folder.path().join(name)).arg("--wire").arg("null");
        }
        Self::of(command, folder)
    }

    /// Waits until both sockets answer.
    pub(crate) fn of(mut command: Command, folder: TempDir) -> Self {
        let log = File::create(folder.path().join("log")).expect("a log");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("the program");
        let mut devices = Self { child, folder };
        for name in ["one", "two"] {
            let begin = Instant::now();
            while UnixStream::connect(devices.socket(name)).is_err() {
                assert!(devices.child.try_wait().expect("its state").is_none(), "{}", devices.log());
                assert!(begin.elapsed() < LIMIT, "no socket: {}", devices.log());
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        devices
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Peak of its own memory, in KiB: what it shares with guests is theirs.
    pub(crate) fn memory_peak(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a number");
        peak.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    }

    pub(crate) fn assert_alive(&mut self, when: &str) {
        let state = self.child.try_wait().expect("its state");
        assert!(state.is_none(), "{when}: {state:?}: {}", self.log());
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    pub(crate) fn signal(&self, number: i32) {
        let process = rustix::process::Pid::from_child(&self.child);
        let signal = rustix::process::Signal::from_named_raw(number).expect("a signal");
        rustix::process::kill_process(process, signal).expect("sent");
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn command() -> Command {
    let mut command = with_default_signals(&Command::new(env!("CARGO_BIN_EXE_mlx5-device")));
    command.stdin(Stdio::null());
    command
}

pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("its state") {
            return status;
        }
        if begin.elapsed() > LIMIT {
            drop(child.kill());
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a start that is refused says.
pub(crate) fn refusal(socket: &Path) -> String {
    let output =
        command().arg("--socket").arg(socket).args(["--wire", "null"]).output().expect("the program");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}
