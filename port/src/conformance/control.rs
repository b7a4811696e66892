//! Checks of the control handle.

use super::{Fixture, Rig, config, first, new_pool, opened, refused_for_state, works};
use crate::{FecModes, MacAddress, PortConfig, PortError, PortState, QueueId, Queues, RxDrop, RxQueueConfig};

/// The port knows itself, and what it says can be true.
pub fn information(fixture: &dyn Fixture) {
    let (port, ..) = opened(fixture.open());
    let info = port.info();
    assert!(!info.driver.is_empty());
    assert!(info.max_rx_queues > 0 || info.max_tx_queues > 0, "a port without queues is none");
    assert!(info.min_mtu <= info.max_mtu);
    let (mut port, ..) = opened(fixture.open());
    let pool = new_pool(super::POOL);
    let mut outside = vec![59, u32::MAX];
    outside.extend(info.max_lro_bytes.checked_add(1));
    for bytes in outside {
        let wanted = PortConfig { max_lro_bytes: Some(bytes), ..config(&port, 1, &pool) };
        let refused = port.configure(wanted);
        match &refused {
            Err(error) if info.max_lro_bytes == 0 => assert!(error.is_unsupported(), "{refused:?}"),
            Err(PortError::Limit { max, .. }) => assert_eq!(*max, u64::from(info.max_lro_bytes)),
            _ => panic!("joined packets of {bytes} bytes: {refused:?}"),
        }
    }
    if info.max_lro_bytes > 0 {
        let wanted = PortConfig { max_lro_bytes: Some(info.max_lro_bytes), ..config(&port, 1, &pool) };
        port.configure(wanted).expect("the port's own limit is inside its limits");
    }
    for limits in [info.rx_descriptors, info.tx_descriptors] {
        assert!(limits.min <= limits.max && limits.allow(limits.default), "{limits:?}");
    }
    assert_eq!(info.driver, port.info().driver);
}

/// Each state allows what it should and refuses the rest, changing nothing.
pub fn life_cycle(fixture: &dyn Fixture) {
    let pool = new_pool(super::POOL);
    let (mut port, ..) = opened(fixture.open());
    assert_eq!(port.state(), PortState::Unconfigured);
    refused_for_state("start before configure", port.start());
    refused_for_state("stop before start", port.stop());

    let wanted = config(&port, 1, &pool);
    let (has_rx, has_tx) = (!wanted.rx_queues.is_empty(), !wanted.tx_queues.is_empty());
    port.configure(wanted.clone()).expect("configures");
    assert_eq!(port.state(), PortState::Configured);
    let early = port.start();
    assert!(matches!(early, Err(PortError::QueueNotSetUp { .. })), "start without queues: {early:?}");
    assert_eq!(port.state(), PortState::Configured);

    port.configure(wanted.clone()).expect("configures again");
    let rx = has_rx.then(|| port.rx_queue_setup(first()).expect("sets up"));
    let tx = has_tx.then(|| port.tx_queue_setup(first()).expect("sets up"));
    let held = port.configure(wanted.clone());
    assert!(matches!(held, Err(PortError::QueueHeld { .. })), "configure under live queues: {held:?}");
    port.start().expect("starts");
    assert_eq!(port.state(), PortState::Started);
    refused_for_state("start twice", port.start());
    refused_for_state("configure while started", port.configure(wanted.clone()));
    refused_for_state("close while started", port.close());
    if has_rx {
        refused_for_state("rx queue set-up while started", port.rx_queue_setup(first()));
    }
    if has_tx {
        refused_for_state("tx queue set-up while started", port.tx_queue_setup(first()));
    }
    assert_eq!(port.state(), PortState::Started);

    port.stop().expect("stops");
    assert_eq!(port.state(), PortState::Stopped);
    refused_for_state("stop twice", port.stop());
    port.start().expect("starts again with the same queues");
    port.stop().expect("stops again");
    drop((rx, tx));
    let Queues { .. } = port.bring_up(wanted).expect("configures anew after a stop");
    port.stop().expect("stops");
    port.close().expect("closes");
    assert_eq!(port.state(), PortState::Closed);
    drop(port);
    assert_eq!(pool.in_use(), 0, "mbufs that did not come home");
}

