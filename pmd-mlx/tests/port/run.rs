//! Queues that stop and start one by one.

use std::sync::atomic::{AtomicBool, Ordering};

use pollux_mempool::Burst;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::fault::FaultPlan;
use pollux_pmd_mlx::Arguments;
use pollux_port::{Direction, PortConfig, QueueId, Queues};

use crate::harness::{A, B, Pair, burst, frame, pool, received};

fn both() -> [Arguments; 2] {
    [Arguments { devx: false, ..Arguments::default() }, Arguments::default()]
}

const FIRST: QueueId = QueueId(0);

/// A configuration with so many queues, each of 128 descriptors.
fn small(rx: usize, tx: usize, pool: &pollux_mempool::MbufPool) -> PortConfig {
    let mut config = PortConfig::queues(rx, tx, pool);
    config.rx_queues.iter_mut().for_each(|queue| queue.descriptors = 128);
    config.tx_queues.iter_mut().for_each(|queue| queue.descriptors = 128);
    config
}

fn send(pair: &Pair, pool: &pollux_mempool::MbufPool, from: &mut Queues, number: u32) -> usize {
    let mut one = burst(pool, &[frame(B, A, number, 200)]);
    let sent = from.tx[0].tx_burst(&mut one);
    pair.settle();
    sent
}

#[test]
fn a_stopped_rx_queue_has_no_buffers_and_the_other_goes_on() {
    for arguments in both() {
        let pair = Pair::new(DoorProfile::default());
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(small(1, 1, &pool_a)).expect("up");
        let mut queues_b = b.bring_up(small(2, 0, &pool_b)).expect("up");
        assert_eq!(pool_b.in_use(), 256);
        // What is no IP goes to the first queue.
        assert_eq!(send(&pair, &pool_a, &mut queues_a, 1), 1);
        assert_eq!(received(&mut queues_b, 0).len(), 1);
        b.rx_queue_stop(QueueId(1)).expect("stops");
        // Entries are filled again many at a time: the one that was received into is empty.
        assert_eq!(pool_b.in_use(), 127, "its mbufs are home");
        send(&pair, &pool_a, &mut queues_a, 2);
        assert_eq!(received(&mut queues_b, 0).len(), 1, "the other goes on");

        // One waits, one comes later: neither is delivered.
        send(&pair, &pool_a, &mut queues_a, 3);
        b.rx_queue_stop(FIRST).expect("stops");
        b.rx_queue_stop(FIRST).expect("is stopped");
        assert_eq!(pool_b.in_use(), 0);
        send(&pair, &pool_a, &mut queues_a, 4);
        assert!(received(&mut queues_b, 0).is_empty());
        assert_eq!(
            (b.rx_queue_running(FIRST).ok(), queues_b.rx[0].queue_count().ok()),
            (Some(false), Some(0))
        );
        for _ in 0..3 {
            b.rx_queue_start(FIRST).expect("starts");
            send(&pair, &pool_a, &mut queues_a, 5);
            assert_eq!(received(&mut queues_b, 0), [frame(B, A, 5, 200)], "what comes from now on");
            b.rx_queue_stop(FIRST).expect("stops");
        }
        assert_eq!(b.stats().imissed, 1, "what waited and was not fetched is counted");

        // With the port all start that are not deferred.
        b.stop().expect("stops");
        b.start().expect("starts");
        assert_eq!((b.rx_queue_running(FIRST).ok(), pool_b.in_use()), (Some(true), 256));
        send(&pair, &pool_a, &mut queues_a, 6);
        assert_eq!(received(&mut queues_b, 0).len(), 1);
        pair.a.assert_orderly();
        pair.b.assert_orderly();
    }
}

#[test]
fn a_stopped_tx_queue_gives_its_mbufs_back() {
    for arguments in both() {
        // The device never says that it sent anything.
        let faults = FaultPlan { lose_completion: 1.0, ..FaultPlan::default() };
        let pair = Pair::with(DoorProfile::default(), |config| {
            let silent = config.name == "mlx5_model0";
            DeviceConfig { faults: if silent { faults.clone() } else { FaultPlan::default() }, ..config }
        });
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(small(0, 2, &pool_a)).expect("up");
        let mut queues_b = b.bring_up(small(1, 0, &pool_b)).expect("up");
        for number in 0..20 {
            assert_eq!(send(&pair, &pool_a, &mut queues_a, number), 1);
        }
        assert_eq!(pool_a.in_use(), 20, "nobody says that they are sent");
        a.tx_queue_stop(FIRST).expect("stops");
        assert_eq!(pool_a.in_use(), 0, "home");
        assert_eq!(received(&mut queues_b, 0).len(), 20);
        assert_eq!(send(&pair, &pool_a, &mut queues_a, 20), 0, "a stopped queue takes nothing");
        let mut one = burst(&pool_a, &[frame(B, A, 21, 100)]);
        assert_eq!(queues_a.tx[1].tx_burst(&mut one), 1, "the other does");
        a.tx_queue_start(FIRST).expect("starts");
        assert_eq!(send(&pair, &pool_a, &mut queues_a, 22), 1);
        assert_eq!(received(&mut queues_b, 0), [frame(B, A, 21, 100), frame(B, A, 22, 200)]);
        pair.a.assert_orderly();
    }
}

