//! A function is reset under its driver, or its firmware fails: Linux's driver notices by the health that it polls, tears down,
//! loads again; l2fwd on it ends, and forwards again when it is started anew.

use std::time::Duration;

use crate::bed::{FUNCTIONS, ask, here, ibdev, log, run, wait, write};
use crate::forward::{FRAMES, l2fwd, nothing_is_left, there_and_back, up};

/// Linux looks every 2 to 3 seconds, and brings everything up again.
const RECOVERY: Duration = Duration::from_secs(60);

fn count(line: &str) -> usize {
    log().lines().filter(|said| said.contains("mlx5_core") && said.contains(line)).count()
}

/// `harm` comes over the first function while l2fwd forwards on both.
fn recovers_from(harm: impl FnOnce(), noticed: &str) {
    let drivers = up();
    let running = l2fwd(FUNCTIONS, "", "-P --no-mac-updating --json");
    there_and_back("window=64");
    let before = (count(noticed), count("health recovery succeeded"));
    harm();
    wait(noticed, RECOVERY, || (count(noticed) > before.0).then_some(()));
    // Nothing that l2fwd holds keeps the driver from tearing down, and the port that is gone is no reason to hang.
    wait("the recovery", RECOVERY, || (count("health recovery succeeded") > before.1).then_some(()));
    let done = running.interrupt();
    let report = done.report();
    println!("l2fwd: {:?}; {report}\n{}", done.status, done.stderr.join("\n"));
    let received = |port: usize| report["ports"][port]["rx_packets"].as_u64().unwrap_or(0);
    assert!(
        received(0) >= u64::from(FRAMES) && received(1) >= u64::from(FRAMES),
        "what was counted before is still told: {report}"
    );
    nothing_is_left();
    // The same again, on the function that came back.
    drop(drivers);
    let drivers = up();
    let running = l2fwd(FUNCTIONS, "", "-P --no-mac-updating --json");
    there_and_back("window=64");
    let done = running.interrupt();
    assert!(done.status.success(), "{:?}: {}", done.status, done.stderr.join("\n"));
    drivers.unload();
}

#[test]
fn a_function_level_reset_under_its_driver() {
    if here() {
        let path = format!("/sys/bus/pci/devices/{}/reset", FUNCTIONS[0]);
        recovers_from(|| write(&path, "1"), "Fatal error");
    }
}

#[test]
fn firmware_that_fails() {
    if here() {
        recovers_from(
            || {
                ask("device fatal 0 1");
            },
            "Fatal error 5 detected",
        );
        // The function has its name and its interface as before.
        let drivers = up();
        assert!(run("rdma link show").contains(&ibdev(FUNCTIONS[0])));
        drivers.unload();
    }
}
