use pollux_mempool::MbufPool;
use pollux_port::{FrameSource, MacAddress};
use pollux_wire::build::Frame;
use pollux_wire::{Tci, TcpFlags};

use super::*;

const ENDS: Ends = Ends { source: MacAddress([2, 0, 0, 0, 0, 1]), peer: MacAddress([2, 0, 0, 0, 0, 2]) };

fn pool() -> MbufPool {
    MbufPool::builder("sums", 128).build_anonymous().expect("memory")
}

fn frames() -> Vec<Frame> {
    let ether = || Frame::ether(ENDS.source, ENDS.peer);
    vec![
        ether().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"odd"),
        ether().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2).flags(TcpFlags::SYN).payload(b"").padded_to(60),
        ether().vlan(Tci(7)).ipv6(1, 2).tcp(1, 2).payload(b"over IPv6"),
        ether().ipv6(1, 2).udp(3, 4).payload(&[0xff; 301]),
    ]
}

#[test]
fn software_sums_are_those_of_the_sender() {
    let engine = Csum::new(&ENDS, Marks::default(), CsumSettings::default());
    let pool = pool();
    for frame in frames() {
        let mut wrong = frame.clone();
        let l3 = wrong.len() - frame.len() + usize::from(ptype::parse(&frame).l2_len);
        let parsed = ptype::parse(&frame);
        let l4 = usize::from(parsed.l2_len + parsed.l3_len);
        let at = l4 + if parsed.ptype.is_udp() { 6 } else { 16 };
        wrong[at..at + 2].copy_from_slice(&[0x12, 0x34]);
        if parsed.ptype.is_ipv4() {
            wrong[l3 + 10..l3 + 12].copy_from_slice(&[0x56, 0x78]);
        }
        let mut mbuf = pool.alloc_frame(&wrong).expect("an mbuf");
        engine.edit(&mut mbuf);
        assert_eq!(mbuf.data()[12..], frame[12..]);
        assert!(mbuf.tx_flags().is_empty());
        // The same in two segments.
        let mut first = pool.alloc_frame(&wrong[..l4 + 20.min(wrong.len() - l4)]).expect("an mbuf");
        let rest = &wrong[first.data_len()..];
        if !rest.is_empty() {
            first.chain(pool.alloc_frame(rest).expect("an mbuf")).expect("a chain");
        }
        engine.edit(&mut first);
        let mut whole = vec![0; frame.len()];
        first.read(0, &mut whole);
        assert_eq!(whole[12..], frame[12..], "in two segments");
    }
}

#[test]
fn what_the_port_does_is_asked_for() {
    let settings =
        CsumSettings { ip: true, udp: true, tcp: true, sctp: true, tso_bytes: 5, ..CsumSettings::default() };
    let engine = Csum::new(&ENDS, Marks::default(), settings);
    let pool = pool();
    let wanted = [
        TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::UDP_CHECKSUM,
        // No payload to cut.
        TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::TCP_CHECKSUM,
        TxFlags::IPV6 | TxFlags::TCP_SEGMENTATION,
        TxFlags::IPV6 | TxFlags::UDP_CHECKSUM,
    ];
    for (frame, flags) in frames().into_iter().zip(wanted) {
        let mut mbuf = pool.alloc_frame(&frame).expect("an mbuf");
        engine.edit(&mut mbuf);
        assert_eq!(mbuf.tx_flags(), flags);
        let offload = mbuf.tx_offload();
        assert_eq!(offload.tso_segment_bytes, if flags.contains(TxFlags::TCP_SEGMENTATION) { 5 } else { 0 });
    }
}

#[test]
fn what_is_no_ip_or_cut_off_stays() {
    let engine = Csum::new(&ENDS, Marks::default(), CsumSettings::default());
    let pool = pool();
    for frame in frames() {
        for bytes in 0..frame.len() {
            let mut mbuf = pool.alloc_frame(&frame[..bytes]).expect("an mbuf");
            engine.edit(&mut mbuf);
            assert_eq!(mbuf.data_len(), bytes);
        }
    }
}

