//! Rules that look at tunnels: each item under each kind of mask, behind IPv4 and IPv6, with frames that it takes and frames that
//! differ from those in one thing.

use pollux_port::flow::{
    EthFields, FlowAction, FlowItem, FlowRss, FlowRule, GreFields, GreKeyFields, Ipv4Fields, Ipv6Fields,
    ItemMatch, MplsFields, TcpFields, UdpFields, VlanFields, VxlanFields,
};
use pollux_port::{HashFields, MacAddress, QueueId, RssConfig};

use crate::rig::{OWN, Rig, Way};

const VXLAN: u16 = 4789;
const MPLS: u16 = 6635;
/// Where frames go that no rule takes, and those that one takes.
const OTHERS: u16 = 0;
const OURS: u16 = 2;

/// No hash, so that what no rule takes comes to queue 0.
fn rig(way: Way) -> Rig {
    Rig::on(|card| card.mpls = true, way, 4, |config| config.rss = Some(RssConfig::default()))
}

fn ethernet(dst: [u8; 6], kind: u16, behind: &[u8]) -> Vec<u8> {
    let mut frame = [&dst[..], &[2, 0, 0, 0, 0, 0xee], &kind.to_be_bytes(), behind].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A header of IPv4 or IPv6 with its Ethernet type.
fn ip(v6: bool, protocol: u8, behind: &[u8]) -> (u16, Vec<u8>) {
    let length = behind.len() as u16;
    if v6 {
        let [high, low] = length.to_be_bytes();
        let head = [0x60, 0, 0, 0, high, low, protocol, 64];
        return (0x86dd, [&head[..], &[0xfd; 16], &[0xfe; 16], behind].concat());
    }
    let [high, low] = (length + 20).to_be_bytes();
    let head = [0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    (0x0800, [&head[..], behind].concat())
}

/// A frame to the port.
fn frame(v6: bool, protocol: u8, behind: &[u8]) -> Vec<u8> {
    let (kind, packet) = ip(v6, protocol, behind);
    ethernet(OWN, kind, &packet)
}

fn ports(dst: u16) -> [u8; 4] {
    let [high, low] = dst.to_be_bytes();
    [0x30, 0x39, high, low]
}

fn datagram(dst: u16, behind: &[u8]) -> Vec<u8> {
    let length = (8 + behind.len() as u16).to_be_bytes();
    [&ports(dst)[..], &length, &[0, 0], behind].concat()
}

fn segment(dst: u16, behind: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&ports(dst));
    bytes[12] = 5 << 4;
    [&bytes[..], behind].concat()
}

fn vxlan(vni: u32, inside: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes(), inside].concat()
}

/// GRE with the optional fields that `flags` say are there; the key is `key`.
fn gre(flags: u16, protocol: u16, key: u32, inside: &[u8]) -> Vec<u8> {
    let mut bytes = [flags.to_be_bytes(), protocol.to_be_bytes()].concat();
    for (flag, field) in [(0x8000, 0xaaaa_0000), (0x2000, key), (0x1000, 0xbbbb_bbbb_u32)] {
        if flags & flag != 0 {
            bytes.extend(field.to_be_bytes());
        }
    }
    bytes.extend(inside);
    bytes
}

/// An entry of a label stack, and an IPv4 packet.
fn label(label: u32, class: u32, bottom: u32, ttl: u32) -> Vec<u8> {
    let (_, packet) = ip(false, 253, &[1; 20]);
    [&(label << 12 | class << 9 | bottom << 8 | ttl).to_be_bytes()[..], &packet].concat()
}

/// A frame inside a tunnel.
fn framed(dst: [u8; 6], (kind, packet): (u16, Vec<u8>)) -> Vec<u8> {
    ethernet(dst, kind, &packet)
}

const INSIDE: [u8; 6] = [2, 9, 9, 9, 9, 1];

fn any_udp() -> FlowItem {
    FlowItem::Udp(ItemMatch::any())
}

fn vni(vni: u32, mask: u32) -> FlowItem {
    FlowItem::Vxlan(ItemMatch::masked(VxlanFields { vni }, VxlanFields { vni: mask }))
}

