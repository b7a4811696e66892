use super::*;
use crate::flow::{
    EthFields, GreFields, GreKeyFields, Ipv4Fields, Ipv6Fields, MplsFields, UdpFields, VlanFields,
    VxlanFields,
};

fn parsed(items: &[FlowItem]) -> Pattern {
    read(items, FlowItems::all()).unwrap_or_else(|error| panic!("{items:?}: {error}"))
}

fn refusal(items: &[FlowItem]) -> String {
    read(items, FlowItems::all()).expect_err("refused").named("p0").to_string()
}

fn exactly<T>(spec: T) -> ItemMatch<T> {
    ItemMatch::exactly(spec)
}

/// An item of each kind that says nothing but that its header is there.
fn any(name: &str) -> FlowItem {
    match name {
        "eth" => FlowItem::Eth(ItemMatch::any()),
        "vlan" => FlowItem::Vlan(ItemMatch::any()),
        "ipv4" => FlowItem::Ipv4(ItemMatch::any()),
        "ipv6" => FlowItem::Ipv6(ItemMatch::any()),
        "tcp" => FlowItem::Tcp(ItemMatch::any()),
        "udp" => FlowItem::Udp(ItemMatch::any()),
        "vxlan" => FlowItem::Vxlan(ItemMatch::any()),
        "mpls" => FlowItem::Mpls(ItemMatch::any()),
        "gre" => FlowItem::Gre(ItemMatch::any()),
        "gre_key" => FlowItem::GreKey(ItemMatch::any()),
        name => panic!("no item is called {name}"),
    }
}

fn items(text: &str) -> Vec<FlowItem> {
    text.split_whitespace().map(any).collect()
}

fn udp_to(dst: u16) -> FlowItem {
    FlowItem::Udp(ItemMatch::masked(UdpFields { src: 0, dst }, UdpFields { src: 0, dst: 0xffff }))
}

fn gre_of(protocol: u16) -> FlowItem {
    FlowItem::Gre(exactly(GreFields { flags: 0, protocol }))
}

fn typed(ether_type: u16) -> FlowItem {
    let fields = EthFields { ether_type, ..EthFields::NONE };
    FlowItem::Eth(ItemMatch::masked(fields, EthFields { ether_type: 0xffff, ..EthFields::NONE }))
}

/// IPv4 and IPv6 headers that say what they carry.
fn carriers(protocol: u8) -> [FlowItem; 2] {
    let (v4, v6) = (
        Ipv4Fields { protocol, ..Ipv4Fields::NONE },
        Ipv6Fields { next_header: protocol, ..Ipv6Fields::NONE },
    );
    [
        FlowItem::Ipv4(ItemMatch::masked(v4, Ipv4Fields { protocol: 0xff, ..Ipv4Fields::NONE })),
        FlowItem::Ipv6(ItemMatch::masked(v6, Ipv6Fields { next_header: 0xff, ..Ipv6Fields::NONE })),
    ]
}

/// Every header behind every other, after headers that lead there.
#[test]
fn each_item_stands_behind_those_that_carry_it() {
    let leading = [
        "",
        "eth",
        "vlan",
        "ipv4",
        "ipv6",
        "ipv4 tcp",
        "ipv4 udp",
        "ipv4 udp vxlan",
        "mpls",
        "ipv4 gre",
        "ipv4 gre gre_key",
        "ipv4 udp vxlan eth",
        "ipv4 gre ipv6",
        "ipv4 gre eth",
    ];
    let outer = ["eth", "vlan", "ipv4", "ipv6", "tcp", "udp", "vxlan", "mpls", "gre", "gre_key"];
    // In the order of `leading`: what may stand behind it.
    let allowed: [&[&str]; 14] = [
        &["eth", "vlan", "ipv4", "ipv6", "mpls"],
        &["vlan", "ipv4", "ipv6", "mpls"],
        &["ipv4", "ipv6", "mpls"],
        &["tcp", "udp", "gre", "mpls"],
        &["tcp", "udp", "gre", "mpls"],
        &[],
        &["vxlan", "mpls"],
        &["eth", "vlan", "ipv4", "ipv6"],
        &["eth", "vlan", "ipv4", "ipv6"],
        &["eth", "ipv4", "ipv6", "mpls", "gre_key"],
        &["eth", "ipv4", "ipv6", "mpls"],
        &["vlan", "ipv4", "ipv6"],
        &["tcp", "udp"],
        &["vlan", "ipv4", "ipv6"],
    ];
    for (before, allowed) in leading.iter().zip(allowed) {
        for name in outer {
            let mut all = items(before);
            let at = all.len();
            all.push(any(name));
            let done = read(&all, FlowItems::all());
            assert_eq!(done.is_ok(), allowed.contains(&name), "{name} behind '{before}': {done:?}");
            if let Err(error) = done {
                assert!(error.to_string().contains(&format!("item {at} ({name}): ")), "{error}");
            }
        }
    }
}

