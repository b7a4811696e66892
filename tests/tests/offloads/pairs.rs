//! Every pair of ports.

use std::path::Path;

use pollux_tests::netns::Namespace;
use pollux_tests::require::{Need, require};

use super::middle::{A4, A6, B4, B6, FLOOR, Hosts, Setup, forward, tcp, udp};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Packet,
    Tap,
    Model,
}

const KINDS: [Kind; 3] = [Kind::Packet, Kind::Tap, Kind::Model];

impl Kind {
    fn device(self, number: usize, end: &str) -> String {
        match self {
            Self::Packet => format!("net_af_packet{number},iface={end}"),
            Self::Tap => format!("net_tap{number},iface={end}"),
            Self::Model => format!("mlx5_model{number},wire=iface:{end}"),
        }
    }
}

/// Runs `work` on hosts that are joined by ports of these kinds, and ends the forwarding: nothing may have been dropped as malformed.
fn between(
    kinds: [Kind; 2],
    mtu: &str,
    extra: &[&str],
    hops: &[(usize, usize)],
    lcores: usize,
    work: impl FnOnce(&Namespace, &Namespace),
) {
    between_ports(kinds, mtu, Setup::default(), extra, hops, lcores, work);
}

/// The same with ports that are set up so.
fn between_ports(
    kinds: [Kind; 2],
    mtu: &str,
    setup: Setup,
    extra: &[&str],
    hops: &[(usize, usize)],
    lcores: usize,
    work: impl FnOnce(&Namespace, &Namespace),
) {
    let hosts = Hosts::new();
    let ends = [(&hosts.a, "left"), (&hosts.b, "right")];
    for (kind, (host, end)) in kinds.into_iter().zip(ends) {
        if kind != Kind::Tap {
            hosts.veth(host, end, mtu);
        }
    }
    let mut named = [kinds[0].device(0, "left"), kinds[1].device(1, "right")];
    for (kind, device) in kinds.iter().zip(&mut named) {
        if let (Kind::Packet, Some(queues)) = (kind, setup.queues) {
            device.push_str(&format!(",qpairs={queues}"));
        }
    }
    let devices: Vec<&str> = named.iter().map(String::as_str).chain(extra.iter().copied()).collect();
    let forwarding = forward(&hosts.middle, &devices, setup, hops, lcores);
    for (kind, (host, end)) in kinds.into_iter().zip(ends) {
        if kind == Kind::Tap {
            hosts.tap(host, end);
        }
    }
    hosts.addresses(mtu);
    work(&hosts.a, &hosts.b);
    let dropped = forwarding.end();
    let wrong: Vec<_> = dropped.iter().filter(|(name, _)| name.contains("malformed")).collect();
    assert!(wrong.is_empty(), "{kinds:?}: {dropped:?}");
}

fn talk(a: &Namespace, b: &Namespace, what: &str) {
    udp(a, b, &format!("{B4}:7100"), 1400);
    udp(b, a, &format!("[{A6}]:7101"), 1400);
    let rates = [
        tcp(a, b, &format!("{B4}:7001"), 16),
        tcp(b, a, &format!("{A4}:7002"), 16),
        tcp(a, b, &format!("[{B6}]:7003"), 16),
        tcp(b, a, &format!("[{A6}]:7004"), 16),
    ];
    println!("{what}: {rates:.0?} Mbit/s");
    assert!(rates.iter().all(|rate| *rate > FLOOR), "{what}: {rates:.0?} Mbit/s");
}

#[test]
fn tcp_and_udp_pass_every_pair_of_ports() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    for left in KINDS {
        for right in KINDS {
            let kinds = [left, right];
            between(kinds, "1500", &[], &[(0, 1), (1, 0)], 1, |a, b| {
                talk(a, b, &format!("{kinds:?}"));
            });
        }
    }
}

#[test]
fn on_two_lcores_and_in_jumbo_size() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    for kinds in [[Kind::Packet, Kind::Tap], [Kind::Tap, Kind::Packet], [Kind::Packet, Kind::Packet]] {
        between(kinds, "9000", &[], &[(0, 1), (1, 0)], 2, |a, b| {
            talk(a, b, &format!("{kinds:?}, two lcores"));
        });
    }
    let kinds = [Kind::Packet, Kind::Model];
    between(kinds, "1500", &[], &[(0, 1), (1, 0)], 2, |a, b| {
        talk(a, b, &format!("{kinds:?}, two lcores"));
    });
}

