//! pktgen as a user runs it: counts, rates, returns and their loss, the report, mistakes.

mod remote;
mod rfc2544;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pollux_tests::capture::frames;
use pollux_tests::program::{Running, with_default_signals};
use pollux_wire::checksum::pseudo_v4;
use pollux_wire::{IpProtocol, Ipv4, Udp};
use serde_json::Value;

const PKTGEN: &str = env!("CARGO_BIN_EXE_pktgen");
const LIMIT: Duration = Duration::from_secs(60);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PKTGEN);
    command.args(["-l", "0", "--no-huge", "--no-telemetry"]).args(args);
    with_default_signals(&command)
}

/// The report of a run that ends by itself.
fn report(args: &[&str]) -> Value {
    let end = Running::start(command(&[args, &["--json"]].concat())).finish(LIMIT);
    assert!(end.status.success(), "{args:?}: {}: {}", end.status, end.stderr.join("\n"));
    end.report()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// What a program that was told this wrote into a capture file.
fn captured(args: &[&str]) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("out.pcap");
    let device = format!("net_pcap0,tx_pcap={}", file.display());
    report(&[&["--vdev", &device, "--", "--wait", "0"], args].concat());
    frames(&std::fs::read(file).expect("a capture"))
}

#[test]
fn a_count_of_packets_is_sent_as_they_were_asked_for() {
    let frames = captured(&[
        "--packet",
        "ether(dst=02:00:00:00:09:09)/vlan(id=7)/ipv4(src=10.0.0.1..10.0.0.5)/udp(dst=53|80)",
        "--size",
        "imix",
        "--count",
        "1200",
    ]);
    assert_eq!(frames.len(), 1200);
    let of = |bytes: usize| frames.iter().filter(|frame| frame.len() == bytes).count();
    assert_eq!([of(60), of(590), of(1514)], [700, 400, 100]);
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!(frame[..6], [2, 0, 0, 0, 9, 9]);
        assert_eq!((usize::from(frame[33]), frame[41]), (at % 5 + 1, [53, 80][at % 2]), "packet {at}");
    }
}

#[test]
fn streams_of_a_file_share_a_port() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("streams.toml");
    let text = "[[stream]]\nname = 'a'\npacket = 'ether/ipv4/udp(dst=1)'\ncount = 100\n\
                [[stream]]\nname = 'b'\npacket = ['ether/ipv4/tcp(dst=2)', 'ether/arp']\nsize = '80,100'\ncount = 51\n";
    std::fs::write(&file, text).expect("a file");
    let frames = captured(&["--streams", file.to_str().expect("text")]);
    let of = |bytes: usize| frames.iter().filter(|frame| frame.len() == bytes).count();
    assert_eq!([of(60), of(76), of(96)], [100, 26, 25]);
}

#[test]
fn what_a_ring_brings_back_is_all_there() {
    let report = report(&["--vdev", "net_ring0", "--", "--latency", "--count", "20000", "--rate", "200kpps"]);
    let stream = &report["streams"][0];
    let returned = &stream["latency"];
    assert_eq!((count(&stream["sent"]), count(&stream["bytes"])), (20_000, 1_280_000), "{report}");
    assert_eq!((count(&returned["received"]), count(&returned["lost"])), (20_000, 0), "{report}");
    assert_eq!((count(&returned["duplicates"]), count(&returned["reordered"])), (0, 0), "{report}");
    let order = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|name| count(&returned[name]));
    assert!(order[0] > 0 && order.is_sorted(), "{report}");
    assert_eq!(count(&report["ports"][0]["rx_packets"]), 20_000);
}

#[test]
fn both_ends_of_a_cable_between_modelled_cards_send_and_measure() {
    let report = report(&[
        "--vdev",
        "mlx5_model0,wire=cable:gen",
        "--vdev",
        "mlx5_model1,wire=cable:gen",
        "--",
        "-p",
        "3",
        "--latency",
        "--count",
        "5000",
        "--rate",
        "50kpps",
        "--packet",
        "ether/ipv6(src=random)/udp(src=random,dst=1..9)",
        "--size",
        "128,1518",
        "--wait",
        "1",
    ]);
    for stream in report["streams"].as_array().expect("streams") {
        assert_eq!((count(&stream["sent"]), count(&stream["latency"]["received"])), (5000, 5000), "{report}");
    }
    assert_eq!(report["streams"].as_array().map(Vec::len), Some(2));
}