#[test]
fn what_is_out_of_order_is_told_why() {
    for (text, said) in [
        ("ipv4 vxlan", "item 1 (vxlan): it stands right behind udp"),
        ("ipv4 tcp vxlan", "item 2 (vxlan): it stands right behind udp"),
        ("eth gre", "item 1 (gre): it stands right behind ipv4 or ipv6"),
        ("ipv4 gre_key", "item 1 (gre_key): it stands right behind gre"),
        ("ipv4 udp vxlan gre_key", "item 3 (gre_key): it stands right behind gre"),
        ("ipv4 tcp mpls", "item 2 (mpls): it stands right behind eth, vlan, ipv4, ipv6, udp, gre or gre_key"),
        ("mpls mpls", "item 1 (mpls): it stands right behind eth"),
        ("ipv4 gre mpls mpls", "item 3 (mpls): it stands right behind eth"),
        ("ipv4 udp vxlan ipv4 gre", "item 4 (gre): a tunnel inside a tunnel is not matched"),
        ("ipv4 gre ipv4 udp vxlan", "item 4 (vxlan): a tunnel inside a tunnel is not matched"),
        ("ipv4 gre udp", "item 2 (udp): ipv4 or ipv6 must stand before it"),
        ("ipv4 gre eth tcp", "item 3 (tcp): ipv4 or ipv6 must stand before it"),
        ("ipv4 gre vlan", "item 2 (vlan): eth must stand before it"),
        ("ipv4 udp vxlan ipv4 eth", "item 4 (eth): headers stand from the outside in, each once"),
    ] {
        let text = refusal(&items(text));
        assert!(text.contains(said), "{text}");
    }
    let kinds = FlowItems::all() - FlowItems::MPLS;
    let lacking = read(&items("eth mpls"), kinds).expect_err("the port has none").to_string();
    assert!(lacking.contains("item 1 (mpls): the port matches ETH, VLAN, IPV4,"), "{lacking}");
}

#[test]
fn inner_headers_are_apart_from_outer_ones() {
    let inner = FlowItem::Udp(exactly(UdpFields { src: 1, dst: 2 }));
    let all = [items("eth ipv6 udp vxlan eth vlan ipv4"), vec![inner]].concat();
    let Pattern { outer, tunnel, inner } = parsed(&all);
    let inner = inner.expect("there are some");
    assert_eq!((outer.l3, inner.l3), (L3::Ipv6(Masked::default()), L3::Ipv4(Masked::default())));
    assert_eq!((outer.vlan, inner.vlan), (None, Some(Masked::default())));
    let L4::Udp(ports) = inner.l4 else { panic!("{inner:?}") };
    assert_eq!((ports.spec.src, ports.spec.dst), (1, 2));
    assert_eq!(tunnel, Tunnel::Vxlan(Masked::default()));
    assert_eq!(parsed(&items("ipv4 gre")).inner, None);
}

/// Default masks are those of `rte_flow_item_*_mask` (lib/ethdev/rte_flow.h).
#[test]
fn values_count_under_the_masks_of_rte_flow() {
    let before = items("ipv4 udp");
    let vxlan = FlowItem::Vxlan(exactly(VxlanFields { vni: 0x12_3456 }));
    let Tunnel::Vxlan(vxlan) = parsed(&[&before[..], &[vxlan]].concat()).tunnel else { panic!("vxlan") };
    assert_eq!((vxlan.spec.vni, vxlan.mask.vni), (0x12_3456, 0xff_ffff));
    let label = FlowItem::Mpls(exactly(MplsFields { entry: 0x1234_5fff }));
    let Tunnel::Mpls(label) = parsed(&[&before[..], &[label]].concat()).tunnel else { panic!("mpls") };
    assert_eq!((label.spec.entry, label.mask.entry), (0x1234_5000, 0xffff_f000));
    let gre = FlowItem::Gre(exactly(GreFields { flags: 0x2000, protocol: 0x0800 }));
    let key = FlowItem::GreKey(exactly(GreKeyFields { key: 7 }));
    let Tunnel::Gre { gre, key, label: None } = parsed(&[any("ipv6"), gre, key]).tunnel else {
        panic!("gre")
    };
    assert_eq!((gre.spec, gre.mask.flags), (GreFields { flags: 0, protocol: 0x0800 }, 0));
    assert_eq!(key.map(|key| (key.spec.key, key.mask.key)), Some((7, u32::MAX)));

    let wide = VxlanFields { vni: u32::MAX };
    let text = refusal(&[&before[..], &[FlowItem::Vxlan(ItemMatch::masked(wide, wide))]].concat());
    assert!(text.contains("item 2 (vxlan): a network identifier has 24 bits"), "{text}");
}

