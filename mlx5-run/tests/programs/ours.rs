//! Our programs on one end, those that nobody here wrote on the other: each as the server, and as the client.

use std::path::{Path, PathBuf};

use pollux_tests::require::{Need, require};

use super::bed::{Bed, free_port, start, until_listening, wait};

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
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    let end = |name: &str| bed.path().join(name).display().to_string();
    for (name, options) in PROGRAMS {
        let Some(program) = ours(name) else { return };
        let original = if name.ends_with("pingpong") { format!("ibv_{name}") } else { format!("ib_{name}") };
        for is_server in [true, false] {
            let port = free_port();
            let options: Vec<&str> = options.split(' ').chain(["-p", &port]).collect();
            let their_wire = format!("unix:{}:{}", end("theirs"), end("ours"));
            let vdev = format!("mlx5_model0,wire=unix:{}:{}", end("ours"), end("theirs"));
            let commands = |host: &[&str]| {
                let options = [&options[..], host].concat();
                let theirs = bed.command(&["--wire", &their_wire], &[&[&*original], &options[..]].concat());
                let mut ours = std::process::Command::new(&program);
                ours.args(["-l", "0", "--no-huge", "--vdev", &vdev, "--"]).args(&options);
                ours.stdin(std::process::Stdio::null());
                (ours, theirs)
            };
            let (mut ours, mut theirs) = commands(&[]);
            let server = start(if is_server { &mut ours } else { &mut theirs });
            until_listening(&port);
            let (mut ours, mut theirs) = commands(&["127.0.0.1"]);
            let client = start(if is_server { &mut theirs } else { &mut ours });
            for (end, ended) in [("client", wait(client)), ("server", wait(server))] {
                assert_eq!(ended.status, Some(0), "{name}, we serve: {is_server}: {end}: {}", ended.said);
                assert!(
                    !ended.said.contains("broke a rule"),
                    "{name}, we serve: {is_server}: {}",
                    ended.said
                );
            }
        }
    }
}
