//! Checks of what some ports have and others lack: each works, or is refused with a reason.

use super::{Feed, Fixture, Rig, config, first, new_pool, opened, works};
use crate::flow::{
    FlowAction, FlowItem, FlowPart, FlowRule, GreKeyFields, Ipv4Fields, ItemMatch, TcpFields, UdpFields,
};
use crate::{
    Direction, HashFields, PortConfig, PortError, PortEvent, QueueId, RssConfig, RxOffloads, TxOffloads,
    VlanTagPlace,
};
use pollux_mempool::{Burst, TxFlags, TxOffload};
use pollux_wire::checksum;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

/// The hash changes and reads back, and so does its table; what is not stated is refused.
pub fn rss(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 2);
    let name = rig.port.name().to_owned();
    let Some(before) = works(&name, "reading the RSS settings", rig.port.rss()) else {
        assert_eq!(rig.port.info().rss, None, "a port that states a hash has one");
        assert!(works(&name, "RSS", rig.port.set_rss(&RssConfig::new(HashFields::IP))).is_none());
        assert!(works(&name, "the redirection table", rig.port.rss_table()).is_none());
        assert!(works(&name, "the redirection table", rig.port.set_rss_table(&[first()])).is_none());
        rig.end();
        let pool = new_pool(super::POOL);
        let (mut port, ..) = opened(fixture.open());
        let wanted = config(&port, 1, &pool);
        let none = PortConfig { rss: Some(RssConfig::default()), ..wanted.clone() };
        port.configure(none).expect("a port without a hash need not be asked not to use it");
        let some = PortConfig { rss: Some(RssConfig::new(HashFields::IP)), ..wanted };
        assert!(works(&name, "RSS", port.configure(some)).is_none());
        return;
    };
    let info = rig.port.info().rss.expect("what a port has it states");
    assert_eq!(before.key.as_ref().map(Vec::len), Some(info.key_bytes), "the key in use is told");
    let wanted = RssConfig {
        fields: info.fields & (HashFields::IP | HashFields::L3_SRC_ONLY),
        key: Some((0..info.key_bytes).map(|at| at as u8 ^ 0x5a).collect()),
        algorithm: info.algorithms[0],
    };
    if works(&name, "changing the hash", rig.port.set_rss(&wanted)).is_some() {
        assert_eq!(rig.port.rss().expect("reads"), wanted);
        let again = RssConfig { key: None, ..before.clone() };
        rig.port.set_rss(&again).expect("back to what it was");
        let now = rig.port.rss().expect("reads");
        assert_eq!((now.fields, now.key), (before.fields, wanted.key), "the key stays when none is given");
    }
    let lacking = HashFields::all() - info.fields;
    for one in lacking.iter() {
        let refused = rig.port.set_rss(&RssConfig::new(one));
        assert!(matches!(refused, Err(PortError::Argument { .. })), "{one:?}: {refused:?}");
    }
    let short = RssConfig { key: Some(vec![1; info.key_bytes - 1]), ..RssConfig::default() };
    assert!(matches!(rig.port.set_rss(&short), Err(PortError::Argument { .. })));

    let table = rig.port.rss_table().expect("a port with a hash has a table");
    assert_eq!(table.len(), info.table_entries);
    let last = QueueId(rig.rx.len() as u16 - 1);
    assert!(table.iter().all(|queue| queue.0 <= last.0), "{table:?}");
    rig.port.set_rss_table(&vec![last; info.table_entries]).expect("all to the last queue");
    rig.port.update_rss_table(&[(0, first())]).expect("but one");
    let mut expected = vec![last; info.table_entries];
    expected[0] = first();
    assert_eq!(rig.port.rss_table().expect("reads"), expected);
    assert!(matches!(rig.port.set_rss_table(&table[1..]), Err(PortError::Limit { .. })));
    let past = QueueId(last.0 + 1);
    let refused = rig.port.set_rss_table(&vec![past; info.table_entries]);
    assert!(matches!(refused, Err(PortError::NoQueue { .. })), "{refused:?}");
    let refused = rig.port.update_rss_table(&[(info.table_entries, first())]);
    assert!(matches!(refused, Err(PortError::Limit { .. })), "{refused:?}");
    assert_eq!(rig.port.rss_table().expect("reads"), expected, "what is refused changes nothing");
    rig.end();
}

