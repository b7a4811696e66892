//! What a rule matches, in the kernel's words.

use pollux_port::PortError;
use pollux_port::flow::{
    EthFields, FlowPart, FlowPlan, GreFields, GreKeyFields, Headers, Ipv4Fields, Ipv6Fields, L3, L4, Masked,
    MplsFields, Pattern, Tunnel,
};
use pollux_uverbs::abi::flow::{EthFilter, GreFilter, Ipv4Filter, Ipv6Filter, TcpUdpFilter};
use pollux_uverbs::flow::FlowSpec;

use crate::eth::port::spread::Kind;

/// IEEE 802.1Q.
const TAGGED: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Of the first 16 bits of GRE, those that the device matches: checksum, key and sequence number are there. Source: DPDK
/// `drivers/net/mlx5/mlx5_flow.c`, `mlx5_flow_validate_item_gre`.
const GRE_FLAGS: u16 = 0xb000;
const KEY_FLAG: u16 = 0x2000;

/// A part of a rule: packets that are hashed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) pattern: Pattern,
    /// 0: not at all.
    pub(super) fields: u64,
}

/// The parts of a rule, narrowest first: what the kinds that are hashed apart leave of its pattern, and the rest.
pub(super) fn parts(plan: &FlowPlan, kinds: &[(Kind, u64)]) -> Vec<Part> {
    let pattern = &plan.pattern;
    let mut parts: Vec<Part> = Vec::new();
    for (kind, fields) in kinds {
        let Some(narrowed) = narrow(pattern, *kind) else { continue };
        // Two kinds that leave the same of the pattern: the narrower came first.
        if parts.iter().all(|part| part.pattern != narrowed) {
            parts.push(Part { pattern: narrowed, fields: *fields });
        }
    }
    if parts.iter().all(|part| part.pattern != *pattern) {
        parts.push(Part { pattern: *pattern, fields: 0 });
    }
    parts
}

/// What a kind of packet leaves of a pattern; `None`: nothing.
fn narrow(pattern: &Pattern, kind: Kind) -> Option<Pattern> {
    let Headers { l3, l4, .. } = pattern.outer;
    // Behind its last header the pattern is open; else a tunnel's header stands there.
    let is_open = pattern.tunnel == Tunnel::Any;
    let v4 = matches!(kind, Kind::Ipv4 | Kind::Ipv4Tcp | Kind::Ipv4Udp);
    let network = match l3 {
        L3::Ipv4(_) if v4 => l3,
        L3::Ipv6(_) if !v4 => l3,
        L3::Any if is_open && agrees(&pattern.outer, if v4 { IPV4 } else { IPV6 }) => {
            if v4 {
                L3::Ipv4(Masked::default())
            } else {
                L3::Ipv6(Masked::default())
            }
        }
        _ => return None,
    };
    let (protocol, mask) = match l3 {
        L3::Ipv4(ip) => (ip.spec.protocol, ip.mask.protocol),
        L3::Ipv6(ip) => (ip.spec.next_header, ip.mask.next_header),
        L3::Any => (0, 0),
    };
    let transport = match (kind, l4) {
        (Kind::Ipv4 | Kind::Ipv6, l4) => l4,
        (Kind::Ipv4Tcp | Kind::Ipv6Tcp, L4::Tcp(_)) => l4,
        (Kind::Ipv4Udp | Kind::Ipv6Udp, L4::Udp(_)) => l4,
        (Kind::Ipv4Tcp | Kind::Ipv6Tcp, L4::Any) if is_open && 6 & mask == protocol => {
            L4::Tcp(Masked::default())
        }
        (Kind::Ipv4Udp | Kind::Ipv6Udp, L4::Any) if is_open && 17 & mask == protocol => {
            L4::Udp(Masked::default())
        }
        _ => return None,
    };
    let outer = Headers { l3: network, l4: transport, ..pattern.outer };
    Some(Pattern { outer, ..*pattern })
}

/// Whether headers without layer 3 let packets of this type in.
fn agrees(headers: &Headers, ether_type: u16) -> bool {
    let (spec, mask) = match headers.vlan {
        Some(vlan) => (vlan.spec.inner_type, vlan.mask.inner_type),
        None => (headers.eth.spec.ether_type, headers.eth.mask.ether_type),
    };
    ether_type & mask == spec
}

impl Part {
    /// Which of a rule's priorities it takes. One in a tunnel is looked at before others, as by DPDK's driver where it hashes the outer
    /// headers. Source: DPDK `drivers/net/mlx5/mlx5_flow.h`, `MLX5_TUNNEL_PRIO_GET`.
    pub(super) fn level(&self) -> u16 {
        if self.pattern.tunnel != Tunnel::Any {
            return 0;
        }
        match (self.pattern.outer.l3, self.pattern.outer.l4) {
            (L3::Any, _) => 2,
            (_, L4::Any) => 1,
            _ => 0,
        }
    }

