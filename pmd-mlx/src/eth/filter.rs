//! Default rules: which packets come to this port without anybody asking for them by rule.

use std::collections::{HashMap, HashSet};

use pollux_port::MacAddress;
use pollux_uverbs::abi::flow::{EthFilter, Ipv6Filter};
use pollux_uverbs::flow::FlowSpec;

use super::port::spread::{LEVELS, Spread};
use crate::devargs::Arguments;
use crate::eth::backend::{Backend, FlowAction, FlowRule};
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::object::Object;

/// What the port wants to receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its own address.
    pub mac: MacAddress,
    /// Further addresses.
    pub further: Vec<MacAddress>,
    /// Groups.
    pub groups: Vec<MacAddress>,
    /// Everything.
    pub promiscuous: bool,
    /// Every group.
    pub all_multicast: bool,
    /// The VLANs that may come in; `None`: all, and packets without a tag.
    pub vlans: Option<Vec<u16>>,
    /// Nothing but what rules lead here.
    pub isolated: bool,
    /// Packets that find the addresses of neighbours go to the kernel instead.
    pub neighbours_by_kernel: bool,
}

/// Destination, which bits of it count, and the VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pattern {
    destination: [u8; 6],
    mask: [u8; 6],
    vlan: Option<u16>,
}

const BROADCAST: [u8; 6] = [0xff; 6];
const GROUP: [u8; 6] = [1, 0, 0, 0, 0, 0];

impl Wanted {
    /// Its own address and broadcasts, and what the port's arguments say.
    pub fn new(mac: MacAddress, arguments: &Arguments) -> Self {
        Self { mac, neighbours_by_kernel: arguments.neighbours_by_kernel, ..Self::default() }
    }

    fn patterns(&self) -> HashSet<Pattern> {
        if self.isolated {
            return HashSet::new();
        }
        let exact = |destination: [u8; 6]| (destination, BROADCAST);
        let mut destinations: HashSet<([u8; 6], [u8; 6])> = HashSet::new();
        if self.promiscuous {
            destinations.insert(([0; 6], [0; 6]));
        } else {
            destinations.insert(exact(self.mac.0));
            destinations.extend(self.further.iter().map(|mac| exact(mac.0)));
            if self.all_multicast {
                destinations.insert((GROUP, GROUP));
            } else {
                destinations.insert(exact(BROADCAST));
                destinations.extend(self.groups.iter().map(|mac| exact(mac.0)));
            }
        }
        // A rule that asks for no VLAN takes packets with and without a tag.
        let vlans = match &self.vlans {
            // The promiscuous port looks at no tag either, as in DPDK.
            Some(vlans) if !self.promiscuous => vlans.iter().map(|vlan| Some(*vlan)).collect(),
            _ => vec![None],
        };
        let each = destinations.iter().flat_map(|(destination, mask)| {
            vlans.iter().map(|vlan| Pattern { destination: *destination, mask: *mask, vlan: *vlan })
        });
        each.collect()
    }
}

impl Pattern {
    fn ether(&self) -> (EthFilter, EthFilter) {
        let mut value = EthFilter { dst_mac: self.destination, ..EthFilter::default() };
        let mut mask = EthFilter { dst_mac: self.mask, ..EthFilter::default() };
        if let Some(vlan) = self.vlan {
            value.vlan_tag = vlan.into();
            mask.vlan_tag = 0x0fff.into();
        }
        (value, mask)
    }
}

/// ARP, and what ICMPv6 sends to others on the link alone: neighbour discovery has to come with this hop limit (RFC 4861, section
/// 7.1), which no router leaves. By the Ethernet type and without a destination, for the kernel looks last at rules that only
/// multicasts can match (DPDK has the same reason in `drivers/net/mlx5/mlx5_flow.c`, `mlx5_flow_lacp_miss`).
fn neighbours() -> [Vec<FlowSpec>; 2] {
    let eth = |kind: u16| FlowSpec::Eth {
        value: EthFilter { ether_type: kind.into(), ..EthFilter::default() },
        mask: EthFilter { ether_type: 0xffff.into(), ..EthFilter::default() },
        inner: false,
    };
    let icmp = FlowSpec::Ipv6 {
        value: Ipv6Filter { next_hdr: 58, hop_limit: 255, ..Ipv6Filter::default() },
        mask: Ipv6Filter { next_hdr: 0xff, hop_limit: 0xff, ..Ipv6Filter::default() },
        inner: false,
    };
    [vec![eth(0x0806)], vec![eth(0x86dd), icmp]]
}

