//! l3fwd as a user runs it: frames from capture file to capture file, byte by byte; every drop with its reason; rules that change; mistakes.

use std::path::Path;
use std::process::{Command, Output};

use pollux_tests::capture::{capture, frames};
use pollux_tests::program::{Running, with_default_signals};
use pollux_wire::build::Frame;
use pollux_wire::{Ipv4Header, Tci, checksum};
use serde_json::{Value, json};
use tempfile::TempDir;

const L3FWD: &str = env!("CARGO_BIN_EXE_l3fwd");
const HERE: [u8; 6] = [2, 0, 0, 0, 9, 1];
const THERE: [u8; 6] = [2, 0, 0, 0, 9, 2];

/// A folder with rule files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    folder
}

/// Options with `@` in place of the folder.
fn placed(options: &[&str], folder: &Path) -> Vec<String> {
    options.iter().map(|option| option.replace('@', &format!("{}/", folder.display()))).collect()
}

/// The port that each is sent by, of three, and the report. Frames come in at port 0.
fn routed(files: &[(&str, &str)], options: &[&str], sent: &[Vec<u8>]) -> ([Vec<Vec<u8>>; 3], Value) {
    routed_by("", files, options, sent)
}

/// The same with more keys of port 0.
fn routed_by(
    keys: &str,
    files: &[(&str, &str)],
    options: &[&str],
    sent: &[Vec<u8>],
) -> ([Vec<Vec<u8>>; 3], Value) {
    let folder = folder(files);
    let place = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(place("in.pcap"), capture(sent)).expect("a capture");
    let first = format!("net_pcap0,rx_pcap={},tx_pcap={}{keys}", place("in.pcap"), place("out0"));
    let others = [1, 2].map(|port| format!("net_pcap{port},tx_pcap={}", place(&format!("out{port}"))));
    let mut args = vec!["-l".to_owned(), "0".to_owned(), "--no-huge".to_owned()];
    for device in [&first, &others[0], &others[1]] {
        args.extend(["--vdev".to_owned(), device.clone()]);
    }
    args.extend(["--", "-T", "0", "--json", "--duration", "0.3"].map(str::to_owned));
    args.extend(placed(options, folder.path()));
    let output = Command::new(L3FWD).args(&args).output().expect("it runs");
    let outs = ["out0", "out1", "out2"].map(|name| frames(&std::fs::read(place(name)).expect("a capture")));
    (outs, report(&output))
}

fn report(output: &Output) -> Value {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {err}", output.status);
    serde_json::from_str(out.lines().last().unwrap_or_default())
        .unwrap_or_else(|why| panic!("{why}: {out}{err}"))
}

/// Without packets that the pool had no room for: none of these tests fills it.
fn dropped(report: &Value, port: usize) -> Value {
    report["ports"][port]["dropped"].clone()
}

fn v4(to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    Frame::ether(HERE, THERE).ipv4([10, 9, 8, 7], to).ttl(17).udp(1024, 9).payload(payload).to_vec()
}

fn v6(to: u128, payload: &[u8]) -> Vec<u8> {
    Frame::ether(HERE, THERE).ipv6(0xfd09 << 112 | 7, to).ttl(17).udp(1024, 9).payload(payload).to_vec()
}

/// The frame as a router sends it: other addresses, a hop less, and the header's checksum counted anew.
fn forwarded(frame: &[u8], port: u8, source: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, port]);
    frame[6..12].copy_from_slice(source);
    if frame[12..14] == [0x86, 0xdd] {
        frame[21] -= 1;
    } else {
        frame[22] -= 1;
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..14 + usize::from(frame[14] & 15) * 4]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// What came out of a port is what was sent, in that order.
fn expect(out: &[Vec<u8>], port: u8, sent: &[&Vec<u8>]) {
    assert_eq!(out.len(), sent.len(), "at port {port}");
    let Some(first) = out.first() else { return };
    for (out, sent) in out.iter().zip(sent) {
        assert_eq!(out[6] & 3, 2, "a locally administered unicast address");
        assert_eq!(out, &forwarded(sent, port, &first[6..12]), "at port {port}");
    }
}

