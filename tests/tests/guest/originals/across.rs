//! The original on rxe0 here, ours on the host's device model.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use pollux_tests::program::Finished;

use super::{Device, LIMIT, Meeting, Program, by_address, listens, rping, rstream};
use crate::bed::{ask, here, wait};

/// The guest as the host reaches it, and the host as the guest does: see `xtask/src/vm/bed/across.rs`, and for the address QEMU
/// `docs/system/devices/net.rst`.
const PORT: &str = "18515";
const HOST: &str = "10.0.2.2";
/// The GID of IPv4 of the host's model.
const GID: &str = "1";

/// The host, on whose wire `impairments` are keys of the model.
struct Across {
    device: Device,
    impairments: &'static str,
}

impl Across {
    /// Starts a program on the host; its other end is `server`, if it is given.
    fn start(&self, name: &str, words: &[&str], server: Option<(&str, &str)>, own: &str) {
        let words = words.join(" ");
        let keys = self.impairments;
        match server {
            Some((host, port)) => ask(&format!("start {name} {keys} {words} -p {port} {host}")),
            None => ask(&format!("start {name} {keys} {words} -p {own}")),
        };
    }

    fn finish() -> Finished {
        let left: serde_json::Value = serde_json::from_str(&ask("finish")).expect("JSON");
        let text = |key: &str| left[key].as_str().unwrap_or_default().to_owned();
        println!("host: {}\n{}{}", text("status"), text("stdout"), text("stderr"));
        assert_eq!(text("status"), "exit status: 0");
        let stderr = text("stderr").lines().map(str::to_owned).collect();
        Finished { status: ExitStatus::from_raw(0), stdout: text("stdout"), stderr }
    }
}

impl Meeting for Across {
    fn both_roles(&self, name: &str, original: &str, gid: &str, words: &[&str]) -> [[Finished; 2]; 2] {
        let ports = ask("ports");
        let (to_guest, on_host) = ports.split_once(' ').expect("two ports");
        let program = Program::original(original);
        let there = [words, &[gid, GID]].concat();
        let here = |port| [words, &[gid, &self.device.gid, "-p", port]].concat();
        let end = |running: pollux_tests::program::Running| {
            let done = running.finish(LIMIT);
            println!("{original}: {}\n{}{}", done.status, done.stdout, done.stderr.join("\n"));
            done
        };
        // Ours waits.
        self.start(name, &there, None, on_host);
        ask("listens");
        let client = end(program.start(&self.device, &here(on_host), Some(HOST)));
        let first = [Self::finish(), client];
        // The original waits.
        wait("the port of the run before", LIMIT, || (!listens(PORT)).then_some(()));
        let server = program.start(&self.device, &here(PORT), None);
        wait("a listening server", LIMIT, || listens(PORT).then_some(()));
        self.start(name, &there, Some(("127.0.0.1", to_guest)), on_host);
        let client = Self::finish();
        let runs = [first, [end(server), client]];
        assert!(runs.as_flattened().iter().all(|end| end.status.success()), "an end did not end well");
        runs
    }
}

/// Runs a test with the host.
fn with_host(impairments: &'static str, test: impl FnOnce(&dyn Meeting)) {
    if here() {
        test(&Across { device: Device::new("rxe0"), impairments });
    }
}

fn pingpong(name: &str, sizes: &[usize], more: &[&str]) {
    with_host("", |host| super::pingpong(host, name, sizes, more));
}

fn perftest(name: &str, sizes: &[usize], more: &[&str], reports: usize) {
    with_host("", |host| super::perftest(host, name, sizes, more, reports));
}

#[test]
fn rc_pingpong() {
    pingpong("rc_pingpong", &[32, 1024, 4096], &["-c"]);
}

/// What is lost is asked for or sent again, by either end.
#[test]
fn rc_pingpong_on_a_bad_wire() {
    with_host("loss=0.01,dup=0.01,reorder=0.01,seed=5", |host| {
        super::pingpong(host, "rc_pingpong", &[4096], &["-c"])
    });
}

#[test]
fn uc_pingpong() {
    pingpong("uc_pingpong", &[1024, 4096], &["-c"]);
}