#[test]
fn what_leads_to_a_tunnel_is_filled_in() {
    let port = |items: &[FlowItem]| match parsed(items).outer.l4 {
        L4::Udp(udp) => (udp.spec.dst, udp.mask.dst),
        other => panic!("{other:?}"),
    };
    for ip in ["ipv4", "ipv6"] {
        for (tunnel, wanted) in [("vxlan", 4789), ("mpls", 6635)] {
            assert_eq!(port(&[any(ip), any("udp"), any(tunnel)]), (wanted, 0xffff), "{ip} {tunnel}");
            assert_eq!(port(&[any(ip), udp_to(99), any(tunnel)]), (99, 0xffff), "as the rule says");
        }
        assert_eq!(port(&[any(ip), any("udp")]), (0, 0), "no tunnel, no port");
    }
    let protocol = |text: &str| match parsed(&items(text)).tunnel {
        Tunnel::Gre { gre, .. } => (gre.spec.protocol, gre.mask.protocol),
        other => panic!("{other:?}"),
    };
    for (text, wanted) in [
        ("ipv4 gre", (0, 0)),
        ("ipv4 gre gre_key", (0, 0)),
        ("ipv4 gre ipv4", (0x0800, 0xffff)),
        ("ipv6 gre gre_key ipv6", (0x86dd, 0xffff)),
        ("ipv4 gre eth", (0x6558, 0xffff)),
        ("ipv4 gre eth ipv4", (0x6558, 0xffff)),
        ("ipv4 gre mpls", (0x8847, 0xffff)),
        ("ipv4 gre gre_key mpls", (0x8847, 0xffff)),
    ] {
        assert_eq!(protocol(text), wanted, "{text}");
    }
    assert_eq!(parsed(&items("eth mpls")).outer.eth.spec.ether_type, 0x8847);
    let tagged = parsed(&items("eth vlan mpls")).outer;
    assert_eq!((tagged.eth.mask.ether_type, tagged.vlan.expect("a tag").spec.inner_type), (0, 0x8847));
    assert_eq!(parsed(&[typed(0x8848), any("mpls")]).outer.eth.spec.ether_type, 0x8848, "to many");
}

#[test]
fn headers_that_contradict_a_tunnel_are_refused() {
    for (tunnel, protocol) in [("gre", 47), ("mpls", 137), ("udp", 17)] {
        for carrier in carriers(protocol) {
            parsed(&[carrier, any(tunnel)]);
        }
        for carrier in carriers(6) {
            let text = refusal(&[carrier, any(tunnel)]);
            let said =
                format!("item ({}): it says protocol 6, the item behind it {protocol}", carrier.name());
            assert!(text.contains(&said), "{text}");
        }
    }
    for (protocol, behind, said) in [
        (0x0800, "ipv6", "it says protocol 0x0800, the item behind it 0x86dd"),
        (0x86dd, "ipv4", "it says protocol 0x86dd, the item behind it 0x0800"),
        (0x0800, "eth", "it says protocol 0x0800, the item behind it 0x6558"),
        (0x6558, "ipv4", "it says protocol 0x6558, the item behind it 0x0800"),
        (0x0800, "mpls", "it says protocol 0x0800, the item behind it 0x8847"),
    ] {
        let text = refusal(&[any("ipv4"), gre_of(protocol), any(behind)]);
        assert!(text.contains(&format!("item (gre): {said}")), "{text}");
    }
    for (protocol, behind) in
        [(0x0800, "ipv4"), (0x86dd, "ipv6"), (0x6558, "eth"), (0x8847, "mpls"), (0x8848, "mpls")]
    {
        parsed(&[any("ipv4"), gre_of(protocol), any(behind)]);
    }
    // The rules are those of the outer headers inside, too.
    let [carrier, _] = carriers(6);
    assert!(
        refusal(&[any("ipv4"), any("gre"), carrier, any("udp")]).contains("item (ipv4): it says protocol 6")
    );
    let inside = [&items("ipv4 udp vxlan")[..], &[typed(0x86dd), any("ipv4")]].concat();
    assert!(refusal(&inside).contains("item (eth): it says type 0x86dd, the item behind it 0x0800"));
    assert!(
        refusal(&[typed(0x0800), any("mpls")])
            .contains("item (eth): it says type 0x0800, the item behind it 0x8847")
    );
    let tag = FlowItem::Vlan(ItemMatch::masked(
        VlanFields { tci: 0, inner_type: 0x0800 },
        VlanFields { tci: 0, inner_type: 0xffff },
    ));
    assert!(refusal(&[tag, any("mpls")]).contains("item (vlan): it says type 0x0800"));

    let flags =
        |flags| ItemMatch::masked(GreFields { flags, protocol: 0 }, GreFields { flags: 0x2000, protocol: 0 });
    parsed(&[any("ipv4"), FlowItem::Gre(flags(0x2000)), any("gre_key")]);
    let text = refusal(&[any("ipv4"), FlowItem::Gre(flags(0)), any("gre_key")]);
    assert!(text.contains("item 2 (gre_key): the gre item before it says that there is no key"), "{text}");
    parsed(&[any("ipv4"), FlowItem::Gre(flags(0))]);
}