const ROUTES4: &str =
    "# routes\nR10.0.0.0/8 1\nR10.1.0.0/16 2\nR10.1.2.3/32 0\n\nR192.0.2.0/24 1 # a test net\n";
const ROUTES6: &str = "R2001:db8::/32 1\nR2001:db8:0:1::/64 2\nR2001:db8:0:1::7/128 0\n";
const LPM: &[(&str, &str)] = &[("v4", ROUTES4), ("v6", ROUTES6)];
const RULES: &[&str] = &["--rule_ipv4", "@v4", "--rule_ipv6", "@v6"];

fn db8(low: u128) -> u128 {
    0x2001_0db8 << 96 | low
}

#[test]
fn the_longest_prefix_leads_to_the_port() {
    // Of one burst, mixed, more than one burst of them, of lengths that differ.
    let mut sent = Vec::new();
    for n in 0..100_u8 {
        let payload = vec![n; usize::from(n)];
        sent.extend([
            v4([10, 2, n, 1], &payload),
            v6(db8(0x2_0000_0000_0000_0000 | u128::from(n)), &payload),
            v4([10, 1, n, 1], &payload),
            v6(db8(1 << 64 | u128::from(n) << 8), &payload),
            v4([10, 1, 2, 3], &payload),
            v6(db8(1 << 64 | 7), &payload),
            v4([11, 0, 0, n], &payload),
            v6(1, &payload),
        ]);
    }
    let of = |places: [usize; 2]| -> Vec<&Vec<u8>> {
        sent.iter().enumerate().filter(|(at, _)| places.contains(&(at % 8))).map(|(_, frame)| frame).collect()
    };
    for lookup in ["lpm", "fib"] {
        let ([zero, one, two], report) = routed(LPM, &[RULES, &["--lookup", lookup]].concat(), &sent);
        expect(&one, 1, &of([0, 1]));
        expect(&two, 2, &of([2, 3]));
        expect(&zero, 0, &of([4, 5]));
        assert_eq!(dropped(&report, 0), json!({ "no_route": 200 }), "{report}");
        assert_eq!(report["ports"][0]["rx_packets"], 800);
    }
}

#[test]
fn bursts_for_one_port_go_as_they_came() {
    let sent: Vec<_> = (0..200_u8).map(|n| v4([10, 9, 9, n], &[n; 30])).collect();
    for bursts in [&["--rx-burst", "64", "--tx-burst", "64"][..], &["--rx-burst", "1"], &["--tx-burst", "3"]]
    {
        let ([zero, one, two], report) = routed(LPM, &[RULES, bursts].concat(), &sent);
        expect(&one, 1, &sent.iter().collect::<Vec<_>>());
        assert_eq!((zero.len(), two.len(), dropped(&report, 1)), (0, 0, json!({})), "{report}");
    }
}

#[test]
fn without_files_the_routes_are_dpdks() {
    let sent = [v4([198, 18, 1, 200], b"1"), v4([198, 18, 2, 1], b"2"), v4([198, 18, 3, 1], b"none")];
    let sent6 = [1_u128, 2, 0, 16].map(|net| v6(0x2001_0200 << 96 | net << 64 | 5, b"6"));
    let all = [&sent[..], &sent6[..]].concat();
    let ([zero, one, two], report) = routed(&[], &[], &all);
    expect(&one, 1, &[&sent[0], &sent6[0]]);
    expect(&two, 2, &[&sent[1], &sent6[1]]);
    expect(&zero, 0, &[&sent6[2]]);
    assert_eq!(dropped(&report, 0), json!({ "no_route": 2 }));
    // Of flows, too.
    let flow = |port: u16| {
        Frame::ether(HERE, THERE).ipv4([198, 18, 1, 1], [198, 18, 1, 0]).udp(port, 9).payload(b"!").to_vec()
    };
    let ([_, one, _], report) = routed(&[], &["-E"], &[flow(9), flow(10)]);
    expect(&one, 1, &[&flow(9)]);
    assert_eq!(dropped(&report, 0), json!({ "no_route": 1 }));
}

