//! The items of a rule as one pattern.
//!
//! ```text
//!   eth  vlan  ipv4|ipv6  tcp|udp   vxlan            eth  vlan  ipv4|ipv6  tcp|udp
//!   ------- outer headers -------   gre [gre_key]    ------- inner headers -------
//!                                   [gre [gre_key]] mpls
//! ```

use super::item::Fields;
use super::{FlowItem, FlowItems, FlowPart, Headers, ItemMatch, L3, L4, Masked, Pattern, Tunnel};
use crate::{PortError, offload};

/// EtherTypes. Those of MPLS stand for what goes to one and what goes to many. Source: RFC 5332, section 4; RFC 7637, section 3.2,
/// for an Ethernet frame in GRE.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: [u16; 2] = [0x8847, 0x8848];
const ETHERNET: u16 = 0x6558;
/// IP protocols. Source: RFC 2784, section 4; RFC 4023, section 3.1.
const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const MPLS_IN_IP: u8 = 137;
/// UDP ports. DPDK's drivers fill in the same: `drivers/net/mlx5/mlx5_flow.h`, `MLX5_UDP_PORT_VXLAN`, `MLX5_UDP_PORT_MPLS`. Source:
/// RFC 7348, section 5; RFC 7510, section 3.
const VXLAN_PORT: u16 = 4789;
const MPLS_PORT: u16 = 6635;
/// The flag of GRE that says that there is a key. Source: RFC 2890, section 2.
const KEY_FLAG: u16 = 0x2000;
/// Source: RFC 7348, section 5.
const VNI_MAX: u32 = 0xff_ffff;

/// Reads items, which are of the kinds that the port has.
pub(super) fn read(items: &[FlowItem], kinds: FlowItems) -> Result<Pattern, PortError> {
    let mut reader = Reader::default();
    for (at, item) in items.iter().enumerate() {
        let taken = if kinds.contains(item.kind()) {
            reader.take(item)
        } else {
            Err(format!("the port matches {}", offload::names(&kinds)))
        };
        taken.map_err(|reason| PortError::flow(FlowPart::Item(Some(at), item.name()), reason))?;
    }
    reader.finish()
}

/// How far items have led. Each stands behind those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    #[default]
    Start,
    Eth,
    Vlan,
    L3,
    L4,
    Tunnel,
    Key,
    Label,
}

#[derive(Debug, Default)]
struct Reader {
    pattern: Pattern,
    depth: Depth,
    /// An `eth` item is the first of the inner headers.
    frame_inside: bool,
}

impl Reader {
    fn take(&mut self, item: &FlowItem) -> Result<(), String> {
        match item {
            FlowItem::Eth(wanted) => {
                let wanted = masked(wanted)?;
                self.headers(Depth::Eth)?.eth = wanted;
                self.frame_inside = self.pattern.inner.is_some();
            }
            FlowItem::Vlan(wanted) => {
                let wanted = masked(wanted)?;
                self.headers(Depth::Vlan)?.vlan = Some(wanted);
            }
            FlowItem::Ipv4(wanted) => {
                let wanted = masked(wanted)?;
                self.headers(Depth::L3)?.l3 = L3::Ipv4(wanted);
            }
            FlowItem::Ipv6(wanted) => {
                let wanted = masked(wanted)?;
                self.headers(Depth::L3)?.l3 = L3::Ipv6(wanted);
            }
            FlowItem::Tcp(wanted) => {
                let wanted = masked(wanted)?;
                self.headers(Depth::L4)?.l4 = L4::Tcp(wanted);
            }
            FlowItem::Udp(wanted) => {
                let wanted = masked(wanted)?;
                self.headers(Depth::L4)?.l4 = L4::Udp(wanted);
            }
            FlowItem::Vxlan(wanted) => {
                let wanted = masked(wanted)?;
                if wanted.mask.vni > VNI_MAX {
                    return Err("a network identifier has 24 bits".into());
                }
                self.only(self.depth == Depth::L4 && self.is_udp(), Depth::Tunnel, "udp")?;
                self.pattern.tunnel = Tunnel::Vxlan(wanted);
            }
            FlowItem::Gre(wanted) => {
                let wanted = masked(wanted)?;
                self.only(self.depth == Depth::L3, Depth::Tunnel, "ipv4 or ipv6")?;
                self.pattern.tunnel = Tunnel::Gre { gre: wanted, key: None, label: None };
            }
            FlowItem::GreKey(wanted) => {
                let wanted = masked(wanted)?;
                let is_gre = matches!(self.pattern.tunnel, Tunnel::Gre { .. });
                self.only(self.depth == Depth::Tunnel && is_gre, Depth::Key, "gre")?;
                if let Tunnel::Gre { gre, key, .. } = &mut self.pattern.tunnel {
                    if gre.mask.flags & !gre.spec.flags & KEY_FLAG != 0 {
                        return Err("the gre item before it says that there is no key".into());
                    }
                    *key = Some(wanted);
                }
            }
            FlowItem::Mpls(wanted) => {
                let wanted = masked(wanted)?;
                let fits = match self.pattern.tunnel {
                    Tunnel::Any => self.depth != Depth::L4 || self.is_udp(),
                    Tunnel::Gre { label, .. } => label.is_none(),
                    Tunnel::Vxlan(_) | Tunnel::Mpls(_) => false,
                };
                self.only(fits, Depth::Label, "eth, vlan, ipv4, ipv6, udp, gre or gre_key")?;
                match &mut self.pattern.tunnel {
                    Tunnel::Gre { label, .. } => *label = Some(wanted),
                    tunnel => *tunnel = Tunnel::Mpls(wanted),
                }
            }
        }
        Ok(())
    }

