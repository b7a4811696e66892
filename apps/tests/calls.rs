//! l2fwd's calls of uverbs on device models in process, held against what it asked of Linux and what Linux answered: both were
//! written down by the job `mlx5-record` of `cargo xtask vm`, on the same model behind Linux's own mlx5_ib. The driver must ask the
//! same, and the in-process door answer the same, but for what is listed here.

use std::process::Command;

use pollux_explain::normal::{self, differences};

/// What may differ: in which call and part, what is said here, what Linux said, and why.
const ALLOWED: &[(&str, &str, &str, &str)] = &[(
    "call 0x0000/0x0003 0x0000",
    "0x0000=10000000",
    "0x0000=02000000",
    "a guest of two processors has two completion vectors",
)];

fn agrees(devx: u8, recorded: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_l2fwd"));
    command.env("POLLUX_UVERBS_TRACE", folder.path().join("calls")).args([
        "--no-huge",
        "-m",
        "256",
        "-l",
        "0",
    ]);
    for port in 0..2 {
        // A wire that is up from the start, as the guest's is.
        let mac = format!("0c:42:a1:00:00:0{}", port + 1);
        command.args([
            "--vdev",
            &format!("mlx5_model{port},wire=source:64,kernel=6.12,mac={mac},dv_flow_en={devx}"),
        ]);
    }
    let done =
        command.args(["--", "-P", "--no-mac-updating", "--duration", "1"]).output().expect("l2fwd starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = std::fs::read_to_string(folder.path().join("calls.mlx5_model0")).expect("the calls");
    let said = normal::normal(&said, normal::MLX5);
    let mut found = differences(&said, recorded);
    for (place, ours, theirs, why) in ALLOWED {
        let before = found.len();
        found.retain(|line| !(line.starts_with(place) && line.ends_with(&format!(": {ours} for {theirs}"))));
        assert!(found.len() < before, "no such difference any more ({why}): {place}, {ours} for {theirs}");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn with_verbs_objects() {
    agrees(0, include_str!("../../mlx5-kernel/tests/golden/l2fwd-verbs.txt"));
}

#[test]
fn with_devx_objects() {
    agrees(1, include_str!("../../mlx5-kernel/tests/golden/l2fwd-devx.txt"));
}