#[test]
fn addresses_are_those_of_eth_dest() {
    let sent = [v4([10, 2, 0, 1], b"x")];
    let ([_, one, _], _) = routed(LPM, &[RULES, &["--eth-dest", "1,02:00:00:00:00:aa"]].concat(), &sent);
    assert_eq!(one[0][..6], [2, 0, 0, 0, 0, 0xaa]);
}

#[test]
fn flows_match_in_all_fields() {
    let files = [
        (
            "v4",
            "R10.1.0.2 10.9.8.7 9 1024 0x11 1\nR10.1.0.2 10.9.8.7 9 1024 6 2\nR10.1.0.3 10.9.8.7 0 0 1 2\n",
        ),
        ("v6", "R2001:db8::2 fd09::7 9 1024 17 2\n"),
    ];
    let ip = || Frame::ether(HERE, THERE).ipv4([10, 9, 8, 7], [10, 1, 0, 2]);
    let sent = [
        ip().udp(1024, 9).payload(b"udp").to_vec(),
        ip().tcp(1024, 9).payload(b"tcp").to_vec(),
        ip().udp(1025, 9).payload(b"other source port").to_vec(),
        ip().udp(1024, 10).payload(b"other port").to_vec(),
        Frame::ether(HERE, THERE).ipv4([10, 9, 8, 6], [10, 1, 0, 2]).udp(1024, 9).payload(b"").to_vec(),
        Frame::ether(HERE, THERE).ipv4([10, 9, 8, 7], [10, 1, 0, 3]).echo_request(1, 2, b"ping").to_vec(),
        v6(db8(2), b"udp"),
        v6(db8(3), b"other address"),
    ];
    let ([_, one, two], report) = routed(&files, &[RULES, &["--lookup", "em"]].concat(), &sent);
    expect(&one, 1, &[&sent[0]]);
    expect(&two, 2, &[&sent[1], &sent[5], &sent[6]]);
    assert_eq!(dropped(&report, 0), json!({ "no_route": 4 }));
}

#[test]
fn the_first_rule_that_fits_counts() {
    let files = [
        (
            "v4",
            "@0.0.0.0/0 10.1.0.0/16 0 : 65535 22 : 23 6/0xff\n\
             R0.0.0.0/0 10.1.0.0/16 0 : 65535 0 : 1023 0x06/0xff 1\n\
             @10.9.8.0/24 10.2.0.0/16 0 : 65535 0 : 65535 0/0\n\
             R0.0.0.0/0 10.0.0.0/8 0 : 65535 0 : 65535 0/0 2\n",
        ),
        (
            "v6",
            "@::/0 2001:db8::2/128 0 : 65535 9 : 9 17/0xff\nR::/0 2001:db8::/32 0 : 65535 0 : 65535 0x00/0x00 1\n",
        ),
    ];
    let tcp = |to: [u8; 4], port: u16| {
        Frame::ether(HERE, THERE).ipv4([10, 9, 8, 7], to).tcp(1024, port).payload(b"tcp").to_vec()
    };
    // The same port behind an extension header is forbidden as well.
    let mut hidden = v6(db8(2), b"hidden");
    hidden.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    hidden[20] = 60;
    hidden[19] += 8;
    let sent = [
        tcp([10, 1, 0, 1], 22),
        tcp([10, 1, 0, 1], 80),
        tcp([10, 1, 0, 1], 8080),
        tcp([10, 2, 0, 1], 80),
        tcp([11, 0, 0, 1], 80),
        v6(db8(2), b"forbidden"),
        v6(db8(3), b"fine"),
        hidden,
    ];
    let ([_, one, two], report) = routed(&files, &[RULES, &["--lookup", "acl"]].concat(), &sent);
    expect(&one, 1, &[&sent[1], &sent[6]]);
    expect(&two, 2, &[&sent[2]]);
    assert_eq!(dropped(&report, 0), json!({ "denied": 4, "no_route": 1 }), "{report}");
}

