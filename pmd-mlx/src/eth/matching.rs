//! What a rule matches, as the firmware reads it. Source of what the kernel makes of the same specs: Linux
//! `drivers/infiniband/hw/mlx5/fs.c`, `parse_flow_attr`.

use pollux_mlx5_abi::command::flow::criteria;
use pollux_mlx5_abi::command::matching::{MatchHeaders as H, MatchMisc, MatchMisc2, MatchParameters};
use pollux_mlx5_abi::field::Field;
use pollux_uverbs::flow::FlowSpec;

type Parameters = [u8; MatchParameters::BYTES];
type Headers = [u8; H::BYTES];

/// Of the packet and of one inside a tunnel, whether the version in an IP header can be matched; else it is the Ethernet type
/// that tells IPv4 from IPv6.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpVersions {
    pub(super) outer: bool,
    pub(super) inner: bool,
}

/// Mask, value, and which parts of them count. `versions` is asked where a rule has a header of IP.
///
/// # Errors
/// Those of `versions`.
pub(super) fn parameters<E>(
    items: &[FlowSpec],
    versions: impl FnOnce() -> Result<IpVersions, E>,
) -> Result<(Parameters, Parameters, u8), E> {
    let has_ip = items.iter().any(|item| matches!(item, FlowSpec::Ipv4 { .. } | FlowSpec::Ipv6 { .. }));
    let versions = if has_ip { versions()? } else { IpVersions { outer: false, inner: false } };
    let mut both = Both { mask: MatchParameters::ZERO, value: MatchParameters::ZERO, versions };
    for (at, item) in items.iter().enumerate() {
        both.add(item, items[..at].last());
    }
    let set = |part: &[u8]| part.iter().any(|byte| *byte != 0);
    let mut counted = 0;
    for (part, flag) in [
        (&MatchParameters::OUTER_HEADERS.of(&both.mask)[..], criteria::OUTER_HEADERS),
        (&MatchParameters::MISC_PARAMETERS.of(&both.mask)[..], criteria::MISC_PARAMETERS),
        (&MatchParameters::INNER_HEADERS.of(&both.mask)[..], criteria::INNER_HEADERS),
        (&MatchParameters::MISC_PARAMETERS_2.of(&both.mask)[..], criteria::MISC_PARAMETERS_2),
    ] {
        if set(part) {
            counted |= flag;
        }
    }
    Ok((both.mask, both.value, counted as u8))
}

struct Both {
    mask: Parameters,
    value: Parameters,
    versions: IpVersions,
}

impl Both {
    fn version(&mut self, inner: bool, version: u32) {
        let matched = if inner { self.versions.inner } else { self.versions.outer };
        if matched {
            self.put(inner, H::IP_VERSION, 0xf, version);
        } else {
            self.put(inner, H::ETHERTYPE, 0xffff, if version == 4 { 0x0800 } else { 0x86dd });
        }
    }

    fn headers(&mut self, inner: bool) -> (&mut Headers, &mut Headers) {
        let part = if inner { MatchParameters::INNER_HEADERS } else { MatchParameters::OUTER_HEADERS };
        (part.of_mut(&mut self.mask), part.of_mut(&mut self.value))
    }

    fn misc(&mut self, field: Field<64>, mask: u32, value: u32) {
        let part = MatchParameters::MISC_PARAMETERS;
        field.set(part.of_mut(&mut self.mask), mask & field.max());
        field.set(part.of_mut(&mut self.value), value & mask & field.max());
    }

    fn put(&mut self, inner: bool, field: Field<64>, mask: u32, value: u32) {
        let (mask_block, value_block) = self.headers(inner);
        field.set(mask_block, mask);
        field.set(value_block, value & mask);
    }

