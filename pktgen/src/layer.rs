//! The headers that a packet may have: their bytes, their fields, and what may follow each.
//!
//! Sources: RFC 791, 793, 768, 792, 826, 8200, 4443; IEEE 802.1Q; RFC 3032 (MPLS), RFC 2784 and 2890 (GRE), RFC 7348 (VXLAN), 3GPP TS 29.281
//! (GTP-U). Addresses are those that RFC 2544 and RFC 5180 set aside for benchmarks.

use std::fmt;

/// How a field's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number, decimal or hexadecimal.
    Number,
    /// A MAC address.
    Mac,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
}

/// A field of a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// Where it begins, in bits from the header's begin.
    pub(crate) bit: usize,
    /// How long it is.
    pub(crate) bits: usize,
    pub(crate) kind: Kind,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    Ether,
    Vlan,
    Qinq,
    Mpls,
    Arp,
    Ipv4,
    Ipv6,
    Udp,
    Tcp,
    Icmp,
    Icmpv6,
    Gre,
    /// GRE with a key, under the same name.
    GreKey,
    Vxlan,
    Gtpu,
}

const fn number(name: &'static str, bit: usize, bits: usize) -> Field {
    Field { name, bit, bits, kind: Kind::Number }
}

const fn mac(name: &'static str, byte: usize) -> Field {
    Field { name, bit: byte * 8, bits: 48, kind: Kind::Mac }
}

const fn ipv4(name: &'static str, byte: usize) -> Field {
    Field { name, bit: byte * 8, bits: 32, kind: Kind::Ipv4 }
}

const fn ipv6(name: &'static str, byte: usize) -> Field {
    Field { name, bit: byte * 8, bits: 128, kind: Kind::Ipv6 }
}

const TAG: &[Field] = &[number("pcp", 0, 3), number("dei", 3, 1), number("id", 4, 12)];
const ECHO: &[Field] =
    &[number("type", 0, 8), number("code", 8, 8), number("id", 32, 16), number("seq", 48, 16)];

