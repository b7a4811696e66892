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
    end_of(RPING, place, ends, ip, keys, words)
}

fn end_of(program: &str, place: &Place, ends: [&str; 2], ip: &str, keys: &str, words: &str) -> Command {
    let [own, other] = ends.map(|name| place.folder.path().join(name).display().to_string());
    let mut command = Command::new(program);
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
    for (end, events) in [
        (&server, ["CONNECT_REQUEST", "ESTABLISHED", "DISCONNECTED"]),
        (&client, ["ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED"]),
    ] {
        for event in events {
            let line = format!("cma_event type RDMA_CM_EVENT_{event}\n");
            assert!(end.stdout.contains(&line), "{line}{}", end.stdout);
        }
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

/// Runs a server, on whose wire `keys` are, and a client to their ends.
fn both(programs: [&str; 2], keys: &str, words: [&str; 2]) -> [Finished; 2] {
    let place = Place::new();
    let start = |which: usize, ends, ip, keys| {
        let command = end_of(programs[which], &place, ends, ip, keys, words[which]);
        Running::start(with_default_signals(&command))
    };
    let mut server = start(0, ["a", "b"], SERVER, keys);
    server.wait_for(": listening on");
    let client = start(1, ["b", "a"], CLIENT, "").finish(LIMIT);
    [server.finish(LIMIT), client]
}

/// What is typed wrong is refused in a line, before anybody is waited for.
fn refuses(program: &str, mistakes: &[(&str, &str)]) {
    for (words, expected) in mistakes {
        let place = Place::new();
        let command = end_of(program, &place, ["a", "b"], SERVER, "", words);
        let done = Running::start(with_default_signals(&command)).finish(LIMIT);
        assert_eq!(done.status.code(), Some(2), "{words}: {:?}", done.stderr);
        let said = done.stderr.last().expect("a line");
        assert!(said.contains(expected), "{words}: {:?}", done.stderr);
    }
}

/// A waiting server is stopped, and a client to whom nobody answers fails in a line.
fn ends_alone(server: &str, client: &str, words: [&str; 2], expected: &str) {
    for signal in [SIGINT, SIGTERM] {
        let place = Place::new();
        let command = end_of(server, &place, ["a", "b"], SERVER, "", words[0]);
        let mut waiting = Running::start(with_default_signals(&command));
        waiting.wait_for(": listening on");
        waiting.signal(signal);
        well(&waiting.finish(LIMIT));
    }
    let place = Place::new();
    let command = end_of(client, &place, ["b", "a"], CLIENT, "", words[1]);
    let alone = Running::start(with_default_signals(&command)).finish(LIMIT);
    assert!(line(&alone).contains(expected), "{}", line(&alone));
}

const UCMATOSE: &str = env!("CARGO_BIN_EXE_ucmatose");

#[test]
fn ucmatose_has_many_connections_at_once() {
    for (keys, server_words, client_words) in [
        ("", "-c 60 -C 5 -m", "-c 60 -C 5"),
        ("", "-c 2 -S 0 -p 5000", "-c 2 -S 0 -p 5000 -m -t 8 -a 15"),
        (",loss=0.02,dup=0.02,reorder=0.02,seed=9", "-c 20 -C 3 -S 5000", "-c 20 -C 3 -S 5000 -a 14"),
    ] {
        let words = [format!("-b {SERVER} {server_words}"), format!("-s {SERVER} {client_words}")];
        for done in both([UCMATOSE, UCMATOSE], keys, words.each_ref().map(String::as_str)) {
            well(&done);
            assert!(done.stdout.ends_with("test complete\nreturn status 0\n"), "{}", done.stdout);
        }
    }
}

#[test]
fn ucmatose_takes_addresses_as_they_are_said_to_be() {
    refuses(
        UCMATOSE,
        &[
            ("-f ip -s localhost", "-s localhost: not an IP address, which -f ip asks for"),
            ("-f ipv6 -s 10.0.0.1", "-s 10.0.0.1: no IPv6 address, which -f ipv6 asks for"),
            ("-f gid", "option '-f': 'gid' is not one of name, ip, ipv6"),
            ("-P ib", "option '-P': 'ib' is not supported: give tcp"),
            ("-b not.a.host.invalid", "-b not.a.host.invalid: "),
        ],
    );
    let words = ["-f ip -P TCP -b 10.0.0.1", "-f IP -s 10.0.0.1"];
    both([UCMATOSE, UCMATOSE], "", words).iter().for_each(well);
}

const UDADDY: &str = env!("CARGO_BIN_EXE_udaddy");

#[test]
fn udaddy_sends_datagrams_in_both_directions() {
    for (server, client) in [
        ("", ""),
        ("-c 20 -C 30 -S 1024", "-c 20 -C 30 -S 1024 -t 8"),
        ("-C 0", "-C 0 -p 0x0111"),
        ("-S 0 -c 2", "-S 0 -c 2 -b 10.0.0.2 -f ip"),
    ] {
        let words = [format!("-b {SERVER} {server}"), format!("-s {SERVER} {client}")];
        let ends = both([UDADDY, UDADDY], "", words.each_ref().map(String::as_str));
        for (end, side) in ends.iter().zip(["server", "client"]) {
            well(end);
            assert!(end.stdout.starts_with(&format!("udaddy: starting {side}\n")), "{}", end.stdout);
            assert!(end.stdout.ends_with("test complete\nreturn status 0\n"), "{}", end.stdout);
            let sends = !server.contains("-C 0") && !server.contains("-S 0");
            assert_eq!(end.stdout.contains("data transfers complete\n"), sends, "{}", end.stdout);
        }
    }
}

#[test]
fn mistakes_of_udaddy_are_one_line() {
    ends_alone(
        UDADDY,
        UDADDY,
        ["-b 10.0.0.1", "-s 10.0.0.1"],
        "10.0.0.1:7174: RDMA_CM_EVENT_ADDR_ERROR: ETIMEDOUT",
    );
    refuses(
        UDADDY,
        &[
            (
                "-p 7174",
                "option '-p': '7174' is the number of a port space, of which 0x0111 (udp) is supported; the port is always 7174",
            ),
            ("-P ipoib", "option '-P': 'ipoib' is not supported: give udp"),
            ("-S 5000", "option '-S': '5000' is not a whole number from 0 to 4096"),
            ("-c 0", "option '-c': '0' is not a whole number from 1 to 4096"),
            ("-b 10.0.0.9", "10.0.0.9:7174 is the address of no RDMA device here"),
        ],
    );
    // More than a datagram holds on that wire; and nobody takes datagrams at the other end, which is there.
    let place = Place::new();
    let command = end_of(UDADDY, &place, ["a", "b"], SERVER, "", "-b 10.0.0.1");
    let mut server = Running::start(with_default_signals(&command));
    server.wait_for(": listening on");
    let client = |words| {
        let command = end_of(UDADDY, &place, ["b", "a"], CLIENT, "", words);
        Running::start(with_default_signals(&command)).finish(LIMIT)
    };
    let long = client("-s 10.0.0.1 -S 2000");
    assert_eq!(long.status.code(), Some(2), "{:?}", long.stderr);
    let said = long.stderr.last().expect("a line");
    assert!(said.contains("-S 2000: a datagram is at most one MTU (1024): give at most 1024"), "{said}");
    server.signal(SIGINT);
    well(&server.finish(LIMIT));
    let other = server_of_rping(&place);
    let refused = client("-s 10.0.0.1");
    assert_eq!(
        line(&refused),
        "udaddy: 10.0.0.1:7174: no queue pair takes datagrams there; start the server first, and give both ends the same -c"
    );
    other.signal(SIGINT);
    well(&other.finish(LIMIT));
}

/// Every receiver of the group hears every message; the sender hears none.
#[test]
fn mckey_sends_to_a_group() {
    const MCKEY: &str = env!("CARGO_BIN_EXE_mckey");
    let place = Place::new();
    let receiver =
        end_of(MCKEY, &place, ["a", "b"], SERVER, "", "-m 239.1.2.3 -b 10.0.0.1 -c 3 -C 5 -S 1000");
    let mut receiver = Running::start(with_default_signals(&receiver));
    receiver.wait_for("mckey: listening on 239.1.2.3");
    let sender = end_of(MCKEY, &place, ["b", "a"], CLIENT, "", "-m 239.1.2.3 -b 10.0.0.2 -s -C 5 -S 1000");
    let sender = Running::start(with_default_signals(&sender)).finish(LIMIT);
    let receiver = receiver.finish(LIMIT);
    for (end, word) in [(sender, "initiating"), (receiver, "receiving")] {
        well(&end);
        assert!(
            end.stdout.contains("mckey: joined dgid: ::ffff:239.1.2.3 mlid 0x0 sl 0\n"),
            "{}",
            end.stdout
        );
        let words =
            format!("{word} data transfers\ndata transfers complete\ntest complete\nreturn status 0\n");
        assert!(end.stdout.ends_with(&words), "{}", end.stdout);
    }
    refuses(
        MCKEY,
        &[
            ("-m 10.0.0.1", "option '-m': '10.0.0.1' is no multicast address: give one such as 239.1.2.3"),
            ("-m 239.1.2.3 -p 0x0106", "is the number of a port space, of which 0x0111 (udp) is supported"),
            (
                "-m 239.1.2.3 -S 4096 -b 10.0.0.1",
                "-S 4096: a datagram is at most one MTU (1024): give at most 1024",
            ),
            ("-m 239.1.2.3 -b 203.0.113.1", "203.0.113.1:0 is the address of no RDMA device here"),
        ],
    );
}

/// A server of connections alone.
fn server_of_rping(place: &Place) -> Running {
    server(place, "", "")
}

const RDMA_SERVER: &str = env!("CARGO_BIN_EXE_rdma_server");
const RDMA_CLIENT: &str = env!("CARGO_BIN_EXE_rdma_client");

#[test]
fn rdma_server_answers_rdma_client() {
    for (keys, words) in [("", ""), ("", "-p 5000"), (",loss=0.05,dup=0.05,reorder=0.05,seed=3", "")] {
        let words = [format!("-s {SERVER} {words}"), format!("-s {SERVER} {words}")];
        let ends = both([RDMA_SERVER, RDMA_CLIENT], keys, words.each_ref().map(String::as_str));
        for (end, name) in ends.iter().zip(["rdma_server", "rdma_client"]) {
            well(end);
            assert_eq!(end.stdout, format!("{name}: start\n{name}: end 0\n"));
        }
    }
    ends_alone(
        RDMA_SERVER,
        RDMA_CLIENT,
        ["-s 10.0.0.1", "-s 10.0.0.1"],
        "rdma_client: 10.0.0.1:7471: RDMA_CM_EVENT_ADDR_ERROR",
    );
    refuses(
        RDMA_SERVER,
        &[("-s 10.0.0.9", "10.0.0.9:7471 is the address of no RDMA device here"), ("-p 0", "'0'")],
    );
    refuses(RDMA_CLIENT, &[("-s not.a.host.invalid", "-s not.a.host.invalid: "), ("-p x", "'x'")]);
}

const CMTIME: &str = env!("CARGO_BIN_EXE_cmtime");

/// The number in a column of a row of the second and third runs.
fn column(end: &Finished, row: &str, column: usize) -> Vec<u64> {
    let rows = end.stdout.lines().filter_map(|line| line.strip_prefix(row));
    rows.map(|rest| rest.split_whitespace().nth(column).expect("a column").parse().expect("a number"))
        .collect()
}

#[test]
fn cmtime_makes_all_connections_and_measures_each_step() {
    for (keys, count, more) in [("", 40, " -b 10.0.0.2"), (",loss=0.03,dup=0.03,reorder=0.03,seed=6", 8, "")]
    {
        // TCP between the processes, in a port that nobody else has.
        let port = Place::new().port;
        let words = [
            format!("-b {SERVER} -c {count} --tcp-port {port}"),
            format!("-s {SERVER} -c {count} --tcp-host 127.0.0.1 --tcp-port {port}{more}"),
        ];
        let [server, client] = both([CMTIME, CMTIME], keys, words.each_ref().map(String::as_str));
        for (end, title) in [(&server, "Accept"), (&client, "Connect")] {
            well(end);
            assert!(end.stdout.contains(&format!("\n{title} ({count}) QPs test\n")), "{}", end.stdout);
            assert_eq!(column(end, "qp_conn", 0), [count, count]);
            for row in ["cm connect ", "create qp ", "disconnect ", "destroy qp "] {
                // Each of them took some time.
                assert!(column(end, row, 3).iter().all(|sum| *sum > 0), "{row}: {}", end.stdout);
            }
            let rates = end.stdout.lines().filter_map(|line| line.strip_prefix("cm connect: "));
            let rates: Vec<f64> = rates
                .map(|line| line.trim_end_matches(" connections/s").parse().expect("a number"))
                .collect();
            // By the row's total.
            for (rate, total) in rates.iter().zip(column(end, "cm connect ", 1)) {
                let by_hand = count as f64 * 1e6 / total as f64;
                assert!((rate - by_hand).abs() <= 1.0 + by_hand * 0.01, "{rate} {by_hand}");
            }
            assert_eq!(rates.len(), 2, "{}", end.stdout);
        }
        let bound = column(&client, "bind addr ", 3).iter().all(|sum| *sum > 0);
        assert_eq!(bound, !more.is_empty(), "{}", client.stdout);
    }
}

#[test]
fn mistakes_of_cmtime_are_one_line() {
    let port = Place::new().port;
    ends_alone(
        CMTIME,
        CMTIME,
        [
            &format!("-b 10.0.0.1 --tcp-port {port}"),
            &format!("-s 10.0.0.1 --tcp-host 127.0.0.1 --tcp-port {port}"),
        ],
        &format!("cmtime: cannot connect to 127.0.0.1:{port}: "),
    );
    refuses(
        CMTIME,
        &[
            ("-n 4", "option '-n': '4' is not a whole number from 1 to 1"),
            ("-m 5", "option '-m': '5' is not supported: an ID connects only a queue pair that there is"),
            ("-q 5", "option '-q': '5' is not supported: an ID connects only a queue pair that there is"),
            ("-S", "-S is not supported: only connections of RDMA are measured"),
            ("--tcp-host 127.0.0.1", "-s"),
            ("-c 0", "option '-c': '0' is not a whole number from 1 to 65536"),
            ("-b 10.0.0.9", "10.0.0.9:7471 is the address of no RDMA device here"),
        ],
    );
    // Ends that were told different numbers: the client ends, and the server hears so.
    let place = Place::new();
    let server =
        end_of(CMTIME, &place, ["a", "b"], SERVER, "", &format!("-b {SERVER} -c 4 --tcp-port {port}"));
    let mut server = Running::start(with_default_signals(&server));
    server.wait_for(": listening on");
    let words = format!("-s {SERVER} -c 2 --tcp-host 127.0.0.1 --tcp-port {port}");
    let client =
        Running::start(with_default_signals(&end_of(CMTIME, &place, ["b", "a"], CLIENT, "", &words)));
    std::thread::sleep(Duration::from_millis(1500));
    client.signal(SIGINT);
    well(&client.finish(LIMIT));
    assert_eq!(
        line(&server.finish(LIMIT)),
        "cmtime: the client ended after 2 of 4 connections; give both ends the same -c"
    );
}

const RSTREAM: &str = env!("CARGO_BIN_EXE_rstream");

fn rstream(ends: [&str; 2], place: &Place, ip: &str, keys: &str, words: &str) -> Running {
    stream(RSTREAM, ends, place, ip, keys, words)
}

const RIOSTREAM: &str = env!("CARGO_BIN_EXE_riostream");

fn riostream(ends: [&str; 2], place: &Place, ip: &str, keys: &str, words: &str) -> Running {
    stream(RIOSTREAM, ends, place, ip, keys, words)
}

/// A server and its client, whose bytes each end compares.
fn verified(program: &str, keys: &str, words: &str) -> [Finished; 2] {
    let place = Place::new();
    let words = format!("{words} -T verify");
    let mut server = stream(program, ["a", "b"], &place, SERVER, keys, &format!("-b {SERVER} {words}"));
    server.wait_for("stream: listening on");
    let client =
        stream(program, ["b", "a"], &place, CLIENT, "", &format!("-s {SERVER} {words}")).finish(LIMIT);
    [server.finish(LIMIT), client]
}

fn has_row(end: &Finished, row: &str, words: &str) {
    assert_eq!(rows(end), [row.split(' ').map(str::to_owned).collect::<Vec<_>>()], "{words}");
}

/// Words, the status that they end with, and what is said of them.
fn mistakes(program: &str, place: &Place, table: &[(&str, i32, &str)]) {
    for &(words, code, expected) in table {
        let done = stream(program, ["a", "b"], place, SERVER, "", words).finish(LIMIT);
        assert_eq!(done.status.code(), Some(code), "{words}: {:?}", done.stderr);
        assert!(done.stderr.join("\n").contains(expected), "{words}: {:?}", done.stderr);
    }
}

fn stream(program: &str, ends: [&str; 2], place: &Place, ip: &str, keys: &str, words: &str) -> Running {
    let mut command = Command::new(program);
    let like = end(place, ends, ip, keys, words);
    command.args(like.get_args());
    Running::start(with_default_signals(&command))
}

/// What a table has: its rows' first five columns.
fn rows(end: &Finished) -> Vec<Vec<String>> {
    well(end);
    let mut lines = end.stdout.lines();
    let head: Vec<&str> = lines.next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["name", "bytes", "xfers", "iters", "total", "time", "Gb/sec", "usec/xfer"]);
    let columns = |line: &str| -> Vec<String> {
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(columns.len(), 8, "{line}");
        assert!(columns[5].ends_with('s') && columns[7].parse::<f64>().is_ok_and(|us| us > 0.0), "{line}");
        columns[..5].iter().map(|column| (*column).to_owned()).collect()
    };
    // What is told of keepalives stands in between.
    lines
        .filter(|line| !line.starts_with("Keepalive: ") && !line.starts_with("  time: "))
        .map(columns)
        .collect()
}

#[test]
fn rstream_has_every_byte_there_and_back() {
    for (keys, words, row) in [
        ("", "-S 5000 -C 40 -I 4", "custom 4.8k 40 4 1.5m"),
        ("", "-S 3000000 -C 2 -T b", "custom 2.8m 2 1 11m"),
        ("", "-S 100 -C 3 -I 50 -T a -k 1 -f ip", "custom 100 3 50 29k"),
        ("", "-S 70000 -C 5 -T a -T blocking -B 2048 -i 0", "custom 68k 5 1 683k"),
        (",loss=0.01,dup=0.01,reorder=0.01,seed=3", "-S 20000 -C 10", "custom 19k 10 1 390k"),
    ] {
        let ends = verified(RSTREAM, keys, words);
        // Of the listener and of each stream.
        let told = ends.each_ref().map(|end| end.stdout.matches("Keepalive: ON\n  time: 1\n").count());
        assert_eq!(told, if words.contains("-k 1") { [2, 1] } else { [0, 0] });
        ends.iter().for_each(|end| has_row(end, row, words));
    }
}

/// Without RDMA the same over TCP.
#[test]
fn rstream_over_tcp() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = port.expect("a free port").port();
    let start = |words: &str| {
        let mut command = Command::new(RSTREAM);
        command.args(["-l", "0", "--no-huge", "--"]).args(words.split_whitespace());
        Running::start(with_default_signals(&command))
    };
    let words = format!("-p {port} -S 4096 -C 50 -I 2 -T v");
    let mut server = start(&format!("-b 127.0.0.1 {words} -T fork -T b"));
    server.wait_for("rstream: listening on");
    let client = start(&format!("-s 127.0.0.1 {words} -T sockets")).finish(LIMIT);
    for done in [client, server.finish(LIMIT)] {
        assert_eq!(rows(&done), [["custom", "4k", "50", "2", "800k"]]);
    }
}