fn carries(protocol: u16, mask: u16) -> FlowItem {
    let of = |protocol| GreFields { flags: 0, protocol };
    FlowItem::Gre(ItemMatch::masked(of(protocol), of(mask)))
}

fn flagged(flags: u16, mask: u16) -> FlowItem {
    let of = |flags| GreFields { flags, protocol: 0 };
    FlowItem::Gre(ItemMatch::masked(of(flags), of(mask)))
}

fn any_gre() -> FlowItem {
    FlowItem::Gre(ItemMatch::any())
}

fn keyed(key: u32, mask: u32) -> FlowItem {
    FlowItem::GreKey(ItemMatch::masked(GreKeyFields { key }, GreKeyFields { key: mask }))
}

fn labeled(entry: u32, mask: u32) -> FlowItem {
    FlowItem::Mpls(ItemMatch::masked(MplsFields { entry }, MplsFields { entry: mask }))
}

fn any_mpls() -> FlowItem {
    FlowItem::Mpls(ItemMatch::any())
}

/// What stands behind IP: items, and what frames hold there, by IP protocol.
struct Row {
    items: Vec<FlowItem>,
    takes: Vec<(u8, Vec<u8>)>,
    leaves: Vec<(u8, Vec<u8>)>,
}

fn row(items: &[FlowItem], takes: Vec<(u8, Vec<u8>)>, leaves: Vec<(u8, Vec<u8>)>) -> Row {
    Row { items: items.to_vec(), takes, leaves }
}

fn over_udp(port: u16, behind: Vec<u8>) -> (u8, Vec<u8>) {
    (17, datagram(port, &behind))
}

fn over_gre(flags: u16, protocol: u16, key: u32, inside: &[u8]) -> (u8, Vec<u8>) {
    (47, gre(flags, protocol, key, inside))
}

/// Makes a rule behind each version of IP, and looks where frames go.
fn check(way: Way, rows: Vec<Row>) {
    let mut rig = rig(way);
    for v6 in [false, true] {
        let outer = if v6 { FlowItem::Ipv6(ItemMatch::any()) } else { FlowItem::Ipv4(ItemMatch::any()) };
        for Row { items, takes, leaves } in &rows {
            let items = [&[outer], &items[..]].concat();
            let of = |(protocol, behind): &(u8, Vec<u8>), v6| frame(v6, *protocol, behind);
            let takes_frames: Vec<_> = takes.iter().map(|part| of(part, v6)).collect();
            let mut leaves: Vec<_> = leaves.iter().map(|part| of(part, v6)).collect();
            // The other version carries the same.
            leaves.extend(takes.iter().map(|part| of(part, !v6)));
            frames(&mut rig, way, &items, &takes_frames, &leaves);
        }
    }
    rig.end();
}

fn frames(rig: &mut Rig, way: Way, items: &[FlowItem], takes: &[Vec<u8>], leaves: &[Vec<u8>]) {
    let rule = FlowRule { pattern: items.to_vec(), ..FlowRule::new() };
    let rule = rule.action(FlowAction::Count).action(FlowAction::Queue(QueueId(OURS)));
    rig.port.flow_validate(&rule).unwrap_or_else(|error| panic!("{way:?} {items:?}: {error}"));
    let handle = rig.port.flow_create(&rule).unwrap_or_else(|error| panic!("{way:?} {items:?}: {error}"));
    for (frames, queue) in [(takes, OURS), (leaves, OTHERS)] {
        for frame in frames {
            let arrived = rig.arrive_frame(frame).map(|(queue, _)| queue);
            assert_eq!(arrived, Some(queue), "{way:?} {items:?}: {frame:02x?}");
        }
    }
    let counted = rig.port.flow_query(handle, false).expect("it counts");
    assert_eq!(counted.packets, takes.len() as u64, "{way:?} {items:?}");
    rig.port.flow_destroy(handle).expect("goes");
    if let Some(frame) = takes.first() {
        assert_eq!(rig.arrive_frame(frame).map(|(queue, _)| queue), Some(OTHERS), "the rule is gone");
    }
}

