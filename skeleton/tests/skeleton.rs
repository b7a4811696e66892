//! skeleton as a user runs it.

use std::process::Command;
use std::time::Duration;

use pollux_tests::program::Running;

#[test]
fn it_forwards_and_reports() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skeleton"));
    command.args(["-l", "0", "--", "--duration", "0.2", "--json"]);
    let done = Running::start(command).finish(Duration::from_secs(10));
    assert!(done.status.success(), "{:?}", done.stderr);
    let report = done.report();
    assert_eq!(report["app"], "skeleton");
    let sum = |count: &str| -> u64 {
        report["ports"].as_array().unwrap().iter().map(|port| port[count].as_u64().unwrap()).sum()
    };
    // It drops what a port does not take at once.
    assert!(sum("tx_packets") > 1_000 && sum("tx_packets") <= sum("rx_packets"));
}
