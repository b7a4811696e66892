//! The apps, run as a user runs them: the release build, a command line, signals, the last line of output.
#![expect(unsafe_code, reason = "kill(2) has no safe wrapper in std")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::patience::patient;

/// Path of the app `name`, as `cargo build --release` makes it. The first call for a name builds it.
///
/// # Panics
/// When it does not build.
#[must_use]
pub fn app(name: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let top = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| top.join("target"), PathBuf::from);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.contains(name) {
        // Of the whole workspace: one package alone has other features, and is built anew with all that it needs.
        let done = Command::new(env!("CARGO"))
            .current_dir(&top)
            .args(["build", "--quiet", "--release", "--workspace", "--bin", name])
            .status();
        assert!(done.is_ok_and(|status| status.success()), "{name} does not build");
        built.insert(name.into());
    }
    let folder = target.join("release").canonicalize();
    folder.unwrap_or_else(|why| panic!("{}: {why}", target.display())).join(name)
}

/// A running app, ended with the test whatever happens.
#[derive(Debug)]
pub struct Running {
    child: Child,
    said: std::sync::mpsc::Receiver<String>,
    heard: Vec<String>,
}

/// The same command with SIGINT, SIGTERM and SIGHUP as they are by default: whoever runs the tests may have them ignored, as nohup
/// does, and what it starts inherits that. Program, arguments and environment are taken over.
#[must_use]
pub fn with_default_signals(command: &Command) -> Command {
    let mut fresh = Command::new("env");
    fresh.arg("--default-signal=INT,TERM,HUP").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => fresh.env(name, value),
            None => fresh.env_remove(name),
        };
    }
    fresh
}

impl Running {
    /// Starts a command and listens to its standard error.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|why| panic!("{command:?}: {why}"));
        let stderr = child.stderr.take().unwrap_or_else(|| panic!("stderr was piped"));
        let (send, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, said, heard: Vec::new() }
    }

    /// Waits until a line with this word was written to standard error; the first such line.
    ///
    /// # Panics
    /// After ten seconds ([`patient`]), or when the program ends without it.
    pub fn wait_for(&mut self, word: &str) -> String {
        let deadline = Instant::now() + patient(Duration::from_secs(10));
        loop {
            if let Some(line) = self.heard.iter().find(|line| line.contains(word)) {
                return line.clone();
            }
            match self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.heard.push(line),
                Err(why) => panic!("no line with {word:?} ({why}) but: {}", self.heard.join("\n")),
            }
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap_or_else(|why| panic!("wait: {why}")).is_some()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).unwrap_or_else(|why| panic!("a pid fits in an i32: {why}"));
        // SAFETY: kill has no memory effects; the child is not reaped yet, so the id is still its own.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "kill: {}", std::io::Error::last_os_error());
    }

    /// Waits for the end; standard output and standard error come back whole.
    ///
    /// # Panics
    /// When it takes longer than `limit` ([`patient`]).
    #[must_use]
    pub fn finish(mut self, limit: Duration) -> Finished {
        let limit = patient(limit);
        let deadline = Instant::now() + limit;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                Ok(None) => break None,
                Err(why) => panic!("wait: {why}"),
            }
        };
        if status.is_none() {
            drop(self.child.kill());
        }
        let mut stdout = String::new();
        if let Some(mut pipe) = self.child.stdout.take() {
            drop(pipe.read_to_string(&mut stdout));
        }
        while let Ok(line) = self.said.recv_timeout(Duration::from_secs(2)) {
            self.heard.push(line);
        }
        let stderr = std::mem::take(&mut self.heard);
        let status = status.unwrap_or_else(|| {
            panic!("still running after {limit:?}; it said: {stdout}{}", stderr.join("\n"))
        });
        Finished { status, stdout, stderr }
    }

    /// Sends SIGKILL and waits until the process is gone.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn kill(mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        assert!(ended.is_ok(), "SIGKILL: {ended:?}");
    }

    /// SIGINT, then [`finish`](Self::finish) within ten seconds.
    #[must_use]
    pub fn interrupt(self) -> Finished {
        self.signal(libc::SIGINT);
        self.finish(Duration::from_secs(10))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a program left.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// Its standard error, line by line.
    pub stderr: Vec<String>,
}

impl Finished {
    /// Its standard error without the EAL's line on the pages that memory is made of, which is the machine's.
    #[must_use]
    pub fn messages(&self) -> Vec<&str> {
        let lines = self.stderr.iter().map(String::as_str);
        lines.filter(|line| !line.starts_with("lib.eal: warning: ordinary pages")).collect()
    }

    /// The `--json` report: the last line of standard output.
    ///
    /// # Panics
    /// When that is no JSON.
    #[must_use]
    pub fn report(&self) -> serde_json::Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last)
            .unwrap_or_else(|why| panic!("{why} in {last:?}; stderr: {}", self.stderr.join("\n")))
    }
}
