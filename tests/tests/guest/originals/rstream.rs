//! Ours and librdmacm's `rstream` and `riostream`, each in both roles: whose connection manager it is differs.

use std::process::Command;
use std::time::Duration;

use pollux_tests::program::{Finished, Running};

use super::LIMIT;
use super::rping::listens;
use crate::bed::{ours, wait};

/// Words of both ends, and what their one row begins with: small and large transfers, small buffers, calls that wait and that do not. Not
/// `-T a`: the original's poll tells of a peer that has finished before of its last data, by which its program ends.
pub(super) const RUNS: [(&str, [&str; 5]); 6] = [
    ("-S 64 -C 1 -I 200 -T v", ["custom", "64", "1", "200", "25k"]),
    ("-S 5000 -C 40 -I 4 -T v -T b", ["custom", "4.8k", "40", "4", "1.5m"]),
    ("-S 300000 -C 4 -I 2 -T v", ["custom", "292k", "4", "2", "4.5m"]),
    ("-S 100000 -C 5 -I 2 -T v -B 16384 -T b", ["custom", "97k", "5", "2", "1.9m"]),
    ("-S 1 -C 1000 -I 1 -T v -i 0", ["custom", "1", "1k", "1", "1.9k"]),
    ("-S 1000 -C 100 -I 2 -T v -k 1 -B 4096", ["custom", "1000", "100", "2", "390k"]),
];

/// Those of `riostream`, which has neither keepalives nor a trouble with polling.
pub(super) const RIO_RUNS: [(&str, [&str; 5]); 4] = [
    ("-S 64 -C 1 -I 200 -T v", ["custom", "64", "1", "200", "25k"]),
    ("-S 5000 -C 40 -I 4 -T v -T b", ["custom", "4.8k", "40", "4", "1.5m"]),
    ("-S 300000 -C 4 -I 2 -T v -B 16384", ["custom", "292k", "4", "2", "4.5m"]),
    ("-S 4096 -C 50 -I 2 -T v -T a", ["custom", "4k", "50", "2", "800k"]),
];

/// Ours, by the kernel's connection manager.
pub(super) fn own(program: &str) -> Command {
    let mut command = Command::new(ours(program));
    command.args(["-l", "0", "--no-huge", "--"]);
    command
}

pub(super) fn original(program: &str) -> Command {
    Command::new(format!("/usr/bin/{program}"))
}

/// Both ends, server first. Both have to end well.
pub(super) fn run(
    [mut server, mut client]: [Command; 2],
    address: &str,
    port: &str,
    (words, row): (&str, [&str; 5]),
) {
    server.args(["-b", address, "-p", port]).args(words.split(' '));
    client.args(["-s", address, "-p", port]).args(words.split(' '));
    let waiting = Running::start(server);
    wait("a listening server", LIMIT, || listens(port).then_some(()));
    let client = Running::start(client).finish(LIMIT);
    [waiting.finish(LIMIT), client].iter().for_each(|end| check(end, row));
}

/// Everything was transferred, compared and measured.
pub(super) fn check(end: &Finished, row: [&str; 5]) {
    println!("{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"));
    assert!(end.status.success(), "an end did not end well");
    // The original tells of its keepalives in between.
    let table =
        end.stdout.lines().filter(|line| !line.starts_with("Keepalive: ") && !line.starts_with("  time: "));
    let lines: Vec<Vec<&str>> = table.map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 2, "a head and a row in {}", end.stdout);
    assert_eq!(lines[0], ["name", "bytes", "xfers", "iters", "total", "time", "Gb/sec", "usec/xfer"]);
    assert_eq!((&lines[1][..5], lines[1].len()), (&row[..], 8), "{}", end.stdout);
}

/// Runs a client until a server that was just started takes it.
pub(super) fn client_of(start: impl Fn() -> Command) -> Finished {
    let mut tries = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(500));
        Running::start(start()).finish(LIMIT)
    });
    tries.find(|end| end.status.success()).expect("a server within ten seconds")
}
