//! What a rule matches, in the kernel's words.

use pollux_port::PortError;
use pollux_port::flow::{FlowPart, FlowPlan, L3, L4, Masked, Pattern};
use pollux_uverbs::abi::flow::{EthFilter, Ipv4Filter, Ipv6Filter, TcpUdpFilter};
use pollux_uverbs::flow::FlowSpec;

use crate::eth::port::spread::Kind;

/// IEEE 802.1Q.
const TAGGED: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

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
    let v4 = matches!(kind, Kind::Ipv4 | Kind::Ipv4Tcp | Kind::Ipv4Udp);
    let l3 = match pattern.l3 {
        L3::Ipv4(_) if v4 => pattern.l3,
        L3::Ipv6(_) if !v4 => pattern.l3,
        L3::Any if agrees(pattern, if v4 { IPV4 } else { IPV6 }) => {
            if v4 {
                L3::Ipv4(Masked::default())
            } else {
                L3::Ipv6(Masked::default())
            }
        }
        _ => return None,
    };
    let (protocol, mask) = match pattern.l3 {
        L3::Ipv4(ip) => (ip.spec.protocol, ip.mask.protocol),
        L3::Ipv6(ip) => (ip.spec.next_header, ip.mask.next_header),
        L3::Any => (0, 0),
    };
    let l4 = match (kind, pattern.l4) {
        (Kind::Ipv4 | Kind::Ipv6, l4) => l4,
        (Kind::Ipv4Tcp | Kind::Ipv6Tcp, l4 @ L4::Tcp(_)) => l4,
        (Kind::Ipv4Udp | Kind::Ipv6Udp, l4 @ L4::Udp(_)) => l4,
        (Kind::Ipv4Tcp | Kind::Ipv6Tcp, L4::Any) if 6 & mask == protocol => L4::Tcp(Masked::default()),
        (Kind::Ipv4Udp | Kind::Ipv6Udp, L4::Any) if 17 & mask == protocol => L4::Udp(Masked::default()),
        _ => return None,
    };
    Some(Pattern { l3, l4, ..*pattern })
}

/// Whether a pattern without layer 3 lets packets of this type in.
fn agrees(pattern: &Pattern, ether_type: u16) -> bool {
    let (spec, mask) = match pattern.vlan {
        Some(vlan) => (vlan.spec.inner_type, vlan.mask.inner_type),
        None => (pattern.eth.spec.ether_type, pattern.eth.mask.ether_type),
    };
    ether_type & mask == spec
}

impl Part {
    /// Which of a rule's priorities it takes.
    pub(super) fn level(&self) -> u16 {
        match (self.pattern.l3, self.pattern.l4) {
            (L3::Any, _) => 2,
            (_, L4::Any) => 1,
            _ => 0,
        }
    }

    /// The headers, outermost first. `devx`: the firmware is asked directly and matches more.
    pub(super) fn specs(&self, devx: bool) -> Result<Vec<FlowSpec>, PortError> {
        let Pattern { l3, l4, .. } = self.pattern;
        let mut specs = vec![self.ether()?];
        let bad = |item, field: &str| {
            let reason = format!("the kernel's rules do not match its {field}; dv_flow_en=1 can");
            PortError::flow(FlowPart::Item(None, item), reason)
        };
        match l3 {
            L3::Any => {}
            L3::Ipv4(ip) => {
                if ip.mask.ttl != 0 && !devx {
                    return Err(bad("ipv4", "ttl"));
                }
                // A layer 4 item says the protocol itself.
                let protocol = if l4 == L4::Any { ip.mask.protocol } else { 0 };
                let filter = |from: pollux_port::flow::Ipv4Fields| Ipv4Filter {
                    src_ip: u32::from(from.src).into(),
                    dst_ip: u32::from(from.dst).into(),
                    proto: from.protocol & protocol,
                    tos: from.tos,
                    ttl: from.ttl,
                    flags: 0,
                };
                specs.push(FlowSpec::Ipv4 { value: filter(ip.spec), mask: filter(ip.mask), inner: false });
            }
            L3::Ipv6(ip) => {
                if ip.mask.hop_limit != 0 && !devx {
                    return Err(bad("ipv6", "hop limit"));
                }
                if ip.mask.flow_label > 0xf_ffff {
                    let reason = "a flow label has 20 bits";
                    return Err(PortError::flow(FlowPart::Item(None, "ipv6"), reason));
                }
                let protocol = if l4 == L4::Any { ip.mask.next_header } else { 0 };
                let filter = |from: pollux_port::flow::Ipv6Fields| Ipv6Filter {
                    src_ip: from.src.octets(),
                    dst_ip: from.dst.octets(),
                    flow_label: from.flow_label.into(),
                    next_hdr: from.next_header & protocol,
                    traffic_class: from.traffic_class,
                    hop_limit: from.hop_limit,
                    reserved: 0,
                };
                specs.push(FlowSpec::Ipv6 { value: filter(ip.spec), mask: filter(ip.mask), inner: false });
            }
        }
        match l4 {
            L4::Any => {}
            L4::Tcp(tcp) => {
                if tcp.mask.flags != 0 {
                    let reason = "this driver's rules match ports, not flags";
                    return Err(PortError::flow(FlowPart::Item(None, "tcp"), reason));
                }
                let ports = |src: u16, dst: u16| TcpUdpFilter { src_port: src.into(), dst_port: dst.into() };
                let (value, mask) = (ports(tcp.spec.src, tcp.spec.dst), ports(tcp.mask.src, tcp.mask.dst));
                specs.push(FlowSpec::Tcp { value, mask, inner: false });
            }
            L4::Udp(udp) => {
                let ports = |src: u16, dst: u16| TcpUdpFilter { src_port: src.into(), dst_port: dst.into() };
                let (value, mask) = (ports(udp.spec.src, udp.spec.dst), ports(udp.mask.src, udp.mask.dst));
                specs.push(FlowSpec::Udp { value, mask, inner: false });
            }
        }
        Ok(specs)
    }

    /// The Ethernet header with its tag. The device's type is what stands behind a tag; which tag it is, is no field.
    fn ether(&self) -> Result<FlowSpec, PortError> {
        let Pattern { eth, vlan, l3, .. } = &self.pattern;
        let mut value =
            EthFilter { dst_mac: eth.spec.dst.0, src_mac: eth.spec.src.0, ..EthFilter::default() };
        let mut mask = EthFilter { dst_mac: eth.mask.dst.0, src_mac: eth.mask.src.0, ..EthFilter::default() };
        let (mut kind, mut bits) = (eth.spec.ether_type, eth.mask.ether_type);
        match vlan {
            None if bits == 0xffff && kind == TAGGED => {
                let reason = "a vlan item says that a frame is tagged";
                return Err(PortError::flow(FlowPart::Item(None, "eth"), reason));
            }
            None => {}
            Some(vlan) => {
                if kind != TAGGED & bits {
                    let reason = format!("frames are known as tagged by type {TAGGED:#06x}");
                    return Err(PortError::flow(FlowPart::Item(None, "eth"), reason));
                }
                if vlan.mask.tci == 0 {
                    let reason =
                        "at least one bit of the tag must count: without, tagged frames are as others";
                    return Err(PortError::flow(FlowPart::Item(None, "vlan"), reason));
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
        Ok(FlowSpec::Eth { value, mask, inner: false })
    }
}

#[cfg(test)]
mod tests;
