//! `--lookup lpm` and `fib`: routes, of which the longest prefix counts.
//!
//! DPDK has two libraries for that, `rte_lpm` and `rte_fib`; here one table is both (`lookup::lpm`).

use std::collections::HashMap;
use std::fmt::Debug;

use pollux_lookup::lpm::{self, Lpm};
use pollux_lookup::{LookupError, Lpm4, Lpm6};

use super::Table;
use crate::assignment::Ports;
use crate::count::Reason;
use crate::packet::{V4, V6};
use crate::rule::{Family, Line, Rules};

/// Groups that a table may have (`lookup::lpm::Lpm::new`).
const GROUPS_MAX: usize = 1 << 22;

/// Routes of both families.
#[derive(Debug)]
pub(crate) struct Routes {
    v4: Lpm4,
    v6: Lpm6,
}

const _: () = assert!(super::NO_ROUTE == lpm::NO_ROUTE, "what a table answers is what the loop knows");

/// `<address>/<bits> <port>`
fn route<A: Family>(line: &Line<'_>, ports: &Ports) -> Result<((A, u8), u32), String> {
    line.has_fields(2, &format!("R<address>/<bits> <port>, such as {}", A::ROUTE))?;
    Ok((line.prefix(0)?, line.port(1, ports)?))
}

fn build<A: Family + Debug>(rules: &Rules, ports: &Ports) -> Result<Lpm<A>, String> {
    // What a prefix takes at most behind the first 24 bits.
    let groups = rules.lines() * (A::BITS as usize - 24) / 8;
    let mut table = Lpm::new(groups.clamp(1, GROUPS_MAX)).map_err(|why| why.to_string())?;
    let mut seen = HashMap::new();
    rules.each(&['R'], |line| {
        let ((prefix, bits), place) = route::<A>(line, ports)?;
        line.is_first(&mut seen, (prefix, bits))?;
        table.add(prefix, bits, place).map(drop).map_err(|why| match why {
            LookupError::Full { used, .. } => format!(
                "no room for this route: those of more than 24 bits take {used} groups of 256 entries already, of {GROUPS_MAX} at most"
            ),
            other => other.to_string(),
        })
    })?;
    Ok(table)
}

impl Table for Routes {
    type Key4 = u32;
    type Key6 = u128;

    fn build(v4: &Rules, v6: &Rules, ports: &Ports) -> Result<Self, String> {
        Ok(Self { v4: build(v4, ports)?, v6: build(v6, ports)? })
    }

    /// The networks that RFC 5735 and RFC 5180 keep for measurements. Source: DPDK `examples/l3fwd/main.c`, `ipv4_l3fwd_route_array`.
    fn default_rules(port: u16) -> Option<[String; 2]> {
        Some([format!("R198.18.{port}.0/24 {port}"), format!("R2001:200:0:{port:x}::/64 {port}")])
    }

    fn lens(&self) -> [usize; 2] {
        [self.v4.len(), self.v6.len()]
    }

    #[inline(always)]
    fn key4(packet: &V4<'_>) -> u32 {
        u32::from_be_bytes(packet.header.dst)
    }

    #[inline(always)]
    fn key6(packet: &V6<'_>) -> Result<u128, Reason> {
        Ok(u128::from_be_bytes(packet.header.dst))
    }

    #[inline(always)]
    fn find4(&self, keys: &[u32], found: &mut [u32]) {
        self.v4.view().lookup_burst(keys, found);
    }

    #[inline(always)]
    fn find6(&self, keys: &[u128], found: &mut [u32]) {
        self.v6.view().lookup_burst(keys, found);
    }
}
