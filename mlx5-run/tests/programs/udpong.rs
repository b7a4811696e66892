//! librdmacm's `udpong` and ours, each as the server and as the client. The addresses of the devices are the machine's own loopback addresses,
//! by which the kernel's UDP carries what datagram sockets tell each other.
//!
//! The original runs on no RoCE device: its datagram sockets make an address handle without a GID, which Linux refuses there, and so does
//! `mlx5-run` (the first test). For the others the library `udpong/global_ah.c` is loaded into it, which gives that one handle the port's GID;
//! what goes over the wire and by UDP is the original's.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pollux_tests::require::{Need, require};

use super::bed::{Bed, Ended, start, stop, wait};
use super::ours::ours;

const SERVER: &str = "127.0.0.2";
const CLIENT: &str = "127.0.0.1";

/// A port of UDP that is free at any address.
fn free_port() -> String {
    let bound = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.local_addr());
    bound.expect("a free port").port().to_string()
}

/// Waits until somebody has a port of UDP.
fn until_bound(port: &str) {
    let wanted = format!(":{:04X}", port.parse::<u16>().expect("a number"));
    let deadline = Instant::now() + Duration::from_secs(60);
    let is_bound = |line: &str| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&wanted));
    while !std::fs::read_to_string("/proc/net/udp").expect("a table").lines().any(is_bound) {
        assert!(Instant::now() < deadline, "nobody has the port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The library that lets the original run on RoCE. `None`: there is no compiler.
fn global_ah(bed: &Bed) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/udpong/global_ah.c");
    let library = bed.path().join("global_ah.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&library).arg(source);
    match compile.status() {
        Ok(status) => assert!(status.success(), "{compile:?}"),
        Err(error) => {
            eprintln!("skipped: needs the C compiler cc: {error}");
            return None;
        }
    }
    Some(library)
}

fn theirs(bed: &Bed, ip: &str, wire: &str, words: &str) -> Command {
    let program: Vec<&str> = ["udpong"].into_iter().chain(words.split(' ')).collect();
    bed.command(&["--wire", wire, "--ip", &format!("{ip}/8"), "--summary"], &program)
}

#[test]
fn the_original_cannot_make_its_address_handle_on_roce() {
    if !require(&[Need::RdmaCore, Need::RdmaCm]) {
        return;
    }
    let bed = Bed::new();
    let client = wait(start(&mut theirs(&bed, CLIENT, "null", "-s 127.0.0.2 -S 64 -C 1")));
    assert!(client.said.contains("rconnect: "), "{}", client.said);
    assert_ne!(client.status, Some(0));
}

/// Which end is whose: the server's, the client's.
#[derive(Clone, Copy, Debug)]
struct Whose {
    server: bool,
    client: bool,
}

/// Waits for a client's end. `None`: it went on, and was ended.
fn end_of(mut client: Child) -> Option<Ended> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.try_wait().expect("a child").is_none() {
        if Instant::now() > deadline {
            let _said = stop(client);
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(wait(client))
}

/// Runs both ends, of which those that are `true` are ours; the server is ended when the client has. What they said, the client's first.
///
/// The original's client takes an answer's sequence number for its own (`udpong.c`, `client_send_recv`): after one that came later than
/// 1 ms it asks with the old number for ever. Then both start again.
fn run(bed: &Bed, library: &Path, ours: &Path, whose: Whose, words: &str) -> (Ended, String) {
    for _ in 0..if whose.client { 1 } else { 5 } {
        let (client, server) = run_once(bed, library, ours, whose, words);
        if let Some(client) = client {
            return (client, server);
        }
    }
    panic!("{words}: ours are {whose:?}: the client does not end");
}

fn run_once(bed: &Bed, library: &Path, ours: &Path, whose: Whose, words: &str) -> (Option<Ended>, String) {
    let socket = |name: &str| bed.path().join(name).display().to_string();
    let port = free_port();
    let end = |is_ours: bool, ip: &str, [own, other]: [&str; 2], words: &str| -> Child {
        let wire = format!("unix:{}:{}", socket(own), socket(other));
        let mut command = if is_ours {
            let mut command = Command::new(ours);
            let vdev = format!("mlx5_model0,wire={wire},ip={ip}/8");
            command.args(["-l", "0", "--no-huge", "--vdev", &vdev, "--"]).args(words.split(' '));
            command.stdin(Stdio::null());
            command
        } else {
            theirs(bed, ip, &wire, words)
        };
        if !is_ours {
            command.env("LD_PRELOAD", library);
        }
        start(&mut command)
    };
    let server = end(whose.server, SERVER, ["a", "b"], &format!("-b {SERVER} -p {port}"));
    until_bound(&port);
    let client = end_of(end(whose.client, CLIENT, ["b", "a"], &format!("-s {SERVER} -p {port} {words}")));
    (client, stop(server))
}

/// Datagrams that crossed the wire, of those that a client sent: by what it says, ours of the datagrams and `mlx5-run` of the frames.
fn crossed(said: &str) -> u64 {
    let number = |before: &str| {
        let rest = said.lines().find_map(|line| line.strip_prefix(before))?;
        rest.split(' ').next()?.parse().ok()
    };
    number("udpong: sent ").or_else(|| number("mlx5-run: mlx5_0: sent ")).unwrap_or_else(|| panic!("{said}"))
}

/// A count as the table has it: from 1,000 on, whole thousands.
fn count(cell: &str) -> u64 {
    let (digits, unit) = cell.strip_suffix('k').map_or((cell, 1), |digits| (digits, 1000));
    digits.parse::<u64>().unwrap_or_else(|_| panic!("{cell} is no count")) * unit
}

#[test]
fn our_udpong_and_the_original_meet_in_both_roles() {
    if !require(&[Need::RdmaCore, Need::RdmaCm]) {
        return;
    }
    let bed = Bed::new();
    let (Some(library), Some(program)) = (global_ah(&bed), ours("udpong")) else { return };
    for (words, row) in [
        ("-S 64 -C 200 -T e", ["custom", "64", "400", "25k"]),
        ("-S 1016 -C 200 -T e -T a", ["custom", "1016", "400", "396k"]),
        ("-S 16 -C 100 -T e -T b", ["custom", "16", "200", "3.1k"]),
        ("-S 500 -C 300", ["custom", "500", "", ""]),
        ("-S 500 -C 20000", ["custom", "500", "", ""]),
    ] {
        for (server, client) in [(true, false), (false, true), (false, false)] {
            let whose = Whose { server, client };
            let (client, server) = run(&bed, &library, &program, whose, words);
            let place = format!("{words}: ours are {whose:?}: {}\n{server}", client.said);
            assert_eq!(client.status, Some(0), "{place}");
            assert!(!client.said.contains("broke a rule") && !server.contains("broke a rule"), "{place}");
            let table = client.said.lines().skip_while(|line| !line.starts_with("name "));
            let cells: Vec<Vec<&str>> = table.map(|line| line.split_whitespace().collect()).collect();
            assert_eq!(
                cells[0],
                ["name", "bytes", "xfers", "total", "time", "Gb/sec", "usec/xfer"],
                "{place}"
            );
            let found = &cells[1];
            if row[2].is_empty() {
                // In one direction some may be lost where the receiver is too slow, and the last word, by the queue pair, overtakes those
                // that went by UDP while the ends met: on a busy machine hundreds, but never all of many.
                let sent: u64 = words.rsplit(' ').next().expect("a count").parse().expect("a number");
                let (least, most) = (u64::from(sent > 1000), sent);
                assert!((least..=most).contains(&count(found[2])) && found[..2] == row[..2], "{place}");
            } else {
                assert_eq!(found[..4], row, "{place}");
                assert!(crossed(&client.said) >= 50, "{place}");
            }
        }
    }
}