/// Rules come and go, count and are refused with the part at fault; or there are none.
pub fn flow_rules(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 2);
    let name = rig.port.name().to_owned();
    let drop = FlowRule::new().action(FlowAction::Drop);
    let Some(info) = works(&name, "flow rules", rig.port.flow_info()) else {
        assert!(works(&name, "flow rules", rig.port.flow_validate(&drop)).is_none());
        assert!(works(&name, "flow rules", rig.port.flow_create(&drop)).is_none());
        assert!(works(&name, "flow rules", rig.port.flow_flush()).is_none());
        assert!(works(&name, "isolated mode", rig.port.flow_isolate(true)).is_none());
        assert!(!rig.port.flow_isolated());
        return rig.end();
    };
    let ipv4 =
        FlowItem::Ipv4(ItemMatch::exactly(Ipv4Fields { dst: [10, 9, 8, 7].into(), ..Ipv4Fields::NONE }));
    let udp = FlowItem::Udp(ItemMatch::exactly(UdpFields { src: 9, dst: 4791 }));
    let rule =
        FlowRule::new().item(ipv4).item(udp).action(FlowAction::Count).action(FlowAction::Queue(first()));
    if !info.actions.contains(FlowAction::Count.kind() | FlowAction::Queue(first()).kind())
        || !info.items.contains(ipv4.kind() | udp.kind())
    {
        return rig.end();
    }
    rig.port.flow_validate(&rule).expect("a sound rule");
    assert_eq!(rig.port.flow_rules().count(), 0, "to check a rule is not to make it");
    let handle = rig.port.flow_create(&rule).expect("a rule");
    assert_eq!(rig.port.flow_rules().next(), Some((handle, &rule)));
    assert_eq!(rig.port.flow_query(handle, true).expect("it counts").packets, 0);
    rig.port.stop().expect("stops");
    rig.port.start().expect("starts");
    assert_eq!(rig.port.flow_rules().count(), 1, "rules stay over stop and start");
    rig.port.flow_destroy(handle).expect("goes");
    for result in [rig.port.flow_destroy(handle), rig.port.flow_query(handle, false).map(|_| ())] {
        assert!(matches!(result, Err(PortError::Flow { part: FlowPart::Rule, .. })), "{result:?}");
    }
    let bad = [
        FlowRule::new(),
        rule.clone().group(info.groups),
        rule.clone().priority(info.priorities),
        FlowRule::new().item(udp).action(FlowAction::Drop),
        FlowRule::new().action(FlowAction::Queue(QueueId(rig.rx.len() as u16))),
        FlowRule::new().action(FlowAction::Mark(u32::MAX)).action(FlowAction::Drop),
    ];
    for bad in &bad {
        let refused = rig.port.flow_create(bad);
        assert!(matches!(refused, Err(PortError::Flow { .. })), "{bad:?}: {refused:?}");
    }
    let tcp = FlowItem::Tcp(ItemMatch::exactly(TcpFields { src: 1, dst: 2, flags: 0 }));
    for item in [udp, tcp] {
        if info.items.contains(item.kind()) {
            let rule = FlowRule::new().item(ipv4).item(item).action(FlowAction::Drop);
            rig.port.flow_create(&rule).expect("a rule");
        }
    }
    let (any_udp, vxlan, gre) =
        (FlowItem::Udp(ItemMatch::any()), FlowItem::Vxlan(ItemMatch::any()), FlowItem::Gre(ItemMatch::any()));
    let key = FlowItem::GreKey(ItemMatch::exactly(GreKeyFields { key: 5 }));
    for items in [&[any_udp, vxlan][..], &[gre], &[gre, key]] {
        if items.iter().all(|item| info.items.contains(item.kind())) {
            let rule = items.iter().fold(FlowRule::new().item(ipv4), |rule, item| rule.item(*item));
            rig.port.flow_create(&rule.action(FlowAction::Drop)).expect("a rule");
        }
    }
    assert!(rig.port.flow_rules().count() > 0);
    rig.port.flow_flush().expect("all go");
    assert_eq!(rig.port.flow_rules().count(), 0);
    if works(&name, "isolated mode", rig.port.flow_isolate(true)).is_some() {
        assert!(rig.port.flow_isolated());
        rig.port.flow_isolate(false).expect("and back");
    }
    assert!(!rig.port.flow_isolated());
    // What was left is gone with the configuration.
    let left = rig.port.flow_create(&rule).expect("a rule");
    let Rig { rx, tx, mut port, pool, .. } = rig;
    std::mem::drop((rx, tx));
    port.stop().expect("stops");
    port.configure(config(&port, 1, &pool)).expect("configures");
    assert!(matches!(port.flow_destroy(left), Err(PortError::Flow { .. })));
}

