//! `udpong` between device models. Their addresses are the machine's own loopback addresses, by which the kernel's UDP carries what the sockets
//! tell each other.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use pollux_tests::program::{Finished, Running, with_default_signals};

use crate::place::{LIMIT, Place, SIGINT, line};

const UDPONG: &str = env!("CARGO_BIN_EXE_udpong");
const SERVER: &str = "127.0.0.2";
const CLIENT: &str = "127.0.0.1";

/// A port of UDP that is free at both addresses.
fn free_port() -> u16 {
    let bound = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.local_addr());
    bound.expect("a free port").port()
}

fn start(place: &Place, ends: [&str; 2], ip: &str, keys: &str, words: &str) -> Running {
    let [own, other] = ends.map(|name| place.folder.path().join(name).display().to_string());
    let mut command = Command::new(UDPONG);
    let device = format!("mlx5_model0,wire=unix:{own}:{other},ip={ip}/8{keys}");
    command.args(["-l", "0", "--no-huge", "--vdev", &device, "--"]).args(words.split_whitespace());
    Running::start(with_default_signals(&command))
}

fn server(place: &Place, port: u16, keys: &str, words: &str) -> Running {
    let words = format!("-b {SERVER} -p {port} {words}");
    let mut server = start(place, ["a", "b"], SERVER, keys, &words);
    server.wait_for("udpong: listening on 127.0.0.2:");
    server
}

fn client(place: &Place, port: u16, words: &str) -> Finished {
    start(place, ["b", "a"], CLIENT, "", &format!("-s {SERVER} -p {port} {words}")).finish(LIMIT)
}

fn well(end: &Finished) {
    assert_eq!(end.status.code(), Some(0), "{}\n{}", end.stdout, end.stderr.join("\n"));
}

/// What a table has: its rows' first four columns.
fn rows(client: &Finished) -> Vec<Vec<String>> {
    well(client);
    let mut lines = client.stdout.lines();
    let head: Vec<&str> = lines.next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["name", "bytes", "xfers", "total", "time", "Gb/sec", "usec/xfer"]);
    let columns = |line: &str| -> Vec<String> {
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(columns.len(), 7, "{line}");
        assert!(columns[4].ends_with('s') && columns[6].parse::<f64>().is_ok_and(|us| us > 0.0), "{line}");
        columns[..4].iter().map(|column| (*column).to_owned()).collect()
    };
    lines.map(columns).collect()
}

/// Datagrams that a client says it sent, by RDMA and by UDP.
fn sent(client: &Finished) -> [u64; 2] {
    let said = client.stderr.iter().find_map(|line| line.strip_prefix("udpong: sent "));
    let said = said.unwrap_or_else(|| panic!("{:?}", client.stderr));
    let mut numbers = said.split(' ').filter_map(|word| word.parse().ok());
    [(); 2].map(|()| numbers.next().expect("a number"))
}

fn ends(server: Running, logins: usize) {
    server.signal(SIGINT);
    let server = server.finish(LIMIT);
    well(&server);
    // A login whose answer is late or lost is repeated.
    let told: Vec<&str> = server.stdout.lines().collect();
    assert!(
        told.len() >= logins && told.iter().all(|line| *line == "client login from 127.0.0.1"),
        "{told:?}"
    );
}

#[test]
fn datagrams_come_back_and_are_counted() {
    for (words, row) in [
        ("-S 64 -C 200 -T e", ["custom", "64", "400", "25k"]),
        ("-S 16 -C 100 -T echo -T b", ["custom", "16", "200", "3.1k"]),
        ("-S 1016 -C 100 -T e -T a -B 4096", ["custom", "1016", "200", "198k"]),
    ] {
        let (place, port) = (Place::new(), free_port());
        let server = server(&place, port, "", "-T a");
        let client = client(&place, port, words);
        assert_eq!(rows(&client), [row.map(str::to_owned)], "{words}");
        let [by_rdma, by_udp] = sent(&client);
        assert!(by_rdma >= 50 && by_udp < by_rdma, "{words}: {by_rdma} {by_udp}");
        ends(server, 1);
    }
}

/// In one direction the server tells how many came: all that its buffers hold, but for those that go by UDP while the ends meet
/// and are overtaken by the last word.
#[test]
fn datagrams_in_one_direction_are_counted_by_the_server() {
    let (place, port) = (Place::new(), free_port());
    let server = server(&place, port, "", "");
    for (words, bytes, count) in [("-S 100 -C 200", 100, 200), ("-S 1000 -C 300 -T b", 1000, 300)] {
        let rows = rows(&client(&place, port, words));
        let came: u64 = rows[0][2].parse().expect("a number");
        assert!((1..=count).contains(&came), "{words}: {rows:?}");
        assert_eq!(
            (rows.len(), &rows[0][..2]),
            (1, &["custom".to_owned(), bytes.to_string()][..]),
            "{words}"
        );
    }
    ends(server, 2);
}

