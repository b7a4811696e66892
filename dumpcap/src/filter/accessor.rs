//! Bytes of a header compared with a number: `tcp[tcpflags] & (tcp-syn|tcp-fin) != 0`, `ip[8] < 5`, `len >= 1000`.

use super::FilterError;
use super::address;
use super::cursor::Cursor;
use super::primitive::{ARP, IPV4, IPV6, RARP, ip_protocol};
use super::token::Token;
use super::tree::{Check, Number, Relation, Tree, all, is, not};

/// Names of places and of values. Source: pcap-filter(7).
const NAMES: [(&str, u32); 24] = [
    ("tcpflags", 13),
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-routersolicit", 133),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
];

fn value(text: &str) -> Result<u32, FilterError> {
    let named = || NAMES.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    address::number(text)
        .or_else(named)
        .ok_or_else(|| FilterError(format!("'{text}' is not a number or the name of one")))
}

impl Cursor {
    /// The bytes of a protocol's header that come next, or without a protocol the length; and what they are compared with.
    pub(super) fn accessor(&mut self, protocol: Option<&str>) -> Result<Tree, FilterError> {
        let (guards, number) = match (protocol, self.step()) {
            (Some(protocol), Some(Token::Index(index))) => self.bytes(protocol, &index)?,
            _ => (Vec::new(), Number::Length),
        };
        let mask = if self.take("&") { Some(self.alternatives()?) } else { None };
        let signs = ["=", "!=", "<=", ">=", "<", ">"];
        let Some(sign) = signs.into_iter().find(|sign| self.take(sign)) else {
            return Err(self.unexpected("'=', '!=', '<', '<=', '>' or '>='"));
        };
        let value = self.alternatives()?;
        let check = |relation| Tree::Check(Check { number, mask, relation, value });
        let check = match sign {
            "=" => check(Relation::Equal),
            "!=" => not(check(Relation::Equal)),
            "<" => not(check(Relation::GreaterEqual)),
            "<=" => not(check(Relation::Greater)),
            ">" => check(Relation::Greater),
            _ => check(Relation::GreaterEqual),
        };
        Ok(all(guards.into_iter().chain([check])))
    }

    /// A number, or several in parentheses with `|` between them.
    fn alternatives(&mut self) -> Result<u32, FilterError> {
        let group = self.take("(");
        let mut number = value(&self.word("a number")?)?;
        while group && self.take("|") {
            number |= value(&self.word("a number")?)?;
        }
        if group && !self.take(")") {
            return Err(self.unexpected("')'"));
        }
        Ok(number)
    }

    /// `at`, or `at:bytes`, in the header of a protocol; and what makes it one of that protocol.
    fn bytes(&self, protocol: &str, index: &str) -> Result<(Vec<Tree>, Number), FilterError> {
        let (at, bytes) = index.split_once(':').unwrap_or((index, "1"));
        let at = value(at.trim())?;
        let bytes = match bytes.trim() {
            "1" => 1,
            "2" => 2,
            "4" => 4,
            other => return Err(FilterError(format!("'[{index}]' has {other} bytes; it must be 1, 2 or 4"))),
        };
        if at > 0xffff {
            return Err(FilterError(format!("'[{index}]' must begin below 65536")));
        }
        let begin = self.payload();
        let behind = |begin: u32| Number::At { at: begin + at, bytes };
        Ok(match protocol {
            "ether" => (Vec::new(), behind(0)),
            "ip" => (vec![self.ether_type(IPV4)], behind(begin)),
            "ip6" => (vec![self.ether_type(IPV6)], behind(begin)),
            "arp" => (vec![self.ether_type(ARP)], behind(begin)),
            "rarp" => (vec![self.ether_type(RARP)], behind(begin)),
            "icmp6" => (vec![self.ether_type(IPV6), is(begin + 6, 1, 58)], behind(begin + 40)),
            other => match ip_protocol(other) {
                Some(number) => {
                    let guards = vec![self.ipv4(number), self.first_fragment()];
                    (guards, Number::BehindIpv4 { header: begin, at, bytes })
                }
                None => return Err(FilterError(format!("'{other}[{index}]' is not supported"))),
            },
        })
    }
}