    /// The headers, outermost first. `devx`: the firmware is asked directly and matches more.
    pub(super) fn specs(&self, devx: bool) -> Result<Vec<FlowSpec>, PortError> {
        let Pattern { outer, tunnel, inner } = &self.pattern;
        let mut specs = vec![ether(outer, false)?];
        // A header behind IP says the protocol itself.
        let is_in_ip = outer.l4 != L4::Any || matches!(tunnel, Tunnel::Gre { .. });
        packet(outer, is_in_ip, Side { inner: false, devx }, &mut specs)?;
        tunneled(tunnel, outer, devx, &mut specs)?;
        if let Some(inner) = inner {
            if matches!(tunnel, Tunnel::Mpls(_) | Tunnel::Gre { label: Some(_), .. }) {
                return Err(bad(outermost(inner), "this driver's rules match no header behind a label"));
            }
            let ether = ether(inner, true)?;
            // None of a packet that stands in GRE without one.
            if !matches!(ether, FlowSpec::Eth { mask, .. } if mask == EthFilter::default()) {
                specs.push(ether);
            }
            packet(inner, inner.l4 != L4::Any, Side { inner: true, devx }, &mut specs)?;
        }
        Ok(specs)
    }
}

fn bad(item: &'static str, reason: impl Into<String>) -> PortError {
    PortError::flow(FlowPart::Item(None, item), reason)
}

/// What verbs have no word for.
fn kernel_lacks(item: &'static str, field: &str) -> PortError {
    bad(item, format!("the kernel's rules do not match its {field}; dv_flow_en=1 can"))
}

/// The first of some headers, by the name of its item.
fn outermost(headers: &Headers) -> &'static str {
    match headers {
        Headers { eth, .. } if eth.mask != EthFields::NONE => "eth",
        Headers { vlan: Some(_), .. } => "vlan",
        Headers { l3: L3::Ipv4(_), .. } => "ipv4",
        Headers { l3: L3::Ipv6(_), .. } => "ipv6",
        _ => "eth",
    }
}

/// Which headers, and who is asked.
#[derive(Clone, Copy, Debug)]
struct Side {
    inner: bool,
    devx: bool,
}

/// Layers 3 and 4. `is_in_ip`: the header behind layer 3 says the protocol.
fn packet(
    headers: &Headers,
    is_in_ip: bool,
    Side { inner, devx }: Side,
    specs: &mut Vec<FlowSpec>,
) -> Result<(), PortError> {
    match headers.l3 {
        L3::Any => {}
        L3::Ipv4(ip) => {
            if ip.mask.ttl != 0 && !devx {
                return Err(kernel_lacks("ipv4", "ttl"));
            }
            let protocol = if is_in_ip { 0 } else { ip.mask.protocol };
            let filter = |from: Ipv4Fields| Ipv4Filter {
                src_ip: u32::from(from.src).into(),
                dst_ip: u32::from(from.dst).into(),
                proto: from.protocol & protocol,
                tos: from.tos,
                ttl: from.ttl,
                flags: 0,
            };
            specs.push(FlowSpec::Ipv4 { value: filter(ip.spec), mask: filter(ip.mask), inner });
        }
        L3::Ipv6(ip) => {
            if ip.mask.hop_limit != 0 && !devx {
                return Err(kernel_lacks("ipv6", "hop limit"));
            }
            if ip.mask.flow_label > 0xf_ffff {
                return Err(bad("ipv6", "a flow label has 20 bits"));
            }
            let protocol = if is_in_ip { 0 } else { ip.mask.next_header };
            let filter = |from: Ipv6Fields| Ipv6Filter {
                src_ip: from.src.octets(),
                dst_ip: from.dst.octets(),
                flow_label: from.flow_label.into(),
                next_hdr: from.next_header & protocol,
                traffic_class: from.traffic_class,
                hop_limit: from.hop_limit,
                reserved: 0,
            };
            specs.push(FlowSpec::Ipv6 { value: filter(ip.spec), mask: filter(ip.mask), inner });
        }
    }
    let ports = |src: u16, dst: u16| TcpUdpFilter { src_port: src.into(), dst_port: dst.into() };
    match headers.l4 {
        L4::Any => {}
        L4::Tcp(tcp) => {
            if tcp.mask.flags != 0 {
                return Err(bad("tcp", "this driver's rules match ports, not flags"));
            }
            let (value, mask) = (ports(tcp.spec.src, tcp.spec.dst), ports(tcp.mask.src, tcp.mask.dst));
            specs.push(FlowSpec::Tcp { value, mask, inner });
        }
        L4::Udp(udp) => {
            let (value, mask) = (ports(udp.spec.src, udp.spec.dst), ports(udp.mask.src, udp.mask.dst));
            specs.push(FlowSpec::Udp { value, mask, inner });
        }
    }
    Ok(())
}

