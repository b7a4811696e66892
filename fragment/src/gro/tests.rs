use pollux_mempool::{MbufPool, TxFlags, TxOffload};
use pollux_wire::build::{Frame, Ip};
use pollux_wire::checksum::{self, Sum};
use pollux_wire::{Tci, TcpFlags};
use proptest::prelude::*;

use super::*;
use crate::Gso;
use crate::tests::{bytes, mbuf, pool};

const ALL: GroKinds = GroKinds::all();

fn payload(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 256) as u8 ^ seed).collect()
}

/// Layers around and in front of TCP.
#[derive(Clone, Copy, Debug)]
enum Around {
    V4,
    V6,
    TaggedV4,
    /// With an outer checksum, or without.
    Vxlan(bool),
    Vxlan6,
    Gre,
}

const AROUND: [Around; 7] = [
    Around::V4,
    Around::V6,
    Around::TaggedV4,
    Around::Vxlan(false),
    Around::Vxlan(true),
    Around::Vxlan6,
    Around::Gre,
];

/// A frame of one connection, its sums right.
fn frame(around: Around, connection: u16, seq: u32, flags: TcpFlags, data: &[u8]) -> Vec<u8> {
    let ether = || Frame::ether([2; 6], [4; 6]);
    let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let tcp =
        |ip: Ip| ip.tcp(connection, 80).flags(flags).numbers(seq, 77).window(500).payload(data).to_vec();
    let vxlan = [8, 0, 0, 0, 0, 0, 1, 0];
    match around {
        Around::V4 => tcp(ether().ipv4(near, far)),
        Around::V6 => tcp(ether().ipv6(1, 2)),
        Around::TaggedV4 => tcp(ether().vlan(Tci(5)).ipv4(near, far)),
        Around::Vxlan(sum) => {
            let inner = tcp(Frame::ether([6; 6], [8; 6]).ipv4(far, near));
            let mut whole =
                ether().ipv4(near, far).udp(99, 4789).payload(&[&vxlan[..], &inner].concat()).to_vec();
            if !sum {
                whole[40..42].fill(0);
            }
            whole
        }
        Around::Vxlan6 => {
            let inner = tcp(Frame::ether([6; 6], [8; 6]).ipv6(3, 4));
            ether().ipv6(1, 2).udp(99, 4789).payload(&[&vxlan[..], &inner].concat()).to_vec()
        }
        Around::Gre => {
            let inner = tcp(ether().ipv4(far, near));
            let carried = [&[0, 0, 8, 0], &inner[14..]].concat();
            ether().ipv4(near, far).payload(pollux_wire::IpProtocol::GRE, &carried).to_vec()
        }
    }
}

/// What comes of packets that are all there before the first flush.
fn joined(gro: &mut Gro, packets: impl IntoIterator<Item = Mbuf>) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    packets.into_iter().for_each(|packet| gro.push(packet, 0, &mut out));
    gro.flush(u64::MAX, &mut out);
    assert_eq!(gro.held(), 0);
    out.iter().map(bytes).collect()
}

fn segments(pool: &MbufPool, whole: &[u8], longest: usize) -> Vec<Mbuf> {
    let packet = mbuf(pool, whole);
    let plan = Gso::plan(&packet, longest, true, pool).expect("TCP").expect("longer");
    (0..plan.count()).map(|index| plan.make(index).expect("an mbuf")).collect()
}

