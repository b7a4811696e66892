//! perftest's programs.

use std::time::Duration;

use pollux_tests::require::{Need, require};

use super::bed::{Bed, start, wait};

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
        ("ib_send_lat", "-s 64"),
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

#[test]
fn raw_packets_reach_the_other_end() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    const SERVER: &str = "02:00:00:00:00:0a";
    const CLIENT: &str = "02:00:00:00:00:0b";
    for program in ["raw_ethernet_bw", "raw_ethernet_lat"] {
        let end = |role: &str, own: &str, other: &str| {
            let words = [program, role, "-d", "mlx5_0", "-n", "500", "-s", "1024", "-B", own, "-E", other];
            start(&mut bed.command(&[], &words))
        };
        let server = end("--server", SERVER, CLIENT);
        // It says nothing, and the client asks nobody: what is sent before it listens is lost, and then it waits.
        std::thread::sleep(Duration::from_secs(2));
        for ended in [wait(end("--client", CLIENT, SERVER)), wait(server)] {
            assert_eq!(ended.status, Some(0), "{program}: {}", ended.said);
            assert!(
                ended.said.contains("1024       500 ") || ended.said.contains("1024    500 "),
                "{}",
                ended.said
            );
        }
    }
}