#[test]
fn mistakes_with_rstream_are_one_line() {
    let place = Place::new();
    let table = [
        ("-b 10.0.0.9", 1, "10.0.0.9:7471 is the address of no RDMA device here"),
        ("-s 10.0.0.9", 1, "cannot connect to 10.0.0.9:7471: RDMA_CM_EVENT_ADDR_ERROR: ETIMEDOUT"),
        ("-s localhost -f ip", 2, "-s localhost: not an IP address, which -f ip asks for"),
        ("-T x", 2, "is none of s|sockets"),
        ("-S 0", 2, "or all"),
        ("-f gid", 2, "gid"),
        ("-p 65536", 2, "65536"),
    ];
    mistakes(RSTREAM, &place, &table);
    // A server that a signal ends, and one whose client says another size: the stream ends early.
    let mut server = rstream(["a", "b"], &place, SERVER, "", "-S 1000 -C 10");
    server.wait_for("rstream: listening on");
    let refused = rstream(["b", "a"], &place, CLIENT, "", "-s 10.0.0.1 -p 5000").finish(LIMIT);
    assert_eq!(
        line(&refused),
        "rstream: 10.0.0.1:5000 refused the connection: invalid service ID (8); start the server first, with the same -p"
    );
    server.signal(SIGINT);
    well(&server.finish(LIMIT));
}