/// Sets a field of an IPv4 header that begins at 14, and its checksum.
fn edited(frame: &[u8], edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = frame.to_vec();
    edit(&mut frame[14..34]);
    frame[24..26].fill(0);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Cut, shuffled among those of other connections and joined, packets are what they were, to the byte.
    #[test]
    fn what_was_cut_is_joined_again(
        around in 0..AROUND.len(), count in 1500usize..20_000, longest in 200usize..1500, seq: u32, flags in 0u8..4,
        others in 0u16..4, order in any::<u64>(), distance in 0usize..8,
    ) {
        let pool = pool(1500);
        let around = AROUND[around];
        let last = [0, TcpFlags::PSH.0, TcpFlags::FIN.0, TcpFlags::CWR.0][usize::from(flags)];
        let flags = TcpFlags(TcpFlags::ACK.0 | last);
        let wholes: Vec<Vec<u8>> = (0..=others)
            .map(|other| frame(around, 1000 + other, seq.wrapping_add(u32::from(other)), flags, &payload(count, other as u8)))
            .collect();
        let mut all: Vec<Mbuf> = Vec::new();
        let parts: Vec<Vec<Mbuf>> = wholes.iter().map(|whole| segments(&pool, whole, longest)).collect();
        let most = parts.iter().map(Vec::len).max().unwrap_or(0);
        let mut parts: Vec<_> = parts.into_iter().map(Vec::into_iter).collect();
        for _ in 0..most {
            all.extend(parts.iter_mut().filter_map(Iterator::next));
        }
        // Each packet comes at most so many places too early or too late.
        let mut noise = order | 1;
        for at in 0..all.len() {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let to = (at + (noise >> 40) as usize % (distance + 1)).min(all.len() - 1);
            all.swap(at, to);
        }
        let count = all.len();
        let mut gro = Gro::new(ALL, 512, 1000);
        let mut back = joined(&mut gro, all);
        prop_assert_eq!(gro.joined(), (count - wholes.len()) as u64);
        back.sort();
        let mut wholes = wholes;
        wholes.sort();
        prop_assert!(back == wholes, "{:?}: {} packets", around, back.len());
        prop_assert_eq!(pool.in_use(), 0);
    }

    /// Whatever comes, nothing panics, no byte of payload is made up, and all goes home.
    #[test]
    fn hostile_packets_do_no_harm(
        around in 0..AROUND.len(), longest in 200usize..600, edits in prop::collection::vec((any::<usize>(), any::<u8>()), 1..12),
        short in any::<usize>(),
    ) {
        let pool = pool(300);
        let whole = frame(AROUND[around], 5, 9, TcpFlags::ACK, &payload(3000, 1));
        let parts: Vec<Vec<u8>> = segments(&pool, &whole, longest).iter().map(bytes).collect();
        let mut came = 0;
        let packets: Vec<Mbuf> = parts.iter().enumerate().map(|(index, part)| {
            let mut part = part.clone();
            for (place, value) in &edits {
                // In the headers mostly.
                let at = (place ^ index.wrapping_mul(*place)) % part.len().min(120);
                part[at] = *value;
            }
            if short % (index + 2) == 0 {
                part.truncate(short % part.len() + 1);
            }
            came += part.len();
            mbuf(&pool, &part)
        }).collect();
        let plans: Vec<bool> = packets.iter().map(|packet| Gso::plan(packet, 300, true, &pool).is_ok_and(|plan| {
            plan.is_some_and(|plan| (0..plan.count()).all(|index| plan.make(index).is_some()))
        })).collect();
        let mut gro = Gro::new(ALL, 8, 20);
        let left: usize = joined(&mut gro, packets).iter().map(Vec::len).sum();
        prop_assert!(left <= came, "{} of {}, {:?}", left, came, plans);
        prop_assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn what_differs_is_not_joined() {
    let pool = pool(64);
    let (ack, data) = (TcpFlags::ACK, payload(100, 3));
    let first = frame(Around::V4, 7, 1000, ack, &data);
    let next = |ident: u16| {
        let next = frame(Around::V4, 7, 1100, ack, &data);
        edited(&next, |ip| ip[4..6].copy_from_slice(&ident.to_be_bytes()))
    };
    let ident = u16::from_be_bytes([first[18], first[19]]);
    let follows = next(ident.wrapping_add(1));
    let ack_of = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        // The sum of TCP is made good again, so that nothing else tells the two apart.
        frame[45] ^= 1;
        frame[50..52].fill(0);
        let sum = checksum::pseudo_v4(
            [10, 0, 0, 1].into(),
            [10, 0, 0, 2].into(),
            pollux_wire::IpProtocol::TCP,
            120,
        );
        let sum = sum.add_bytes(&frame[34..]).checksum();
        frame[50..52].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let with = |flags: u8| frame(Around::V4, 7, 1000, TcpFlags(TcpFlags::ACK.0 | flags), &data);
    let tail = |flags: u8| {
        let tail = frame(Around::V4, 7, 1100, TcpFlags(TcpFlags::ACK.0 | flags), &data);
        edited(&tail, |ip| ip[4..6].copy_from_slice(&ident.wrapping_add(1).to_be_bytes()))
    };
    let df = |frame: &[u8]| edited(frame, |ip| ip[6] |= 0x40);
    let rows: [(&str, Vec<u8>, Vec<u8>, usize); 16] = [
        ("it follows", first.clone(), follows.clone(), 1),
        ("it comes first", follows.clone(), first.clone(), 1),
        ("identification", first.clone(), next(ident.wrapping_add(2)), 2),
        ("identification without meaning", df(&first), df(&next(ident.wrapping_sub(9))), 1),
        ("don't fragment", first.clone(), df(&follows), 2),
        ("hop limit", first.clone(), edited(&follows, |ip| ip[8] -= 1), 2),
        ("traffic class", first.clone(), edited(&follows, |ip| ip[1] ^= 4), 2),
        ("acknowledged", first.clone(), ack_of(&follows), 2),
        ("a gap", first.clone(), frame(Around::V4, 7, 1101, ack, &data), 2),
        ("behind PSH", with(TcpFlags::PSH.0), follows.clone(), 2),
        ("behind FIN", with(TcpFlags::FIN.0), follows.clone(), 2),
        ("CWR later", first.clone(), tail(TcpFlags::CWR.0), 2),
        ("CWR first", with(TcpFlags::CWR.0), follows.clone(), 1),
        ("ECE in one", first.clone(), tail(TcpFlags::ECE.0), 2),
        ("URG", first.clone(), tail(TcpFlags::URG.0), 2),
        (
            "wrong header sum",
            first.clone(),
            {
                let mut bad = follows.clone();
                bad[25] ^= 1;
                bad
            },
            2,
        ),
    ];
    for (what, one, other, count) in rows {
        let mut gro = Gro::new(ALL, 8, 20);
        let back = joined(&mut gro, [mbuf(&pool, &one), mbuf(&pool, &other)]);
        assert_eq!(back.len(), count, "{what}");
        if count == 2 {
            // As they were, in order.
            assert_eq!(back, [one, other], "{what}");
        }
    }
}

#[test]
fn kinds_that_are_not_asked_for_stay() {
    let pool = pool(64);
    for (kinds, counts) in [
        (GroKinds::empty(), [5; 7]),
        (GroKinds::TCP_IPV4, [1, 5, 1, 5, 5, 5, 5]),
        (GroKinds::TCP_IPV6, [5, 1, 5, 5, 5, 5, 5]),
        (GroKinds::TCP_IPV4.union(GroKinds::TUNNELS), [1, 5, 1, 1, 1, 5, 1]),
    ] {
        for (around, count) in AROUND.into_iter().zip(counts) {
            let head = frame(around, 1, 2, TcpFlags::ACK, &[]).len();
            let whole = frame(around, 1, 2, TcpFlags::ACK, &payload(2000, 0));
            let parts = segments(&pool, &whole, head + 400);
            assert_eq!(parts.len(), 5);
            assert_eq!(joined(&mut Gro::new(kinds, 8, 20), parts).len(), count, "{kinds:?} {around:?}");
        }
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let pool = pool(64);
    let whole = frame(Around::V4, 7, 1000, TcpFlags::ACK, &payload(999, 3));
    let mut parts: Vec<Vec<u8>> = segments(&pool, &whole, 154).iter().map(bytes).collect();
    parts[4][100] ^= 0x10;
    let back = joined(&mut Gro::new(ALL, 8, 20), parts.iter().map(|part| mbuf(&pool, part)));
    assert_eq!(back.len(), 1);
    let pseudo =
        checksum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), pollux_wire::IpProtocol::TCP, 1019);
    assert!(pseudo.add_bytes(&whole[34..]).is_valid());
    assert!(!pseudo.add_bytes(&back[0][34..]).is_valid());
    assert!(Sum::of(&back[0][14..34]).is_valid());
}

#[test]
fn open_checksums_stay_open() {
    let pool = pool(64);
    let whole = frame(Around::V4, 7, 1000, TcpFlags::ACK, &payload(1000, 3));
    let open = |mut packet: Mbuf| {
        let upper = packet.pkt_len() as usize - 34;
        let data = packet.data_mut().expect("its own");
        let sum = checksum::pseudo_v4(
            [10, 0, 0, 1].into(),
            [10, 0, 0, 2].into(),
            pollux_wire::IpProtocol::TCP,
            upper as u16,
        );
        data[50..52].copy_from_slice(&sum.fold().to_be_bytes());
        packet.set_tx_flags(TxFlags::TCP_CHECKSUM | TxFlags::IPV4);
        packet.set_tx_offload(TxOffload { l2_len: 14, l3_len: 20, l4_len: 20, ..TxOffload::default() });
        packet
    };
    let mut gro = Gro::new(ALL, 8, 20);
    let mut out = Vec::new();
    segments(&pool, &whole, 300).into_iter().map(open).for_each(|part| gro.push(part, 0, &mut out));
    gro.flush(u64::MAX, &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].tx_flags(), TxFlags::TCP_CHECKSUM | TxFlags::IPV4);
    let wanted = open(mbuf(&pool, &whole));
    assert_eq!(bytes(&out[0]), bytes(&wanted));
    // One that is open and one that is not are two.
    let parts = segments(&pool, &whole, 554).into_iter().enumerate();
    let parts: Vec<Mbuf> = parts.map(|(at, part)| if at == 0 { open(part) } else { part }).collect();
    assert_eq!(joined(&mut Gro::new(ALL, 8, 20), parts).len(), 2);
}