/// A packet in a tunnel of each kind, all sums right; whether a sum around covers the inner packet, and the kind as ports are told.
fn tunnelled() -> Vec<(&'static str, Frame, bool, TxFlags)> {
    let ether = || Frame::ether(ENDS.source, ENDS.peer);
    let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let inner =
        Frame::ether([4; 6], [6; 6]).ipv4([192, 168, 0, 1], [192, 168, 0, 2]).tcp(7, 8).payload(&[0x5a; 77]);
    let (packet, v6) =
        (&inner[14..], Frame::ether([4; 6], [6; 6]).ipv6(3, 4).udp(5, 6).payload(b"over IPv6"));
    let over = |port: u16, head: &[u8], carried: &[u8]| {
        ether().ipv4(near, far).udp(12345, port).payload(&[head, carried].concat())
    };
    let unsummed = |mut frame: Frame| {
        frame[14 + 20 + 6..][..2].fill(0);
        frame
    };
    let vxlan = [8, 0, 0, 0, 0, 0, 1, 0];
    let gre = |head: &[u8], carried: &[u8]| {
        ether().ipv4(near, far).payload(IpProtocol::GRE, &[head, carried].concat())
    };
    let mut summed_gre = [&[0x80, 0, 8, 0, 0, 0, 0, 0][..], packet].concat();
    let sum = Sum::of(&summed_gre).checksum();
    summed_gre[4..6].copy_from_slice(&sum.to_be_bytes());
    vec![
        ("VXLAN", over(4789, &vxlan, &inner), true, TxFlags::TUNNEL_VXLAN),
        ("VXLAN without a sum", unsummed(over(4789, &vxlan, &v6)), false, TxFlags::TUNNEL_VXLAN),
        (
            "VXLAN-GPE of IPv4",
            over(4790, &[12, 0, 0, 1, 0, 0, 1, 0], packet),
            true,
            TxFlags::TUNNEL_VXLAN_GPE,
        ),
        (
            "GENEVE with options",
            over(6081, &[1, 0, 0x65, 0x58, 0, 0, 1, 0, 1, 2, 3, 4], &inner),
            true,
            TxFlags::TUNNEL_GENEVE,
        ),
        ("GTP", over(2152, &[0x32, 0xff, 0, 117, 0, 0, 0, 1, 0, 5, 0, 0], packet), true, TxFlags::TUNNEL_GTP),
        ("GRE with a key", gre(&[0x20, 0, 8, 0, 0, 0, 0, 9], packet), false, TxFlags::TUNNEL_GRE),
        ("GRE with a sum", gre(&summed_gre, &[]), true, TxFlags::TUNNEL_GRE),
        ("GRE of Ethernet", gre(&[0, 0, 0x65, 0x58], &inner), false, TxFlags::TUNNEL_GRE),
        (
            "IPv4 in IPv4",
            ether().ipv4(near, far).payload(IpProtocol::IPV4, packet),
            false,
            TxFlags::TUNNEL_IPIP,
        ),
        (
            "IPv6 in IPv6",
            ether().ipv6(1, 2).payload(IpProtocol::IPV6, &v6[14..]),
            false,
            TxFlags::TUNNEL_IPIP,
        ),
    ]
}

/// Changes every sum that is not zero, outer ones too.
fn spoil(frame: &Frame) -> Vec<u8> {
    let outer = ptype::parse(frame);
    let layers = Layers::of(frame, outer, true);
    let around = layers.around.as_ref().expect("a tunnel");
    let mut wrong = frame.to_vec();
    let mut places = vec![layers.l4 + if layers.parsed.ptype.is_tcp() { 16 } else { 6 }];
    places.extend(layers.parsed.ptype.is_ipv4().then_some(layers.l3 + 10));
    places.extend(around.outer_v4.then_some(around.l3 + 10));
    match around.encapsulation {
        Encapsulation::Udp { checksum: true, .. } => places.push(around.l4 + 6),
        Encapsulation::Gre { checksum: true } => places.push(around.l4 + 4),
        _ => {}
    }
    for at in places {
        wrong[at] ^= 0x55;
    }
    wrong
}

#[test]
fn all_sums_of_a_tunnel_are_those_of_the_sender_in_any_segments() {
    let settings = CsumSettings { tunnels: true, ..CsumSettings::default() };
    let engine = Csum::new(&ENDS, Marks::default(), settings);
    let pool = pool();
    for (name, frame, ..) in tunnelled() {
        let wrong = spoil(&frame);
        // The headers are in the first segment.
        for first in [wrong.len(), wrong.len() - 1, wrong.len() - 5] {
            let mut mbuf = pool.alloc_frame(&wrong[..first]).expect("an mbuf");
            if first < wrong.len() {
                mbuf.chain(pool.alloc_frame(&wrong[first..]).expect("an mbuf")).expect("a chain");
            }
            engine.edit(&mut mbuf);
            let mut whole = vec![0; frame.len()];
            mbuf.read(0, &mut whole);
            assert_eq!(whole[12..], frame[12..], "{name}, {first} bytes first");
            assert!(mbuf.tx_flags().is_empty(), "{name}");
        }
    }
}