#[test]
fn vxlan_is_known_by_its_port_and_its_identifier() {
    let inside = framed(INSIDE, ip(false, 17, &datagram(53, &[0; 20])));
    let of = |vni| over_udp(VXLAN, vxlan(vni, &inside));
    let elsewhere = |vni| over_udp(VXLAN + 1, vxlan(vni, &inside));
    let tcp = (6, segment(VXLAN, &vxlan(0x12_3456, &inside)));
    let gre = over_gre(0, 0x6558, 0, &inside);
    for way in Way::BOTH {
        let any = FlowItem::Vxlan(ItemMatch::any());
        check(
            way,
            vec![
                row(
                    &[any_udp(), any],
                    vec![of(0), of(0x12_3456)],
                    vec![elsewhere(0), elsewhere(0x12_3456), tcp.clone(), gre.clone()],
                ),
                row(
                    &[any_udp(), vni(0x12_3456, 0xff_ffff)],
                    vec![of(0x12_3456)],
                    vec![
                        of(0x12_3457),
                        of(0x12_3455),
                        of(0x92_3456),
                        of(0),
                        elsewhere(0x12_3456),
                        tcp.clone(),
                    ],
                ),
                row(
                    &[any_udp(), vni(0x12_3456, 0xff_f000)],
                    vec![of(0x12_3000), of(0x12_3fff)],
                    vec![of(0x12_4456), of(0x02_3456)],
                ),
                row(&[any_udp(), vni(0, 0xff_ffff)], vec![of(0)], vec![of(1), elsewhere(0)]),
                // A rule that names the port says nothing new.
                row(
                    &[
                        FlowItem::Udp(ItemMatch::masked(
                            UdpFields { src: 0, dst: VXLAN },
                            UdpFields { src: 0, dst: 0xffff },
                        )),
                        vni(5, 0xff_ffff),
                    ],
                    vec![of(5)],
                    vec![of(6)],
                ),
            ],
        );
    }
}

#[test]
fn headers_inside_vxlan_are_looked_at() {
    let any = FlowItem::Vxlan(ItemMatch::any());
    let of = |inside: Vec<u8>| over_udp(VXLAN, vxlan(7, &inside));
    let dst = |dst: [u8; 6]| EthFields { dst: MacAddress(dst), ..EthFields::NONE };
    let to = FlowItem::Eth(ItemMatch::masked(dst(INSIDE), dst([0xff; 6])));
    let v4_to = |last| Ipv4Fields { dst: [10, 0, 0, last].into(), ..Ipv4Fields::NONE };
    let to_v4 =
        FlowItem::Ipv4(ItemMatch::masked(v4_to(2), Ipv4Fields { dst: [255; 4].into(), ..Ipv4Fields::NONE }));
    let to_other =
        FlowItem::Ipv4(ItemMatch::masked(v4_to(3), Ipv4Fields { dst: [255; 4].into(), ..Ipv4Fields::NONE }));
    let any_v6 = FlowItem::Ipv6(ItemMatch::masked(Ipv6Fields::NONE, Ipv6Fields::NONE));
    let dns =
        FlowItem::Udp(ItemMatch::masked(UdpFields { src: 0, dst: 53 }, UdpFields { src: 0, dst: 0xffff }));
    let web = TcpFields { dst: 80, ..TcpFields::NONE };
    let web = FlowItem::Tcp(ItemMatch::masked(web, TcpFields { dst: 0xffff, ..TcpFields::NONE }));
    let udp_in = |v6, port| framed(INSIDE, ip(v6, 17, &datagram(port, &[0; 20])));
    let tcp_in = |v6, port| framed(INSIDE, ip(v6, 6, &segment(port, &[0; 20])));
    let tagged = |tci: u16| {
        let (kind, packet) = ip(false, 17, &datagram(53, &[0; 20]));
        ethernet(INSIDE, 0x8100, &[&tci.to_be_bytes()[..], &kind.to_be_bytes(), &packet].concat())
    };
    let tag = FlowItem::Vlan(ItemMatch::exactly(VlanFields { tci: 6, inner_type: 0 }));
    for way in Way::BOTH {
        check(
            way,
            vec![
                row(
                    &[any_udp(), any, to],
                    vec![of(udp_in(false, 53)), of(tcp_in(true, 80))],
                    vec![
                        of(framed(OWN, ip(false, 17, &datagram(53, &[0; 20])))),
                        // The outer header holds the address instead.
                        over_udp(VXLAN + 1, vxlan(7, &udp_in(false, 53))),
                    ],
                ),
                row(
                    &[any_udp(), any, to, to_v4],
                    vec![of(udp_in(false, 53)), of(tcp_in(false, 80))],
                    vec![of(udp_in(true, 53))],
                ),
                row(&[any_udp(), any, to_other], vec![], vec![of(udp_in(false, 53))]),
                row(
                    &[any_udp(), any, any_v6],
                    vec![of(udp_in(true, 53)), of(tcp_in(true, 80))],
                    vec![of(udp_in(false, 53))],
                ),
                row(
                    &[any_udp(), any, to_v4, dns],
                    vec![of(udp_in(false, 53))],
                    vec![of(udp_in(false, 54)), of(tcp_in(false, 53)), of(udp_in(true, 53))],
                ),
                row(
                    &[any_udp(), vni(7, 0xff_ffff), any_v6, web],
                    vec![of(tcp_in(true, 80))],
                    vec![
                        of(tcp_in(true, 81)),
                        of(udp_in(true, 80)),
                        of(tcp_in(false, 80)),
                        over_udp(VXLAN, vxlan(8, &tcp_in(true, 80))),
                    ],
                ),
                row(
                    &[any_udp(), any, FlowItem::Eth(ItemMatch::any()), tag],
                    vec![of(tagged(6)), of(tagged(0x2006))],
                    vec![of(tagged(7)), of(udp_in(false, 53))],
                ),
            ],
        );
    }
}

