//! Every way of receiving and sending, on the device model: the same frames come out whatever the way.

use pollux_mempool::{Burst, Mbuf, MbufPool, RxFlags, TxFlags, TxOffload};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::Visibility;
use pollux_mlx5_model::ledger::Crossing;
use pollux_pmd_mlx::Arguments;
use pollux_pmd_mlx::devargs::Compression;
use pollux_port::{PortConfig, RxOffloads, TxOffloads};

use crate::harness::{Pair, burst, frame, pool};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// A way: what it is called, the arguments, data room of mbufs, and what modes must come of it.
type Way = (&'static str, Arguments, usize, (&'static str, &'static str));

fn ways() -> Vec<Way> {
    let base = Arguments { compression: Compression::Off, multi_packet: Some(true), ..Arguments::default() };
    let vector = if pollux_eal::simd::SimdWidth::detect() >= pollux_eal::simd::SimdWidth::Bits256 {
        "avx2"
    } else {
        ""
    };
    let inline = Arguments { inline_queues_min: 1, ..base.clone() };
    let striding = Arguments {
        striding: true,
        striding_queues_min: 1,
        strides_log2: 3,
        stride_bytes_log2: Some(11),
        ..base.clone()
    };
    vec![
        ("vector, eMPW", base.clone(), 2176, (vector, "empw")),
        ("scalar", Arguments { rx_vector: false, ..base.clone() }, 2176, ("scalar", "")),
        ("compressed by hash", Arguments { compression: Compression::Hash, ..base.clone() }, 2176, ("", "")),
        (
            "compressed by tag",
            Arguments { compression: Compression::FlowTag, ..base.clone() },
            2176,
            ("", ""),
        ),
        (
            "compressed by headers",
            Arguments { compression: Compression::Header, ..base.clone() },
            2176,
            ("", ""),
        ),
        (
            "compressed by checksum",
            Arguments { compression: Compression::Checksum, ..base.clone() },
            2176,
            ("", ""),
        ),
        ("completions of 128 bytes", Arguments { cqe_bytes: 128, ..base.clone() }, 2176, ("", "")),
        ("striding", striding.clone(), 2176, ("striding", "")),
        (
            "striding, compressed",
            Arguments { compression: Compression::Hash, striding_copy_max: 0, ..striding },
            2176,
            ("striding", ""),
        ),
        ("scatter", base.clone(), 512, ("scatter", "")),
        ("plain entries", Arguments { multi_packet: Some(false), ..base.clone() }, 2176, ("", "plain")),
        (
            "inlined alone",
            Arguments { multi_packet: Some(false), inline_max: Some(200), ..inline.clone() },
            2176,
            ("", "plain"),
        ),
        ("inlined together", Arguments { inline_multi_max: Some(200), ..inline }, 2176, ("", "empw")),
        ("header inlined", Arguments { inline_min: Some(18), ..base.clone() }, 2176, ("", "plain")),
        ("kernel objects", Arguments { devx: false, ..base }, 2176, ("", "")),
    ]
}

fn small_pool(name: &str, room: usize) -> MbufPool {
    MbufPool::builder(name, 4095).data_room(room).cache(0).build_anonymous().expect("a pool")
}

#[test]
fn frames_are_as_they_were_in_every_way() {
    let strictest_and_any = |way| [(Visibility::ReadyWordFirst, way), (Visibility::AnyOrder(3), way)];
    let ways = ways();
    let ways = ways.iter().flat_map(strictest_and_any);
    for (visibility, (name, arguments, room, (rx_mode, tx_mode))) in ways {
        let pair = Pair::new(DoorProfile::default()).seen(visibility);
        let (from, to) = (pool("from", 2048), small_pool("to", *room));
        {
            let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments.clone()));
            let mut config = PortConfig::queues(1, 1, &from);
            config.tx_queues[0].descriptors = 128;
            let mut queues_a = a.bring_up(config).expect("up");
            let mut config = PortConfig::queues(1, 1, &to);
            config.rx_queues[0].descriptors = 64;
            if *room < 1600 {
                config.rx_offloads = RxOffloads::SCATTER;
            }
            let mut queues_b = b.bring_up(config).expect("up");
            let modes = (queues_b.rx[0].burst_mode(), queues_a.tx[0].burst_mode());
            assert!(modes.0.starts_with(*rx_mode) && modes.1.starts_with(*tx_mode), "{name}: {modes:?}");
            let mut chance = Chance(7);
            let mut number = 0;
            // Rings of 64 and 128 entries wrap a hundred times.
            for round in 0..400 {
                let alike = chance.below(2) == 0;
                let bytes = 60 + chance.below(1455);
                let frames: Vec<Vec<u8>> = (0..1 + chance.below(40))
                    .map(|_| {
                        number += 1;
                        frame(B, A, number, if alike { bytes } else { 60 + chance.below(1455) })
                    })
                    .collect();
                let mut sent = burst(&from, &frames);
                assert_eq!(queues_a.tx[0].tx_burst(&mut sent), frames.len(), "{name} round {round}");
                pair.settle();
                let mut got = Vec::new();
                for _ in 0..60 {
                    let mut burst = Burst::new();
                    if queues_b.rx[0].rx_burst(&mut burst, 1 + chance.below(40)) == 0 {
                        break;
                    }
                    got.extend(
                        burst.iter().map(|mbuf| mbuf.segments().flatten().copied().collect::<Vec<u8>>()),
                    );
                    pair.settle();
                }
                assert_eq!(got.len(), frames.len(), "{name} round {round}: {:?}", queues_b.rx[0]);
                assert_eq!(got, frames, "{name} round {round}");
            }
            pair.a.assert_orderly();
            pair.b.assert_orderly();
        }
        assert_eq!((from.in_use(), to.in_use()), (0, 0), "{name}: every mbuf is home");
    }
}