#[test]
fn what_cannot_go_on_is_dropped_with_its_reason() {
    let good = v4([10, 2, 0, 1], b"some bytes");
    let patched = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let mut sum = good.clone();
    sum[24] ^= 0x10;
    let mut arp = good.clone();
    arp[13] = 6;
    let tagged = Frame::ether(HERE, THERE).vlan(Tci::new(0, false, 5)).ipv4([10, 9, 8, 7], [10, 2, 0, 1]);
    let mut late = v6(db8(9), b"late");
    late[21] = 1;
    let mut long = v6(db8(9), b"long");
    long[18] = 0x20;
    let sent = [
        arp,
        tagged.udp(1, 2).payload(b"tagged").to_vec(),
        good[..30].to_vec(),
        v6(db8(9), b"")[..50].to_vec(),
        patched(14, 0x65),
        patched(14, 0x42),
        patched(16, 0x10),
        long,
        sum,
        patched(22, 1),
        patched(22, 0),
        late,
        good.clone(),
    ];
    let ([zero, one, two], report) = routed(LPM, RULES, &sent);
    expect(&one, 1, &[&good]);
    assert_eq!((zero.len(), two.len()), (0, 0));
    let reasons = json!({
        "ip_checksum": 1, "ip_header_length": 1, "ip_length": 2, "ip_version": 1, "not_ip": 1, "truncated": 2,
        "ttl_expired": 3, "vlan": 1,
    });
    assert_eq!(dropped(&report, 0), reasons, "{report}");
}

/// Frames in several mbufs, IPv4 options, and mbufs that another holder shares, as a port hands them on that doubles what it receives.
#[test]
fn long_optioned_and_shared_packets_pass() {
    let mut options = v4([10, 2, 0, 1], &[3; 40]);
    options.splice(34..34, [0x94, 4, 0, 0]);
    options[14] = 0x46;
    let total = (options.len() - 14) as u16;
    options[16..18].copy_from_slice(&total.to_be_bytes());
    options[24..26].fill(0);
    let sum = checksum::of(&options[14..14 + Ipv4Header::BYTES + 4]);
    options[24..26].copy_from_slice(&sum.to_be_bytes());
    let sent = [v4([10, 2, 0, 1], &[7; 8000]), options, v4([10, 1, 0, 1], &[9; 3000])];
    let ([_, one, two], report) = routed(LPM, RULES, &sent);
    expect(&one, 1, &[&sent[0], &sent[1]]);
    expect(&two, 2, &[&sent[2]]);
    assert_eq!(dropped(&report, 0), json!({}));
    let ([_, one, two], _) = routed_by(",fault=[duplicate:1]", LPM, RULES, &sent);
    expect(&one, 1, &[&sent[0], &sent[0], &sent[1], &sent[1]]);
    expect(&two, 2, &[&sent[2], &sent[2]]);
}

/// A capture replayed without end into ports that take everything.
fn endless(folder: &Path, sent: &[Vec<u8>], options: &[&str]) -> Running {
    let file = folder.join("in.pcap");
    std::fs::write(&file, capture(sent)).expect("a capture");
    let source = format!("net_pcap0,rx_pcap={},infinite_rx=1", file.display());
    let mut command = Command::new(L3FWD);
    command.args(["-l", "0", "--no-huge", "--no-telemetry", "--vdev", &source]);
    command.args(["--vdev", "net_null1,no-rx=1", "--vdev", "net_null2,no-rx=1", "--", "-T", "0", "--json"]);
    command.args(placed(options, folder));
    let mut running = Running::start(with_default_signals(&command));
    running.wait_for("forwarding");
    running
}

