//! Flow rules, isolated mode and the list of VLANs.

use pollux_mempool::RxFlags;
use pollux_port::flow::{
    EthFields, FlowAction, FlowHandle, FlowItem, FlowRss, FlowRule, Ipv4Fields, Ipv6Fields, ItemMatch,
    TcpFields, UdpFields, VlanFields,
};
use pollux_port::{HashFields, MacAddress, PortError, QueueId, RssConfig, RxOffloads};

use crate::packet::{Dice, Net, Packet, Transport};
use crate::rig::{OWN, Rig, Way};

fn queue(number: u16) -> FlowAction {
    FlowAction::Queue(QueueId(number))
}

fn to_v4(last: u8) -> FlowItem {
    let fields = Ipv4Fields { dst: [10, 0, 1, last].into(), ..Ipv4Fields::NONE };
    FlowItem::Ipv4(ItemMatch::masked(fields, Ipv4Fields { dst: [255; 4].into(), ..Ipv4Fields::NONE }))
}

fn udp_to(dst: u16) -> FlowItem {
    FlowItem::Udp(ItemMatch::masked(UdpFields { src: 0, dst }, UdpFields { src: 0, dst: 0xffff }))
}

/// Whether a rule's item takes a packet, told from the packet and not from its bytes.
fn takes(item: &FlowItem, packet: &Packet) -> bool {
    match item {
        FlowItem::Eth(wanted) => wanted
            .spec
            .is_none_or(|spec| wanted.mask != Some(only_dst()) || spec.dst == MacAddress(packet.dst)),
        FlowItem::Vlan(wanted) => {
            let tci = wanted.spec.expect("given").tci & 0xfff;
            packet.vlan.is_some_and(|vlan| vlan & 0xfff == tci)
        }
        FlowItem::Ipv4(wanted) => {
            let Net::V4(src, dst) = packet.net else { return false };
            let Some((spec, mask)) = wanted.spec.zip(wanted.mask) else { return true };
            (src & mask.src, dst & mask.dst) == (spec.src & mask.src, spec.dst & mask.dst)
        }
        FlowItem::Ipv6(wanted) => {
            let Net::V6(src, dst) = packet.net else { return false };
            let Some((spec, mask)) = wanted.spec.zip(wanted.mask) else { return true };
            (src & mask.src, dst & mask.dst) == (spec.src & mask.src, spec.dst & mask.dst)
        }
        FlowItem::Tcp(wanted) => {
            let Transport::Tcp(src, dst) = packet.transport else { return false };
            let Some((spec, mask)) = wanted.spec.zip(wanted.mask) else { return true };
            (src & mask.src, dst & mask.dst) == (spec.src & mask.src, spec.dst & mask.dst)
        }
        FlowItem::Udp(wanted) => {
            let Transport::Udp(src, dst) = packet.transport else { return false };
            let Some((spec, mask)) = wanted.spec.zip(wanted.mask) else { return true };
            (src & mask.src, dst & mask.dst) == (spec.src & mask.src, spec.dst & mask.dst)
        }
        other => panic!("no such item here: {other:?}"),
    }
}

fn only_dst() -> EthFields {
    EthFields { dst: MacAddress([0xff; 6]), ..EthFields::NONE }
}

/// What becomes of a packet: the first rule that takes it, in order of priority.
fn winner<'r>(rules: &'r [(FlowHandle, FlowRule)], packet: &Packet) -> Option<&'r (FlowHandle, FlowRule)> {
    let matching = rules.iter().filter(|(_, rule)| rule.pattern.iter().all(|item| takes(item, packet)));
    matching.min_by_key(|(_, rule)| rule.attributes.priority)
}