    /// `behind` is the item before it.
    fn add(&mut self, item: &FlowSpec, behind: Option<&FlowSpec>) {
        match *item {
            FlowSpec::Eth { value, mask, inner } => {
                let address = |bytes: [u8; 6]| {
                    bytes.iter().fold(0_u64, |address, byte| address << 8 | u64::from(*byte))
                };
                let (mask_block, value_block) = self.headers(inner);
                for (field, mask, value) in
                    [(H::DMAC, mask.dst_mac, value.dst_mac), (H::SMAC, mask.src_mac, value.src_mac)]
                {
                    field.set(mask_block, address(mask));
                    field.set(value_block, address(value) & address(mask));
                }
                self.put(inner, H::ETHERTYPE, mask.ether_type.get().into(), value.ether_type.get().into());
                let (tag, tag_mask) = (u32::from(value.vlan_tag.get()), u32::from(mask.vlan_tag.get()));
                if tag_mask != 0 {
                    self.put(inner, H::CVLAN_TAG, 1, 1);
                    self.put(inner, H::FIRST_VID, tag_mask & 0xfff, tag & 0xfff);
                    self.put(inner, H::FIRST_CFI, tag_mask >> 12 & 1, tag >> 12 & 1);
                    self.put(inner, H::FIRST_PRIO, tag_mask >> 13, tag >> 13);
                }
            }
            FlowSpec::Ipv4 { value, mask, inner } => {
                self.version(inner, 4);
                self.put(inner, H::SRC_IPV4, mask.src_ip.get(), value.src_ip.get());
                self.put(inner, H::DST_IPV4, mask.dst_ip.get(), value.dst_ip.get());
                self.ip(inner, (mask.proto, value.proto), (mask.tos, value.tos), (mask.ttl, value.ttl));
            }
            FlowSpec::Ipv6 { value, mask, inner } => {
                self.version(inner, 6);
                let (mask_block, value_block) = self.headers(inner);
                for (field, mask, value) in
                    [(H::SRC_IPV6, mask.src_ip, value.src_ip), (H::DST_IPV6, mask.dst_ip, value.dst_ip)]
                {
                    field.set(mask_block, mask);
                    field.set(value_block, std::array::from_fn(|at| value[at] & mask[at]));
                }
                self.ip(
                    inner,
                    (mask.next_hdr, value.next_hdr),
                    (mask.traffic_class, value.traffic_class),
                    (mask.hop_limit, value.hop_limit),
                );
                let label =
                    if inner { MatchMisc::INNER_IPV6_FLOW_LABEL } else { MatchMisc::OUTER_IPV6_FLOW_LABEL };
                self.misc(label, mask.flow_label.get(), value.flow_label.get());
            }
            FlowSpec::Tcp { value, mask, inner } => {
                self.put(inner, H::IP_PROTOCOL, 0xff, 6);
                self.put(inner, H::TCP_SPORT, mask.src_port.get().into(), value.src_port.get().into());
                self.put(inner, H::TCP_DPORT, mask.dst_port.get().into(), value.dst_port.get().into());
            }
            FlowSpec::Udp { value, mask, inner } => {
                self.put(inner, H::IP_PROTOCOL, 0xff, 17);
                self.put(inner, H::UDP_SPORT, mask.src_port.get().into(), value.src_port.get().into());
                self.put(inner, H::UDP_DPORT, mask.dst_port.get().into(), value.dst_port.get().into());
            }
            FlowSpec::Vxlan { value, mask } => self.misc(MatchMisc::VXLAN_VNI, mask, value),
            FlowSpec::Esp { value, mask } => {
                self.misc(MatchMisc::OUTER_ESP_SPI, mask.spi.get(), value.spi.get())
            }
            FlowSpec::Gre { value, mask } => {
                self.put(false, H::IP_PROTOCOL, 0xff, 47);
                self.misc(MatchMisc::GRE_PROTOCOL, mask.protocol.get().into(), value.protocol.get().into());
                // Flags that say what stands in the header. Source: RFC 2890, section 2.
                let (bits, flags) = (mask.c_ks_res0_ver.get(), value.c_ks_res0_ver.get());
                for (field, bit) in [
                    (MatchMisc::GRE_C_PRESENT, 15),
                    (MatchMisc::GRE_K_PRESENT, 13),
                    (MatchMisc::GRE_S_PRESENT, 12),
                ] {
                    self.misc(field, u32::from(bits >> bit & 1), u32::from(flags >> bit & 1));
                }
                let (mask, value) = (mask.key.get(), value.key.get());
                self.misc(MatchMisc::GRE_KEY_H, mask >> 8, value >> 8);
                self.misc(MatchMisc::GRE_KEY_L, mask & 0xff, value & 0xff);
            }
            FlowSpec::Mpls { value, mask, inner } => {
                let label = match behind {
                    Some(FlowSpec::Udp { inner: false, .. }) => MatchMisc2::OUTER_FIRST_MPLS_OVER_UDP,
                    Some(FlowSpec::Gre { .. }) => MatchMisc2::OUTER_FIRST_MPLS_OVER_GRE,
                    _ if inner => MatchMisc2::INNER_FIRST_MPLS,
                    _ => MatchMisc2::OUTER_FIRST_MPLS,
                };
                let part = MatchParameters::MISC_PARAMETERS_2;
                label.set(part.of_mut(&mut self.mask), mask.to_be_bytes());
                label.set(part.of_mut(&mut self.value), (value & mask).to_be_bytes());
            }
            // What a rule does is no part of what it matches.
            FlowSpec::Tag(_) | FlowSpec::Drop | FlowSpec::Count(_) => {}
        }
    }

