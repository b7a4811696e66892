//! Both ends on rxe0.

mod explained;
mod linked;

use std::process::Command;

use pollux_tests::program::Finished;

use super::{Device, Meeting, Program, Within, by_address, listens, paging, rping, rstream, run, udpong};
use crate::bed::{here, wait};

/// Runs a test with both ends there.
fn on_rxe(test: impl FnOnce(&dyn Meeting)) {
    if here() {
        let device = Device::new("rxe0");
        test(&Within { ours: &device, theirs: &device });
    }
}

fn pingpong(name: &str, sizes: &[usize], more: &[&str]) {
    on_rxe(|meeting| super::pingpong(meeting, name, sizes, more));
}

fn perftest(name: &str, sizes: &[usize], more: &[&str], reports: usize) {
    on_rxe(|meeting| super::perftest(meeting, name, sizes, more, reports));
}

#[test]
fn rc_pingpong() {
    pingpong("rc_pingpong", &[1024, 4096], &["-c"]);
}

#[test]
fn rc_pingpong_that_sleeps() {
    pingpong("rc_pingpong", &[1024], &["-e"]);
}

/// rxe has on-demand paging since Linux 6.15. The data are not compared: rxe copies from and to the start of a page wherever in it they
/// are, as far as 7.3 (`drivers/infiniband/sw/rxe/rxe_odp.c`, `__rxe_odp_mr_copy`, which leaves the offset out).
#[test]
fn pingpongs_on_demand() {
    if here() && paging::is_had(&Device::new("rxe0"), [6, 15], "ODP_SUPPORT") {
        pingpong("rc_pingpong", &[1024, 4096], &["-o"]);
        pingpong("rc_pingpong", &[4096], &["-o", "-P"]);
        perftest("send_bw", &[4096], &["--odp"], 2);
    }
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
    perftest("write_bw", &[1024], &["--write_with_imm", "-q", "2"], 2);
}

#[test]
fn write_lat() {
    perftest("write_lat", &[1024, 4096], &[], 2);
    perftest("write_lat", &[1024], &["--write_with_imm"], 2);
}

#[test]
fn unreliable_connections() {
    perftest("send_lat", &[64], &["-c", "UC"], 2);
    perftest("write_bw", &[1024], &["-c", "UC", "-t", "8"], 2);
    perftest("write_lat", &[64], &["-c", "UC"], 2);
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

/// Where ours says that it is the version that the original of an older release is.
struct Older<'a>(&'a Device);

impl Meeting for Older<'_> {
    fn both_roles(&self, name: &str, original: &str, gid: &str, words: &[&str]) -> [[Finished; 2]; 2] {
        let ours = || (Program::ours(name).told(&["--peer-version", "6.06"]), self.0);
        let theirs = || (Program::older(original), self.0);
        [run([ours(), theirs()], gid, words), run([theirs(), ours()], gid, words)]
    }
}

#[test]
fn perftest_of_an_older_version() {
    if !here() {
        return;
    }
    // It calls that a failure.
    let said = Command::new(Program::older("ib_send_bw").0).arg("-V").output().expect("it runs");
    assert!(String::from_utf8_lossy(&said.stdout).contains("Version: 6.06"), "{said:?}");
    let device = Device::new("rxe0");
    let older = Older(&device);
    for (name, sizes, more, reports) in [
        ("send_bw", &[1024][..], &[][..], 2),
        ("send_bw", &[1024], &["-b", "-q", "2"], 2),
        ("send_lat", &[64], &["-c", "UD"], 2),
        ("write_bw", &[4096], &["-b"], 2),
        ("write_lat", &[64], &[], 2),
        ("read_bw", &[4096], &[], 2),
        ("atomic_bw", &[8], &["--perform_warm_up", "-Q", "1"], 2),
    ] {
        super::perftest(&older, name, sizes, more, reports);
    }
}

/// Through the kernel's connection manager, each in both roles, and ours with itself; once more by IPv6.
#[test]
fn rping() {
    if here() {
        let _ready = Device::new("rxe0");
        for (port, server, client) in [
            ("7174", rping::own as fn() -> Command, rping::original as fn() -> Command),
            ("7175", rping::original, rping::own),
            ("7176", rping::own, rping::own),
        ] {
            rping::run([server(), client()], "10.0.0.1", port);
        }
    }
}

