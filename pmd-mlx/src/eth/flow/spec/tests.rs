use pollux_port::flow::{
    EthFields, FlowFate, FlowRss, Ipv4Fields, Ipv6Fields, TcpFields, UdpFields, VlanFields, VxlanFields,
};
use pollux_port::{MacAddress, QueueId};
use pollux_uverbs::flow::FlowSpec;

use super::*;
use crate::eth::rss;

fn plan(pattern: impl Into<Pattern>) -> FlowPlan {
    let pattern = pattern.into();
    let fate = FlowFate::Rss(FlowRss { queues: vec![QueueId(0)], ..FlowRss::default() });
    FlowPlan { group: 0, priority: 0, pattern, fate, mark: None, flag: false, count: false }
}

fn all(pattern: impl Into<Pattern>) -> Vec<Part> {
    parts(&plan(pattern), &rss::kinds(rss::DEFAULT_FIELDS).expect("all"))
}

fn specs(pattern: impl Into<Pattern>, devx: bool) -> Vec<FlowSpec> {
    Part { pattern: pattern.into(), fields: 0 }.specs(devx).expect("can be said")
}

fn refusal(pattern: impl Into<Pattern>) -> String {
    Part { pattern: pattern.into(), fields: 0 }
        .specs(false)
        .expect_err("cannot be said")
        .named("p0")
        .to_string()
}

fn udp() -> L4 {
    L4::Udp(Masked::default())
}

#[test]
fn headers_are_said_field_by_field() {
    let dst = MacAddress([2, 0, 0, 0, 0, 1]);
    let pattern = Headers {
        eth: Masked {
            spec: EthFields { dst, ether_type: 0x8100, ..EthFields::NONE },
            mask: EthFields { dst: MacAddress([0xff; 6]), ether_type: 0xffff, ..EthFields::NONE },
        },
        vlan: Some(Masked {
            spec: VlanFields { tci: 7, inner_type: 0x0800 },
            mask: VlanFields { tci: 0xfff, inner_type: 0xffff },
        }),
        l3: L3::Ipv4(Masked {
            spec: Ipv4Fields { dst: [10, 0, 0, 1].into(), protocol: 17, tos: 0xb8, ..Ipv4Fields::NONE },
            mask: Ipv4Fields {
                dst: [255, 255, 255, 0].into(),
                protocol: 0xff,
                tos: 0xfc,
                ..Ipv4Fields::NONE
            },
        }),
        l4: L4::Udp(Masked {
            spec: UdpFields { src: 0, dst: 4791 },
            mask: UdpFields { src: 0, dst: 0xffff },
        }),
    };
    let expected = [
        FlowSpec::Eth {
            value: EthFilter { dst_mac: dst.0, vlan_tag: 7.into(), ..EthFilter::default() },
            mask: EthFilter { dst_mac: [0xff; 6], vlan_tag: 0xfff.into(), ..EthFilter::default() },
            inner: false,
        },
        FlowSpec::Ipv4 {
            value: Ipv4Filter { dst_ip: 0x0a00_0001.into(), tos: 0xb8, ..Ipv4Filter::default() },
            mask: Ipv4Filter { dst_ip: 0xffff_ff00.into(), tos: 0xfc, ..Ipv4Filter::default() },
            inner: false,
        },
        FlowSpec::Udp {
            value: TcpUdpFilter { dst_port: 4791.into(), src_port: 0.into() },
            mask: TcpUdpFilter { dst_port: 0xffff.into(), src_port: 0.into() },
            inner: false,
        },
    ];
    assert_eq!(specs(pattern, false), expected);
    assert_eq!(specs(pattern, true), expected);
}

#[test]
fn a_protocol_is_said_where_no_header_behind_it_says_it() {
    let icmp = Masked {
        spec: Ipv6Fields { next_header: 58, flow_label: 0x12345, ..Ipv6Fields::NONE },
        mask: Ipv6Fields { next_header: 0xff, flow_label: 0xf_ffff, ..Ipv6Fields::NONE },
    };
    let said = specs(Headers { l3: L3::Ipv6(icmp), ..Headers::default() }, false);
    let FlowSpec::Ipv6 { value, mask, .. } = said[1] else { panic!("{said:?}") };
    assert_eq!((value.next_hdr, mask.next_hdr), (58, 0xff));
    assert_eq!((value.flow_label.get(), mask.flow_label.get()), (0x12345, 0xf_ffff));
}

