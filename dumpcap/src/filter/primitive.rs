//! What one primitive asks: `src host`, `udp port`, `ether proto`, `vlan`. Source: pcap-filter(7); the offsets are those of Ethernet, IPv4
//! (RFC 791), IPv6 (RFC 8200) and ARP (RFC 826).

use std::net::IpAddr;

use pollux_wire::EtherType;

use super::FilterError;
use super::address::{self, Net};
use super::cursor::Cursor;
use super::qualifiers::{Kind, Qualifiers, Way};
use super::token::Token;
use super::tree::{Check, Number, Relation, Tree, all, any, is, masked, not};

pub(super) const IPV4: u32 = EtherType::IPV4.0 as u32;
pub(super) const IPV6: u32 = EtherType::IPV6.0 as u32;
pub(super) const ARP: u32 = EtherType::ARP.0 as u32;
pub(super) const RARP: u32 = 0x8035;
/// IEEE 802.1Q, 802.1ad, and what came before that.
const TAGS: [u32; 3] = [EtherType::VLAN.0 as u32, EtherType::QINQ.0 as u32, EtherType::QINQ_OLD.0 as u32];
/// The fragment header of IPv6.
const FRAGMENT: u32 = 44;

/// IP protocols by name. Source: the IANA registry of protocol numbers.
const PROTOCOLS: [(&str, u32); 10] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
];

