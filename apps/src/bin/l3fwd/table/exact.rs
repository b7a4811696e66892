//! `--lookup em`: flows, found by all of their 5-tuple.

use std::collections::HashMap;

use pollux_lookup::ExactMatch;
use pollux_lookup::exact::{self, Key};

use super::Table;
use crate::assignment::Ports;
use crate::count::Reason;
use crate::packet::{V4, V6};
use crate::rule::{Family, Line, Rules};

/// A flow of IPv4: both addresses; ports and protocol.
type Key4 = [u64; 2];
/// A flow of IPv6: source; destination; ports and protocol.
type Key6 = [u64; 5];

/// Flows of both families.
#[derive(Debug)]
pub(crate) struct Flows {
    v4: ExactMatch<Key4>,
    v6: ExactMatch<Key6>,
}

const _: () = assert!(super::NO_ROUTE == exact::NO_VALUE, "what a table answers is what the loop knows");

/// Ports as they stand in a packet, and the protocol, as a number.
#[inline(always)]
fn rest(ports: [u8; 4], protocol: u8) -> u64 {
    u64::from(u32::from_be_bytes(ports)) << 8 | u64::from(protocol)
}

#[inline(always)]
fn key4(source: u32, destination: u32, rest: u64) -> Key4 {
    [u64::from(source) << 32 | u64::from(destination), rest]
}

#[inline(always)]
fn key6(source: u128, destination: u128, rest: u64) -> Key6 {
    let halves = |address: u128| [(address >> 64) as u64, address as u64];
    let ([a, b], [c, d]) = (halves(source), halves(destination));
    [a, b, c, d, rest]
}

/// `<destination> <source> <destination port> <source port> <protocol> <port>`
fn flow<A: Family, K>(
    line: &Line<'_>,
    ports: &Ports,
    key: impl Fn(A, A, u64) -> K,
) -> Result<(K, u32), String> {
    const SHAPE: &str = "R<destination> <source> <destination port> <source port> <protocol> <port>, such as";
    line.has_fields(6, &format!("{SHAPE} {}", A::FLOW))?;
    let (destination, source) = (line.address(0)?, line.address(1)?);
    let to = line.number(2, "destination port", u16::MAX)?;
    let from = line.number(3, "source port", u16::MAX)?;
    let protocol = line.number(4, "protocol", u8::MAX)?;
    let both = u32::from(from) << 16 | u32::from(to);
    Ok((key(source, destination, rest(both.to_be_bytes(), protocol)), line.port(5, ports)?))
}

fn build<A: Family, K: Key + Eq + std::hash::Hash>(
    rules: &Rules,
    ports: &Ports,
    key: impl Fn(A, A, u64) -> K,
) -> Result<ExactMatch<K>, String> {
    let mut table = ExactMatch::new(rules.lines().max(1)).map_err(|why| why.to_string())?;
    let mut seen = HashMap::new();
    rules.each(&['R'], |line| {
        let (key, place) = flow::<A, K>(line, ports, &key)?;
        line.is_first(&mut seen, key)?;
        table.insert(&key, place).map(drop).map_err(|why| why.to_string())
    })?;
    Ok(table)
}

impl Table for Flows {
    type Key4 = Key4;
    type Key6 = Key6;

    fn build(v4: &Rules, v6: &Rules, ports: &Ports) -> Result<Self, String> {
        Ok(Self { v4: build(v4, ports, key4)?, v6: build(v6, ports, key6)? })
    }

    /// UDP from and to port 9, discard. Source: DPDK `examples/l3fwd/l3fwd_em.c`, `ipv4_l3fwd_em_route_array`.
    fn default_rules(port: u16) -> Option<[String; 2]> {
        Some([
            format!("R198.18.{port}.0 198.18.{port}.1 9 9 17 {port}"),
            format!("R2001:200:0:{port:x}:: 2001:200:0:{port:x}::1 9 9 17 {port}"),
        ])
    }

    fn lens(&self) -> [usize; 2] {
        [self.v4.len(), self.v6.len()]
    }

    #[inline(always)]
    fn key4(packet: &V4<'_>) -> Key4 {
        let [source, destination] = [packet.header.src, packet.header.dst].map(u32::from_be_bytes);
        key4(source, destination, rest(packet.ports(), packet.header.protocol))
    }

    #[inline(always)]
    fn key6(packet: &V6<'_>) -> Result<Key6, Reason> {
        let [source, destination] = [packet.header.src, packet.header.dst].map(u128::from_be_bytes);
        let (protocol, ports) = packet.upper()?;
        Ok(key6(source, destination, rest(ports, protocol)))
    }

    #[inline(always)]
    fn find4(&self, keys: &[Key4], found: &mut [u32]) {
        self.v4.view().lookup_burst(keys, found);
    }

    #[inline(always)]
    fn find6(&self, keys: &[Key6], found: &mut [u32]) {
        self.v6.view().lookup_burst(keys, found);
    }
}
