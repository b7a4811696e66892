//! Cards that lack something: the port does without, by objects of the kernel and of the firmware alike.

use pollux_mempool::{RxFlags, TxFlags};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::{DeviceConfig, Traits};
use pollux_pmd_mlx::Arguments;
use pollux_port::{PortConfig, RxOffloads, TxOffloads};

use crate::harness::{A, B, Pair, burst, frame, pool, received};

fn without(change: fn(&mut Traits)) -> Pair {
    Pair::with(DoorProfile::default(), |mut config: DeviceConfig| {
        change(&mut config.traits);
        config
    })
}

fn both() -> [Arguments; 2] {
    [false, true].map(|devx| Arguments { devx, ..Arguments::default() })
}

/// A frame of UDP over IPv4 from port `port`.
fn udp(port: u16) -> Vec<u8> {
    let mut frame = frame(B, A, 0, 80);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 66, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..42].copy_from_slice(&[0, 0, 0, 9, 0, 46, 0, 0]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame
}

#[test]
fn a_card_that_inserts_no_tags_finds_them_in_the_headers() {
    for arguments in both() {
        let pair = without(|traits| traits.vlan_insert = false);
        let pool = pool("p", 4096);
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let offered = PortConfig { tx_offloads: TxOffloads::VLAN_INSERT, ..PortConfig::queues(1, 1, &pool) };
        let mut queues_a = a.bring_up(offered).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
        for number in 0..4 {
            let sent = frame(B, A, number, 400);
            let mut one = burst(&pool, std::slice::from_ref(&sent));
            one[0].set_tx_flags(TxFlags::VLAN);
            one[0].set_vlan_tci(0x2345);
            assert_eq!(queues_a.tx[0].tx_burst(&mut one), 1);
            pair.settle();
            let tagged = [&sent[..12], &[0x81, 0, 0x23, 0x45], &sent[12..]].concat();
            assert_eq!(received(&mut queues_b, 0), [tagged]);
        }
        assert_eq!(a.stats().oerrors, 0);
    }
}

#[test]
fn a_card_that_matches_no_ip_version_spreads_by_the_ethernet_type() {
    for arguments in both() {
        let pair = without(|traits| traits.match_ip_version = false);
        let pool = pool("p", 8192);
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
        let config = PortConfig { rx_offloads: RxOffloads::RSS_HASH, ..PortConfig::queues(2, 1, &pool) };
        let mut queues_b = b.bring_up(config).expect("up");
        let mut came = [0; 2];
        for port in 0..32 {
            queues_a.tx[0].tx_burst(&mut burst(&pool, &[udp(port)]));
            pair.settle();
            for (queue, count) in queues_b.rx.iter_mut().zip(&mut came) {
                let mut got = pollux_mempool::Burst::new();
                queue.rx_burst(&mut got, 32);
                assert!(got.iter().all(|mbuf| mbuf.rx_flags().contains(RxFlags::RSS_HASH)));
                *count += got.len();
            }
        }
        assert!(came.iter().sum::<usize>() == 32 && came[0] > 0 && came[1] > 0, "{came:?}");
    }
}

#[test]
fn a_card_that_stamps_real_time_alone_has_its_queues_do_so() {
    for arguments in both() {
        let pair = without(|traits| traits.real_time_only = true);
        let pool = pool("p", 4096);
        let devx = arguments.devx;
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let stamps = b.info().rx_offloads.contains(RxOffloads::TIMESTAMP);
        assert!(!stamps, "stamps are ticks of a clock; devx {devx}");
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
        let sent = frame(B, A, 7, 200);
        queues_a.tx[0].tx_burst(&mut burst(&pool, std::slice::from_ref(&sent)));
        pair.settle();
        assert_eq!(received(&mut queues_b, 0), [sent]);
    }
}

#[test]
fn cards_whose_queues_stamp_ticks_offer_it() {
    for arguments in both() {
        for real_time_too in [false, true] {
            let pair = Pair::with(DoorProfile::default(), |mut config: DeviceConfig| {
                config.traits.real_time_too = real_time_too;
                config
            });
            let port = pair.b.open(arguments.clone());
            assert!(port.info().rx_offloads.contains(RxOffloads::TIMESTAMP), "{arguments:?} {real_time_too}");
            drop(port);
            assert_eq!(pair.b.kernel.abandoned(), 0, "what was tried is gone");
        }
    }
}
