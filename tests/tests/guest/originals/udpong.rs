//! Our `udpong` with itself, by the kernel's connection manager and its UDP. The original runs on no RoCE device (`mlx5-run/tests/programs/udpong.rs`
//! has the reason, and meets it all the same).

use std::time::Duration;

use pollux_tests::program::Running;

use super::{LIMIT, rstream};
use crate::bed::wait;

/// Words of the client, and how its one row begins: echoes one after the other, by calls that wait and that do not.
pub(super) const RUNS: [(&str, [&str; 4]); 3] = [
    ("-S 64 -C 200 -T e", ["custom", "64", "400", "25k"]),
    ("-S 1000 -C 200 -T e -T a", ["custom", "1000", "400", "390k"]),
    ("-S 16 -C 100 -T e -T b", ["custom", "16", "200", "3.1k"]),
];

/// Whether somebody has a port of UDP.
fn is_bound(port: &str) -> bool {
    let wanted = format!(":{:04X}", port.parse::<u16>().expect("a number"));
    let table = std::fs::read_to_string("/proc/net/udp").expect("a table");
    table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&wanted)))
}

/// Both ends; the server is ended when the client has.
pub(super) fn run(address: &str, port: &str, (words, row): (&str, [&str; 4])) {
    let [mut server, mut client] = [(); 2].map(|()| rstream::own("udpong"));
    server.args(["-b", address, "-p", port]);
    client.args(["-s", address, "-p", port]).args(words.split(' '));
    let waiting = Running::start(server);
    wait("a bound server", LIMIT, || is_bound(port).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    let client = Running::start(client).finish(LIMIT);
    let server = waiting.interrupt();
    for end in [&server, &client] {
        println!("{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"));
        assert!(end.status.success(), "an end did not end well");
    }
    let lines: Vec<Vec<&str>> = client.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["name", "bytes", "xfers", "total", "time", "Gb/sec", "usec/xfer"]);
    assert_eq!((&lines[1][..4], lines.len()), (&row[..], 2), "{}", client.stdout);
    assert!(server.stdout.starts_with(&format!("client login from {address}\n")), "{}", server.stdout);
    // The queue pairs met: most did not go by UDP.
    let told = client.stderr.iter().find_map(|line| line.strip_prefix("udpong: sent "));
    let told: Vec<u64> = told.expect("a count").split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(told[0] > told[1], "{told:?}");
}
