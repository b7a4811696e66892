//! Programs of ours on the host's device model, at the other end of a network card of the guest.
//!
//! ```text
//!   guest   rxe0 ── eth0 ── QEMU ── unix datagrams ── device model ── program of ours      the frames of RDMA
//!           original ── eth1 ── QEMU's own network ──────────── TCP ── program of ours     what the two agree on
//! ```
//!
//! A test starts a program, waits until it listens if it is to be the server, and asks for what it left.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::run::Outcome;
use crate::vm::job::Program;

/// How long a program may take to listen.
const START: Duration = Duration::from_secs(10);
/// How long it may run.
const LIMIT: Duration = Duration::from_secs(60);
/// Where servers in the guest listen.
const GUEST_PORT: u16 = 18515;
/// The host's end of the wire.
const ADDRESS: &str = "10.1.0.1/24";

/// Sockets and TCP ports.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// The model's end of the wire.
    near: PathBuf,
    /// QEMU's end.
    far: PathBuf,
    /// Clients here reach the guest's servers by it.
    to_guest: u16,
    /// Servers here listen on it.
    here: u16,
}

impl Ends {
    /// Free ones.
    pub(super) fn find(folder: &Path) -> Outcome<Self> {
        let free = || {
            TcpListener::bind(("127.0.0.1", 0))
                .and_then(|listener| Ok((listener.local_addr()?.port(), listener)))
        };
        let why = |why| format!("cannot find a free TCP port: {why}");
        let ((to_guest, _first), (here, _second)) = (free().map_err(why)?, free().map_err(why)?);
        Ok(Self { near: folder.join("model"), far: folder.join("card"), to_guest, here })
    }

    /// QEMU's arguments for the cards: the wire first.
    pub(crate) fn cards(&self) -> Vec<OsString> {
        let Self { near, far, to_guest, .. } = self;
        let (near, far) = (near.display(), far.display());
        let wire =
            format!("dgram,id=wire,local.type=unix,local.path={far},remote.type=unix,remote.path={near}");
        let network = format!("user,id=tcp,hostfwd=tcp:127.0.0.1:{to_guest}-:{GUEST_PORT}");
        let card = |name: &str, number| {
            format!("virtio-net-pci,netdev={name},mac=02:00:00:00:01:0{number},romfile=")
        };
        [wire, card("wire", 1), network, card("tcp", 2)]
            .into_iter()
            .zip(["-netdev", "-device"].into_iter().cycle())
            .flat_map(|(value, option)| [option.into(), value.into()])
            .collect()
    }
}

/// What tests ask of the host.
pub(super) struct Across {
    ends: Ends,
    /// Name and file.
    programs: Vec<(String, PathBuf)>,
    /// How many times their usual limits they may take.
    patience: f64,
    running: Option<Running>,
}

