//! Super-frames in tunnels, against frames that are built one by one.

use super::*;
use crate::{Encapsulation, Tunnel, ptype};

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A UDP port, bytes of the tunnel's own header, and whether Ethernet follows it.
    Udp(u16, usize, bool),
    /// Checksum, key, Ethernet.
    Gre(bool, bool, bool),
    Ip,
}

const KINDS: [Kind; 11] = [
    Kind::Udp(4789, 8, true),
    Kind::Udp(8472, 8, true),
    // VXLAN-GPE, GENEVE bare, with the longest options and with IP inside, FOU.
    Kind::Udp(4790, 8, false),
    Kind::Udp(6081, 8, true),
    Kind::Udp(6081, 8 + 252, true),
    Kind::Udp(6081, 8 + 12, false),
    Kind::Udp(5555, 0, false),
    Kind::Gre(false, false, true),
    Kind::Gre(true, true, false),
    Kind::Gre(true, false, true),
    Kind::Ip,
];

/// The outer headers, around an inner frame that begins with its Ethernet header.
fn wrap(inner: &[u8], tags: usize, kind: Kind, v6: bool, sums: bool, ident: u16) -> Vec<u8> {
    let ip_at = vlan::skip_tags(inner).expect("a frame").offset;
    let inner_type = &inner[ip_at - 2..ip_at];
    let from = |ethernet| if ethernet { inner } else { &inner[ip_at..] };
    let (protocol, mut carried) = match kind {
        Kind::Ip => (if inner[ip_at] >> 4 == 4 { 4 } else { 41 }, inner[ip_at..].to_vec()),
        Kind::Gre(sum, key, ethernet) => {
            let proto: &[u8] = if ethernet { &[0x65, 0x58] } else { inner_type };
            let flags = u8::from(sum) << 7 | u8::from(key) << 5;
            let mut gre = [&[flags, 0], proto].concat();
            gre.extend(vec![0; 4 * usize::from(sum)]);
            gre.extend(vec![0x77; 4 * usize::from(key)]);
            gre.extend(from(ethernet));
            if sum {
                let sum = checksum::of(&gre).to_be_bytes();
                gre[4..6].copy_from_slice(&sum);
            }
            (47, gre)
        }
        Kind::Udp(port, own, ethernet) => {
            let mut udp = [&[0xc0, 0x01][..], &port.to_be_bytes(), &[0; 4]].concat();
            // Looks like IP headers of all kinds, which it is not.
            udp.extend([0x45, 0x46, 0x60].iter().cycle().take(own));
            udp.extend(from(ethernet));
            let bytes = (udp.len() as u16).to_be_bytes();
            udp[4..6].copy_from_slice(&bytes);
            (17, udp)
        }
    };
    let mut frame = vec![6; 12];
    let outer_type = if v6 { 0x86dd_u16 } else { 0x0800 };
    for _ in 0..tags {
        frame.extend([0x81, 0, 0, 9]);
    }
    frame.extend(outer_type.to_be_bytes());
    let bytes = carried.len() as u16;
    let pseudo = if v6 {
        let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        // The kernel's IPv6 tunnels put an encapsulation limit in front (RFC 2473).
        let limit: &[u8] = if protocol == 17 { &[] } else { &[protocol, 0, 4, 1, 4, 1, 0, 0] };
        let first = if limit.is_empty() { IpProtocol(protocol) } else { IpProtocol::DESTINATION };
        let mut head = [0; 40];
        Ipv6Repr::new(src, dst, first, bytes + limit.len() as u16).emit(&mut head).unwrap();
        frame.extend(head);
        frame.extend(limit);
        checksum::pseudo_v6(src, dst, IpProtocol(protocol), bytes.into())
    } else {
        let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mut head = [0; 20];
        let ip = Ipv4Repr { ident, ..Ipv4Repr::new(src, dst, IpProtocol(protocol), bytes) };
        ip.emit(&mut head).unwrap();
        frame.extend(head);
        checksum::pseudo_v4(src, dst, IpProtocol(protocol), bytes)
    };
    if let (Kind::Udp(..), true) = (kind, sums) {
        let sum = (pseudo + Sum::of(&carried)).checksum_udp().to_be_bytes();
        carried[6..8].copy_from_slice(&sum);
    }
    frame.extend(carried);
    frame
}

