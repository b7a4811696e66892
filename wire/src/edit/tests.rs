use proptest::prelude::*;

use super::*;
use crate::build::{Ethernet, Frame, Ip};
use crate::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::{Icmp, IcmpRepr, Icmpv6, Ipv4, Ipv6, Tci, TcpFlags, ptype};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Whole,
    Open,
    Absent,
}

fn link(tags: usize) -> Ethernet {
    (0..tags).fold(Frame::ether(A, B), |frame, id| frame.vlan(Tci::new(1, false, id as u16 + 2)))
}

/// Where the transport checksum of a frame stands, and the sum of its pseudo-header as the frame is now.
fn transport(frame: &[u8]) -> (usize, Sum, usize) {
    let seen = ptype::parse(frame);
    let l3 = usize::from(seen.l2_len);
    let l4 = l3 + usize::from(seen.l3_len);
    let (pseudo, protocol, end) = if frame[l3] >> 4 == 4 {
        let ip = Ipv4::new(&frame[l3..]).expect("IPv4");
        assert!(ip.checksum_ok(), "the IPv4 header's checksum");
        (ip.pseudo_sum(), ip.protocol(), l4 + ip.payload().len())
    } else {
        let ip = Ipv6::new(&frame[l3..]).expect("IPv6");
        let upper = ipv6_upper(&ip);
        let bytes = upper.payload.len();
        (pseudo_v6(ip.src(), ip.dst(), upper.protocol, bytes as u32), upper.protocol, l4 + bytes)
    };
    let at = l4 + if protocol == IpProtocol::TCP { 16 } else { 6 };
    (at, pseudo, end)
}

fn ipv6_upper<'a>(ip: &Ipv6<'a>) -> crate::ipv6::Upper<'a> {
    crate::ipv6::walk(ip.next_header(), ip.payload()).expect("few extension headers")
}

/// Checks the field against what it must hold, computed anew.
fn check(frame: &[u8], state: State, what: &str) {
    let (at, pseudo, end) = transport(frame);
    let field = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let l4 = at - if frame.len() > at && is_tcp(frame) { 16 } else { 6 };
    match state {
        State::Whole => assert!((pseudo + Sum::of(&frame[l4..end])).is_valid(), "{what}: {field:04x}"),
        State::Open => assert_eq!(field, pseudo.fold(), "{what}"),
        State::Absent => assert_eq!(field, 0, "{what}"),
    }
}

fn is_tcp(frame: &[u8]) -> bool {
    ptype::parse(frame).ptype.is_tcp()
}

/// A frame whose transport checksum is in that state.
fn frame(ip: Ip, tcp: bool, state: State, payload: &[u8]) -> Frame {
    let mut frame = if tcp { ip.tcp(1000, 80).payload(payload) } else { ip.udp(1000, 53).payload(payload) };
    let (at, pseudo, _) = transport(&frame);
    match state {
        State::Whole => {}
        State::Open => frame[at..at + 2].copy_from_slice(&pseudo.fold().to_be_bytes()),
        State::Absent => frame[at..at + 2].fill(0),
    }
    frame
}