/// A closed port does nothing more, and dropping a started one is enough to end it.
pub fn close_ends_everything(fixture: &dyn Fixture) {
    let pool = new_pool(super::POOL);
    let (mut port, ..) = opened(fixture.open());
    let wanted = config(&port, 1, &pool);
    port.close().expect("an unconfigured port closes");
    refused_for_state("close twice", port.close());
    refused_for_state("configure when closed", port.configure(wanted.clone()));
    refused_for_state("start when closed", port.start());
    refused_for_state("stop when closed", port.stop());
    refused_for_state("reset when closed", port.reset());
    refused_for_state("set the MTU when closed", port.set_mtu(1500));
    refused_for_state("read the address when closed", port.mac_address());
    assert!(!port.link().up);
    assert_eq!(port.poll_event(), None);

    let (mut port, ..) = opened(fixture.open());
    let queues = port.bring_up(wanted).expect("comes up");
    drop(port);
    drop(queues);
    assert_eq!(pool.in_use(), 0, "mbufs that did not come home");
}

/// The driver's halves of queues share no cache line with those of other lcores.
pub fn own_cache_lines(fixture: &dyn Fixture) {
    let pool = new_pool(super::POOL);
    let (mut port, ..) = opened(fixture.open());
    let wanted = config(&port, 2, &pool);
    let (rx, tx) = (wanted.rx_queues.len() as u16, wanted.tx_queues.len() as u16);
    port.configure(wanted).expect("configures");
    for queue in (0..rx).map(QueueId) {
        assert!(port.rx_queue_setup(queue).expect("sets up").has_own_lines(), "rx queue {queue}");
    }
    for queue in (0..tx).map(QueueId) {
        assert!(port.tx_queue_setup(queue).expect("sets up").has_own_lines(), "tx queue {queue}");
    }
}

/// Queue counts and numbers outside the limits are refused.
pub fn queue_limits(fixture: &dyn Fixture) {
    let pool = new_pool(super::POOL);
    let (mut port, ..) = opened(fixture.open());
    let info = port.info();
    let many = |rx: u16, tx: u16| PortConfig::queues(rx.into(), tx.into(), &pool);
    for (rx, tx) in
        [(info.max_rx_queues.checked_add(1), Some(0)), (Some(0), info.max_tx_queues.checked_add(1))]
    {
        let (Some(rx), Some(tx)) = (rx, tx) else { continue };
        let refused = port.configure(many(rx, tx));
        assert!(matches!(refused, Err(PortError::Limit { .. })), "{rx} rx and {tx} tx queues: {refused:?}");
    }
    assert_eq!(port.state(), PortState::Unconfigured);
    let wanted = config(&port, 2, &pool);
    let (rx, tx) = (wanted.rx_queues.len() as u16, wanted.tx_queues.len() as u16);
    port.configure(wanted).expect("configures");
    let past = (port.rx_queue_setup(QueueId(rx)), port.tx_queue_setup(QueueId(tx)));
    assert!(matches!(past.0, Err(PortError::NoQueue { .. })), "{past:?}");
    assert!(matches!(past.1, Err(PortError::NoQueue { .. })), "{past:?}");
    if rx > 0 {
        let held = port.rx_queue_setup(first()).expect("sets up");
        let again = port.rx_queue_setup(first());
        assert!(matches!(again, Err(PortError::QueueHeld { .. })), "{again:?}");
        drop(held);
        drop(port.rx_queue_setup(first()).expect("sets up again once the first is dropped"));
    }
    if tx > 0 {
        let held = port.tx_queue_setup(first()).expect("sets up");
        let again = port.tx_queue_setup(first());
        assert!(matches!(again, Err(PortError::QueueHeld { .. })), "{again:?}");
        drop(held);
        drop(port.tx_queue_setup(first()).expect("sets up again once the first is dropped"));
    }
}