/// Fields and checksums of a jumbo frame are those of a small one, and so is its mark, which a card may bring back in the last of several mbufs.
#[test]
fn jumbo_frames_are_sent_and_come_back() {
    let packet = ["--packet", "ether/ipv4(src=10.0.0.1..10.0.0.3)/udp(dst=53|80)"];
    let frames = captured(&[&packet[..], &["--size", "64,2052..2054,9018", "--count", "300"]].concat());
    let lengths: BTreeSet<usize> = frames.iter().map(Vec::len).collect();
    assert_eq!(Vec::from_iter(lengths), [60, 2048, 2049, 2050, 9014]);
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!((usize::from(frame[29]), frame[37]), (at % 3 + 1, [53, 80][at % 2]), "packet {at}");
        let ip = Ipv4::new(&frame[14..]).expect("IPv4");
        let udp = Udp::new(ip.payload()).expect("UDP");
        let pseudo = pseudo_v4(ip.src(), ip.dst(), IpProtocol::UDP, ip.payload().len() as u16);
        assert!(ip.checksum_ok() && udp.checksum_ok(pseudo), "packet {at}");
    }
    for keys in ["", ",mprq_en=1", ",txq_inline_max=930", ",rxq_cqe_comp_en=1"] {
        let ends = [0, 1].map(|end| format!("mlx5_model{end},wire=cable:jumbo{keys}"));
        jumbo_comes_back(&["--vdev", &ends[0], "--vdev", &ends[1]], "3", 2);
    }
    jumbo_comes_back(&["--vdev", "net_ring0"], "1", 1);
}

fn jumbo_comes_back(devices: &[&str], ports: &str, streams: usize) {
    let args = ["--", "-p", ports, "--latency", "--count", "500", "--rate", "2kpps", "--size", "64,9018"];
    let report = report(&[devices, &args].concat());
    for stream in report["streams"].as_array().expect("streams") {
        let returned = &stream["latency"];
        assert_eq!((count(&stream["sent"]), count(&stream["bytes"])), (500, 250 * (64 + 9018)), "{report}");
        assert_eq!(
            (count(&returned["received"]), count(&returned["lost"])),
            (500, 0),
            "{devices:?}: {report}"
        );
    }
    assert_eq!(report["streams"].as_array().map(Vec::len), Some(streams));
}

#[test]
fn loss_and_copies_on_the_way_are_counted() {
    let run = |fault: &str| {
        let device = format!("net_ring0,fault=[{fault},seed:7]");
        let report = report(&["--vdev", &device, "--", "--latency", "--count", "20000", "--rate", "200kpps"]);
        let returned = report["streams"][0]["latency"].clone();
        assert_eq!(count(&returned["received"]) + count(&returned["lost"]), 20_000, "{report}");
        returned
    };
    let dropped = run("drop:0.2");
    assert!((3000..8000).contains(&count(&dropped["lost"])), "{dropped}");
    assert_eq!((count(&dropped["duplicates"]), count(&dropped["reordered"])), (0, 0), "{dropped}");
    let doubled = run("duplicate:0.1");
    assert!(count(&doubled["duplicates"]) > 1000 && count(&doubled["lost"]) == 0, "{doubled}");
    let reordered = run("reorder:0.1");
    assert!(count(&reordered["reordered"]) > 500 && count(&reordered["duplicates"]) == 0, "{reordered}");
}

#[test]
fn a_rate_is_kept_in_each_of_its_units() {
    for (rate, size, pps) in [
        ("100000pps", "64", 100_000.0),
        ("100mbit", "125", 100_000.0),
        ("100mbitl1", "230", 50_000.0),
        // Of a link of 10 Gbit/s.
        ("1%", "1518", 8_127.438),
    ] {
        for pattern in ["constant", "burst:16", "poisson"] {
            let args = ["--vdev", "net_null0,no-rx=1", "--", "--duration", "1", "--wait", "0"];
            let args = [&args[..], &["--rate", rate, "--size", size, "--pattern", pattern]].concat();
            let report = report(&args);
            let stream = &report["streams"][0];
            let offered = number(&stream["offered_pps"]);
            // Of a Poisson process, within five standard deviations.
            let slack = if pattern == "poisson" { 5.0 * f64::sqrt(pps) } else { 17.0 };
            assert!((offered - pps).abs() <= slack, "{rate} {pattern}: {offered}, not {pps}");
            assert_eq!(number(&stream["seconds"]).round(), 1.0, "{report}");
            assert!(count(&stream["sent"]) <= count(&stream["offered"]), "{report}");
        }
    }
}

