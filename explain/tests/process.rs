//! `explain --pid` of processes that are none of ours.

use std::process::{Command, Output};

fn explain(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_explain")).args(arguments).output().expect("it runs")
}

#[test]
fn a_process_without_devices_is_told_as_such() {
    let mut sleep = Command::new("sleep").arg("60").spawn().expect("sleep runs");
    let pid = sleep.id().to_string();
    // Until it is sleep.
    let told = loop {
        let told = explain(&["--pid", &pid]);
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        if text.contains(": sleep 60\n") || !told.status.success() {
            break (told.status.success(), text);
        }
    };
    let (succeeded, text) = told;
    let wanted = format!("process {pid}: sleep 60\nfiles of RDMA devices: none\npages of devices: none\n");
    assert!(succeeded && text.starts_with(&wanted) && text.contains("telemetry: none"), "{text}");
    let followed = explain(&["--pid", &pid, "--follow"]);
    let why = String::from_utf8_lossy(&followed.stderr);
    assert!(!followed.status.success() && why.contains("has no telemetry"), "{why}");
    sleep.kill().expect("it ran");
    sleep.wait().expect("its end");
    let gone = explain(&["--pid", &pid]);
    let why = String::from_utf8_lossy(&gone.stderr);
    assert!(!gone.status.success() && why.contains(&format!("process {pid}: ")), "{why}");
    for mistake in [&["--pid", "1", "file"][..], &["--fast-path", "file"], &["--pid", "x"], &[]] {
        assert_eq!(explain(mistake).status.code(), Some(2), "{mistake:?}");
    }
}
