use pollux_mempool::{MbufPool, TxOffload};
use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::checksum as sums;
use proptest::prelude::*;
use zerocopy::FromBytes;

use super::fake::{Frame, Plan, rig};
use super::*;
use crate::eth::parking::{MalformedCqe, Trouble};
use crate::eth::rx::fake::{DELTA, pool};

mod tunnel;

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed * 31 + at * 7) as u8).collect()
}

fn packet(pool: &MbufPool, data: &[u8]) -> Mbuf {
    let mut mbuf = pool.alloc().expect("an mbuf");
    assert!(mbuf.append_slice(data));
    mbuf
}

fn burst_of(pool: &MbufPool, frames: &[Vec<u8>]) -> Burst {
    let mut burst = Burst::new();
    for frame in frames {
        burst.push(packet(pool, frame));
    }
    burst
}

fn all() -> TxFeatures {
    TxFeatures::all() - TxFeatures::FAST_FREE - TxFeatures::VLAN_BY_DEVICE
}

#[test]
fn a_plain_entry_byte_by_byte() {
    let pool = pool(64);
    let (mut queue, mut device, _) = rig(&Plan::default(), &pool);
    let mut burst = burst_of(&pool, &[bytes(1, 60)]);
    let address = (burst[0].data_ptr().addr() as u64).wrapping_add(DELTA);
    assert_eq!(queue.tx_burst(&mut burst), Moved { packets: 1, bytes: 60 });
    // Index 0, SEND; queue 0x123456, three segments; completion always.
    assert_eq!(device.segment(0), [0, 0, 0, 0x0a, 0x12, 0x34, 0x56, 3, 0, 0, 0, 8, 0, 0, 0, 0]);
    assert_eq!(device.segment(1), [0; 16]);
    let mut data = [0, 0, 0, 60, 0x12, 0x34, 0x56, 0x01, 0, 0, 0, 0, 0, 0, 0, 0];
    data[8..].copy_from_slice(&address.to_be_bytes());
    assert_eq!(device.segment(2), data);
    assert_eq!(device.register(0)[..8], [0, 0, 0, 0x0a, 0x12, 0x34, 0x56, 3]);
    assert_eq!(device.register(0)[8..], [0; 56]);
    assert_eq!(device.send()[0].bytes, bytes(1, 60));
    assert!(burst.is_empty() && pool.in_use() == 1);
    queue.tx_burst(&mut burst);
    assert_eq!(pool.in_use(), 0, "the completion freed it");
}

#[test]
fn many_packets_an_entry_byte_by_byte() {
    let pool = pool(64);
    let features = TxFeatures::MULTI_PACKET | TxFeatures::INLINE;
    let (mut queue, mut device, _) = rig(&Plan { features, inline_max: 20, ..Plan::default() }, &pool);
    let mut burst = burst_of(&pool, &[bytes(1, 60), bytes(2, 14), bytes(3, 61)]);
    assert_eq!(queue.tx_burst(&mut burst).packets, 3);
    assert_eq!(device.segment(0), [0, 0, 0, 0x29, 0x12, 0x34, 0x56, 6, 0, 0, 0, 8, 0, 0, 0, 0]);
    assert_eq!(device.segment(2)[..8], [0, 0, 0, 60, 0x12, 0x34, 0x56, 0x01]);
    assert_eq!(device.segment(3)[..4], [0x80, 0, 0, 14]);
    assert_eq!(device.segment(3)[4..], bytes(2, 14)[..12]);
    assert_eq!(device.segment(4)[..2], bytes(2, 14)[12..]);
    assert_eq!(device.segment(5)[..4], [0, 0, 0, 61]);
    let sent: Vec<_> = device.send().into_iter().map(|frame| frame.bytes).collect();
    assert_eq!(sent, [bytes(1, 60), bytes(2, 14), bytes(3, 61)]);
}

#[test]
fn an_entry_has_no_more_packets_than_cards_take() {
    let pool = pool(64);
    let (mut queue, mut device, _) =
        rig(&Plan { features: TxFeatures::MULTI_PACKET, ..Plan::default() }, &pool);
    let mut burst = burst_of(&pool, &vec![bytes(1, 60); 64]);
    assert_eq!(queue.tx_burst(&mut burst).packets, 64);
    // Two segments before those of the packets; the second entry begins at the next block.
    assert_eq!((device.segment(0)[7], device.segment(36)[7]), (2 + 32, 2 + 32));
    assert_eq!((device.send().len(), device.entries), (64, 2));
}

