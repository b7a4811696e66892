//! What a rule of verbs matches and does, as the firmware's match. Source: Linux `drivers/infiniband/hw/mlx5/fs.c`,
//! `parse_flow_attr`, `is_valid_ethertype`, `flow_is_multicast_only`.

use pollux_mlx5_abi::caps::flow_table::FlowTableFields;
use pollux_mlx5_abi::command::matching::{MatchHeaders, MatchMisc, MatchMisc2, MatchParameters};
use pollux_mlx5_abi::field::mac_value;
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flow::{
    ACTION_COUNT, ACTION_DROP, ACTION_TAG, CountSpec, ESP, ETH, EthFilter, GRE, GreFilter, INNER, IPV4, IPV6,
    Ipv4Filter, Ipv6Filter, MPLS, TCP, TagSpec, TcpUdpFilter, UDP, VXLAN,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::steering::Match;
use crate::udata::{is_cleared, lenient};

/// Head of a spec: kind, length, and two bytes of nothing.
const HEAD: usize = 8;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_MPLS: [u16; 2] = [0x8847, 0x8848];
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_GRE: u8 = 47;

/// What a rule says.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) mask: Box<Match>,
    pub(super) value: Box<Match>,
    pub(super) tag: Option<u32>,
    pub(super) drops: bool,
    pub(super) counters: Option<u32>,
    /// No unicast can match.
    pub(super) multicast_only: bool,
}

/// A side of the match: mask or value.
type Headers = [u8; MatchHeaders::BYTES];

/// What the card can match.
type Matched = [u8; FlowTableFields::BYTES];

/// Where a header stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Inside a tunnel.
    inner: bool,
    /// The kind of the spec before it; 0 for the first.
    behind: u32,
}

/// Reads `count` specs that take up all of `bytes`.
pub(super) fn parse(mut bytes: &[u8], count: usize, matched: &Matched) -> Result<Parsed, Errno> {
    let mut parsed = Parsed {
        mask: Box::new([0; MatchParameters::BYTES]),
        value: Box::new([0; MatchParameters::BYTES]),
        tag: None,
        drops: false,
        counters: None,
        multicast_only: false,
    };
    let mut layers = [Layers::default(); 2];
    let mut behind = 0;
    for _ in 0..count {
        let head = bytes.first_chunk::<HEAD>().ok_or(Errno::EINVAL)?;
        let [a, b, c, d, e, f, g, h] = *head;
        let kind = u32::from_ne_bytes([a, b, c, d]);
        let length = usize::from(u16::from_ne_bytes([e, f]));
        if u16::from_ne_bytes([g, h]) != 0 || length < HEAD || length > bytes.len() {
            return Err(Errno::EINVAL);
        }
        let (spec, rest) = bytes.split_at(length);
        bytes = rest;
        match kind {
            ACTION_TAG => {
                let spec = TagSpec::read_from_bytes(spec).map_err(|_| Errno::EINVAL)?;
                if spec.tag_id >= 1 << 24 {
                    return Err(Errno::EINVAL);
                }
                parsed.tag = Some(spec.tag_id);
            }
            ACTION_DROP if length == HEAD => parsed.drops = true,
            ACTION_COUNT => {
                let spec = CountSpec::read_from_bytes(spec).map_err(|_| Errno::EINVAL)?;
                if parsed.counters.replace(spec.handle).is_some() {
                    return Err(Errno::EINVAL);
                }
            }
            _ => {
                let inner = kind & INNER != 0;
                let layer = &mut layers[usize::from(inner)];
                header(&mut parsed, layer, kind & !INNER, Place { inner, behind }, &spec[HEAD..], matched)?;
            }
        }
        behind = kind;
    }
    if !bytes.is_empty() || !layers.iter().all(Layers::agree) {
        return Err(Errno::EINVAL);
    }
    Ok(parsed)
}

/// What specs of one packet, outer or inner, say about the layer above Ethernet.
#[derive(Clone, Copy, Debug, Default)]
struct Layers {
    /// Ethertype with its mask.
    ethertype: Option<(u16, u16)>,
    ip: Option<u16>,
}

impl Layers {
    fn agree(&self) -> bool {
        match (self.ethertype, self.ip) {
            (Some((ethertype, 0xffff)), Some(ip)) => ethertype == ip || ETHERTYPE_MPLS.contains(&ethertype),
            (Some(_), Some(_)) => false,
            _ => true,
        }
    }
}

/// Value and mask of a header's fields; what is beyond those that are known must not be asked for.
fn sides<T: FromBytes + IntoBytes + Immutable + KnownLayout>(body: &[u8]) -> Result<(T, T), Errno> {
    if !body.len().is_multiple_of(2) {
        return Err(Errno::EINVAL);
    }
    let (value, mask) = body.split_at(body.len() / 2);
    if !is_cleared(mask.get(size_of::<T>()..).unwrap_or_default()) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok((lenient(value), lenient(mask)))
}