/// One rule of each kind at priorities that overlap: what they do differs, so that a wrong one shows.
fn rules() -> Vec<FlowRule> {
    let tcp = TcpFields { src: 1001, dst: 0, flags: 0 };
    let tcp = FlowItem::Tcp(ItemMatch::masked(tcp, TcpFields { src: 0xffff, dst: 0, flags: 0 }));
    let v6 = Ipv6Fields { src: [0xfd00, 0, 0, 0, 0, 0, 0, 2].into(), ..Ipv6Fields::NONE };
    let v6_mask = Ipv6Fields { src: [0xffff; 8].into(), ..Ipv6Fields::NONE };
    let vlan = FlowItem::Vlan(ItemMatch::exactly(VlanFields { tci: 6, inner_type: 0 }));
    vec![
        FlowRule::new().item(to_v4(1)).item(udp_to(53)).action(FlowAction::Mark(0)).action(queue(1)),
        FlowRule::new()
            .item(FlowItem::Eth(ItemMatch::any()))
            .item(FlowItem::Ipv6(ItemMatch::masked(v6, v6_mask)))
            .item(tcp)
            .action(FlowAction::Count)
            .action(FlowAction::Mark(0xff_fffd))
            .action(queue(2)),
        FlowRule::new()
            .priority(1)
            .item(FlowItem::Ipv4(ItemMatch::any()))
            .item(udp_to(53))
            .action(FlowAction::Drop),
        FlowRule::new()
            .priority(1)
            .item(FlowItem::Ipv6(ItemMatch::any()))
            .item(FlowItem::Tcp(ItemMatch::any()))
            .action(FlowAction::Count)
            .action(FlowAction::Drop),
        FlowRule::new()
            .priority(2)
            .item(vlan)
            .action(FlowAction::Flag)
            .action(FlowAction::Count)
            .action(queue(3)),
        FlowRule::new().priority(3).item(to_v4(4)).action(FlowAction::Mark(77)).action(queue(0)),
    ]
}

/// Sends packets and compares queue, mark and flag of each with what the rules say; packets and bytes by rule.
#[track_caller]
fn check(
    rig: &mut Rig,
    rules: &[(FlowHandle, FlowRule)],
    dice: &mut Dice,
    others: Option<u16>,
) -> Vec<(u64, u64)> {
    let mut counts = vec![(0, 0); rules.len()];
    for _ in 0..250 {
        let packet = dice.packet();
        let arrived = rig.arrive(&packet);
        let Some((handle, rule)) = winner(rules, &packet) else {
            assert_eq!(arrived.map(|(queue, _)| queue), others, "no rule takes {packet:?}");
            continue;
        };
        let at = rules.iter().position(|(known, _)| known == handle).expect("one of them");
        counts[at].0 += 1;
        counts[at].1 += packet.frame().len() as u64;
        let fate = rule.actions.iter().find_map(|action| match action {
            FlowAction::Queue(queue) => Some(queue.0),
            _ => None,
        });
        assert_eq!(arrived.as_ref().map(|(queue, _)| *queue), fate, "{packet:?} under {rule:?}");
        let Some((_, mbuf)) = arrived else { continue };
        let mark = rule.actions.iter().find_map(|action| match action {
            FlowAction::Mark(mark) => Some(*mark),
            _ => None,
        });
        let flags = mbuf.rx_flags();
        assert_eq!(flags.contains(RxFlags::MARK), mark.is_some(), "{packet:?} under {rule:?}");
        let flagged = mark.is_some() || rule.actions.contains(&FlowAction::Flag);
        assert_eq!(flags.contains(RxFlags::FLOW), flagged, "{packet:?} under {rule:?}");
        if let Some(mark) = mark {
            assert_eq!(mbuf.mark(), mark, "{packet:?}");
        }
    }
    counts
}

/// No hash, so that what no rule takes comes to queue 0.
fn plain(way: Way) -> Rig {
    Rig::new(way, 4, |config| config.rss = Some(RssConfig::default()))
}