#[test]
fn the_header_that_the_device_must_see_stands_inline() {
    let pool = pool(64);
    let features = all();
    let (mut queue, mut device, counters) = rig(&Plan { features, inline_min: 18, ..Plan::default() }, &pool);
    assert_eq!(queue.mode(), "plain, full", "a minimum excludes many packets an entry");
    let mut burst = burst_of(&pool, &[bytes(1, 60), bytes(2, 18), bytes(3, 17)]);
    assert_eq!(queue.tx_burst(&mut burst).packets, 2);
    assert_eq!((burst.len(), counters.dropped(TxDrop::Malformed)), (0, 1));
    assert_eq!(device.segment(0)[4..8], [0x12, 0x34, 0x56, 4]);
    let mut eth = [0; 16];
    (eth[13], eth[14], eth[15]) = (18, bytes(1, 60)[0], bytes(1, 60)[1]);
    assert_eq!(device.segment(1), eth);
    assert_eq!(device.segment(2), bytes(1, 60)[2..18]);
    assert_eq!(device.segment(3)[..4], [0, 0, 0, 42]);
    let sent = device.send();
    assert_eq!((sent[0].bytes.clone(), sent[0].inline), (bytes(1, 60), 18));
    assert_eq!((sent[1].bytes.clone(), sent[1].inline), (bytes(2, 18), 18));
    queue.tx_burst(&mut burst);
    assert_eq!(pool.in_use(), 0);
}

/// Sends plain mbufs, then those that `odd` makes, then plain ones again, on a queue told that all are plain: all must go home.
fn all_come_home(odd: impl Fn(&MbufPool, &mut Burst)) {
    let pool = pool(64);
    let features = TxFeatures::FAST_FREE | TxFeatures::MULTI_SEGMENT | TxFeatures::MULTI_PACKET;
    let (mut queue, mut device, _) = rig(&Plan { features, ..Plan::default() }, &pool);
    let plain = |burst: &mut Burst| (1..4).for_each(|seed| burst.push(packet(&pool, &bytes(seed, 60))));
    let rounds: [&dyn Fn(&mut Burst); 4] = [&plain, &plain, &|burst: &mut Burst| odd(&pool, burst), &plain];
    for fill in rounds {
        let mut burst = Burst::new();
        fill(&mut burst);
        queue.tx_burst(&mut burst);
        assert!(burst.is_empty());
        device.send();
    }
    queue.tx_burst(&mut Burst::new());
    assert_eq!((pool.in_use(), pool.available()), (0, 64));
    // Each is there once, and fresh.
    let all: Vec<_> = (0..64).map(|_| pool.alloc().expect("it came home")).collect();
    assert!(all.iter().all(|mbuf| mbuf.is_plain_of(&pool)));
    let places: std::collections::HashSet<_> = all.iter().map(Mbuf::data_ptr).collect();
    assert_eq!(places.len(), 64);
}

#[test]
fn a_chain_comes_home_whole_from_a_queue_told_of_plain_ones() {
    all_come_home(|pool, burst| {
        burst.push(packet(pool, &bytes(1, 60)));
        let mut chain = packet(pool, &bytes(2, 60));
        assert!(chain.chain(packet(pool, &bytes(3, 60))).is_ok());
        burst.push(chain);
    });
}

#[test]
fn a_clone_comes_home_once_from_a_queue_told_of_plain_ones() {
    all_come_home(|pool, burst| {
        let whole = packet(pool, &bytes(1, 60));
        burst.push(whole.clone_indirect(pool).expect("an mbuf"));
        burst.push(whole);
    });
}

#[test]
fn an_mbuf_of_another_pool_goes_to_that_pool() {
    let other = pool(16);
    // The device does not know this pool: the packet is dropped, and owned all the same.
    all_come_home(|_, burst| burst.push(packet(&other, &bytes(1, 60))));
    assert_eq!((other.in_use(), other.available()), (0, 16));
}

