//! Where the card is plugged in, and where the lcores are.

use crate::card::Card;
use crate::finding::{Check, Findings, Mend};
use crate::machine::Machine;

use super::{list, processors};

/// Lcores on the card's node.
static LCORES: Check = Check {
    id: "numa.lcores",
    title: "lcores on the card's NUMA node",
    why: "An lcore of another node reads each completion and packet over the link between the sockets.",
    source: "DPDK doc/guides/nics/mlx5.rst; Linux Documentation/ABI/stable/sysfs-devices-node (distance)",
};

pub(super) static ALL: &[&Check] = &[&LCORES];

/// The card's node, if it is known.
pub(super) fn check(machine: &Machine, card: &Card, out: &mut Findings) -> Option<u16> {
    let nodes = machine.topology.nodes();
    let node = card.node(&machine.root);
    if nodes.len() < 2 {
        out.ok(&LCORES, "The machine has one NUMA node.");
        return node;
    }
    let Some(node) = node else {
        out.unknown(&LCORES, "The machine has several NUMA nodes and does not tell the card's.");
        return None;
    };
    let Some(local) = nodes.iter().find(|local| local.id.0 == node) else {
        out.unknown(&LCORES, format!("The card is on node {node}, which is not online."));
        return None;
    };
    let Some(lcores) = &machine.lcores else {
        let cpus = if local.cpus.is_empty() { "no processors".into() } else { processors(&local.cpus) };
        out.ok(&LCORES, format!("The card is on node {node}, which has {cpus}."));
        return Some(node);
    };
    let far: Vec<u16> = lcores.iter().copied().filter(|cpu| !local.cpus.contains(cpu)).collect();
    if far.is_empty() {
        out.ok(&LCORES, format!("The card and all lcores are on node {node}."));
        return Some(node);
    }
    let distance = far.first().and_then(|cpu| {
        let other = machine.topology.socket_of(*cpu)?;
        let text = machine.root.text(&format!("sys/devices/system/node/node{other}/distance")).ok()?;
        // A number for each node that is online, in their order.
        let place = nodes.iter().position(|local| local.id.0 == node)?;
        text.split_whitespace().nth(place)?.parse::<u32>().ok()
    });
    let distance =
        distance.map_or_else(String::new, |distance| format!(" (distance {distance}, 10 is local)"));
    let what = format!("The card is on node {node}; lcores on another one: {}{distance}.", list(&far));
    let mend = if local.cpus.is_empty() {
        Mend::action("Its node has no processors: use the nearest one, which `numactl --hardware` shows.")
    } else {
        Mend::action(format!("Take lcores out of {}: `-l {}`.", list(&local.cpus), list(&local.cpus)))
    };
    out.advice(&LCORES, what, mend);
    Some(node)
}
