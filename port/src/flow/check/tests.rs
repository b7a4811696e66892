use super::*;
use crate::flow::{
    EthFields, FlowItem, FlowItems, FlowRss, Ipv4Fields, Ipv6Fields, ItemMatch, L3, L4, Masked, Pattern,
    TcpFields, UdpFields, VlanFields,
};
use crate::{HashAlgorithm, HashFields, MacAddress};

const LIMITS: FlowLimits = FlowLimits {
    flow: FlowInfo {
        groups: 1,
        priorities: 4,
        items: FlowItems::all(),
        actions: FlowActions::QUEUE
            .union(FlowActions::RSS)
            .union(FlowActions::DROP)
            .union(FlowActions::MARK)
            .union(FlowActions::COUNT),
        mark_max: 0xff_fff0,
    },
    rss: Some(RssInfo {
        fields: HashFields::IP,
        key_bytes: 40,
        table_entries: 64,
        algorithms: &[HashAlgorithm::Toeplitz],
    }),
    rx_queues: 2,
};

fn rule(items: &[FlowItem]) -> FlowRule {
    FlowRule { pattern: items.to_vec(), ..FlowRule::new() }.action(FlowAction::Drop)
}

fn with(actions: &[FlowAction]) -> FlowRule {
    FlowRule { actions: actions.to_vec(), ..FlowRule::new() }
}

fn refusal(rule: &FlowRule) -> String {
    LIMITS.plan(rule).expect_err("refused").named("p0").to_string()
}

fn udp(dst: u16) -> FlowItem {
    FlowItem::Udp(ItemMatch::exactly(UdpFields { src: 0, dst }))
}

#[test]
fn a_rule_becomes_a_plan_with_values_under_their_masks() {
    let dst = MacAddress([2, 0, 0, 0, 0, 9]);
    let eth = EthFields { dst, ether_type: 0x8100, ..EthFields::NONE };
    let items = [
        FlowItem::Eth(ItemMatch::masked(eth, EthFields { dst: MacAddress([0xff; 6]), ..EthFields::NONE })),
        // Default mask: the number alone.
        FlowItem::Vlan(ItemMatch::exactly(VlanFields { tci: 0xe123, inner_type: 0x86dd })),
        FlowItem::Ipv6(ItemMatch::any()),
        udp(53),
    ];
    let rule = FlowRule { pattern: items.to_vec(), ..FlowRule::new() }
        .priority(3)
        .action(FlowAction::Mark(0xff_fff0))
        .action(FlowAction::Count)
        .action(FlowAction::Queue(QueueId(1)));
    let plan = LIMITS.plan(&rule).expect("sound");
    assert_eq!(plan.pattern.outer.eth.spec, EthFields { dst, ..EthFields::NONE }, "the type was masked out");
    let vlan = plan.pattern.outer.vlan.expect("asked for");
    assert_eq!((vlan.spec.tci, vlan.mask.tci, vlan.mask.inner_type), (0x123, 0xfff, 0));
    assert_eq!(plan.pattern.outer.l3, L3::Ipv6(Masked::default()));
    let L4::Udp(ports) = plan.pattern.outer.l4 else { panic!("{plan:?}") };
    assert_eq!((ports.spec.dst, ports.mask.src), (53, 0xffff));
    assert_eq!((plan.priority, plan.mark, plan.count, plan.flag), (3, Some(0xff_fff0), true, false));
    assert_eq!(plan.fate, FlowFate::Queue(QueueId(1)));
    let everything = LIMITS.plan(&rule_of_nothing()).expect("an empty pattern matches all");
    assert_eq!(everything.pattern, Pattern::default());
}

fn rule_of_nothing() -> FlowRule {
    rule(&[])
}

#[test]
fn attributes_outside_the_limits_are_named() {
    assert_eq!(refusal(&rule(&[]).group(1)), "port p0: flow rule, group 1: there are 1, from 0");
    assert_eq!(refusal(&rule(&[]).priority(4)), "port p0: flow rule, priority 4: there are 4, from 0");
    let mut egress = rule(&[]);
    egress.attributes.egress = true;
    assert_eq!(refusal(&egress), "port p0: flow rule, egress 1: rules are for received packets");
    let mut none = rule(&[]);
    none.attributes.ingress = false;
    assert!(refusal(&none).contains("ingress 0"));
}

#[test]
fn items_that_make_no_pattern_are_named_with_their_place() {
    let eth = FlowItem::Eth(ItemMatch::any());
    let ipv4 = FlowItem::Ipv4(ItemMatch::any());
    for (items, said) in [
        (vec![ipv4, eth], "item 1 (eth): headers stand"),
        (vec![ipv4, FlowItem::Ipv6(ItemMatch::any())], "item 1 (ipv6): headers stand"),
        (vec![eth, udp(1)], "item 1 (udp): ipv4 or ipv6 must stand before it"),
    ] {
        let text = refusal(&rule(&items));
        assert!(text.contains(said), "{text}");
    }
    let lone =
        LIMITS.plan(&rule(&[FlowItem::Eth(ItemMatch { mask: Some(EthFields::NONE), ..ItemMatch::any() })]));
    assert!(lone.expect_err("no spec").to_string().contains("needs a spec"));
    let limits = FlowLimits { flow: FlowInfo { items: FlowItems::ETH, ..LIMITS.flow }, ..LIMITS };
    let text = limits.plan(&rule(&[eth, ipv4])).expect_err("lacking").to_string();
    assert!(text.contains("item 1 (ipv4): the port matches ETH"), "{text}");
}

