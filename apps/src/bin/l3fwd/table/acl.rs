//! `--lookup acl`: rules over the 5-tuple, of which the first that fits counts; it forbids a packet or names its port.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use pollux_lookup::acl::{self, Classifier, FiveTuple, Rule};

use super::{DENIED, Table};
use crate::assignment::Ports;
use crate::count::Reason;
use crate::packet::{V4, V6};
use crate::rule::{Family, Line, Rules};

/// Rules of both families.
#[derive(Debug)]
pub(crate) struct Classes {
    v4: Classifier<u32>,
    v6: Classifier<u128>,
}

const _: () = assert!(super::NO_ROUTE == acl::NO_RULE, "what a table answers is what the loop knows");

/// What a packet is found by.
#[inline(always)]
fn key<A>(source: A, destination: A, ports: [u8; 4], protocol: u8) -> FiveTuple<A> {
    let [a, b, c, d] = ports;
    let (source_port, destination_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    FiveTuple { source, destination, source_port, destination_port, protocol }
}

/// What a rule matches: two rules of the same match the same packets.
type Match<A> = ((A, u8), (A, u8), RangeInclusive<u16>, RangeInclusive<u16>, (u8, u8));

/// `<source>/<bits> <destination>/<bits> <low> : <high> <low> : <high> <protocol>/<mask>`, and a port behind `R`.
fn rule<A: Family>(line: &Line<'_>, ports: &Ports) -> Result<(Match<A>, u32), String> {
    const SHAPE: &str =
        "<source>/<bits> <destination>/<bits> <low> : <high> <low> : <high> <protocol>/<mask>";
    const EXAMPLE: &str = "0 : 65535 0 : 1023 6/0xff";
    let (lead, prefixes) = (line.lead, A::PREFIXES);
    match lead {
        'R' => line.has_fields(10, &format!("R{SHAPE} <port>, such as R{prefixes} {EXAMPLE} 0"))?,
        _ => line.has_fields(9, &format!("{lead}{SHAPE}, such as {lead}{prefixes} {EXAMPLE}"))?,
    }
    let source = line.prefix(0)?;
    let destination = line.prefix(1)?;
    let from = range(line, 2, "source ports")?;
    let to = range(line, 5, "destination ports")?;
    let protocol = line.masked(8, "protocol")?;
    let value = if line.lead == 'R' { line.port(9, ports)? } else { DENIED };
    // Bits that the mask leaves out do not count.
    Ok(((source, destination, from, to, (protocol.0 & protocol.1, protocol.1)), value))
}

/// `<low> : <high>`, three fields.
fn range(line: &Line<'_>, at: usize, what: &str) -> Result<RangeInclusive<u16>, String> {
    let (low, high) = (line.number(at, what, u16::MAX)?, line.number(at + 2, what, u16::MAX)?);
    match line.field(at + 1) {
        ":" if low <= high => Ok(low..=high),
        ":" => Err(format!("{what} '{low} : {high}': the first must not be above the last")),
        other => Err(format!("'{other}' between {what} must be ':', with spaces around it")),
    }
}

fn build<A: Family>(rules: &Rules, ports: &Ports) -> Result<Classifier<A>, String> {
    let mut all = Vec::new();
    let mut seen = HashMap::new();
    rules.each(&['R', '@'], |line| {
        let (matched, value) = rule::<A>(line, ports)?;
        line.is_first(&mut seen, matched.clone())?;
        if all.len() == acl::RULES_MAX {
            return Err(format!("more than {} rules, for which there is no room", acl::RULES_MAX));
        }
        let (source, destination, from, to, protocol) = matched;
        // Of rules that fit, the first of the file counts: all have one priority.
        let rule = Rule::new(0, value)
            .source(source.0, source.1)
            .destination(destination.0, destination.1)
            .source_ports(from)
            .destination_ports(to)
            .protocol_masked(protocol.0, protocol.1);
        all.push(rule);
        Ok(())
    })?;
    Classifier::new(&all).map_err(|why| rules.fault(&why.to_string()))
}

impl Table for Classes {
    type Key4 = FiveTuple<u32>;
    type Key6 = FiveTuple<u128>;

    fn build(v4: &Rules, v6: &Rules, ports: &Ports) -> Result<Self, String> {
        Ok(Self { v4: build(v4, ports)?, v6: build(v6, ports)? })
    }

    /// As in DPDK there are none.
    fn default_rules(_: u16) -> Option<[String; 2]> {
        None
    }

    fn lens(&self) -> [usize; 2] {
        [self.v4.len(), self.v6.len()]
    }

    #[inline(always)]
    fn key4(packet: &V4<'_>) -> FiveTuple<u32> {
        let [source, destination] = [packet.header.src, packet.header.dst].map(u32::from_be_bytes);
        key(source, destination, packet.ports(), packet.header.protocol)
    }

    #[inline(always)]
    fn key6(packet: &V6<'_>) -> Result<FiveTuple<u128>, Reason> {
        let [source, destination] = [packet.header.src, packet.header.dst].map(u128::from_be_bytes);
        let (protocol, ports) = packet.upper()?;
        Ok(key(source, destination, ports, protocol))
    }

    #[inline(always)]
    fn find4(&self, keys: &[FiveTuple<u32>], found: &mut [u32]) {
        self.v4.classify_burst(keys, found);
    }

    #[inline(always)]
    fn find6(&self, keys: &[FiveTuple<u128>], found: &mut [u32]) {
        self.v6.classify_burst(keys, found);
    }
}