#[test]
fn types_of_frames_stand_in_the_ethernet_header() {
    let typed = |ether_type| Masked {
        spec: EthFields { ether_type, ..EthFields::NONE },
        mask: EthFields { ether_type: 0xffff, ..EthFields::NONE },
    };
    let arp = specs(Headers { eth: typed(0x0806), ..Headers::default() }, false);
    let FlowSpec::Eth { value, mask, .. } = arp[0] else { panic!("{arp:?}") };
    assert_eq!((value.ether_type.get(), mask.ether_type.get()), (0x0806, 0xffff));
    let vlan = Masked {
        spec: VlanFields { tci: 5, inner_type: 0x0806 },
        mask: VlanFields { tci: 0xfff, inner_type: 0xffff },
    };
    let tagged = specs(Headers { eth: typed(0x8100), vlan: Some(vlan), ..Headers::default() }, false);
    let FlowSpec::Eth { value, .. } = tagged[0] else { panic!("{tagged:?}") };
    assert_eq!((value.ether_type.get(), value.vlan_tag.get()), (0x0806, 5), "the type behind the tag");

    let lone = refusal(Headers { eth: typed(0x8100), ..Headers::default() });
    assert_eq!(lone, "port p0: flow rule, item (eth): a vlan item says that a frame is tagged");
    let other = refusal(Headers { eth: typed(0x88a8), vlan: Some(vlan), ..Headers::default() });
    assert!(other.contains("item (eth): frames are known as tagged by type 0x8100"), "{other}");
    let any = refusal(Headers { vlan: Some(Masked::default()), ..Headers::default() });
    assert!(any.contains("item (vlan): at least one bit"), "{any}");
}

#[test]
fn what_the_kernel_does_not_match_is_named() {
    let ttl = Masked {
        spec: Ipv4Fields { ttl: 64, ..Ipv4Fields::NONE },
        mask: Ipv4Fields { ttl: 0xff, ..Ipv4Fields::NONE },
    };
    let pattern = Headers { l3: L3::Ipv4(ttl), ..Headers::default() };
    assert!(
        refusal(pattern).contains("item (ipv4): the kernel's rules do not match its ttl; dv_flow_en=1 can")
    );
    let FlowSpec::Ipv4 { value, .. } = specs(pattern, true)[1] else { panic!("ipv4") };
    assert_eq!(value.ttl, 64);
    let limit = Masked {
        spec: Ipv6Fields { hop_limit: 1, ..Ipv6Fields::NONE },
        mask: Ipv6Fields { hop_limit: 0xff, ..Ipv6Fields::NONE },
    };
    assert!(refusal(Headers { l3: L3::Ipv6(limit), ..Headers::default() }).contains("item (ipv6)"));
    let syn = Masked {
        spec: TcpFields { flags: 2, ..TcpFields::NONE },
        mask: TcpFields { flags: 2, ..TcpFields::NONE },
    };
    let syn = Headers { l3: L3::Ipv4(Masked::default()), l4: L4::Tcp(syn), ..Headers::default() };
    assert!(refusal(syn).contains("item (tcp): this driver's rules match ports, not flags"));
}

#[test]
fn a_rule_is_as_many_parts_as_its_pattern_leaves_kinds() {
    let levels = |parts: &[Part]| parts.iter().map(Part::level).collect::<Vec<_>>();
    let everything = all(Pattern::default());
    assert_eq!(levels(&everything), [0, 0, 0, 0, 1, 1, 2]);
    assert_eq!(everything[6], Part { pattern: Pattern::default(), fields: 0 }, "the rest is not hashed");

    let v4 = Headers { l3: L3::Ipv4(Masked::default()), ..Headers::default() };
    let parts_of_v4 = all(v4);
    assert_eq!(levels(&parts_of_v4), [0, 0, 1]);
    assert_eq!(parts_of_v4[1].pattern.outer.l4, udp());
    assert_eq!(parts_of_v4[2].fields, Kind::Ipv4.fields());

    // A pattern of layer 4 is one part; the narrowest kind says by what it is hashed.
    let datagrams = all(Headers { l4: udp(), ..v4 });
    assert_eq!(datagrams.iter().map(|part| part.fields).collect::<Vec<_>>(), [Kind::Ipv4Udp.fields()]);
    let by_address = parts(&plan(Headers { l4: udp(), ..v4 }), &[(Kind::Ipv4, Kind::Ipv4.fields())]);
    assert_eq!(by_address.iter().map(|part| part.fields).collect::<Vec<_>>(), [Kind::Ipv4.fields()]);

    let arp = Masked {
        spec: EthFields { ether_type: 0x0806, ..EthFields::NONE },
        mask: EthFields { ether_type: 0xffff, ..EthFields::NONE },
    };
    assert_eq!(levels(&all(Headers { eth: arp, ..Headers::default() })), [2], "no kind is ARP");
    let tcp_only = Masked {
        spec: Ipv4Fields { protocol: 6, ..Ipv4Fields::NONE },
        mask: Ipv4Fields { protocol: 0xff, ..Ipv4Fields::NONE },
    };
    let narrowed = all(Headers { l3: L3::Ipv4(tcp_only), ..Headers::default() });
    assert_eq!(levels(&narrowed), [0, 1], "UDP is out");
}

