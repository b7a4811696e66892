//! Buffers that striding queues lend: the device knows them as long as one is in use, and no longer.

use pollux_mempool::{Burst, MbufPool};
use pollux_mlx5_kernel::DoorProfile;
use pollux_pmd_mlx::Arguments;
use pollux_port::PortConfig;

use crate::harness::{A, Pair, burst, frame, pool, received};

fn config(descriptors: u16, pool: &MbufPool) -> PortConfig {
    let mut config = PortConfig::queues(1, 1, pool);
    config.rx_queues[0].descriptors = descriptors;
    config
}

#[test]
fn buffers_are_registered_until_the_last_of_them_is_home() {
    const FRAMES: u32 = 5;
    for devx in [false, true] {
        let pair = Pair::new(DoorProfile::default());
        // Every packet is lent. Pools of other tests are none of this one's.
        let arguments = Arguments {
            devx,
            striding: true,
            striding_queues_min: 1,
            striding_copy_max: 0,
            register_pools: false,
            ..Arguments::default()
        };
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let (pool_a, pool_b) = (pool("a", 2047), pool("b", 2047));
        let mut queues_a = a.bring_up(PortConfig::queues(1, 1, &pool_a)).expect("up");
        let pinned = || pair.b.device.memory().pinned_bytes();
        let mut of_size: [Option<u64>; 2] = [None; 2];
        for round in 0..8 {
            let mut size = round % 2;
            let mut queues_b = b.bring_up(config([64, 1024][size], &pool_b)).expect("up");
            assert!(queues_b.rx[0].burst_mode().contains("striding"), "{}", queues_b.rx[0].burst_mode());
            assert_eq!(*of_size[size].get_or_insert(pinned()), pinned(), "round {round}: none is left over");

            // Packets that are kept outlive their queue, and leave by the next one's port.
            let frames: Vec<_> = (0..FRAMES).map(|number| frame([0xff; 6], A, number, 300)).collect();
            let mut sent = burst(&pool_a, &frames);
            assert_eq!(queues_a.tx[0].tx_burst(&mut sent), FRAMES as usize);
            pair.settle();
            let mut kept = Burst::new();
            assert_eq!(queues_b.rx[0].rx_burst(&mut kept, 32), FRAMES as usize);
            drop(queues_b);
            b.stop().expect("stops");
            size = 1 - size;
            let mut queues_b = b.bring_up(config([64, 1024][size], &pool_b)).expect("up");
            let with_lent = pinned();
            assert!(of_size[size].is_none_or(|without| with_lent > without), "the old buffers are in use");
            assert_eq!(queues_b.tx[0].tx_burst(&mut kept), FRAMES as usize);
            pair.settle();
            assert_eq!(received(&mut queues_a, 0), frames, "sent from where they were received");
            queues_b.tx[0].done_cleanup(0).expect("possible");
            assert!(pinned() < with_lent, "the last of the old buffers is home");
            assert_eq!(*of_size[size].get_or_insert(pinned()), pinned(), "round {round}");
            drop(queues_b);
            b.stop().expect("stops");
        }
        pair.b.assert_orderly();
        drop((queues_a, a, b));
        assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
    }
}
