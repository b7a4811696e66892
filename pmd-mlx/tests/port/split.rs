//! Packets in parts: what is dropped never crosses PCIe, and what cannot be is refused.

use pollux_mempool::{Burst, MbufPool};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::ledger::Crossing;
use pollux_pmd_mlx::Arguments;
use pollux_port::{PortConfig, PortError, RxOffloads, RxSegment};

use crate::harness::{A, B, Pair, burst, frame, pool};

fn part(pool: Option<&MbufPool>, length: u16) -> RxSegment {
    RxSegment { pool: pool.cloned(), length, offset: 0 }
}

fn config(pool: &MbufPool, segments: Vec<RxSegment>) -> PortConfig {
    let mut config = PortConfig { rx_offloads: RxOffloads::BUFFER_SPLIT, ..PortConfig::queues(1, 1, pool) };
    (config.rx_queues[0].descriptors, config.rx_queues[0].segments) = (64, segments);
    config
}

#[test]
fn what_is_dropped_never_crosses_pcie() {
    const FRAMES: u32 = 20;
    for devx in [false, true] {
        let pair = Pair::new(DoorProfile::default());
        let (pool_a, pool_b) = (pool("a", 2047), pool("b", 2047));
        // Striding is asked for, and is not for packets in parts.
        let arguments = Arguments { devx, striding: true, striding_queues_min: 1, ..Arguments::default() };
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut sender = a.bring_up(PortConfig::queues(0, 1, &pool_a)).expect("up");
        let segments = vec![part(Some(&pool_b), 64), part(None, 0)];
        let mut receiver = b.bring_up(config(&pool_b, segments)).expect("up");
        assert_eq!(receiver.rx[0].burst_mode(), "split");
        let before = pair.b.device.ledger().total();
        let frames: Vec<_> = (0..FRAMES).map(|number| frame(B, A, number, 1500)).collect();
        assert_eq!(sender.tx[0].tx_burst(&mut burst(&pool_a, &frames)), frames.len());
        pair.settle();
        let mut got = Burst::new();
        assert_eq!(receiver.rx[0].rx_burst(&mut got, 32), frames.len());
        for (mbuf, frame) in got.iter().zip(&frames) {
            assert_eq!((mbuf.data(), mbuf.pkt_len()), (&frame[..64], 64));
        }
        let crossed = (pair.b.device.ledger().total() - before).of(Crossing::ReceivePayload).bytes;
        assert_eq!(crossed, u64::from(FRAMES) * 64);
        pair.b.assert_orderly();
    }
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let try_with = |null_key: bool, segments: Vec<RxSegment>, pool: &MbufPool| {
        let pair = Pair::with(DoorProfile::default(), |mut config| {
            config.traits.dump_fill_key = null_key;
            config
        });
        pair.a.open(Arguments::default()).bring_up(config(pool, segments)).map(drop).expect_err("refused")
    };
    let usual = pool("usual", 2047);
    let error = try_with(false, vec![part(Some(&usual), 64), part(None, 0)], &usual);
    assert!(error.is_unsupported() && error.to_string().contains("without a pool"), "{error}");
    // Parts so short that a frame would need more of them than an entry has.
    let short = vec![part(Some(&usual), 8); 32];
    let tiny = MbufPool::builder("tiny", 4095).data_room(160).cache(0).build_anonymous().expect("a pool");
    let mut segments = short;
    segments[31] = part(Some(&tiny), 0);
    let error = try_with(true, segments, &usual);
    assert!(matches!(error, PortError::Argument { .. }) && error.to_string().contains("32 parts"), "{error}");
    // A pool that is too small for all parts that it serves.
    let few = pool("few", 63);
    let error = try_with(true, vec![part(Some(&few), 64), part(Some(&few), 0)], &usual);
    assert!(matches!(&error, PortError::PoolTooSmall { has: 63, needs: 64, .. }), "{error}");
}
