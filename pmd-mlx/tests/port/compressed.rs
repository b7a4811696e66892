//! Short completions with the types of headers: packets of several kinds share a session, and each is told as what it is.

use pollux_mempool::Burst;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::ledger::Crossing;
use pollux_mlx5_model::{DeviceConfig, Traits};
use pollux_pmd_mlx::Arguments;
use pollux_pmd_mlx::devargs::Compression;
use pollux_port::{PortConfig, RxOffloads};

use crate::harness::{A, B, Pair, burst, pool};

/// Packet types as mbufs have them. Source: DPDK `lib/mbuf/rte_mbuf_ptype.h`.
const UDP4: u32 = 0x1 | 0x90 | 0x200;
const TCP4: u32 = 0x1 | 0x90 | 0x100;

/// UDP or TCP over IPv4; no checksum is right, so that they differ in their types alone.
fn packet(protocol: u8) -> Vec<u8> {
    let mut frame = [&B[..], &A, &[8, 0, 0x45, 0, 0, 46, 0, 1, 0, 0, 64, protocol, 1, 1]].concat();
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 4, 1, 0, 26, 1, 1]);
    frame.resize(60, 0x50);
    frame
}

/// Bytes of completions that so many packets of alternating kinds cost, whose types are looked at.
fn completions(arguments: Arguments, card: fn(&mut Traits)) -> u64 {
    let compression = arguments.compression;
    let pair = Pair::with(DoorProfile::default(), |config| {
        let mut traits = config.traits;
        card(&mut traits);
        DeviceConfig { traits, ..config }
    });
    let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
    let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
    let mut sender = a.bring_up(PortConfig::queues(0, 1, &pool_a)).expect("up");
    let config = PortConfig { rx_offloads: RxOffloads::CHECKSUM, ..PortConfig::queues(1, 0, &pool_b) };
    let mut receiver = b.bring_up(config).expect("up");
    let frames: Vec<_> = (0..PACKETS).map(|at| packet(if at % 2 == 0 { 17 } else { 6 })).collect();
    let before = pair.b.device.ledger().total();
    let mut sent = burst(&pool_a, &frames);
    assert_eq!(sender.tx[0].tx_burst(&mut sent), PACKETS);
    pair.settle();
    let mut got = Burst::new();
    assert_eq!(receiver.rx[0].rx_burst(&mut got, 32), PACKETS);
    for (at, mbuf) in got.iter().enumerate() {
        assert_eq!(
            mbuf.packet_type().0,
            if at % 2 == 0 { UDP4 } else { TCP4 },
            "{compression:?}, packet {at}"
        );
        assert_eq!(mbuf.data(), frames[at]);
    }
    pair.b.assert_orderly();
    (pair.b.device.ledger().total() - before).of(Crossing::Completion).bytes
}

const PACKETS: usize = 24;

fn arguments(compression: Compression, devx: bool) -> Arguments {
    Arguments { compression, devx, ..Arguments::default() }
}

#[test]
fn packets_of_several_kinds_share_a_session() {
    // A title and three arrays, where one session has room for all.
    let one = 64 + 3 * 64;
    let alone = 64 * PACKETS as u64;
    let of = |compression, devx| completions(arguments(compression, devx), |_| ());
    assert_eq!(of(Compression::Hash, true), alone, "each kind ends the other's session");
    assert_eq!(of(Compression::Header, true), one);
    // Where there is no such form, the usual one does.
    assert_eq!(of(Compression::Header, false), alone, "the kernel knows it not");
    let lacks = |card: &mut Traits| card.mini_cqe_tags = false;
    assert_eq!(completions(arguments(Compression::Header, true), lacks), alone);
}

#[test]
fn in_the_enhanced_layout_arrays_of_seven_follow_their_title() {
    let enhanced = |devx| Arguments { enhanced_compression: true, ..arguments(Compression::Header, devx) };
    // A plain title, and 23 packets in four arrays.
    assert_eq!(completions(enhanced(true), |_| ()), 64 + 4 * 64);
    // Where there is no such layout, the basic one does.
    let one = 64 + 3 * 64;
    assert_eq!(completions(enhanced(true), |card| card.enhanced_cqe_compression = false), one);
    assert_eq!(completions(enhanced(false), |_| ()), 64 * PACKETS as u64, "objects of the kernel");
}