fn header(
    parsed: &mut Parsed,
    layers: &mut Layers,
    kind: u32,
    Place { inner, behind }: Place,
    body: &[u8],
    matched: &Matched,
) -> Result<(), Errno> {
    let first = behind == 0;
    let place = if inner { MatchParameters::INNER_HEADERS } else { MatchParameters::OUTER_HEADERS };
    let (mut mask, mut value) = (place.get(&parsed.mask), place.get(&parsed.value));
    match kind {
        ETH => {
            let (fields, bits): (EthFilter, EthFilter) = sides(body)?;
            ethernet(&mut mask, &bits, &bits);
            ethernet(&mut value, &fields, &bits);
            if bits.ether_type.get() != 0 {
                layers.ethertype = Some((fields.ether_type.get(), bits.ether_type.get()));
            }
            if first {
                parsed.multicast_only = fields.dst_mac[0] & 1 != 0 && bits.dst_mac[0] & 1 != 0;
            }
        }
        IPV4 => {
            let (fields, bits): (Ipv4Filter, Ipv4Filter) = sides(body)?;
            if bits.ttl != 0 || bits.flags != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            layers.ip = Some(ETHERTYPE_IPV4);
            set_version(matched, inner, &mut mask, &mut value, 4);
            for (side, from) in [(&mut mask, &bits), (&mut value, &fields)] {
                MatchHeaders::SRC_IPV4.set(side, from.src_ip.get());
                MatchHeaders::DST_IPV4.set(side, from.dst_ip.get());
                set_service(side, from.tos);
            }
            set_protocol(&mut mask, &mut value, bits.proto, fields.proto)?;
            if first {
                parsed.multicast_only = fields.dst_ip.get() >> 28 == 0xe;
            }
        }
        IPV6 => {
            let (fields, bits): (Ipv6Filter, Ipv6Filter) = sides(body)?;
            if bits.hop_limit != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            layers.ip = Some(ETHERTYPE_IPV6);
            set_version(matched, inner, &mut mask, &mut value, 6);
            for (side, from) in [(&mut mask, &bits), (&mut value, &fields)] {
                MatchHeaders::SRC_IPV6.set(side, from.src_ip);
                MatchHeaders::DST_IPV6.set(side, from.dst_ip);
                set_service(side, from.traffic_class);
            }
            set_protocol(&mut mask, &mut value, bits.next_hdr, fields.next_hdr)?;
            for (side, from) in [(&mut parsed.mask, &bits), (&mut parsed.value, &fields)] {
                let misc = MatchParameters::MISC_PARAMETERS.of_mut(side);
                let label = from.flow_label.get() & 0xf_ffff;
                if inner {
                    MatchMisc::INNER_IPV6_FLOW_LABEL.set(misc, label);
                } else {
                    MatchMisc::OUTER_IPV6_FLOW_LABEL.set(misc, label);
                }
            }
        }
        TCP | UDP => {
            let (fields, bits): (TcpUdpFilter, TcpUdpFilter) = sides(body)?;
            let protocol = if kind == TCP { PROTOCOL_TCP } else { PROTOCOL_UDP };
            set_protocol(&mut mask, &mut value, 0xff, protocol)?;
            let (source, target) = if kind == TCP {
                (MatchHeaders::TCP_SPORT, MatchHeaders::TCP_DPORT)
            } else {
                (MatchHeaders::UDP_SPORT, MatchHeaders::UDP_DPORT)
            };
            for (side, from) in [(&mut mask, &bits), (&mut value, &fields)] {
                source.set(side, from.src_port.get().into());
                target.set(side, from.dst_port.get().into());
            }
        }
        VXLAN if !inner => {
            let (fields, bits): ([u8; 4], [u8; 4]) = sides(body)?;
            for (side, from) in [(&mut parsed.mask, bits), (&mut parsed.value, fields)] {
                let vni = u32::from_be_bytes(from);
                if vni >= 1 << 24 {
                    return Err(Errno::EINVAL);
                }
                MatchMisc::VXLAN_VNI.set(MatchParameters::MISC_PARAMETERS.of_mut(side), vni);
            }
        }
        GRE => {
            let (fields, bits): (GreFilter, GreFilter) = sides(body)?;
            if bits.c_ks_res0_ver.get() != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            set_protocol(&mut mask, &mut value, 0xff, PROTOCOL_GRE)?;
            for (side, from) in [(&mut parsed.mask, &bits), (&mut parsed.value, &fields)] {
                let misc = MatchParameters::MISC_PARAMETERS.of_mut(side);
                MatchMisc::GRE_PROTOCOL.set(misc, from.protocol.get().into());
                MatchMisc::GRE_KEY_H.set(misc, from.key.get() >> 8);
                MatchMisc::GRE_KEY_L.set(misc, from.key.get() & 0xff);
            }
        }
        MPLS => {
            let (fields, bits): ([u8; 4], [u8; 4]) = sides(body)?;
            let (can, label) = match behind {
                UDP => (FlowTableFields::OUTER_FIRST_MPLS_OVER_UDP, MatchMisc2::OUTER_FIRST_MPLS_OVER_UDP),
                GRE => (FlowTableFields::OUTER_FIRST_MPLS_OVER_GRE, MatchMisc2::OUTER_FIRST_MPLS_OVER_GRE),
                _ if inner => (FlowTableFields::INNER_FIRST_MPLS, MatchMisc2::INNER_FIRST_MPLS),
                _ => (FlowTableFields::OUTER_FIRST_MPLS, MatchMisc2::OUTER_FIRST_MPLS),
            };
            if mpls_fields(bits) & !can.get(matched) != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            label.set(MatchParameters::MISC_PARAMETERS_2.of_mut(&mut parsed.mask), bits);
            label.set(MatchParameters::MISC_PARAMETERS_2.of_mut(&mut parsed.value), fields);
        }
        // As Linux 6.1; older ones matched the index.
        ESP => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    }
    place.set(&mut parsed.mask, mask);
    place.set(&mut parsed.value, value);
    Ok(())
}

