//! The tunnels that a card looks into by itself, sending as well as receiving.

use pollux_wire::EtherType;

use super::{Headers, Ip, Transport, be16};
use crate::card::Traits;

/// UDP port of VXLAN, which a card knows without being told. Source: RFC 7348, section 5; Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/lib/vxlan.c`, `mlx5_vxlan_create`.
const VXLAN_PORT: u16 = 4789;
/// Source: RFC 7348, section 5.
const VXLAN_BYTES: usize = 8;
/// UDP ports of VXLAN that a card has room for. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/lib/vxlan.c`
/// ("max_num_ports is usually 4"), and `lib/vxlan.h`, `mlx5_vxlan_max_udp_ports`, which takes 4 for a card that says 0, as the
/// one in `saeedtx/mlx5ctl:README.md` does. Linux takes one of them off for the port above.
pub(crate) const VXLAN_PORTS_MAX: usize = 4;
/// UDP port of Geneve and its header without options. Source: RFC 8926, sections 3.3 and 3.4.
const GENEVE_PORT: u16 = 6081;
const GENEVE_BYTES: usize = 8;
/// IP protocol of GRE, its shortest header, and the flags that make it longer by 4 bytes each: checksum, key, sequence number.
/// Source: RFC 2784, section 2; RFC 2890, section 2.
const GRE: u8 = 47;
const GRE_BYTES: usize = 4;
const GRE_OPTIONAL: [u16; 3] = [0x8000, 0x2000, 0x1000];
/// Ethertypes of MPLS, to one and to many, and the UDP port behind which a label stack stands. Source: RFC 5332, section 4; RFC 7510,
/// section 3; DPDK `drivers/net/mlx5/mlx5_flow.h`, `MLX5_UDP_PORT_MPLS`.
const MPLS: [u16; 2] = [0x8847, 0x8848];
const MPLS_PORT: u16 = 6635;
/// Routing. Cards look at no version: rdma-core `tests/utils.py`, `gen_gre_header`, writes 1, and tunnels of `tests/test_mlx5_dr.py`,
/// `packet_reformat_actions`, come off; matching has the three flags above and the protocol. Source of that: DPDK
/// `drivers/net/mlx5/mlx5_flow.c`, `mlx5_flow_validate_item_gre`; Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `struct mlx5_ifc_fte_match_set_misc_bits`.
const GRE_BEYOND: u16 = 0x4000;
/// IP protocols of IP in IP. Source: RFC 2003, section 3.1; RFC 2473, section 3.
const IP_IN_IP: [u8; 2] = [4, 41];
/// What GRE and Geneve call a whole Ethernet frame. Source: RFC 7637, section 3.2.
const TRANSPARENT_ETHERNET: EtherType = EtherType(0x6558);

/// Which tunnels a card looks into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tunnels {
    /// UDP ports that are VXLAN's; 0 is a free place. `None`: a card that does not know VXLAN.
    vxlan: Option<[u16; VXLAN_PORTS_MAX]>,
    gre: bool,
    geneve: bool,
    ip_in_ip: bool,
    mpls: bool,
}

/// A header of GRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gre {
    /// Flags and version.
    pub(crate) flags: u16,
    /// Ethertype of what it carries.
    pub(crate) protocol: u16,
    /// Where its key stands, if it has one.
    pub(crate) key: Option<usize>,
    /// Where it ends.
    pub(crate) end: usize,
}

/// Where the first entries of MPLS label stacks stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Behind the Ethernet header.
    pub(crate) outer: Option<usize>,
    /// Behind that inside the tunnel.
    pub(crate) inner: Option<usize>,
    pub(crate) in_gre: Option<usize>,
    pub(crate) in_udp: Option<usize>,
}

impl Tunnels {
    pub(crate) fn new(card: &Traits) -> Self {
        Self {
            vxlan: card.vxlan.then_some([VXLAN_PORT, 0, 0, 0]),
            gre: card.gre,
            geneve: card.geneve,
            ip_in_ip: card.ip_in_ip,
            mpls: card.mpls,
        }
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.vxlan.is_some() || self.gre || self.geneve || self.ip_in_ip
    }

    /// Takes a UDP port for VXLAN's from now on; false when there is no place. Once is enough.
    pub(crate) fn add_vxlan_port(&mut self, port: u16) -> bool {
        let Some(ports) = &mut self.vxlan else { return false };
        let Some(place) =
            ports.iter().position(|place| *place == port).or(ports.iter().position(|place| *place == 0))
        else {
            return false;
        };
        ports[place] = port;
        true
    }