/// Descriptor counts: adjusted ones work, those outside are refused.
pub fn descriptor_counts(fixture: &dyn Fixture) {
    let pool = new_pool(super::POOL);
    let (mut port, ..) = opened(fixture.open());
    let info = port.info();
    assert_eq!(port.adjust_descriptors(0, 0), (info.rx_descriptors.default, info.tx_descriptors.default));
    let wanted = config(&port, 1, &pool);
    let (rx, tx) = port.adjust_descriptors(100, 100);
    let mut fitting = wanted.clone();
    fitting.rx_queues.iter_mut().for_each(|queue| queue.descriptors = rx);
    fitting.tx_queues.iter_mut().for_each(|queue| queue.descriptors = tx);
    drop(port.bring_up(fitting).expect("adjusted counts work"));
    assert!(port.config().rx_queues.iter().all(|queue| queue.descriptors == rx));
    port.stop().expect("stops");

    for outside in [info.rx_descriptors.min.checked_sub(1), info.rx_descriptors.max.checked_add(1)] {
        let Some(outside) = outside.filter(|count| *count > 0) else { continue };
        let mut bad = wanted.clone();
        let Some(queue) = bad.rx_queues.first_mut() else { continue };
        queue.descriptors = outside;
        let refused = port.configure(bad);
        assert!(matches!(refused, Err(PortError::Limit { .. })), "{outside} rx descriptors: {refused:?}");
    }
    for outside in [info.tx_descriptors.min.checked_sub(1), info.tx_descriptors.max.checked_add(1)] {
        let Some(outside) = outside.filter(|count| *count > 0) else { continue };
        let mut bad = wanted.clone();
        let Some(queue) = bad.tx_queues.first_mut() else { continue };
        queue.descriptors = outside;
        let refused = port.configure(bad);
        assert!(matches!(refused, Err(PortError::Limit { .. })), "{outside} tx descriptors: {refused:?}");
    }

    // A pool that cannot fill the ring is refused where the ring takes mbufs in advance.
    if info.rx_holds_mbufs && info.max_rx_queues > 0 {
        port.configure(wanted).expect("configures");
        let small = new_pool(usize::from(rx).max(2) / 2);
        let refused =
            port.rx_queue_setup_with(first(), RxQueueConfig { descriptors: rx, ..RxQueueConfig::new(small) });
        assert!(matches!(refused, Err(PortError::PoolTooSmall { .. })), "{refused:?}");
    }
}

/// The link is up while started; the switch works or is refused with a reason.
pub fn link(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    let name = rig.port.name().to_owned();
    assert!(rig.port.link().up, "a started port has its link up");
    assert_eq!(rig.port.poll_event(), None, "nothing happened since start");
    for lanes in works(&name, "lane capabilities", rig.port.lane_capabilities()).unwrap_or_default() {
        assert!(
            lanes.lanes.is_sorted() && lanes.lanes.first().is_some_and(|fewest| *fewest > 0),
            "{lanes:?}"
        );
    }
    let refused = rig.port.set_lanes(0);
    assert!(matches!(refused, Err(PortError::Limit { .. })), "0 lanes: {refused:?}");
    if let Some(lanes) = rig.port.link().lanes {
        works(&name, "setting the lanes", rig.port.set_lanes(lanes));
        assert_eq!(rig.port.link().lanes, Some(lanes));
    }
    for wrong in [FecModes::empty(), FecModes::OFF | FecModes::RS] {
        let refused = rig.port.set_fec(wrong);
        assert!(matches!(refused, Err(PortError::Argument { .. })), "{wrong}: {refused:?}");
    }
    if let Some(fec) = works(&name, "FEC", rig.port.fec()) {
        let able = works(&name, "FEC capabilities", rig.port.fec_capabilities()).unwrap_or_default();
        assert!(able.iter().all(|at| !at.modes.is_empty()), "{able:?}");
        if !fec.configured.is_empty()
            && works(&name, "FEC change", rig.port.set_fec(fec.configured)).is_some()
        {
            assert_eq!(rig.port.fec().ok().map(|now| now.configured), Some(fec.configured));
        }
    } else {
        works(&name, "FEC capabilities", rig.port.fec_capabilities());
        works(&name, "FEC change", rig.port.set_fec(FecModes::AUTO));
    }
    if works(&name, "link down", rig.port.set_link_up(false)).is_some() {
        assert!(!rig.port.link().up);
        rig.port.set_link_up(true).expect("what goes down comes up");
        let end = std::time::Instant::now() + rig.patience;
        while !rig.port.link().up && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(rig.port.link().up);
    }
    rig.end();
}