impl Layer {
    /// Those that can be named.
    pub(crate) const ALL: [Self; 14] = [
        Self::Ether,
        Self::Vlan,
        Self::Qinq,
        Self::Mpls,
        Self::Arp,
        Self::Ipv4,
        Self::Ipv6,
        Self::Udp,
        Self::Tcp,
        Self::Icmp,
        Self::Icmpv6,
        Self::Gre,
        Self::Vxlan,
        Self::Gtpu,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ether => "ether",
            Self::Vlan => "vlan",
            Self::Qinq => "qinq",
            Self::Mpls => "mpls",
            Self::Arp => "arp",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Icmp => "icmp",
            Self::Icmpv6 => "icmpv6",
            Self::Gre | Self::GreKey => "gre",
            Self::Vxlan => "vxlan",
            Self::Gtpu => "gtpu",
        }
    }

    /// The header as it is where nothing else is said. Types, lengths and checksums are filled in later.
    pub(crate) const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Ether => &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            Self::Vlan | Self::Qinq => &[0, 1, 0, 0],
            Self::Mpls => &[0, 1, 0, 64],
            Self::Arp => {
                &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 198, 18, 0, 1, 0, 0, 0, 0, 0, 0, 198, 18, 0, 2]
            }
            Self::Ipv4 => &[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2],
            Self::Ipv6 => &[
                0x60, 0, 0, 0, 0, 0, 0, 64, 0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x20, 1, 0, 2,
                0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
            ],
            Self::Udp => &[4, 0, 0, 9, 0, 0, 0, 0],
            Self::Tcp => &[4, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0],
            Self::Icmp => &[8, 0, 0, 0, 0, 0, 0, 0],
            Self::Icmpv6 => &[128, 0, 0, 0, 0, 0, 0, 0],
            Self::Gre => &[0, 0, 0, 0],
            Self::GreKey => &[0x20, 0, 0, 0, 0, 0, 0, 0],
            Self::Vxlan => &[8, 0, 0, 0, 0, 0, 0, 0],
            Self::Gtpu => &[0x30, 0xff, 0, 0, 0, 0, 0, 0],
        }
    }

    pub(crate) const fn fields(self) -> &'static [Field] {
        match self {
            Self::Ether => const { &[mac("dst", 0), mac("src", 6), number("type", 96, 16)] },
            Self::Vlan | Self::Qinq => TAG,
            Self::Mpls => const { &[number("label", 0, 20), number("tc", 20, 3), number("ttl", 24, 8)] },
            Self::Arp => {
                const { &[number("op", 48, 16), mac("sha", 8), ipv4("spa", 14), mac("tha", 18), ipv4("tpa", 24)] }
            }
            Self::Ipv4 => {
                const {
                    &[
                        number("tos", 8, 8),
                        number("id", 32, 16),
                        number("flags", 48, 3),
                        number("ttl", 64, 8),
                        number("proto", 72, 8),
                        ipv4("src", 12),
                        ipv4("dst", 16),
                    ]
                }
            }
            Self::Ipv6 => {
                const {
                    &[
                        number("tc", 4, 8),
                        number("flow", 12, 20),
                        number("next", 48, 8),
                        number("hop", 56, 8),
                        ipv6("src", 8),
                        ipv6("dst", 24),
                    ]
                }
            }
            // `sum` says whether there is a checksum: 1 or 0.
            Self::Udp => const { &[number("src", 0, 16), number("dst", 16, 16), number("sum", 48, 1)] },
            Self::Tcp => {
                const {
                    &[
                        number("src", 0, 16),
                        number("dst", 16, 16),
                        number("seq", 32, 32),
                        number("ack", 64, 32),
                        number("flags", 104, 8),
                        number("window", 112, 16),
                        number("urgent", 144, 16),
                    ]
                }
            }
            Self::Icmp | Self::Icmpv6 => ECHO,
            Self::Gre | Self::GreKey => const { &[number("key", 32, 32)] },
            Self::Vxlan => const { &[number("vni", 32, 24)] },
            Self::Gtpu => const { &[number("teid", 32, 32)] },
        }
    }

    /// What may stand behind it.
    pub(crate) const fn next(self) -> &'static [Self] {
        use Layer::{Arp, Ether, Gre, Gtpu, Icmp, Icmpv6, Ipv4, Ipv6, Mpls, Qinq, Tcp, Udp, Vlan, Vxlan};
        match self {
            Ether | Vlan | Qinq => &[Vlan, Qinq, Mpls, Arp, Ipv4, Ipv6],
            Mpls => &[Mpls, Ipv4, Ipv6, Ether],
            Ipv4 => &[Udp, Tcp, Icmp, Gre, Ipv4, Ipv6],
            Ipv6 => &[Udp, Tcp, Icmpv6, Gre, Ipv4, Ipv6],
            Udp => &[Vxlan, Gtpu],
            Gre | Self::GreKey => &[Ipv4, Ipv6, Ether, Mpls],
            Vxlan => &[Ether],
            Gtpu => &[Ipv4, Ipv6],
            Arp | Tcp | Icmp | Icmpv6 => &[],
        }
    }

    pub(crate) fn field(self, name: &str) -> Option<&'static Field> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// The EtherType by which it is announced.
    pub(crate) const fn ether_type(self) -> Option<u16> {
        match self {
            Self::Vlan => Some(0x8100),
            Self::Qinq => Some(0x88a8),
            Self::Mpls => Some(0x8847),
            Self::Arp => Some(0x0806),
            Self::Ipv4 => Some(0x0800),
            Self::Ipv6 => Some(0x86dd),
            // In GRE: transparent Ethernet bridging.
            Self::Ether => Some(0x6558),
            _ => None,
        }
    }

    /// The IP protocol by which it is announced.
    pub(crate) const fn protocol(self) -> Option<u8> {
        match self {
            Self::Udp => Some(17),
            Self::Tcp => Some(6),
            Self::Icmp => Some(1),
            Self::Icmpv6 => Some(58),
            Self::Gre | Self::GreKey => Some(47),
            Self::Ipv4 => Some(4),
            Self::Ipv6 => Some(41),
            _ => None,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Names, as a refusal lists them.
pub(crate) fn names(layers: &[Layer]) -> String {
    layers.iter().map(|layer| layer.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_inside_their_headers_and_have_one_name() {
        for layer in Layer::ALL {
            for (at, field) in layer.fields().iter().enumerate() {
                let bytes = if layer == Layer::Gre { Layer::GreKey } else { layer }.bytes();
                assert!(field.bit + field.bits <= bytes.len() * 8, "{layer}.{}", field.name);
                assert!(layer.fields()[..at].iter().all(|other| other.name != field.name), "{layer}");
                assert!(layer.bytes().len().is_multiple_of(2), "checksums are summed in words");
            }
        }
    }
}