/// The tunnel's own header. A label's spec must follow that of the header it stands behind: by that the kernel knows which one it is (Linux
/// `drivers/infiniband/hw/mlx5/fs.c`, `parse_flow_attr`, `prev_type`).
fn tunneled(
    tunnel: &Tunnel,
    outer: &Headers,
    devx: bool,
    specs: &mut Vec<FlowSpec>,
) -> Result<(), PortError> {
    match tunnel {
        Tunnel::Any => {}
        Tunnel::Vxlan(Masked { spec, mask }) => {
            specs.push(FlowSpec::Vxlan { value: spec.vni, mask: mask.vni });
        }
        Tunnel::Gre { gre, key, label } => {
            specs.push(routed(gre, key.as_ref(), devx)?);
            specs.extend(label.as_ref().map(labeled));
        }
        Tunnel::Mpls(_) if outer.l3 != L3::Any && outer.l4 == L4::Any => {
            let reason =
                "the device finds labels behind eth, vlan, udp and gre, not right behind ipv4 or ipv6";
            return Err(bad("mpls", reason));
        }
        Tunnel::Mpls(label) => specs.push(labeled(label)),
    }
    Ok(())
}

/// GRE with its key. The kernel matches no flags (Linux `drivers/infiniband/hw/mlx5/fs.c`, `parse_flow_attr`), and a key that is not
/// there is 0 to the device.
fn routed(
    gre: &Masked<GreFields>,
    key: Option<&Masked<GreKeyFields>>,
    devx: bool,
) -> Result<FlowSpec, PortError> {
    if gre.mask.flags != 0 && !devx {
        return Err(kernel_lacks("gre", "flags"));
    }
    if gre.mask.flags & !GRE_FLAGS != 0 {
        return Err(bad(
            "gre",
            "of its first 16 bits the device matches those for checksum, key and sequence number",
        ));
    }
    if key.is_some_and(|key| key.spec.key == 0) && !devx {
        let reason = "the kernel's rules do not tell a key of 0 from none; dv_flow_en=1 can";
        return Err(bad("gre_key", reason));
    }
    // Where it can be asked for, the key must be there.
    let there = if key.is_some() && devx { KEY_FLAG } else { 0 };
    let filter = |from: GreFields, key: Option<GreKeyFields>| GreFilter {
        c_ks_res0_ver: (from.flags | there).into(),
        protocol: from.protocol.into(),
        key: key.map_or(0, |key| key.key).into(),
    };
    let value = filter(gre.spec, key.map(|key| key.spec));
    Ok(FlowSpec::Gre { value, mask: filter(gre.mask, key.map(|key| key.mask)) })
}

fn labeled(Masked { spec, mask }: &Masked<MplsFields>) -> FlowSpec {
    FlowSpec::Mpls { value: spec.entry, mask: mask.entry, inner: false }
}

/// The Ethernet header with its tag. The device's type is what stands behind a tag; which tag it is, is no field.
fn ether(headers: &Headers, inner: bool) -> Result<FlowSpec, PortError> {
    let Headers { eth, vlan, l3, .. } = headers;
    let mut value = EthFilter { dst_mac: eth.spec.dst.0, src_mac: eth.spec.src.0, ..EthFilter::default() };
    let mut mask = EthFilter { dst_mac: eth.mask.dst.0, src_mac: eth.mask.src.0, ..EthFilter::default() };
    let (mut kind, mut bits) = (eth.spec.ether_type, eth.mask.ether_type);
    match vlan {
        None if bits == 0xffff && kind == TAGGED => {
            return Err(bad("eth", "a vlan item says that a frame is tagged"));
        }
        None => {}
        Some(vlan) => {
            if kind != TAGGED & bits {
                return Err(bad("eth", format!("frames are known as tagged by type {TAGGED:#06x}")));
            }
            if vlan.mask.tci == 0 {
                let reason = "at least one bit of the tag must count: without, tagged frames are as others";
                return Err(bad("vlan", reason));
            }
            value.vlan_tag = vlan.spec.tci.into();
            mask.vlan_tag = vlan.mask.tci.into();
            (kind, bits) = (vlan.spec.inner_type, vlan.mask.inner_type);
        }
    }
    // An IP item says the type itself, and kernels refuse a part of it beside one.
    if *l3 == L3::Any {
        value.ether_type = kind.into();
        mask.ether_type = bits.into();
    }
    Ok(FlowSpec::Eth { value, mask, inner })
}

#[cfg(test)]
mod tests;