    /// The headers that one of this layer belongs to: the inner ones, behind a tunnel's.
    fn headers(&mut self, layer: Depth) -> Result<&mut Headers, String> {
        if self.depth > Depth::L4 {
            if layer == Depth::L4 {
                return Err("ipv4 or ipv6 must stand before it".into());
            }
            // An Ethernet frame in GRE is known by its protocol, a tag in it by nothing.
            if layer == Depth::Vlan && matches!(self.pattern.tunnel, Tunnel::Gre { label: None, .. }) {
                return Err("eth must stand before it".into());
            }
            self.pattern.inner = Some(Headers::default());
        } else if layer <= self.depth {
            return Err("headers stand from the outside in, each once".into());
        } else if layer == Depth::L4 && self.depth != Depth::L3 {
            return Err("ipv4 or ipv6 must stand before it".into());
        }
        self.depth = layer;
        Ok(self.pattern.inner.as_mut().unwrap_or(&mut self.pattern.outer))
    }

    /// Goes on to a header of a tunnel, which stands right behind one of `before` and in no tunnel.
    fn only(&mut self, fits: bool, depth: Depth, before: &str) -> Result<(), String> {
        if self.pattern.inner.is_some() {
            return Err("a tunnel inside a tunnel is not matched".into());
        }
        if !fits {
            return Err(format!("it stands right behind {before}"));
        }
        self.depth = depth;
        Ok(())
    }

    fn is_udp(&self) -> bool {
        matches!(self.pattern.outer.l4, L4::Udp(_))
    }

    /// What headers say of those behind them must agree with those behind them.
    fn finish(mut self) -> Result<Pattern, PortError> {
        let Pattern { outer, tunnel, inner } = &mut self.pattern;
        let in_ip = match tunnel {
            Tunnel::Gre { .. } => Some(GRE),
            Tunnel::Mpls(_) => Some(MPLS_IN_IP),
            Tunnel::Any | Tunnel::Vxlan(_) => None,
        };
        contradiction(outer, in_ip)?;
        inner.as_ref().map_or(Ok(()), |inner| contradiction(inner, None))?;
        match tunnel {
            Tunnel::Any => {}
            Tunnel::Vxlan(_) => name_port(outer, VXLAN_PORT),
            Tunnel::Mpls(_) if outer.l4 != L4::Any => name_port(outer, MPLS_PORT),
            Tunnel::Mpls(_) if outer.l3 != L3::Any => {}
            Tunnel::Mpls(_) => {
                let (name, kind) = kind(outer);
                name_kind(name, "type", kind, &MPLS)?;
            }
            Tunnel::Gre { gre, label, .. } => {
                let carried: &[u16] = match (label, inner) {
                    (Some(_), _) => &MPLS,
                    (None, Some(_)) if self.frame_inside => &[ETHERNET],
                    (None, Some(Headers { l3: L3::Ipv4(_), .. })) => &[IPV4],
                    (None, Some(Headers { l3: L3::Ipv6(_), .. })) => &[IPV6],
                    (None, _) => &[],
                };
                name_kind("gre", "protocol", (&mut gre.spec.protocol, &mut gre.mask.protocol), carried)?;
            }
        }
        Ok(self.pattern)
    }
}

