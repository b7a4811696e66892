//! Our RDMA programs at one end, rdma-core's or perftest's at the other, both ways round. The device is rxe0, which sends to itself.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use pollux_tests::program::{Finished, Running};

use crate::bed::{here, ours, read, wait};

/// How long an end may take, where nothing is compiled for this machine but interpreted.
const LIMIT: Duration = Duration::from_secs(40);

/// A TCP port that no run before has left behind.
fn free_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(19_000);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

/// The index of rxe0's GID of IPv4.
fn gid() -> String {
    let folder = Path::new("/sys/class/infiniband/rxe0/ports/1/gids");
    let index = (0..8).find(|index| read(folder.join(index.to_string())).contains(":ffff:"));
    index.expect("a GID of IPv4").to_string()
}

/// Whether somebody listens on that TCP port: state 0A of Linux `Documentation/networking/proc_net_tcp.rst`.
fn listens(port: &str) -> bool {
    let local = format!(":{:04X} ", port.parse::<u16>().expect("a port"));
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        table.lines().any(|line| line.contains(&local) && line.split_whitespace().nth(3) == Some("0A"))
    })
}

fn started(program: &Path, words: &[&str]) -> Running {
    let mut command = Command::new(program);
    if program.starts_with("/ours") {
        command.args(["-l", "0", "--no-huge", "--"]);
    }
    command.args(words);
    Running::start(command)
}

/// Both ends' output, server first. Both have to end well.
fn run(server: &Path, client: &Path, words: &[&str]) -> [Finished; 2] {
    let port = free_port();
    let words = [words, &["-p", &port]].concat();
    let waiting = started(server, &words);
    wait("a listening server", LIMIT, || listens(&port).then_some(()));
    let done = started(client, &[&words[..], &["127.0.0.1"]].concat());
    let done = [waiting.finish(LIMIT), done.finish(LIMIT)];
    let said: Vec<String> =
        done.iter().map(|end| format!("{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"))).collect();
    println!("{} {words:?}: {}\n{}: {}", server.display(), said[0], client.display(), said[1]);
    assert!(done.iter().all(|end| end.status.success()), "an end did not end well");
    done
}

/// Both roles of a program and of its original: what the ends of each run left, server first.
fn both_roles(name: &str, original: &str, words: &[&str]) -> [[Finished; 2]; 2] {
    let (ours, original) = (ours(name), Path::new("/usr/bin").join(original));
    [run(&ours, &original, words), run(&original, &ours, words)]
}

fn pingpong(name: &str, sizes: &[usize], more: &[&str]) {
    if !here() {
        return;
    }
    let gid = gid();
    for size in sizes {
        let bytes = size.to_string();
        let words = [&["-d", "rxe0", "-g", &gid, "-n", "200", "-s", &bytes], more].concat();
        for end in both_roles(name, &format!("ibv_{name}"), &words).as_flattened() {
            // To and fro.
            let bytes = format!("{} bytes in ", size * 200 * 2);
            assert!(end.stdout.contains(&bytes), "no {bytes:?} in {}", end.stdout);
            assert!(end.stdout.contains("200 iters in "), "{}", end.stdout);
            assert!(!end.stdout.contains("invalid data"), "{}", end.stdout);
        }
    }
}

#[test]
fn rc_pingpong() {
    pingpong("rc_pingpong", &[1024, 4096], &["-c"]);
}

#[test]
fn rc_pingpong_that_sleeps() {
    pingpong("rc_pingpong", &[1024], &["-e"]);
}

#[test]
fn uc_pingpong() {
    pingpong("uc_pingpong", &[1024, 4096], &["-c"]);
}

/// A datagram is one packet of the interface's 1024 bytes at most.
#[test]
fn ud_pingpong() {
    pingpong("ud_pingpong", &[32, 1024], &["-c"]);
}

#[test]
fn srq_pingpong() {
    pingpong("srq_pingpong", &[1024, 4096], &["-q", "4"]);
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

/// `reports`: how many ends print a report, of which the server is the second.
fn perftest(name: &str, sizes: &[usize], more: &[&str], reports: usize) {
    if !here() {
        return;
    }
    let gid = gid();
    // A row counts the messages of all queue pairs.
    let iterations = if more.contains(&"-q") { 400 } else { 200 };
    for &size in sizes {
        let bytes = size.to_string();
        // An atomic operation has its size.
        let sized: &[&str] = if name.starts_with("atomic") { &[] } else { &["-s", &bytes] };
        let words = [&["-d", "rxe0", "-x", &gid, "-n", "200", "-F"], sized, more].concat();
        for ends in both_roles(name, &format!("ib_{name}"), &words) {
            for end in ends.iter().rev().take(reports) {
                let row = row(end, size, iterations);
                // The averages.
                let average = if name.ends_with("_lat") { row[5] } else { row[3] };
                assert!(average > 0.0, "{}", end.stdout);
            }
        }
    }
}

#[test]
fn send_bw() {
    perftest("send_bw", &[1024, 4096], &[], 2);
}

#[test]
fn send_bw_of_datagrams_both_ways() {
    perftest("send_bw", &[1024], &["-c", "UD", "-t", "8"], 2);
    perftest("send_bw", &[4096], &["-b"], 2);
}

#[test]
fn send_lat() {
    perftest("send_lat", &[1024, 4096], &[], 2);
    perftest("send_lat", &[64], &["-c", "UD"], 2);
}

#[test]
fn write_bw() {
    perftest("write_bw", &[1024, 4096], &[], 2);
    perftest("write_bw", &[1024], &["-b", "-q", "2"], 2);
}

#[test]
fn write_lat() {
    perftest("write_lat", &[1024, 4096], &[], 2);
}

#[test]
fn read_bw() {
    perftest("read_bw", &[1024, 4096], &[], 2);
}

#[test]
fn read_lat() {
    perftest("read_lat", &[1024, 4096], &[], 1);
}

#[test]
fn atomic_bw() {
    perftest("atomic_bw", &[8], &[], 2);
}

#[test]
fn atomic_lat() {
    perftest("atomic_lat", &[8], &[], 1);
}
