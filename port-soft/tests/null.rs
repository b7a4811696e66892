//! What is special about `net_null`.

use pollux_mempool::{Burst, MbufPool};
use pollux_port::driver::PortDriver;
use pollux_port::{Port, PortConfig, PortError, PortId, Queues, RxDrop};
use pollux_port_soft::null::{NullOptions, NullPort};

fn open(options: NullOptions) -> Port {
    let driver = NullPort::new("net_null0", options).expect("good options");
    Port::new(PortId(3), "net_null0", Box::new(driver))
}

fn pool(count: usize) -> MbufPool {
    MbufPool::builder("null", count).build_anonymous().expect("memory")
}

#[test]
fn packets_come_from_nowhere_and_go_there() {
    let pool = pool(256);
    let mut port = open(NullOptions { size: 100, ..NullOptions::default() });
    let Queues { mut rx, mut tx } = port.bring_up(PortConfig::queues(2, 1, &pool)).expect("starts");
    let mut burst = Burst::new();
    assert_eq!(rx[1].rx_burst(&mut burst, 32), 32);
    assert!(burst.iter().all(|mbuf| mbuf.data_len() == 100 && mbuf.pkt_len() == 100 && mbuf.port() == 3));
    assert_eq!(tx[0].tx_burst(&mut burst), 32);
    assert!(burst.is_empty());
    let stats = port.stats();
    assert_eq!((stats.ipackets, stats.ibytes, stats.opackets, stats.obytes), (32, 3200, 32, 3200));
    assert_eq!((stats.rx_queues[0].packets, stats.rx_queues[1].packets), (0, 32));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn an_empty_pool_is_counted() {
    let pool = pool(20);
    let mut port = open(NullOptions::default());
    let Queues { mut rx, .. } = port.bring_up(PortConfig::queues(1, 0, &pool)).expect("starts");
    let mut burst = Burst::new();
    assert_eq!(rx[0].rx_burst(&mut burst, 32), 20);
    assert_eq!(port.stats().rx_nombuf, 12);
    assert_eq!(rx[0].counters().dropped(RxDrop::NoMbuf), 12);
    assert_eq!(port.dropped()[0].reason, "no mbuf");
}

#[test]
fn copy_writes_the_frame_and_no_rx_receives_none() {
    let pool = pool(64);
    let mut dirty = pool.alloc().expect("fresh pool");
    dirty.append(64).expect("room").fill(0xee);
    drop(dirty);
    let mut port = open(NullOptions { copy: true, ..NullOptions::default() });
    let Queues { mut rx, mut tx } = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("starts");
    let mut burst = Burst::new();
    assert_eq!(rx[0].rx_burst(&mut burst, 64), 64);
    assert!(burst.iter().all(|mbuf| mbuf.data() == [0; 64]));
    assert_eq!(tx[0].tx_burst(&mut burst), 64);

    let mut port = open(NullOptions { no_rx: true, ..NullOptions::default() });
    let Queues { mut rx, .. } = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("starts");
    assert_eq!(rx[0].rx_burst(&mut burst, 64), 0);
    assert_eq!(port.stats().rx_nombuf, 0);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for size in [0, 13, 65_536] {
        let refused = NullPort::new("net_null0", NullOptions { size, ..NullOptions::default() });
        assert!(matches!(refused, Err(PortError::Limit { .. })), "{size}");
    }
    let mut port = open(NullOptions { size: 4000, ..NullOptions::default() });
    let refused = port.bring_up(PortConfig::queues(1, 1, &pool(64)));
    assert!(matches!(refused, Err(PortError::RoomTooSmall { has: 2048, needs: 4000, .. })), "{refused:?}");
}

#[test]
fn addresses_follow_the_name() {
    let mac = |name: &str| {
        NullPort::new(name, NullOptions::default()).expect("good").mac_address().expect("has one")
    };
    assert_ne!(mac("net_null0"), mac("net_null1"));
    assert_eq!(mac("net_null0"), mac("net_null0"));
}

#[test]
fn recycled_buffers_keep_a_port_going_whose_pool_is_empty() {
    let pool = pool(64);
    let mut port = open(NullOptions { size: 100, copy: true, ..NullOptions::default() });
    let Queues { mut rx, mut tx } = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("starts");
    let (mut burst, mut spare) = (Burst::new(), Burst::new());
    assert_eq!(tx[0].recycle(&mut spare).ok(), Some(0));
    assert_eq!(rx[0].rx_burst(&mut burst, 32), 32);
    assert_eq!(tx[0].tx_burst(&mut burst), 32);
    let hoard: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!((hoard.len(), pool.available()), (32, 0));
    for _ in 0..100 {
        assert_eq!(tx[0].recycle(&mut spare).ok(), Some(32));
        for mbuf in &mut spare {
            // What the last packet left behind must not show.
            mbuf.set_vlan_tci(7);
            mbuf.adj(50);
        }
        assert_eq!(rx[0].refill(&mut spare).ok(), Some(32));
        assert_eq!(rx[0].rx_burst(&mut burst, 32), 32);
        assert!(burst.iter().all(|mbuf| {
            mbuf.data() == [0; 100]
                && mbuf.pkt_len() == 100
                && mbuf.headroom() == pool.headroom()
                && mbuf.port() == 3
        }));
        assert_eq!(tx[0].tx_burst(&mut burst), 32);
    }
    assert_eq!(port.stats().rx_nombuf, 0);
    assert_eq!(tx[0].done_cleanup(2).ok(), Some(2));
    assert_eq!((tx[0].done_cleanup(0).ok(), tx[0].done_cleanup(0).ok()), (Some(30), Some(0)));
    assert_eq!(pool.available(), 32);
}