#[test]
fn rules_that_change_are_taken_over_without_a_lost_packet() {
    for (lookup, first, second) in [
        ("lpm", "R10.0.0.0/8 1\n", "R10.0.0.0/8 2\nR192.0.2.0/24 1\n"),
        (
            "em",
            "R10.2.0.1 10.9.8.7 9 1024 17 1\n",
            "R10.2.0.1 10.9.8.7 9 1024 17 2\nR10.2.0.2 10.9.8.7 9 1024 17 2\n",
        ),
        (
            "acl",
            "R0.0.0.0/0 10.0.0.0/8 0 : 65535 0 : 65535 0/0 1\n",
            "R0.0.0.0/0 10.0.0.0/8 0 : 65535 0 : 65535 0/0 2\n@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0/0\n",
        ),
    ] {
        let v6 = match lookup {
            "lpm" => "R::/0 1\n",
            "em" => "R::1 ::2 1 2 17 1\n",
            _ => "R::/0 ::/0 0 : 65535 0 : 65535 0/0 1\n",
        };
        let folder = folder(&[("v4", first), ("v6", v6)]);
        let file = folder.path().join("v4");
        let options = [RULES, &["--lookup", lookup]].concat();
        let mut running = endless(folder.path(), &[v4([10, 2, 0, 1], b"x")], &options);
        let name = file.display();
        std::fs::write(&file, format!("{first}R10.0.0.0/8 9\n")).expect("a file");
        let said = running.wait_for("the rules in force stay");
        assert!(said.contains(&format!("{name}:2: ")), "{said}");
        std::fs::remove_file(&file).expect("it was there");
        running.wait_for(&format!("cannot read {name}: "));
        std::fs::write(&file, second).expect("a file");
        let said = running.wait_for("rules taken over");
        assert_eq!(
            said,
            format!(
                "l3fwd: rules taken over: 2 IPv4 rules of {name}, 1 IPv6 rules of {}",
                folder.path().join("v6").display()
            )
        );
        std::thread::sleep(std::time::Duration::from_millis(100));
        let end = running.interrupt();
        assert!(end.status.success(), "{}", end.stderr.join("\n"));
        let report = end.report();
        let count = |port: usize, what: &str| report["ports"][port][what].as_u64().expect("a count");
        assert_eq!(count(0, "rx_packets"), count(1, "tx_packets") + count(2, "tx_packets"), "{report}");
        assert!(count(1, "tx_packets") > 100 && count(2, "tx_packets") > 100, "{report}");
        for port in 0..3 {
            assert_eq!(dropped(&report, port), json!({}), "{report}");
        }
    }
}

#[test]
fn the_table_says_why_packets_were_dropped() {
    let folder = folder(LPM);
    let file = folder.path().join("in.pcap");
    std::fs::write(&file, capture(&[v4([11, 0, 0, 1], b"nowhere"), v4([10, 2, 0, 1], b"there")]))
        .expect("a capture");
    let source = format!("net_pcap0,rx_pcap={}", file.display());
    let mut command = Command::new(L3FWD);
    command.args([
        "-l",
        "0",
        "--no-huge",
        "--vdev",
        &source,
        "--vdev",
        "net_null1,no-rx=1",
        "--vdev",
        "net_null2,no-rx=1",
    ]);
    command.args(["--", "--duration", "0.3"]).args(placed(RULES, folder.path()));
    let output = command.output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("dropped at port 0: no route 1\n"), "{out}{err}");
    assert!(
        err.contains("l3fwd: 4 IPv4 rules of ") && err.contains("lcore 0: port 0 net_pcap0 queue 0"),
        "{err}"
    );
}