/// The list of VLANs, strip by queue, ether types: each works or is refused.
pub fn vlan(fixture: &dyn Fixture) {
    let (port, ..) = opened(fixture.open());
    let offered = port.info().rx_offloads & RxOffloads::VLAN;
    std::mem::drop(port);
    let mut rig = Rig::with_config(fixture, 1, new_pool(super::POOL), &|config| config.rx_offloads = offered);
    let name = rig.port.name().to_owned();
    assert_eq!(rig.port.vlan_offloads(), offered);
    let refused = rig.port.set_vlan_filter(4096, true);
    assert!(matches!(refused, Err(PortError::Limit { .. })), "{refused:?}");
    if works(&name, "the list of VLANs", rig.port.set_vlan_filter(7, true)).is_some() {
        rig.port.set_vlan_filter(3, true).expect("a second");
        rig.port.set_vlan_filter(7, true).expect("twice is once");
        assert_eq!(rig.port.vlan_filters(), [3, 7]);
        rig.port.set_vlan_filter(7, false).expect("was there");
        rig.port.set_vlan_filter(9, false).expect("was not there");
        assert_eq!(rig.port.vlan_filters(), [3]);
    } else {
        assert!(!offered.contains(RxOffloads::VLAN_FILTER), "what is offered works");
        assert!(rig.port.vlan_filters().is_empty());
    }
    if works(&name, "changing VLAN offloads", rig.port.set_vlan_offloads(RxOffloads::empty())).is_some() {
        assert!(rig.port.vlan_offloads().is_empty());
        rig.port.set_vlan_offloads(offered).expect("and back");
        assert_eq!(rig.port.vlan_offloads(), offered);
    }
    let refused = rig.port.set_vlan_offloads(RxOffloads::SCATTER);
    assert!(matches!(refused, Err(PortError::Argument { .. })), "{refused:?}");
    if !rig.rx.is_empty() {
        works(&name, "VLAN strip by queue", rig.port.set_vlan_strip_on_queue(first(), true));
    }
    works(&name, "ether type", rig.port.set_vlan_ether_type(VlanTagPlace::Outer, 0x88a8));
    works(&name, "port VLAN", rig.port.set_port_vlan(Some(5)));
    rig.end();
}

/// A queue stops and starts while others go on, or says that it does not; the same for a start that is put off.
pub fn queue_start_and_stop(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    let name = rig.port.name().to_owned();
    let able = rig.port.info().queue_control;
    let far = QueueId(rig.rx.len().max(rig.tx.len()) as u16);
    assert!(matches!(rig.port.rx_queue_running(far), Err(PortError::NoQueue { .. })));
    assert!(matches!(rig.port.tx_queue_start(far), Err(PortError::NoQueue { .. })));
    if !rig.rx.is_empty() {
        assert_eq!(rig.port.rx_queue_running(first()).ok(), Some(true));
        let done = works(&name, "stopping an rx queue", rig.port.rx_queue_stop(first())).is_some();
        assert_eq!(done, able, "what a port states is so");
        assert_eq!(rig.port.rx_queue_running(first()).ok(), Some(!able));
        if able {
            let mut burst = Burst::new();
            assert_eq!(rig.rx[0].rx_burst(&mut burst, 32), 0, "a stopped queue brings nothing");
            rig.port.rx_queue_start(first()).expect("what stops starts");
            rig.feed(1, 100);
            if !matches!(rig.feed, Feed::Nothing) {
                assert_eq!(rig.receive(1).ours.len(), 1, "and works as before");
            }
        }
    }
    if !rig.tx.is_empty() {
        let done = works(&name, "stopping a tx queue", rig.port.tx_queue_stop(first())).is_some();
        assert_eq!(done, able, "what a port states is so");
        assert_eq!(rig.port.tx_queue_running(first()).ok(), Some(!able));
        if able {
            let mut burst = rig.burst(1, 100);
            assert_eq!(rig.tx[0].tx_burst(&mut burst), 0, "a stopped queue takes nothing");
            rig.port.tx_queue_start(first()).expect("what stops starts");
            assert_eq!(rig.send(&mut burst), 1, "and works as before");
        }
    }
    rig.end();

    let pool = new_pool(super::POOL);
    let (mut port, ..) = opened(fixture.open());
    let mut wanted = config(&port, 1, &pool);
    let direction = if wanted.rx_queues.is_empty() { Direction::Tx } else { Direction::Rx };
    wanted.rx_queues.iter_mut().for_each(|queue| queue.deferred_start = true);
    wanted.tx_queues.iter_mut().for_each(|queue| queue.deferred_start = true);
    let Some(mut queues) = works(&name, "deferred start", port.bring_up(wanted)) else {
        assert!(!able, "what a port states is so");
        return;
    };
    if direction == Direction::Rx {
        assert_eq!(port.rx_queue_running(first()).ok(), Some(false));
        assert_eq!(queues.rx[0].rx_burst(&mut Burst::new(), 1), 0);
        port.rx_queue_start(first()).expect("starts");
        assert_eq!(port.rx_queue_running(first()).ok(), Some(true));
    }
}