#[test]
fn gre_is_known_by_its_protocol() {
    let (_, inside) = ip(false, 253, &[0; 20]);
    let of = |protocol| over_gre(0, protocol, 0, &inside);
    let keyed = |protocol| over_gre(0x2000, protocol, 9, &inside);
    for way in Way::BOTH {
        check(
            way,
            vec![
                row(
                    &[any_gre()],
                    vec![of(0x0800), of(0x86dd), keyed(0x6558)],
                    vec![
                        over_udp(VXLAN, vxlan(5, &framed(INSIDE, ip(false, 17, &[0; 20])))),
                        (4, inside.clone()),
                        (253, gre(0, 0x0800, 0, &inside)),
                    ],
                ),
                row(
                    &[carries(0x0800, 0xffff)],
                    vec![of(0x0800), keyed(0x0800)],
                    vec![of(0x86dd), of(0x0801), keyed(0x6558), (48, gre(0, 0x0800, 0, &inside))],
                ),
                row(&[carries(0x6500, 0xff00)], vec![of(0x6558), of(0x6501)], vec![of(0x0800), of(0x6658)]),
            ],
        );
    }
}

#[test]
fn flags_of_gre_are_matched_by_the_firmware() {
    let (_, inside) = ip(false, 253, &[0; 20]);
    let of = |flags| over_gre(flags, 0x0800, 5, &inside);
    check(
        Way::Devx,
        vec![
            row(&[flagged(0x8000, 0x8000)], vec![of(0x8000), of(0xb000)], vec![of(0), of(0x3000)]),
            row(&[flagged(0x2000, 0x2000)], vec![of(0x2000), of(0x3000)], vec![of(0), of(0x9000)]),
            row(&[flagged(0x1000, 0x1000)], vec![of(0x1000), of(0x9000)], vec![of(0), of(0xa000)]),
            row(&[flagged(0, 0xb000)], vec![of(0)], vec![of(0x8000), of(0x2000), of(0x1000)]),
            // The version is no matter.
            row(&[flagged(0x2000, 0xb000)], vec![of(0x2000), of(0x2001)], vec![of(0xa000)]),
        ],
    );
    let mut rig = rig(Way::Verbs);
    for (item, said) in [
        (
            vec![flagged(0x2000, 0x2000)],
            "item (gre): the kernel's rules do not match its flags; dv_flow_en=1 can",
        ),
        (
            vec![any_gre(), FlowItem::GreKey(ItemMatch::any())],
            "item (gre_key): the kernel's rules do not tell",
        ),
        (
            vec![any_gre(), keyed(0, u32::MAX)],
            "item (gre_key): the kernel's rules do not tell a key of 0 from none",
        ),
    ] {
        let items = [vec![FlowItem::Ipv4(ItemMatch::any())], item].concat();
        let rule = FlowRule { pattern: items, ..FlowRule::new() }.action(FlowAction::Drop);
        let text = rig.port.flow_validate(&rule).expect_err("refused").to_string();
        assert!(text.contains(said), "{text}");
        assert_eq!(rig.port.flow_create(&rule).expect_err("refused").to_string(), text);
    }
    rig.end();
}