#[test]
fn lcores_poll_what_config_says() {
    let devices = ["--vdev", "mlx5_model0,wire=source:64:100000", "--vdev", "mlx5_model1,wire=null"];
    let folder = folder(&[("v4", "R198.19.0.0/16 1\n")]);
    let mut command = Command::new(L3FWD);
    command.args(["-l", "0,1", "--no-huge"]).args(devices).args([
        "--",
        "-T",
        "0",
        "--json",
        "--duration",
        "0.5",
    ]);
    command.args(["--config", "(0,0,0),(0,1,1)"]).args(placed(&["--rule_ipv4", "@v4"], folder.path()));
    let output = command.output().expect("it runs");
    let report = report(&output);
    let sent = report["ports"][1]["tx_packets"].as_u64();
    assert!(sent > Some(1000), "{report}");
    // The model's thread may be late.
    let full = report["ports"][1]["dropped"]["tx_full"].as_u64().unwrap_or(0);
    assert_eq!(report["ports"][0]["rx_packets"].as_u64(), sent.map(|sent| sent + full), "{report}");
    let lcores = report["lcores"].as_array().expect("lcores");
    let busy = lcores.iter().filter(|lcore| lcore["cycles_per_packet"].as_f64() > Some(1.0));
    assert_eq!((lcores.len(), busy.count()), (2, 2), "{report}");
}

/// One line on standard error, and exit code 2.
fn refused(options: &[String]) -> String {
    let mut command = Command::new(L3FWD);
    command.args(["-l", "0", "--no-huge", "--vdev", "net_null0", "--vdev", "net_null1", "--"]).args(options);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
    assert!(output.stdout.is_empty(), "{options:?}");
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with("lib.eal")).collect();
    let [line] = lines[..] else { panic!("{options:?}: {said}") };
    line.strip_prefix("l3fwd: ").unwrap_or_else(|| panic!("{line}")).to_owned()
}

#[test]
fn a_wrong_rule_is_named_with_file_line_and_what_is_allowed() {
    let there = "ports: 0 net_null0, 1 net_null1";
    let flow = "R<destination> <source> <destination port> <source port> <protocol> <port>";
    let table: &[(&str, &str, &str)] = &[
        ("lpm", "R10.0.0.0/8 2", &format!("1: names port 2, which does not exist; {there}")),
        ("lpm", "R10.0.0.0/8 70000", "1: port '70000' is not a whole number from 0 to 65535"),
        ("lpm", "#\nR10.0.0.0/33 1", "2: '10.0.0.0/33' is not an IPv4 address, /, and 0 to 32 bits"),
        ("lpm", "R10.0.0.0/8", "1: has 1 fields, not 2: R<address>/<bits> <port>, such as R198.18.0.0/24 0"),
        ("lpm", "10.0.0.0/8 1", "1: begins with '1': a line begins with R (a route) or # (a comment)"),
        (
            "fib",
            "@10.0.0.0/8 1",
            "1: begins with '@': a line begins with R (a route) or # (a comment); @ is for --lookup acl",
        ),
        ("lpm", "R10.0.0.0/8 1\nR10.7.0.0/8 0", "2: matches what line 1 matches: remove one of them"),
        ("lpm", "", " has no route: a line that begins with R is one"),
        ("lpm", "# only a comment\n", " has no route: a line that begins with R is one"),
        ("lpm", "R::/0 1", "1: '::/0' is not an IPv4 address, /, and 0 to 32 bits"),
        (
            "em",
            "R1.1.1.1 2.2.2.2 9 9 17",
            &format!("1: has 5 fields, not 6: {flow}, such as R198.18.0.0 198.18.0.1 9 9 0x11 0"),
        ),
        ("em", "R1.1.1.1 2.2.2 9 9 17 1", "1: '2.2.2' is not an IPv4 address"),
        (
            "em",
            "R1.1.1.1 2.2.2.2 65536 9 17 1",
            "1: destination port '65536' is not a whole number from 0 to 65535",
        ),
        ("em", "R1.1.1.1 2.2.2.2 9 -9 17 1", "1: source port '-9' is not a whole number from 0 to 65535"),
        ("em", "R1.1.1.1 2.2.2.2 9 9 256 1", "1: protocol '256' is not a whole number from 0 to 255"),
        (
            "em",
            "R1.1.1.1 2.2.2.2 9 9 17 1\n\nR1.1.1.1 2.2.2.2 9 0x9 0x11 0",
            "3: matches what line 1 matches: remove one of them",
        ),
        (
            "acl",
            "R0.0.0.0/0 1.0.0.0/8 9 : 8 0 : 9 6/0xff 1",
            "1: source ports '9 : 8': the first must not be above the last",
        ),
        (
            "acl",
            "R0.0.0.0/0 1.0.0.0/8 0 - 9 0 : 9 6/0xff 1",
            "1: '-' between source ports must be ':', with spaces around it",
        ),
        (
            "acl",
            "@0.0.0.0/0 1.0.0.0/8 0 : 9 0 : 9 6 ",
            "1: protocol '6' is not a value and a mask from 0 to 255, such as 6/0xff",
        ),
        ("acl", "@0.0.0.0/0 1.0.0.0/8 0 : 9 0 : 9 6/0xff", " has no route: a line that begins with R is one"),
    ];
    let folder = folder(&[("v6", "")]);
    let file = folder.path().join("v4");
    for (lookup, text, why) in table {
        std::fs::write(&file, text).expect("a file");
        // The other family's file is read first to be there; a fault of the first is told first.
        let options =
            placed(&["--rule_ipv4", "@v4", "--rule_ipv6", "@v6", "--lookup", lookup], folder.path());
        assert_eq!(refused(&options), format!("{}:{why}", file.display()), "{text}");
    }
    let told = refused(&placed(&["--rule_ipv6", "@none"], folder.path()));
    assert!(told.starts_with("cannot read ") && told.contains("none: No such file"), "{told}");
    let told = refused(&placed(&["--rule_ipv6", "@"], folder.path()));
    assert!(told.ends_with("it is not a regular file"), "{told}");
    std::fs::write(&file, [0xff, 0xfe, b'R', 0]).expect("a file");
    let told = refused(&placed(&["--rule_ipv4", "@v4"], folder.path()));
    assert!(told.contains("v4:1: begins with '\u{fffd}'"), "{told}");
}

