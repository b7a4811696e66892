//! Ours and librdmacm's `rping` and `ucmatose`, each in both roles: whose connection manager it is differs.

use std::process::Command;
use std::time::Duration;

use pollux_tests::program::{Finished, Running};

use super::LIMIT;
use crate::bed::{ours, wait};

/// Pings, whose data are compared.
pub(super) const WORDS: [&str; 4] = ["-C", "20", "-V", "-v"];

/// Ours, by the kernel's connection manager.
pub(super) fn own() -> Command {
    let mut command = Command::new(ours("rping"));
    command.args(["-l", "0", "--no-huge", "--"]);
    command
}

pub(super) fn original() -> Command {
    Command::new("/usr/bin/rping")
}

/// Whether somebody listens there, as the kernel tells it.
pub(super) fn listens(port: &str) -> bool {
    let told = Command::new("rdma").args(["resource", "show", "cm_id"]).output().expect("rdma starts");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    told.lines().any(|line| line.contains("LISTEN") && line.contains(&format!(":{port} ")))
}

/// Both ends' output, server first. Both have to end well.
pub(super) fn run([mut server, mut client]: [Command; 2], address: &str, port: &str) -> [Finished; 2] {
    server.args(["-s", "-a", address, "-p", port]).args(WORDS);
    client.args(["-c", "-a", address, "-p", port]).args(WORDS);
    let waiting = Running::start(server);
    wait("a listening server", LIMIT, || listens(port).then_some(()));
    let client = Running::start(client).finish(LIMIT);
    let ends = [waiting.finish(LIMIT), client];
    ends.iter().for_each(check);
    ends
}

/// Every ping came back.
pub(super) fn check(end: &Finished) {
    println!("{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"));
    assert!(end.status.success(), "an end did not end well");
    let pings = end.stdout.lines().filter(|line| line.contains("ping data: rdma-ping-")).count();
    assert_eq!(pings, 20, "{}", end.stdout);
}

/// Runs a client until a server that was just started takes it.
pub(super) fn client_of(start: impl Fn() -> Command) -> Finished {
    let mut tries = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(500));
        Running::start(start()).finish(LIMIT)
    });
    let refused = |end: &Finished| {
        end.stdout.contains("REJECTED") || end.stderr.iter().any(|line| line.contains("REJECTED"))
    };
    tries.find(|end| !refused(end)).expect("a server within ten seconds")
}

pub(super) fn own_ucmatose() -> Command {
    let mut command = Command::new(ours("ucmatose"));
    command.args(["-l", "0", "--no-huge", "--"]);
    command
}

pub(super) fn original_ucmatose() -> Command {
    Command::new("/usr/bin/ucmatose")
}

/// Words of both ends.
pub(super) const MANY: [&str; 4] = ["-c", "10", "-C", "5"];

/// Ten connections with five messages in each direction.
pub(super) fn many([mut server, mut client]: [Command; 2], address: &str, port: &str) {
    server.args(["-b", address, "-p", port]).args(MANY);
    client.args(["-s", address, "-p", port]).args(MANY);
    let waiting = Running::start(server);
    wait("a listening server", LIMIT, || listens(port).then_some(()));
    let client = Running::start(client).finish(LIMIT);
    [waiting.finish(LIMIT), client].iter().for_each(check_many);
}

/// All of it went through.
pub(super) fn check_many(end: &Finished) {
    println!("{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"));
    assert!(end.status.success(), "an end did not end well");
    assert!(end.stdout.contains("data transfers complete"), "{}", end.stdout);
    assert!(end.stdout.ends_with("return status 0\n"), "{}", end.stdout);
}