/// The clock goes forward, or there is none.
pub fn clock(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    let name = rig.port.name().to_owned();
    if let Some(before) = works(&name, "the clock", rig.port.read_clock()) {
        // A device in software shows its clock when its thread has a turn, which on a busy machine takes a while.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
        let after = loop {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let after = rig.port.read_clock().expect("reads again");
            if after.ticks != before.ticks {
                break after;
            }
            assert!(std::time::Instant::now() < deadline, "the clock stands still");
        };
        assert_eq!(before.hz, after.hz);
    } else {
        let offered = rig.port.info().rx_offloads;
        assert!(!offered.contains(RxOffloads::TIMESTAMP), "times of arrival come from a clock");
    }
    works(&name, "time synchronisation", rig.port.set_time_sync(true));
    works(&name, "the time", rig.port.time());
    works(&name, "adjusting the time", rig.port.adjust_time(1));
    rig.end();
}

/// An arrival makes the descriptor readable, or the queue says that it cannot.
pub fn rx_interrupts(fixture: &dyn Fixture) {
    let (port, ..) = opened(fixture.open());
    let (able, name) = (port.info().rx_interrupts, port.name().to_owned());
    let pool = new_pool(super::POOL);
    let mut wanted = config(&port, 1, &pool);
    std::mem::drop(port);
    wanted.rx_interrupts = true;
    if !able {
        let (mut port, ..) = opened(fixture.open());
        assert!(works(&name, "rx interrupts", port.configure(wanted)).is_none(), "what a port states is so");
        let mut rig = Rig::new(fixture, 1);
        for queue in &mut rig.rx {
            assert!(works(&name, "rx interrupt", queue.enable_interrupt()).is_none());
            assert!(works(&name, "rx interrupt", queue.disable_interrupt()).is_none());
            assert!(works(&name, "rx interrupt", queue.interrupt_fd().map(|fd| fd.as_raw_fd())).is_none());
            works(&name, "power monitor", queue.power_monitor());
        }
        return rig.end();
    }
    let mut rig = Rig::with_config(fixture, 1, pool, &|config| config.rx_interrupts = true);
    rig.rx[0].enable_interrupt().expect("was asked for");
    rig.rx[0].interrupt_fd().expect("was asked for");
    rig.feed(1, 100);
    if !matches!(rig.feed, Feed::Nothing) {
        assert_eq!(rig.receive(1).ours.len(), 1, "a queue that tells of arrivals still receives");
    }
    rig.rx[0].disable_interrupt().expect("was asked for");
    works(&name, "power monitor", rig.rx[0].power_monitor().map(drop));
    rig.end();
}