/// The MTU is inside its limits; changes show, those outside the limits are refused.
pub fn mtu(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    let (name, info) = (rig.port.name().to_owned(), rig.port.info());
    let Some(before) = works(&name, "reading the MTU", rig.port.mtu()) else { return rig.end() };
    assert!((info.min_mtu..=info.max_mtu).contains(&before), "MTU {before}");
    for outside in [info.min_mtu.checked_sub(1), info.max_mtu.checked_add(1)].into_iter().flatten() {
        let refused = rig.port.set_mtu(outside);
        assert!(matches!(refused, Err(PortError::Limit { .. })), "MTU {outside}: {refused:?}");
    }
    let other = before.saturating_sub(100).max(info.min_mtu);
    if works(&name, "setting the MTU", rig.port.set_mtu(other)).is_some() {
        assert_eq!(rig.port.mtu().ok(), Some(other));
        rig.port.set_mtu(before).expect("the old MTU is as good as it was");
    }
    assert_eq!(rig.port.mtu().ok(), Some(before));
    rig.end();
}

/// Promiscuous and all-multicast mode switch and read back, or are refused with a reason.
pub fn filters(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    let name = rig.port.name().to_owned();
    for on in [true, false, true] {
        let before = rig.port.promiscuous();
        let done = works(&name, "promiscuous mode", rig.port.set_promiscuous(on));
        assert_eq!(rig.port.promiscuous(), if done.is_some() { on } else { before });
        let before = rig.port.all_multicast();
        let done = works(&name, "all-multicast mode", rig.port.set_all_multicast(on));
        assert_eq!(rig.port.all_multicast(), if done.is_some() { on } else { before });
    }
    let _ = rig.port.set_promiscuous(false);
    let _ = rig.port.set_all_multicast(false);
    rig.end();
}

/// Addresses: the own one reads and changes, further ones come and go, groups are groups.
pub fn addresses(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    let name = rig.port.name().to_owned();
    let group = MacAddress([0x01, 0x00, 0x5e, 0, 0, 1]);
    let (one, two) = (MacAddress([2, 0, 0, 0, 0x55, 1]), MacAddress([2, 0, 0, 0, 0x55, 2]));
    if let Some(own) = works(&name, "reading the address", rig.port.mac_address()) {
        assert!(own.is_unicast(), "{own}");
        for bad in [group, MacAddress([0; 6])] {
            let refused = rig.port.set_mac_address(bad);
            assert!(matches!(refused, Err(PortError::Address { .. })), "{bad}: {refused:?}");
        }
        if works(&name, "setting the address", rig.port.set_mac_address(one)).is_some() {
            assert_eq!(rig.port.mac_address().ok(), Some(one));
            rig.port.set_mac_address(own).expect("the old address is as good as it was");
        }
        assert_eq!(rig.port.mac_address().ok(), Some(own));
    }
    let refused = rig.port.remove_mac_address(two);
    assert!(matches!(refused, Err(PortError::Address { .. })), "removing what was never added: {refused:?}");
    if works(&name, "adding an address", rig.port.add_mac_address(two)).is_some() {
        rig.port.add_mac_address(two).expect("adding twice is adding once");
        assert_eq!(rig.port.further_mac_addresses(), [two]);
        rig.port.remove_mac_address(two).expect("what was added can be removed");
    }
    assert!(rig.port.further_mac_addresses().is_empty());
    let refused = rig.port.set_multicast_list(&[one]);
    assert!(matches!(refused, Err(PortError::Address { .. })), "a unicast group: {refused:?}");
    if works(&name, "setting the multicast list", rig.port.set_multicast_list(&[group])).is_some() {
        assert_eq!(rig.port.multicast_list(), [group]);
        rig.port.set_multicast_list(&[]).expect("an empty list is a list");
    }
    assert!(rig.port.multicast_list().is_empty());
    rig.end();
}