/// One side of an Ethernet header; the tag counts where `bits` say so.
fn ethernet(side: &mut Headers, from: &EthFilter, bits: &EthFilter) {
    MatchHeaders::DMAC.set(side, mac_value(from.dst_mac));
    MatchHeaders::SMAC.set(side, mac_value(from.src_mac));
    MatchHeaders::ETHERTYPE.set(side, from.ether_type.get().into());
    if bits.vlan_tag.get() != 0 {
        let tag = u32::from(from.vlan_tag.get());
        MatchHeaders::CVLAN_TAG.set(side, 1);
        MatchHeaders::FIRST_VID.set(side, tag & 0xfff);
        MatchHeaders::FIRST_CFI.set(side, tag >> 12 & 1);
        MatchHeaders::FIRST_PRIO.set(side, tag >> 13);
    }
}

/// Which fields of a label stack's entry are asked for: a bit each. Source: Linux `include/linux/mlx5/device.h`,
/// `MLX5_FIELD_SUPPORT_MPLS_*`; `drivers/infiniband/hw/mlx5/fs.c`, `check_mpls_supp_fields`.
fn mpls_fields(mask: [u8; 4]) -> u32 {
    let mask = u32::from_be_bytes(mask);
    let fields = [mask >> 12, mask >> 9 & 7, mask >> 8 & 1, mask & 0xff];
    fields.iter().enumerate().map(|(bit, field)| u32::from(*field != 0) << bit).sum()
}

/// What is matched is the version in the IP header where the card can; else it is the Ethernet type.
fn set_version(matched: &Matched, inner: bool, mask: &mut Headers, value: &mut Headers, version: u32) {
    let by = if inner { FlowTableFields::INNER_IP_VERSION } else { FlowTableFields::OUTER_IP_VERSION };
    if by.is_set(matched) {
        MatchHeaders::IP_VERSION.set(mask, 0xf);
        MatchHeaders::IP_VERSION.set(value, version);
    } else {
        MatchHeaders::ETHERTYPE.set(mask, 0xffff);
        let kind = if version == 4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        MatchHeaders::ETHERTYPE.set(value, kind.into());
    }
}

fn set_service(side: &mut Headers, byte: u8) {
    MatchHeaders::IP_ECN.set(side, u32::from(byte & 3));
    MatchHeaders::IP_DSCP.set(side, u32::from(byte >> 2));
}

/// A protocol that was said before must be the same, and as much of it count. Source: Linux `drivers/infiniband/hw/mlx5/fs.c`,
/// `set_proto`.
fn set_protocol(mask: &mut Headers, value: &mut Headers, bits: u8, protocol: u8) -> Result<(), Errno> {
    let said = (MatchHeaders::IP_PROTOCOL.get(mask), MatchHeaders::IP_PROTOCOL.get(value));
    if bits == 0 {
        return Ok(());
    }
    if said.0 != 0 {
        let agree = said == (bits.into(), protocol.into());
        return if agree { Ok(()) } else { Err(Errno::EINVAL) };
    }
    MatchHeaders::IP_PROTOCOL.set(mask, bits.into());
    MatchHeaders::IP_PROTOCOL.set(value, protocol.into());
    Ok(())
}

/// Sets the bit by which multicasts and unicasts differ.
pub(super) fn destination_bit(side: &mut Match, on: bool) {
    let headers = MatchParameters::OUTER_HEADERS.of_mut(side);
    MatchHeaders::DMAC.set(headers, if on { 1 << 40 } else { 0 });
}