#[test]
fn gre_is_known_by_its_key() {
    let (_, inside) = ip(false, 253, &[0; 20]);
    let of = |key| over_gre(0x2000, 0x0800, key, &inside);
    let summed = |key| over_gre(0xb000, 0x0800, key, &inside);
    let bare = over_gre(0, 0x0800, 0, &inside);
    let numbered = over_gre(0x9000, 0x0800, 0, &inside);
    const KEY: u32 = 0x1122_3344;
    for way in Way::BOTH {
        let mut rows = vec![
            row(
                &[any_gre(), keyed(KEY, u32::MAX)],
                vec![of(KEY), summed(KEY)],
                vec![
                    of(KEY + 1),
                    of(KEY ^ 1 << 31),
                    of(0),
                    bare.clone(),
                    numbered.clone(),
                    over_udp(VXLAN, gre(0x2000, 0x0800, KEY, &inside)),
                ],
            ),
            row(
                &[any_gre(), keyed(KEY, 0xffff_0000)],
                vec![of(0x1122_0000), of(0x1122_ffff)],
                vec![of(0x1123_3344), bare.clone()],
            ),
            row(
                &[any_gre(), keyed(KEY, 0xff)],
                vec![of(0x44), of(KEY)],
                vec![of(0x45), of(0x4400), bare.clone()],
            ),
            row(
                &[carries(0x6558, 0xffff), keyed(KEY, u32::MAX)],
                vec![over_gre(0x2000, 0x6558, KEY, &inside)],
                vec![of(KEY), over_gre(0x2000, 0x6558, KEY - 1, &inside)],
            ),
        ];
        if way == Way::Devx {
            let leaves = vec![bare.clone(), numbered.clone()];
            rows.push(row(
                &[any_gre(), FlowItem::GreKey(ItemMatch::any())],
                vec![of(0), of(KEY)],
                leaves.clone(),
            ));
            rows.push(row(
                &[any_gre(), keyed(0, u32::MAX)],
                vec![of(0), summed(0)],
                [leaves, vec![of(1)]].concat(),
            ));
        }
        check(way, rows);
    }
}