#[test]
fn what_the_port_cannot_send_is_told_as_offered() {
    let args = ["--vdev", "net_null0,no-rx=1", "--", "--duration", "0.2", "--rate", "10gpps", "--wait", "0"];
    let end = Running::start(command(&args)).finish(LIMIT);
    assert!(end.status.success(), "{:?}", end.stderr);
    assert!(end.stdout.contains("packets that were due were not sent"), "{}", end.stdout);
    let stream = report(&args)["streams"][0].clone();
    assert!((0.9e10..1.1e10).contains(&number(&stream["offered_pps"])), "{stream}");
    assert!(number(&stream["sent_pps"]) < 5e9, "{stream}");
}

#[test]
fn queues_share_a_stream() {
    let args = ["--vdev", "net_null0,no-rx=1", "--", "--queues", "3", "--count", "1000", "--rate", "100kpps"];
    let stream = report(&args)["streams"][0].clone();
    assert_eq!(count(&stream["sent"]), 1000, "{stream}");
}

#[test]
fn without_an_end_it_runs_until_ctrl_c_and_reports() {
    let mut running =
        Running::start(command(&["--vdev", "net_null0,no-rx=1", "--", "--json", "--rate", "100kpps"]));
    running.wait_for("sending on 1 lcores");
    std::thread::sleep(Duration::from_millis(300));
    let end = running.interrupt();
    assert!(end.status.success(), "{}", end.status);
    let report = end.report();
    let stream = &report["streams"][0];
    assert!(count(&stream["sent"]) > 0 && number(&stream["seconds"]) > 0.0, "{report}");
}

/// A capture file of `count` frames of so many bytes each, microseconds apart. Source: the-tcpdump-group/libpcap `pcap/pcap.h`.
fn recorded(count: u32, bytes: u32, apart: u32, link: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut words = |words: &[u32]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link]);
    for number in 0..count {
        let micros = number * apart;
        words(&[1_700_000_000 + micros / 1_000_000, micros % 1_000_000, bytes, bytes]);
        words(&vec![number; bytes as usize / 4]);
    }
    file
}

#[test]
fn a_capture_file_is_sent_as_it_was_at_its_times_or_faster() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("in.pcap");
    std::fs::write(&file, recorded(5000, 100, 100, 1)).expect("a file");
    let file = file.to_str().expect("text");
    let sent = captured(&["--pcap", file, "--speed", "10", "--loops", "2"]);
    let numbers: Vec<u32> =
        sent.iter().map(|frame| u32::from_le_bytes(frame[96..].try_into().expect("4 bytes"))).collect();
    assert_eq!(numbers, (0..5000).chain(0..5000).collect::<Vec<_>>());
    assert!(sent.iter().all(|frame| frame.len() == 100));
    let seconds = |options: &[&str]| {
        let args = ["--vdev", "net_null0,no-rx=1", "--", "--wait", "0", "--pcap", file];
        let stream = report(&[&args, options].concat())["streams"][0].clone();
        assert_eq!((count(&stream["sent"]), count(&stream["bytes"])), (5000, 5000 * 104), "{stream}");
        number(&stream["seconds"])
    };
    // 4,999 distances of 100 us; by a rate, 5,000 of 200 us.
    let (recorded, fast, paced) = (seconds(&[]), seconds(&["--speed", "5"]), seconds(&["--rate", "5kpps"]));
    assert!(recorded >= 0.4998 && (0.09998..recorded).contains(&fast), "{recorded} {fast}");
    assert!(paced >= 0.99, "{paced}");
}

#[test]
fn a_file_that_is_damaged_is_sent_until_there_and_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    };
    let whole = recorded(10, 100, 1, 1);
    let cut = write("cut.pcap", &whole[..whole.len() - 50]);
    let mut wrong = whole.clone();
    // The length of the sixth record.
    wrong[24 + 5 * 116 + 8..][..4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    let wrong = write("wrong.pcap", &wrong);
    for (file, sent, why) in [(cut, 9, "ends inside record 10"), (wrong, 5, "is damaged at byte")] {
        let args = ["--vdev", "net_null0,no-rx=1", "--", "--pcap", &file];
        let end = Running::start(command(&args)).finish(LIMIT);
        assert_eq!(end.status.code(), Some(1), "{:?}", end.stderr);
        assert!(end.stderr.iter().any(|line| line.contains(why)), "{:?}", end.stderr);
        let row = end.stdout.lines().find(|line| line.contains("recorded")).unwrap_or_default();
        assert_eq!(row.split_whitespace().nth(2), Some(sent.to_string().as_str()), "{}", end.stdout);
    }
    let long = write("long.pcap", &recorded(4, 20_000, 1, 1));
    let end = Running::start(command(&["--vdev", "net_null0,no-rx=1", "--", "--pcap", &long])).finish(LIMIT);
    assert!(
        end.status.success()
            && end.stderr.iter().any(|line| line.contains("4 frames that are empty or longer"))
    );
}

