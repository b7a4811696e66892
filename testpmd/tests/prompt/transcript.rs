//! Sessions as they were recorded: what the main commands print, line by line. `POLLUX_RECORD=1` writes them anew; the difference is the
//! commit's to explain.

use std::fmt::Write;
use std::path::Path;

use crate::typist::{Typist, two_cpus};

/// A line without what differs from run to run: counts, and the addresses of ports.
fn masked(line: &str) -> String {
    const COUNTED: [&str; 8] =
        ["RX-packets", "RX-errors", "RX-nombuf", "TX-packets", "TX-errors", "Rx-pps", "Tx-pps", "RX-bytes"];
    if COUNTED.iter().any(|label| line.contains(label)) {
        let is_count = |word: &str| word.chars().all(|digit| digit.is_ascii_digit());
        let words = line.split_whitespace().map(|word| if is_count(word) { "#" } else { word });
        return words.collect::<Vec<_>>().join(" ");
    }
    let is_address = |word: &str| word.len() == 17 && word.matches(':').count() == 5;
    let words = line.split(' ').map(|word| if is_address(word) { "MAC" } else { word });
    words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

fn session(name: &str, eal: &[&str], options: &[&str], lines: &[&str]) {
    if !two_cpus() {
        return;
    }
    let mut typist = Typist::start(&[&["-l", "0,1"], eal].concat(), options);
    let mut text = String::new();
    for line in lines {
        let said = typist.line(line);
        let _ = writeln!(text, "testpmd> {line}");
        let answer = said.strip_suffix("testpmd> ").unwrap_or(&said);
        for line in answer.lines() {
            let _ = writeln!(text, "{}", masked(line));
        }
    }
    typist.quit();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prompt/transcript").join(name);
    if std::env::var_os("POLLUX_RECORD").is_some() {
        std::fs::write(&path, &text).expect("written");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    for (number, (now, then)) in text.lines().zip(known.lines()).enumerate() {
        assert_eq!(now, then, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(text.lines().count(), known.lines().count(), "{}", path.display());
}

#[test]
fn a_session_with_null_ports() {
    session(
        "null.txt",
        &["--vdev", "net_null0", "--vdev", "net_null1"],
        &[],
        &[
            "show port summary all",
            "show port info 0",
            "show port stats 0",
            "show config fwd",
            "show config cores",
            "show rxq info 0 0",
            "show txq info 0 0",
            "set fwd mac",
            "start",
            "start",
            "show fwd stats all",
            "stop",
            "stop",
            "port stop 0",
            "show port 0 rx_offload configuration",
            "port start 0",
            "nonsense",
            "set fwd fast",
        ],
    );
}

#[test]
fn a_session_with_the_device_model() {
    session(
        "model.txt",
        &["--vdev", "mlx5_model0,wire=null", "--vdev", "mlx5_model1,wire=null"],
        &["--rxq=2", "--txq=2"],
        &[
            "show port info 0",
            "show port 0 tx_offload capabilities",
            "show port 0 rss-hash",
            "show port 0 macs",
            "csum set outer-ip hw 0",
            "port stop 0",
            "csum set outer-ip hw 0",
            "csum parse-tunnel on 0",
            "tunnel_tso set 1000 0",
            "port start 0",
            "show port 0 tx_offload configuration",
            "flow create 0 ingress pattern eth / ipv4 / udp / end actions count / queue index 1 / end",
            "flow list 0",
            "start",
            "stop",
        ],
    );
}

#[test]
fn a_session_with_rules_on_tunnels() {
    let vxlan = "ingress pattern eth / ipv4 / udp / vxlan vni is 0x123456 / eth / ipv4 / udp dst is 53 / end actions count / queue index 1 / end";
    let gre = "priority 1 ingress pattern eth / ipv6 / gre protocol is 0x6558 / gre_key value is 7 / end actions drop / end";
    let mpls = "ingress pattern eth / ipv4 / udp / mpls label is 16 s is 1 / end actions count / queue index 0 / end";
    let lines = [
        format!("flow validate 0 {vxlan}"),
        format!("flow create 0 {vxlan}"),
        format!("flow create 0 {gre}"),
        format!("flow create 0 {mpls}"),
        // As its card comes, it knows no labels.
        format!("flow create 1 {mpls}"),
        "flow list 0".into(),
        "flow query 0 0 count".into(),
        "flow query 0 1 count".into(),
        "flow validate 0 ingress pattern eth / ipv4 / vxlan / end actions drop / end".into(),
        "flow validate 0 ingress pattern eth / gre / end actions drop / end".into(),
        "flow validate 0 ingress pattern eth / ipv4 proto is 17 / gre / end actions drop / end".into(),
        "flow validate 0 ingress pattern eth / ipv4 / gre protocol is 0x0800 / ipv6 / end actions drop / end"
            .into(),
        "flow validate 0 ingress pattern eth / ipv4 / gre k_bit is 1 / end actions drop / end".into(),
        "flow validate 0 ingress pattern eth / ipv4 / mpls / end actions drop / end".into(),
        "flow validate 0 ingress pattern eth / mpls / ipv4 / end actions drop / end".into(),
        "flow validate 0 ingress pattern eth / ipv4 / udp / vxlan vni is 0x1000000 / end actions drop / end"
            .into(),
        "flow destroy 0 rule 0 rule 2".into(),
        "flow list 0".into(),
    ];
    session(
        "tunnels.txt",
        &["--vdev", "mlx5_model0,wire=null,has_mpls=1", "--vdev", "mlx5_model1,wire=null"],
        &["--rxq=2", "--txq=2"],
        &lines.each_ref().map(String::as_str),
    );
}