/// Of one byte there is a marker alone; 200 iterations count it past 255; short transfers are overwritten by what goes before the clock.
#[test]
fn riostream_has_every_byte_there_and_back() {
    for (keys, words, row) in [
        ("", "-S 1 -C 3 -I 200", "custom 1 3 200 1.1k"),
        ("", "-S 16 -C 1 -I 200", "custom 16 1 200 6.2k"),
        ("", "-S 5000 -C 40 -I 4", "custom 4.8k 40 4 1.5m"),
        ("", "-S 3000000 -C 2 -T b", "custom 2.8m 2 1 11m"),
        ("", "-S 100 -C 3 -I 50 -T a -f ip", "custom 100 3 50 29k"),
        ("", "-S 70000 -C 5 -T a -T blocking -B 2048 -i 0", "custom 68k 5 1 683k"),
        (",loss=0.01,dup=0.01,reorder=0.01,seed=3", "-S 20000 -C 10", "custom 19k 10 1 390k"),
    ] {
        verified(RIOSTREAM, keys, words).iter().for_each(|end| has_row(end, row, words));
    }
}

#[test]
fn mistakes_with_riostream_are_one_line() {
    let place = Place::new();
    let table = [
        ("-b 10.0.0.9", 1, "10.0.0.9:7471 is the address of no RDMA device here"),
        ("-s localhost -f ip", 2, "-s localhost: not an IP address, which -f ip asks for"),
        ("-T s", 2, "is none of a|async, b|blocking, n|nonblocking, v|verify"),
        ("-k 1", 2, "-k"),
        ("-S 0", 2, "or all"),
        ("-p 65536", 2, "65536"),
    ];
    mistakes(RIOSTREAM, &place, &table);
    let mut server = riostream(["a", "b"], &place, SERVER, "", "-S 1000 -C 10");
    server.wait_for("riostream: listening on");
    // A peer that offers no room for maps: it gives up first, and this end is told that it has.
    let other = rstream(["b", "a"], &place, CLIENT, "", "-s 10.0.0.1 -S 1000 -C 10").finish(LIMIT);
    assert!(!other.status.success(), "{:?}", other.stderr);
    assert_eq!(
        line(&server.finish(LIMIT)),
        "riostream: cannot map 1000 bytes: the peer has room for 0 maps, and all are used; drop one, or give the peer room for more: start \
         riostream there"
    );
    // A client that has fewer iterations; and one with shorter transfers, whose marker the server never sees until a signal ends both.
    let start = |words: &str| {
        let mut server = riostream(["a", "b"], &place, SERVER, "", "-S 1000 -C 10 -I 2");
        server.wait_for("riostream: listening on");
        (riostream(["b", "a"], &place, CLIENT, "", &format!("-s 10.0.0.1 {words}")), server)
    };
    let ended = "riostream: the peer ended the connection before the test";
    let (client, server) = start("-S 1000 -C 10 -I 1");
    well(&client.finish(LIMIT));
    assert_eq!(line(&server.finish(LIMIT)), ended);
    let (client, server) = start("-S 500 -C 10 -I 2");
    std::thread::sleep(std::time::Duration::from_secs(1));
    client.signal(SIGINT);
    well(&client.finish(LIMIT));
    assert_eq!(line(&server.finish(LIMIT)), ended);
}