#[test]
fn a_port_answers_for_its_addresses_while_it_sends() {
    // Port 1 asks, by streams of its own; port 0 has the addresses.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ask.toml");
    let text = "[[stream]]\nname = 'arp'\nport = 1\npacket = 'ether(dst=ff:ff:ff:ff:ff:ff)/arp(tpa=10.0.0.1|10.0.0.2)'\ncount = 100\n\
                [[stream]]\nname = 'ping'\nport = 1\npacket = 'ether/ipv4(dst=10.0.0.1)/icmp'\ncount = 30\n\
                [[stream]]\nname = 'ping6'\nport = 1\npacket = 'ether/ipv6(dst=fd00::1)/icmpv6'\nsize = 100\ncount = 20\n\
                [[stream]]\nname = 'nd'\nport = 1\nsize = 90\ncount = 10\npacket = 'ether/ipv6(dst=ff02::1:ff00:1,hop=255)/icmpv6(type=135,id=0)\
                /payload(fd000000000000000000000000000001)'\n";
    std::fs::write(&file, text).expect("a file");
    let report = report(&[
        "--vdev",
        "mlx5_model0,wire=cable:ask",
        "--vdev",
        "mlx5_model1,wire=cable:ask",
        "--",
        "--streams",
        file.to_str().expect("text"),
        "--rate",
        "1kpps",
        "--ip",
        "10.0.0.1",
        "--ip",
        "0=fd00::1",
        "--wait",
        "1",
    ]);
    let answers = &report["answers"][0];
    let seen = ["arp", "echo", "neighbour", "left_out"].map(|what| count(&answers[what]));
    assert_eq!(seen, [50, 50, 10, 0], "{report}");
    assert_eq!(count(&report["ports"][1]["rx_packets"]), 110, "{report}");
}

/// Runs it; its exit code and the only line that it said.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let end = Running::start(command(args)).finish(LIMIT);
    assert!(end.stdout.is_empty(), "{args:?}: {}", end.stdout);
    let lines: Vec<&String> = end.stderr.iter().filter(|line| !line.starts_with("lib.eal")).collect();
    let [line] = lines[..] else { panic!("{args:?}: {}", end.stderr.join("\n")) };
    (end.status.code(), line.to_owned())
}

#[test]
fn gaps_are_held_against_the_rate() {
    let seen =
        report(&["--vdev", "net_null0,no-rx=1", "--", "--rate", "100kpps", "--duration", "0.5", "--gaps"]);
    let gaps = &seen["streams"][0]["gaps"];
    // The last packet may be late by what the machine does otherwise.
    assert!(number(&gaps["mean_error"]).abs() < 0.05, "{seen}");
    let [p50, p99, max] = ["p50_error_ns", "p99_error_ns", "max_error_ns"].map(|name| number(&gaps[name]));
    assert!(p50 < 10_000.0 && p50 <= p99 && p99 <= max, "half are off by less than a gap: {seen}");
    assert!(count(&gaps["left_out"]) < count(&seen["streams"][0]["sent"]), "{seen}");
    for args in [&["--gaps"][..], &["--gaps", "--rate", "1kpps", "--pattern", "poisson"]] {
        let (code, line) = refused(&[&["--vdev", "net_null0", "--"], args].concat());
        assert_eq!(code, Some(2), "{line}");
        assert!(line.contains("stream has no constant rate, against which --gaps is held"), "{line}");
    }
}