fn ipv4() -> Headers {
    Headers { l3: L3::Ipv4(Masked::default()), ..Headers::default() }
}

fn vxlan(vni: u32) -> Tunnel {
    Tunnel::Vxlan(Masked { spec: VxlanFields { vni }, mask: VxlanFields { vni: 0xff_ffff } })
}

fn gre(flags: u16, key: Option<u32>) -> Tunnel {
    let bits = if flags == 0 { 0 } else { 0xb000 };
    let gre = Masked {
        spec: GreFields { flags, protocol: 0x6558 },
        mask: GreFields { flags: bits, protocol: 0xffff },
    };
    let key = key.map(|key| Masked { spec: GreKeyFields { key }, mask: GreKeyFields { key: u32::MAX } });
    Tunnel::Gre { gre, key, label: None }
}

fn label() -> Masked<MplsFields> {
    Masked { spec: MplsFields { entry: 0x1234_5000 }, mask: MplsFields { entry: 0xffff_f000 } }
}

#[test]
fn tunnels_and_what_they_carry_are_said_in_order() {
    let names = |pattern: Pattern, devx| {
        let said = specs(pattern, devx);
        let name = |spec: &FlowSpec| match spec {
            FlowSpec::Eth { inner, .. } => ("eth", *inner),
            FlowSpec::Ipv4 { inner, .. } => ("ipv4", *inner),
            FlowSpec::Udp { inner, .. } => ("udp", *inner),
            FlowSpec::Vxlan { .. } => ("vxlan", false),
            FlowSpec::Gre { .. } => ("gre", false),
            FlowSpec::Mpls { inner, .. } => ("mpls", *inner),
            other => panic!("{other:?}"),
        };
        said.iter().map(name).collect::<Vec<_>>()
    };
    let datagram = Headers { l4: udp(), ..ipv4() };
    let framed = Headers {
        eth: Masked {
            spec: EthFields::NONE,
            mask: EthFields { dst: MacAddress([0xff; 6]), ..EthFields::NONE },
        },
        ..datagram
    };
    let outer = ("eth", false);
    for devx in [false, true] {
        let through = Pattern { outer: datagram, tunnel: vxlan(7), inner: Some(framed) };
        let inside = [("eth", true), ("ipv4", true), ("udp", true)];
        let wanted = [&[outer, ("ipv4", false), ("udp", false), ("vxlan", false)][..], &inside].concat();
        assert_eq!(names(through, devx), wanted);
        // A packet without an Ethernet header of its own.
        let routed = Pattern { outer: ipv4(), tunnel: gre(0, None), inner: Some(ipv4()) };
        assert_eq!(names(routed, devx), [outer, ("ipv4", false), ("gre", false), ("ipv4", true)]);
        let Tunnel::Gre { gre, key, .. } = gre(0, Some(5)) else { panic!("gre") };
        let labeled =
            Pattern { outer: ipv4(), tunnel: Tunnel::Gre { gre, key, label: Some(label()) }, inner: None };
        assert_eq!(names(labeled, devx), [outer, ("ipv4", false), ("gre", false), ("mpls", false)]);
        let over_udp = Pattern { outer: datagram, tunnel: Tunnel::Mpls(label()), inner: None };
        assert_eq!(names(over_udp, devx), [outer, ("ipv4", false), ("udp", false), ("mpls", false)]);
        let first = Pattern { tunnel: Tunnel::Mpls(label()), ..Pattern::default() };
        assert_eq!(names(first, devx), [outer, ("mpls", false)]);
    }
}

#[test]
fn a_protocol_in_front_of_gre_is_not_said_twice() {
    let masked = Masked {
        spec: Ipv4Fields { protocol: 47, ..Ipv4Fields::NONE },
        mask: Ipv4Fields { protocol: 0xff, ..Ipv4Fields::NONE },
    };
    let outer = Headers { l3: L3::Ipv4(masked), ..Headers::default() };
    let said = specs(Pattern { outer, tunnel: gre(0, None), inner: None }, false);
    let FlowSpec::Ipv4 { mask, .. } = said[1] else { panic!("{said:?}") };
    assert_eq!(mask.proto, 0);
}

