//! Frames from one port to another, through either back end and every kind of door.

use pollux_mlx5_kernel::DoorProfile;
use pollux_pmd_mlx::Arguments;
use pollux_port::PortConfig;

use crate::harness::{Pair, burst, frame, pool, received};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn exchange(profile: DoorProfile, arguments: &Arguments) {
    let pair = Pair::new(profile);
    let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
    {
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments.clone()));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
        let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool_b)).expect("up");
        for round in 0..100_u32 {
            let frames: Vec<Vec<u8>> =
                (0..16).map(|number| frame(B, A, round * 16 + number, 60 + number as usize * 40)).collect();
            let mut sent = burst(&pool_a, &frames);
            assert_eq!(queues_a.tx[0].tx_burst(&mut sent), 16, "round {round}");
            pair.settle();
            assert_eq!(received(&mut queues_b, 0), frames, "round {round}");
            let mut back = burst(&pool_b, &frames[..3]);
            assert_eq!(queues_b.tx[0].tx_burst(&mut back), 3);
            pair.settle();
            assert_eq!(received(&mut queues_a, 0).len(), 0, "not for this port");
        }
        a.stop().expect("stopped");
        b.stop().expect("stopped");
        pair.a.assert_orderly();
        pair.b.assert_orderly();
    }
    assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
}

#[test]
fn frames_pass_through_kernel_objects() {
    exchange(DoorProfile::default(), &Arguments { devx: false, ..Arguments::default() });
}

#[test]
fn frames_pass_through_firmware_objects() {
    exchange(DoorProfile::default(), &Arguments::default());
}