#[test]
fn a_wrong_option_is_refused() {
    let table: &[(&[&str], &str)] = &[
        (&["-p", "4"], "-p names port 2, which does not exist; ports: 0 net_null0, 1 net_null1"),
        (&["--lookup", "hash"], "option '--lookup': 'hash' is not one of lpm, fib, em, acl"),
        (&["--lookup", "acl"], "--rule_ipv4 is required: this look-up has no rules by default"),
        (
            &["--config", "(0,0)"],
            "option '--config': '(0,0)' is not a list of (port,queue,lcore) such as (0,0,1),(1,0,2)",
        ),
        (&["--config", "(0,0,5)"], "--config names lcore 5, which is not one of 0: add it to -l"),
        (
            &["--eth-dest", "2,02:00:00:00:00:01"],
            "--eth-dest names port 2, which does not exist; ports: 0 net_null0, 1 net_null1",
        ),
        (
            &["-p", "1", "--eth-dest", "1,02:00:00:00:00:01"],
            "--eth-dest names port 1, which -p leaves out: add it to -p",
        ),
        (&["--rx-burst", "65"], "option '--rx-burst': '65' is not a whole number from 0 to 64"),
        (
            &["--max-pkt-len", "63"],
            "option '--max-pkt-len': '63' is not a whole number of bytes from 64 to 9600",
        ),
        (&["--mbcache", "513"], "option '--mbcache': '513' is not a whole number from 0 to 512"),
        (
            &["--mode", "eventdev"],
            "--mode is not supported: there are no event devices; queues are always polled; leave it out",
        ),
        (&["--per-port-pool"], "--per-port-pool is not supported: one pool serves all ports; leave it out"),
    ];
    for (options, why) in table {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        assert_eq!(refused(&options), *why);
    }
}
