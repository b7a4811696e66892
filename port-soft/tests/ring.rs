//! What is special about `net_ring`.

#[path = "tagged/burst.rs"]
mod tagged;

use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_port::driver::PortDriver;
use pollux_port::{Port, PortConfig, PortError, PortId, QueueId, Queues, TxQueueConfig};
use pollux_port_soft::ring;
use tagged::burst;

fn port(number: u16, name: &str, driver: impl PortDriver + 'static) -> Port {
    Port::new(PortId(number), name, Box::new(driver))
}

fn pool() -> MbufPool {
    MbufPool::builder("ring", 1024).build_anonymous().expect("memory")
}

fn tags(mbufs: &[Mbuf]) -> Vec<u8> {
    mbufs.iter().map(|mbuf| mbuf.data()[0]).collect()
}

#[test]
fn a_pair_is_cross_connected_queue_by_queue() {
    let pool = pool();
    let (left, right) = ring::pair("net_ring_a", "net_ring_b");
    let (mut left, mut right) = (port(0, "net_ring_a", left), port(1, "net_ring_b", right));
    let mut here = left.bring_up(PortConfig::queues(2, 2, &pool)).expect("comes up");
    let mut there = right.bring_up(PortConfig::queues(2, 2, &pool)).expect("comes up");
    let mut out = burst(&pool, 0..5);
    assert_eq!(here.tx[1].tx_burst(&mut out), 5);
    let mut back = burst(&pool, 10..13);
    assert_eq!(there.tx[0].tx_burst(&mut back), 3);

    let mut got = Burst::new();
    let mut poll = |queue: &mut pollux_port::RxQueue, wanted: usize| {
        got.clear();
        assert_eq!(queue.rx_burst(&mut got, 32), wanted);
        tags(&got)
    };
    assert_eq!(poll(&mut there.rx[1], 5), [0, 1, 2, 3, 4]);
    assert_eq!(poll(&mut here.rx[0], 3), [10, 11, 12]);
    poll(&mut here.rx[1], 0);
    poll(&mut there.rx[0], 0);
    assert_eq!((left.stats().obytes, right.stats().ibytes), (300, 300));
    drop((got, left, right, here, there));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_tx_queue_set_up_anew_reaches_a_far_end_that_stayed() {
    let pool = pool();
    let (left, right) = ring::pair("net_ring_a", "net_ring_b");
    let (mut left, mut right) = (port(0, "net_ring_a", left), port(1, "net_ring_b", right));
    let Queues { rx: here_rx, tx: here_tx } =
        left.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up");
    let mut there = right.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up");
    left.stop().expect("stops");
    drop(here_tx);
    let mut tx = left
        .tx_queue_setup_with(QueueId(0), TxQueueConfig { descriptors: 4, ..TxQueueConfig::default() })
        .expect("sets up again");
    left.start().expect("starts");
    let mut out = burst(&pool, 0..6);
    assert_eq!(tx.tx_burst(&mut out), 4, "four descriptors take four packets");
    assert_eq!(tags(&out), [4, 5]);
    let mut got = Burst::new();
    assert_eq!(there.rx[0].rx_burst(&mut got, 32), 4);
    assert_eq!(tags(&got), [0, 1, 2, 3]);
    assert_eq!(left.stats().obytes, 240, "bytes of those that were taken");
    drop((here_rx, tx, there, left, right, out, got));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn rings_of_the_application_become_a_port() {
    let pool = pool();
    let (mut feed, rx) = pollux_ring::spsc::ring(16).expect("memory");
    let (tx, mut drain) = pollux_ring::spsc::ring(16).expect("memory");
    let driver = ring::from_rings("net_ring7", vec![rx], vec![tx]).expect("one ring each");
    let mut port = port(7, "net_ring7", driver);
    let refused = port.configure(PortConfig::queues(2, 1, &pool));
    assert!(matches!(refused, Err(PortError::Limit { .. })), "{refused:?}");
    let mut queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up");
    let mut out = burst(&pool, 0..3);
    assert_eq!(feed.enqueue_bulk(&mut out).count, 3);
    let mut got = Burst::new();
    assert_eq!(queues.rx[0].rx_burst(&mut got, 32), 3);
    assert_eq!(queues.tx[0].tx_burst(&mut got), 3);

    // The ends outlive their queues.
    port.stop().expect("stops");
    drop(queues);
    let mut queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up again");
    let mut more = burst(&pool, 3..5);
    assert_eq!(queues.tx[0].tx_burst(&mut more), 2);
    assert_eq!(drain.dequeue_burst(&mut got, 32).count, 5);
    assert_eq!(tags(&got), [0, 1, 2, 3, 4]);
}