#[test]
fn rules_direct_mark_drop_and_count_packet_by_packet() {
    for way in Way::BOTH {
        let mut rig = plain(way);
        let priorities = rig.port.flow_info().expect("rules").priorities;
        assert_eq!(priorities, 4, "16 of the device, 3 for each, 3 for default rules");
        let mut made = Vec::new();
        for rule in rules() {
            made.push((rig.port.flow_create(&rule).expect("a rule"), rule));
        }
        let mut dice = Dice::new(11);
        let mut counts = check(&mut rig, &made, &mut dice, Some(0));
        assert!(counts.iter().all(|(packets, _)| *packets > 0), "every rule was met: {counts:?}");

        // Rules stay over stop and start, and so does what they counted.
        rig.port.stop().expect("stops");
        rig.port.start().expect("starts");
        for (count, more) in counts.iter_mut().zip(check(&mut rig, &made, &mut dice, Some(0))) {
            *count = (count.0 + more.0, count.1 + more.1);
        }
        for ((handle, rule), (packets, bytes)) in made.iter().zip(&counts) {
            let counted = rig.port.flow_query(*handle, true);
            if rule.actions.contains(&FlowAction::Count) {
                let counted = counted.expect("it counts");
                assert_eq!((counted.packets, counted.bytes), (*packets, *bytes), "{way:?} {rule:?}");
                assert_eq!(rig.port.flow_query(*handle, false).expect("it counts").packets, 0, "set back");
            } else {
                assert!(matches!(counted, Err(PortError::Flow { .. })));
            }
        }

        // One that goes leaves its packets to those behind it.
        let (gone, _) = made.remove(0);
        rig.port.flow_destroy(gone).expect("goes");
        check(&mut rig, &made, &mut dice, Some(0));
        rig.port.flow_flush().expect("all go");
        check(&mut rig, &[], &mut dice, Some(0));
        rig.end();
    }
}

#[test]
fn a_rule_spreads_over_queues_of_its_own() {
    for way in Way::BOTH {
        for fields in [HashFields::empty(), HashFields::IPV4 | HashFields::NONFRAG_IPV4_UDP] {
            let mut rig = Rig::new(way, 4, |config| {
                config.rx_offloads = RxOffloads::RSS_HASH;
                config.rss = Some(RssConfig::new(HashFields::UDP));
            });
            let queues = [QueueId(1), QueueId(3), QueueId(2)];
            let rss = FlowRss { queues: queues.to_vec(), fields, ..FlowRss::default() };
            let rule = FlowRule::new()
                .item(FlowItem::Ipv4(ItemMatch::any()))
                .action(FlowAction::Count)
                .action(FlowAction::Mark(9))
                .action(FlowAction::Rss(rss));
            let handle = rig.port.flow_create(&rule).expect("a rule");
            let (mut dice, mut packets, mut used) = (Dice::new(5), 0, [0; 4]);
            for _ in 0..300 {
                let packet = dice.packet();
                let (queue, mbuf) = rig.arrive(&packet).expect("nothing is dropped");
                let ours = matches!(packet.net, Net::V4(..));
                assert_eq!(mbuf.rx_flags().contains(RxFlags::MARK), ours, "{packet:?}");
                if !ours {
                    continue;
                }
                packets += 1;
                used[usize::from(queue)] += 1;
                // 128 entries: the three queues in turn.
                let hashed = mbuf.rx_flags().contains(RxFlags::RSS_HASH);
                let place = if hashed { mbuf.rss_hash() as usize % 128 } else { 0 };
                assert_eq!(QueueId(queue), queues[place % 3], "{packet:?}");
                let udp = matches!(packet.transport, Transport::Udp(..));
                assert_eq!(hashed, udp || !fields.is_empty(), "{packet:?}");
            }
            assert_eq!(rig.port.flow_query(handle, false).expect("it counts").packets, packets);
            assert!(used[0] == 0 && used[1..].iter().all(|count| *count > 0), "{used:?}");
            rig.end();
        }
    }
}