#[test]
fn headers_inside_gre_are_looked_at() {
    let udp_in = |v6, port| ip(v6, 17, &datagram(port, &[0; 20]));
    let routed = |(kind, packet): (u16, Vec<u8>)| over_gre(0, kind, 0, &packet);
    let bridged = |(kind, packet)| over_gre(0, 0x6558, 0, &framed(INSIDE, (kind, packet)));
    let with_key = |(kind, packet): (u16, Vec<u8>)| over_gre(0x2000, kind, 5, &packet);
    let any_eth = FlowItem::Eth(ItemMatch::any());
    let any_v4 = FlowItem::Ipv4(ItemMatch::any());
    let any_v6 = FlowItem::Ipv6(ItemMatch::any());
    let dns =
        FlowItem::Udp(ItemMatch::masked(UdpFields { src: 0, dst: 53 }, UdpFields { src: 0, dst: 0xffff }));
    for way in Way::BOTH {
        check(
            way,
            vec![
                row(
                    &[any_gre(), any_v4],
                    vec![routed(udp_in(false, 53)), with_key(udp_in(false, 9))],
                    vec![routed(udp_in(true, 53)), bridged(udp_in(false, 53))],
                ),
                row(
                    &[any_gre(), any_v6, dns],
                    vec![routed(udp_in(true, 53))],
                    vec![routed(udp_in(true, 54)), routed(udp_in(false, 53)), bridged(udp_in(true, 53))],
                ),
                row(
                    &[any_gre(), any_eth],
                    vec![bridged(udp_in(false, 53)), bridged(udp_in(true, 9))],
                    vec![routed(udp_in(false, 53))],
                ),
                row(
                    &[any_gre(), any_eth, any_v4, dns],
                    vec![bridged(udp_in(false, 53))],
                    vec![bridged(udp_in(false, 54)), bridged(udp_in(true, 53)), routed(udp_in(false, 53))],
                ),
                row(
                    &[any_gre(), keyed(5, u32::MAX), any_v4, dns],
                    vec![with_key(udp_in(false, 53))],
                    vec![with_key(udp_in(false, 54)), routed(udp_in(false, 53))],
                ),
            ],
        );
    }
}

/// An item of MPLS, label stacks that it takes, and such that differ where it looks.
type Stacks = (FlowItem, Vec<Vec<u8>>, Vec<Vec<u8>>);

/// All kinds of masks of a label stack's entry.
fn entries() -> [Stacks; 6] {
    let entry = 0x12345_u32 << 12 | 5 << 9 | 1 << 8 | 64;
    [
        (any_mpls(), vec![label(0, 0, 0, 1), label(0xf_ffff, 7, 1, 255)], vec![]),
        (
            labeled(entry, 0xffff_f000),
            vec![label(0x12345, 0, 0, 1), label(0x12345, 5, 1, 64)],
            vec![label(0x12344, 5, 1, 64), label(0x92345, 5, 1, 64)],
        ),
        (labeled(entry, 0xff00_0000), vec![label(0x12000, 0, 0, 1)], vec![label(0x13000, 5, 1, 64)]),
        (labeled(entry, 0xe00), vec![label(1, 5, 0, 1)], vec![label(0x12345, 4, 1, 64)]),
        (labeled(entry, 0x100), vec![label(1, 0, 1, 1)], vec![label(0x12345, 5, 0, 64)]),
        (labeled(entry, 0xff), vec![label(1, 0, 0, 64)], vec![label(0x12345, 5, 1, 63)]),
    ]
}

#[test]
fn labels_are_matched_in_tunnels() {
    for way in Way::BOTH {
        let mut rows = Vec::new();
        for (item, takes, leaves) in entries() {
            let udp = |port, stacks: &[Vec<u8>]| -> Vec<_> {
                stacks.iter().map(|stack| over_udp(port, stack.clone())).collect()
            };
            let in_gre = |flags, protocol, stacks: &[Vec<u8>]| -> Vec<_> {
                stacks.iter().map(|stack| over_gre(flags, protocol, 5, stack)).collect()
            };
            rows.push(row(
                &[any_udp(), item],
                udp(MPLS, &takes),
                [udp(MPLS, &leaves), udp(MPLS + 1, &takes), in_gre(0, 0x8847, &takes)].concat(),
            ));
            rows.push(row(
                &[any_gre(), item],
                [in_gre(0, 0x8847, &takes), in_gre(0xb000, 0x8847, &takes)].concat(),
                [in_gre(0, 0x8847, &leaves), in_gre(0, 0x0800, &takes), udp(MPLS, &takes)].concat(),
            ));
            rows.push(row(
                &[carries(0x8848, 0xffff), item],
                in_gre(0, 0x8848, &takes),
                [in_gre(0, 0x8848, &leaves), in_gre(0, 0x8847, &takes)].concat(),
            ));
            rows.push(row(
                &[any_gre(), keyed(5, u32::MAX), item],
                in_gre(0x2000, 0x8847, &takes),
                [in_gre(0x2000, 0x8847, &leaves), in_gre(0, 0x8847, &takes), in_gre(0x2000, 0x0800, &takes)]
                    .concat(),
            ));
        }
        check(way, rows);
    }
}