/// Where the type of what the Ethernet header carries stands, and which item that is: value and bits that count.
fn kind(headers: &mut Headers) -> (&'static str, (&mut u16, &mut u16)) {
    match &mut headers.vlan {
        Some(vlan) => ("vlan", (&mut vlan.spec.inner_type, &mut vlan.mask.inner_type)),
        None => ("eth", (&mut headers.eth.spec.ether_type, &mut headers.eth.mask.ether_type)),
    }
}

/// A type must agree with one of those that the item behind it has; left open, it is the first.
fn name_kind(
    item: &'static str,
    field: &str,
    (spec, mask): (&mut u16, &mut u16),
    carried: &[u16],
) -> Result<(), PortError> {
    let Some(first) = carried.first() else { return Ok(()) };
    if *mask == 0 {
        (*spec, *mask) = (*first, 0xffff);
    }
    if carried.iter().any(|kind| *kind & *mask == *spec) {
        return Ok(());
    }
    let reason = format!("it says {field} {spec:#06x}, the item behind it {first:#06x}");
    Err(PortError::flow(FlowPart::Item(None, item), reason))
}

/// A destination port that was left open is the tunnel's.
fn name_port(outer: &mut Headers, port: u16) {
    if let L4::Udp(udp) = &mut outer.l4
        && udp.mask.dst == 0
    {
        (udp.spec.dst, udp.mask.dst) = (port, 0xffff);
    }
}

/// Values under their mask.
fn masked<T: Fields + Default>(wanted: &ItemMatch<T>) -> Result<Masked<T>, String> {
    let Some(spec) = wanted.spec else {
        if wanted.mask.is_some() || wanted.last.is_some() {
            return Err("a mask or a last value needs a spec".into());
        }
        return Ok(Masked::default());
    };
    let mask = wanted.mask.unwrap_or(T::DEFAULT_MASK);
    let spec = spec.and(&mask);
    if wanted.last.is_some_and(|last| last.and(&mask) != spec) {
        return Err(
            "ranges are not matched; leave `last` out and give one rule for each value or mask".into()
        );
    }
    Ok(Masked { spec, mask })
}

/// What an item says of the header behind it must agree with the item behind it. `in_ip` is the protocol of one that stands behind IP and is not of
/// layer 4.
fn contradiction(headers: &Headers, in_ip: Option<u8>) -> Result<(), PortError> {
    let behind = match headers.l3 {
        L3::Any => None,
        L3::Ipv4(_) => Some(IPV4),
        L3::Ipv6(_) => Some(IPV6),
    };
    let mut headers = *headers;
    let (name, (spec, mask)) = kind(&mut headers);
    if let Some(behind) = behind
        && behind & *mask != *spec
    {
        let reason = format!("it says type {spec:#06x}, the item behind it {behind:#06x}");
        return Err(PortError::flow(FlowPart::Item(None, name), reason));
    }
    let transport = match (headers.l4, in_ip) {
        (L4::Any, None) => return Ok(()),
        (L4::Any, Some(protocol)) => protocol,
        (L4::Tcp(_), _) => TCP,
        (L4::Udp(_), _) => UDP,
    };
    let (name, kind) = match headers.l3 {
        L3::Any => return Ok(()),
        L3::Ipv4(ip) => ("ipv4", Masked { spec: ip.spec.protocol, mask: ip.mask.protocol }),
        L3::Ipv6(ip) => ("ipv6", Masked { spec: ip.spec.next_header, mask: ip.mask.next_header }),
    };
    if transport & kind.mask != kind.spec {
        let reason = format!("it says protocol {}, the item behind it {transport}", kind.spec);
        return Err(PortError::flow(FlowPart::Item(None, name), reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