    /// No longer; false when it was none.
    pub(crate) fn remove_vxlan_port(&mut self, port: u16) -> bool {
        let place = self.vxlan.as_mut().and_then(|ports| ports.iter_mut().find(|place| **place == port));
        place.map(|place| *place = 0).is_some()
    }

    /// Whether a packet with these headers is VXLAN.
    #[inline]
    pub(crate) fn is_vxlan(&self, frame: &[u8], outer: &Headers) -> bool {
        outer.transport == Transport::Udp
            && self.vxlan.is_some_and(|ports| {
                let port = be16(frame, outer.l4 + 2);
                port != 0 && ports.contains(&port)
            })
    }

    /// Whether the fields of GRE headers are known.
    pub(crate) fn knows_gre(&self) -> bool {
        self.gre
    }

    /// Whether MPLS label stacks are known.
    pub(crate) fn knows_mpls(&self) -> bool {
        self.mpls
    }

    /// The header of GRE behind `outer`.
    pub(crate) fn gre(&self, frame: &[u8], outer: &Headers) -> Option<Gre> {
        let is_gre = outer.protocol == GRE && outer.ip != Ip::None && !outer.fragment;
        if !self.gre || !is_gre || frame.len() < outer.l4 + GRE_BYTES {
            return None;
        }
        let flags = be16(frame, outer.l4);
        let words = |optional: &[u16]| optional.iter().filter(|flag| flags & **flag != 0).count() * 4;
        let [checksum, key, _] = GRE_OPTIONAL;
        let at = outer.l4 + GRE_BYTES + words(&[checksum]);
        Some(Gre {
            flags,
            protocol: be16(frame, outer.l4 + 2),
            key: (flags & key != 0).then_some(at),
            end: outer.l4 + GRE_BYTES + words(&GRE_OPTIONAL),
        })
    }

    /// The first entries of label stacks; `gre` is the header of GRE, if there is one.
    pub(crate) fn labels(
        &self,
        frame: &[u8],
        outer: &Headers,
        inner: Option<&Headers>,
        gre: Option<Gre>,
    ) -> Labels {
        if !self.mpls {
            return Labels::default();
        }
        let behind = |headers: &Headers| MPLS.contains(&headers.ether_type).then_some(headers.l3);
        let gre = gre.filter(|gre| MPLS.contains(&gre.protocol));
        let is_udp = outer.transport == Transport::Udp && be16(frame, outer.l4 + 2) == MPLS_PORT;
        Labels {
            outer: behind(outer),
            inner: inner.and_then(behind),
            in_gre: gre.map(|gre| gre.end),
            in_udp: is_udp.then_some(outer.payload),
        }
    }

    /// The headers inside the tunnel that `outer` belong to, if it is one that the card knows.
    #[inline]
    pub(crate) fn inside(&self, frame: &[u8], outer: &Headers) -> Option<Headers> {
        if outer.transport == Transport::Udp {
            return self.inside_udp(frame, outer);
        }
        if outer.ip == Ip::None || outer.fragment || outer.transport != Transport::None {
            return None;
        }
        self.inside_ip(frame, outer)
    }

    fn inside_udp(&self, frame: &[u8], outer: &Headers) -> Option<Headers> {
        if self.is_vxlan(frame, outer) {
            return carried(frame, outer.payload + VXLAN_BYTES, TRANSPARENT_ETHERNET);
        }
        if !self.geneve || be16(frame, outer.l4 + 2) != GENEVE_PORT {
            return None;
        }
        let options = usize::from(frame.get(outer.payload)? & 0x3f) * 4;
        let kind = EtherType(be16(frame, outer.payload + 2));
        carried(frame, outer.payload + GENEVE_BYTES + options, kind)
    }

    #[cold]
    fn inside_ip(&self, frame: &[u8], outer: &Headers) -> Option<Headers> {
        match outer.protocol {
            GRE => {
                let gre = self.gre(frame, outer).filter(|gre| gre.flags & GRE_BEYOND == 0)?;
                carried(frame, gre.end, EtherType(gre.protocol))
            }
            protocol if self.ip_in_ip && IP_IN_IP.contains(&protocol) => {
                let kind = if protocol == IP_IN_IP[0] { EtherType::IPV4 } else { EtherType::IPV6 };
                carried(frame, outer.l4, kind)
            }
            _ => None,
        }
    }
}

/// What a tunnel's header says that it carries, from `at` on.
fn carried(frame: &[u8], at: usize, kind: EtherType) -> Option<Headers> {
    match kind {
        TRANSPARENT_ETHERNET => (frame.len() >= at + 14).then(|| Headers::parse(frame, at)),
        EtherType::IPV4 | EtherType::IPV6 => Headers::parse_packet(frame, at, kind),
        _ => None,
    }
}
