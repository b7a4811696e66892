//! perftest's programs.

use pollux_tests::require::{Need, require};

use super::bed::Bed;

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
