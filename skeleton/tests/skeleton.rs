//! skeleton as a user runs it.

use std::process::Command;

use serde_json::Value;

#[test]
fn it_forwards_and_reports() {
    let line = ["-l", "0", "--", "--duration", "0.2", "--json"];
    let output = Command::new(env!("CARGO_BIN_EXE_skeleton")).args(line).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one line, the report");
    assert_eq!(report["app"], "skeleton");
    let sum = |count: &str| -> u64 {
        report["ports"].as_array().unwrap().iter().map(|port| port[count].as_u64().unwrap()).sum()
    };
    // It drops what a port does not take at once.
    assert!(sum("tx_packets") > 1_000 && sum("tx_packets") <= sum("rx_packets"));
}
