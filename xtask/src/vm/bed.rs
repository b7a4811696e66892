//! What stands around a job's guest: its devices, the far ends of their wires, and a line on which tests ask for things.
//!
//! ```text
//!   guest's kernel ── vfio-user socket ── mlx5-device ── wire ──┬── the other function (cable)
//!   test in the guest ── third serial port ── Bed ──────────────┴── Peer: sends, receives, compares
//!   guest's network card ── unix datagrams ── the host's device model ── Across: a program of ours
//! ```
//!
//! A test writes one line and reads one line back: `ok ...` or `failed ...`.

mod across;
mod peer;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::job::{DEVICE, Job, Program, Wire};
use super::record;
use crate::run::Outcome;
use across::Across;
pub(crate) use across::Ends;
use peer::Peer;

/// How long devices may take to make their sockets.
const START: Duration = Duration::from_secs(10);

/// A running bed; everything in it ends with it.
pub(crate) struct Bed {
    folder: tempfile::TempDir,
    device: Arc<Mutex<Option<Child>>>,
    /// A test had the devices' process killed.
    killed: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    dialogue: Option<JoinHandle<()>>,
    sockets: Vec<PathBuf>,
    across: Option<Ends>,
}

impl Bed {
    /// Starts the devices that `job` wants.
    /// `patience` is how many times their usual limits things may take.
    pub(crate) fn start(
        job: &Job,
        programs: &[Program],
        logs: &Path,
        trace: u8,
        patience: f64,
    ) -> Outcome<Self> {
        let folder = tempfile::Builder::new()
            .prefix("pollux-vm-")
            .tempdir()
            .map_err(|why| format!("cannot make a folder for sockets: {why}"))?;
        let mut bed = Self {
            device: Arc::default(),
            killed: Arc::default(),
            over: Arc::default(),
            dialogue: None,
            sockets: (0..job.wires.len())
                .map(|index| folder.path().join(format!("function{index}")))
                .collect(),
            across: job.across.then(|| Ends::find(folder.path())).transpose()?,
            folder,
        };
        let mut peers = Vec::new();
        let mut wires = Vec::new();
        for (index, wire) in job.wires.iter().enumerate() {
            let (near, far) = (bed.path(&format!("near{index}")), bed.path(&format!("far{index}")));
            wires.push(match wire {
                Wire::Cable(name) => format!("cable:{name}"),
                Wire::Host => {
                    peers.push(Peer::open(&far, &near)?);
                    format!("unix:{}:{}", near.display(), far.display())
                }
            });
        }
        if !wires.is_empty() {
            let child = bed.start_devices(&wires, job, programs, logs, trace)?;
            *bed.lock() = Some(child);
            bed.wait_for_sockets(logs, START.mul_f64(patience))?;
        }
        let listener = UnixListener::bind(bed.dialogue_path())
            .map_err(|why| format!("cannot listen for the guest's tests: {why}"))?;
        let (device, killed, over) =
            (Arc::clone(&bed.device), Arc::clone(&bed.killed), Arc::clone(&bed.over));
        let across = bed.across.clone().map(|ends| Across::new(ends, programs, patience));
        let logs = logs.to_owned();
        record::forget(&logs);
        bed.dialogue = Some(std::thread::spawn(move || {
            let silence = peer::SILENCE.mul_f64(patience);
            let mut host = Requests { peers, silence, across, device, killed, over: Arc::clone(&over), logs };
            if let Ok((stream, _)) = listener.accept()
                && !over.load(Ordering::Relaxed)
            {
                host.answer(&stream);
            }
        }));
        Ok(bed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the guest's third serial port goes.
    pub(crate) fn dialogue_path(&self) -> PathBuf {
        self.path("dialogue")
    }

    /// Sockets of the functions, in the order of their slots.
    pub(crate) fn functions(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Where the guest's network cards lead, if the job has them.
    pub(crate) fn across(&self) -> Option<&Ends> {
        self.across.as_ref()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_devices(
        &self,
        wires: &[String],
        job: &Job,
        programs: &[Program],
        logs: &Path,
        trace: u8,
    ) -> Outcome<Child> {
        let program =
            programs.iter().find(|program| program.inside == DEVICE).ok_or("no mlx5-device was built")?;
        let log = logs.join("device.log");
        let log = File::create(&log).map_err(|why| format!("cannot write {}: {why}", log.display()))?;
        let mut command = Command::new(&program.file);
        for (socket, wire) in self.sockets.iter().zip(wires) {
            command.arg("--socket").arg(socket).args(["--wire", wire]);
        }
        command.args((0..trace).map(|_| "--trace"));
        command.args(job.with.iter().flat_map(|ability| ["--with", ability]));
        if job.dual {
            command.arg("--dual-port");
        }
        command
            .arg("--console")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|why| format!("cannot start {}: {why}", program.file.display()))
    }

    fn wait_for_sockets(&self, logs: &Path, limit: Duration) -> Outcome {
        let begin = Instant::now();
        while !self.sockets.iter().all(|socket| socket.exists()) {
            if let Some(status) = self.lost() {
                return Err(format!("mlx5-device ended with {status}; see {}/device.log", logs.display()));
            }
            if begin.elapsed() > limit {
                return Err(format!("mlx5-device made no socket; see {}/device.log", logs.display()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// How the devices' process ended, if it did and no test asked for it.
    pub(crate) fn lost(&self) -> Option<ExitStatus> {
        let status = self.lock().as_mut().and_then(|child| child.try_wait().ok().flatten());
        status.filter(|_| !self.killed.load(Ordering::Relaxed))
    }

    /// Ends everything. What the devices' process ended with, if it was not by us.
    pub(crate) fn end(mut self) -> Option<ExitStatus> {
        // Served functions end with their machine.
        let begin = Instant::now();
        let mut ended = None;
        while self.lock().is_some() && ended.is_none() && begin.elapsed() < Duration::from_secs(5) {
            ended = self.lock().as_mut().and_then(|child| child.try_wait().ok().flatten());
            std::thread::sleep(Duration::from_millis(5));
        }
        self.stop();
        ended.filter(|status| !status.success() && !self.killed.load(Ordering::Relaxed))
    }

    fn stop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(mut child) = self.lock().take() {
            drop(child.kill());
            drop(child.wait());
        }
        // Whoever waits for a guest that never came gets us.
        drop(UnixStream::connect(self.dialogue_path()));
        if let Some(thread) = self.dialogue.take() {
            drop(thread.join());
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Answers what tests ask for.
struct Requests {
    peers: Vec<Peer>,
    /// How long nothing may come on their wires while something is awaited.
    silence: Duration,
    across: Option<Across>,
    device: Arc<Mutex<Option<Child>>>,
    killed: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    logs: PathBuf,
}

impl Requests {
    fn answer(&mut self, stream: &UnixStream) {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        while let Some(line) = lines.next().filter(|_| !self.over.load(Ordering::Relaxed)) {
            let answer = match self.request(line.trim()) {
                Ok(said) => format!("ok {said}\n"),
                Err(why) => format!("failed {why}\n"),
            };
            if (&mut &*stream).write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn request(&mut self, line: &str) -> Outcome<String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "kill-device" => {
                // Said first: who finds the process gone asks whether a test wanted that.
                self.killed.store(true, Ordering::Relaxed);
                self.with_device(|child| {
                    child.kill().map_err(|why| format!("cannot kill mlx5-device: {why}"))
                })
                .map(|()| String::new())
            }
            // To its console.
            "device" => self
                .with_device(|child| {
                    let console = child.stdin.as_mut().ok_or("it has no console")?;
                    writeln!(console, "{rest}").map_err(|why| format!("cannot write to mlx5-device: {why}"))
                })
                .map(|()| String::new()),
            "device-memory" => self.with_device(|child| resident(child.id())).map(|kib| kib.to_string()),
            "traffic" => {
                peer::traffic(&mut self.peers, &peer::Traffic::parse(rest)?, self.silence, &self.over)
            }
            "plug" | "unplug" => {
                let peer = rest.parse().ok().and_then(|index: usize| self.peers.get_mut(index));
                let peer = peer.ok_or_else(|| format!("'{rest}' is no wire of this job"))?;
                if word == "plug" {
                    peer.plug()?
                } else {
                    peer.unplug()
                }
                Ok(String::new())
            }
            "record" => record::take(&self.logs, rest),
            _ => match &mut self.across {
                Some(across) => across.request(word, rest, &self.over),
                None => Err(format!("unknown request '{word}'")),
            },
        }
    }

    fn with_device<T>(&self, act: impl FnOnce(&mut Child) -> Outcome<T>) -> Outcome<T> {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        act(device.as_mut().ok_or("this job has no device")?)
    }
}

/// Memory that a process occupies, in KiB.
fn resident(process: u32) -> Outcome<u64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).map_err(|why| format!("cannot read {path}: {why}"))?;
    let words = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    // What is shared with the guest is the guest's memory.
    let shared = status.lines().find_map(|line| line.strip_prefix("RssShmem:"));
    let number =
        |words: Option<&str>| words.and_then(|words| words.split_whitespace().next()?.parse::<u64>().ok());
    match (number(words), number(shared)) {
        (Some(all), Some(shared)) => Ok(all.saturating_sub(shared)),
        _ => Err(format!("{path} says nothing of memory")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_occupies_memory() {
        let own = super::resident(std::process::id()).expect("a number");
        assert!((500..2_000_000).contains(&own), "{own} KiB");
        assert!(super::resident(u32::MAX).is_err());
    }
}