/// The rules that are in place.
#[derive(Debug, Default)]
pub struct Filter {
    rules: HashMap<Pattern, Vec<Object>>,
    /// Of packets that go to the kernel.
    past: Vec<Object>,
}

impl Filter {
    /// Makes the rules in place those that are wanted: what stays is not touched, what is new comes before what goes, so
    /// that no packet that is wanted before and after is missed. `priority` is the first of the [`LEVELS`] that default
    /// rules have.
    ///
    /// # Errors
    /// What the device says; the rules in place are then those from before and some of the new ones.
    pub fn apply(
        &mut self,
        backend: &dyn Backend,
        spread: &Spread,
        priority: u16,
        wanted: &Wanted,
    ) -> Result<(), MlxError> {
        let patterns = wanted.patterns();
        let past = wanted.neighbours_by_kernel && !patterns.is_empty();
        if past && self.past.is_empty() {
            self.past = neighbours()
                .iter()
                .map(|items| {
                    let action = FlowAction::Kernel;
                    backend.create_flow(&FlowRule { items, priority, action, tag: None, counter: None })
                })
                .collect::<Result<_, _>>()?;
        }
        for pattern in &patterns {
            if self.rules.contains_key(pattern) {
                continue;
            }
            let mut rules = Vec::new();
            for (kind, queue) in spread.kinds() {
                debug_assert!(kind.level() < LEVELS);
                rules.push(backend.create_flow(&FlowRule {
                    items: &kind.items(pattern.ether()),
                    priority: priority + kind.level(),
                    action: FlowAction::Queue(queue.clone()),
                    tag: None,
                    counter: None,
                })?);
            }
            self.rules.insert(*pattern, rules);
        }
        self.rules.retain(|pattern, _| patterns.contains(pattern));
        if !past {
            self.past.clear();
        }
        Ok(())
    }

    /// Takes all rules away.
    pub fn clear(&mut self) {
        self.rules.clear();
        self.past.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            further: vec![MacAddress([2, 0, 0, 0, 0, 2])],
            groups: vec![MacAddress([1, 0, 0x5e, 0, 0, 1])],
            ..Wanted::default()
        }
    }

    fn takes(wanted: &Wanted, destination: [u8; 6], vlan: Option<u16>) -> bool {
        wanted.patterns().iter().any(|pattern| {
            let same = |at: usize| (destination[at] ^ pattern.destination[at]) & pattern.mask[at] == 0;
            (0..6).all(same) && (pattern.vlan.is_none() || pattern.vlan == vlan)
        })
    }

    #[test]
    fn a_port_takes_what_it_should() {
        let (own, further, group, other, other_group) = (
            [2, 0, 0, 0, 0, 1],
            [2, 0, 0, 0, 0, 2],
            [1, 0, 0x5e, 0, 0, 1],
            [2, 0, 0, 0, 0, 3],
            [0x33, 0x33, 0, 0, 0, 1],
        );
        let usual = wanted();
        let all = Wanted { promiscuous: true, ..wanted() };
        let multicast = Wanted { all_multicast: true, ..wanted() };
        let isolated = Wanted { isolated: true, promiscuous: true, ..wanted() };
        for (destination, expected) in [
            (own, [true, true, true, false]),
            (further, [true, true, true, false]),
            (group, [true, true, true, false]),
            (BROADCAST, [true, true, true, false]),
            (other, [false, true, false, false]),
            (other_group, [false, true, true, false]),
        ] {
            let seen = [&usual, &all, &multicast, &isolated].map(|port| takes(port, destination, None));
            assert_eq!(seen, expected, "{destination:x?}");
            let tagged = [&usual, &all, &multicast, &isolated].map(|port| takes(port, destination, Some(7)));
            assert_eq!(tagged, expected, "{destination:x?} tagged");
        }
        let vlans = Wanted { vlans: Some(vec![7, 9]), ..wanted() };
        let seen = [Some(7), Some(9), Some(8), None].map(|vlan| takes(&vlans, own, vlan));
        assert_eq!(seen, [true, true, false, false]);
    }
}