/// The ones' complement sum of the Internet checksum, folded; 0xffff over right data with its checksum inside.
fn sum(parts: &[&[u8]]) -> u16 {
    let whole: Vec<u8> = parts.concat();
    let total: u32 = whole
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
        .sum();
    let folded = (total & 0xffff) + (total >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// A TCP segment over IPv4, its checksums not filled in (that of the pseudo header is, as senders with offloads have it).
fn tcp(payload: &[u8]) -> Vec<u8> {
    let total = (40 + payload.len()) as u16;
    let mut frame =
        [&B[..], &A, &[8, 0, 0x45, 0], &total.to_be_bytes(), &[0, 1, 0x40, 0, 64, 6, 0, 0]].concat();
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let pseudo = sum(&[&frame[26..34], &[0, 6], &(total - 20).to_be_bytes()]);
    frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
    frame.extend(payload);
    frame
}

fn assert_checksums(frame: &[u8]) {
    assert_eq!(sum(&[&frame[14..34]]), 0xffff, "the header's checksum");
    let length = (frame.len() - 34) as u16;
    assert_eq!(sum(&[&frame[26..34], &[0, 6], &length.to_be_bytes(), &frame[34..]]), 0xffff, "the segment's");
}

#[test]
fn offloads_from_one_end_to_the_other() {
    let multi = [Some(true), Some(false)];
    for (devx, multi_packet, inline_min) in
        multi.into_iter().flat_map(|many| [(true, many, None), (false, many, None), (true, many, Some(18))])
    {
        let arguments = Arguments { devx, multi_packet, inline_min, ..Arguments::default() };
        let pair = Pair::new(DoorProfile::default());
        let pool = pool("offloads", 4095);
        {
            let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments.clone()));
            let tx_offloads =
                TxOffloads::CHECKSUM | TxOffloads::VLAN_INSERT | TxOffloads::TCP_TSO | TxOffloads::MULTI_SEGS;
            let rx_offloads = RxOffloads::CHECKSUM | RxOffloads::VLAN_STRIP | RxOffloads::RSS_HASH;
            let config = |pool| PortConfig { tx_offloads, rx_offloads, ..PortConfig::queues(1, 1, pool) };
            let mut queues_a = a.bring_up(config(&pool)).expect("up");
            let mut queues_b = b.bring_up(config(&pool)).expect("up");
            let mut send = |mbuf: Mbuf| {
                let mut sent = Burst::new();
                sent.push(mbuf);
                assert_eq!(queues_a.tx[0].tx_burst(&mut sent), 1);
                pair.settle();
                let mut got = Burst::new();
                queues_b.rx[0].rx_burst(&mut got, 32);
                got
            };
            let make = |data: &[u8]| {
                let mut mbuf = pool.alloc().expect("an mbuf");
                assert!(mbuf.append_slice(data));
                mbuf
            };
            let asked = TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::TCP_CHECKSUM;
            let offload = TxOffload { l2_len: 14, l3_len: 20, l4_len: 20, ..TxOffload::default() };
            let good = RxFlags::IP_CHECKSUM_GOOD | RxFlags::L4_CHECKSUM_GOOD;

            // Checksums filled in there, found good here; and not good where nobody filled them in.
            let plain = tcp(b"hello, checksum");
            let mut mbuf = make(&plain);
            mbuf.set_tx_flags(asked);
            mbuf.set_tx_offload(offload);
            let got = send(mbuf);
            assert_checksums(got[0].data());
            assert!(got[0].rx_flags().contains(good), "{:?}", got[0].rx_flags());
            let got = send(make(&plain));
            assert_eq!(got[0].data(), plain);
            assert!(!got[0].rx_flags().intersects(good), "{:?}", got[0].rx_flags());

            // A tag put in there, taken off here.
            let mut mbuf = make(&plain);
            mbuf.set_tx_flags(TxFlags::VLAN);
            mbuf.set_vlan_tci(0x2345);
            let got = send(mbuf);
            assert_eq!((got[0].data(), got[0].vlan_tci()), (&plain[..], 0x2345));
            assert!(got[0].rx_flags().contains(RxFlags::VLAN | RxFlags::VLAN_STRIPPED));

            // A payload of 3000 bytes in three mbufs, cut.
            let payload: Vec<u8> = (0..3000_u32).map(|at| (at / 7) as u8).collect();
            let whole = tcp(&payload);
            let mut mbuf = make(&whole[..54]);
            mbuf.chain(make(&whole[54..1554])).expect("short");
            mbuf.chain(make(&whole[1554..])).expect("short");
            mbuf.set_tx_flags(asked | TxFlags::TCP_SEGMENTATION);
            mbuf.set_tx_offload(TxOffload { tso_segment_bytes: 1400, ..offload });
            let got = send(mbuf);
            let lengths: Vec<usize> = got.iter().map(|mbuf| mbuf.data_len()).collect();
            assert_eq!(lengths, [1454, 1454, 254]);
            got.iter().for_each(|mbuf| assert_checksums(mbuf.data()));
            let joined: Vec<u8> = got.iter().flat_map(|mbuf| mbuf.data()[54..].to_vec()).collect();
            assert_eq!(joined, payload);
            pair.a.assert_orderly();
        }
        assert_eq!(pool.in_use(), 0);
    }
}

