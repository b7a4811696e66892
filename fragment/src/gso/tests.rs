use pollux_mempool::{Burst, TxOffload};
use pollux_wire::build::Frame;
use pollux_wire::{Ipv4, Tcp, TcpFlags, checksum};

use super::*;
use crate::Reassembler;
use crate::tests::{bytes, mbuf, pool};

fn payload(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 256) as u8).collect()
}

fn all(plan: &Gso<'_>) -> Vec<Mbuf> {
    assert!(plan.make(plan.count()).is_none());
    (0..plan.count()).map(|index| plan.make(index).expect("an mbuf")).collect()
}

#[test]
fn segments_are_as_a_sender_of_short_ones_would_send_them() {
    let pool = pool(64);
    let flags = TcpFlags(TcpFlags::ACK.0 | TcpFlags::PSH.0 | TcpFlags::FIN.0 | TcpFlags::CWR.0);
    let whole = Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(7, 9);
    let whole = whole.flags(flags).numbers(u32::MAX - 999, 5).payload(&payload(4000));
    let packet = mbuf(&pool, &whole);
    let plan = Gso::plan(&packet, 1514, false, &pool).expect("TCP").expect("longer");
    let segments = all(&plan);
    assert_eq!(segments.len(), 3);
    let mut seq = u32::MAX - 999;
    let mut carried = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let frame = bytes(segment);
        assert!(segment.is_contiguous() && frame.len() <= 1514);
        assert_eq!(frame[..14], whole[..14]);
        assert_eq!(checksum::of(&frame[14..34]), 0);
        let ip = Ipv4::new(&frame[14..]).expect("IPv4");
        let first = Ipv4::new(&whole[14..]).expect("IPv4").ident.get();
        assert_eq!(ip.ident.get(), first.wrapping_add(index as u16));
        let tcp = Tcp::new(ip.payload()).expect("TCP");
        let pseudo = checksum::pseudo_v4(ip.src(), ip.dst(), IpProtocol::TCP, ip.payload().len() as u16);
        assert!(tcp.checksum_ok(pseudo));
        assert_eq!(tcp.header().seq.get(), seq);
        let last = index == 2;
        assert_eq!(tcp.header().flags & (TcpFlags::PSH.0 | TcpFlags::FIN.0) != 0, last);
        assert_eq!(tcp.header().flags & TcpFlags::CWR.0 != 0, index == 0);
        seq = seq.wrapping_add(tcp.payload().len() as u32);
        carried.extend_from_slice(tcp.payload());
    }
    assert_eq!(carried, payload(4000));
}