#[test]
fn a_range_is_refused_unless_it_is_none() {
    let ports = |last| ItemMatch {
        spec: Some(TcpFields { src: 1, dst: 80, flags: 0 }),
        last: Some(TcpFields { src: 2, dst: last, flags: 0 }),
        mask: Some(TcpFields { dst: 0xffff, ..TcpFields::NONE }),
    };
    let items = |last| rule(&[FlowItem::Ipv4(ItemMatch::any()), FlowItem::Tcp(ports(last))]);
    assert!(LIMITS.plan(&items(80)).is_ok(), "the same under the mask");
    assert!(refusal(&items(81)).contains("item 1 (tcp): ranges are not matched"));
}

#[test]
fn headers_that_contradict_each_other_are_refused() {
    let typed = |ether_type| {
        let fields = EthFields { ether_type, ..EthFields::NONE };
        FlowItem::Eth(ItemMatch::masked(fields, EthFields { ether_type: 0xffff, ..EthFields::NONE }))
    };
    let ipv4 = FlowItem::Ipv4(ItemMatch::any());
    assert!(LIMITS.plan(&rule(&[typed(0x0800), ipv4])).is_ok());
    assert!(
        refusal(&rule(&[typed(0x86dd), ipv4])).contains("it says type 0x86dd, the item behind it 0x0800")
    );
    // The type of a tagged frame is the tag's.
    assert!(LIMITS.plan(&rule(&[typed(0x8100), FlowItem::Vlan(ItemMatch::any()), ipv4])).is_ok());
    let carries = |protocol| {
        let fields = Ipv4Fields { protocol, ..Ipv4Fields::NONE };
        FlowItem::Ipv4(ItemMatch::masked(fields, Ipv4Fields { protocol: 0xff, ..Ipv4Fields::NONE }))
    };
    assert!(LIMITS.plan(&rule(&[carries(17), udp(1)])).is_ok());
    assert!(refusal(&rule(&[carries(6), udp(1)])).contains("item (ipv4): it says protocol 6"));
    let fields = Ipv6Fields { next_header: 6, ..Ipv6Fields::NONE };
    let six = FlowItem::Ipv6(ItemMatch::masked(fields, Ipv6Fields { next_header: 0xff, ..Ipv6Fields::NONE }));
    assert!(refusal(&rule(&[six, udp(1)])).contains("item (ipv6): it says protocol 6"));
}

#[test]
fn actions_that_make_no_sense_are_named_with_their_place() {
    let rss = |queues: &[u16], fields| {
        let queues = queues.iter().map(|queue| QueueId(*queue)).collect();
        FlowAction::Rss(FlowRss { queues, fields, ..FlowRss::default() })
    };
    for (actions, said) in [
        (vec![], "as a whole: no action says where packets go"),
        (vec![FlowAction::Count], "as a whole: no action says where packets go"),
        (vec![FlowAction::Queue(QueueId(2))], "action 0 (queue): there is no rx queue 2; 2 are configured"),
        (
            vec![FlowAction::Drop, FlowAction::Queue(QueueId(0))],
            "action 1 (queue): a packet has one fate only",
        ),
        (vec![FlowAction::Count, FlowAction::Count], "action 1 (count): it stands in the rule twice"),
        (vec![FlowAction::Mark(0xff_fff1)], "action 0 (mark): 16777201 is more than 16777200"),
        (vec![FlowAction::Jump(0)], "action 0 (jump): the port has QUEUE, RSS, DROP, MARK, COUNT"),
        (vec![FlowAction::PopVlan], "action 0 (of_pop_vlan): the port has"),
        (vec![rss(&[], HashFields::IP)], "action 0 (rss): it names no queue"),
        (vec![rss(&[0, 5], HashFields::IP)], "action 0 (rss): there is no rx queue 5"),
        (vec![rss(&[0], HashFields::TCP)], "rss fields=NONFRAG_IPV4_TCP, "),
    ] {
        let text = refusal(&with(&actions));
        assert!(text.contains(said), "{text}");
    }
    assert!(LIMITS.plan(&with(&[rss(&[1, 0, 1], HashFields::empty())])).is_ok());
    let mut jumps = LIMITS;
    jumps.flow.groups = 3;
    jumps.flow.actions |= FlowActions::JUMP;
    let jump = |to| with(&[FlowAction::Jump(to)]).group(1);
    assert_eq!(jumps.plan(&jump(2)).expect("forward").fate, FlowFate::Jump(2));
    assert!(jumps.plan(&jump(1)).is_err() && jumps.plan(&jump(3)).is_err(), "no loop, no nowhere");
}