#[test]
fn ud_pingpong() {
    pingpong("ud_pingpong", &[32, 1024], &["-c"]);
}

#[test]
fn srq_pingpong() {
    pingpong("srq_pingpong", &[4096], &["-q", "4"]);
}

#[test]
fn send_bw() {
    perftest("send_bw", &[1024, 4096], &[], 2);
}

#[test]
fn write_bw() {
    perftest("write_bw", &[1024, 65536], &[], 2);
}

#[test]
fn read_bw() {
    perftest("read_bw", &[1024, 65536], &[], 2);
}

#[test]
fn atomic_bw() {
    perftest("atomic_bw", &[8], &[], 2);
}

#[test]
fn latency() {
    perftest("send_lat", &[64], &[], 2);
    perftest("write_lat", &[64], &[], 2);
}

/// Our connection manager against Linux's, each in both roles, over queue pair 1 of the model and of rxe; also where the wire loses.
#[test]
fn rping() {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    let words = rping::WORDS.join(" ");
    for keys in ["seed=1", "loss=0.03,dup=0.03,reorder=0.03,seed=5"] {
        // Ours waits.
        ask(&format!("start rping {keys} -s -a 10.1.0.1 {words}"));
        let client = rping::client_of(|| {
            let mut client = rping::original();
            client.args(["-c", "-a", "10.1.0.1"]).args(rping::WORDS);
            client
        });
        rping::check(&client);
        rping::check(&Across::finish());
        // The original waits.
        let mut server: Command = rping::original();
        server.args(["-s", "-a", "10.1.0.2", "-p", "7175"]).args(rping::WORDS);
        let server = pollux_tests::program::Running::start(server);
        wait("a listening server", LIMIT, || rping::listens("7175").then_some(()));
        ask(&format!("start rping {keys} -c -a 10.1.0.2 -p 7175 {words}"));
        rping::check(&Across::finish());
        rping::check(&server.finish(LIMIT));
    }
}

/// The same for many connections at once.
#[test]
fn ucmatose() {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    let words = rping::MANY.join(" ");
    ask(&format!("start ucmatose seed=1 -b 10.1.0.1 {words}"));
    let client = rping::client_of(|| {
        let mut client = rping::original_ucmatose();
        client.args(["-s", "10.1.0.1"]).args(rping::MANY);
        client
    });
    rping::check_many(&client);
    rping::check_many(&Across::finish());
    let mut server: Command = rping::original_ucmatose();
    server.args(["-b", "10.1.0.2", "-p", "7273"]).args(rping::MANY);
    let server = pollux_tests::program::Running::start(server);
    wait("a listening server", LIMIT, || rping::listens("7273").then_some(()));
    ask(&format!("start ucmatose seed=1 -s 10.1.0.2 -p 7273 {words}"));
    rping::check_many(&Across::finish());
    rping::check_many(&server.finish(LIMIT));
}

/// Ours takes the original's client here, and is a client of the original's server.
fn with_original(programs: [&str; 2], port: &str, words: [&str; 2], expected: &str) {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    let [server_words, client_words] = words;
    ask(&format!("start {} seed=1 {}", programs[0], server_words.replace("HERE", "10.1.0.1")));
    let words = client_words.replace("THERE", "10.1.0.1");
    let client = by_address::client_of(|| {
        let words: Vec<&str> = words.split(' ').collect();
        pollux_tests::program::Running::start(by_address::original(programs[1], &words))
    });
    by_address::check(&client, expected);
    by_address::check(&Across::finish(), expected);
    let words = server_words.replace("HERE", "10.1.0.2");
    let words: Vec<&str> = words.split(' ').collect();
    let server = by_address::serve(by_address::original(programs[0], &words), port);
    ask(&format!("start {} seed=1 {}", programs[1], client_words.replace("THERE", "10.1.0.2")));
    by_address::check(&Across::finish(), expected);
    by_address::check(&server.finish(LIMIT), expected);
}

#[test]
fn udaddy() {
    with_original(
        ["udaddy", "udaddy"],
        "7174",
        ["-b HERE -c 3", "-s THERE -c 3"],
        "data transfers complete\n",
    );
}