#[test]
fn udp_becomes_fragments_whatever_its_dont_fragment_bit_says() {
    let pool = pool(64);
    let mut whole = Frame::ether([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .udp(7, 9)
        .payload(&payload(5000))
        .to_vec();
    whole[20] |= 0x40;
    whole[24..26].fill(0);
    let sum = checksum::of(&whole[14..34]);
    whole[24..26].copy_from_slice(&sum.to_be_bytes());
    let packet = mbuf(&pool, &whole);
    let plan = Gso::plan(&packet, 1000, false, &pool).expect("UDP").expect("longer");
    let mut reassembler = Reassembler::new(4, 16, 10).expect("a table");
    let mut back = None;
    for fragment in all(&plan) {
        assert!(fragment.pkt_len() <= 1000);
        assert_eq!(checksum::of(&bytes(&fragment)[14..34]), 0);
        back = back.or(reassembler.push(fragment, 0));
    }
    whole[20] &= !0x40;
    whole[24..26].fill(0);
    let sum = checksum::of(&whole[14..34]);
    whole[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(back.map(|packet| bytes(&packet)), Some(whole));
}

#[test]
fn what_is_short_stays_and_what_cannot_be_cut_is_refused() {
    let pool = pool(64);
    let ether = || Frame::ether([2; 6], [4; 6]);
    let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let tcp = mbuf(&pool, &ether().ipv4(near, far).tcp(7, 9).payload(&payload(1000)));
    assert!(Gso::plan(&tcp, 1054, false, &pool).expect("short").is_none());
    assert!(Gso::plan(&tcp, 1053, false, &pool).expect("TCP").is_some());
    assert!(matches!(
        Gso::plan(&tcp, 54, false, &pool),
        Err(FragmentError::SegmentBytes { bytes: 54, headers: 54, least: 55 })
    ));
    let udp = |v6: bool| {
        let ether = ether();
        let ip = if v6 { ether.ipv6(1, 2) } else { ether.ipv4(near, far) };
        mbuf(&pool, &ip.udp(7, 9).payload(&payload(1000)))
    };
    assert!(matches!(Gso::plan(&udp(true), 500, false, &pool), Err(FragmentError::Malformed)));
    assert!(matches!(Gso::plan(&udp(false), 41, false, &pool), Err(FragmentError::SegmentBytes { .. })));
    let mut open = udp(false);
    open.set_tx_flags(TxFlags::UDP_CHECKSUM);
    assert!(matches!(Gso::plan(&open, 500, false, &pool), Err(FragmentError::Open)));
    open.set_tx_flags(TxFlags::UDP_SEGMENTATION);
    assert!(Gso::plan(&open, 500, false, &pool).expect("the port's").is_none());
    let mut cut = mbuf(&pool, &bytes(&tcp));
    cut.set_tx_flags(TxFlags::TCP_SEGMENTATION);
    cut.set_tx_offload(TxOffload { tso_segment_bytes: 300, ..TxOffload::default() });
    let plan = Gso::plan(&cut, 1514, false, &pool).expect("TCP").expect("as it asks");
    assert_eq!(all(&plan).iter().map(Mbuf::pkt_len).collect::<Vec<_>>(), [354, 354, 354, 154]);
}

/// TCP of `count` bytes of payload behind an IPv4 header of `protocol` and what follows it.
fn tunnelled(protocol: u8, head: &[u8], count: usize) -> Vec<u8> {
    let ip = || Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let inner = ip().tcp(7, 9).payload(&payload(count)).to_vec();
    let mut whole = ip().udp(1, 1).payload(&[head, &inner[14..]].concat()).to_vec();
    // What stood for UDP is the tunnel's.
    whole.drain(34..42);
    let bytes = (whole.len() - 14) as u16;
    whole[16..18].copy_from_slice(&bytes.to_be_bytes());
    whole[23] = protocol;
    whole[24..26].fill(0);
    let sum = checksum::of(&whole[14..34]);
    whole[24..26].copy_from_slice(&sum.to_be_bytes());
    whole
}

#[test]
fn tunnels_that_count_their_packets_are_not_cut_inside() {
    let pool = pool(64);
    let plan = |whole: &[u8]| {
        let packet = mbuf(&pool, whole);
        Gso::plan(&packet, 1000, true, &pool).map(|plan| plan.map(|plan| plan.count()))
    };
    let plain = tunnelled(47, &[0, 0, 8, 0], 3000);
    assert_eq!(plan(&plain).expect("GRE"), Some(4));
    let key = tunnelled(47, &[0x20, 0, 8, 0, 0, 0, 0, 1], 3000);
    assert_eq!(plan(&key).expect("GRE with a key"), Some(4));
    let numbered = tunnelled(47, &[0x10, 0, 8, 0, 0, 0, 0, 1], 3000);
    assert!(matches!(plan(&numbered), Err(FragmentError::Malformed)));

    // Of GTP the datagram is cut, into fragments that each say nothing of GTP's length.
    let inner = tunnelled(47, &[0, 0, 8, 0], 3000).split_off(38);
    let gtp = [&[0x30, 0xff][..], &(inner.len() as u16).to_be_bytes(), &[0, 0, 0, 1], &inner].concat();
    let ip = Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let whole = ip.udp(9, pollux_wire::tunnel::GTP_USER_PORT).payload(&gtp).to_vec();
    let packet = mbuf(&pool, &whole);
    let fragments = all(&Gso::plan(&packet, 1000, true, &pool).expect("GTP").expect("longer"));
    let mut reassembler = Reassembler::new(4, 16, 10).expect("a table");
    let back = fragments.into_iter().filter_map(|fragment| reassembler.push(fragment, 0)).last();
    assert_eq!(back.map(|packet| bytes(&packet)[34..].to_vec()), Some(whole[34..].to_vec()));
}

#[test]
fn a_datagram_that_only_its_padding_makes_too_long_stays() {
    let pool = pool(8);
    let mut whole =
        Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(7, 9).payload(b"x").to_vec();
    whole.resize(1200, 0);
    assert!(Gso::plan(&mbuf(&pool, &whole), 1000, false, &pool).expect("UDP").is_none());
    // As short as its header says: nothing is in it.
    whole[16..18].copy_from_slice(&20_u16.to_be_bytes());
    assert!(Gso::plan(&mbuf(&pool, &whole), 1000, false, &pool).expect("nothing").is_none());
}

#[test]
fn segments_are_no_longer_than_an_mbuf_and_end_with_the_pool() {
    let pool = pool(8);
    let whole = Frame::ether([2; 6], [4; 6]).ipv6(1, 2).tcp(7, 9).payload(&payload(9000));
    let packet = mbuf(&pool, &whole);
    let plan = Gso::plan(&packet, 8000, false, &pool).expect("TCP").expect("longer");
    let mut made = Burst::new();
    while let Some(segment) = plan.make(made.len()) {
        assert!(segment.is_contiguous());
        made.push(segment);
    }
    assert!(!made.is_empty() && made.len() < plan.count(), "{} of {}", made.len(), plan.count());
}