#[test]
fn a_pool_without_handles_gets_its_mbufs_back() {
    let known = pool(16);
    let (mut queue, mut device, _) =
        rig(&Plan { features: TxFeatures::FAST_FREE, ..Plan::default() }, &known);
    let gone = pool(16);
    let mut burst = burst_of(&gone, &[bytes(1, 60), bytes(2, 60)]);
    drop(gone);
    burst.push(packet(&known, &bytes(3, 60)));
    queue.tx_burst(&mut burst);
    device.send();
    queue.tx_burst(&mut burst);
    assert_eq!((burst.len(), known.in_use()), (0, 0));
}

fn with_tag(frame: &[u8], tci: u16) -> Vec<u8> {
    let tci = tci.to_be_bytes();
    [&frame[..12], &[0x81, 0, tci[0], tci[1]], &frame[12..]].concat()
}

#[test]
fn tags_are_put_in_by_the_device_or_here() {
    let pool = pool(64);
    let tagged = |data: &[u8]| {
        let mut mbuf = packet(&pool, data);
        mbuf.set_vlan_tci(0x6123);
        mbuf.set_tx_flags(TxFlags::VLAN);
        mbuf
    };
    let send = |plan: &Plan| {
        let (mut queue, mut device, _) = rig(plan, &pool);
        let mut burst = Burst::new();
        burst.push(packet(&pool, &bytes(1, 64)));
        burst.push(tagged(&bytes(2, 64)));
        burst.push(tagged(&bytes(3, 500)));
        burst.push(packet(&pool, &bytes(4, 64)));
        assert_eq!(queue.tx_burst(&mut burst), Moved { packets: 4, bytes: 692 });
        device.send()
    };
    let whole = |frames: &[Frame]| -> Vec<Vec<u8>> {
        let inserted = |frame: &Frame| frame.vlan.map(|tci| with_tag(&frame.bytes, tci));
        frames.iter().map(|frame| inserted(frame).unwrap_or_else(|| frame.bytes.clone())).collect()
    };
    let want =
        [bytes(1, 64), with_tag(&bytes(2, 64), 0x6123), with_tag(&bytes(3, 500), 0x6123), bytes(4, 64)];
    let by_device = Plan { features: all() | TxFeatures::VLAN_BY_DEVICE, ..Plan::default() };
    let frames = send(&by_device);
    assert_eq!((frames[1].vlan, frames[1].inline, whole(&frames)), (Some(0x6123), 0, want.to_vec()));
    for inline_min in [0, 18] {
        for inline_max in [0, 100] {
            let frames = send(&Plan { features: all(), inline_min, inline_max, ..Plan::default() });
            assert!(frames.iter().all(|frame| frame.vlan.is_none()));
            assert_eq!(whole(&frames), want, "{inline_min} {inline_max}");
        }
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn checksums_and_segmentation() {
    let pool = pool(64);
    let (mut queue, mut device, counters) = rig(&Plan { features: all(), ..Plan::default() }, &pool);
    let flagged = |flags: TxFlags| {
        let mut mbuf = packet(&pool, &bytes(1, 100));
        mbuf.set_tx_flags(flags);
        mbuf
    };
    let tunnel = TxFlags::TUNNEL_VXLAN;
    let cases = [
        (TxFlags::empty(), 0),
        (TxFlags::IP_CHECKSUM | TxFlags::IPV4, sums::L3),
        (TxFlags::UDP_CHECKSUM | TxFlags::IPV6, sums::L4),
        (TxFlags::IP_CHECKSUM | TxFlags::TCP_CHECKSUM, sums::L3 | sums::L4),
        (tunnel | TxFlags::OUTER_IP_CHECKSUM, sums::L3),
        (tunnel | TxFlags::IP_CHECKSUM | TxFlags::TCP_CHECKSUM, sums::L3_INNER | sums::L4_INNER),
    ];
    let mut burst = Burst::new();
    for (flags, _) in cases {
        burst.push(flagged(flags));
        burst.push(flagged(flags));
    }
    queue.tx_burst(&mut burst);
    let sent = device.send();
    for (at, (flags, want)) in cases.into_iter().enumerate() {
        assert_eq!([sent[2 * at].checksums, sent[2 * at + 1].checksums], [want; 2], "{flags:?}");
    }
    assert_eq!(device.entries, 6, "neighbours with the same flags share an entry");

    // A header of 54 bytes that lies in two mbufs, payload in three.
    let payload = bytes(9, 3000);
    let mut mbuf = packet(&pool, &bytes(8, 30));
    mbuf.chain(packet(&pool, &bytes(7, 40))).expect("short");
    for part in payload.chunks(1500) {
        mbuf.chain(packet(&pool, part)).expect("short");
    }
    let mut offload =
        TxOffload { l2_len: 14, l3_len: 20, l4_len: 20, tso_segment_bytes: 1460, ..TxOffload::default() };
    let flags = TxFlags::TCP_SEGMENTATION | TxFlags::TCP_CHECKSUM | TxFlags::IP_CHECKSUM | TxFlags::IPV4;
    mbuf.set_tx_flags(flags);
    mbuf.set_tx_offload(offload);
    burst.push(mbuf);
    assert_eq!(queue.tx_burst(&mut burst).packets, 1);
    let sent = device.send();
    let whole = [bytes(8, 30), bytes(7, 40), payload].concat();
    assert_eq!(
        sent[0],
        Frame { bytes: whole, checksums: sums::L3 | sums::L4, vlan: None, mss: 1460, inline: 54 }
    );

    // What makes no sense is dropped, and those behind it go.
    for spoil in 0..3 {
        let mut mbuf = packet(&pool, &bytes(1, 100));
        mbuf.set_tx_flags(flags);
        match spoil {
            0 => offload.tso_segment_bytes = 0,
            1 => (offload.tso_segment_bytes, offload.l4_len) = (100, 66),
            _ => offload.l4_len = 250,
        }
        mbuf.set_tx_offload(offload);
        burst.push(mbuf);
    }
    burst.push(packet(&pool, &bytes(5, 64)));
    burst.push(pool.alloc().expect("an empty one"));
    assert_eq!((queue.tx_burst(&mut burst).packets, burst.len()), (1, 0));
    assert_eq!(counters.dropped(TxDrop::Malformed), 4);
    assert_eq!(device.send()[0].bytes, bytes(5, 64));
    queue.tx_burst(&mut burst);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_does_not_fit_stays_with_the_caller_in_order() {
    for features in [TxFeatures::empty(), TxFeatures::MULTI_PACKET, all()] {
        let pool = pool(512);
        let (mut queue, mut device, _) = rig(&Plan { log: 4, features, ..Plan::default() }, &pool);
        let frames: Vec<_> = (0..64).map(|seed| bytes(seed, 64)).collect();
        let mut burst = burst_of(&pool, &frames);
        let first = queue.tx_burst(&mut burst).packets;
        assert!(first > 0 && (first < 64 || features.contains(TxFeatures::MULTI_PACKET)), "{first}");
        let mut sent = Vec::new();
        // Nothing is completed: the ring fills up, then nothing moves.
        while queue.tx_burst(&mut burst).packets > 0 {
            if burst.is_empty() {
                burst = burst_of(&pool, &frames);
            }
        }
        let left: Vec<_> = burst.iter().map(|mbuf| mbuf.data().to_vec()).collect();
        assert_eq!(left, frames[64 - left.len()..]);
        assert_eq!(queue.tx_burst(&mut burst), Moved::NONE);
        while !burst.is_empty() {
            sent.extend(device.send());
            queue.tx_burst(&mut burst);
        }
        sent.extend(device.send());
        for (at, frame) in sent.iter().enumerate() {
            assert_eq!(frame.bytes, frames[at % 64]);
        }
        assert_eq!(sent.len() % 64, 0);
    }
}

#[test]
fn completions_are_few_and_nothing_waits_for_ever() {
    let pool = pool(512);
    let (mut queue, mut device, _) = rig(&Plan { descriptors: 128, ..Plan::default() }, &pool);
    // Bursts of one, of which the device completes none for a while: one completion was asked for, then one each 32.
    for round in 0..100 {
        assert_eq!(queue.tx_burst(&mut burst_of(&pool, &[bytes(round, 60)])).packets, 1);
    }
    device.send();
    assert_eq!(device.completed, 1 + 99 / 16, "an eighth of the ring's 128 blocks");
    queue.tx_burst(&mut Burst::new());
    assert!(pool.in_use() < 32);
    // What is left is asked for by an entry that does nothing.
    let left = pool.in_use();
    assert_eq!(queue.done_cleanup(0).ok(), Some(0));
    device.send();
    assert_eq!((queue.done_cleanup(0).ok(), pool.in_use()), (Some(left), 0));
}

#[test]
fn unknown_memory_is_refused_and_the_rest_goes() {
    let (known, unknown) = (pool(64), pool(64));
    for features in [TxFeatures::empty(), all()] {
        let (mut queue, mut device, counters) = rig(&Plan { features, ..Plan::default() }, &known);
        let mut burst = Burst::new();
        burst.push(packet(&unknown, &bytes(1, 64)));
        burst.push(packet(&known, &bytes(2, 64)));
        burst.push(packet(&unknown, &bytes(3, 64)));
        assert_eq!((queue.tx_burst(&mut burst).packets, burst.len()), (1, 0));
        assert_eq!(counters.dropped(TxDrop::Unregistered), 2);
        assert_eq!(device.send()[0].bytes, bytes(2, 64));
        // All refused and nothing under way: home at once.
        queue.tx_burst(&mut burst);
        burst.push(packet(&unknown, &bytes(1, 64)));
        queue.tx_burst(&mut burst);
        assert_eq!((unknown.in_use(), known.in_use()), (0, 0));
    }
}

#[test]
fn short_work_goes_through_the_register_whole() {
    let pool = pool(64);
    let features = TxFeatures::INLINE;
    let (mut queue, mut device, _) =
        rig(&Plan { features, blueflame: true, inline_max: 34, ..Plan::default() }, &pool);
    for round in 0..4 {
        let frame = bytes(round, 34);
        queue.tx_burst(&mut burst_of(&pool, std::slice::from_ref(&frame)));
        let block = device.register(round % 2);
        let first = (device.ci & 127) * 4;
        let ring: Vec<u8> = (first..first + 4).flat_map(|at| device.segment(at)).collect();
        assert_eq!(block[..], ring, "round {round}");
        assert_eq!(device.send()[0].bytes, frame);
    }
    // Two blocks are rung for.
    queue.tx_burst(&mut burst_of(&pool, &[bytes(5, 34), bytes(6, 34)]));
    assert_eq!(device.send().len(), 2);
}

#[test]
fn an_error_parks_the_queue_and_recovery_brings_it_back() {
    let pool = pool(64);
    let (mut queue, mut device, counters) = rig(&Plan::default(), &pool);
    let control = queue.control();
    queue.tx_burst(&mut burst_of(&pool, &[bytes(1, 64), bytes(2, 64)]));
    device.fail(1, Syndrome::LOCAL_PROT_ERR);
    let mut burst = burst_of(&pool, &[bytes(3, 64)]);
    assert_eq!(
        (queue.tx_burst(&mut burst), burst.len()),
        (Moved::NONE, 1),
        "the caller keeps what was not taken"
    );
    let syndrome = Syndrome { code: Syndrome::LOCAL_PROT_ERR, vendor: 0 };
    assert_eq!(control.health().trouble(), Some(Trouble::Failed(syndrome)));
    assert_eq!(queue.tx_burst(&mut burst), Moved::NONE);
    device.fail(1, Syndrome::WR_FLUSH_ERR);
    let mut parked = control.take().expect("parked");
    assert_eq!((parked.drain(), parked.reset()), (2, 2));
    parked.resume();
    assert_eq!((counters.dropped(TxDrop::Refused), pool.in_use()), (2, 1));
    device.start_at(0);
    assert_eq!(queue.tx_burst(&mut burst).packets, 1);
    assert_eq!(device.send()[0].bytes, bytes(3, 64));
    queue.tx_burst(&mut burst);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_was_dropped_when_it_was_taken_is_not_counted_again_when_the_queue_is_reset() {
    let pool = pool(64);
    let (mut queue, mut device, counters) = rig(&Plan { log: 4, descriptors: 8, ..Plan::default() }, &pool);
    let control = queue.control();
    // Places of the ring come round, so that some of what was dropped went home long ago.
    for round in 0..20 {
        let mut burst = burst_of(&pool, &[bytes(1, 64)]);
        burst.push(pool.alloc().expect("an empty one, which is malformed"));
        assert_eq!((queue.tx_burst(&mut burst).packets, burst.len()), (1, 0));
        if round == 19 {
            break;
        }
        device.send();
        queue.tx_burst(&mut Burst::new());
    }
    assert_eq!(counters.dropped(TxDrop::Malformed), 20);
    device.fail(0, Syndrome::LOCAL_PROT_ERR);
    queue.tx_burst(&mut Burst::new());
    let mut parked = control.take().expect("parked");
    parked.drain();
    assert_eq!(parked.reset(), 1, "the packet that was posted, and no other");
    parked.resume();
    assert_eq!((counters.dropped(TxDrop::Refused), counters.dropped(TxDrop::Malformed)), (1, 20));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_malformed_cqe_parks_and_says_what() {
    let cases = [
        (0x20_u8, 0, MalformedCqe::Opcode(2)),
        (0x0c, 0, MalformedCqe::Format),
        (0x00, 7, MalformedCqe::Counter),
    ];
    for (kind, wqe, what) in cases {
        let pool = pool(64);
        let (mut queue, mut device, _) = rig(&Plan::default(), &pool);
        queue.tx_burst(&mut burst_of(&pool, &[bytes(1, 64)]));
        let mut entry = Cqe64::fresh();
        entry.wqe_counter.set(wqe);
        device.write(entry, kind);
        queue.tx_burst(&mut Burst::new());
        assert_eq!(queue.control().health().trouble(), Some(Trouble::Malformed(what)));
        drop(queue);
        assert_eq!(pool.in_use(), 0);
    }
    // A completion that nobody asked for.
    let pool = pool(64);
    let (mut queue, mut device, _) = rig(&Plan::default(), &pool);
    device.complete(0);
    queue.tx_burst(&mut Burst::new());
    assert_eq!(queue.control().health().trouble(), Some(Trouble::Malformed(MalformedCqe::Counter)));
}

/// A packet of a property test: lengths of its mbufs, and what it asks for.
#[derive(Clone, Debug)]
struct Wish {
    parts: Vec<usize>,
    vlan: bool,
    sums: u8,
}

fn wish() -> impl Strategy<Value = Wish> {
    let parts = prop_oneof![
        4 => proptest::collection::vec(18..200_usize, 1..2),
        1 => proptest::collection::vec(1..1500_usize, 1..9),
    ];
    (parts, proptest::bool::weighted(0.2), 0..4_u8)
        .prop_filter("a header", |(parts, ..)| parts.iter().sum::<usize>() >= 18)
        .prop_map(|(parts, vlan, sums)| Wish { parts, vlan, sums })
}

fn make(pool: &MbufPool, seed: usize, wish: &Wish) -> (Mbuf, Vec<u8>, u8) {
    let mut whole = Vec::new();
    let mut packet: Option<Mbuf> = None;
    for (at, len) in wish.parts.iter().enumerate() {
        let data = bytes(seed + at, *len);
        let next = self::packet(pool, &data);
        whole.extend(data);
        match &mut packet {
            None => packet = Some(next),
            Some(first) => first.chain(next).expect("short"),
        }
    }
    let mut mbuf = packet.expect("one part or more");
    let mut flags = TxFlags::empty();
    flags.set(TxFlags::VLAN, wish.vlan);
    flags.set(TxFlags::IP_CHECKSUM, wish.sums & 1 != 0);
    flags.set(TxFlags::TCP_CHECKSUM, wish.sums & 2 != 0);
    mbuf.set_tx_flags(flags);
    mbuf.set_vlan_tci(seed as u16 & 0xfff);
    let sums = if wish.sums & 1 != 0 { sums::L3 } else { 0 } | if wish.sums & 2 != 0 { sums::L4 } else { 0 };
    (mbuf, whole, sums)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is sent, in whatever way: all of it arrives, in order, as it was, wherever the indices start.
    #[test]
    fn every_packet_arrives_as_it_was(
        wishes in proptest::collection::vec(wish(), 1..150),
        size in 1..50_usize,
        many in any::<bool>(), by_device in any::<bool>(), fast in any::<bool>(), blueflame in any::<bool>(),
        inline_min in prop_oneof![Just(0_usize), Just(18)],
        inline_max in prop_oneof![Just(0_usize), Just(64), Just(290), Just(930)],
        start in prop_oneof![Just(0_u32), Just(u32::MAX - 40), Just(0xffe0), any::<u32>()],
    ) {
        let pool = pool(2048);
        let mut features = all();
        features.set(TxFeatures::MULTI_PACKET, many);
        features.set(TxFeatures::VLAN_BY_DEVICE, by_device);
        features.set(TxFeatures::FAST_FREE, fast);
        let plan =
            Plan { log: 6, descriptors: 64, inline_min, inline_max, features, blueflame, ..Plan::default() };
        let (mut queue, mut device, counters) = rig(&plan, &pool);
        queue.inside().start_at(start);
        device.start_at(start);
        let mut want = std::collections::VecDeque::new();
        let check = |frames: Vec<Frame>, want: &mut std::collections::VecDeque<(Vec<u8>, u8)>| {
            for frame in frames {
                let whole = frame.vlan.map_or_else(|| frame.bytes.clone(), |tci| with_tag(&frame.bytes, tci));
                assert_eq!(Some((whole, frame.checksums)), want.pop_front());
                assert!(frame.inline >= inline_min);
            }
        };
        for (round, wishes) in wishes.chunks(size).enumerate() {
            let mut burst = Burst::new();
            for (at, wish) in wishes.iter().enumerate() {
                let seed = round * 64 + at;
                let (mbuf, whole, sums) = make(&pool, seed, wish);
                let whole = if wish.vlan { with_tag(&whole, seed as u16 & 0xfff) } else { whole };
                want.push_back((whole, sums));
                burst.push(mbuf);
            }
            let mut turns = 0;
            while !burst.is_empty() {
                queue.tx_burst(&mut burst);
                if turns > 0 || round % 3 == 0 {
                    check(device.send(), &mut want);
                }
                turns += 1;
                prop_assert!(turns < 200, "stuck: {:?}", queue.control().health());
            }
        }
        check(device.send(), &mut want);
        prop_assert!(want.is_empty());
        prop_assert_eq!(TxDrop::ALL.iter().map(|reason| counters.dropped(*reason)).sum::<u64>(), 0);
        for _ in 0..3 {
            queue.done_cleanup(0).expect("counted");
            device.send();
        }
        prop_assert_eq!(pool.in_use(), 0);
    }

    /// Whatever a device writes: no panic, nothing freed twice, all mbufs home.
    #[test]
    fn any_bytes_in_the_completion_ring(
        entries in proptest::collection::vec((any::<[u8; 64]>(), 0..4_u8), 1..60),
    ) {
        let pool = pool(256);
        let (mut queue, mut device, _) = rig(&Plan::default(), &pool);
        let control = queue.control();
        for (round, (bytes, mend)) in entries.into_iter().enumerate() {
            let mut burst = burst_of(&pool, &[self::bytes(round, 64)]);
            queue.tx_burst(&mut burst);
            let mut entry = Cqe64::read_from_bytes(&bytes).expect("64 bytes");
            if mend > 1 {
                entry.wqe_counter.set(entry.wqe_counter.get() & 7);
            }
            device.write(entry, if mend > 0 { 0 } else { bytes[63] & 0xfe });
            if let Some(mut parked) = control.take() {
                parked.drain();
                parked.reset();
                device.completed = parked.cq().consumer();
                parked.resume();
            }
        }
        drop(queue);
        prop_assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn every_burst_rings_the_register() {
    let pool = pool(64);
    let (mut queue, mut device, _) = rig(&Plan::default(), &pool);
    queue.tx_burst(&mut burst_of(&pool, &[bytes(1, 64)]));
    device.send();
    let rung = device.register(0);
    queue.tx_burst(&mut burst_of(&pool, &[bytes(2, 64)]));
    assert_ne!(device.register(0), rung);
}
