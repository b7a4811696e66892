//! The parsers of DPDK's own test suite read what testpmd prints.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use pollux_tests::require::PYTHON;
use serde_json::{Value, json};

use crate::typist::{Typist, number, two_cpus};

/// The folder `dts` of DPDK's source, which `cargo xtask witness` fetches.
const DTS: &str = "POLLUX_DPDK_DTS";

/// What the parsers make of texts, each a class's name and what it is to parse.
fn parsed(dts: &Path, texts: &[(&str, String)]) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prompt/dts.py");
    let mut command = Command::new(PYTHON);
    command.arg("-B").arg(script).arg(dts).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("Python");
    let input = json!(texts).to_string();
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "the script fails");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let parsed: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(parsed.len(), texts.len(), "{lines}");
    for (parsed, (class, text)) in parsed.iter().zip(texts) {
        assert_eq!(parsed.get("exception"), None, "{class} of {text}");
    }
    parsed
}

#[test]
fn dpdks_own_parsers_read_our_output() {
    let Some(dts) = std::env::var_os(DTS) else {
        println!("skipped: {DTS} names no folder of DPDK's test suite");
        return;
    };
    if !two_cpus() {
        return;
    }
    let eal = ["-l", "0,1", "--vdev", "mlx5_model0,wire=source:64", "--vdev", "mlx5_model1,wire=source:64"];
    let mut typist = Typist::start(&eal, &["--rxq=2", "--txq=2", "--burst=4"]);
    let commands = [
        ("TestPmdPort", "show port info 0"),
        ("TestPmdRxqInfo", "show rxq info 0 1"),
        ("TestPmdTxqInfo", "show txq info 0 1"),
        ("RxOffloadCapabilities", "show port 0 rx_offload capabilities"),
        ("TxOffloadCapabilities", "show port 0 tx_offload capabilities"),
        ("RxOffloadConfiguration", "show port 0 rx_offload configuration"),
        ("TxOffloadConfiguration", "show port 0 tx_offload configuration"),
        ("TestPmdPortFlowCtrl", "show port 0 flow_ctrl"),
    ];
    let mut texts: Vec<(&str, String)> =
        commands.iter().map(|(class, command)| (*class, typist.line(command))).collect();
    typist.line("start");
    typist.until("show port stats 0", |said| number(said, "RX-packets: ") > 0);
    typist.line("stop");
    let stats = typist.line("show port stats 0");
    let received = number(&stats, "RX-packets: ");
    texts.push(("TestPmdPortStats", stats));
    typist.line("set verbose 1");
    typist.line("start");
    typist.until("show fwd stats all", |said| said.contains("src="));
    let said = typist.line("stop");
    typist.quit();
    let burst = said.split("port 0/queue ").nth(1).unwrap_or_else(|| panic!("no packet in {said}"));
    let packet: String = burst.lines().take(3).collect::<Vec<_>>().join("\n");
    texts.push(("TestPmdVerbosePacket", format!("port 0/queue {packet}")));

    let dts = Path::new(&dts);
    let parsed = parsed(dts, &texts);
    // Older suites do not have all classes.
    let lacks = |place: usize| parsed[place].as_object().is_some_and(serde_json::Map::is_empty);
    for (place, (class, _)) in texts.iter().enumerate().filter(|(place, _)| lacks(*place)) {
        println!("skipped: this suite has no {class}");
        assert!(place != 0, "no parser of ports: is {} DPDK's test suite?", dts.display());
    }
    let is = |place: usize, field: &str, wanted: &str| {
        assert!(lacks(place) || parsed[place][field] == wanted, "{field} of {}", parsed[place]);
    };
    is(0, "id", "0");
    is(0, "driver_name", "mlx5_pci");
    is(0, "device_name", "mlx5_model0");
    is(0, "is_link_up", "True");
    is(0, "rx_queues_num", "2");
    is(0, "is_promiscuous_mode_enabled", "True");
    is(1, "queue_state", "started");
    is(1, "ring_size", "1024");
    is(2, "is_queue_started", "True");
    let offers = |place: usize, wanted: &str| {
        let all = format!("{} {}", parsed[place]["per_queue"], parsed[place]["per_port"]);
        assert!(lacks(place) || all.contains(wanted), "{wanted} in {all}");
    };
    offers(3, "SCATTER");
    offers(4, "TCP_TSO");
    is(5, "port_id", "0");
    is(8, "rx_packets", &received.to_string());
    is(9, "was_received", "True");
    is(9, "length", "64");
    is(9, "nb_segs", "1");
}
