//! Every uverbs call of l2fwd and what Linux answered, held against the record; the in-process door is held against the same
//! (`apps/tests/calls.rs`). `cargo xtask vm --record` writes the record anew.

use std::fs;
use std::process::Command;

use pollux_explain::normal::{self, differences};

use crate::bed::{FUNCTIONS, ask, here, ibdev, is_recorded_kernel, keep, ours, recording};
use crate::forward::{arguments, ends_well, started, up};

/// What l2fwd with these keys asked of the first function.
fn calls_of(keys: &str) -> String {
    let drivers = up();
    let name = ibdev(FUNCTIONS[0]);
    let path = format!("/tmp/calls.{name}");
    // A file that is there grows; this run is to have its own.
    drop(fs::remove_file(&path));
    let mut command = Command::new(ours("l2fwd"));
    command.env("POLLUX_UVERBS_TRACE", "/tmp/calls").args(arguments(
        FUNCTIONS,
        keys,
        "-P --no-mac-updating --json",
    ));
    let running = started(command);
    ask("traffic from=0 to=1 frames=200");
    ends_well(running, 200);
    let said = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
    drivers.unload();
    normal::normal(&said, normal::MLX5)
}

fn agrees(keys: &str, name: &str, recorded: &str) {
    if !here() {
        return;
    }
    let said = calls_of(keys);
    if recording() {
        keep(name, &said);
        return;
    }
    // Other kernels may answer more or otherwise; what they are asked is the same.
    let (said, recorded) =
        if is_recorded_kernel() { (said, recorded.to_owned()) } else { (asked(&said), asked(recorded)) };
    let found = differences(&said, &recorded);
    assert!(
        found.is_empty(),
        "this is the record of another kernel, model or driver:\n{}\n{said}",
        found.join("\n")
    );
}

/// What was asked. What is asked another way because a kernel lacks the first is not asked of one that has it.
fn asked(calls: &str) -> String {
    let mut out = String::new();
    let mut lacks = false;
    for line in calls.lines() {
        let (asked, answered) = line.split_once(" -> ").unwrap_or((line, ""));
        if !std::mem::replace(&mut lacks, answered == "EPROTONOSUPPORT") {
            out.push_str(asked);
            out.push('\n');
        }
    }
    out
}

#[test]
fn l2fwd_with_verbs_objects() {
    agrees(
        ",dv_flow_en=0",
        "l2fwd-verbs.txt",
        include_str!("../../../mlx5-kernel/tests/golden/l2fwd-verbs.txt"),
    );
}

#[test]
fn l2fwd_with_devx_objects() {
    agrees(
        ",dv_flow_en=1",
        "l2fwd-devx.txt",
        include_str!("../../../mlx5-kernel/tests/golden/l2fwd-devx.txt"),
    );
}
