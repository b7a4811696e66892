//! Every way of moving packets, each a test: more frames than there are entries, in bursts of several lengths, and no rule broken.
//!
//! `cargo xtask mutants` has the driver forget one step after the other, and each of these tests must find each of them
//! (`xtask/mutants/eth-modes.toml`), but for those that have no meaning in a mode.

use pollux_mempool::Burst;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::config::Profile;
use pollux_mlx5_model::{DeviceConfig, Visibility};
use pollux_pmd_mlx::Arguments;
use pollux_pmd_mlx::devargs::{Compression, DoorbellMapping};
use pollux_port::PortConfig;

use crate::harness::{A, B, Pair, burst, frame, pool};

fn usual() -> Arguments {
    Arguments::default()
}

fn plain() -> Arguments {
    Arguments { compression: Compression::Off, ..usual() }
}

/// Rings of entries that carry packets are longer: their owner bits do not come round in this test, those of the receive queue do.
fn inline() -> Arguments {
    Arguments { inline_queues_min: 1, ..plain() }
}

fn striding() -> Arguments {
    Arguments { striding: true, striding_queues_min: 1, ..usual() }
}

/// Sends frames from one port to the other, more than there are entries, and looks at each.
fn exchange(card: Profile, arguments: Arguments) {
    for visibility in [Visibility::ReadyWordFirst, Visibility::AnyOrder(1), Visibility::AnyOrder(2)] {
        exchange_seen(visibility, card, arguments.clone());
    }
}

fn exchange_seen(visibility: Visibility, card: Profile, arguments: Arguments) {
    let traits = card.traits();
    let pair =
        Pair::with(DoorProfile::default(), |config| DeviceConfig { traits, ..config }).seen(visibility);
    let pool = pool("modes", 2048);
    let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
    let mut config = PortConfig::queues(1, 1, &pool);
    (config.rx_queues[0].descriptors, config.tx_queues[0].descriptors) = (64, 64);
    let mut queues_a = a.bring_up(config.clone()).expect("up");
    let mut queues_b = b.bring_up(config).expect("up");
    for round in 0..120 {
        // Frames of one length, in one step: the model compresses their completions. Sessions of several lengths end in the
        // middle of older ones.
        let frames: Vec<_> =
            (0..3 + round * 7 % 14).map(|number| frame(B, A, round * 16 + number, 60)).collect();
        let mut sent = burst(&pool, &frames);
        let count = queues_a.tx[0].tx_burst(&mut sent);
        assert_eq!(count, frames.len(), "round {round}: frames taken");
        pair.settle();
        let mut got = Burst::new();
        queues_b.rx[0].rx_burst(&mut got, 64);
        let got: Vec<_> = got.iter().map(|mbuf| mbuf.data().to_vec()).collect();
        pair.a.assert_orderly();
        pair.b.assert_orderly();
        assert!(
            got == frames,
            "{visibility:?}, round {round}: {} of {} frames, some not as they were",
            got.len(),
            frames.len()
        );
    }
}

macro_rules! modes {
    ($($(#[$doc:meta])* $name:ident: $arguments:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            exchange(Profile::default(), $arguments);
        }
    )*};
}

modes! {
    /// DevX, vector, hash compression, eMPW, BlueFlame.
    ordinary: usual();
    kernel_objects: Arguments { devx: false, ..usual() };
    kernel_objects_uncompressed: Arguments { devx: false, ..plain() };
    scalar: Arguments { rx_vector: false, ..usual() };
    scalar_uncompressed: Arguments { rx_vector: false, ..plain() };
    checksum_compression: Arguments { compression: Compression::Checksum, ..usual() };
    tag_compression: Arguments { compression: Compression::FlowTag, ..usual() };
    header_compression: Arguments { compression: Compression::Header, ..usual() };
    enhanced_compression: Arguments { enhanced_compression: true, ..usual() };
    uncompressed: plain();
    striding_usual: striding();
    striding_copied: Arguments { striding_copy_max: 2048, ..striding() };
    striding_uncompressed: Arguments { compression: Compression::Off, ..striding() };
    one_packet_an_entry: Arguments { multi_packet: Some(false), ..usual() };
    inlined_many_an_entry: inline();
    inlined_one_an_entry: Arguments { multi_packet: Some(false), ..inline() };
    no_blueflame: Arguments { doorbell: DoorbellMapping::NonCached, ..usual() };
    completions_of_128_bytes: Arguments { cqe_bytes: 128, ..plain() };
}

#[test]
fn headers_inline_on_connectx_4_lx() {
    exchange(Profile::ConnectX4Lx, usual());
}