#[test]
fn a_key_must_be_there_where_that_can_be_asked() {
    let of = |tunnel, devx| {
        let said = specs(Pattern { outer: ipv4(), tunnel, inner: None }, devx);
        let FlowSpec::Gre { value, mask } = said[2] else { panic!("{said:?}") };
        let flags = (value.c_ks_res0_ver.get(), mask.c_ks_res0_ver.get());
        (flags, (value.key.get(), mask.key.get()), (value.protocol.get(), mask.protocol.get()))
    };
    let protocol = (0x6558, 0xffff);
    assert_eq!(of(gre(0, Some(9)), false), ((0, 0), (9, u32::MAX), protocol));
    assert_eq!(of(gre(0, Some(9)), true), ((0x2000, 0x2000), (9, u32::MAX), protocol));
    assert_eq!(of(gre(0, Some(0)), true), ((0x2000, 0x2000), (0, u32::MAX), protocol));
    assert_eq!(of(gre(0x9000, None), true), ((0x9000, 0xb000), (0, 0), protocol));
}

#[test]
fn what_cannot_be_matched_of_a_tunnel_is_named() {
    let refusal = |outer, tunnel, inner, devx| {
        let part = Part { pattern: Pattern { outer, tunnel, inner }, fields: 0 };
        part.specs(devx).expect_err("cannot be said").named("p0").to_string()
    };
    let said = refusal(ipv4(), gre(0x8000, None), None, false);
    assert!(
        said.contains("item (gre): the kernel's rules do not match its flags; dv_flow_en=1 can"),
        "{said}"
    );
    let said = refusal(ipv4(), gre(0, Some(0)), None, false);
    assert!(said.contains("item (gre_key): the kernel's rules do not tell a key of 0 from none"), "{said}");
    let version = Masked { spec: GreFields::NONE, mask: GreFields { flags: 0x2007, protocol: 0 } };
    let said = refusal(ipv4(), Tunnel::Gre { gre: version, key: None, label: None }, None, true);
    assert!(said.contains("item (gre): of its first 16 bits"), "{said}");
    for devx in [false, true] {
        let said = refusal(ipv4(), Tunnel::Mpls(label()), None, devx);
        assert!(said.contains("item (mpls): the device finds labels behind eth"), "{said}");
        let tag = Some(Masked {
            spec: VlanFields { tci: 1, inner_type: 0 },
            mask: VlanFields { tci: 1, inner_type: 0 },
        });
        for (inner, name) in
            [(ipv4(), "ipv4"), (Headers { vlan: tag, ..ipv4() }, "vlan"), (Headers::default(), "eth")]
        {
            let said = refusal(Headers::default(), Tunnel::Mpls(label()), Some(inner), devx);
            let wanted = format!("item ({name}): this driver's rules match no header behind a label");
            assert!(said.contains(&wanted), "{said}");
        }
    }
    let ttl = Masked {
        spec: Ipv4Fields { ttl: 64, ..Ipv4Fields::NONE },
        mask: Ipv4Fields { ttl: 0xff, ..Ipv4Fields::NONE },
    };
    let inner = Headers { l3: L3::Ipv4(ttl), ..Headers::default() };
    assert!(refusal(ipv4(), gre(0, None), Some(inner), false).contains("do not match its ttl"));
}

#[test]
fn a_rule_in_a_tunnel_is_hashed_by_its_outer_headers() {
    let levels = |parts: &[Part]| parts.iter().map(Part::level).collect::<Vec<_>>();
    let routed = all(Pattern { outer: ipv4(), tunnel: gre(0, None), inner: None });
    assert_eq!(
        routed.iter().map(|part| part.fields).collect::<Vec<_>>(),
        [Kind::Ipv4.fields()],
        "no TCP, no UDP"
    );
    assert_eq!(levels(&routed), [0]);
    let outer = Headers { l4: udp(), ..ipv4() };
    let through = all(Pattern {
        outer,
        tunnel: vxlan(7),
        inner: Some(Headers { l4: L4::Tcp(Masked::default()), ..ipv4() }),
    });
    assert_eq!(through.iter().map(|part| part.fields).collect::<Vec<_>>(), [Kind::Ipv4Udp.fields()]);
    // Behind Ethernet a label is no IP, whether the type says so or not.
    let first = all(Pattern { tunnel: Tunnel::Mpls(label()), ..Pattern::default() });
    assert_eq!((first.len(), first[0].fields, first[0].level()), (1, 0, 0));
}
