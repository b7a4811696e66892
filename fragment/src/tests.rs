//! Packets cut and made whole again, and what hostile fragments get.

use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_wire::build::Frame;
use pollux_wire::{IpProtocol, Ipv4, Ipv6};
use proptest::prelude::*;

use crate::{Counts, FragmentError, PIECES_MAX, Reassembler, fragment};

pub(crate) fn pool(count: usize) -> MbufPool {
    MbufPool::builder("fragments", count).build_anonymous().expect("a pool")
}

pub(crate) fn mbuf(pool: &MbufPool, bytes: &[u8]) -> Mbuf {
    let mut packet = pool.alloc().expect("an mbuf");
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rest.len().min(1800);
        let mut segment = pool.alloc().expect("an mbuf");
        assert!(segment.append_slice(&rest[..count]));
        rest = &rest[count..];
        if packet.data_len() == 0 {
            packet = segment;
        } else {
            packet.chain(segment).expect("few segments");
        }
    }
    packet
}

pub(crate) fn bytes(packet: &Mbuf) -> Vec<u8> {
    packet.segments().collect::<Vec<_>>().concat()
}

fn datagram(v6: bool, count: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..count).map(|at| (at * 7 + at / 256) as u8).collect();
    let ether = Frame::ether([2; 6], [4; 6]);
    if v6 {
        let ends = ["fd00::1".parse::<std::net::Ipv6Addr>().unwrap(), "fd00::2".parse().unwrap()];
        ether.ipv6(ends[0], ends[1]).udp(7, 9).payload(&payload).to_vec()
    } else {
        ether.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(7, 9).payload(&payload).to_vec()
    }
}

