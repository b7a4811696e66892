//! Our RDMA programs at one end, rdma-core's or perftest's at the other, both ways round.
//!
//! ```text
//!   rxe      both ends on rxe0, which sends to itself
//!   mlx5     an end on each of two functions of the device model, as Linux' mlx5_ib drives them, with a cable between
//!   dual     the same on cards of two functions each, whose devices have two ports
//!   across   the original on rxe0 here, ours on the host's device model: what is between them is frames
//! ```

mod across;
mod by_address;
mod dual;
mod figures;
mod mlx5;
mod paging;
mod rping;
mod rstream;
mod rxe;
mod udpong;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use pollux_tests::program::{Finished, Running};

use crate::bed::{ours, wait};

/// How long an end may take, where nothing is compiled for this machine but interpreted.
const LIMIT: Duration = Duration::from_secs(60);

/// A TCP port that no run before has left behind.
fn free_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(19_000);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

/// A device of this guest.
#[derive(Debug)]
struct Device {
    name: String,
    /// Index of its GID of RoCE v2, of IPv4 unless it is asked for [another](Self::of_ipv6).
    gid: String,
}

impl Device {
    /// Waits until it has its GID.
    fn new(name: &str) -> Self {
        Self::with_gid(name, ":ffff:")
    }

    /// The same device, of whose GIDs the link-local one is taken.
    fn of_ipv6(&self) -> Self {
        Self::with_gid(&self.name, "fe80:")
    }

    fn with_gid(name: &str, part: &str) -> Self {
        let folder = PathBuf::from("/sys/class/infiniband").join(name).join("ports/1");
        let text = |path: String| std::fs::read_to_string(folder.join(path)).unwrap_or_default();
        let gid = wait("a GID", Duration::from_secs(10), || {
            (0..16).find(|index| {
                text(format!("gids/{index}")).contains(part)
                    && text(format!("gid_attrs/types/{index}")).contains("v2")
            })
        });
        Self { name: name.to_owned(), gid: gid.to_string() }
    }
}

/// Whether somebody listens on that TCP port: state 0A of Linux `Documentation/networking/proc_net_tcp.rst`. The host has the same
/// (`xtask/src/vm/bed/across.rs`, `is_listened_on`): neither knows the other's crate.
fn listens(port: &str) -> bool {
    let local = format!(":{:04X} ", port.parse::<u16>().expect("a port"));
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| line.contains(&local) && line.split_whitespace().nth(3) == Some("0A"))
    })
}

/// A program of ours or of others, and what it is told whatever it does.
#[derive(Clone, Debug)]
struct Program(PathBuf, &'static [&'static str]);

impl Program {
    fn ours(name: &str) -> Self {
        Self(ours(name), &[])
    }

    fn original(name: &str) -> Self {
        Self(Path::new("/usr/bin").join(name), &[])
    }

    /// The original as an older release has it, see `xtask/src/vm/guest.rs`.
    fn older(name: &str) -> Self {
        Self(Path::new("/usr/older/usr/bin").join(name), &[])
    }

    fn told(self, words: &'static [&'static str]) -> Self {
        Self(self.0, words)
    }

    /// Starts it on a device; ours finds a server's by `-a`, a client's by `-d`.
    fn start(&self, device: &Device, words: &[&str], server: Option<&str>) -> Running {
        let mut command = Command::new(&self.0);
        let by_allow = self.0.starts_with("/ours") && server.is_none();
        if self.0.starts_with("/ours") {
            command.args(["-l", "0", "--no-huge"]);
            if by_allow {
                command.args(["-a", &device.name]);
            }
            command.arg("--");
        }
        if !by_allow {
            command.args(["-d", &device.name]);
        }
        command.args(words).args(self.1).args(server);
        Running::start(command)
    }
}

/// One end of a run here.
type End<'a> = (Program, &'a Device);