#[test]
fn labels_are_matched_behind_ethernet() {
    for way in Way::BOTH {
        let mut rig = rig(way);
        let any = FlowItem::Eth(ItemMatch::any());
        let tag = FlowItem::Vlan(ItemMatch::exactly(VlanFields { tci: 6, inner_type: 0 }));
        let many = EthFields { ether_type: 0x8848, ..EthFields::NONE };
        let many =
            FlowItem::Eth(ItemMatch::masked(many, EthFields { ether_type: 0xffff, ..EthFields::NONE }));
        for (item, takes, leaves) in entries() {
            let plain = |kind, stacks: &[Vec<u8>]| -> Vec<_> {
                stacks.iter().map(|stack| ethernet(OWN, kind, stack)).collect()
            };
            let tagged = |tci: u16, stacks: &[Vec<u8>]| -> Vec<_> {
                let framed = |stack: &Vec<u8>| {
                    ethernet(OWN, 0x8100, &[&tci.to_be_bytes()[..], &[0x88, 0x47], stack].concat())
                };
                stacks.iter().map(framed).collect()
            };
            let foreign = [plain(0x88b5, &takes), plain(0x0800, &takes)].concat();
            for items in [&[any, item][..], &[item]] {
                let leaves = [plain(0x8847, &leaves), plain(0x8848, &takes), foreign.clone()].concat();
                frames(&mut rig, way, items, &plain(0x8847, &takes), &leaves);
            }
            frames(
                &mut rig,
                way,
                &[many, item],
                &plain(0x8848, &takes),
                &[plain(0x8848, &leaves), plain(0x8847, &takes)].concat(),
            );
            frames(
                &mut rig,
                way,
                &[tag, item],
                &tagged(6, &takes),
                &[tagged(6, &leaves), tagged(7, &takes), plain(0x8847, &takes)].concat(),
            );
        }
        rig.end();
    }
}

/// Frames that differ in the outer source alone have the same headers inside.
#[test]
fn a_rule_on_a_tunnel_spreads_by_the_outer_headers() {
    let queues = [QueueId(1), QueueId(2), QueueId(3)];
    let gre_items = [FlowItem::Ipv4(ItemMatch::any()), any_gre()];
    let vxlan_items = [FlowItem::Ipv4(ItemMatch::any()), any_udp(), vni(7, 0xff_ffff)];
    for way in Way::BOTH {
        let mut rig = rig(way);
        for (items, protocol, behind) in [
            (&gre_items[..], 47, gre(0, 0x6558, 0, &framed(INSIDE, ip(false, 253, &[0; 20])))),
            (&vxlan_items, 17, datagram(VXLAN, &vxlan(7, &framed(INSIDE, ip(false, 253, &[0; 20]))))),
        ] {
            let rss = FlowRss { queues: queues.to_vec(), fields: HashFields::IPV4, ..FlowRss::default() };
            let rule = FlowRule { pattern: items.to_vec(), ..FlowRule::new() }.action(FlowAction::Rss(rss));
            let handle = rig.port.flow_create(&rule).expect("a rule");
            let mut used = [0; 4];
            for source in 0..64 {
                let outer = frame(false, protocol, &behind);
                let from = |source: u8| [&outer[..29], &[source], &outer[30..]].concat();
                let mut inside = from(source);
                *inside.last_mut().expect("a frame") ^= source;
                let [one, same] = [from(source), inside]
                    .map(|frame| rig.arrive_frame(&frame).map(|(queue, _)| queue).expect("it comes"));
                assert_eq!(one, same, "{way:?}: what is inside does not count");
                used[usize::from(one)] += 1;
            }
            assert!(used[0] == 0 && used[1..].iter().all(|count| *count > 0), "{way:?}: {used:?}");
            let elsewhere = rig.arrive_frame(&frame(false, 253, &behind)).map(|(queue, _)| queue);
            assert_eq!(elsewhere, Some(OTHERS));
            rig.port.flow_destroy(handle).expect("goes");
        }
        rig.end();
    }
}

