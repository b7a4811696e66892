//! What meets by address besides `rping` and `ucmatose`: librdmacm's `udaddy`, `rdma_server`, `rdma_client` and `cmtime`, and perftest with `-R`
//! and `-z`; ours and the originals, each in both roles.

use std::process::Command;
use std::time::Duration;

use pollux_tests::program::{Finished, Running};

use super::rping::listens;
use super::{Device, LIMIT, Meeting, Program};
use crate::bed::{ours, wait};

/// Ours, by the kernel's connection manager.
pub(super) fn own(name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(ours(name));
    command.args(["-l", "0", "--no-huge", "--"]).args(words);
    command
}

pub(super) fn original(name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(format!("/usr/bin/{name}"));
    command.args(words);
    command
}

/// A server that listens.
pub(super) fn serve(command: Command, port: &str) -> Running {
    let running = Running::start(command);
    wait("a listening server", LIMIT, || listens(port).then_some(()));
    running
}

/// What an end left, which has to be well; this is in its output.
pub(super) fn check(end: &Finished, expected: &str) {
    println!("{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"));
    assert!(end.status.success(), "an end did not end well");
    assert!(end.stdout.contains(expected), "no {expected:?} in {}", end.stdout);
}

/// Runs a client until a server that was just started takes it.
pub(super) fn client_of(start: impl Fn() -> Running) -> Finished {
    let mut tries = (0..20).map(|_| {
        std::thread::sleep(Duration::from_millis(500));
        let end = start().finish(LIMIT);
        println!("{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"));
        end
    });
    tries.find(|end| end.status.success()).expect("a server within ten seconds")
}

/// How a program begins: ours or the original.
pub(super) type Start = fn(&str, &[&str]) -> Command;

/// Server and client, each ours and the original once.
pub(super) const ROLES: [[Start; 2]; 2] = [[own, original], [original, own]];

/// perftest with both ends on a device, by its address.
pub(super) struct Here<'a> {
    pub(super) device: &'a Device,
    pub(super) address: &'static str,
}

impl Here<'_> {
    fn run(&self, [server, client]: [Program; 2], words: &[&str]) -> [Finished; 2] {
        let port = super::free_port();
        let words = [words, &["-p", &port]].concat();
        let waiting = server.start(self.device, &words, None);
        wait("a listening server", LIMIT, || listens(&port).then_some(()));
        let client = client.start(self.device, &words, Some(self.address)).finish(LIMIT);
        let ends = [waiting.finish(LIMIT), client];
        ends.iter().for_each(|end| check(end, "Data ex. method : rdma_cm"));
        ends
    }
}

impl Meeting for Here<'_> {
    /// The address chooses the GID.
    fn both_roles(&self, name: &str, original: &str, _gid: &str, words: &[&str]) -> [[Finished; 2]; 2] {
        let (ours, theirs) = (|| Program::ours(name), || Program::original(original));
        [self.run([ours(), theirs()], words), self.run([theirs(), ours()], words)]
    }
}