/// Xstats have unique names, are found by name and id, agree with the basic numbers, and are zero after a reset.
pub fn xstats(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 2);
    rig.feed(4, 100);
    drop(rig.receive(4));
    if !rig.tx.is_empty() {
        let mut burst = rig.burst(3, 100);
        rig.send(&mut burst);
    }
    let names = rig.port.xstat_names();
    let unique: std::collections::HashSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
    for name in
        ["rx_good_packets", "tx_good_packets", "rx_good_bytes", "tx_good_bytes", "rx_mbuf_allocation_errors"]
    {
        assert!(names.iter().any(|known| known == name), "{name} is missing");
    }
    let all = rig.port.xstats();
    assert!(all.iter().enumerate().all(|(id, xstat)| xstat.id == id && xstat.name == names[id]));
    let picked = rig.port.xstats_by_id(&[1, names.len(), 0]);
    assert!(picked[1].is_none());
    assert_eq!(picked[0].as_ref().map(|xstat| &*xstat.name), Some(names[1].as_str()));
    let stats = rig.port.stats();
    let value = |rig: &mut Rig, name: &str| rig.port.xstat(name).expect("is there").value;
    assert_eq!(value(&mut rig, "rx_good_packets"), stats.ipackets);
    assert_eq!(value(&mut rig, "tx_good_bytes"), stats.obytes);
    assert_eq!(stats.rx_queues.iter().map(|queue| queue.packets).sum::<u64>(), stats.ipackets);
    assert_eq!(stats.tx_queues.iter().map(|queue| queue.bytes).sum::<u64>(), stats.obytes);
    assert!(rig.port.xstat("no_such_count").is_none());

    switched(&mut rig, &names);
    rig.port.reset_stats();
    let stats = rig.port.stats();
    assert_eq!((stats.ipackets, stats.opackets, stats.ibytes, stats.obytes), (0, 0, 0, 0));
    assert_eq!(rig.port.xstat_names(), names, "a reset changes values only");
    rig.end();
}

/// Single numbers stand still when switched off and go on; those that every report needs do not.
fn switched(rig: &mut Rig, names: &[String]) {
    let past = rig.port.set_xstat_enabled(names.len(), false);
    assert!(matches!(past, Err(PortError::Limit { .. })), "an id past the end: {past:?}");
    assert_eq!(rig.port.xstat_enabled(names.len()), None);
    let basic = names.iter().position(|name| name == "rx_good_packets").expect("every port has it");
    let refused = rig.port.set_xstat_enabled(basic, false);
    assert!(matches!(&refused, Err(error) if error.is_unsupported()), "{refused:?}");
    let id = names.iter().position(|name| name == "rx_too_long_errors").expect("every port has it");
    let count = |rig: &mut Rig| rig.port.xstats()[id].value;
    let drop_one = |rig: &Rig| rig.rx.first().map(|queue| queue.counters().drop_for(RxDrop::TooLong, 1));
    for on in [false, true] {
        let before = count(rig);
        rig.port.set_xstat_enabled(id, on).expect("a reason for drops can be switched");
        assert_eq!(rig.port.xstat_enabled(id), Some(on));
        assert_eq!(count(rig), before, "switching changes no value");
        let counted = u64::from(drop_one(rig).is_some() && on);
        assert_eq!(count(rig), before + counted, "on: {on}");
    }
    assert_eq!(rig.port.xstat_names(), names, "switching changes no name");
}

/// A reset port is as when it was opened and comes up again.
pub fn reset(fixture: &dyn Fixture) {
    let pool = new_pool(super::POOL);
    let (mut port, ..) = opened(fixture.open());
    let wanted = config(&port, 1, &pool);
    let queues = port.bring_up(wanted.clone()).expect("comes up");
    port.reset().expect("a started port resets");
    assert_eq!(port.state(), PortState::Unconfigured);
    refused_for_state("start after a reset", port.start());
    drop(queues);
    let queues = port.bring_up(wanted).expect("comes up again");
    port.stop().expect("stops");
    drop((queues, port));
    assert_eq!(pool.in_use(), 0, "mbufs that did not come home");
}
