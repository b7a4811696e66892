//! testpmd, ours or DPDK's, told what to do at its prompt: both speak the same.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::peer::{EAL, Root};
use super::watched::Place;
use crate::run::{Outcome, release_dir};

/// What both are told.
const FIXED: &[&str] = &["--", "-i", "--nb-cores=1", "--total-num-mbufs=16384", "--burst=32"];

/// An interactive testpmd.
pub(super) struct Testpmd {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
}

impl Testpmd {
    pub(super) fn start(root: &Root, devices: &[&str], mode: &str) -> Outcome<Self> {
        Self::start_with(root, devices, mode, &[])
    }

    /// One forwarding lcore on CPU 1, cycles recorded.
    pub(super) fn start_with(root: &Root, devices: &[&str], mode: &str, more: &[&str]) -> Outcome<Self> {
        let mode = format!("--forward-mode={mode}");
        let options = [&["--record-core-cycles", &mode], more].concat();
        Self::launch(root, &["-l", "0,1"], devices, &options)
    }

    /// Both lcores on one CPU, as a sender or receiver that leaves the other CPU to its partner.
    pub(super) fn two_on_one(root: &Root, cpu: &str, devices: &[&str], options: &[&str]) -> Outcome<Self> {
        let prefix = format!("--file-prefix=plx{cpu}");
        Self::launch(root, &["--lcores", &format!("0@{cpu},1@{cpu}"), &prefix], devices, options)
    }

    /// A forwarding lcore on each of two CPUs; the main lcore sleeps at the prompt.
    pub(super) fn on_two(root: &Root, devices: &[&str], options: &[&str]) -> Outcome<Self> {
        let options = [&["--nb-cores=2"], options].concat();
        Self::launch(root, &["--lcores", "2@0,0@0,1@1", "--main-lcore", "2"], devices, &options)
    }

    /// Ours, under the options of [`start`](Self::start).
    pub(super) fn ours(devices: &[&str], mode: &str) -> Outcome<Self> {
        Self::ours_with(devices, mode, &[])
    }

    /// Ours, with options that DPDK's does not have.
    pub(super) fn ours_with(devices: &[&str], mode: &str, more: &[&str]) -> Outcome<Self> {
        let mode = format!("--forward-mode={mode}");
        let mut command = Command::new(release_dir().join("testpmd"));
        command.args(["-l", "0,1", "--no-telemetry"]).args(devices).args(FIXED);
        command.args(["--record-core-cycles", &mode]).args(more);
        Self::over(&mut command)
    }

    /// The same, to be watched at a place.
    pub(super) fn ours_at(place: &Place, devices: &[&str], mode: &str) -> Outcome<Self> {
        let mut command = Command::new(release_dir().join("testpmd"));
        command.env("RUNTIME_DIRECTORY", place.runtime());
        command.args(["-l", "0,1"]).args(devices).args(FIXED).arg(place.metrics());
        Self::over(command.args(["--record-core-cycles", "--forward-mode", mode]))
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn launch(root: &Root, lcores: &[&str], devices: &[&str], options: &[&str]) -> Outcome<Self> {
        // Into a pipe testpmd would print its report after the prompt that follows it.
        let unbuffered = ["-oL", "/usr/bin/dpdk-testpmd"];
        let args = [&unbuffered, lcores, EAL, devices, FIXED, options].concat();
        Self::over(&mut root.command("/usr/bin/stdbuf", &args))
    }

    fn over(command: &mut Command) -> Outcome<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|why| format!("cannot start testpmd: {why}"))?;
        let input = child.stdin.take();
        let (send, output) = channel();
        if let Some(mut stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = stdout.read(&mut piece) {
                    if send.send(piece[..count].to_vec()).is_err() {
                        break;
                    }
                }
            });
        }
        let mut testpmd = Self { child, input, output };
        testpmd.until_prompt()?;
        Ok(testpmd)
    }

    /// Types one command and gives back all that is printed up to the next prompt.
    pub(super) fn command(&mut self, line: &str) -> Outcome<String> {
        let input = self.input.as_mut().ok_or("testpmd takes no more commands")?;
        writeln!(input, "{line}").and_then(|()| input.flush()).map_err(|why| format!("testpmd: {why}"))?;
        self.until_prompt()
    }

    fn until_prompt(&mut self) -> Outcome<String> {
        let mut said = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(piece) => said.extend(piece),
                Err(RecvTimeoutError::Timeout) => return Err("testpmd shows no prompt".into()),
                Err(RecvTimeoutError::Disconnected) => return Err("testpmd ended".into()),
            }
            let text = String::from_utf8_lossy(&said);
            if text.trim_end().ends_with("testpmd>") {
                return Ok(text.into_owned());
            }
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        if let Some(mut input) = self.input.take() {
            drop(writeln!(input, "quit"));
        }
        for _ in 0..150 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