/// The original asks for as many READs at once as rxe can, which is more than the model can.
#[test]
fn rdma_server_and_client() {
    let words = ["-s HERE -p 7371", "-s THERE -p 7371"];
    with_original(["rdma_server", "rdma_client"], "7371", words, ": end 0\n");
}

/// Ours asks. The other way round the original would look for TCP at the model's address, where there is none.
#[test]
fn cmtime() {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    let ports = ask("ports");
    let (to_guest, _) = ports.split_once(' ').expect("two ports");
    let server = by_address::serve(by_address::original("cmtime", &["-p", PORT, "-c", "20"]), PORT);
    wait("TCP", LIMIT, || listens(PORT).then_some(()));
    ask(&format!(
        "start cmtime seed=1 -s 10.1.0.2 -p {PORT} -c 20 --tcp-host 127.0.0.1 --tcp-port {to_guest}"
    ));
    by_address::check(&Across::finish(), "\ndestroy qp ");
    by_address::check(&server.finish(LIMIT), "\ndestroy qp ");
}

/// perftest by address.
struct AcrossByAddress(Device);

impl Meeting for AcrossByAddress {
    fn both_roles(&self, name: &str, original: &str, _gid: &str, words: &[&str]) -> [[Finished; 2]; 2] {
        let program = Program::original(original);
        let more = words.join(" ");
        ask(&format!("start {name} seed=1 {more} -p 18600"));
        let there = [words, &["-p", "18600"]].concat();
        let client = by_address::client_of(|| program.start(&self.0, &there, Some("10.1.0.1")));
        let first = [Across::finish(), client];
        wait("the port of the run before", LIMIT, || (!rping::listens("18600")).then_some(()));
        let server = program.start(&self.0, &there, None);
        wait("a listening server", LIMIT, || rping::listens("18600").then_some(()));
        ask(&format!("start {name} seed=1 {more} -p 18600 10.1.0.2"));
        let client = Across::finish();
        let runs = [first, [server.finish(LIMIT), client]];
        runs.as_flattened().iter().for_each(|end| by_address::check(end, "Data ex. method : rdma_cm"));
        runs
    }
}

#[test]
fn perftest_by_address() {
    if !here() {
        return;
    }
    let meeting = AcrossByAddress(Device::new("rxe0"));
    for (name, size, more, reports) in [
        ("send_bw", 1024, &["-R"][..], 2),
        ("send_bw", 1024, &["-R", "-c", "UD"], 2),
        ("write_bw", 4096, &["-R"], 2),
        ("write_lat", 64, &["-R"], 2),
        ("read_bw", 4096, &["-R"], 2),
        ("send_lat", 64, &["-z"], 2),
    ] {
        super::perftest(&meeting, name, &[size], more, reports);
    }
}

/// Streams, also where the wire loses.
#[test]
fn rstream() {
    if !here() {
        return;
    }
    let _ready = Device::new("rxe0");
    let lossy = ("loss=0.01,dup=0.01,seed=5", rstream::RUNS[1]);
    let runs = rstream::RUNS.map(|run| ("seed=1", run)).into_iter().chain([lossy]);
    for (port, (keys, (words, row))) in (7500..).step_by(2).zip(runs) {
        // Ours waits.
        let ours = port.to_string();
        ask(&format!("start rstream {keys} -b 10.1.0.1 -p {ours} {words}"));
        let client = rstream::client_of(|| {
            let mut client = rstream::original("rstream");
            client.args(["-s", "10.1.0.1", "-p", &ours]).args(words.split(' '));
            client
        });
        rstream::check(&client, row);
        rstream::check(&Across::finish(), row);
        // The original waits.
        let theirs = (port + 1).to_string();
        let mut server: Command = rstream::original("rstream");
        server.args(["-b", "10.1.0.2", "-p", &theirs]).args(words.split(' '));
        let server = pollux_tests::program::Running::start(server);
        wait("a listening server", LIMIT, || rping::listens(&theirs).then_some(()));
        ask(&format!("start rstream {keys} -s 10.1.0.2 -p {theirs} {words}"));
        rstream::check(&Across::finish(), row);
        rstream::check(&server.finish(LIMIT), row);
    }
}
