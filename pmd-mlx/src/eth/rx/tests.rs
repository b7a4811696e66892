use pollux_mempool::dynamic::{Field, Flag};
use pollux_mempool::{Burst, MbufPool, PoolRegion, RxFlags};
use pollux_mlx5_abi::cqe::{Cqe64, MiniFormat};
use pollux_port::RxDrop;
use pollux_port::driver::{Alone, RxBurst, RxDescriptor};
use zerocopy::FromBytes;

use super::fake::{DELTA, Plan, Say, failed, pool, rig, try_rig, zone};
use super::*;
use crate::eth::parking::{MalformedCqe, Trouble};

mod joined;
mod parts;
mod random;
mod strides;

const WIDTHS: [SimdWidth; 4] =
    [SimdWidth::Scalar, SimdWidth::Bits128, SimdWidth::Bits256, SimdWidth::Bits512];

fn frame(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (seed * 31 + at * 7) as u8).collect()
}

fn say(seed: usize) -> Say {
    Say {
        hash: if seed.is_multiple_of(5) { 0 } else { (seed as u32).wrapping_mul(0x0101_0101) },
        tag: [0, 1, 77, 0xff_ffff, 0xab_cdef][seed % 5],
        vlan: seed.is_multiple_of(3).then_some(seed as u16 & 0xfff),
        time: seed as u64 * 1_000_003,
        l4_l3: [4 << 4 | 2 << 2, 2 << 4 | 1 << 2, 0x80 | 2 << 2, 0][seed % 4],
        ok: (seed % 8) as u8,
        joined: None,
    }
}

/// What came out, as bytes and marks.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    bytes: Vec<u8>,
    flags: RxFlags,
    kind: u32,
    hash: u32,
    mark: u32,
    vlan: u16,
    time: Option<u64>,
}

fn got(burst: &Burst) -> Vec<Got> {
    let field: Field<u64> = Field::register("rte_dynfield_timestamp").expect("room");
    let flag = Flag::register("rte_dynflag_rx_timestamp").expect("room");
    burst
        .iter()
        .map(|mbuf| {
            assert_eq!((mbuf.port(), mbuf.check()), (3, Ok(())));
            Got {
                bytes: mbuf.segments().flatten().copied().collect(),
                flags: mbuf.rx_flags(),
                kind: mbuf.packet_type().0,
                hash: if mbuf.rx_flags().contains(RxFlags::RSS_HASH) { mbuf.rss_hash() } else { 0 },
                mark: if mbuf.rx_flags().contains(RxFlags::MARK) { mbuf.mark() } else { 0 },
                vlan: if mbuf.rx_flags().contains(RxFlags::VLAN) { mbuf.vlan_tci() } else { 0 },
                time: mbuf.flag(flag).then(|| mbuf.field(field)),
            }
        })
        .collect()
}

fn receive_all(queue: &mut Alone<RxQueue>) -> Vec<Got> {
    let mut all = Vec::new();
    loop {
        let mut burst = Burst::new();
        let moved = queue.rx_burst(&mut burst, 32);
        assert_eq!(moved, Moved::of(&burst));
        if moved.packets == 0 {
            return all;
        }
        all.extend(got(&burst));
    }
}

/// A frame and what is told of it, with everything on.
fn expected(bytes: &[u8], say: Say) -> Got {
    let mut flags = RxFlags::empty();
    flags.set(RxFlags::IP_CHECKSUM_GOOD, say.ok & 2 != 0);
    flags.set(RxFlags::L4_CHECKSUM_GOOD, say.ok & 4 != 0);
    flags.set(RxFlags::RSS_HASH, say.hash != 0);
    flags.set(RxFlags::VLAN | RxFlags::VLAN_STRIPPED, say.vlan.is_some());
    flags.set(RxFlags::FLOW, say.tag != 0);
    flags.set(RxFlags::MARK, say.tag != 0 && say.tag != 0xff_ffff);
    let kind = [0x191, 0x2e1, 0x391, 0x1][match say.l4_l3 {
        0x48 => 0,
        0x24 => 1,
        0x88 => 2,
        _ => 3,
    }];
    Got {
        bytes: bytes.to_vec(),
        flags,
        kind,
        hash: say.hash,
        mark: if flags.contains(RxFlags::MARK) { say.tag - 1 } else { 0 },
        vlan: say.vlan.unwrap_or(0),
        time: Some(say.time),
    }
}

