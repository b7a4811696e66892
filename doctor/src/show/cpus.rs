//! Cores of each socket, and the processors of each core.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use pollux_eal::topology::Topology;

use crate::root::{Gap, Root};

const FILES: &str = "sys/devices/system/cpu";

/// Source: Linux `Documentation/admin-guide/cputopology.rst`.
pub(super) fn text(root: &Root) -> Result<String, Gap> {
    let topology = Topology::read(root.path());
    let online = root.cpus(&format!("{FILES}/online"))?;
    // By core and socket.
    let mut places: BTreeMap<(u32, u32), Vec<u16>> = BTreeMap::new();
    for cpu in online {
        let number = |name: &str| root.number::<u32>(&format!("{FILES}/cpu{cpu}/topology/{name}"));
        // A kernel that tells no place has one socket, of cores with a processor each.
        let place = (number("core_id").unwrap_or(cpu.into()), number("physical_package_id").unwrap_or(0));
        places.entry(place).or_default().push(cpu);
    }
    let cores: BTreeSet<u32> = places.keys().map(|(core, _)| *core).collect();
    let sockets: BTreeSet<u32> = places.keys().map(|(_, socket)| *socket).collect();
    let title = format!("Core and Socket Information (as reported by '/{FILES}')");
    let line = "=".repeat(title.len());
    let nodes: Vec<String> = topology.nodes().iter().map(|node| node.id.to_string()).collect();
    let mut out = format!("{line}\n{title}\n{line}\n\n");
    let _ = writeln!(
        out,
        "cores =  {}\nsockets =  {}\nnuma =  [{}]\n",
        list(&cores),
        list(&sockets),
        nodes.join(", ")
    );
    let cell = |place| places.get(&place).map_or_else(String::new, list);
    let widest = places.values().map(|cpus| list(cpus).len()).max().unwrap_or(0).max(10) + 1;
    let first = cores.iter().map(|core| format!("Core {core}").len()).max().unwrap_or(0) + 1;
    let mut row = |head: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:<widest$}")).collect();
        let _ = writeln!(out, "{}", format!("{head:<first$}{cells}").trim_end());
    };
    row("", sockets.iter().map(|socket| format!("Socket {socket}")).collect());
    row("", sockets.iter().map(|socket| "-".repeat(format!("Socket {socket}").len())).collect());
    for core in &cores {
        row(&format!("Core {core}"), sockets.iter().map(|socket| cell((*core, *socket))).collect());
    }
    for node in topology.nodes() {
        let _ = writeln!(out, "\nNUMA node {}: {}", node.id, list(&node.cpus));
    }
    Ok(out)
}

fn list<'a, T: ToString + 'a>(numbers: impl IntoIterator<Item = &'a T>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(ToString::to_string).collect();
    format!("[{}]", numbers.join(", "))
}
