//! Flows: what is printed, that DPDK's script prints the same, and that the driver's packets arrive where they say.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_mempool::Burst;
use pollux_port::PortId;
use pollux_tests::capture::capture;
use pollux_tests::require::{Need, dpdk_script, require};
use pollux_wire::IpProtocol;
use pollux_wire::build::Frame;
use serde_json::Value;

use crate::program::{End, refused, run, script};

fn flows(arguments: &str) -> End {
    run(env!("CARGO_BIN_EXE_rss-flows"), arguments.split_whitespace())
}

/// What follows the addresses.
#[derive(Clone, Copy, Debug)]
enum Above {
    Tcp,
    Udp,
    /// A protocol that is neither: addresses alone are hashed.
    Other,
}

struct Packet {
    what: String,
    queue: u16,
    frame: Vec<u8>,
}

/// A frame whose payload is its number.
fn frame(
    number: u32,
    above: Above,
    (src, src_port): (IpAddr, u16),
    (dst, dst_port): (IpAddr, u16),
) -> Vec<u8> {
    let ether = Frame::ether([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ip = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => ether.ipv4(src, dst),
        (IpAddr::V6(src), IpAddr::V6(dst)) => ether.ipv6(src, dst),
        _ => unreachable!("flows have one IP version"),
    };
    let payload = number.to_be_bytes();
    let frame = match above {
        Above::Tcp => ip.tcp(src_port, dst_port).payload(&payload),
        Above::Udp => ip.udp(src_port, dst_port).payload(&payload),
        // RFC 3692: for experiments.
        Above::Other => ip.payload(IpProtocol(253), &payload),
    };
    // The number is at the end of all, where a shorter frame has no padding.
    let mut frame = Vec::from(frame);
    frame.resize(frame.len().max(100), 0);
    frame.extend(payload);
    frame
}

/// The packets of a run's flows, there and back, and their queues.
fn packets(arguments: &str, above: Above, into: &mut Vec<Packet>) {
    let end = flows(&format!("{arguments} --json"));
    assert_eq!(end.status, 0, "{arguments}: {end:?}");
    let told: Vec<Value> = serde_json::from_str(&end.stdout).expect("JSON");
    let queues: usize = arguments.split(' ').next().and_then(|queues| queues.parse().ok()).expect("a number");
    let mut used: Vec<u64> = told.iter().filter_map(|flow| flow["queue"].as_u64()).collect();
    used.sort_unstable();
    assert!(used.iter().copied().eq(0..queues as u64), "{arguments}: each queue has one flow: {used:?}");
    for flow in &told {
        let address =
            |key: &str| -> IpAddr { flow[key].as_str().and_then(|text| text.parse().ok()).expect(key) };
        let number =
            |key: &str| -> u16 { flow[key].as_u64().and_then(|port| port.try_into().ok()).expect(key) };
        let src = (address("src_ip"), number("src_port"));
        let dst = (address("dst_ip"), number("dst_port"));
        for (queue, src, dst) in [("queue", src, dst), ("queue_reverse", dst, src)] {
            into.push(Packet {
                what: format!("{above:?} {flow}, {queue}"),
                queue: number(queue),
                frame: frame(into.len() as u32, above, src, dst),
            });
        }
    }
}

/// The queue at which each packet arrives at a port of the device model.
fn arrivals(packets: &[Packet], queues: u16) -> Vec<u16> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("in.pcap");
    let frames: Vec<Vec<u8>> = packets.iter().map(|packet| packet.frame.clone()).collect();
    std::fs::write(&file, capture(&frames)).expect("written");
    let device = format!("mlx5_model0,wire=pcap:{}:", file.display());
    let line = CommandLine::parse(["flows", "-l", "0", "--no-huge", "--vdev", &device]).expect("a line");
    let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
    let request = PortRequest::new().lcores(1).rx_queues(queues).rx_descriptors(1024).promiscuous(true);
    let started = bringup.start_ports(&[PortId(0)], &request);
    let (mut ports, _pool) = started.unwrap_or_else(|error| panic!("{}", error.line()));
    let mut arrived = vec![None; packets.len()];
    let end = Instant::now() + Duration::from_secs(30);
    while arrived.iter().any(Option::is_none) {
        assert!(
            Instant::now() < end,
            "{} packets did not arrive",
            arrived.iter().filter(|one| one.is_none()).count()
        );
        for (number, queue) in ports[0].rx.iter_mut().enumerate() {
            let mut burst = Burst::new();
            queue.rx_burst(&mut burst, 32);
            for mbuf in &burst {
                let (_, tail) = mbuf.data().split_last_chunk::<4>().expect("a number");
                arrived[u32::from_be_bytes(*tail) as usize] = Some(number as u16);
            }
        }
    }
    arrived.into_iter().flatten().collect()
}

#[test]
fn each_flow_arrives_at_the_queue_that_is_told() {
    for queues in [1, 2, 3, 4, 5, 8, 16] {
        let mut sent = Vec::new();
        for (networks, one) in [
            ("10.0.0.0/24 192.0.2.0/29", "198.18.0.1 198.18.255.1"),
            ("2001:db8::/120 2001:db8:0:1::/125", "fd00::1 fd00:0:0:1::2"),
        ] {
            // Without ports, the addresses alone decide, and ports of zero change nothing of the hash.
            for above in [Above::Other, Above::Tcp, Above::Udp] {
                packets(&format!("{queues} {networks}"), above, &mut sent);
            }
            for above in [Above::Tcp, Above::Udp] {
                packets(&format!("{queues} {one} -s 1024-65535 -d 443"), above, &mut sent);
                packets(&format!("{queues} {networks} -s 7 -d 8 -r"), above, &mut sent);
            }
        }
        let arrived = arrivals(&sent, queues);
        for (packet, queue) in sent.iter().zip(arrived) {
            assert_eq!(queue, packet.queue, "{queues} queues: {}", packet.what);
        }
    }
}