/// A program, ended with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Across {
    pub(super) fn new(ends: Ends, programs: &[Program], patience: f64) -> Self {
        let named = |program: &Program| {
            Some((program.inside.strip_prefix("/ours/")?.to_owned(), program.file.clone()))
        };
        Self { ends, programs: programs.iter().filter_map(named).collect(), patience, running: None }
    }

    /// `ports`: where clients here reach the guest, where servers here listen. `start NAME [KEYS] WORDS`: a program on a model with these
    /// keys. `listens`: once it does. `finish`: what it left, as JSON.
    pub(super) fn request(&mut self, word: &str, rest: &str, over: &AtomicBool) -> Outcome<String> {
        match word {
            "ports" => Ok(format!("{} {}", self.ends.to_guest, self.ends.here)),
            "start" => self.start(rest),
            "listens" => self.listens(over),
            "finish" => self.finish(over),
            _ => Err(format!("unknown request '{word}'")),
        }
    }

    fn start(&mut self, line: &str) -> Outcome<String> {
        // One at a time has the wire.
        self.running = None;
        let mut words = line.split_whitespace().peekable();
        let name = words.next().unwrap_or_default();
        let keys =
            words.next_if(|word| word.contains('=')).map(|keys| format!(",{keys}")).unwrap_or_default();
        let (_, file) = self
            .programs
            .iter()
            .find(|(known, _)| known == name)
            .ok_or_else(|| format!("this job has no program '{name}'"))?;
        let (near, far) = (self.ends.near.display(), self.ends.far.display());
        let child = Command::new(file)
            .args(["--no-huge", "--no-telemetry", "--vdev"])
            .arg(format!("mlx5_model0,wire=unix:{near}:{far},ip={ADDRESS}{keys}"))
            .arg("--")
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| format!("cannot start {}: {why}", file.display()))?;
        self.running = Some(Running(child));
        Ok(String::new())
    }

    /// Whether somebody listens on `here`: state 0A of Linux `Documentation/networking/proc_net_tcp.rst`. The guest's tests have the
    /// same (`tests/tests/guest/originals.rs`, `listens`): neither knows the other's crate.
    fn is_listened_on(&self) -> bool {
        let local = format!(":{:04X} ", self.ends.here);
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            let table = std::fs::read_to_string(table).unwrap_or_default();
            table.lines().any(|line| line.contains(&local) && line.split_whitespace().nth(3) == Some("0A"))
        })
    }

    fn listens(&mut self, over: &AtomicBool) -> Outcome<String> {
        let begin = Instant::now();
        while !self.is_listened_on() {
            let ended = self.running.as_mut().is_none_or(|running| !matches!(running.0.try_wait(), Ok(None)));
            if ended || begin.elapsed() > START.mul_f64(self.patience) || over.load(Ordering::Relaxed) {
                return Err(format!("it does not listen: {}", self.finish(over)?));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(String::new())
    }

    fn finish(&mut self, over: &AtomicBool) -> Outcome<String> {
        let mut running = self.running.take().ok_or("no program was started")?;
        let begin = Instant::now();
        let why = |why| format!("cannot wait for a program: {why}");
        // What it prints fits its pipes.
        let status = loop {
            match running.0.try_wait().map_err(why)? {
                Some(status) => break status.to_string(),
                None if begin.elapsed() > LIMIT.mul_f64(self.patience) || over.load(Ordering::Relaxed) => {
                    running.0.kill().map_err(why)?;
                    break format!("still running after {} s", begin.elapsed().as_secs());
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let read = |pipe: Option<&mut dyn std::io::Read>| {
            let mut text = String::new();
            pipe.and_then(|pipe| pipe.read_to_string(&mut text).ok());
            text
        };
        let stdout = read(running.0.stdout.as_mut().map(|pipe| pipe as _));
        let stderr = read(running.0.stderr.as_mut().map(|pipe| pipe as _));
        Ok(serde_json::json!({ "status": status, "stdout": stdout, "stderr": stderr }).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_is_the_first_card() {
        let folder = tempfile::tempdir().expect("a folder");
        let ends = Ends::find(folder.path()).expect("free ports");
        assert_ne!(ends.here, ends.to_guest);
        let cards = ends.cards();
        assert_eq!(cards.len(), 8);
        assert_eq!(cards[0], "-netdev");
        let wire = cards[1].to_string_lossy();
        assert!(
            wire.starts_with("dgram,id=wire,local.type=unix,local.path=/") && wire.ends_with("/model"),
            "{wire}"
        );
        assert_eq!((cards[2].as_os_str(), cards[4].as_os_str()), ("-device".as_ref(), "-netdev".as_ref()));
    }

    #[test]
    fn a_program_is_started_waited_for_and_heard() {
        let folder = tempfile::tempdir().expect("a folder");
        let ends = Ends::find(folder.path()).expect("free ports");
        let programs = [Program { file: "/bin/echo".into(), inside: "/ours/echo" }];
        let mut across = Across::new(ends.clone(), &programs, 1.0);
        let over = AtomicBool::new(false);
        assert_eq!(
            across.request("ports", "", &over).expect("ports"),
            format!("{} {}", ends.to_guest, ends.here)
        );
        across.request("start", "echo loss=0.5 one two", &over).expect("started");
        let left: serde_json::Value =
            serde_json::from_str(&across.request("finish", "", &over).expect("ended")).expect("JSON");
        assert_eq!(left["status"], "exit status: 0");
        assert!(
            left["stdout"].as_str().is_some_and(|said| said.ends_with("/24,loss=0.5 -- one two\n")),
            "{left}"
        );
        across.request("start", "other", &over).expect_err("not of this job");
        across.request("start", "echo", &over).expect("started");
        assert!(
            across.request("listens", "", &over).expect_err("ends instead").contains("it does not listen")
        );
        across.request("finish", "", &over).expect_err("nothing runs");
        across.request("dance", "", &over).expect_err("unknown");
    }
}