proptest! {
    /// Every setter, in any order, over every kind of packet.
    #[test]
    fn checksums_follow(
        tags in 0..3usize,
        v6: bool,
        tcp: bool,
        state in prop_oneof![Just(State::Whole), Just(State::Open), Just(State::Absent)],
        payload in proptest::collection::vec(any::<u8>(), 0..64),
        changes in proptest::collection::vec((0..16u8, any::<u128>()), 1..20),
    ) {
        let state = if tcp && state == State::Absent { State::Whole } else { state };
        let open = state == State::Open;
        let ip = if v6 { link(tags).ipv6(1, 2) } else { link(tags).ipv4([10, 0, 0, 1], [10, 0, 0, 2]) };
        let mut frame = frame(ip, tcp, state, &payload);
        check(&frame, state, "as built");
        for (which, value) in changes {
            let (half, word) = (value as u16, value as u32);
            let what = format!("{which} {value:x}");
            if v6 {
                let mut ip = ipv6_mut(&mut frame, open).expect("IPv6");
                match which {
                    0 => ip.set_src(value),
                    1 => ip.set_dst(value),
                    2 => ip.set_hop_limit(value as u8),
                    3 => ip.set_traffic_class(value as u8),
                    4 => ip.set_flow_label(word),
                    5 => drop(ip.decrement_hop_limit()),
                    14 => prop_assert!(ip.translate_src(value, half)),
                    15 => prop_assert!(ip.translate_dst(value, half)),
                    12.. => either(which, half, ip.ports_mut()),
                    _ => ports(which, half, word, ip.udp_mut().map(Upper::Udp)),
                }
                if (6..12).contains(&which) {
                    ports(which, half, word, ip.tcp_mut().map(Upper::Tcp));
                }
                prop_assert_eq!(ip.version(), 6);
            } else {
                let mut ip = ipv4_mut(&mut frame, open).expect("IPv4");
                match which {
                    0 => ip.set_src(word),
                    1 => ip.set_dst(word),
                    2 => ip.set_ttl(value as u8),
                    3 => ip.set_tos(value as u8),
                    4 => ip.set_ident(half),
                    5 => drop(ip.decrement_ttl()),
                    14 => prop_assert!(ip.translate_src(word, half)),
                    15 => prop_assert!(ip.translate_dst(word, half)),
                    12.. => either(which, half, ip.ports_mut()),
                    _ => ports(which, half, word, ip.udp_mut().map(Upper::Udp)),
                }
                if (6..12).contains(&which) {
                    ports(which, half, word, ip.tcp_mut().map(Upper::Tcp));
                }
            }
            check(&frame, state, &what);
        }
    }

    /// Whatever the bytes are, behind a tag, too, nothing panics.
    #[test]
    fn any_bytes_are_no_trouble(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0..3usize, tagged: bool, open: bool) {
        let l3 = if tagged { 18 } else { 14 };
        for (at, value) in [(12, [0x81, 0]), (l3 - 2, [[8, 0], [0x86, 0xdd], [8, 6]][kind])] {
            if let Some(place) = bytes.get_mut(at..at + 2) {
                place.copy_from_slice(&value);
            }
        }
        if let Some(first) = bytes.get_mut(l3) {
            *first = if kind == 0 { 0x40 | *first & 15 } else { 0x60 };
        }
        let _ = vlan_mut(&mut bytes).map(|mut tag| tag.set_id(5));
        let _ = arp_mut(&mut bytes).map(|mut arp| arp.set_reply(A));
        if let Some(mut ip) = ipv4_mut(&mut bytes, open) {
            ip.set_src([1, 2, 3, 4]);
            ports(6, 1, 2, ip.udp_mut().map(Upper::Udp));
            ports(6, 1, 2, ip.tcp_mut().map(Upper::Tcp));
            let _ = ip.ports_mut().map(|mut ports| ports.set_dst(3));
            prop_assert_eq!(ip.five_tuple().map(|flow| flow.src.port()), ip.ports_mut().map(|ports| ports.src()));
            let _ = (ip.translate_src([1, 2, 3, 4], 5), ip.translate_dst([6, 7, 8, 9], 10));
            let _ = ip.icmp_mut().map(|mut icmp| icmp.set_kind(0, 0));
        }
        if let Some(mut ip) = ipv6_mut(&mut bytes, open) {
            ip.set_dst(5);
            prop_assert_eq!(ip.five_tuple().map(|flow| flow.dst.port()), ip.ports_mut().map(|ports| ports.dst()));
            let _ = (ip.translate_src(1, 2), ip.translate_dst(3, 4));
            ports(6, 1, 2, ip.udp_mut().map(Upper::Udp));
            let _ = ip.icmpv6_mut().map(|mut icmp| icmp.set_word(9));
        }
    }
}