#[test]
fn limits_are_kept_and_padding_is_dropped() {
    let pool = pool(600);
    let whole = frame(Around::V4, 7, 1000, TcpFlags::ACK, &payload(1000, 3));
    // Of mbufs in a chain.
    assert_eq!(joined(&mut Gro::new(ALL, 8, 3), segments(&pool, &whole, 154)).len(), 4);
    // Of packets that are held: the oldest goes.
    let mut out = Vec::new();
    let mut gro = Gro::new(ALL, 3, 20);
    for connection in 0..5 {
        gro.push(mbuf(&pool, &frame(Around::V4, connection, 0, TcpFlags::ACK, &[1; 100])), 0, &mut out);
    }
    assert_eq!((out.len(), gro.held()), (2, 3));
    assert_eq!(bytes(&out[0]), frame(Around::V4, 0, 0, TcpFlags::ACK, &[1; 100]));
    // None are held: none are joined.
    assert_eq!(joined(&mut Gro::new(ALL, 0, 20), segments(&pool, &whole, 554)).len(), 2);
    // Of bytes: 64 KiB are two packets.
    let halves = [0_u32, 40_000].map(|seq| {
        let half = frame(Around::V6, 7, seq, TcpFlags::ACK, &payload(40_000, 3));
        segments(&pool, &half, 1514)
    });
    let back = joined(&mut Gro::new(ALL, 64, 1000), halves.into_iter().flatten());
    assert_eq!(back.len(), 2);
    assert!(back[0].len() <= 65_535 + 14, "{}", back[0].len());
    // A byte of payload in a frame of 60.
    let short = |seq: u32| {
        let mut short = frame(Around::V6, 7, seq, TcpFlags::ACK, &[7]);
        short.extend([0xee; 9]);
        mbuf(&pool, &short)
    };
    let back = joined(&mut Gro::new(ALL, 8, 20), [short(1), short(2), short(3)]);
    assert_eq!(back, [frame(Around::V6, 7, 1, TcpFlags::ACK, &[7; 3])]);
}