#[test]
fn of_one_priority_the_rule_on_a_tunnel_wins_over_that_on_ip() {
    let v4 = FlowItem::Ipv4(ItemMatch::any());
    for way in Way::BOTH {
        let mut rig = rig(way);
        // In the order in which a table of equals would find the wrong one first.
        for (items, to) in [(vec![], 1), (vec![v4], 3), (vec![v4, any_gre()], OURS), (vec![any_mpls()], OURS)]
        {
            let rule = FlowRule { pattern: items, ..FlowRule::new() }.action(FlowAction::Queue(QueueId(to)));
            rig.port.flow_create(&rule).expect("a rule");
        }
        for (frame, to) in [
            (frame(false, 47, &gre(0, 0x0800, 0, &[0; 20])), OURS),
            (frame(false, 253, &[0; 20]), 3),
            (ethernet(OWN, 0x8847, &label(5, 0, 1, 64)), OURS),
            (ethernet(OWN, 0x88b5, &[0; 20]), 1),
        ] {
            assert_eq!(rig.arrive_frame(&frame).map(|(queue, _)| queue), Some(to), "{way:?}: {frame:02x?}");
        }
        rig.port.flow_flush().expect("all go");
        rig.end();
    }
}

#[test]
fn rules_on_tunnels_stay_over_stop_and_start() {
    for way in Way::BOTH {
        let mut rig = rig(way);
        rig.port.stop().expect("stops");
        let items = vec![FlowItem::Ipv6(ItemMatch::any()), any_udp(), vni(7, 0xff_ffff)];
        let rule = FlowRule { pattern: items, ..FlowRule::new() }.action(FlowAction::Queue(QueueId(OURS)));
        rig.port.flow_create(&rule).expect("a rule");
        rig.port.start().expect("starts");
        for (number, to) in [(7, OURS), (8, OTHERS)] {
            let (protocol, behind) = over_udp(VXLAN, vxlan(number, &[0; 40]));
            let arrived = rig.arrive_frame(&frame(true, protocol, &behind)).map(|(queue, _)| queue);
            assert_eq!(arrived, Some(to), "{way:?}");
        }
        rig.end();
    }
}

#[test]
fn labels_are_refused_where_they_are_not_found() {
    for way in Way::BOTH {
        let refusal = |rig: &mut Rig, items: &[FlowItem]| {
            let rule = FlowRule { pattern: items.to_vec(), ..FlowRule::new() }.action(FlowAction::Drop);
            let text = rig.port.flow_validate(&rule).expect_err("refused").to_string();
            assert_eq!(rig.port.flow_create(&rule).expect_err("refused").to_string(), text);
            text
        };
        let v4 = FlowItem::Ipv4(ItemMatch::any());
        // As the card comes; `FLEX_PARSER_PROFILE_ENABLE=1` is not set.
        let mut plain = Rig::new(way, 1, |_| {});
        for (items, at) in [
            (vec![any_mpls()], 0),
            (vec![v4, any_udp(), any_mpls()], 2),
            (vec![v4, any_gre(), any_mpls()], 2),
        ] {
            let said = refusal(&mut plain, &items);
            assert!(said.contains(&format!("item {at} (mpls): the port matches ETH, VLAN, IPV4,")), "{said}");
        }
        plain.end();
        let mut able = rig(way);
        let said = refusal(&mut able, &[v4, any_mpls()]);
        assert!(
            said.contains("item (mpls): the device finds labels behind eth, vlan, udp and gre"),
            "{said}"
        );
        for before in [vec![], vec![v4, any_udp()], vec![v4, any_gre()]] {
            let said = refusal(&mut able, &[&before[..], &[any_mpls(), v4]].concat());
            assert!(
                said.contains("item (ipv4): this driver's rules match no header behind a label"),
                "{said}"
            );
        }
        able.end();
    }
}
