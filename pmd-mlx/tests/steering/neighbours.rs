//! What finds the addresses of neighbours, left to the kernel.

use std::sync::atomic::Ordering;

use pollux_wire::build::Frame;
use pollux_wire::edit;

use crate::rig::{OWN, Rig, Way};

const PEER: [u8; 6] = [4, 0, 0, 0, 0, 2];
const ALL: [u8; 6] = [0xff; 6];
/// Neighbours are solicited at such a group (RFC 2464, section 7).
const SOLICITED: [u8; 6] = [0x33, 0x33, 0xff, 0, 0, 1];

/// Frames, whether they find neighbours, and whether a port that is not promiscuous receives them.
fn frames() -> Vec<(&'static str, Vec<u8>, bool, bool)> {
    let v6 = |to: [u8; 6], hop_limit: u8, icmp: Option<u8>| {
        let ip = Frame::ether(PEER, to).ipv6(1, 2);
        let mut frame = match icmp {
            Some(_) => ip.echo_request(1, 2, b"neighbours"),
            None => ip.udp(1, 2).payload(b"data"),
        };
        let mut ip = edit::ipv6_mut(&mut frame, false).expect("IPv6");
        ip.set_hop_limit(hop_limit);
        if let Some(kind) = icmp {
            ip.icmpv6_mut().expect("ICMPv6").set_kind(kind, 0);
        }
        frame.to_vec()
    };
    let mut arp = vec![0; 60];
    arp[6..12].copy_from_slice(&PEER);
    arp[12..14].copy_from_slice(&[8, 6]);
    let arp = |to: [u8; 6], tag: bool| {
        let mut frame = arp.clone();
        frame[..6].copy_from_slice(&to);
        if tag {
            frame.splice(12..12, [0x81, 0, 0, 7]);
        }
        frame
    };
    vec![
        ("ARP request", arp(ALL, false), true, true),
        ("ARP reply", arp(OWN, false), true, true),
        ("tagged ARP", arp(ALL, true), true, true),
        ("ARP to somebody else", arp(PEER, false), true, false),
        ("solicitation", v6(SOLICITED, 255, Some(135)), true, false),
        ("advertisement", v6(OWN, 255, Some(136)), true, true),
        ("echo from afar", v6(OWN, 64, Some(128)), false, true),
        ("UDP from the link", v6(OWN, 255, None), false, true),
        (
            "IPv4",
            Frame::ether(PEER, OWN).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"data").to_vec(),
            false,
            true,
        ),
    ]
}

#[test]
fn neighbours_are_the_kernels_where_the_port_says_so() {
    for way in Way::BOTH {
        for (by_kernel, promiscuous, all_multicast) in [
            (false, false, false),
            (false, true, false),
            (true, false, false),
            (true, true, false),
            (true, false, true),
        ] {
            let mut rig = Rig::new(way, 2, |config| {
                config.promiscuous = Some(promiscuous);
                config.all_multicast = Some(all_multicast);
                config.neighbours_by_kernel = Some(by_kernel);
            });
            let heard = rig.listen();
            for (what, frame, finds, usual) in frames() {
                let what = format!(
                    "{way:?}, {what}: kernel {by_kernel}, promiscuous {promiscuous}, {all_multicast}"
                );
                let wanted = usual || promiscuous || (all_multicast && frame[0] & 1 != 0);
                let before = heard.load(Ordering::Relaxed);
                let arrived = rig.arrive_frame(&frame).is_some();
                let kernel = heard.load(Ordering::Relaxed) - before;
                assert_eq!(arrived, wanted && !(finds && by_kernel), "{what}");
                // It listens for no more than these; a tag is for an interface of that VLAN.
                let listens = finds && frame[12..14] != [0x81, 0];
                assert_eq!(kernel, usize::from(listens && !arrived), "{what}");
            }
            rig.end();
        }
    }
}