#[test]
fn every_kind_of_tunnel_equals_frames_built_one_by_one() {
    let payload: Vec<u8> = (0..9001_u32).map(|at| (at * 7) as u8).collect();
    let (mut cases, mut both) = (0, 0);
    for kind in KINDS {
        for bits in 0..64_usize {
            let [outer_v6, v6, tcp, sums, extension, tagged] =
                std::array::from_fn(|bit| bits >> bit & 1 == 1);
            let shape = Shape { tags: 0, v6, tcp, extension, ident: 0xfffe, seq: 0xffff_f000, flags: 0x99 };
            let whole = |inner: &[u8], ident| wrap(inner, usize::from(tagged), kind, outer_v6, sums, ident);
            let mut frame = whole(&shape.build(&payload), 0xffff);
            let inner_l4 = frame.len() - payload.len() - if tcp { 20 } else { 8 };
            // What the kernel leaves there: sums of pseudo-headers alone.
            let at = inner_l4 + if tcp { 16 } else { 6 };
            frame[at..at + 2].fill(0x12);
            let protocol = if tcp { IpProtocol::TCP } else { IpProtocol::UDP };
            let tunnel = Tunnel::around(&frame[..inner_l4 + 20], frame.len(), inner_l4, protocol)
                .unwrap_or_else(|| panic!("{kind:?} {bits:b}"));
            match (tunnel.encapsulation, kind) {
                (Encapsulation::Ip, Kind::Ip) => {}
                (Encapsulation::Gre { checksum }, Kind::Gre(sum, ..)) => assert_eq!(checksum, sum),
                (Encapsulation::Udp { checksum, port }, Kind::Udp(number, ..)) => {
                    assert_eq!((checksum, port), (sums, number));
                }
                other => panic!("{other:?}"),
            }
            // From the outside in, where the kind is known, it is the same one.
            if let Some((inside, inner)) = Tunnel::inside(&frame, &ptype::parse(&frame)) {
                assert_eq!(inside, tunnel, "{kind:?} {bits:b}");
                assert_eq!((inner.ptype.is_tcp(), inner.ptype.is_udp()), (tcp, !tcp), "{kind:?} {bits:b}");
                both += 1;
            }
            let size = 1311_u16;
            let segments = Segments::at(&frame, shape.transport(), size, inner_l4).unwrap();
            let expected = shape.pieces(&payload, size.into());
            assert_eq!(segments.count(), expected.len());
            let mut ident = 0xffff_u16;
            for (index, inner) in expected.iter().enumerate() {
                let mut out = vec![0xee; segments.bytes_max()];
                let bytes = segments.write(index, &mut out).unwrap();
                assert_eq!(out[..bytes], whole(inner, ident), "{kind:?} {bits:06b} piece {index}");
                ident = ident.wrapping_add(1);
            }
            cases += 1;
        }
    }
    // VXLAN, GRE and IP in IP; the headers of the others over UDP mean nothing here.
    assert_eq!((cases, both), (704, 5 * 64));
}

#[test]
fn a_frame_without_a_tunnel_is_cut_as_before_and_only_there() {
    let shape = Shape { tags: 1, v6: true, tcp: true, extension: true, ident: 0, seq: 0, flags: 0x18 };
    let frame = shape.build(&[7; 5000]);
    let l4 = frame.len() - 5000 - 20;
    for at in 0..frame.len() + 2 {
        let planned = Segments::at(&frame, Transport::Tcp, 1400, at);
        assert_eq!(planned.is_ok(), at == l4, "{at}");
    }
}

proptest! {
    #[test]
    fn spoilt_tunnels_never_panic(
        kind in prop::sample::select(KINDS.to_vec()), v6 in any::<[bool; 2]>(), l4 in 0usize..400,
        spoil in prop::collection::vec((0usize..200, any::<u8>()), 0..4), cut_off in 0usize..300, exact in any::<bool>(),
    ) {
        let shape = Shape { tags: 0, v6: v6[0], tcp: true, extension: false, ident: 0, seq: 0, flags: 0 };
        let mut frame = wrap(&shape.build(&[1; 200]), 0, kind, v6[1], true, 0);
        let l4 = if exact { frame.len() - 220 } else { l4 };
        for (at, byte) in spoil {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(frame.len().saturating_sub(cut_off));
        if let Ok(segments) = Segments::at(&frame, Transport::Tcp, 50, l4) {
            let mut out = [0; 2048];
            for index in 0..segments.count() {
                let written = segments.write(index, &mut out).unwrap();
                prop_assert!(written <= segments.bytes_max());
            }
        }
    }
}
