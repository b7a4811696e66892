//! Programs that connect by address, between device models: what they say, and what is wrong with what they are told.

use std::process::Command;
use std::time::{Duration, Instant};

use pollux_tests::program::{Finished, Running, with_default_signals};

use crate::place::{LIMIT, Place, SIGINT, SIGTERM, line};

const RPING: &str = env!("CARGO_BIN_EXE_rping");
const SERVER: &str = "10.0.0.1";
const CLIENT: &str = "10.0.0.2";

/// An end on a model with that address, and more keys of it.
fn end(place: &Place, ends: [&str; 2], ip: &str, keys: &str, words: &str) -> Command {
    let [own, other] = ends.map(|name| place.folder.path().join(name).display().to_string());
    let mut command = Command::new(RPING);
    let device = format!("mlx5_model0,wire=unix:{own}:{other},ip={ip}/24{keys}");
    command.args(["-l", "0", "--no-huge", "--vdev", &device, "--"]).args(words.split_whitespace());
    command
}

fn server(place: &Place, keys: &str, words: &str) -> Running {
    let command = end(place, ["a", "b"], SERVER, keys, &format!("-s -d {words}"));
    let mut running = Running::start(with_default_signals(&command));
    running.wait_for("rping: listening on");
    running
}

fn client(place: &Place, words: &str) -> Finished {
    let command = end(place, ["b", "a"], CLIENT, "", &format!("-c -a {SERVER} {words}"));
    Running::start(with_default_signals(&command)).finish(LIMIT)
}

fn well(end: &Finished) {
    assert_eq!(end.status.code(), Some(0), "{}\n{}", end.stdout, end.stderr.join("\n"));
}

#[test]
fn rping_by_address_has_every_byte_back() {
    let place = Place::new();
    let server = server(&place, "", "-a 10.0.0.1 -v");
    let client = client(&place, "-C 3 -v -V -d");
    well(&client);
    let server = server.finish(LIMIT);
    well(&server);
    let data: Vec<&str> = client.stdout.lines().filter(|line| line.starts_with("ping data: ")).collect();
    assert_eq!(data.len(), 3, "{}", client.stdout);
    assert_eq!(data[1], "ping data: rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs");
    let theirs: Vec<String> = data.iter().map(|line| format!("server {line}")).collect();
    assert!(theirs.iter().all(|line| server.stdout.contains(line.as_str())), "{}", server.stdout);
    for event in ["CONNECT_REQUEST", "ESTABLISHED", "DISCONNECTED"] {
        assert!(
            server.stdout.contains(&format!("cma_event type RDMA_CM_EVENT_{event}")),
            "{}",
            server.stdout
        );
    }
    assert!(server.stderr.iter().any(|line| line == "server DISCONNECT EVENT..."), "{:?}", server.stderr);
}

/// Sizes of one packet and of many, a source address, another port; and a wire that loses.
#[test]
fn rping_by_other_options() {
    for (keys, server_words, client_words) in [
        ("", "-S 65535 -p 5000", "-S 65535 -p 5000 -V -C 5"),
        ("", "-S 26", "-S 26 -V -C 200"),
        ("", "-a 0.0.0.0", "-I 10.0.0.2 -V -C 5"),
        (",loss=0.01,dup=0.02,reorder=0.01,seed=4", "-S 5000", "-S 5000 -V -C 20"),
    ] {
        let place = Place::new();
        let server = server(&place, keys, server_words);
        well(&client(&place, client_words));
        well(&server.finish(LIMIT));
    }
}

#[test]
fn a_persistent_server_serves_one_after_another_until_the_end() {
    let place = Place::new();
    let server = server(&place, "", "-P");
    for _ in 0..3 {
        well(&client(&place, "-C 2 -V"));
    }
    // One that dies in the middle.
    let command = end(&place, ["b", "a"], CLIENT, "", &format!("-c -a {SERVER}"));
    let endless = Running::start(with_default_signals(&command));
    std::thread::sleep(Duration::from_millis(500));
    endless.signal(9);
    drop(endless);
    server.signal(SIGTERM);
    let server = server.finish(LIMIT);
    well(&server);
    let ends = server.stderr.iter().filter(|line| line.contains("DISCONNECT EVENT")).count();
    assert_eq!(ends, 3, "{:?}", server.stderr);
}