enum Upper<'a> {
    Udp(UdpMut<'a>),
    Tcp(TcpMut<'a>),
}

/// The ports without asking whose they are.
fn either(which: u8, half: u16, ports: Option<PortsMut<'_>>) {
    let mut ports = ports.expect("TCP or UDP");
    let now = if which == 12 {
        ports.set_src(half);
        ports.src()
    } else {
        ports.set_dst(half);
        ports.dst()
    };
    assert_eq!(now, half);
}

fn ports(which: u8, half: u16, word: u32, upper: Option<Upper<'_>>) {
    match (upper, which) {
        (None, _) => {}
        (Some(Upper::Udp(mut udp)), 6) => udp.set_src_port(half),
        (Some(Upper::Udp(mut udp)), _) => udp.set_dst_port(half),
        (Some(Upper::Tcp(mut tcp)), 6) => tcp.set_src_port(half),
        (Some(Upper::Tcp(mut tcp)), 7) => tcp.set_dst_port(half),
        (Some(Upper::Tcp(mut tcp)), 8) => tcp.set_seq(word),
        (Some(Upper::Tcp(mut tcp)), 9) => tcp.set_ack(word),
        (Some(Upper::Tcp(mut tcp)), 10) => tcp.set_window(half),
        (Some(Upper::Tcp(mut tcp)), _) => tcp.set_flags(TcpFlags(half as u8)),
    }
}

#[test]
fn echo_messages_follow() {
    let mut frame = link(1).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).echo_request(1, 2, b"ping");
    let mut ip = ipv4_mut(&mut frame, false).expect("IPv4");
    assert!(ip.ports_mut().is_none() && !ip.translate_src([9; 4], 9), "ICMP has none");
    assert_eq!(ip.five_tuple(), None);
    let (src, dst) = (ip.src(), ip.dst());
    ip.set_src(dst);
    ip.set_dst(src);
    let mut icmp = ip.icmp_mut().expect("ICMP");
    icmp.set_kind(crate::icmp::ECHO_REPLY, 0);
    icmp.set_ident(77);
    icmp.set_seq(78);
    let ip = Ipv4::new(&frame[18..]).expect("IPv4");
    let icmp = Icmp::new(ip.payload()).expect("ICMP");
    assert!(ip.checksum_ok() && icmp.checksum_ok());
    assert_eq!(icmp.repr(), IcmpRepr { kind: 0, code: 0, ident: 77, seq: 78 });

    // Also with open sums around: no device completes this one.
    for open in [false, true] {
        let mut frame = link(0).ipv6(1, 2).echo_request(1, 2, b"ping");
        let mut ip = ipv6_mut(&mut frame, open).expect("IPv6");
        assert!(!ip.translate_dst(9, 9), "ICMPv6 has none");
        ip.set_src(0xfd00_u128 << 112);
        let mut icmp = ip.icmpv6_mut().expect("ICMPv6");
        icmp.set_kind(crate::icmpv6::ECHO_REPLY, 0);
        icmp.set_word(5);
        let ip = Ipv6::new(&frame[14..]).expect("IPv6");
        let sum = pseudo_v6(ip.src(), ip.dst(), IpProtocol::ICMPV6, ip.payload().len() as u32);
        assert!(Icmpv6::new(ip.payload()).expect("ICMPv6").checksum_ok(sum));
    }
}