fn cut(pool: &MbufPool, frame: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    let count = fragment(&mbuf(pool, frame), mtu, 77, pool, &mut burst).expect("it can be cut");
    assert_eq!(count, burst.len());
    burst.iter().map(bytes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// In any order, with some of them twice, the packet comes back once; and every fragment keeps to the MTU, its lengths and its checksum.
    #[test]
    fn what_was_cut_becomes_whole(
        v6 in any::<bool>(), count in 1usize..9000, mtu in 300usize..1500, order in any::<u64>(), padding in 0usize..30,
    ) {
        let pool = pool(400);
        let frame = datagram(v6, count);
        let mut fragments = cut(&pool, &frame, mtu);
        if fragments.is_empty() {
            prop_assert!(frame.len() - 14 <= mtu);
            return Ok(());
        }
        for fragment in &fragments {
            prop_assert!(fragment.len() - 14 <= mtu);
            if v6 {
                prop_assert_eq!(Ipv6::new(&fragment[14..]).unwrap().payload().len(), fragment.len() - 54);
            } else {
                let ip = Ipv4::new(&fragment[14..]).unwrap();
                prop_assert!(ip.checksum_ok() && ip.payload().len() == fragment.len() - 34);
            }
        }
        // One of them again, then all shuffled by a generator of the test's own.
        let (mut state, distinct) = (order, fragments.len());
        fragments.push(fragments[state as usize % distinct].clone());
        for at in (1..fragments.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            fragments.swap(at, (state >> 33) as usize % (at + 1));
        }
        let mut reassembler = Reassembler::new(4, 100, 10).unwrap();
        let mut whole = Vec::new();
        for fragment in &mut fragments {
            fragment.resize(fragment.len() + padding, 0);
            whole.extend(reassembler.push(mbuf(&pool, fragment), 0));
        }
        prop_assert_eq!(whole.len(), 1);
        // IPv4 packets get a checksum of their own bytes, so all bytes are as they were.
        prop_assert_eq!(bytes(&whole[0]), frame);
        // The fragment that came twice, if it came behind the rest, waits for others in vain.
        prop_assert!(reassembler.fragments() <= 1 && reassembler.counts().duplicate <= 1);
        reassembler.expire(11, 4);
        prop_assert_eq!((reassembler.datagrams(), reassembler.fragments()), (0, 0));
        drop(whole);
        prop_assert_eq!(pool.in_use(), 0);
    }

    /// Fragments whose fields are anything: none panics, none is lost, and what waits stays within its bounds.
    #[test]
    fn hostile_fragments_do_no_harm(
        v6 in any::<bool>(),
        changes in prop::collection::vec((0usize..80, any::<u8>(), 0usize..4, any::<bool>()), 1..200),
    ) {
        let pool = pool(400);
        let fragments = cut(&pool, &datagram(v6, 1000), 400);
        let mut reassembler = Reassembler::new(3, 10, 5).unwrap();
        for (now, (at, value, which, alter)) in changes.into_iter().enumerate() {
            let mut bytes = fragments[which % fragments.len()].clone();
            if alter {
                bytes[at] = value;
            }
            bytes.truncate(bytes.len() - usize::from(value) % 3 * 40);
            drop(reassembler.push(mbuf(&pool, &bytes), now as u64));
            let mut again = Burst::new();
            let _ = fragment(&mbuf(&pool, &bytes), 100 + at, 1, &pool, &mut again);
            drop(again);
            prop_assert!(reassembler.fragments() <= 10 && reassembler.datagrams() <= 3);
            prop_assert!(pool.in_use() <= reassembler.fragments());
            reassembler.expire(now as u64, 1);
        }
        reassembler.expire(u64::MAX, 3);
        prop_assert_eq!((pool.in_use(), reassembler.fragments(), reassembler.datagrams()), (0, 0, 0));
    }
}

/// A fragment by its fields.
fn ipv4_piece(offset: usize, count: usize, more: bool) -> Vec<u8> {
    let payload = vec![offset as u8; count];
    let mut frame = Frame::ether([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        .payload(IpProtocol::UDP, &payload)
        .to_vec();
    frame[20..22].copy_from_slice(&((offset / 8) as u16 | u16::from(more) << 13).to_be_bytes());
    frame.truncate(34 + count);
    frame
}

#[test]
fn fragments_that_overlap_end_their_datagram() {
    let pool = pool(100);
    // What comes second: over the end of the first, over its front, inside it, around it, of another end.
    for (offset, count, more) in [(24, 16, true), (0, 24, true), (24, 8, false), (8, 40, true), (16, 8, true)]
    {
        let mut reassembler = Reassembler::new(4, 100, 10).unwrap();
        let mut push = |bytes: &[u8], now| reassembler.push(mbuf(&pool, bytes), now).is_some();
        assert!(!push(&ipv4_piece(16, 16, true), 0));
        assert!(!push(&ipv4_piece(offset, count, more), 1));
        // All that would have made it whole is dropped, until its time is over.
        assert!(!push(&ipv4_piece(0, 16, true), 2) && !push(&ipv4_piece(32, 8, false), 3));
        let counts = Counts { overlapping: 1, late: 2, ..Counts::default() };
        assert_eq!((reassembler.counts(), reassembler.fragments(), pool.in_use()), (counts, 0, 0));
        assert_eq!((reassembler.expire(9, 4), reassembler.expire(10, 4), reassembler.datagrams()), (0, 1, 0));
        assert_eq!(reassembler.counts().timed_out, 0);
        let all = [ipv4_piece(16, 16, true), ipv4_piece(0, 16, true), ipv4_piece(32, 8, false)];
        assert_eq!(all.iter().filter_map(|bytes| reassembler.push(mbuf(&pool, bytes), 11)).count(), 1);
    }
    // Two ends, in either order; something behind the end.
    for pair in
        [[(32, 8, false), (40, 8, false)], [(40, 8, false), (32, 8, false)], [(32, 8, false), (40, 8, true)]]
    {
        let mut reassembler = Reassembler::new(4, 100, 10).unwrap();
        for (offset, count, more) in pair {
            assert!(reassembler.push(mbuf(&pool, &ipv4_piece(offset, count, more)), 0).is_none());
        }
        assert_eq!(reassembler.counts().overlapping, 1, "{pair:?}");
    }
}

#[test]
fn room_is_bounded_and_comes_back_with_time() {
    let pool = pool(200);
    let mut reassembler = Reassembler::new(2, 3, 10).unwrap();
    let ident = |mut bytes: Vec<u8>, ident: u8| {
        bytes[19] = ident;
        bytes
    };
    for which in 0..3 {
        assert!(reassembler.push(mbuf(&pool, &ident(ipv4_piece(0, 8, true), which)), 0).is_none());
    }
    assert_eq!((reassembler.counts().full, reassembler.datagrams()), (1, 2));
    for offset in [8, 16] {
        assert!(reassembler.push(mbuf(&pool, &ident(ipv4_piece(offset, 8, true), 0)), 0).is_none());
    }
    assert_eq!((reassembler.counts().full, reassembler.fragments(), pool.in_use()), (2, 3, 3));
    assert_eq!((reassembler.expire(10, 1), reassembler.expire(10, 1)), (1, 1));
    assert_eq!((reassembler.counts().timed_out, reassembler.fragments(), pool.in_use()), (2, 0, 0));
    // So many fragments of one datagram, and no more.
    let mut reassembler = Reassembler::new(1, 100, 10).unwrap();
    for at in 0..=PIECES_MAX {
        assert!(reassembler.push(mbuf(&pool, &ipv4_piece(at * 8, 8, true)), 0).is_none());
    }
    assert_eq!((reassembler.counts().full, reassembler.fragments(), pool.in_use()), (1, 0, 0));
    // Past the longest packet; no bytes; no multiple of 8.
    let mut reassembler = Reassembler::new(1, 100, 10).unwrap();
    for (offset, count, more) in [(65_528, 16, false), (8, 0, false), (8, 9, true)] {
        assert!(reassembler.push(mbuf(&pool, &ipv4_piece(offset, count, more)), 0).is_none());
    }
    assert_eq!((reassembler.counts().malformed, reassembler.datagrams()), (3, 0));
}

#[test]
fn atomic_fragments_are_whole_and_other_packets_pass() {
    let pool = pool(100);
    let mut reassembler = Reassembler::new(2, 3, 10).unwrap();
    for frame in [datagram(false, 100), datagram(true, 100), vec![1; 60], vec![]] {
        let packet = reassembler.push(mbuf(&pool, &frame), 0).expect("it is no fragment");
        assert_eq!(bytes(&packet), frame);
    }
    let frame = datagram(true, 100);
    let mut atomic = frame.clone();
    atomic.splice(54..54, [17, 0, 0, 0, 1, 2, 3, 4]);
    atomic[20] = 44;
    atomic[19] += 8;
    let packet = reassembler.push(mbuf(&pool, &atomic), 0).expect("whole");
    assert_eq!((bytes(&packet), reassembler.counts().whole, reassembler.datagrams()), (frame, 1, 0));
}

#[test]
fn a_fragment_is_cut_further_and_options_go_where_they_belong() {
    let pool = pool(100);
    let mut frame = datagram(false, 2000);
    // Options: one that is copied (a source route of 7 bytes), a byte alone, one that is not copied (a timestamp of 4).
    let options = [0x83, 7, 4, 1, 2, 3, 4, 1, 0x44, 4, 5, 0];
    frame.splice(34..34, options);
    frame[14] = 0x48;
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[24..26].fill(0);
    let sum = pollux_wire::checksum::of(&frame[14..46]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let fragments = cut(&pool, &frame, 1000);
    assert_eq!(
        fragments.iter().map(|bytes| Ipv4::new(&bytes[14..]).unwrap().options().len()).collect::<Vec<_>>(),
        [12, 8, 8]
    );
    assert_eq!(&fragments[1][34..42], [0x83, 7, 4, 1, 2, 3, 4, 0]);
    // The last is short enough.
    assert!(cut(&pool, &fragments[2], 300).is_empty());
    let mut finer: Vec<Vec<u8>> = fragments[..2].iter().flat_map(|bytes| cut(&pool, bytes, 300)).collect();
    finer.push(fragments[2].clone());
    let mut reassembler = Reassembler::new(2, 100, 10).unwrap();
    let whole: Vec<_> =
        finer.iter().rev().filter_map(|bytes| reassembler.push(mbuf(&pool, bytes), 0)).collect();
    assert_eq!((whole.len(), bytes(&whole[0])), (1, frame));
}

#[test]
fn what_cannot_be_cut_is_refused_in_words() {
    let pool = pool(8);
    let mut burst = Burst::new();
    let mut refused = |frame: &[u8], mtu: usize| {
        fragment(&mbuf(&pool, frame), mtu, 1, &pool, &mut burst).expect_err("refused")
    };
    let mut fixed = datagram(false, 1000);
    fixed[20] |= 0x40;
    assert_eq!(
        refused(&fixed, 500).to_string(),
        "the packet must not be cut, and is longer than the MTU of 500 bytes: tell its sender by ICMP"
    );
    assert_eq!(refused(&datagram(false, 1000), 27), FragmentError::Mtu { mtu: 27, headers: 20, least: 28 });
    assert_eq!(refused(&datagram(true, 1000), 0), FragmentError::Mtu { mtu: 0, headers: 48, least: 56 });
    assert_eq!(refused(&datagram(false, 1000), 28), FragmentError::NoRoom { needed: 126, room: 64 });
    assert_eq!(refused(&[0; 60], 28), FragmentError::Malformed);
    // One mbuf has the packet, seven are left.
    assert_eq!(refused(&datagram(false, 1000), 100), FragmentError::NoMbufs { bytes: 14 + 20 + 80 });
    assert!(burst.is_empty());
    assert_eq!(pool.in_use(), 0);
}