/// Both ends' output, server first. Both have to end well. `gid` is the option for it.
fn run([server, client]: [End<'_>; 2], gid: &str, words: &[&str]) -> [Finished; 2] {
    let port = free_port();
    let with = |device: &Device| -> Vec<String> {
        [words, &[gid, &device.gid, "-p", &port]].concat().iter().map(|&word| word.to_owned()).collect()
    };
    let start = |(program, device): &End<'_>, to: Option<&str>| {
        let words = with(device);
        program.start(device, &words.iter().map(String::as_str).collect::<Vec<_>>(), to)
    };
    let waiting = start(&server, None);
    wait("a listening server", LIMIT, || listens(&port).then_some(()));
    let done = start(&client, Some("127.0.0.1"));
    let done = [waiting.finish(LIMIT), done.finish(LIMIT)];
    let said: Vec<String> =
        done.iter().map(|end| format!("{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"))).collect();
    println!("{} {words:?}: {}\n{}: {}", server.0.0.display(), said[0], client.0.0.display(), said[1]);
    assert!(done.iter().all(|end| end.status.success()), "an end did not end well");
    done
}

/// Where a program of ours meets its original, in both roles.
trait Meeting {
    /// What the ends of each run left, server first.
    fn both_roles(&self, name: &str, original: &str, gid: &str, words: &[&str]) -> [[Finished; 2]; 2];
}

/// Here, a device for each.
struct Within<'a> {
    ours: &'a Device,
    theirs: &'a Device,
}

impl Meeting for Within<'_> {
    fn both_roles(&self, name: &str, original: &str, gid: &str, words: &[&str]) -> [[Finished; 2]; 2] {
        let ours = || (Program::ours(name), self.ours);
        let theirs = || (Program::original(original), self.theirs);
        [run([ours(), theirs()], gid, words), run([theirs(), ours()], gid, words)]
    }
}

/// Ping-pong messages, counted by both ends.
fn pingpong(meeting: &dyn Meeting, name: &str, sizes: &[usize], more: &[&str]) {
    for size in sizes {
        let bytes = size.to_string();
        let words = [&["-n", "200", "-s", &bytes], more].concat();
        for end in meeting.both_roles(name, &format!("ibv_{name}"), "-g", &words).as_flattened() {
            // To and fro.
            let bytes = format!("{} bytes in ", size * 200 * 2);
            assert!(end.stdout.contains(&bytes), "no {bytes:?} in {}", end.stdout);
            assert!(end.stdout.contains("200 iters in "), "{}", end.stdout);
            assert!(!end.stdout.contains("invalid data"), "{}", end.stdout);
        }
    }
}

/// Bytes, iterations and the numbers behind them: the row of a report.
fn row(end: &Finished, size: usize, iterations: u32) -> Vec<f64> {
    let numbers = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>().ok();
    let mut rows = end.stdout.lines().filter_map(numbers).filter(|row| row.len() > 2);
    let found = rows.next().unwrap_or_else(|| panic!("no row of a report in {}", end.stdout));
    assert_eq!(found[..2], [size as f64, iterations.into()], "{}", end.stdout);
    assert_eq!(rows.next(), None, "{}", end.stdout);
    found
}

/// What came of a run in which the original knew how fast its processor counts. It measures that as it starts, and where others use
/// the machine meanwhile it gives up, and all its rates are 0.00. Source: perftest `src/get_clock.c`, `sample_get_cpu_mhz`.
fn measured<const ENDS: usize>(runs: impl Fn() -> [Finished; ENDS]) -> [Finished; ENDS] {
    let unknown = |end: &Finished| end.stderr.iter().any(|line| line.contains("Correlation coefficient r^2"));
    let mut tries = std::iter::repeat_with(runs).take(5);
    let known = tries.find(|ends| !ends.iter().any(unknown));
    known.expect("one run of five in which the machine is quiet for long enough")
}

/// `reports`: how many ends print a report, of which the server is the second.
fn perftest(meeting: &dyn Meeting, name: &str, sizes: &[usize], more: &[&str], reports: usize) {
    // A row counts the messages of all queue pairs.
    let iterations = if more.contains(&"-q") || more.contains(&"-O") { 400 } else { 200 };
    for &size in sizes {
        let bytes = size.to_string();
        // An atomic operation has its size.
        let sized: &[&str] = if name.starts_with("atomic") { &[] } else { &["-s", &bytes] };
        let words = [&["-n", "200", "-F"], sized, more].concat();
        let both = || {
            let [[a, b], [c, d]] = meeting.both_roles(name, &format!("ib_{name}"), "-x", &words);
            [a, b, c, d]
        };
        for ends in measured(both).chunks(2) {
            for end in ends.iter().rev().take(reports) {
                let row = row(end, size, iterations);
                // The averages.
                let average = if name.ends_with("_lat") { row[5] } else { row[3] };
                assert!(average > 0.0, "{}", end.stdout);
            }
        }
    }
}