#[test]
fn an_isolated_port_receives_what_rules_direct_to_it() {
    for way in Way::BOTH {
        let mut rig = plain(way);
        let rule = FlowRule::new().item(to_v4(1)).action(queue(2));
        let made = [(rig.port.flow_create(&rule).expect("a rule"), rule)];
        rig.port.flow_isolate(true).expect("isolates");
        let mut dice = Dice::new(7);
        check(&mut rig, &made, &mut dice, None);
        rig.port.flow_isolate(false).expect("and back");
        check(&mut rig, &made, &mut dice, Some(0));
        rig.end();
    }
}

#[test]
fn only_listed_vlans_come_in() {
    for way in Way::BOTH {
        let mut rig = Rig::new(way, 1, |config| config.rx_offloads = RxOffloads::VLAN_FILTER);
        let tagged = |vlan| Packet { vlan: Some(vlan), ..Packet::v4((1, 1), Transport::Udp(1, 2)) };
        let untagged = Packet::other();
        let seen = |rig: &mut Rig| {
            [tagged(5), tagged(0x2006), tagged(7), untagged].map(|packet| rig.queue_of(&packet).is_some())
        };
        assert_eq!(seen(&mut rig), [true; 4], "an empty list filters nothing");
        rig.port.set_vlan_filter(5, true).expect("adds");
        rig.port.set_vlan_filter(6, true).expect("adds");
        assert_eq!(seen(&mut rig), [true, true, false, false], "the number counts, not the priority");
        rig.port.set_vlan_filter(5, false).expect("takes out");
        assert_eq!(seen(&mut rig), [false, true, false, false]);
        rig.port.set_vlan_offloads(RxOffloads::empty()).expect("turns the filter off");
        assert_eq!(seen(&mut rig), [true; 4]);
        rig.port.set_vlan_offloads(RxOffloads::VLAN_FILTER).expect("and on");
        assert_eq!(seen(&mut rig), [false, true, false, false], "the list was kept");
        rig.end();
    }
}

#[test]
fn only_frames_to_the_port_come_in_without_a_rule() {
    for way in Way::BOTH {
        let mut rig = plain(way);
        let foreign = Packet { dst: [2, 0, 0, 0, 0, 9], ..Packet::other() };
        let to = EthFields { dst: MacAddress(foreign.dst), ..EthFields::NONE };
        assert_eq!(rig.queue_of(&foreign), None);
        let rule = FlowRule::new().item(FlowItem::Eth(ItemMatch::masked(to, only_dst()))).action(queue(3));
        rig.port.flow_create(&rule).expect("a rule");
        assert_eq!(rig.queue_of(&foreign), Some(3));
        assert_eq!(rig.queue_of(&Packet { dst: OWN, ..foreign }), Some(0));
        rig.end();
    }
}

#[test]
fn what_the_device_cannot_do_is_refused_by_name() {
    for way in Way::BOTH {
        let mut rig = plain(way);
        let ttl = Ipv4Fields { ttl: 1, ..Ipv4Fields::NONE };
        let ttl = FlowItem::Ipv4(ItemMatch::masked(ttl, Ipv4Fields { ttl: 0xff, ..Ipv4Fields::NONE }));
        let refusal = |rig: &mut Rig, rule: FlowRule| {
            let one = rig.port.flow_validate(&rule).expect_err("refused").to_string();
            let other = rig.port.flow_create(&rule).expect_err("refused").to_string();
            assert_eq!(one, other);
            one
        };
        if way == Way::Verbs {
            let said = refusal(&mut rig, FlowRule::new().item(ttl).action(queue(0)));
            assert!(said.contains("item (ipv4): the kernel's rules do not match its ttl"), "{said}");
        } else {
            rig.port
                .flow_create(&FlowRule::new().item(ttl).action(queue(0)))
                .expect("the firmware matches it");
        }
        for (actions, words) in [
            ([FlowAction::Mark(1), FlowAction::Drop], "action (mark): a dropped packet carries none"),
            ([FlowAction::Flag, FlowAction::Drop], "action (flag): a dropped packet carries none"),
            ([FlowAction::Jump(1), FlowAction::Count], "action 0 (jump): the port has QUEUE, RSS, DROP"),
            ([FlowAction::Mark(0xff_fffe), queue(0)], "action 0 (mark): 16777214 is more than 16777213"),
        ] {
            let rule = actions.into_iter().fold(FlowRule::new(), FlowRule::action);
            let said = refusal(&mut rig, rule);
            assert!(said.contains(words), "{said}");
        }
        rig.port.flow_flush().expect("all go");
        rig.end();
    }
}

