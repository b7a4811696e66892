//! perftest's programs.

use std::process::Child;
use std::time::Duration;

use pollux_tests::require::{Need, require};

use super::bed::{Bed, start, stop, wait};

#[test]
fn each_program_of_perftest_measures() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    for (program, options) in [
        ("ib_send_bw", "-s 4096"),
        ("ib_send_bw", "-s 1024 -c UD"),
        ("ib_send_bw", "-s 4096 -c UC -e"),
        ("ib_send_bw", "-s 4096 -b"),
        ("ib_send_bw", "-s 4096 -c XRC -q 2"),
        ("ib_send_bw", "-s 4096 -c XRC -b -e"),
        ("ib_send_lat", "-s 64"),
        ("ib_send_lat", "-s 64 -c XRC"),
        ("ib_read_bw", "-s 4096 -c XRC"),
        ("ib_write_bw", "-s 65536 -q 2"),
        ("ib_write_lat", "-s 64 -c UC"),
        ("ib_read_bw", "-s 65536"),
        ("ib_read_lat", "-s 64"),
        ("ib_atomic_bw", "-A CMP_AND_SWAP"),
        ("ib_atomic_lat", "-A FETCH_AND_ADD"),
    ] {
        let words: Vec<&str> = options.split(' ').collect();
        let said = bed.must(&[], &[&[program, "-d", "mlx5_0", "-n", "200"][..], &words].concat(), "-p");
        let row = said[0].lines().rev().find_map(|line| {
            let columns: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
            (columns.len() >= 4).then_some(columns)
        });
        let row = row.unwrap_or_else(|| panic!("{program} {options}: no figures in {}", said[0]));
        // Size, iterations, and a rate or a time.
        assert!(row[1] >= 200.0 && row[3] > 0.0, "{program} {options}: {row:?}");
    }
}

/// A program without queue pairs at both ports would not find the second one's peers.
#[test]
fn both_ports_of_a_device_carry_messages() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    let links = ["--dual-port", "--link", "first", "--link", "second"];
    for (program, options) in
        [("ib_write_bw", "-s 4096"), ("ib_send_bw", "-c UD -s 1000 -q 2"), ("ib_read_bw", "-b")]
    {
        let words: Vec<&str> = options.split(' ').collect();
        let words = [&[program, "-d", "mlx5_0", "-O", "-n", "200"][..], &words].concat();
        let said = bed.must(&links, &words, "-p");
        assert!(said[0].contains("Dual-port       : ON"), "{}", said[0]);
        let gids: std::collections::BTreeSet<&str> =
            said[0].lines().filter(|line| line.starts_with(" GID: ")).collect();
        assert_eq!(gids.len(), 4, "two ports at each end: {}", said[0]);
    }
    let words = ["ib_write_bw", "-d", "mlx5_0", "-O", "-D", "2", "-s", "64", "--report-per-port"];
    let said = bed.must(&links, &words, "-p");
    let row = said[0].lines().rev().find_map(|line| {
        let columns: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        (columns.len() == 9).then_some(columns)
    });
    let row = row.unwrap_or_else(|| panic!("no shares of ports in {}", said[0]));
    assert!(row[5] > 0.0 && row[7] > 0.0 && (row[5] + row[7] - row[3]).abs() <= row[3] * 0.01, "{row:?}");
}

#[test]
fn what_is_lost_is_sent_again() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    // These part when both have told the other that they are done: the last acknowledgement may be among the lost.
    for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw"] {
        for impairment in [["--loss", "0.02"], ["--reorder", "0.05"], ["--duplicate", "0.1"]] {
            let options = [&impairment[..], &["--seed", "7"]].concat();
            let program = [program, "-d", "mlx5_0", "-n", "100", "-s", "20000"];
            let said = bed.must(&options, &program, "-p");
            assert!(said[0].contains(" 20000      100 "), "{impairment:?}: {}", said[0]);
        }
    }
}

/// With what perftest 4.5's `raw_ethernet_burst_lat` runs at all: it takes the rate limit that it has by default for a mistake, and
/// without `-Q 1` it waits for completions that it did not ask for.
pub(crate) const BURSTS: &[&str] = &[
    "--rate_limit_type",
    "PP",
    "--rate_limit",
    "1000",
    "--rate_units",
    "M",
    "--burst_size",
    "16",
    "-Q",
    "1",
];
/// With what its server answers all: it drops answers for which its send queue has no room, and when it has all frames that it was
/// told of it ends without having sent the last answers.
pub(crate) const ANSWERS: &[&str] = &["-n", "100000", "-t", "2048", "-r", "2048"];

/// Who is who.
pub(crate) const SERVER: &str = "02:00:00:00:00:0a";
pub(crate) const CLIENT: &str = "02:00:00:00:00:0b";

#[test]
fn raw_packets_reach_the_other_end() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    for program in ["raw_ethernet_bw", "raw_ethernet_lat"] {
        let server = raw_end(&bed, program, true, &["-n", "500"]);
        let client = raw_end(&bed, program, false, &["-n", "500"]);
        for ended in [wait(client), wait(server)] {
            assert_eq!(ended.status, Some(0), "{program}: {}", ended.said);
            assert!(
                ended.said.contains("1024       500 ") || ended.said.contains("1024    500 "),
                "{}",
                ended.said
            );
        }
    }
}

/// The server gets each frame by its rule, and a copy.
#[test]
fn a_sniffer_gets_raw_packets_again() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let (bed, with) = (Bed::new(), ["--with", "sniffer"]);
    // Buffers for all: a copy that finds none is lost, and a busy machine may let its program wait.
    let receives = ["-n", "1000", "-r", "1000", "--sniffer"];
    let server = raw_end_with(&bed, &with, "raw_ethernet_bw", true, &receives);
    let client = raw_end_with(&bed, &with, "raw_ethernet_bw", false, &["-n", "500"]);
    for (ended, count) in [(wait(client), " 1024       500 "), (wait(server), " 1024       1000 ")] {
        assert_eq!(ended.status, Some(0), "{}", ended.said);
        assert!(ended.said.contains(count), "{}", ended.said);
    }
}

#[test]
fn bursts_of_raw_packets_are_answered() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    let program = "raw_ethernet_burst_lat";
    let server = raw_end(&bed, program, true, &[ANSWERS, BURSTS].concat());
    let client = wait(raw_end(&bed, program, false, &[&["-n", "500"], BURSTS].concat()));
    assert_eq!(client.status, Some(0), "{}", client.said);
    assert!(client.said.contains(" 1024    500 "), "{}", client.said);
    let said = stop(server);
    assert!(!said.contains("broke a rule"), "{said}");
}

/// Starts an end of a test of raw frames. The server is given time: it says nothing, and the client asks nobody. What is sent before
/// it listens is lost, and then it waits.
fn raw_end(bed: &Bed, program: &str, is_server: bool, more: &[&str]) -> Child {
    raw_end_with(bed, &[], program, is_server, more)
}

/// The same on devices with optional capabilities.
fn raw_end_with(bed: &Bed, options: &[&str], program: &str, is_server: bool, more: &[&str]) -> Child {
    let (role, own, other) =
        if is_server { ("--server", SERVER, CLIENT) } else { ("--client", CLIENT, SERVER) };
    let words = [program, role, "-d", "mlx5_0", "-s", "1024", "-B", own, "-E", other];
    let child = start(&mut bed.command(options, &[&words[..], more].concat()));
    if is_server {
        std::thread::sleep(Duration::from_secs(2));
    }
    child
}