/// A test of all sizes takes as many datagrams as the original's; the signal comes before its end.
#[test]
fn all_sizes_are_tested_that_a_packet_has_room_for() {
    let (place, port) = (Place::new(), free_port());
    let server = server(&place, port, "", "");
    let words = format!("-s {SERVER} -p {port}");
    let mut client = start(&place, ["b", "a"], CLIENT, "", &words);
    client.wait_for("udpong: datagrams of more than 1016 bytes are left out: no packet has room for them");
    std::thread::sleep(Duration::from_secs(1));
    client.signal(SIGINT);
    let client = client.finish(LIMIT);
    well(&client);
    assert!(client.stdout.starts_with("name "), "{}", client.stdout);
    ends(server, 1);
}

#[test]
fn what_the_wire_loses_is_asked_for_again() {
    let (place, port) = (Place::new(), free_port());
    let server = server(&place, port, ",loss=0.1,dup=0.05,seed=3", "");
    let done = client(&place, port, "-S 200 -C 300 -T e");
    assert_eq!(rows(&done), [["custom", "200", "600", "117k"].map(str::to_owned)]);
    // Of the others the server tells how many came.
    let done = client(&place, port, "-S 200 -C 300");
    let came: u64 = rows(&done)[0][2].parse().expect("a number");
    assert!((150..400).contains(&came), "{came}");
    ends(server, 2);
}

/// Without RDMA the same over UDP.
#[test]
fn udpong_over_udp() {
    let port = free_port();
    let start = |words: &str| {
        let mut command = Command::new(UDPONG);
        command.args(["-l", "0", "--no-huge", "--"]).args(words.split_whitespace());
        Running::start(with_default_signals(&command))
    };
    let mut server = start(&format!("-T s -b 127.0.0.1 -p {port}"));
    server.wait_for("udpong: listening on 127.0.0.1:");
    for (words, row) in [
        ("-S 2056 -C 100 -T e", ["custom", "2k", "200", "401k"]),
        ("-S 100 -C 50 -T e -T b", ["custom", "100", "100", "9.7k"]),
    ] {
        let client = start(&format!("-s 127.0.0.1 -p {port} -T sockets {words}")).finish(LIMIT);
        assert_eq!(rows(&client), [row.map(str::to_owned)], "{words}");
        assert!(client.stderr.is_empty(), "{:?}", client.stderr);
    }
    server.kill();
}

#[test]
fn mistakes_with_udpong_are_one_line() {
    let (place, port) = (Place::new(), free_port());
    for (words, code, expected) in [
        (
            "-b 203.0.113.1",
            1,
            "203.0.113.1:7174: UDP, by which datagram sockets meet: Cannot assign requested address (os error 99); give an address of this \
             machine, to a device model as well, such as ip=127.0.0.2/8",
        ),
        ("-b 127.0.0.9 -p 0x1c07", 1, "127.0.0.9:0 is the address of no RDMA device here"),
        ("-b not.a.host.invalid", 2, "-b not.a.host.invalid: "),
        ("-T v", 2, "is none of s|sockets, a|async, b|blocking, n|nonblocking, e|echo"),
        ("-S 15", 2, "15"),
        ("-S 2057", 2, "2057"),
        ("-k 1", 2, "-k"),
        ("-p 65536", 2, "65536"),
    ] {
        let done = start(&place, ["a", "b"], SERVER, "", words).finish(LIMIT);
        assert_eq!(done.status.code(), Some(code), "{words}: {:?}", done.stderr);
        assert!(done.stderr.join("\n").contains(expected), "{words}: {:?}", done.stderr);
    }
    // Nobody there; too long for the path.
    let refused = client(&place, port, "-S 100 -C 10");
    assert_eq!(
        line(&refused),
        format!(
            "udpong: {SERVER}:{port}: UDP, by which datagram sockets meet: Connection refused (os error 111); start the server first, with the \
             same -p"
        )
    );
    let long = client(&place, port, "-S 1017");
    assert_eq!(long.status.code(), Some(2));
    assert_eq!(
        long.stderr.last().map(String::as_str),
        Some(&*format!(
            "udpong: -S 1017: a datagram to {SERVER}:{port} has at most 1016 bytes: give at most 1016"
        ))
    );
}
