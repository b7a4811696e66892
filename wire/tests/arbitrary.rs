//! Every view and every accessor over arbitrary bytes: nothing may panic, and what a view accepts must hold together.

use pollux_wire::checksum::Sum;
use pollux_wire::segment::{Segments, Transport};
use pollux_wire::{
    Arp, Ether, Icmp, Icmpv6, IpProtocol, Ipv4, Ipv6, Layer, Tcp, Tunnel, Udp, Vlan, WireError, icmpv6, ipv6,
    ptype, vlan,
};
use proptest::prelude::*;

/// A refusal for want of bytes must name more bytes than there were.
fn check<T>(given: usize, result: Result<T, WireError>) -> Option<T> {
    match result {
        Ok(view) => Some(view),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            if let WireError::Truncated { needed, given: said, layer } = error {
                assert!(needed > said, "{error}");
                // A walk over extension headers counts from inside the packet.
                assert!(said == given || layer == Layer::Ipv6Extension || layer == Layer::Vlan, "{error}");
            }
            None
        }
    }
}

fn visit(bytes: &[u8]) {
    let len = bytes.len();
    if let Some(ether) = check(len, Ether::new(bytes)) {
        assert_eq!(ether.payload().len(), len - 14);
        let _ = (ether.ether_type().is_vlan(), ether.dst.to_string(), ether.src.is_unicast(), ether.header());
        let mut out = bytes.to_vec();
        ether.repr().emit(&mut out).unwrap();
        assert_eq!(out, bytes);
    }
    if let Some((tunnel, inner)) = Tunnel::inside(bytes, &ptype::parse(bytes)) {
        assert!(tunnel.l3 < tunnel.l4 && tunnel.l4 <= tunnel.inner_l3 && tunnel.inner_l4 <= len);
        assert_eq!(tunnel.inner_v4, !inner.ptype.is_ipv6());
    }
    if let Some(tag) = check(len, Vlan::new(bytes)) {
        let _ =
            (tag.tci().priority(), tag.tci().drop_eligible(), tag.tci().id(), tag.payload(), tag.header());
        let mut out = bytes.to_vec();
        tag.repr().emit(&mut out).unwrap();
        assert_eq!(out, bytes);
    }
    if let Some(behind) = check(len, vlan::skip_tags(bytes)) {
        assert!(behind.offset <= len);
    }
    let mut room = bytes.to_vec();
    if let Some((tag_type, tci)) = vlan::pop(&mut room) {
        vlan::push(&mut room, tag_type, tci).unwrap();
        assert_eq!(room, bytes);
    }
    if let Some(arp) = check(len, Arp::new(bytes)) {
        let mut out = bytes.to_vec();
        arp.repr().emit(&mut out).unwrap();
        assert_eq!(out, bytes);
    }
    if let Some(ip) = check(len, Ipv4::new(bytes)) {
        assert_eq!(20 + ip.options().len() + ip.payload().len(), usize::from(ip.total_bytes.get()));
        let _ = (ip.checksum_ok(), ip.pseudo_sum(), ip.dscp(), ip.ecn(), ip.fragment_offset(), ip.header());
        let repr = ip.repr();
        let mut out = vec![0; 20 + usize::from(repr.payload_bytes)];
        repr.emit(&mut out).unwrap();
        let again = Ipv4::new(&out).unwrap();
        assert!(again.checksum_ok());
        assert_eq!(again.repr(), repr);
    }
    if let Some(ip) = check(len, Ipv6::new(bytes)) {
        assert_eq!(ip.payload().len(), usize::from(ip.payload_bytes.get()));
        let _ = (ip.traffic_class(), ip.flow_label(), ip.src(), ip.dst(), ip.header());
        check(len, ip.upper());
        let mut out = bytes.to_vec();
        ip.repr().emit(&mut out).unwrap();
        assert_eq!(out, bytes);
    }
    for protocol in [0, 43, 44, 51, 60, 135, 6] {
        if let Some(upper) = check(len, ipv6::walk(IpProtocol(protocol), bytes)) {
            assert_eq!(upper.payload.len() + upper.extension_bytes, len);
            let _ = upper.has_header();
        }
    }
    if let Some(icmp) = check(len, Icmp::new(bytes)) {
        let mut out = bytes.to_vec();
        icmp.repr().emit(&mut out).unwrap();
        assert!(Icmp::new(&out).unwrap().checksum_ok());
        let _ = (icmp.checksum_ok(), icmp.payload(), icmp.header());
    }
    if let Some(icmp) = check(len, Icmpv6::new(bytes)) {
        let _ = (icmp.target(), icmp.ident(), icmp.seq(), icmp.payload(), icmp.header());
        let _ = (icmp.link_address(icmpv6::OPTION_SOURCE_ADDRESS), icmp.checksum_ok(Sum::ZERO));
        assert!(icmp.options().count() <= len / 8);
        let mut out = bytes.to_vec();
        icmp.repr().emit(&mut out, Sum::ZERO).unwrap();
        assert!(Icmpv6::new(&out).unwrap().checksum_ok(Sum::ZERO));
    }
    if let Some(udp) = check(len, Udp::new(bytes)) {
        assert_eq!(udp.payload().len() + 8, usize::from(udp.bytes.get()));
        let _ = (udp.checksum_ok(Sum::ZERO), udp.repr(), udp.header());
    }
    if let Some(tcp) = check(len, Tcp::new(bytes)) {
        assert_eq!(20 + tcp.options().len() + tcp.payload().len(), len);
        let _ = (tcp.checksum_ok(Sum::ZERO), tcp.flags(), tcp.repr(), tcp.header());
    }
    let parsed = ptype::parse(bytes);
    assert!(usize::from(parsed.l2_len + parsed.l3_len + parsed.l4_len) <= len);
    let _ = format!("{:?}", parsed.ptype);
    for transport in [Transport::Tcp, Transport::Udp] {
        if let Ok(segments) = Segments::new(bytes, transport, 100) {
            assert!(segments.header_bytes() <= len && segments.bytes_max() <= len);
        }
    }
}

/// Frames that begin like real ones, so that the deeper parsers see their share.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let head = prop::sample::select(vec![
        &[0x08u8, 0x00, 0x45][..],
        &[0x08, 0x00, 0x4a],
        &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1],
        &[0x86, 0xdd, 0x60],
        &[0x81, 0x00, 0, 1, 0x08, 0x00, 0x46],
        &[0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2, 0x86, 0xdd, 0x60],
    ]);
    let protocol = prop::sample::select(vec![0u8, 1, 2, 4, 6, 17, 41, 43, 44, 47, 51, 58, 60, 132]);
    (head, protocol, prop::collection::vec(any::<u8>(), 0..120), any::<bool>()).prop_map(
        |(head, protocol, mut tail, small)| {
            // The next header of IPv6 stands 6 bytes into it, the protocol of IPv4 9 bytes.
            for at in [5, 8] {
                if let Some(byte) = tail.get_mut(at) {
                    *byte = protocol;
                }
            }
            if small {
                tail.iter_mut().skip(9).for_each(|byte| *byte &= 7);
            }
            [&[2; 12], head, &tail].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
        visit(&bytes);
    }

    #[test]
    fn plausible_frames_and_all_their_tails(frame in plausible()) {
        for start in 0..frame.len().min(40) {
            visit(&frame[start..]);
        }
    }

    #[test]
    fn plausible_frames_cut_anywhere(frame in plausible(), end in any::<prop::sample::Index>()) {
        visit(&frame[..end.index(frame.len())]);
    }
}
