use pollux_port::flow::{
    EthFields, FlowFate, FlowRss, Ipv4Fields, Ipv6Fields, TcpFields, UdpFields, VlanFields,
};
use pollux_port::{MacAddress, QueueId};
use pollux_uverbs::flow::FlowSpec;

use super::*;
use crate::eth::rss;

fn plan(pattern: Pattern) -> FlowPlan {
    let fate = FlowFate::Rss(FlowRss { queues: vec![QueueId(0)], ..FlowRss::default() });
    FlowPlan { group: 0, priority: 0, pattern, fate, mark: None, flag: false, count: false }
}

fn all(pattern: Pattern) -> Vec<Part> {
    parts(&plan(pattern), &rss::kinds(rss::DEFAULT_FIELDS).expect("all"))
}

fn specs(pattern: Pattern, devx: bool) -> Vec<FlowSpec> {
    Part { pattern, fields: 0 }.specs(devx).expect("can be said")
}

fn refusal(pattern: Pattern) -> String {
    Part { pattern, fields: 0 }.specs(false).expect_err("cannot be said").named("p0").to_string()
}

fn udp() -> L4 {
    L4::Udp(Masked::default())
}

#[test]
fn headers_are_said_field_by_field() {
    let dst = MacAddress([2, 0, 0, 0, 0, 1]);
    let pattern = Pattern {
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
    let said = specs(Pattern { l3: L3::Ipv6(icmp), ..Pattern::default() }, false);
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
    let arp = specs(Pattern { eth: typed(0x0806), ..Pattern::default() }, false);
    let FlowSpec::Eth { value, mask, .. } = arp[0] else { panic!("{arp:?}") };
    assert_eq!((value.ether_type.get(), mask.ether_type.get()), (0x0806, 0xffff));
    let vlan = Masked {
        spec: VlanFields { tci: 5, inner_type: 0x0806 },
        mask: VlanFields { tci: 0xfff, inner_type: 0xffff },
    };
    let tagged = specs(Pattern { eth: typed(0x8100), vlan: Some(vlan), ..Pattern::default() }, false);
    let FlowSpec::Eth { value, .. } = tagged[0] else { panic!("{tagged:?}") };
    assert_eq!((value.ether_type.get(), value.vlan_tag.get()), (0x0806, 5), "the type behind the tag");

    let lone = refusal(Pattern { eth: typed(0x8100), ..Pattern::default() });
    assert_eq!(lone, "port p0: flow rule, item (eth): a vlan item says that a frame is tagged");
    let other = refusal(Pattern { eth: typed(0x88a8), vlan: Some(vlan), ..Pattern::default() });
    assert!(other.contains("item (eth): frames are known as tagged by type 0x8100"), "{other}");
    let any = refusal(Pattern { vlan: Some(Masked::default()), ..Pattern::default() });
    assert!(any.contains("item (vlan): at least one bit"), "{any}");
}

#[test]
fn what_the_kernel_does_not_match_is_named() {
    let ttl = Masked {
        spec: Ipv4Fields { ttl: 64, ..Ipv4Fields::NONE },
        mask: Ipv4Fields { ttl: 0xff, ..Ipv4Fields::NONE },
    };
    let pattern = Pattern { l3: L3::Ipv4(ttl), ..Pattern::default() };
    assert!(
        refusal(pattern).contains("item (ipv4): the kernel's rules do not match its ttl; dv_flow_en=1 can")
    );
    let FlowSpec::Ipv4 { value, .. } = specs(pattern, true)[1] else { panic!("ipv4") };
    assert_eq!(value.ttl, 64);
    let limit = Masked {
        spec: Ipv6Fields { hop_limit: 1, ..Ipv6Fields::NONE },
        mask: Ipv6Fields { hop_limit: 0xff, ..Ipv6Fields::NONE },
    };
    assert!(refusal(Pattern { l3: L3::Ipv6(limit), ..Pattern::default() }).contains("item (ipv6)"));
    let syn = Masked {
        spec: TcpFields { flags: 2, ..TcpFields::NONE },
        mask: TcpFields { flags: 2, ..TcpFields::NONE },
    };
    let syn = Pattern { l3: L3::Ipv4(Masked::default()), l4: L4::Tcp(syn), ..Pattern::default() };
    assert!(refusal(syn).contains("item (tcp): this driver's rules match ports, not flags"));
}

#[test]
fn a_rule_is_as_many_parts_as_its_pattern_leaves_kinds() {
    let levels = |parts: &[Part]| parts.iter().map(Part::level).collect::<Vec<_>>();
    let everything = all(Pattern::default());
    assert_eq!(levels(&everything), [0, 0, 0, 0, 1, 1, 2]);
    assert_eq!(everything[6], Part { pattern: Pattern::default(), fields: 0 }, "the rest is not hashed");

    let v4 = Pattern { l3: L3::Ipv4(Masked::default()), ..Pattern::default() };
    let parts_of_v4 = all(v4);
    assert_eq!(levels(&parts_of_v4), [0, 0, 1]);
    assert_eq!(parts_of_v4[1].pattern.l4, udp());
    assert_eq!(parts_of_v4[2].fields, Kind::Ipv4.fields());

    // A pattern of layer 4 is one part; the narrowest kind says by what it is hashed.
    let datagrams = all(Pattern { l4: udp(), ..v4 });
    assert_eq!(datagrams.iter().map(|part| part.fields).collect::<Vec<_>>(), [Kind::Ipv4Udp.fields()]);
    let by_address = parts(&plan(Pattern { l4: udp(), ..v4 }), &[(Kind::Ipv4, Kind::Ipv4.fields())]);
    assert_eq!(by_address.iter().map(|part| part.fields).collect::<Vec<_>>(), [Kind::Ipv4.fields()]);

    let arp = Masked {
        spec: EthFields { ether_type: 0x0806, ..EthFields::NONE },
        mask: EthFields { ether_type: 0xffff, ..EthFields::NONE },
    };
    assert_eq!(levels(&all(Pattern { eth: arp, ..Pattern::default() })), [2], "no kind is ARP");
    let tcp_only = Masked {
        spec: Ipv4Fields { protocol: 6, ..Ipv4Fields::NONE },
        mask: Ipv4Fields { protocol: 0xff, ..Ipv4Fields::NONE },
    };
    let narrowed = all(Pattern { l3: L3::Ipv4(tcp_only), ..Pattern::default() });
    assert_eq!(levels(&narrowed), [0, 1], "UDP is out");
}
