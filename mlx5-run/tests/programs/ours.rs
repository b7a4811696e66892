//! Our programs on one end, those that nobody here wrote on the other: each as the server, and as the client.

use std::path::{Path, PathBuf};

use pollux_tests::require::{Need, require};

use super::bed::{Bed, free_port, start, stop, until_listening, wait};
use super::perftest::{ANSWERS, BURSTS, CLIENT, SERVER};

/// Programs by our name, with the options of both; rdma-core's are called `ibv_` and perftest's `ib_` and so.
const PROGRAMS: &[(&str, &str)] = &[
    ("rc_pingpong", "-g 1 -n 200"),
    ("uc_pingpong", "-g 1 -n 200"),
    ("ud_pingpong", "-g 1 -n 200"),
    ("srq_pingpong", "-g 1 -n 200"),
    ("xsrq_pingpong", "-g 1"),
    ("send_bw", "-n 200 -s 4096"),
    ("send_lat", "-n 200"),
    ("write_bw", "-n 200"),
    ("write_lat", "-n 200"),
    ("read_bw", "-n 200"),
    ("read_lat", "-n 200"),
    ("atomic_bw", "-n 200"),
    ("atomic_lat", "-n 200"),
];

/// The same with XRC: which ways messages go, how they are waited for, how many queue pairs, which sizes. perftest 4.5's `send_lat -e`
/// takes an event for a completion and posts too early, whatever the transport: it fails with itself as well ("Couldn't post send").
const XRC: &[(&str, &str)] = &[
    ("send_bw", "-c XRC -n 200 -s 4096"),
    ("send_bw", "-c XRC -n 200 -s 64 -q 3"),
    ("send_bw", "-c XRC -n 200 -s 64 -b"),
    ("send_bw", "-c XRC -n 200 -s 3000 -b -q 2"),
    ("send_bw", "-c XRC -n 200 -s 64 -e -q 2"),
    ("send_bw", "-c XRC -n 200 -s 100000 -b -e"),
    ("send_lat", "-c XRC -n 200"),
    ("send_lat", "-c XRC -n 200 -s 3000"),
    ("write_bw", "-c XRC -n 200 -q 2"),
    ("write_bw", "-c XRC -n 200 -s 64 -b"),
    ("write_lat", "-c XRC -n 200"),
    ("read_bw", "-c XRC -n 200 -q 2"),
    ("read_bw", "-c XRC -n 200 -s 3000 -b"),
    ("read_lat", "-c XRC -n 200"),
    ("atomic_bw", "-c XRC -n 200"),
    ("atomic_lat", "-c XRC -n 200"),
];

/// The same with memory on demand, of which there is explicit and implicit, and what is fetched before.
const PAGED: &[(&str, &str)] = &[
    ("rc_pingpong", "-g 1 -n 200 -o"),
    ("rc_pingpong", "-g 1 -n 200 -O -s 20000"),
    ("rc_pingpong", "-g 1 -n 200 -o -P -e"),
    ("rc_pingpong", "-g 1 -n 200 -O -P -c"),
    ("srq_pingpong", "-g 1 -n 200 -o"),
    ("xsrq_pingpong", "-g 1 -o"),
    ("send_bw", "-n 200 -s 20000 --odp"),
    ("send_lat", "-n 200 -s 4096 --odp"),
    ("write_bw", "-n 200 --odp"),
    ("write_lat", "-n 200 -s 4096 --odp"),
    ("read_bw", "-n 200 -s 20000 --odp"),
    ("read_lat", "-n 200 --odp"),
];

/// The same with a second port at each end.
const DUAL: &[(&str, &str)] = &[
    ("send_bw", "-O -n 200 -s 4096"),
    ("send_bw", "-O -n 200 -s 1000 -c UD -q 2"),
    ("send_bw", "-O -n 200 -s 1000 -c UC -b"),
    ("send_bw", "-O -n 200 -s 64 -c XRC -b"),
    ("write_bw", "-O -n 200 -q 3"),
    ("write_bw", "-O -D 2 -s 4096 --report-per-port"),
    ("send_bw", "-O -D 2 -s 4096 --report-per-port"),
    ("read_bw", "-O -n 200 -b"),
    ("read_bw", "-O -D 2 -s 4096 -b --report-per-port"),
    ("atomic_bw", "-O -n 200"),
];

/// A program of the workspace, which `cargo test --workspace` builds.
pub(crate) fn ours(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_mlx5-run")).with_file_name(name);
    let there = path.exists();
    if !there {
        eprintln!("skipped: {} is not built: cargo test --workspace builds it", path.display());
    }
    there.then_some(path)
}

#[test]
fn our_programs_meet_their_originals() {
    in_both_roles(PROGRAMS, &[], "", false);
}

#[test]
fn our_xrc_queue_pairs_meet_their_originals() {
    in_both_roles(XRC, &[], "", false);
}

#[test]
fn our_memory_on_demand_meets_the_originals() {
    in_both_roles(PAGED, &["--with", "on-demand-paging"], ",has_odp=1", false);
}

#[test]
fn our_dual_port_tests_meet_their_originals() {
    in_both_roles(DUAL, &[], "", true);
}