/// What the documentation of `eth::tx` reckons, seen by the model.
#[test]
fn the_bus_carries_what_was_reckoned() {
    let base = Arguments { multi_packet: Some(true), ..Arguments::default() };
    let inline = Arguments { inline_queues_min: 1, inline_multi_max: Some(100), ..base.clone() };
    let plain = Arguments { multi_packet: Some(false), ..base.clone() };
    // Bytes of entries that the device reads for a burst of 32 packets of 64 bytes, in whole blocks of 64, and of payload. Of
    // inlined packets 11, 11 and 10 stand in an entry, in 5 segments each.
    for (name, arguments, entries, payload) in [
        ("eMPW by pointers", base, (32 + 32 * 16_u64).next_multiple_of(64), 32 * 64),
        ("eMPW inline", inline, 960 + 960 + 832, 0),
        ("plain", plain, 32 * 64, 32 * 64),
    ] {
        let pair = Pair::new(DoorProfile::default());
        let pool = pool("ledger", 2047);
        let mut a = pair.a.open(arguments);
        let mut queues = a.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
        let before = pair.a.device.ledger().total();
        let frames: Vec<_> = (0..32).map(|number| frame(B, A, number, 64)).collect();
        assert_eq!(queues.tx[0].tx_burst(&mut burst(&pool, &frames)), 32);
        pair.settle();
        let spent = pair.a.device.ledger().total() - before;
        let of = |crossing| spent.of(crossing);
        assert_eq!(of(Crossing::SendPayload).bytes, payload, "{name}");
        assert_eq!((of(Crossing::Doorbell).transfers, of(Crossing::Doorbell).bytes), (1, 8), "{name}");
        assert_eq!(of(Crossing::Completion).transfers, 1, "{name}");
        assert_eq!(of(Crossing::SendEntry).bytes, entries, "{name}");
    }
}
