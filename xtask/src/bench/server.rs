//! A figure server on a pipe: a name goes in, a value comes out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::peer::Root;
use crate::run::{Outcome, release_dir};

/// One trial of the slowest figure takes the peer about ten seconds.
const TRIAL_MAX: Duration = Duration::from_secs(120);

pub(crate) struct Server {
    what: &'static str,
    child: Child,
    names: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Server {
    /// Our half, as `cargo build --release` makes it.
    pub(crate) fn ours() -> Outcome<Self> {
        let mut command = Command::new(release_dir().join("figures"));
        command.args(["-l", "0,1", "--vdev", "net_null0"]);
        Self::start("figures", command)
    }

    /// The peer's half, inside its root.
    pub(crate) fn peer(root: &Root) -> Outcome<Self> {
        let mut server = Self::start("the peer's figures", root.figures())?;
        server.line()?;
        Ok(server)
    }

    fn start(what: &'static str, mut command: Command) -> Outcome<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|why| format!("cannot start {what}: {why}"))?;
        let (names, output) = (child.stdin.take(), child.stdout.take());
        let (send, lines) = channel();
        if let Some(output) = output {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self { what, child, names, lines })
    }

    fn line(&mut self) -> Outcome<String> {
        self.lines.recv_timeout(TRIAL_MAX).map_err(|_| format!("{} gave no answer", self.what))
    }

    /// One timed trial of the figure called `name`.
    pub(crate) fn run(&mut self, name: &str) -> Outcome<f64> {
        let names = self.names.as_mut().ok_or_else(|| format!("{} takes no more names", self.what))?;
        writeln!(names, "{name}")
            .and_then(|()| names.flush())
            .map_err(|why| format!("{}: {why}", self.what))?;
        let line = self.line()?;
        line.strip_prefix(name)
            .and_then(|rest| rest.trim().parse().ok())
            .ok_or_else(|| format!("{} answered {name} with {line:?}", self.what))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // End of input ends the program; one that does not heed it is ended.
        self.names = None;
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