#[test]
fn later_fragments_have_no_transport_header() {
    let whole = link(0).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"a fragment");
    let fragment = |flags_and_offset: u16| {
        let mut frame = whole.clone();
        frame[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
        frame[24..26].fill(0);
        let sum = crate::checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    for (flags_and_offset, has) in [(0x2000, true), (0x4000, true), (0x2001, false), (0x0001, false)] {
        let mut frame = fragment(flags_and_offset);
        let before = frame[34..].to_vec();
        let mut ip = ipv4_mut(&mut frame, false).expect("IPv4");
        assert_eq!(ip.udp_mut().is_some(), has, "{flags_and_offset:x}");
        assert_eq!(ip.ports_mut().is_some(), has, "{flags_and_offset:x}");
        assert_eq!(ip.five_tuple().is_some(), has, "{flags_and_offset:x}");
        assert_eq!(ip.translate_dst([5, 6, 7, 8], 9), has, "{flags_and_offset:x}");
        ip.set_src([1, 2, 3, 4]);
        assert!(Ipv4::new(&frame[14..]).expect("IPv4").checksum_ok());
        assert_eq!(frame[34..] == before[..], !has, "its payload is data: {flags_and_offset:x}");
    }
    // The same over IPv6: a fragment header of offset 8.
    let mut body = vec![17, 0, 0, 8, 0, 0, 0, 1];
    body.extend([0xaa; 16]);
    let mut frame = link(0).ipv6(1, 2).payload(IpProtocol::FRAGMENT, &body);
    let mut ip = ipv6_mut(&mut frame, false).expect("IPv6");
    assert!(ip.udp_mut().is_none() && ip.ports_mut().is_none() && ip.protocol().is_none());
    assert!(!ip.translate_src(9, 9) && ip.five_tuple().is_none());
    ip.set_src(9);
    assert_eq!(frame[54..], body);
}

#[test]
fn options_and_extension_headers_are_passed() {
    // A no-operation option in front of UDP.
    let plain = link(0).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"options");
    let mut frame = plain.to_vec();
    frame.splice(34..34, [1, 1, 1, 1]);
    frame[14] = 0x46;
    frame[16..18].copy_from_slice(&(20 + 4 + 8 + 7u16).to_be_bytes());
    frame[24..26].fill(0);
    let sum = crate::checksum::of(&frame[14..38]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut ip = ipv4_mut(&mut frame, false).expect("IPv4");
    ip.set_dst([192, 0, 2, 1]);
    ip.udp_mut().expect("UDP").set_dst_port(9);
    let flow = ip.five_tuple().expect("UDP");
    assert_eq!(flow.to_string(), "UDP 10.0.0.1:1 to 192.0.2.1:9");
    check(&frame, State::Whole, "options");
    assert!(ipv4_mut(&mut frame, false).expect("IPv4").translate_src([192, 0, 2, 9], 7));
    assert_eq!(frame[38..42], [0, 7, 0, 9]);
    check(&frame, State::Whole, "options, translated");

    let mut body = vec![17, 0, 1, 4, 0, 0, 0, 0];
    let datagram = link(0).ipv6(1, 2).udp(1, 2).payload(b"extension");
    body.extend(&datagram[54..]);
    let mut frame = link(0).ipv6(1, 2).payload(IpProtocol::DESTINATION, &body);
    let mut ip = ipv6_mut(&mut frame, false).expect("IPv6");
    assert_eq!(ip.protocol(), Some(IpProtocol::UDP));
    ip.set_dst(77);
    ip.ports_mut().expect("UDP").set_dst(9);
    assert_eq!(ip.five_tuple().expect("UDP").to_string(), "UDP [::1]:1 to [::4d]:9");
    check(&frame, State::Whole, "extension header");
    assert!(ipv6_mut(&mut frame, false).expect("IPv6").translate_dst(78, 10));
    assert_eq!(frame[62..66], [0, 1, 0, 10]);
    check(&frame, State::Whole, "extension header, translated");
}

#[test]
fn a_header_that_is_cut_off_is_not_touched() {
    let frame = link(0).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2).payload(&[]);
    // Its checksum ends 18 bytes behind the IP header.
    for bytes in [0, 13, 14, 33, 34, 34 + 17] {
        assert!(ipv4_mut(&mut frame[..bytes].to_vec(), false).is_none(), "{bytes}");
    }
    assert!(ipv4_mut(&mut frame[..34 + 18].to_vec(), false).is_some());
    let frame = link(0).ipv6(1, 2).udp(1, 2).payload(&[]);
    for bytes in [53, 54, 54 + 7] {
        assert!(ipv6_mut(&mut frame[..bytes].to_vec(), false).is_none(), "{bytes}");
    }
    // Behind a routing header the pseudo-header's destination is another.
    let mut body = vec![17, 0, 0, 1, 0, 0, 0, 0];
    body.extend(&frame[54..]);
    assert!(ipv6_mut(&mut link(0).ipv6(1, 2).payload(IpProtocol::ROUTING, &body), false).is_none());
    // One of the other version, and none.
    let mut v4 = link(0).ipv4([1; 4], [2; 4]).udp(1, 2).payload(&[]);
    assert!(ipv6_mut(&mut v4, false).is_none() && arp_mut(&mut v4).is_none() && vlan_mut(&mut v4).is_none());
    v4[14] = 0x65;
    assert!(ipv4_mut(&mut v4, false).is_none());
}

#[test]
fn link_headers_are_changed() {
    let request = crate::ArpRepr {
        operation: crate::arp::REQUEST,
        sender_mac: A.into(),
        sender_ip: [10, 0, 0, 1].into(),
        target_mac: [0; 6].into(),
        target_ip: [10, 0, 0, 2].into(),
    };
    let mut frame = link(1).arp(&request);
    let mut ether = ether_mut(&mut frame).expect("Ethernet");
    ether.swap();
    assert_eq!((ether.src, ether.dst), (B.into(), A.into()));
    ether.set_src([9; 6]);
    ether.set_dst([8; 6]);
    let mut tag = vlan_mut(&mut frame).expect("a tag");
    tag.set_id(0xabc);
    tag.set_priority(6);
    assert_eq!(tag.tci(), Tci::new(6, false, 0xabc));
    let mut arp = arp_mut(&mut frame).expect("ARP");
    arp.set_reply(B);
    assert_eq!(crate::Arp::new(&frame[18..]).expect("ARP").repr(), request.reply(B.into()));
    let mut arp = arp_mut(&mut frame).expect("ARP");
    arp.set_sender(A, [1; 4]);
    arp.set_target(B, [2; 4]);
    assert_eq!((arp.sender_ip(), arp.target_ip()), ([1; 4].into(), [2; 4].into()));
    assert_eq!(frame[..12], [8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9]);
}

#[test]
fn an_open_sum_of_udp_over_ipv4_is_not_taken_for_absent() {
    let mut frame = frame(link(0).ipv4([10, 0, 0, 1], [10, 0, 0, 2]), false, State::Open, b"x");
    let before = pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP, 9).fold();
    assert_eq!(frame[40..42], before.to_be_bytes());
    ipv4_mut(&mut frame, true).expect("IPv4").set_src([192, 0, 2, 7]);
    check(&frame, State::Open, "open");
}