#[test]
fn tables_and_json_are_as_dpdk_prints_them() {
    let end = flows("2 10.0.0.0/30 192.0.2.1 -d 80-90 -r");
    assert_eq!(end.status, 0, "{end:?}");
    let head = "SRC_IP      SPORT    DST_IP       DPORT    QUEUE    QUEUE_REVERSE\n10.0.0.1    0        192.0.2.1    80       ";
    assert!(end.stdout.starts_with(head), "{}", end.stdout);
    assert_eq!(end.stdout.lines().count(), 3);
    assert!(!end.stdout.contains(" \n"), "nothing behind the last word");
    let all = flows("2 10.0.0.0/30 192.0.2.1 --all");
    assert_eq!((all.status, all.stdout.lines().count()), (0, 3), "{all:?}");
    let none = flows("1 10.0.0.1 10.0.0.1 -a -j");
    assert_eq!((none.status, none.stdout.as_str()), (0, "[]\n"));
}

#[test]
fn the_documents_example_is_what_is_printed() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/doctor.md")).expect("the page");
    let begin = "```text\ntarget/release/rss-flows ";
    let (command, rest) =
        page.split_once(begin).and_then(|(_, rest)| rest.split_once('\n')).expect("a command");
    let (printed, _) = rest.split_once("```").expect("the end of the block");
    assert_eq!(flows(command).stdout, printed);
}

#[test]
fn mistakes_are_told_with_what_is_allowed() {
    for (arguments, said) in [
        ("0 10.0.0.1 10.0.0.2", "0 is not in 1..=65535"),
        (
            "4 10.0.0.1/24 10.0.0.2",
            "network 10.0.0.1/24: has bits set beyond its first 24: write 10.0.0.0/24",
        ),
        ("4 10.0.0.1 x", "network x: is no network: write ADDRESS or ADDRESS/BITS"),
        ("4 10.0.0.1 ::1", "are not of one IP version; give two IPv4 or two IPv6 networks"),
        ("4 10.0.0.1 10.0.0.2 -s 9-9", "ports 9-9: is an empty range: write a port from 0 to 65535"),
        (
            "4 10.0.0.1 10.0.0.2 -k ab",
            "key ab: has 1 bytes; give 80 to 104 hexadecimal digits, or one of pollux, mlx,",
        ),
        ("4 10.0.0.1 10.0.0.2 -t 6", "entries of the table 6: must be a power of two"),
        (
            "200 10.0.0.1 10.0.0.2",
            "entries of the table 128: must be a power of two, and at least the number of queues (200)",
        ),
        ("4 ::/64 ::1 -a", "are more than the 4294967296 that are listed: give smaller networks or ranges"),
    ] {
        refused(&flows(arguments), 2, said);
    }
    let end = flows("4 10.0.0.1 10.0.0.2");
    assert_eq!((end.status, end.stdout.lines().count()), (1, 2), "{end:?}");
    assert!(
        end.stderr.starts_with("rss-flows: no flow found for queues ") && end.stderr.lines().count() == 1,
        "{end:?}"
    );
}

#[test]
fn dpdks_script_prints_the_same() {
    if !require(&[Need::RssFlows]) {
        return;
    }
    let original = dpdk_script("dpdk-rss-flows.py").expect("it is there");
    let symmetric = "6d5a".repeat(20);
    for arguments in [
        "1 10.0.0.1 10.0.0.2",
        "8 10.0.0.0/24 192.0.2.0/24",
        "5 10.0.0.4/31 192.0.2.0/24 -k mlx",
        "16 2001:db8::/112 2001:db8:1::/126 -k mlx -r",
        "7 2001:db8::/127 fd00::1 -s 1000-3000 -k i40e",
        "128 10.0.0.1 10.0.0.2 -s 1-9999 -d 53 -k mlx -t 128",
        "6 10.0.0.1 10.0.0.2 -s 1-9999 -k cnxk",
        "200 10.0.0.0/16 10.1.0.1 -t 512 -k i40e --check-reverse-traffic",
        "4 10.0.0.1 10.0.0.2 -s 0 -d 0-1 -k mlx",
        "3 10.0.0.0/29 10.0.0.0/29 -a -s 5-7 -r",
        "3 fd00::/126 fd00::/125 --all-flows -k mlx",
        &format!("4 10.0.0.0/22 10.9.0.0/30 -d 443 -r -k {symmetric}"),
    ] {
        for form in [&[][..], &["--json"], &["--info"]] {
            let words: Vec<&str> = arguments.split(' ').chain(form.iter().copied()).collect();
            let theirs = script(&original, &words);
            assert_eq!(theirs.status, 0, "{arguments}: {theirs:?}");
            // Its default key is another NIC's.
            let key: &[&str] = if words.contains(&"-k") { &[] } else { &["-k", "intel"] };
            let ours = run(env!("CARGO_BIN_EXE_rss-flows"), words.iter().chain(key));
            assert_eq!(ours.stdout, theirs.stdout, "{arguments}");
        }
    }
}