/// On cards with what `with` and `keys` say, of one port or two.
fn in_both_roles(programs: &[(&str, &str)], with: &[&str], keys: &str, dual: bool) {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    let end = |name: &str| bed.path().join(name).display().to_string();
    for (name, options) in programs {
        let Some(program) = ours(name) else { return };
        let original = if name.ends_with("pingpong") { format!("ibv_{name}") } else { format!("ib_{name}") };
        for is_server in [true, false] {
            let port = free_port();
            let options: Vec<&str> = options.split(' ').chain(["-p", &port]).collect();
            let their_wire = format!("unix:{}:{}", end("theirs"), end("ours"));
            let mut vdev = format!("mlx5_model0,wire=unix:{}:{}{keys}", end("ours"), end("theirs"));
            let their_second = format!("unix:{}:{}", end("theirs2"), end("ours2"));
            let second = ["--dual-port", "--wire", &their_second];
            let with = if dual { [with, &second].concat() } else { with.to_vec() };
            if dual {
                vdev.push_str(&format!(",wire2=unix:{}:{}", end("ours2"), end("theirs2")));
            }
            let commands = |host: &[&str]| {
                let options = [&options[..], host].concat();
                let theirs = [&["--wire", &their_wire], &with[..]].concat();
                let theirs = bed.command(&theirs, &[&[&*original], &options[..]].concat());
                let mut ours = std::process::Command::new(&program);
                ours.args(["-l", "0", "--no-huge", "--vdev", &vdev, "--"]).args(&options);
                ours.stdin(std::process::Stdio::null());
                (ours, theirs)
            };
            let (mut ours, mut theirs) = commands(&[]);
            let server = until_listening(start(if is_server { &mut ours } else { &mut theirs }), &port);
            let (mut ours, mut theirs) = commands(&["127.0.0.1"]);
            let client = start(if is_server { &mut theirs } else { &mut ours });
            for (end, ended) in [("client", wait(client)), ("server", wait(server))] {
                assert_eq!(
                    ended.status,
                    Some(0),
                    "{name} {options:?}, we serve: {is_server}: {end}: {}",
                    ended.said
                );
                assert!(
                    !ended.said.contains("broke a rule"),
                    "{name}, we serve: {is_server}: {}",
                    ended.said
                );
            }
        }
    }
}

/// A rate that the device keeps: 0.1 * 8 * 1024 kbit/s.
const PACED: &[&str] = &["--rate_limit_type", "PP", "--rate_limit", "0.1", "--rate_units", "M"];

/// Raw frames: the ends do not meet before, so who receives is started first, and is ready when the other one begins.
#[test]
fn our_raw_ethernet_programs_meet_their_originals() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    let socket = |name: &str| bed.path().join(name).display().to_string();
    let wire = |own: &str, other: &str| format!("unix:{}:{}", socket(own), socket(other));
    let bursts = ["--burst_size", "16", "--rate_limit", "20000", "--rate_units", "p"];
    for (name, to_ours, to_theirs, row) in [
        ("raw_ethernet_bw", &[][..], &[][..], " 256        200 "),
        ("raw_ethernet_bw", PACED, PACED, " 256        200 "),
        ("raw_ethernet_lat", &[], &[], " 256     200 "),
        ("raw_ethernet_burst_lat", &bursts, BURSTS, " 256     200 "),
    ] {
        let Some(program) = ours(name) else { return };
        for is_server in [true, false] {
            // Which of the originals does not send all its answers by itself.
            let loses = name == "raw_ethernet_burst_lat" && !is_server;
            let words = |is_server: bool| {
                let (role, own, other) =
                    if is_server { ("--server", SERVER, CLIENT) } else { ("--client", CLIENT, SERVER) };
                [role, "-s", "256", "-B", own, "-E", other]
            };
            let ours = || {
                let vdev = format!("mlx5_model0,wire={}", wire("ours", "theirs"));
                let mut ours = std::process::Command::new(&program);
                ours.args(["-l", "0", "--no-huge", "--vdev", &vdev, "--"]);
                ours.args(words(is_server))
                    .args(["-n", "200"])
                    .args(to_ours)
                    .stdin(std::process::Stdio::null());
                start(&mut ours)
            };
            let theirs = || {
                let count = if loses { ANSWERS } else { &["-n", "200"] };
                let words = [&[name][..], &words(!is_server), count, to_theirs].concat();
                start(&mut bed.command(&["--wire", &wire("theirs", "ours")], &words))
            };
            let server = if is_server { ours() } else { theirs() };
            // It tells nobody that it is ready: the original's words come when it ends.
            std::thread::sleep(std::time::Duration::from_secs(2));
            let client = wait(if is_server { theirs() } else { ours() });
            let place = format!("{name}, we serve: {is_server}");
            assert_eq!(client.status, Some(0), "{place}: client: {}", client.said);
            assert!(client.said.contains(row), "{place}: no row of figures in {}", client.said);
            if to_ours == PACED {
                let figures = client.said.lines().find(|line| line.starts_with(row)).expect("the row");
                let average: f64 =
                    figures.split_whitespace().nth(3).expect("a figure").parse().expect("a number");
                assert!((0.07..0.13).contains(&average), "{place}: {figures}");
            }
            let server_said = if loses {
                stop(server)
            } else {
                let ended = wait(server);
                assert_eq!(ended.status, Some(0), "{place}: server: {}", ended.said);
                ended.said
            };
            for said in [&client.said, &server_said] {
                assert!(!said.contains("broke a rule"), "{place}: {said}");
            }
        }
    }
}