/// Events are told once, to the caller and to callbacks.
pub fn events(fixture: &dyn Fixture) {
    let mut rig = Rig::new(fixture, 1);
    let name = rig.port.name().to_owned();
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let id = rig.port.add_event_callback(Box::new(move |port, event| {
        seen.lock().expect("nobody panics").push((port, event));
    }));
    assert_eq!(rig.port.poll_event(), None, "nothing happened since start");
    if works(&name, "link down", rig.port.set_link_up(false)).is_some() {
        let event = rig.port.poll_event();
        assert!(matches!(event, Some(PortEvent::Link(link)) if !link.up), "{event:?}");
        assert_eq!(rig.port.poll_event(), None, "told once");
        assert_eq!(told.lock().expect("nobody panics").len(), 1, "the callback ran once");
        let _ = rig.port.set_link_up(true);
    }
    assert!(rig.port.remove_event_callback(id));
    assert!(!rig.port.remove_event_callback(id));
    rig.end();
}

/// Packets are checked before they are sent; one with an open checksum leaves with it filled in.
pub fn tx_prepare(fixture: &dyn Fixture) {
    let (port, ..) = opened(fixture.open());
    let info = port.info();
    std::mem::drop(port);
    if info.max_tx_queues == 0 {
        return;
    }
    let offloads = info.tx_offloads & (TxOffloads::CHECKSUM | TxOffloads::VLAN_INSERT);
    let mut rig =
        Rig::with_config(fixture, 1, new_pool(super::POOL), &|config| config.tx_offloads = offloads);
    let mut plain = rig.burst(4, 100);
    let before = plain.iter().map(super::whole).collect::<Vec<_>>();
    rig.tx[0].tx_prepare(&mut plain).expect("packets that ask for nothing are ready");
    assert_eq!(plain.iter().map(super::whole).collect::<Vec<_>>(), before);
    plain[2].set_tx_flags(TxFlags::MACSEC);
    let bad = rig.tx[0].tx_prepare(&mut plain).expect_err("no port has MACsec");
    assert_eq!(bad.index, 2);
    plain.clear();

    // UDP over IPv4, its checksum open.
    let mut mbuf = rig.mbuf(100);
    let Some(data) = mbuf.data_mut() else { panic!("a fresh mbuf is its own") };
    data[12..34].fill(0);
    data[12..14].copy_from_slice(&[0x08, 0x00]);
    data[14] = 0x45;
    data[16..18].copy_from_slice(&86_u16.to_be_bytes());
    (data[22], data[23]) = (64, 17);
    data[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    data[34..42].copy_from_slice(&[0, 9, 0, 9, 0, 66, 0xab, 0xcd]);
    mbuf.set_tx_flags(TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::UDP_CHECKSUM);
    mbuf.set_tx_offload(TxOffload { l2_len: 14, l3_len: 20, ..TxOffload::default() });
    let mut burst = Burst::new();
    burst.push(mbuf);
    let able = offloads.contains(TxOffloads::IPV4_CKSUM | TxOffloads::UDP_CKSUM);
    let ready = rig.tx[0].tx_prepare(&mut burst);
    assert_eq!(ready.is_ok(), able, "as the port states: {ready:?}");
    if able {
        assert_eq!(rig.send(&mut burst), 1);
        if let Some(sent) = &mut rig.sent {
            let end = std::time::Instant::now() + rig.patience;
            let ours = |frame: &Vec<u8>| frame.get(26..34) == Some(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let mut found = None;
            while found.is_none() && std::time::Instant::now() < end {
                found = sent().into_iter().find(ours);
            }
            let frame = found.expect("what was taken leaves");
            let upper = checksum::pseudo_v4(
                [10, 0, 0, 1].into(),
                [10, 0, 0, 2].into(),
                pollux_wire::IpProtocol::UDP,
                66,
            );
            // A sum over all, checksum included, is all ones; its complement 0.
            assert_eq!(checksum::of(&frame[14..34]), 0, "the IPv4 header's checksum: {frame:02x?}");
            let whole = upper.add_bytes(&frame[34..100]).checksum() == 0;
            // Between interfaces of one machine the kernel leaves the checksum open, the pseudo-header's sum in its place.
            let open = info.tx_pseudo_sums && frame[40..42] == (!upper.checksum()).to_be_bytes();
            assert!(whole || open, "the UDP checksum: {frame:02x?}");
        }
    }
    std::mem::drop(burst);
    rig.end();
}