/// Frames of the whole length go both ways between the device model and every kind of port, itself too, by one queue and by two.
#[test]
fn jumbo_frames_pass_the_device_model() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    for queues in [1, 2] {
        for other in KINDS {
            let both = [[other, Kind::Model], [Kind::Model, other]];
            for &kinds in if other == Kind::Model { &both[..1] } else { &both[..] } {
                let setup = Setup { mtu: Some(9000), queues: Some(queues) };
                let what = format!("{kinds:?}, jumbo, {queues} queues");
                between_ports(kinds, "9000", setup, &[], &[(0, 1), (1, 0)], 1, |a, b| {
                    // Not cut, not split: a datagram is one frame.
                    udp(a, b, &format!("{B4}:7102"), 9000 - 28);
                    udp(b, a, &format!("[{A6}]:7103"), 9000 - 48);
                    talk(a, b, &what);
                });
            }
        }
    }
}

/// What a ring hands on is as open as what was sent into it.
#[test]
fn through_rings() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    for kinds in [[Kind::Packet, Kind::Model], [Kind::Tap, Kind::Packet]] {
        let hops = [(0, 2), (2, 1), (1, 3), (3, 0)];
        between(kinds, "1500", &["net_ring0", "net_ring1"], &hops, 1, |a, b| {
            talk(a, b, &format!("{kinds:?} through rings"));
        });
    }
}

/// The sum of words as RFC 1071 writes it.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// The TCP and UDP frames of a capture over IPv4, each with whole sums and no longer than the MTU allows.
fn check_capture(file: &Path) -> usize {
    let bytes = std::fs::read(file).expect("the capture");
    let mut seen = 0;
    for frame in pollux_tests::capture::frames(&bytes) {
        assert!(frame.len() <= 1514, "{} bytes in one frame", frame.len());
        if frame[12..14] != [8, 0] || !matches!(frame[23], 6 | 17) {
            continue;
        }
        assert_eq!(sum(&frame[14..34]), 0xffff, "IPv4 header");
        let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let upper = ((end - 34) as u16).to_be_bytes();
        let all = [&frame[26..34], &[0, frame[23]], &upper, &frame[34..end]].concat();
        assert_eq!(sum(&all), 0xffff, "protocol {} in {}: {frame:02x?}", frame[23], file.display());
        seen += 1;
    }
    seen
}

/// A capture holds what a wire would carry: sums that are whole, frames that are cut.
#[test]
fn captures_hold_finished_frames() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    // What two hosts say, seen by a tee on either side of an interface.
    let hosts = Hosts::new();
    hosts.veth(&hosts.a, "left", "1500");
    hosts.veth(&hosts.b, "right", "1500");
    let tee = file("tee.pcap");
    let left = format!("net_af_packet0,iface=left,tee={}", tee.display());
    let forwarding = forward(
        &hosts.middle,
        &[&left, "net_af_packet1,iface=right"],
        Setup::default(),
        &[(0, 1), (1, 0)],
        1,
    );
    hosts.addresses("1500");
    tcp(&hosts.a, &hosts.b, &format!("{B4}:7001"), 1);
    tcp(&hosts.b, &hosts.a, &format!("{A4}:7002"), 1);
    forwarding.end();
    assert!(check_capture(&tee) > 2 * 720, "2 MiB in frames of 1448 bytes, and answers");

    // What one host says to nobody, into a file that is written to, and into one behind a ring.
    for (name, extra, hops) in
        [("direct.pcap", None, &[(0, 1)][..]), ("ring.pcap", Some("net_ring0"), &[(0, 2), (2, 1)])]
    {
        let hosts = Hosts::new();
        hosts.veth(&hosts.a, "left", "1500");
        let written = file(name);
        let sink = format!("net_pcap0,tx_pcap={}", written.display());
        let devices: Vec<&str> = ["net_af_packet0,iface=left", &sink].into_iter().chain(extra).collect();
        let forwarding = forward(&hosts.middle, &devices, Setup::default(), hops, 1);
        hosts.a.quiet_ipv6("eth0");
        hosts.a.ip(&["link", "set", "eth0", "up"]);
        hosts.a.ip(&["address", "add", &format!("{A4}/24"), "dev", "eth0"]);
        hosts.a.ip(&["neigh", "add", B4, "lladdr", "02:00:00:00:77:02", "dev", "eth0"]);
        let sender = hosts.a.enter(|| {
            let socket = std::net::UdpSocket::bind((A4, 0)).expect("bind");
            for count in 1..=20 {
                socket.send_to(&vec![count as u8; count * 31], (B4, 9)).expect("sent");
            }
            let nobody = std::net::SocketAddr::from(([10, 77, 0, 2], 9));
            let _ = std::net::TcpStream::connect_timeout(&nobody, std::time::Duration::from_millis(200));
        });
        sender.join().expect("the sender");
        forwarding.end();
        assert!(check_capture(&written) >= 21, "20 datagrams and a SYN");
    }
}