#[test]
fn of_one_priority_the_rule_of_the_higher_layer_wins() {
    for way in Way::BOTH {
        let mut rig = plain(way);
        // In the order in which a table of equals would find the wrong one first.
        for (item, to) in [(vec![], 1), (vec![FlowItem::Ipv4(ItemMatch::any())], 2)] {
            let rule = FlowRule { pattern: item, ..FlowRule::new() }.action(queue(to));
            rig.port.flow_create(&rule).expect("a rule");
        }
        let datagrams =
            FlowRule::new().item(FlowItem::Ipv4(ItemMatch::any())).item(udp_to(53)).action(queue(3));
        rig.port.flow_create(&datagrams).expect("a rule");
        assert_eq!(rig.queue_of(&Packet::v4((1, 1), Transport::Udp(9, 53))), Some(3));
        assert_eq!(rig.queue_of(&Packet::v4((1, 1), Transport::Udp(9, 54))), Some(2));
        assert_eq!(rig.queue_of(&Packet::other()), Some(1));
        rig.end();
    }
}

#[test]
fn tags_are_taken_out_where_and_while_that_is_on() {
    for way in Way::BOTH {
        let mut rig = Rig::new(way, 1, |config| config.rx_offloads = RxOffloads::VLAN_STRIP);
        let tagged = Packet { vlan: Some(0x6123), ..Packet::v4((1, 1), Transport::Udp(1, 2)) };
        let bare = Packet { vlan: None, ..tagged };
        let strips = |rig: &mut Rig| {
            let (_, mbuf) = rig.arrive_changed(&tagged).expect("comes in");
            let stripped = mbuf.rx_flags().contains(RxFlags::VLAN_STRIPPED | RxFlags::VLAN);
            let wanted = if stripped { bare } else { tagged };
            assert!(mbuf.data().starts_with(&wanted.frame()[..34]), "{stripped}: {:02x?}", mbuf.data());
            assert!(!stripped || mbuf.vlan_tci() == 0x6123, "the tag goes with the packet");
            stripped
        };
        assert!(strips(&mut rig));
        let (_, mbuf) = rig.arrive(&bare).expect("comes in");
        assert!(!mbuf.rx_flags().contains(RxFlags::VLAN_STRIPPED), "no tag, none taken out");
        drop(mbuf);
        rig.port.set_vlan_offloads(RxOffloads::empty()).expect("turns it off");
        assert!(!strips(&mut rig));
        rig.port.set_vlan_strip_on_queue(QueueId(0), true).expect("turns it on");
        assert!(strips(&mut rig));
        // A queue that stands still is in another state.
        rig.port.rx_queue_stop(QueueId(0)).expect("stops");
        rig.port.set_vlan_strip_on_queue(QueueId(0), false).expect("turns it off");
        rig.port.rx_queue_start(QueueId(0)).expect("starts");
        assert!(!strips(&mut rig));
        rig.end();

        let mut without = plain(way);
        without.port.set_vlan_strip_on_queue(QueueId(1), false).expect("off is off");
        let refused = without.port.set_vlan_strip_on_queue(QueueId(1), true).expect_err("not set up for it");
        assert!(refused.is_unsupported() && refused.to_string().contains("without VLAN_STRIP"), "{refused}");
        without.end();
    }
}
