//! Rule files: lines that begin with `R` (a route) or `@` (an ACL rule that forbids), comments with `#`, and their fields.
//!
//! The formats are those of DPDK's l3fwd, of which each kind of look-up has its own (`table/*.rs`). Source: DPDK
//! `examples/l3fwd/lpm_route_parse.c`, `em_route_parse.c`, `l3fwd_acl.c`.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use pollux_lookup::lpm::Address;

use crate::assignment::Ports;

/// The rules of one family of addresses.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The file that they are of; none: those by default.
    name: Option<String>,
    text: String,
}

impl Rules {
    /// What a file has.
    pub(crate) fn of_file(name: String, text: String) -> Self {
        Self { name: Some(name), text }
    }

    /// Lines that stand where there is no file.
    pub(crate) fn by_default(lines: impl Iterator<Item = String>) -> Self {
        Self { name: None, text: lines.collect::<Vec<_>>().join("\n") }
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().map(str::trim).enumerate();
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(at, line)| (at + 1, line))
    }

    /// How many there are, as far as they are right.
    pub(crate) fn lines(&self) -> usize {
        self.numbered().count()
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("default rules")
    }

    /// An error of them all.
    pub(crate) fn fault(&self, problem: &str) -> String {
        format!("{}: {problem}", self.name())
    }

    /// Gives each rule to `one`, in order; it begins with one of `leads`.
    ///
    /// # Errors
    /// Of the first line that is wrong: file, line, what is wrong and what is allowed.
    pub(crate) fn each(
        &self,
        leads: &[char],
        mut one: impl FnMut(&Line<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut routes = 0;
        for (number, text) in self.numbered() {
            let lead = text.chars().next().unwrap_or_default();
            let right = if leads.contains(&lead) {
                one(&Line::new(number, lead, &text[lead.len_utf8()..]))
            } else {
                Err(misled(lead, leads))
            };
            right.map_err(|problem| format!("{}:{number}: {problem}", self.name()))?;
            routes += usize::from(lead == 'R');
        }
        if routes == 0 && self.name.is_some() {
            return Err(self.fault("has no route: a line that begins with R is one"));
        }
        Ok(())
    }
}

/// A line that begins with something else.
fn misled(lead: char, leads: &[char]) -> String {
    let told = |lead: &char| if *lead == '@' { "@ (what is forbidden)" } else { "R (a route)" };
    let allowed = leads.iter().map(told).collect::<Vec<_>>().join(", ");
    let acl = if lead == '@' { "; @ is for --lookup acl" } else { "" };
    format!("begins with '{}': a line begins with {allowed} or # (a comment){acl}", lead.escape_debug())
}

/// A rule's line.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// What it begins with.
    pub(crate) lead: char,
    number: usize,
    fields: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn new(number: usize, lead: char, text: &'a str) -> Self {
        let fields = text.split_whitespace().take_while(|field| !field.starts_with('#')).collect();
        Self { lead, number, fields }
    }

    /// Whether there are so many fields.
    pub(crate) fn has_fields(&self, count: usize, shape: &str) -> Result<(), String> {
        match self.fields.len() {
            given if given == count => Ok(()),
            given => Err(format!("has {given} fields, not {count}: {shape}")),
        }
    }

    /// A field that `has_fields` has found.
    pub(crate) fn field(&self, at: usize) -> &'a str {
        self.fields.get(at).copied().unwrap_or_default()
    }

    /// Whether no line before matches the same.
    pub(crate) fn is_first<K: Hash + Eq>(&self, seen: &mut HashMap<K, usize>, key: K) -> Result<(), String> {
        match seen.insert(key, self.number) {
            None => Ok(()),
            Some(before) => Err(format!("matches what line {before} matches: remove one of them")),
        }
    }

    /// An address.
    pub(crate) fn address<A: Family>(&self, at: usize) -> Result<A, String> {
        let text = self.field(at);
        A::parse(text).ok_or_else(|| format!("'{text}' is not an {} address", A::NAME))
    }

    /// An address and the number of bits that count. The others are left out, as in DPDK.
    pub(crate) fn prefix<A: Family>(&self, at: usize) -> Result<(A, u8), String> {
        let text = self.field(at);
        let wrong = || format!("'{text}' is not an {} address, /, and 0 to {} bits", A::NAME, A::BITS);
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let bits = whole(bits).filter(|bits| *bits <= A::BITS.into()).ok_or_else(wrong)? as u8;
        Ok((A::parse(address).ok_or_else(wrong)?.network(bits), bits))
    }

    /// A number up to `most`, decimal or hexadecimal.
    pub(crate) fn number<N: TryFrom<u64> + Into<u64>>(
        &self,
        at: usize,
        what: &str,
        most: N,
    ) -> Result<N, String> {
        let (text, most) = (self.field(at), most.into());
        let number = whole(text).filter(|number| *number <= most);
        let number = number.and_then(|number| N::try_from(number).ok());
        number.ok_or_else(|| format!("{what} '{text}' is not a whole number from 0 to {most}"))
    }

    /// A byte, and the bits of it that count: `6/0xff`.
    pub(crate) fn masked(&self, at: usize, what: &str) -> Result<(u8, u8), String> {
        let text = self.field(at);
        let byte = |text| whole(text).and_then(|number| u8::try_from(number).ok());
        let both = text.split_once('/').and_then(|(value, mask)| Some((byte(value)?, byte(mask)?)));
        both.ok_or_else(|| format!("{what} '{text}' is not a value and a mask from 0 to 255, such as 6/0xff"))
    }

    /// The place of a port.
    pub(crate) fn port(&self, at: usize, ports: &Ports) -> Result<u32, String> {
        let port = self.number(at, "port", u16::MAX)?;
        ports.place(port).map(|place| place as u32).map_err(|why| format!("names {why}"))
    }
}