#[test]
fn each_mistake_gives_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let typo = file("typo.toml", "[[stream]]\npacket = 'ether/ipv4/upd'\n");
    let small = file(
        "small.toml",
        "[[stream]]\npacket = 'ether'\n\n[[stream]]\nname = 'six'\npacket = 'ether/ipv6/tcp'\n",
    );
    let port = file("port.toml", "[[stream]]\nport = 5\npacket = 'ether'\n");
    let link = folder.path().join("link.pcap");
    std::fs::write(&link, recorded(1, 100, 1, 101)).expect("a file");
    let link = link.display().to_string();
    let whole = folder.path().join("whole.pcap");
    std::fs::write(&whole, recorded(1, 100, 1, 1)).expect("a file");
    let whole = whole.display().to_string();
    let absent = folder.path().join("absent.toml").display().to_string();
    let table: &[(&[&str], &str)] = &[
        (&["--rate", "10"], "option '--rate': '10' is not a rate such as 1000000pps"),
        (&["--rate", "0pps"], "option '--rate': '0pps' is not above 0"),
        (
            &["--size", "63"],
            "option '--size': '63' has size '63', which is not a whole number of bytes from 64 to 9018",
        ),
        (
            &["--packet", "ether/ipv4/sctp"],
            "option '--packet': 'ether/ipv4/sctp' has no header 'sctp': headers are ether",
        ),
        (
            &["--packet", "ether/ipv4(src=10.0.0.1..10.0.0.300)"],
            "field 'ipv4.src': '10.0.0.300' is not an IPv4 address such as 198.18.0.1",
        ),
        (&["--pattern", "even"], "option '--pattern': 'even' is not one of constant, poisson, burst:N"),
        (&["--count", "0"], "--count"),
        (&["--wait", "61"], "option '--wait': '61' is not a time in seconds from 0 to 60"),
        (&["--queues", "0"], "--queues"),
        (&["--packet", "ether/ipv6/tcp"], "stream size 64 is too small: headers and payload of 74 bytes"),
        (&["--latency", "--packet", "ether/ipv4/tcp"], "stream size 64 is too small for latency"),
        (&["--tuple", "udp.src"], "stream tuple names 'udp.src', which is no field that varies"),
        (
            &["--size", "9019"],
            "option '--size': '9019' has size '9019', which is not a whole number of bytes from 64 to 9018",
        ),
        (&["-p", "2"], "-p names port 1, which does not exist; ports: 0 net_null0"),
        (&["--streams", &typo], "typo.toml', line 2, column 10: packet 'ether/ipv4/upd' has no header 'upd'"),
        (&["--streams", &small], "small.toml', line 4, column 1: stream 'six' size 64 is too small"),
        (&["--streams", &port], "stream '0' names port 5, which does not exist; ports: 0 net_null0"),
        (&["--streams", &absent], "absent.toml': cannot be read"),
        (&["--streams", &typo, "--size", "64"], "cannot be"),
        (&["--ip", "10.0.0"], "option '--ip': '10.0.0' is not an address such as 198.18.0.1"),
        (&["--ip", "224.0.0.1"], "option '--ip': '224.0.0.1' is no address that one port can have"),
        (&["--ip", "3=10.0.0.1"], "--ip names port 3, which does not exist; ports: 0 net_null0"),
        (&["--pcap", &link], "link type 101 (only 1, Ethernet, can be used)"),
        (&["--pcap", &absent], "stream pcap: cannot open"),
        (
            &["--pcap", &whole, "--rate", "50%"],
            "stream pcap: the rate of a file is in pps, or max for its recorded times",
        ),
        (&["--pcap", &whole, "--queues", "2"], "stream pcap: a file has one queue"),
        (
            &["--pcap", &whole, "--speed", "0"],
            "option '--speed': '0' is not a number from 0.000001 to 1000000",
        ),
    ];
    for (args, why) in table {
        let (code, line) = refused(&[&["--vdev", "net_null0", "--"], *args].concat());
        assert!(line.contains(why), "{args:?}: {line}");
        assert_eq!(code, Some(2), "{args:?}: {line}");
    }
}

#[test]
fn streams_that_come_along_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder.join("pktgen")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let streams = path.display().to_string();
        let args = ["--vdev", "net_null0,no-rx=1", "--vdev", "net_null1,no-rx=1", "--"];
        let args = [&args[..], &["--streams", &streams, "--duration", "0.1", "--wait", "0"]].concat();
        let report = report(&args);
        assert!(
            report["streams"].as_array().is_some_and(|all| all.iter().all(|one| count(&one["sent"]) > 0)),
            "{report}"
        );
        names.insert(path.file_name().map(std::ffi::OsStr::to_owned));
    }
    assert!(names.len() >= 3);
}