/// Many connections at once, with messages in both directions.
#[test]
fn ucmatose() {
    if here() {
        let _ready = Device::new("rxe0");
        for (port, server, client) in [
            ("7271", rping::own_ucmatose as fn() -> Command, rping::original_ucmatose as fn() -> Command),
            ("7272", rping::original_ucmatose, rping::own_ucmatose),
        ] {
            rping::many([server(), client()], "10.0.0.1", port);
        }
    }
}

/// Runs a server and a client, which end well and say `expected`, each ours and the original once.
fn by_address(
    programs: [&str; 2],
    port: &str,
    words: [&[&str]; 2],
    expected: &str,
    ready: impl Fn() -> bool,
) {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    for [server, client] in by_address::ROLES {
        wait("the port of the run before", super::LIMIT, || (!rping::listens(port)).then_some(()));
        let server = by_address::serve(server(programs[0], words[0]), port);
        wait("a server that is ready", super::LIMIT, || ready().then_some(()));
        let client =
            pollux_tests::program::Running::start(client(programs[1], words[1])).finish(super::LIMIT);
        by_address::check(&client, expected);
        by_address::check(&server.finish(super::LIMIT), expected);
    }
}

#[test]
fn udaddy() {
    let words: [&[&str]; 2] = [&["-b", "10.0.0.1", "-c", "3"], &["-s", "10.0.0.1", "-c", "3"]];
    by_address(["udaddy", "udaddy"], "7174", words, "data transfers complete\n", || true);
}

#[test]
fn rdma_server_and_client() {
    let words: [&[&str]; 2] = [&["-s", "10.0.0.1", "-p", "7371"], &["-s", "10.0.0.1", "-p", "7371"]];
    by_address(["rdma_server", "rdma_client"], "7371", words, ": end 0\n", || true);
}

#[test]
fn cmtime() {
    let words: [&[&str]; 2] =
        [&["-b", "10.0.0.1", "-p", "7381", "-c", "20"], &["-s", "10.0.0.1", "-p", "7381", "-c", "20"]];
    by_address(["cmtime", "cmtime"], "7381", words, "\ndestroy qp ", || listens("7381"));
}

/// Connected by the manager, all or only what the ends say to each other. One queue pair each: with `-q 2` the original's client of 6.24 crashes
/// in librdmacm.
#[test]
fn perftest_by_address() {
    if !here() {
        return;
    }
    let device = Device::new("rxe0");
    let meeting = by_address::Here { device: &device, address: "10.0.0.1" };
    for (name, size, more, reports) in [
        ("send_bw", 1024, &["-R"][..], 2),
        ("send_bw", 4096, &["-R", "-b"], 2),
        ("send_bw", 1024, &["-R", "-c", "UD"], 2),
        ("send_lat", 64, &["-R"], 2),
        ("send_lat", 64, &["-R", "-c", "UD"], 2),
        ("write_bw", 4096, &["-R", "-T", "8"], 2),
        ("write_lat", 64, &["-R"], 2),
        ("read_bw", 4096, &["-R"], 2),
        ("read_lat", 64, &["-R"], 1),
        ("atomic_bw", 8, &["-R"], 2),
        ("send_bw", 1024, &["-z"], 2),
    ] {
        super::perftest(&meeting, name, &[size], more, reports);
    }
}

/// Streams in both directions; the originals by themselves, so that a log has their figures beside ours.
#[test]
fn rstream() {
    streams("rstream", 7500, &rstream::RUNS);
}

/// Writes past the peer's program, likewise.
#[test]
fn riostream() {
    streams("riostream", 7600, &rstream::RIO_RUNS);
}

/// Datagrams over sockets: ours at both ends.
#[test]
fn udpong() {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    for (port, run) in (7700..).zip(udpong::RUNS) {
        udpong::run("10.0.0.1", &port.to_string(), run);
    }
}

fn streams(program: &str, first: u16, runs: &[(&str, [&str; 5])]) {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    for (port, &run) in (first..).step_by(4).zip(runs) {
        for (port, server, client) in [
            (port, rstream::own as fn(&str) -> Command, rstream::original as fn(&str) -> Command),
            (port + 1, rstream::original, rstream::own),
            (port + 2, rstream::own, rstream::own),
            (port + 3, rstream::original, rstream::original),
        ] {
            rstream::run([server(program), client(program)], "10.0.0.1", &port.to_string(), run);
        }
    }
}
