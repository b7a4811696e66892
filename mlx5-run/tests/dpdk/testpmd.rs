//! A testpmd on devices of `mlx5-run`, told what to do at its prompt.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::release;

/// How long a word of it may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may live, in seconds, whatever becomes of the test.
const LIFE: &str = "60";

/// One at a time: its two lcores and the model's thread spin, on machines of two CPUs.
static ALONE: Mutex<()> = Mutex::new(());

/// What a testpmd is started with.
#[derive(Clone, Copy, Default)]
pub(crate) struct Start<'a> {
    /// Which card, if not the usual one.
    pub(crate) card: &'a str,
    /// What is behind each port.
    pub(crate) wires: &'a [&'a str],
    /// Arguments of each device.
    pub(crate) device: &'a str,
    /// What DPDK tells of itself, an option of its own; nothing if empty.
    pub(crate) words: &'a str,
    /// Options of testpmd's own.
    pub(crate) options: &'a [&'a str],
    /// The devices are a daemon's.
    pub(crate) attached: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Output,
    Error,
}

/// One that runs.
pub(crate) struct Testpmd {
    child: Child,
    input: ChildStdin,
    output: Receiver<(Stream, Vec<u8>)>,
    said: String,
    /// On standard error, which nobody waits for.
    errors: String,
    unread: String,
    daemon: Option<Child>,
    _runtime: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// Options of `mlx5-run`'s about devices.
fn devices(start: &Start<'_>) -> Vec<String> {
    let mut options = vec!["--ports".to_owned(), start.wires.len().to_string()];
    if !start.card.is_empty() {
        options.extend(["--device".to_owned(), start.card.to_owned()]);
    }
    for wire in start.wires {
        options.extend(["--wire".to_owned(), (*wire).to_owned()]);
    }
    options
}

impl Testpmd {
    /// Starts one, up to its first prompt.
    pub(crate) fn start(start: &Start<'_>) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-run"));
        let socket = runtime.path().join("daemon");
        let daemon = start.attached.then(|| {
            let mut daemon = Command::new("timeout");
            daemon.args(["-k", "5", LIFE, env!("CARGO_BIN_EXE_mlx5-run"), "--serve"]).arg(&socket);
            daemon.args(devices(start)).stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a daemon")
        });
        if daemon.is_some() {
            let deadline = Instant::now() + PATIENCE;
            while !socket.exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            command.arg("--attach").arg(&socket);
        } else {
            command.args(devices(start)).arg("--summary=pcie");
        }
        // Into a pipe testpmd would print its report after the prompt that follows it.
        command.args(["--", "timeout", "-k", "5", LIFE, "stdbuf", "-oL"]);
        command.args(release::program("dpdk-testpmd"));
        command.args(["-v", "--no-huge", "-m", "256", "-l", "0,1"]);
        command.args((!start.words.is_empty()).then_some(start.words));
        for number in 0..start.wires.len() {
            command.args(["-a", &format!("0000:{:02x}:00.0,{}", 0xc1 + number, start.device)]);
        }
        command.args([
            "--",
            "-i",
            "--no-mlockall",
            "--no-flush-rx",
            "--total-num-mbufs=8192",
            "--rxd=256",
            "--txd=256",
        ]);
        command.args(start.options);
        // Where it leaves files of its own.
        command.env("RUNTIME_DIRECTORY", runtime.path()).env("TMPDIR", runtime.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("mlx5-run runs");
        let input = child.stdin.take().expect("a pipe");
        let (send, output) = channel();
        let streams: [(Stream, Box<dyn Read + Send>); 2] = [
            (Stream::Output, Box::new(child.stdout.take().expect("a pipe"))),
            (Stream::Error, Box::new(child.stderr.take().expect("a pipe"))),
        ];
        for (which, mut stream) in streams {
            let send = send.clone();
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    if send.send((which, piece[..count].to_vec())).is_err() {
                        return;
                    }
                }
            });
        }
        let mut testpmd = Self {
            child,
            input,
            output,
            said: String::new(),
            errors: String::new(),
            unread: String::new(),
            daemon,
            _runtime: runtime,
            _alone: alone,
        };
        testpmd.until("testpmd> ");
        testpmd
    }

    /// Reads on until it has said this, and gives what it said up to there.
    pub(crate) fn until(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut told = String::new();
        loop {
            let whole = std::mem::take(&mut self.unread) + &told;
            if let Some(at) = whole.find(wanted) {
                let (now, later) = whole.split_at(at + wanted.len());
                self.said.push_str(now);
                self.unread = later.to_owned();
                return now.to_owned();
            }
            told = whole;
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok((Stream::Output, piece)) => told.push_str(&String::from_utf8_lossy(&piece)),
                Ok((Stream::Error, piece)) => self.errors.push_str(&String::from_utf8_lossy(&piece)),
                Err(why) => {
                    let ended = why == RecvTimeoutError::Disconnected;
                    panic!(
                        "testpmd never says {wanted:?} (ended: {ended}): {}{told}{}",
                        self.said, self.errors
                    );
                }
            }
        }
    }

    /// Gives a command.
    pub(crate) fn give(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("it reads");
    }

    /// Gives a command, and what was said up to the prompt behind it.
    pub(crate) fn tell(&mut self, command: &str) -> String {
        // A comment, which is repeated when all before it is done.
        const DONE: &str = "# that was all";
        self.give(command);
        self.give(DONE);
        self.until(DONE)
    }

    /// Gives a command until what it says is as it shall be.
    pub(crate) fn tell_until(&mut self, command: &str, good: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = self.tell(command);
            if good(&told) {
                return told;
            }
            assert!(Instant::now() < deadline, "{command} says for long: {told}; before: {}", self.said);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it, which it must do well: all that it said.
    pub(crate) fn quit(mut self) -> String {
        self.give("quit");
        self.until("Bye...");
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "testpmd does not end: {}", self.said);
            std::thread::sleep(Duration::from_millis(10));
        };
        // What is told at the very end.
        self.said.push_str(&std::mem::take(&mut self.unread));
        for (which, piece) in self.output.iter() {
            let said = if which == Stream::Output { &mut self.said } else { &mut self.errors };
            said.push_str(&String::from_utf8_lossy(&piece));
        }
        self.said.push_str(&self.errors);
        if release::is_new() {
            let version = self.said.split_once("RTE Version: 'DPDK ").expect("a version").1;
            let year = version.split('.').next().and_then(|text| text.parse::<u32>().ok());
            assert!(year.is_some_and(|year| year >= 24), "{}", self.said);
        }
        assert!(status.success(), "{status}: {}", self.said);
        assert!(!self.said.contains("broke a rule"), "{}", self.said);
        std::mem::take(&mut self.said)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // The launcher hands it on, and ends with its program.
            let _sent = Command::new("kill").arg(self.child.id().to_string()).status();
            let _ended = self.child.wait();
        }
        if let Some(daemon) = &mut self.daemon {
            let _sent = Command::new("kill").arg(daemon.id().to_string()).status();
            let _ended = daemon.wait();
        }
    }
}

/// What crossed PCIe of a device, of one kind and for each packet: transfers, and bytes of theirs.
pub(crate) fn pcie(said: &str, device: usize, kind: &str) -> [f64; 2] {
    let (_, behind) = said.split_once(&format!("mlx5-run: mlx5_{device}: PCIe of ")).expect("it is told");
    let of_device = behind.split("mlx5-run: ").next().unwrap_or_default();
    let line = of_device.lines().find_map(|line| line.trim().strip_prefix(kind)).unwrap_or("0 0");
    let mut numbers = line.split_whitespace().map(|word| word.parse().expect("a number"));
    [(); 2].map(|()| numbers.next().expect("two"))
}

/// The number behind a word in what testpmd said.
pub(crate) fn number(said: &str, word: &str) -> u64 {
    let behind = said.split_once(word).unwrap_or_else(|| panic!("no {word} in {said}")).1;
    let number = behind.split_whitespace().next().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("no number behind {word} in {said}"))
}