#[test]
fn a_port_is_told_of_a_tunnel_unless_a_sum_around_it_is_ours() {
    let all = CsumSettings {
        ip: true,
        udp: true,
        tcp: true,
        outer_ip: true,
        tunnels: true,
        ..CsumSettings::default()
    };
    let pool = pool();
    for (name, frame, covered, kind) in tunnelled() {
        let mut mbuf = pool.alloc_frame(&spoil(&frame)).expect("an mbuf");
        Csum::new(&ENDS, Marks::default(), all).edit(&mut mbuf);
        let (flags, offload) = (mbuf.tx_flags(), mbuf.tx_offload());
        let layers = Layers::of(&frame, ptype::parse(&frame), true);
        let around = layers.around.as_ref().expect("a tunnel");
        assert_eq!(flags.contains(TxFlags::OUTER_IP_CHECKSUM), around.outer_v4, "{name}");
        assert_eq!(flags & TxFlags::TUNNEL_MASK, kind, "{name}: {flags:?}");
        assert_eq!(flags.intersects(TxFlags::L4_MASK), !covered, "{name}: {flags:?}");
        let outer = usize::from(offload.outer_l2_len) + usize::from(offload.outer_l3_len);
        assert_eq!((outer, outer + usize::from(offload.l2_len)), (around.l4, layers.l3), "{name}");
        assert_eq!(usize::from(offload.l3_len), layers.l4 - layers.l3, "{name}");
        // Without `parse-tunnel` it is a packet as any other.
        let mut mbuf = pool.alloc_frame(&frame).expect("an mbuf");
        Csum::new(&ENDS, Marks::default(), CsumSettings { tunnels: false, ..all }).edit(&mut mbuf);
        assert!(!mbuf.tx_flags().intersects(TxFlags::TUNNEL_MASK), "{name}");
    }
}

#[test]
fn packets_in_tunnels_are_cut_where_each_piece_gets_right_headers() {
    let settings = CsumSettings {
        tunnels: true,
        tunnel_tso_bytes: 20,
        tunnel_tso: TxOffloads::TUNNEL_TSO,
        ..CsumSettings::default()
    };
    let pool = pool();
    for (name, frame, ..) in tunnelled() {
        let layers = Layers::of(&frame, ptype::parse(&frame), true);
        let around = layers.around.as_ref().expect("a tunnel");
        for outer_ip in [false, true] {
            let mut mbuf = pool.alloc_frame(&frame).expect("an mbuf");
            Csum::new(&ENDS, Marks::default(), CsumSettings { outer_ip, ..settings }).edit(&mut mbuf);
            let cut = mbuf.tx_flags().contains(TxFlags::TCP_SEGMENTATION);
            let may = (outer_ip || !around.outer_v4)
                && layers.parsed.ptype.is_tcp()
                && around.encapsulation != Encapsulation::Gre { checksum: true };
            assert_eq!(cut, may, "{name}");
            assert_eq!(mbuf.tx_offload().tso_segment_bytes, if cut { 20 } else { 0 }, "{name}");
            if cut && matches!(around.encapsulation, Encapsulation::Udp { .. }) {
                assert_eq!(mbuf.data()[around.l4 + 6..][..2], [0, 0], "{name}: no piece has that sum");
            }
        }
    }
}

#[test]
fn tunnels_that_are_cut_off_or_odd_are_left_alone() {
    let settings = CsumSettings {
        tunnels: true,
        tunnel_tso_bytes: 9,
        tunnel_tso: TxOffloads::TUNNEL_TSO,
        ip: true,
        tcp: true,
        outer_ip: true,
        ..CsumSettings::default()
    };
    let engine = Csum::new(&ENDS, Marks::default(), settings);
    let pool = pool();
    for (_, frame, ..) in tunnelled() {
        for bytes in 0..frame.len() {
            let mut mbuf = pool.alloc_frame(&frame[..bytes]).expect("an mbuf");
            engine.edit(&mut mbuf);
            assert_eq!(mbuf.data_len(), bytes);
        }
        // Every header byte in turn is another.
        for at in 12..100.min(frame.len()) {
            for value in [0, 0x7f, 0xff] {
                let mut odd = frame.to_vec();
                odd[at] = value;
                let mut mbuf = pool.alloc_frame(&odd).expect("an mbuf");
                engine.edit(&mut mbuf);
                assert_eq!(mbuf.data_len(), odd.len());
            }
        }
    }
}

/// A port is told what it can do: IP in IP as any tunnel over IP, where that is all that it knows.
#[test]
fn a_tunnel_is_cut_as_the_kind_that_the_port_offers() {
    let pool = pool();
    for (name, frame, ..) in tunnelled() {
        let layers = Layers::of(&frame, ptype::parse(&frame), true);
        let encapsulation = layers.around.expect("a tunnel").encapsulation;
        let any = TxOffloads::UDP_TNL_TSO | TxOffloads::IP_TNL_TSO;
        let over_udp = matches!(encapsulation, Encapsulation::Udp { .. });
        let marked = if over_udp { TxFlags::TUNNEL_UDP } else { TxFlags::TUNNEL_IP };
        assert_eq!(tunnel::cut_as(encapsulation, any), Some(marked), "{name}");
        assert_eq!(tunnel::cut_as(encapsulation, TxOffloads::TCP_TSO), None, "{name}");
        let settings = CsumSettings {
            tunnels: true,
            outer_ip: true,
            tunnel_tso_bytes: 20,
            tunnel_tso: TxOffloads::empty(),
            ..CsumSettings::default()
        };
        let mut mbuf = pool.alloc_frame(&frame).expect("an mbuf");
        Csum::new(&ENDS, Marks::default(), settings).edit(&mut mbuf);
        assert!(!mbuf.tx_flags().intersects(CUTS), "{name}: nobody cuts it");
    }
}