/// Decimal, or hexadecimal behind `0x`. Not octal, which a zero in front means to DPDK and hardly to anybody else.
fn whole(text: &str) -> Option<u64> {
    let (digits, base) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let octal = base == 10 && digits.len() > 1 && digits.starts_with('0');
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, base).ok().filter(|_| plain && !octal)
}

/// A family of addresses, which are numbers.
pub(crate) trait Family: Address + Hash {
    /// Its name.
    const NAME: &'static str;
    /// A route of it.
    const ROUTE: &'static str;
    /// A flow of it.
    const FLOW: &'static str;
    /// Two prefixes of it.
    const PREFIXES: &'static str;

    fn parse(text: &str) -> Option<Self>;

    /// Its first bits alone.
    fn network(self, bits: u8) -> Self;
}

impl Family for u32 {
    const NAME: &'static str = "IPv4";
    const ROUTE: &'static str = "R198.18.0.0/24 0";
    const FLOW: &'static str = "R198.18.0.0 198.18.0.1 9 9 0x11 0";
    const PREFIXES: &'static str = "0.0.0.0/0 198.18.0.0/24";

    fn parse(text: &str) -> Option<Self> {
        text.parse::<Ipv4Addr>().ok().map(Self::from)
    }

    fn network(self, bits: u8) -> Self {
        self & !Self::MAX.unbounded_shr(bits.into())
    }
}

impl Family for u128 {
    const NAME: &'static str = "IPv6";
    const ROUTE: &'static str = "R2001:200::/64 0";
    const FLOW: &'static str = "R2001:200:: 2001:200::1 9 9 0x11 0";
    const PREFIXES: &'static str = "::/0 2001:200::/64";

    fn parse(text: &str) -> Option<Self> {
        text.parse::<Ipv6Addr>().ok().map(Self::from)
    }

    fn network(self, bits: u8) -> Self {
        self & !Self::MAX.unbounded_shr(bits.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        for (text, number) in [("0", 0), ("65535", 65_535), ("0x11", 17), ("0XfF", 255)] {
            assert_eq!(whole(text), Some(number), "{text}");
        }
        for wrong in ["", "-1", "+1", "0x", "0x+1", "1x", "010", "1.5", "99999999999999999999", " 1"] {
            assert_eq!(whole(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn prefixes_have_their_bits_alone() {
        let line = Line::new(1, 'R', "10.1.2.3/8 2001:db8::1/32 10.0.0.1/32 1.2.3.4/0 ::1/128");
        assert_eq!(line.prefix::<u32>(0), Ok((0x0a00_0000, 8)));
        assert_eq!(line.prefix::<u128>(1), Ok((0x2001_0db8 << 96, 32)));
        assert_eq!((line.prefix::<u32>(2), line.prefix::<u32>(3)), (Ok((0x0a00_0001, 32)), Ok((0, 0))));
        assert_eq!(line.prefix::<u128>(4), Ok((1, 128)));
        for wrong in
            ["10.0.0.0", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "/8", "::/0", "10.0.0.0/8/8", "256.0.0.0/8"]
        {
            assert!(Line::new(1, 'R', wrong).prefix::<u32>(0).is_err(), "{wrong}");
        }
        assert!(
            Line::new(1, 'R', "::/129").prefix::<u128>(0).is_err_and(|why| why.contains("0 to 128 bits"))
        );
    }

    #[test]
    fn comments_and_empty_lines_count_as_lines_only() {
        let text = "# routes\r\n\r\n  R 1 2 # the first\n\t\nR3 4\n";
        let rules = Rules::of_file("file".into(), text.into());
        let mut seen = Vec::new();
        let all = rules.each(&['R'], |line| {
            seen.push((line.number, line.fields.join("+")));
            Ok(())
        });
        assert_eq!((all, rules.lines()), (Ok(()), 2));
        assert_eq!(seen, [(3, "1+2".to_owned()), (5, "3+4".to_owned())]);
    }

    #[test]
    fn a_wrong_line_is_named_with_its_file() {
        let read = |text: &str| {
            let rules = Rules::of_file("some: file".into(), text.into());
            rules.each(&['R'], |_| Err("is wrong".into()))
        };
        assert_eq!(read("#\nR1"), Err("some: file:2: is wrong".to_owned()));
        for empty in ["", "# nothing\n\n", "\n\n\n"] {
            assert!(read(empty).is_err_and(|why| why.starts_with("some: file: has no route")), "{empty:?}");
        }
    }
}