fn striding(copy: usize) -> Plan {
    Plan {
        log: 2,
        compressed: Some(MiniFormat::ChecksumStride),
        // 12 buffers of 8 strides of 256 bytes.
        striding: Some((12, 3, 8, copy)),
        ..Plan::default()
    }
}

#[test]
fn the_ring_is_as_the_device_reads_it() {
    let pool = pool(256);
    let (queue, device, _) = rig(&Plan::default(), &pool);
    assert_eq!(device.posted(), 64);
    let data = device.data(0, 0);
    assert_eq!(
        (data.byte_count.get() as usize, data.lkey.get()),
        (pool.data_room() - pool.headroom(), 0x1234_5601)
    );
    let address = data.addr.get().wrapping_sub(DELTA) as usize;
    let raw = pool.address_of(address).expect("of the pool");
    assert!(
        pool.addresses().any(|(mbuf, room)| mbuf == raw && room.as_ptr().addr() + pool.headroom() == address)
    );
    assert_eq!(pool.in_use(), 64);
    drop(queue);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn mbufs_of_several_regions_have_each_its_regions_key() {
    let pool = MbufPool::builder("regions", 80).cache(0).build_in((0..4).map(|_| zone(64 << 10)).collect());
    let pool = pool.expect("a pool of four zones");
    let (_queue, device, _) = rig(&Plan::default(), &pool);
    let regions = pool.regions();
    let mut seen = std::collections::BTreeSet::new();
    for entry in 0..64 {
        let data = device.data(entry, 0);
        let address = data.addr.get().wrapping_sub(DELTA) as usize;
        let is_in = |region: &PoolRegion| address.wrapping_sub(region.base.as_ptr().addr()) < region.bytes;
        let region = regions.iter().position(is_in).expect("memory of the pool");
        assert_eq!(data.lkey.get(), 0x1234_5601 + region as u32, "entry {entry}");
        seen.insert(region);
    }
    assert!(seen.len() > 1, "{seen:?}");
}

#[test]
fn a_frame_check_sequence_that_nobody_wants_is_cut_off() {
    for segments_log2 in [0, 2] {
        let pool = pool(512);
        let plan = Plan { crc: 4, segments_log2, features: RxFeatures::empty(), ..Plan::default() };
        let (mut queue, mut device, counters) = rig(&plan, &pool);
        for seed in 0..9 {
            device.receive(&frame(seed, 64 + seed), Say::default());
        }
        let got: Vec<_> = receive_all(&mut queue).into_iter().map(|got| got.bytes).collect();
        let want: Vec<_> = (0..9).map(|seed| frame(seed, 64 + seed)[..60 + seed].to_vec()).collect();
        assert_eq!(got, want, "2^{segments_log2} mbufs");
        assert_eq!(counters.dropped(RxDrop::TooLong), 0);
    }
}

#[test]
fn packets_come_in_order_with_all_that_is_told_of_them_over_every_wrap() {
    for cqe_bytes in [64, 128] {
        for simd in WIDTHS {
            let pool = pool(256);
            let plan = Plan { log: 5, cqe_bytes, simd, ..Plan::default() };
            let (mut queue, mut device, _) = rig(&plan, &pool);
            // More than 2^16 entries, so that the record wraps.
            let mut seed = 0;
            while seed < 70_000 {
                let count = 1 + seed % 23;
                let mut want = Vec::new();
                for _ in 0..count.min(device.posted() as usize) {
                    let bytes = frame(seed, 60 + seed % 100);
                    device.receive(&bytes, say(seed));
                    if seed % 97 < 24 {
                        want.push(expected(&bytes, say(seed)));
                    }
                    seed += 1;
                }
                if want.len() == count {
                    assert_eq!(receive_all(&mut queue), want);
                } else {
                    let mut burst = Burst::new();
                    while queue.rx_burst(&mut burst, 32).packets > 0 {}
                }
            }
            drop(queue);
            assert_eq!(pool.in_use(), 0);
        }
    }
}

#[test]
fn features_that_are_off_are_not_told() {
    for simd in WIDTHS {
        let pool = pool(256);
        for bits in 0..=RxFeatures::all().bits() {
            let features = RxFeatures::from_bits_truncate(bits);
            let plan = Plan { features, simd, ..Plan::default() };
            let (mut queue, mut device, _) = rig(&plan, &pool);
            let all = Say { tag: 5, hash: 9, vlan: Some(7), time: 3, l4_l3: 0x48, ok: 7, joined: None };
            for _ in 0..9 {
                device.receive(&frame(1, 64), all);
            }
            for got in receive_all(&mut queue) {
                let told = [
                    (got.kind != 0, RxFeatures::PACKET_TYPE),
                    (got.flags.contains(RxFlags::IP_CHECKSUM_GOOD), RxFeatures::CHECKSUM),
                    (got.flags.contains(RxFlags::RSS_HASH), RxFeatures::RSS_HASH),
                    (got.flags.contains(RxFlags::VLAN), RxFeatures::VLAN_STRIP),
                    (got.flags.contains(RxFlags::MARK), RxFeatures::MARK),
                    (got.time.is_some(), RxFeatures::TIMESTAMP),
                ];
                for (told, feature) in told {
                    assert_eq!(told, features.contains(feature), "{feature:?} of {features:?} {simd:?}");
                }
            }
        }
    }
}

#[test]
fn compressed_sessions_of_every_format_and_length() {
    for format in [
        MiniFormat::Hash,
        MiniFormat::Checksum,
        MiniFormat::FlowTagStride,
        MiniFormat::ChecksumStride,
        MiniFormat::HeaderStride,
    ] {
        for (segments_log2, simd, enhanced) in [
            (0, SimdWidth::Scalar, false),
            (0, SimdWidth::Bits128, false),
            (0, SimdWidth::detect(), false),
            (2, SimdWidth::Scalar, false),
            (0, SimdWidth::Scalar, true),
            (0, SimdWidth::detect(), true),
            (2, SimdWidth::Scalar, true),
        ] {
            let pool = pool(512);
            let compressed = Some(format);
            let plan = Plan { log: 5, segments_log2, compressed, enhanced, simd, ..Plan::default() };
            let (mut queue, mut device, _) = rig(&plan, &pool);
            for round in 0..200 {
                let count = (2 + round % 30).min(device.posted() as usize);
                let common = say(round);
                let (mut frames, mut want) = (Vec::new(), Vec::new());
                for at in 0..count {
                    let mut one = common;
                    match format {
                        MiniFormat::Hash if common.hash != 0 => one.hash = (round * 64 + at + 1) as u32,
                        MiniFormat::FlowTagStride => one.tag = say(at).tag,
                        MiniFormat::HeaderStride => one.l4_l3 = say(at).l4_l3,
                        _ => {}
                    }
                    let bytes = frame(round + at, 60 + at);
                    want.push(expected(&bytes, one));
                    frames.push((bytes, one));
                }
                device.receive_compressed(&frames, format);
                // A plain one behind it, in a ring where all is used now and then.
                if device.posted() > 0 {
                    device.receive(&frame(round, 77), say(round + 1));
                    want.push(expected(&frame(round, 77), say(round + 1)));
                }
                let mut all = Vec::new();
                // Small bursts stop in the middle of a session.
                while all.len() < want.len() {
                    let mut burst = Burst::new();
                    let packets = queue.rx_burst(&mut burst, 1 + round % 9).packets;
                    assert!(
                        packets > 0,
                        "{format:?} round {round}: {:?}",
                        queue.control().health().trouble()
                    );
                    all.extend(got(&burst));
                }
                assert_eq!(all, want);
                assert_eq!(receive_all(&mut queue), []);
            }
            drop(queue);
            assert_eq!(pool.in_use(), 0);
        }
    }
}

#[test]
fn long_packets_become_chains() {
    let pool = MbufPool::builder("small", 512).data_room(384).cache(0).build_anonymous().expect("pool");
    let plan = Plan { log: 4, segments_log2: 3, longest: 2000, crc: 4, ..Plan::default() };
    let (mut queue, mut device, counters) = rig(&plan, &pool);
    let first = pool.data_room() - pool.headroom();
    for bytes in [64, first - 1, first, first + 1, first + 4, first + pool.data_room() + 2, 2000, 2004] {
        let whole = frame(bytes, bytes);
        device.receive(&whole, say(1));
        let mut burst = Burst::new();
        assert_eq!(queue.rx_burst(&mut burst, 8).packets, 1);
        let want = expected(&whole[..bytes - 4], say(1));
        assert_eq!(got(&burst), [want], "{bytes} bytes");
        let segments = 1 + (bytes - 4).saturating_sub(first).div_ceil(pool.data_room());
        assert_eq!(burst[0].segment_count(), segments);
    }
    device.receive(&frame(1, 2005), say(1));
    assert_eq!(receive_all(&mut queue), []);
    assert_eq!(counters.dropped(RxDrop::TooLong), 1);
    assert_eq!(device.posted(), 16);
    // An empty pool costs packets and nothing else.
    let mut held = Burst::new();
    let mut all = Vec::new();
    while pool.alloc_up_to(&mut held, 64) > 0 {
        all.push(std::mem::take(&mut held));
    }
    device.receive(&frame(1, 1000), say(1));
    assert_eq!((receive_all(&mut queue), counters.dropped(RxDrop::NoMbuf)), (vec![], 1));
    drop((held, all));
    device.receive(&frame(2, 1000), say(1));
    assert_eq!(receive_all(&mut queue).len(), 1);
    drop(queue);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn frames_over_the_limit_are_dropped_and_counted() {
    for simd in WIDTHS {
        let pool = pool(256);
        let enhanced = simd == SimdWidth::Bits128;
        let compressed = Some(MiniFormat::Hash);
        let plan = Plan { longest: 100, compressed, enhanced, simd, ..Plan::default() };
        let (mut queue, mut device, counters) = rig(&plan, &pool);
        for (at, bytes) in [100, 101, 64, 500].into_iter().enumerate() {
            device.receive(&frame(at, bytes), say(1));
        }
        device.receive_compressed(&[(frame(1, 60), say(1)), (frame(2, 101), say(1))], MiniFormat::Hash);
        let lengths: Vec<usize> = receive_all(&mut queue).iter().map(|got| got.bytes.len()).collect();
        assert_eq!((lengths, counters.dropped(RxDrop::TooLong)), (vec![100, 64, 60], 3));
        // In the second group of four, and before it, none of which is lost.
        let bytes = [60, 61, 62, 63, 64, 65, 101, 66, 67];
        let frames: Vec<_> = bytes.into_iter().map(|bytes| (frame(bytes, bytes), say(1))).collect();
        device.receive_compressed(&frames, MiniFormat::Hash);
        let lengths: Vec<usize> = receive_all(&mut queue).iter().map(|got| got.bytes.len()).collect();
        assert_eq!(lengths, [60, 61, 62, 63, 64, 65, 66, 67]);
        assert_eq!(counters.dropped(RxDrop::TooLong), 4);
        drop(queue);
        assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn a_pool_that_runs_dry_is_counted_and_refilled_when_it_can() {
    let pool = pool(80);
    let (mut queue, mut device, counters) = rig(&Plan::default(), &pool);
    let mut held = Vec::new();
    for round in 0..64 {
        device.receive(&frame(round, 60), say(1));
    }
    for _ in 0..4 {
        let mut burst = Burst::new();
        queue.rx_burst(&mut burst, 32);
        held.push(burst);
    }
    assert_eq!(held.iter().map(|burst| burst.len()).sum::<usize>(), 64);
    assert!(counters.dropped(RxDrop::NoMbuf) > 0);
    assert_eq!((device.posted(), pool.available()), (16, 0));
    held.clear();
    device.receive(&frame(1, 60), say(1));
    assert_eq!(receive_all(&mut queue).len(), 1);
    assert!(device.posted() > 16, "refilled");
    drop(queue);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_ring_that_ran_empty_is_filled_when_mbufs_come_home() {
    for simd in WIDTHS {
        let pool = pool(64);
        let (mut queue, mut device, counters) = rig(&Plan { simd, ..Plan::default() }, &pool);
        for round in 0..64 {
            device.receive(&frame(round, 60), say(1));
        }
        let (mut one, mut two) = (Burst::new(), Burst::new());
        assert_eq!((queue.rx_burst(&mut one, 32).packets, queue.rx_burst(&mut two, 32).packets), (32, 32));
        for _ in 0..5 {
            assert_eq!(queue.rx_burst(&mut Burst::new(), 32), Moved::NONE);
        }
        assert_eq!((device.posted(), counters.dropped(RxDrop::NoMbuf)), (0, 1));
        drop((one, two));
        queue.rx_burst(&mut Burst::new(), 32);
        assert_eq!(device.posted(), 64);
    }
}

#[test]
fn a_queue_that_cannot_be_made_gives_all_back() {
    let small = pool(10);
    let (queue, _, _) = try_rig(&Plan::default(), &small);
    let refused = queue.expect_err("too few mbufs").to_string();
    assert!(refused.contains("10 of 64"), "{refused}");
    assert_eq!(small.in_use(), 0);
    let (queue, _, _) = try_rig(&Plan { longest: 9000, ..Plan::default() }, &pool(128));
    let refused = queue.expect_err("too long").to_string();
    assert!(refused.contains("9000") && refused.contains("SCATTER"), "{refused}");
}

#[test]
fn an_error_parks_the_queue_and_recovery_brings_it_back() {
    let enhanced = Plan { compressed: Some(MiniFormat::Hash), enhanced: true, ..Plan::default() };
    for plan in [
        Plan::default(),
        Plan { segments_log2: 1, ..Plan::default() },
        Plan { simd: SimdWidth::detect(), ..Plan::default() },
        striding(128),
        enhanced,
    ] {
        let pool = pool(256);
        let (mut queue, mut device, counters) = rig(&plan, &pool);
        let control = queue.control();
        device.receive(&frame(1, 200), say(1));
        device.fail(Syndrome::LOCAL_PROT_ERR);
        let mut burst = Burst::new();
        assert_eq!(queue.rx_burst(&mut burst, 32).packets, 1, "what came before the error is delivered");
        assert_eq!(control.health().trouble(), Some(failed(Syndrome::LOCAL_PROT_ERR)));
        assert_eq!((queue.rx_burst(&mut burst, 32), queue.queue_count().ok()), (Moved::NONE, Some(0)));
        // The rest is flushed.
        for _ in 0..device.posted().min(5) {
            device.fail(Syndrome::WR_FLUSH_ERR);
        }
        let mut parked = control.take().expect("parked");
        assert_eq!(parked.drain(), 1 + 5.min(if plan.striding.is_some() { 3 } else { 5 }));
        parked.reset();
        device.reset();
        assert_eq!(device.posted(), 0);
        let posted = parked.refill();
        parked.resume();
        assert_eq!((posted, device.posted()), (1 << plan.log, 1 << plan.log));
        for round in 0..200 {
            device.receive(&frame(round, 300), say(round));
            assert_eq!(receive_all(&mut queue), [expected(&frame(round, 300), say(round))]);
        }
        assert_eq!((control.health().recovered(), control.health().failed()), (1, 1));
        assert_eq!(counters.dropped(RxDrop::Malformed), 0);
        drop((burst, queue));
        assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn a_malformed_cqe_parks_and_says_what() {
    type Spoil = fn(&mut Cqe64) -> u8;
    let cases: [(Spoil, MalformedCqe); 6] = [
        (|_| 0x60, MalformedCqe::Opcode(6)),
        (|_| 0x20 | 1 << 2, MalformedCqe::Format),
        (|_| 0x20 | 2 << 2, MalformedCqe::Format),
        (
            |entry| {
                entry.wqe_counter.set(9);
                0x20
            },
            MalformedCqe::Counter,
        ),
        (
            |entry| {
                entry.byte_cnt.set(1 << 20);
                0x20
            },
            MalformedCqe::Length,
        ),
        (
            |entry| {
                entry.byte_cnt.set(0);
                0x20
            },
            MalformedCqe::Length,
        ),
    ];
    for simd in WIDTHS {
        for (spoil, what) in cases {
            let pool = pool(256);
            let (mut queue, mut device, _) = rig(&Plan { simd, ..Plan::default() }, &pool);
            let mut entry = Cqe64::fresh();
            entry.byte_cnt.set(60);
            entry.wqe_counter.set(0);
            let kind = spoil(&mut entry);
            device.complete_at(0, entry, kind);
            assert_eq!(receive_all(&mut queue), []);
            let control = queue.control();
            assert_eq!(control.health().trouble(), Some(Trouble::Malformed(what)));
            assert_eq!(control.health().malformed(), 1);
        }
    }
    // More in a session than are posted.
    let pool = pool(256);
    let plan = Plan { compressed: Some(MiniFormat::Hash), ..Plan::default() };
    let (mut queue, mut device, _) = rig(&plan, &pool);
    let mut entry = Cqe64::fresh();
    entry.byte_cnt.set(65);
    entry.wqe_counter.set(0);
    device.complete_at(0, entry, 0x20 | 3 << 2);
    assert_eq!(receive_all(&mut queue), []);
    assert_eq!(queue.control().health().trouble(), Some(Trouble::Malformed(MalformedCqe::Minis)));
    // Of the enhanced layout: an array of more than there is room for, and one without a title.
    for (first, minis, what) in [(true, 8, MalformedCqe::Minis), (false, 7, MalformedCqe::Untitled)] {
        let plan = Plan { enhanced: true, ..plan.clone() };
        let (mut queue, mut device, _) = rig(&plan, &pool);
        if first {
            device.receive(&frame(1, 60), say(1));
        }
        device.complete_at(0, Cqe64::fresh(), (minis - 1) << 4 | 3 << 2);
        assert_eq!(receive_all(&mut queue).len(), usize::from(first));
        assert_eq!(queue.control().health().trouble(), Some(Trouble::Malformed(what)));
    }
}

/// Of the enhanced layout a place that was a hole for 255 passes still holds what was written 256 passes ago, and says the
/// pass of now.
#[test]
fn no_hole_is_taken_for_news_after_all_passes_there_are() {
    let pool = pool(256);
    let plan = Plan { log: 4, compressed: Some(MiniFormat::Hash), enhanced: true, ..Plan::default() };
    let (mut queue, mut device, _) = rig(&plan, &pool);
    for at in 0..16 {
        device.receive(&frame(at, 60), say(1));
    }
    assert_eq!(receive_all(&mut queue).len(), 16);
    for pass in 1..256 {
        // Four titles, an array of three behind each: the same places are holes in all passes.
        for quarter in 0..4 {
            let frames: Vec<_> = (0..4).map(|at| (frame(pass + quarter + at, 60), say(1))).collect();
            device.receive_compressed(&frames, MiniFormat::Hash);
        }
        assert_eq!(receive_all(&mut queue).len(), 16, "pass {pass}");
    }
    for at in 0..16 {
        device.receive(&frame(at, 61), say(1));
        assert_eq!(receive_all(&mut queue), [expected(&frame(at, 61), say(1))], "place {at}");
    }
}

#[test]
fn counts_and_descriptors() {
    let pool = pool(256);
    let plan = Plan { compressed: Some(MiniFormat::Hash), ..Plan::default() };
    let (mut queue, mut device, _) = rig(&plan, &pool);
    device.receive(&frame(1, 60), say(1));
    device.receive_compressed(&[(frame(1, 60), say(1)), (frame(2, 60), say(1))], MiniFormat::Hash);
    assert_eq!(queue.queue_count().ok(), Some(3));
    let status = |queue: &RxQueue, at| queue.descriptor_status(at).expect("told");
    assert_eq!(
        [0, 2, 3, 63, 64].map(|at| status(&queue, at)),
        [
            RxDescriptor::Done,
            RxDescriptor::Done,
            RxDescriptor::Available,
            RxDescriptor::Available,
            RxDescriptor::Unavailable
        ]
    );
    let mut burst = Burst::new();
    queue.rx_burst(&mut burst, 2);
    assert_eq!(queue.queue_count().ok(), Some(1));
}

#[test]
fn nothing_of_a_session_is_read_again_a_pass_later() {
    let pool = pool(256);
    for enhanced in [false, true] {
        let plan = Plan { log: 4, compressed: Some(MiniFormat::Hash), enhanced, ..Plan::default() };
        let (mut queue, mut device, _) = rig(&plan, &pool);
        for round in 0..8 {
            let frames: Vec<_> = (0..16).map(|at| (frame(at, 60), say(1))).collect();
            device.receive_compressed(&frames, MiniFormat::Hash);
            assert_eq!(receive_all(&mut queue).len(), 16, "round {round}");
            assert_eq!(receive_all(&mut queue), [], "nothing stale in round {round}");
        }
    }
}