#[test]
fn deferred_queues_stand_still_after_every_start_of_the_port() {
    for arguments in both() {
        let pair = Pair::new(DoorProfile::default());
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut config = small(0, 1, &pool_a);
        config.tx_queues[0].deferred_start = true;
        let mut queues_a = a.bring_up(config).expect("up");
        let mut config = small(1, 0, &pool_b);
        config.rx_queues[0].deferred_start = true;
        let mut queues_b = b.bring_up(config).expect("up");
        for round in 0..2 {
            assert_eq!(send(&pair, &pool_a, &mut queues_a, round), 0);
            assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "nothing is the device's");
            a.tx_queue_start(FIRST).expect("starts");
            b.rx_queue_start(FIRST).expect("starts");
            assert_eq!(send(&pair, &pool_a, &mut queues_a, round), 1);
            assert_eq!(received(&mut queues_b, 0).len(), 1);
            for port in [&mut a, &mut b] {
                port.stop().expect("stops");
                port.start().expect("starts");
            }
        }
    }
}

#[test]
fn a_queue_stops_while_its_lcore_polls() {
    for arguments in both() {
        let pair = Pair::new(DoorProfile::default());
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        {
            let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
            let mut queues_a = a.bring_up(small(0, 1, &pool_a)).expect("up");
            let mut queues_b = b.bring_up(small(1, 0, &pool_b)).expect("up");
            let (done, came) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                let (rx, done, came) = (&mut queues_b.rx[0], &done, &came);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let mut burst = Burst::new();
                        if rx.rx_burst(&mut burst, 32) > 0 {
                            came.store(true, Ordering::Relaxed);
                        }
                    }
                });
                for number in 0..100 {
                    send(&pair, &pool_a, &mut queues_a, number);
                    b.rx_queue_stop(FIRST).expect("stops");
                    b.rx_queue_start(FIRST).expect("starts");
                }
                came.store(false, Ordering::Relaxed);
                send(&pair, &pool_a, &mut queues_a, 100);
                let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
                while !came.load(Ordering::Relaxed) && std::time::Instant::now() < end {
                    std::thread::yield_now();
                }
                done.store(true, Ordering::Relaxed);
            });
            assert!(came.load(Ordering::Relaxed), "it works as before");
            assert!(pool_b.in_use() <= 128, "{} buffers for 128 descriptors", pool_b.in_use());
            pair.b.assert_orderly();
        }
        assert_eq!((pool_a.in_use(), pool_b.in_use()), (0, 0), "every mbuf is home");
    }
}

#[test]
fn a_queue_is_dumped_through_the_port() {
    for arguments in both() {
        let pair = Pair::new(DoorProfile::default());
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        a.dump_queue(Direction::Tx, FIRST).expect_err("not configured");
        let mut queues_a = a.bring_up(small(1, 1, &pool_a)).expect("up");
        let _queues_b = b.bring_up(small(1, 1, &pool_b)).expect("up");
        assert_eq!(send(&pair, &pool_a, &mut queues_a, 1), 1);
        for (port, direction) in [(&mut a, Direction::Tx), (&mut b, Direction::Rx)] {
            let told = port.dump_queue(direction, FIRST).expect("it runs");
            assert!(told.starts_with("runs, last trouble: none (0 failed"), "{told}");
            let no_queue = port.dump_queue(direction, QueueId(1)).expect_err("one queue").to_string();
            assert!(no_queue.contains("mlx5_model") && no_queue.contains('1'), "{no_queue}");
        }
        a.tx_queue_stop(FIRST).expect("stops");
        b.rx_queue_stop(FIRST).expect("stops");
        let (tx, rx) = (a.dump_queue(Direction::Tx, FIRST), b.dump_queue(Direction::Rx, FIRST));
        let (tx, rx) = (tx.expect("it stands still"), rx.expect("it stands still"));
        assert!(tx.starts_with("number 0x") && tx.contains("0 packets pending; stopped"), "{tx}");
        assert!(rx.contains("128 entries, posted ") && rx.contains("stopped"), "{rx}");
        assert!([&tx, &rx].iter().all(|text| text.contains("\n  completions of 0x")), "{tx}\n{rx}");
    }
}

/// Records and rings of queues that are gone are used again: by then the device knows nothing of those queues.
#[test]
fn a_port_is_configured_anew_with_other_queues() {
    for arguments in both() {
        let pair = Pair::new(DoorProfile::default());
        let (pool_a, pool_b) = (pool("a", 2048), pool("b", 2048));
        let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
        let mut queues_a = a.bring_up(small(0, 1, &pool_a)).expect("up");
        for (round, count) in [2, 1, 3].into_iter().enumerate() {
            let mut queues_b = b.bring_up(small(count, count, &pool_b)).expect("up");
            // Past the end of the completion ring.
            for number in 0..200 {
                assert_eq!(send(&pair, &pool_a, &mut queues_a, number), 1);
                assert_eq!(received(&mut queues_b, 0), [frame(B, A, number, 200)], "round {round}");
            }
            b.stop().expect("stops");
            drop(queues_b);
            assert_eq!(pool_b.in_use(), 0);
        }
    }
}
