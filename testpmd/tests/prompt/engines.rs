//! Every engine over every kind of port, in every layout of mbufs: what leaves is, byte for byte, what the engine makes of what came.

use std::path::Path;
use std::time::Duration;

use pollux_tests::capture;
use pollux_tests::frame::{self, Capture};
use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::require::{Need, require};
use pollux_wire::build::Frame;
use pollux_wire::checksum::Sum;
use pollux_wire::{Ether, EtherType, IpProtocol, Ipv4, Tci, TcpFlags};

use crate::typist::{Typist, number, two_cpus};

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
/// To whom frames go: the port that receives them, which takes those before it is told to take all.
const PORT: [u8; 6] = [2, 0, 0, 0, 2, 0];

/// How mbufs are laid out: a name, the longest frame, and the options.
type Layout = (&'static str, usize, &'static [&'static str]);

const LAYOUTS: [Layout; 4] = [
    ("one mbuf", 1514, &[]),
    ("jumbo frames, one mbuf", 9000, &["--mbuf-size=10240", "--max-pkt-len=9018"]),
    (
        "jumbo frames in chains",
        9000,
        &["--mbuf-size=2176", "--max-pkt-len=9018", "--enable-scatter", "--tx-offloads=0x8000"],
    ),
    ("short mbufs in chains", 700, &["--mbuf-size=256", "--enable-scatter", "--tx-offloads=0x8000"]),
];

/// What an engine is asked: its name, commands before it starts, and what it makes of a frame.
struct Row {
    engine: &'static str,
    commands: &'static [&'static str],
    make: fn(&[u8]) -> Option<Vec<u8>>,
}

const ROWS: [Row; 9] = [
    Row { engine: "io", commands: &[], make: |frame| Some(frame.to_vec()) },
    Row { engine: "noisy", commands: &[], make: |frame| Some(frame.to_vec()) },
    Row { engine: "mac", commands: &[], make: |frame| Some(addressed(frame)) },
    Row { engine: "macswap", commands: &[], make: |frame| Some(swapped(frame)) },
    Row { engine: "5tswap", commands: &[], make: |frame| Some(all_swapped(frame)) },
    Row { engine: "rxonly", commands: &[], make: |_| None },
    Row { engine: "icmpecho", commands: &[], make: reply },
    Row { engine: "csum", commands: &[], make: |frame| Some(summed(&addressed(frame))) },
    Row {
        engine: "csum",
        commands: &["csum parse-tunnel on 1"],
        make: |frame| Some(inner_summed(&summed(&addressed(frame)))),
    },
];

/// Sums by the port that sends, on ports that have such.
const BY_PORT: [Row; 2] = [
    Row {
        engine: "csum",
        commands: &[
            "port stop 1",
            "csum set ip hw 1",
            "csum set udp hw 1",
            "csum set tcp hw 1",
            "port start 1",
        ],
        make: |frame| Some(summed(&addressed(frame))),
    },
    Row {
        engine: "csum",
        commands: &[
            "port stop 1",
            "csum set ip hw 1",
            "csum set udp hw 1",
            "csum set tcp hw 1",
            "csum set outer-ip hw 1",
            "csum parse-tunnel on 1",
            "port start 1",
        ],
        make: |frame| Some(inner_summed(&summed(&addressed(frame)))),
    },
];

/// Frames of many kinds and lengths, all sums right, the longest as long as that.
fn frames(longest: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for number in 0..12_u16 {
        let ether = || Frame::ether([2, 0, 0, 0, 1, number as u8], PORT);
        let (near, far) = ([10, 0, 0, number as u8], [10, 1, 0, 9]);
        let room = longest - 100;
        let bytes = room * usize::from(number) / 11;
        let payload: Vec<u8> = (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ number as u8).collect();
        let flags = TcpFlags::ACK;
        frames.push(ether().ipv4(near, far).udp(1000 + number, 9).payload(&payload));
        frames.push(ether().ipv4(near, far).tcp(2000 + number, 80).flags(flags).payload(&payload));
        frames.push(ether().ipv6(1, u128::from(number)).udp(3000 + number, 9).payload(&payload));
        frames.push(ether().vlan(Tci(5)).ipv6(1, 2).tcp(4000 + number, 80).flags(flags).payload(&payload));
        frames.push(ether().ipv4(near, far).echo_request(number, 1, &payload));
        // Inside VXLAN, without an outer sum.
        let inner = Frame::ether([4; 6], [6; 6]).ipv4([192, 168, 0, 1], [192, 168, 0, number as u8]);
        let inner = inner.tcp(7, 5000 + number).flags(flags).payload(&payload[..bytes.min(room - 60)]);
        let mut vxlan = ether()
            .ipv4(near, far)
            .udp(number, 4789)
            .payload(&[&[8, 0, 0, 0, 0, 0, 1, 0], &inner[..]].concat());
        vxlan[14 + 20 + 6..][..2].fill(0);
        frames.push(vxlan);
    }
    let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 1, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    frames.push(Frame::ether([2, 0, 0, 0, 1, 1], [0xff; 6]).payload(EtherType::ARP, &arp));
    frames.into_iter().map(|frame| frame.padded_to(60).to_vec()).collect()
}

/// To the peer, from the port: its address is a gap that whatever stands there fills.
fn addressed(frame: &[u8]) -> Vec<u8> {
    [&PEER[..], &[0; 6], &frame[12..]].concat()
}

fn swapped(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

/// Where layer 3 begins, and its type.
fn layer3(frame: &[u8]) -> (usize, EtherType) {
    let kind = |at: usize| EtherType(u16::from_be_bytes([frame[at], frame[at + 1]]));
    if kind(12) == EtherType::VLAN { (18, kind(16)) } else { (14, kind(12)) }
}

fn all_swapped(frame: &[u8]) -> Vec<u8> {
    let mut frame = swapped(frame);
    let (l3, kind) = layer3(&frame);
    let (addresses, l4, protocol) = match kind {
        EtherType::IPV4 => (l3 + 12..l3 + 20, l3 + 20, frame[l3 + 9]),
        EtherType::IPV6 => (l3 + 8..l3 + 40, l3 + 40, frame[l3 + 6]),
        _ => return frame,
    };
    let half = addresses.len() / 2;
    frame[addresses].rotate_left(half);
    if matches!(IpProtocol(protocol), IpProtocol::UDP | IpProtocol::TCP) {
        frame[l4..l4 + 4].rotate_left(2);
    }
    frame
}

/// The answer to an ARP request, or to a ping.
fn reply(frame: &[u8]) -> Option<Vec<u8>> {
    let (l3, kind) = layer3(frame);
    let mut answer = swapped(frame);
    if kind == EtherType::ARP {
        // The port's address is told, wherever it stands.
        answer[6..12].fill(0);
        answer[l3 + 7] = 2;
        answer[l3 + 8..l3 + 14].fill(0);
        answer[l3 + 14..l3 + 18].copy_from_slice(&frame[l3 + 24..l3 + 28]);
        answer[l3 + 18..l3 + 28].copy_from_slice(&frame[l3 + 8..l3 + 18]);
        return Some(answer);
    }
    if kind != EtherType::IPV4 || frame[l3 + 9] != IpProtocol::ICMP.0 {
        return None;
    }
    answer[l3 + 12..l3 + 20].rotate_left(4);
    answer[l3 + 20] = 0;
    let end = l3 + usize::from(u16::from_be_bytes([frame[l3 + 2], frame[l3 + 3]]));
    answer[l3 + 22..l3 + 24].fill(0);
    let sum = Sum::of(&answer[l3 + 20..end]).checksum();
    answer[l3 + 22..l3 + 24].copy_from_slice(&sum.to_be_bytes());
    Some(answer)
}

/// Sums of the outer layers as they were before they were [spoiled](spoiled): spoiling again brings them back.
fn summed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    places(&frame).into_iter().for_each(|at| frame[at] ^= 0x5a);
    frame
}

fn inner_summed(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Some(inner) = inner(&frame) {
        for at in places(&frame[inner..]) {
            frame[inner + at] ^= 0x5a;
        }
    }
    frame
}

/// A byte of each sum of the outer layers that csum fills in.
fn places(frame: &[u8]) -> Vec<usize> {
    let (l3, kind) = layer3(frame);
    let (l4, protocol, mut places) = match kind {
        EtherType::IPV4 => (l3 + 20, frame[l3 + 9], vec![l3 + 11]),
        EtherType::IPV6 => (l3 + 40, frame[l3 + 6], Vec::new()),
        _ => return Vec::new(),
    };
    match IpProtocol(protocol) {
        IpProtocol::UDP if frame[l4 + 6..l4 + 8] != [0, 0] => places.push(l4 + 7),
        IpProtocol::TCP => places.push(l4 + 17),
        _ => {}
    }
    places
}

/// Where the Ethernet header inside VXLAN begins.
fn inner(frame: &[u8]) -> Option<usize> {
    let (l3, kind) = layer3(frame);
    let vxlan = kind == EtherType::IPV4
        && frame[l3 + 9] == IpProtocol::UDP.0
        && frame[l3 + 22..l3 + 24] == 4789_u16.to_be_bytes();
    vxlan.then_some(l3 + 20 + 8 + 8)
}

/// What csum is given: frames with wrong sums, inside tunnels where it looks into them.
fn given(row: &Row, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if row.engine != "csum" {
        return frames.to_vec();
    }
    let tunnels = row.commands.iter().any(|command| command.starts_with("csum parse-tunnel on"));
    frames.iter().map(|frame| if tunnels { inner_summed(&summed(frame)) } else { summed(frame) }).collect()
}

/// Compares what left with what should have, in any order where there are several queues; the port's own address stands in gaps.
fn compare(what: &str, row: &Row, came: &[Vec<u8>], left: Vec<Vec<u8>>) {
    let mut wanted: Vec<Vec<u8>> = came.iter().filter_map(|frame| (row.make)(frame)).collect();
    let mut left: Vec<Vec<u8>> = left
        .into_iter()
        .map(|mut frame| {
            let arp = layer3(&frame).1 == EtherType::ARP;
            if matches!(row.engine, "mac" | "csum") || row.engine == "icmpecho" && arp {
                frame[6..12].fill(0);
            }
            if row.engine == "icmpecho" && arp {
                frame[22..28].fill(0);
            }
            frame
        })
        .collect();
    wanted.sort();
    left.sort();
    assert_eq!(left.len(), wanted.len(), "{what}");
    for (left, wanted) in left.iter().zip(&wanted) {
        let first = left.iter().zip(wanted).position(|(one, other)| one != other);
        assert!(
            left == wanted,
            "{what}: {} and {} bytes, first differ at {first:?}",
            left.len(),
            wanted.len()
        );
    }
}

/// Runs a row over two ports until all that came was counted.
fn run(what: &str, row: &Row, mut typist: Typist, before: impl FnOnce(), came: usize) -> Typist {
    for line in row.commands {
        let said = typist.line(line);
        assert!(!said.contains("not supported") && !said.contains("Bad arguments"), "{what}: {line}: {said}");
    }
    let set = typist.line(&format!("set fwd {}", row.engine));
    assert!(set.contains("packet forwarding mode"), "{what}: {set}");
    typist.line("start");
    before();
    typist.until("show fwd stats all", |said| {
        let all = said.split("Accumulated").nth(1).unwrap_or_default();
        number(all, "RX-packets: ") >= came as u64
    });
    let stopped = typist.line("stop");
    let all = stopped.split("Accumulated").nth(1).unwrap_or_default();
    assert_eq!(
        (number(all, "RX-packets: "), number(all, "TX-dropped: ")),
        (came as u64, 0),
        "{what}: {stopped}"
    );
    typist
}

/// A run from a file to a file; `device` makes a port's argument of the files that it reads and writes.
fn file_to_file(kind: &str, device: fn(usize, &Path, &Path) -> String, queues: &[&str], rows: &[Row]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for (layout, longest, options) in LAYOUTS {
        let frames = frames(longest);
        for row in rows {
            let what = format!("{kind}, {queues:?}, {layout}, {} {:?}", row.engine, row.commands);
            let came = given(row, &frames);
            std::fs::write(path("in"), capture::capture(&came)).expect("written");
            std::fs::write(path("none"), capture::capture(&[])).expect("written");
            let devices = [device(0, &path("in"), &path("back")), device(1, &path("none"), &path("out"))];
            let eal = ["-l", "0,1", "--vdev", &devices[0], "--vdev", &devices[1]];
            let peers = ["--no-flush-rx", "--eth-peer=1,02:00:00:00:00:77", "--eth-peer=0,02:00:00:00:00:77"];
            let typist = Typist::start(&eal, &[&peers, options, queues].concat());
            run(&what, row, typist, || {}, came.len()).quit();
            // It answers where it was asked.
            let out = if row.engine == "icmpecho" { "back" } else { "out" };
            compare(&what, row, &came, capture::frames(&std::fs::read(path(out)).expect("written")));
        }
    }
}

#[test]
fn engines_over_capture_files() {
    if two_cpus() {
        let device = |number, rx: &Path, tx: &Path| {
            format!("net_pcap{number},rx_pcap={},tx_pcap={}", rx.display(), tx.display())
        };
        file_to_file("net_pcap", device, &[], &ROWS);
    }
}

fn model(number: usize, rx: &Path, tx: &Path) -> String {
    format!("mlx5_model{number},wire=pcap:{}:{},mac=02:00:00:00:02:0{number}", rx.display(), tx.display())
}

#[test]
fn engines_over_the_device_model() {
    if two_cpus() {
        file_to_file("mlx5_model", model, &[], &ROWS);
        file_to_file("mlx5_model", model, &[], &BY_PORT);
    }
}

#[test]
fn engines_over_the_device_model_with_several_queues() {
    if two_cpus() {
        file_to_file("mlx5_model", model, &["--rxq=2", "--txq=2", "--rss-udp"], &ROWS);
        file_to_file("mlx5_model", model, &["--rxq=2", "--txq=2", "--rss-udp"], &BY_PORT);
    }
}

/// Ports that give back what they were given: nothing is lost, and nobody runs out of mbufs.
#[test]
fn engines_over_looped_rings() {
    if !two_cpus() {
        return;
    }
    let eal = ["-l", "0,1", "--vdev", "net_ring0", "--vdev", "net_ring1"];
    let mut typist = Typist::start(&eal, &["--port-topology=loop"]);
    for engine in ["io", "mac", "macswap", "5tswap", "csum", "noisy"] {
        typist.line(&format!("set fwd {engine}"));
        typist.line("start tx_first");
        typist.until("show fwd stats all", |said| {
            number(said.split("Accumulated").nth(1).unwrap_or_default(), "TX-packets: ") > 10_000
        });
        let stopped = typist.line("stop");
        let all = stopped.split("Accumulated").nth(1).unwrap_or_default();
        assert_eq!(number(all, "TX-dropped: "), 0, "{engine}: {stopped}");
    }
    typist.quit();
}

#[test]
fn engines_over_interfaces() {
    if !require(&[Need::Root, Need::Net]) || !two_cpus() {
        return;
    }
    for (layout, longest, options) in LAYOUTS.into_iter().take(3) {
        let frames = frames(longest);
        for row in ROWS.iter().filter(|row| row.engine != "rxonly") {
            let what = format!("af_packet, {layout}, {} {:?}", row.engine, row.commands);
            let [a, b, middle] = ["tpmd-a", "tpmd-b", "tpmd-m"].map(|role| {
                let host = Namespace::new(role);
                // Nobody but us sends.
                let off =
                    "for each in all default; do echo 1 > /proc/sys/net/ipv6/conf/$each/disable_ipv6; done";
                must(&mut host.command("sh", &["-c", off]));
                host
            });
            join(&a, "eth0", &middle, "west");
            join(&b, "eth0", &middle, "east");
            for (host, interface) in [(&a, "eth0"), (&b, "eth0"), (&middle, "west"), (&middle, "east")] {
                host.ip(&["link", "set", interface, "mtu", "9000"]);
            }
            let came = given(row, &frames);
            let eal =
                ["-l", "0,1", "--vdev", "net_af_packet0,iface=west,framesz=16384,blocksz=65536", "--vdev"];
            let eal = [&eal[..], &["net_af_packet1,iface=east,framesz=16384,blocksz=65536"]].concat();
            let peers = ["--eth-peer=1,02:00:00:00:00:77", "--eth-peer=0,02:00:00:00:00:77"];
            let typist = Typist::inside(&middle, &eal, &[&peers, options].concat());
            let wanted = came.iter().filter(|frame| (row.make)(frame).is_some()).count();
            let side = if row.engine == "icmpecho" { &a } else { &b };
            let capture = Capture::start(side, "eth0", wanted, "");
            let send = came.clone();
            run(&what, row, typist, || frame::send(&a, "eth0", send), came.len()).quit();
            compare(&what, row, &came, capture.frames(Duration::from_secs(10)));
        }
    }
}

/// What the engines that make packets make: whole, of the length that was asked for, their sums right.
#[test]
fn made_packets_are_whole_on_the_wire() {
    if !two_cpus() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("none"), capture::capture(&[])).expect("written");
    for (engine, lengths, options, bytes) in [
        ("txonly", "--txpkts=64", &[][..], 64),
        ("txonly", "--txpkts=128,256,1000", &["--tx-offloads=0x8000"], 1384),
        ("txonly", "--txpkts=2000,2000,2000", &["--tx-offloads=0x8000", "--max-pkt-len=9018"], 6000),
        ("flowgen", "--txpkts=64", &[], 60),
        ("flowgen", "--txpkts=1500", &["--flowgen-flows=7"], 1496),
    ] {
        let what = format!("{engine} {lengths} {options:?}");
        let devices = [model(0, &path("none"), &path("back")), model(1, &path("none"), &path("out"))];
        let eal = ["-l", "0,1", "--vdev", &devices[0], "--vdev", &devices[1]];
        let mut typist = Typist::start(&eal, &[&[lengths], options].concat());
        typist.line(&format!("set fwd {engine}"));
        typist.line("start");
        typist.until("show fwd stats all", |said| {
            number(said.split("Accumulated").nth(1).unwrap_or_default(), "TX-packets: ") > 500
        });
        typist.line("stop");
        typist.quit();
        let left = capture::frames(&std::fs::read(path("out")).expect("written"));
        assert!(!left.is_empty(), "{what}");
        for frame in &left {
            assert_eq!(frame.len(), bytes, "{what}");
            let ether = Ether::new(frame).expect("Ethernet");
            let ip = Ipv4::new(ether.payload()).expect("IPv4");
            assert_eq!(Sum::of(&frame[14..34]).checksum(), 0, "{what}: the header's sum");
            assert_eq!(
                (ip.protocol(), usize::from(ip.total_bytes.get())),
                (IpProtocol::UDP, bytes - 14),
                "{what}"
            );
        }
    }
}