pub(super) fn ip_protocol(name: &str) -> Option<u32> {
    PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

fn ether_type(name: &str) -> Option<u32> {
    match name {
        "ip" => Some(IPV4),
        "ip6" => Some(IPV6),
        "arp" => Some(ARP),
        "rarp" => Some(RARP),
        _ => None,
    }
}

fn is_protocol(word: &str) -> bool {
    word == "ether" || ether_type(word).is_some() || ip_protocol(word).is_some()
}

impl Cursor {
    pub(super) fn primitive(&mut self) -> Result<Tree, FilterError> {
        let expected = "a primitive, as 'host 10.0.0.1', 'udp port 53' or 'vlan',";
        let Some(word) = self.peek_word().map(str::to_owned) else { return Err(self.unexpected(expected)) };
        match word.as_str() {
            "vlan" => return self.vlan(),
            "len" => return self.accessor(None),
            "less" | "greater" => return self.length(&word),
            "broadcast" | "multicast" => {
                self.step();
                return Ok(ether_group(&word));
            }
            _ => {}
        }
        let protocol = is_protocol(&word).then(|| word.clone());
        if let Some(protocol) = &protocol {
            self.step();
            if matches!(self.peek(), Some(Token::Index(_))) {
                return self.accessor(Some(protocol));
            }
            if let Some(group) = self.peek_word().filter(|word| matches!(*word, "broadcast" | "multicast")) {
                let group = group.to_owned();
                self.step();
                return self.group(protocol, &group);
            }
        }
        let way = self.way();
        let kind = self.kind();
        if way.is_none() && kind.is_none() {
            let has_value = matches!(self.peek_word(), Some(word) if !matches!(word, "and" | "or" | "not"));
            match &protocol {
                Some(protocol) if !has_value => return self.is_of(protocol),
                // A value alone is an address, or takes the qualifiers of the one before.
                None if self.last.is_none() && address::host(&word).is_err() => {
                    return Err(self.unexpected(expected));
                }
                _ => {}
            }
        }
        let qualifiers = match (&protocol, way, kind, &self.last) {
            (None, None, None, Some(last)) => last.clone(),
            _ => Qualifiers { protocol, way: way.unwrap_or(Way::Either), kind: kind.unwrap_or(Kind::Host) },
        };
        self.last = Some(qualifiers.clone());
        self.value(&qualifiers)
    }

    fn way(&mut self) -> Option<Way> {
        let first = if self.take("src") {
            Way::Source
        } else if self.take("dst") {
            Way::Destination
        } else {
            return None;
        };
        // `src or dst host`: not the `or` between two primitives.
        let way = match (first, self.words_ahead()) {
            (Way::Source, Some(("or", "dst"))) | (Way::Destination, Some(("or", "src"))) => Way::Either,
            (Way::Source, Some(("and", "dst"))) | (Way::Destination, Some(("and", "src"))) => Way::Both,
            _ => return Some(first),
        };
        self.step();
        self.step();
        Some(way)
    }

    fn kind(&mut self) -> Option<Kind> {
        let kinds = [
            ("host", Kind::Host),
            ("net", Kind::Net),
            ("portrange", Kind::PortRange),
            ("port", Kind::Port),
            ("proto", Kind::Proto),
        ];
        kinds.into_iter().find(|(word, _)| self.take(word)).map(|(_, kind)| kind)
    }

    fn value(&mut self, qualifiers: &Qualifiers) -> Result<Tree, FilterError> {
        let Qualifiers { protocol, way, kind } = qualifiers;
        let protocol = protocol.as_deref();
        let unfit = |what: &str| {
            let protocol = protocol.unwrap_or_default();
            Err(FilterError(format!("'{protocol}' does not go with '{what}'")))
        };
        match kind {
            Kind::Host if protocol == Some("ether") => {
                let mac = address::mac(&self.word("a MAC address")?)?;
                Ok(ways(*way, ether(6, mac), ether(0, mac)))
            }
            Kind::Host => {
                let address = address::host(&self.word("an address")?)?;
                let bits = if address.is_ipv4() { 32 } else { 128 };
                self.network(protocol, *way, Net { address, bits })
            }
            Kind::Net => {
                let text = self.word("a network")?;
                let mask = if self.take("mask") { Some(self.word("a mask")?) } else { None };
                let net = address::net(&text, mask.as_deref())?;
                self.network(protocol, *way, net)
            }
            Kind::Port | Kind::PortRange => {
                let text = self.word("a port")?;
                let range = match kind {
                    Kind::Port => address::port(&text).map(|port| (port, port))?,
                    _ => address::ports(&text)?,
                };
                let numbers: &[u32] = match protocol {
                    None => &[6, 17, 132],
                    Some("tcp") => &[6],
                    Some("udp") => &[17],
                    Some("sctp") => &[132],
                    Some(_) => return unfit("port"),
                };
                Ok(self.ports(numbers, *way, range))
            }
            Kind::Proto => {
                let word = self.word("a protocol")?;
                let number = address::number(&word);
                let unknown =
                    || FilterError(format!("'{word}' is not a protocol that is known; write its number"));
                if protocol == Some("ether") {
                    let number = number.or_else(|| ether_type(&word)).ok_or_else(unknown)?;
                    if !(0x600..=0xffff).contains(&number) {
                        let problem = format!("ether proto {word} must be an EtherType, 0x600 to 0xffff");
                        return Err(FilterError(problem));
                    }
                    return Ok(self.ether_type(number));
                }
                let number = number.or_else(|| ip_protocol(&word)).filter(|number| *number < 256);
                let number = number.ok_or_else(unknown)?;
                match protocol {
                    None => Ok(any([self.ipv4(number), self.ipv6(number)])),
                    Some("ip") => Ok(self.ipv4(number)),
                    Some("ip6") => Ok(self.ipv6(number)),
                    Some(_) => unfit("proto"),
                }
            }
        }
    }

    /// Where what is behind the EtherType begins.
    pub(super) fn payload(&self) -> u32 {
        14 + self.shift
    }

    pub(super) fn ether_type(&self, number: u32) -> Tree {
        is(12 + self.shift, 2, number)
    }

    pub(super) fn ipv4(&self, protocol: u32) -> Tree {
        all([self.ether_type(IPV4), is(self.payload() + 9, 1, protocol)])
    }

    fn ipv6(&self, protocol: u32) -> Tree {
        let next = self.payload() + 6;
        let behind_fragment = all([is(next, 1, FRAGMENT), is(self.payload() + 40, 1, protocol)]);
        all([self.ether_type(IPV6), any([is(next, 1, protocol), behind_fragment])])
    }

    /// Frames of a protocol.
    fn is_of(&self, protocol: &str) -> Result<Tree, FilterError> {
        if let Some(number) = ether_type(protocol) {
            return Ok(self.ether_type(number));
        }
        match ip_protocol(protocol) {
            Some(number @ (1 | 2)) => Ok(self.ipv4(number)),
            Some(58) => Ok(self.ipv6(58)),
            Some(number) => Ok(any([self.ipv4(number), self.ipv6(number)])),
            None => Err(self.unexpected("'host', 'src', 'dst', 'proto', 'broadcast' or 'multicast'")),
        }
    }

    fn network(&self, protocol: Option<&str>, way: Way, net: Net) -> Result<Tree, FilterError> {
        let begin = self.payload();
        let at = |place: u32| match net.address {
            IpAddr::V4(address) => prefix(begin + place, &[u32::from(address)], net.bits),
            IpAddr::V6(address) => {
                let whole = u128::from(address);
                let words = [whole >> 96, whole >> 64, whole >> 32, whole].map(|word| word as u32);
                prefix(begin + place, &words, net.bits)
            }
        };
        // EtherTypes, and where the addresses of source and destination stand behind them.
        let layers: &[(u32, u32, u32)] = match (net.address, protocol) {
            (IpAddr::V4(_), None) => &[(IPV4, 12, 16), (ARP, 14, 24), (RARP, 14, 24)],
            (IpAddr::V4(_), Some("ip")) => &[(IPV4, 12, 16)],
            (IpAddr::V4(_), Some("arp")) => &[(ARP, 14, 24)],
            (IpAddr::V4(_), Some("rarp")) => &[(RARP, 14, 24)],
            (IpAddr::V6(_), None | Some("ip6")) => &[(IPV6, 8, 24)],
            (_, Some(other)) => {
                return Err(FilterError(format!("'{other}' does not go with the address {}", net.address)));
            }
        };
        let layer = |&(kind, source, destination): &(u32, u32, u32)| {
            all([self.ether_type(kind), ways(way, at(source), at(destination))])
        };
        Ok(any(layers.iter().map(layer)))
    }

    /// Ports of the first fragment. IPv6 without extension headers, as in libpcap.
    fn ports(&self, protocols: &[u32], way: Way, (low, high): (u16, u16)) -> Tree {
        let begin = self.payload();
        let within = |number: Number| {
            let check = |relation, value| Tree::Check(Check { number, mask: None, relation, value });
            match low == high {
                true => check(Relation::Equal, low.into()),
                false => all([
                    check(Relation::GreaterEqual, low.into()),
                    not(check(Relation::Greater, high.into())),
                ]),
            }
        };
        let behind = |at| within(Number::BehindIpv4 { header: begin, at, bytes: 2 });
        let fixed = |at| within(Number::At { at: begin + 40 + at, bytes: 2 });
        let ipv4 = all([
            self.ether_type(IPV4),
            any(protocols.iter().map(|protocol| is(begin + 9, 1, *protocol))),
            self.first_fragment(),
            ways(way, behind(0), behind(2)),
        ]);
        let ipv6 = all([
            self.ether_type(IPV6),
            any(protocols.iter().map(|protocol| is(begin + 6, 1, *protocol))),
            ways(way, fixed(0), fixed(2)),
        ]);
        any([ipv4, ipv6])
    }

    /// Of an IPv4 packet: what is behind its header is that of the transport.
    pub(super) fn first_fragment(&self) -> Tree {
        let number = Number::At { at: self.payload() + 6, bytes: 2 };
        not(Tree::Check(Check { number, mask: None, relation: Relation::Set, value: 0x1fff }))
    }

    /// From here on, everything is behind one more tag.
    fn vlan(&mut self) -> Result<Tree, FilterError> {
        self.step();
        let tagged = any(TAGS.map(|kind| self.ether_type(kind)));
        let id = self.peek_word().and_then(address::number);
        let id_at = self.payload();
        self.shift += 4;
        let Some(id) = id else { return Ok(tagged) };
        self.step();
        if id > 0xfff {
            return Err(FilterError(format!("vlan {id} must be from 0 to 4095")));
        }
        Ok(all([tagged, masked(id_at, 2, Some(0xfff), id)]))
    }

    fn length(&mut self, word: &str) -> Result<Tree, FilterError> {
        self.step();
        let text = self.word("a length")?;
        let length =
            address::number(&text).ok_or_else(|| FilterError(format!("length '{text}' is no number")))?;
        let check =
            |relation| Tree::Check(Check { number: Number::Length, mask: None, relation, value: length });
        Ok(if word == "less" { not(check(Relation::Greater)) } else { check(Relation::GreaterEqual) })
    }

    fn group(&self, protocol: &str, group: &str) -> Result<Tree, FilterError> {
        let begin = self.payload();
        match (protocol, group) {
            ("ether", group) => Ok(ether_group(group)),
            ("ip", "multicast") => {
                let number = Number::At { at: begin + 16, bytes: 1 };
                let relation = Relation::GreaterEqual;
                let multicast = Tree::Check(Check { number, mask: None, relation, value: 224 });
                Ok(all([self.ether_type(IPV4), multicast]))
            }
            ("ip6", "multicast") => Ok(all([self.ether_type(IPV6), is(begin + 24, 1, 0xff)])),
            (protocol, group) => Err(FilterError(format!("'{protocol} {group}' is not supported"))),
        }
    }
}

fn ether_group(group: &str) -> Tree {
    match group {
        "broadcast" => ether(0, [0xff; 6]),
        _ => {
            let number = Number::At { at: 0, bytes: 1 };
            Tree::Check(Check { number, mask: None, relation: Relation::Set, value: 1 })
        }
    }
}

/// The address at a place of the Ethernet header.
fn ether(at: u32, mac: [u8; 6]) -> Tree {
    let [a, b, c, d, e, f] = mac;
    all([is(at + 2, 4, u32::from_be_bytes([c, d, e, f])), is(at, 2, u32::from_be_bytes([0, 0, a, b]))])
}

fn ways(way: Way, source: Tree, destination: Tree) -> Tree {
    match way {
        Way::Source => source,
        Way::Destination => destination,
        Way::Either => any([source, destination]),
        Way::Both => all([source, destination]),
    }
}

/// The words at a place begin with these, of which so many bits count.
fn prefix(at: u32, words: &[u32], bits: u8) -> Tree {
    let mut left = u32::from(bits);
    let mut checks = Vec::new();
    for (number, word) in words.iter().enumerate() {
        let own = left.min(32);
        left -= own;
        let place = at + 4 * number as u32;
        match own {
            0 => {}
            32 => checks.push(is(place, 4, *word)),
            own => checks.push(masked(place, 4, Some(u32::MAX << (32 - own)), *word)),
        }
    }
    all(checks)
}
