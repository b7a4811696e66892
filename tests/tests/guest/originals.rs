//! Our RDMA programs at one end, rdma-core's at the other, both ways round. The device is rxe0, which sends to itself.

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

/// Both roles of a program and of its original.
fn both_roles(name: &str, original: &str, words: &[&str], check: impl Fn(&Finished)) {
    let (ours, original) = (ours(name), Path::new("/usr/bin").join(original));
    for (server, client) in [(&ours, &original), (&original, &ours)] {
        for end in run(server, client, words) {
            check(&end);
        }
    }
}

fn pingpong(name: &str, sizes: &[usize], more: &[&str]) {
    if !here() {
        return;
    }
    let gid = gid();
    for size in sizes {
        let bytes = size.to_string();
        let words = [&["-d", "rxe0", "-g", &gid, "-n", "200", "-s", &bytes], more].concat();
        both_roles(name, &format!("ibv_{name}"), &words, |end| {
            // To and fro.
            let bytes = format!("{} bytes in ", size * 200 * 2);
            assert!(end.stdout.contains(&bytes), "no {bytes:?} in {}", end.stdout);
            assert!(end.stdout.contains("200 iters in "), "{}", end.stdout);
            assert!(!end.stdout.contains("invalid data"), "{}", end.stdout);
        });
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