#[test]
fn a_connection_keeps_its_order_and_leaves_when_it_pushes() {
    let pool = pool(64);
    let at = |connection: u16, seq: u32, flags: TcpFlags, data: &[u8]| {
        mbuf(&pool, &frame(Around::V6, connection, seq, flags, data))
    };
    let (mut gro, mut out) = (Gro::new(ALL, 8, 20), Vec::new());
    gro.push(at(1, 0, TcpFlags::ACK, &[1; 10]), 100, &mut out);
    gro.push(at(2, 0, TcpFlags::ACK, &[2; 10]), 200, &mut out);
    assert_eq!(gro.flush(99, &mut out), 0);
    // Without payload: what is held of the connection goes before it.
    gro.push(at(1, 10, TcpFlags::ACK, &[]), 300, &mut out);
    assert_eq!((out.len(), gro.held()), (2, 1));
    gro.push(at(3, 0, TcpFlags::ACK, &[3; 10]), 300, &mut out);
    gro.push(at(3, 10, TcpFlags(TcpFlags::ACK.0 | TcpFlags::PSH.0), &[3; 10]), 300, &mut out);
    // What was pushed, and not what is young.
    assert_eq!(gro.flush(100, &mut out), 1);
    assert_eq!(out[2].pkt_len(), 14 + 40 + 20 + 20);
    assert_eq!(gro.flush(200, &mut out), 1);
    gro.push(at(4, 0, TcpFlags::ACK, &[1; 10]), 300, &mut out);
    gro.push(at(4, 20, TcpFlags(TcpFlags::ACK.0 | TcpFlags::RST.0), &[]), 300, &mut out);
    let lengths: Vec<u32> = out[4..].iter().map(Mbuf::pkt_len).collect();
    assert_eq!((lengths, gro.held()), (vec![84, 74], 0));
}