    /// Mask and value of the fields that both versions have. A protocol that a layer 4 item will name is not taken back.
    fn ip(&mut self, inner: bool, protocol: (u8, u8), class: (u8, u8), ttl: (u8, u8)) {
        if protocol.0 != 0 {
            self.put(inner, H::IP_PROTOCOL, protocol.0.into(), protocol.1.into());
        }
        self.put(inner, H::IP_DSCP, u32::from(class.0 >> 2), u32::from(class.1 >> 2));
        self.put(inner, H::IP_ECN, u32::from(class.0 & 3), u32::from(class.1 & 3));
        self.put(inner, H::TTL_HOPLIMIT, ttl.0.into(), ttl.1.into());
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use pollux_uverbs::abi::flow::{EthFilter, GreFilter, Ipv4Filter, TcpUdpFilter};

    use super::*;

    #[test]
    fn flags_of_gre_have_a_field_each() {
        let gre =
            |c_ks_res0_ver: u16| GreFilter { c_ks_res0_ver: c_ks_res0_ver.into(), ..GreFilter::default() };
        for (bit, field) in [
            (0x8000, MatchMisc::GRE_C_PRESENT),
            (0x2000, MatchMisc::GRE_K_PRESENT),
            (0x1000, MatchMisc::GRE_S_PRESENT),
        ] {
            for value in [0, bit] {
                let item = FlowSpec::Gre { value: gre(value), mask: gre(bit) };
                let none = || Ok::<_, Infallible>(IpVersions { outer: true, inner: true });
                let Ok((mask, said, _)) = parameters(&[item], none);
                let [mask, said] = [mask, said].map(|side| *MatchParameters::MISC_PARAMETERS.of(&side));
                let mut wanted = [0; 64];
                field.set(&mut wanted, 1);
                assert_eq!(mask, wanted, "{bit:#06x} alone counts");
                assert_eq!(field.get(&said), u32::from(value != 0));
            }
        }
    }

    #[test]
    fn a_rule_matches_field_by_field() {
        let value =
            EthFilter { dst_mac: [2, 0, 0, 0, 0, 1], vlan_tag: 0x6007.into(), ..EthFilter::default() };
        let mask = EthFilter { dst_mac: [0xff; 6], vlan_tag: 0xffff.into(), ..EthFilter::default() };
        let items = [
            FlowSpec::Eth { value, mask, inner: false },
            FlowSpec::Ipv4 {
                value: Ipv4Filter { dst_ip: 0x0a00_0001.into(), tos: 0xb9, ..Ipv4Filter::default() },
                mask: Ipv4Filter { dst_ip: 0xffff_ff00.into(), tos: 0xff, ..Ipv4Filter::default() },
                inner: false,
            },
            FlowSpec::Udp {
                value: TcpUdpFilter { dst_port: 53.into(), ..TcpUdpFilter::default() },
                mask: TcpUdpFilter { dst_port: 0xffff.into(), ..TcpUdpFilter::default() },
                inner: false,
            },
        ];
        let both = || Ok::<_, Infallible>(IpVersions { outer: true, inner: true });
        let Ok((mask, value, counted)) = parameters(&items, both);
        assert_eq!(u32::from(counted), criteria::OUTER_HEADERS);
        let (mask, value) =
            (MatchParameters::OUTER_HEADERS.of(&mask), MatchParameters::OUTER_HEADERS.of(&value));
        assert_eq!((H::DMAC.get(mask), H::DMAC.get(value)), (0xffff_ffff_ffff, 0x0200_0000_0001));
        let fields = [
            (H::CVLAN_TAG, 1, 1),
            (H::FIRST_VID, 0xfff, 7),
            (H::FIRST_PRIO, 7, 3),
            (H::IP_VERSION, 0xf, 4),
            (H::IP_PROTOCOL, 0xff, 17),
            (H::IP_DSCP, 0x3f, 0x2e),
            (H::IP_ECN, 3, 1),
            (H::DST_IPV4, 0xffff_ff00, 0x0a00_0000),
            (H::UDP_DPORT, 0xffff, 53),
            (H::TCP_DPORT, 0, 0),
            (H::ETHERTYPE, 0, 0),
        ];
        for (field, expected_mask, expected_value) in fields {
            assert_eq!((field.get(mask), field.get(value)), (expected_mask, expected_value), "{field:?}");
        }
    }

    #[test]
    fn without_its_version_an_ip_header_is_told_by_the_ethernet_type() {
        let filter = Ipv4Filter::default();
        let item = |inner| FlowSpec::Ipv4 { value: filter, mask: filter, inner };
        for (inner, part) in [(false, MatchParameters::OUTER_HEADERS), (true, MatchParameters::INNER_HEADERS)]
        {
            // The other's capability does not count.
            let versions = || Ok::<_, Infallible>(IpVersions { outer: inner, inner: !inner });
            let Ok((mask, value, _)) = parameters(&[item(inner)], versions);
            let (mask, value) = (part.of(&mask), part.of(&value));
            assert_eq!((H::IP_VERSION.get(mask), H::ETHERTYPE.get(mask)), (0, 0xffff));
            assert_eq!(H::ETHERTYPE.get(value), 0x0800);
        }
    }

    #[test]
    fn a_label_is_that_of_the_header_before_it() {
        let port = TcpUdpFilter::default();
        let gre = |key: u32| GreFilter { key: key.into(), ..GreFilter::default() };
        let udp = |inner| FlowSpec::Udp { value: port, mask: port, inner };
        let keyed = FlowSpec::Gre { value: gre(0x1122_3344), mask: gre(0xffff_ff00) };
        for (behind, inner, field) in [
            (FlowSpec::Tag(1), false, MatchMisc2::OUTER_FIRST_MPLS),
            (FlowSpec::Tag(1), true, MatchMisc2::INNER_FIRST_MPLS),
            (udp(true), true, MatchMisc2::INNER_FIRST_MPLS),
            (udp(false), false, MatchMisc2::OUTER_FIRST_MPLS_OVER_UDP),
            (keyed, false, MatchMisc2::OUTER_FIRST_MPLS_OVER_GRE),
        ] {
            let label = FlowSpec::Mpls { value: 0x1234_5678, mask: 0xffff_f000, inner };
            let versions = || -> Result<IpVersions, Infallible> { panic!("no header of IP") };
            let Ok((mask, value, counted)) = parameters(&[behind, label], versions);
            assert_ne!(u32::from(counted) & criteria::MISC_PARAMETERS_2, 0);
            let part = MatchParameters::MISC_PARAMETERS_2;
            assert_eq!(field.get(part.of(&mask)), [0xff, 0xff, 0xf0, 0]);
            assert_eq!(field.get(part.of(&value)), [0x12, 0x34, 0x50, 0]);
            if behind == keyed {
                let (mask, value) =
                    (MatchParameters::MISC_PARAMETERS.of(&mask), MatchParameters::MISC_PARAMETERS.of(&value));
                assert_eq!((MatchMisc::GRE_KEY_H.get(mask), MatchMisc::GRE_KEY_L.get(mask)), (0xff_ffff, 0));
                assert_eq!(MatchMisc::GRE_KEY_H.get(value), 0x11_2233);
            }
        }
    }

    #[test]
    fn a_rule_for_everything_matches_nothing() {
        let any = FlowSpec::Eth { value: EthFilter::default(), mask: EthFilter::default(), inner: false };
        let nobody = || -> Result<IpVersions, Infallible> { panic!("no header of IP") };
        assert_eq!(parameters(&[any], nobody), Ok((MatchParameters::ZERO, MatchParameters::ZERO, 0)));
    }
}
