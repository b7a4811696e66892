//! Checks of offloads.

use super::{Feed, Fixture, Rig, config, first, new_pool, opened};
use crate::{Direction, PortConfig, PortError, RxOffloads, RxQueueConfig, TxOffloads, TxQueueConfig};

/// Each offload can be on or off where it is offered, and is refused by name where it is not.
pub fn offloads(fixture: &dyn Fixture) {
    let (port, ..) = opened(fixture.open());
    let info = port.info();
    assert!(info.rx_offloads.contains(info.rx_queue_offloads), "what a queue can do the port can do");
    assert!(info.tx_offloads.contains(info.tx_queue_offloads), "what a queue can do the port can do");
    let cuts = info.tx_offloads.intersects(TxOffloads::TCP_TSO | TxOffloads::UDP_TSO);
    assert_eq!(info.max_tso_bytes > 0, cuts, "a port that cuts packets says how long they may be");
    assert_eq!(info.max_lro_bytes > 0, info.rx_offloads.contains(RxOffloads::TCP_LRO));
    assert_eq!(info.split.is_some(), info.rx_offloads.contains(RxOffloads::BUFFER_SPLIT));
    drop(port);
    refused(fixture);

    for one in info.rx_offloads.iter() {
        passes(fixture, &|config| config.rx_offloads = one);
    }
    for one in info.tx_offloads.iter() {
        passes(fixture, &|config| config.tx_offloads = one);
    }
    passes(fixture, &|config| {
        config.rx_offloads = info.rx_offloads & RxOffloads::CHECKSUM;
        config.tx_offloads = info.tx_offloads & TxOffloads::CHECKSUM;
    });
    passes(fixture, &|config| {
        config.rx_queues.iter_mut().take(1).for_each(|queue| queue.offloads = info.rx_queue_offloads);
        config.tx_queues.iter_mut().take(1).for_each(|queue| queue.offloads = info.tx_queue_offloads);
    });
}

/// A port set up so lets a plain packet through as it was.
fn passes(fixture: &dyn Fixture, change: &dyn Fn(&mut PortConfig)) {
    let mut rig = Rig::with_config(fixture, 2, new_pool(super::POOL), change);
    rig.feed(1, 100);
    if !matches!(rig.feed, Feed::Nothing) {
        let received = rig.receive(1);
        assert_eq!(received.ours.len(), 1, "a packet comes in with {:?}", rig.port.config());
    }
    if !rig.tx.is_empty() {
        let mut burst = rig.burst(1, 100);
        assert_eq!(rig.send(&mut burst), 1, "a packet goes out with {:?}", rig.port.config());
    }
    rig.end();
}

/// All that is not offered is refused, for the port, in a queue's configuration and at queue set-up.
fn refused(fixture: &dyn Fixture) {
    let pool = new_pool(super::POOL);
    let (mut port, ..) = opened(fixture.open());
    let info = port.info();
    let wanted = config(&port, 1, &pool);
    let name = port.name().to_owned();
    let check = |result: Result<(), PortError>, direction: Direction, offload: &str| match result {
        Err(PortError::Offload { port, direction: half, refused, .. }) => {
            assert_eq!((port.as_str(), half, refused.as_str()), (name.as_str(), direction, offload));
        }
        other => panic!("{direction} offload {offload} is not offered: {other:?}"),
    };
    for (offload, one) in (!info.rx_offloads).iter_names() {
        check(port.configure(PortConfig { rx_offloads: one, ..wanted.clone() }), Direction::Rx, offload);
    }
    for (offload, one) in (!info.tx_offloads).iter_names() {
        check(port.configure(PortConfig { tx_offloads: one, ..wanted.clone() }), Direction::Tx, offload);
    }
    if !wanted.rx_queues.is_empty() {
        for (offload, one) in (!info.rx_queue_offloads).iter_names() {
            let mut config = wanted.clone();
            config.rx_queues[0].offloads = one;
            check(port.configure(config), Direction::Rx, offload);
            port.configure(wanted.clone()).expect("configures without");
            let queue = RxQueueConfig { offloads: one, ..RxQueueConfig::new(pool.clone()) };
            check(port.rx_queue_setup_with(first(), queue).map(drop), Direction::Rx, offload);
        }
    }
    if !wanted.tx_queues.is_empty() {
        for (offload, one) in (!info.tx_queue_offloads).iter_names() {
            let mut config = wanted.clone();
            config.tx_queues[0].offloads = one;
            check(port.configure(config), Direction::Tx, offload);
            port.configure(wanted.clone()).expect("configures without");
            let queue = TxQueueConfig { offloads: one, ..TxQueueConfig::default() };
            check(port.tx_queue_setup_with(first(), queue).map(drop), Direction::Tx, offload);
        }
    }
}