#[test]
fn signals_end_either_end() {
    let place = Place::new();
    let waiting = server(&place, "", "");
    waiting.signal(SIGINT);
    well(&waiting.finish(LIMIT));
    let place = Place::new();
    let server = server(&place, "", "");
    let command = end(&place, ["b", "a"], CLIENT, "", &format!("-c -a {SERVER} -v"));
    let client = Running::start(with_default_signals(&command));
    std::thread::sleep(Duration::from_millis(500));
    client.signal(SIGINT);
    well(&client.finish(LIMIT));
    // The server hears of it.
    let server = server.finish(LIMIT);
    well(&server);
    assert!(server.stderr.iter().any(|line| line == "server DISCONNECT EVENT..."), "{:?}", server.stderr);
}

#[test]
fn mistakes_are_one_line() {
    let place = Place::new();
    // Nobody is at the other end of the wire, or at the address.
    let begin = Instant::now();
    let alone = client(&place, "-C 1");
    assert_eq!(alone.status.code(), Some(1));
    assert!(
        line(&alone).starts_with("rping: 10.0.0.1:7174: RDMA_CM_EVENT_ADDR_ERROR: ETIMEDOUT"),
        "{}",
        line(&alone)
    );
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    let waiting = server(&place, "", "-p 5000 -S 100");
    let other = client(&place, "-C 1");
    assert_eq!(other.status.code(), Some(1));
    let said = line(&other);
    assert!(
        said.contains("RDMA_CM_EVENT_REJECTED: invalid service ID (8); nobody listens there: start the server first, with the same -p"),
        "{said}"
    );
    // Longer data than the server has room for.
    let long = client(&place, "-p 5000 -S 200 -C 1");
    assert_eq!(
        line(&waiting.finish(LIMIT)),
        "rping: the client's data has 200 bytes, this end has room for 100: give both ends the same -S"
    );
    drop(long);
    for (words, expected) in [
        ("-s -a 10.0.0.9", "10.0.0.9:7174 is the address of no RDMA device here; addresses: "),
        ("-c -a 10.0.0.1 -I 10.0.0.9", "10.0.0.9:0 is the address of no RDMA device here"),
        ("-c -a not.a.host.invalid", "-a not.a.host.invalid: "),
        ("-c", "-a"),
        ("-s -c -a 10.0.0.1", "-c"),
        ("", "-s"),
        ("-s -S 25", "25"),
        ("-s -p 0", "0"),
    ] {
        let place = Place::new();
        let command = end(&place, ["a", "b"], SERVER, "", words);
        let done = Running::start(with_default_signals(&command)).finish(LIMIT);
        assert_eq!(done.status.code(), Some(2), "{words}: {:?}", done.stderr);
        assert!(done.stderr.join("\n").contains(expected), "{words}: {:?}", done.stderr);
    }
    // The kernel's own connection manager, which is not there.
    if !std::path::Path::new("/dev/infiniband/rdma_cm").exists() {
        let mut command = Command::new(RPING);
        command.args(["-l", "0", "--no-huge", "--", "-s"]);
        let done = Running::start(with_default_signals(&command)).finish(LIMIT);
        assert_eq!(done.status.code(), Some(1));
        let said = done.stderr.join("\n");
        assert!(said.contains("/dev/infiniband/rdma_cm: No such file or directory"), "{said}");
        assert!(
            said.contains("modprobe rdma_ucm") && said.contains("--vdev mlx5_model0,wire=unix:"),
            "{said}"
        );
    }
}

const UCMATOSE: &str = env!("CARGO_BIN_EXE_ucmatose");

#[test]
fn ucmatose_has_many_connections_at_once() {
    for (keys, server_words, client_words) in [
        ("", "-c 60 -C 5 -m", "-c 60 -C 5"),
        ("", "-c 2 -S 0 -p 5000", "-c 2 -S 0 -p 5000 -m -t 8 -a 15"),
        (",loss=0.02,dup=0.02,reorder=0.02,seed=9", "-c 20 -C 3 -S 5000", "-c 20 -C 3 -S 5000 -a 14"),
    ] {
        let place = Place::new();
        let start = |ends, ip, keys, words: &str| {
            let mut command = Command::new(UCMATOSE);
            let like = end(&place, ends, ip, keys, words);
            command.args(like.get_args());
            Running::start(with_default_signals(&command))
        };
        let mut server = start(["a", "b"], SERVER, keys, &format!("-b {SERVER} {server_words}"));
        server.wait_for("ucmatose: listening on");
        let client = start(["b", "a"], CLIENT, "", &format!("-s {SERVER} {client_words}")).finish(LIMIT);
        for done in [client, server.finish(LIMIT)] {
            well(&done);
            assert!(done.stdout.ends_with("test complete\nreturn status 0\n"), "{}", done.stdout);
        }
    }
}
