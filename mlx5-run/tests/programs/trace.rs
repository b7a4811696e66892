//! Traces of programs that nobody here wrote: what they ask of a device, and what they do without a call.

use pollux_tests::require::{Need, require};

use super::bed::{Bed, free_port, start, until_listening, wait};

#[test]
fn a_trace_has_calls_and_what_passes_without_one() {
    if !require(&[Need::RdmaCore]) {
        return;
    }
    let bed = Bed::new();
    let port = free_port();
    let program = ["ibv_rc_pingpong", "-g", "1", "-n", "20", "-p", &port];
    let file = bed.path().join("calls").display().to_string();
    let server = until_listening(start(&mut bed.command(&[], &program)), &port);
    let client = bed.run(&["--trace", &file], &[&program[..], &["127.0.0.1"]].concat());
    assert_eq!((client.status, wait(server).status), (Some(0), Some(0)), "{}", client.said);
    let trace = std::fs::read_to_string(format!("{file}.mlx5_0")).expect("a trace");
    let count = |start: &str| trace.lines().filter(|line| line.starts_with(start)).count();
    // A context is opened, and memory registered.
    assert!(trace.contains("call 0x0000/0x0003 ") && count("map ") > 0, "{trace}");
    // A send and a completion of it for each message; its receive completes too.
    assert_eq!(count("entry "), 20, "{trace}");
    assert_eq!(count("completion "), 40, "{trace}");
    assert!(count("ring ") > 0, "{trace}");
    // The next program's trace takes its place.
    assert_eq!(bed.run(&["--trace", &file], &["ibv_devinfo"]).status, Some(0));
    let trace = std::fs::read_to_string(format!("{file}.mlx5_0")).expect("a trace");
    assert!(trace.contains("call 0x0000/0x0003 ") && !trace.contains("\nentry "), "{trace}");
}

#[test]
fn a_trace_that_cannot_be_written_is_one_line() {
    let bed = Bed::new();
    let file = bed.path().join("no/calls").display().to_string();
    let ended = bed.run(&["--trace", &file], &["true"]);
    assert_eq!(ended.status, Some(1), "{}", ended.said);
    assert!(ended.said.starts_with("mlx5-run: --trace: cannot write "), "{}", ended.said);
    assert_eq!(ended.said.lines().count(), 1, "{}", ended.said);
    assert!(bed.left().is_empty(), "{:?}", bed.left());
}
