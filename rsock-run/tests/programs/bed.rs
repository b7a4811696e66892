//! Two launchers on the two ends of a wire.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pollux_tests::program::{Finished, Running, with_default_signals};
use pollux_tests::require::PYTHON;

/// Addresses of the ends.
pub(crate) const SERVER: &str = "10.9.0.1";
pub(crate) const CLIENT: &str = "10.9.0.2";
/// How long a program may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// An end of the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Server,
    Client,
}

/// A folder with the sockets of a wire, and of the launchers.
pub(crate) struct Bed(tempfile::TempDir);

impl Bed {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The launcher of an end.
    pub(crate) fn launcher(&self, end: End) -> Command {
        let [a, b] = ["a", "b"].map(|name| self.path().join(name).display().to_string());
        let (own, peer, ip, number) = match end {
            End::Server => (a, b, SERVER, 0),
            End::Client => (b, a, CLIENT, 1),
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let lcore = (number % processors).to_string();
        let device = format!("mlx5_model0,wire=unix:{own}:{peer},ip={ip}/24");
        let mut command = self.bare();
        command.args(["-l", &lcore, "--no-huge", "--vdev", &device]);
        command
    }

    /// A launcher without options.
    pub(crate) fn bare(&self) -> Command {
        let mut command = with_default_signals(&Command::new(env!("CARGO_BIN_EXE_rsock-run")));
        command.env("TMPDIR", self.path()).env("RUNTIME_DIRECTORY", self.path());
        command
    }

    /// A program at an end.
    pub(crate) fn start(&self, end: End, program: &[&str]) -> Running {
        let mut command = self.launcher(end);
        command.arg("--").args(program);
        Running::start(command)
    }

    /// A program of Python at an end, with arguments.
    pub(crate) fn python(&self, end: End, text: &str, arguments: &[&str]) -> Running {
        self.start(end, &[&[PYTHON, "-c", text], arguments].concat())
    }

    /// Control sockets' folders that are left.
    pub(crate) fn left(&self) -> usize {
        let entries = std::fs::read_dir(self.path()).expect("a folder");
        entries
            .filter(|entry| {
                entry
                    .as_ref()
                    .is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("rsock-run-"))
            })
            .count()
    }
}

/// A program's end, which has to be a good one. What it wrote to standard output.
pub(crate) fn must(running: Running) -> String {
    let Finished { status, stdout, stderr } = running.finish(LIMIT);
    assert!(status.success(), "{status}: {stdout}\n{}", stderr.join("\n"));
    stdout
}

/// A port that nobody has.
pub(crate) fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port().to_string()
}
