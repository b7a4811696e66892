//! Which NUMA nodes the machine has, and which processors belong to each.
//!
//! It reads one file, and two more for each node; what is wanted of single processors is read when asked for. (To ask the
//! file system about every processor that could be is what makes some programs slow to start.)
//!
//! Source: Linux `Documentation/ABI/stable/sysfs-devices-node`, `Documentation/admin-guide/cputopology.rst`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::sysfs;

/// A NUMA node, by the number Linux gives it (DPDK calls it a socket).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u16);

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: SocketId,
    /// Its processors that are online, ascending.
    pub cpus: Vec<u16>,
}

/// The nodes of a machine.
#[derive(Clone, Debug)]
pub struct Topology {
    root: PathBuf,
    nodes: Vec<Node>,
}

impl Topology {
    /// Reads it from the `sys` directory under `root`, which is `/` but for tests. Never fails: a kernel without NUMA, or a
    /// container without sysfs, is one node 0 with the processors that can be counted.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let directory = root.join("sys/devices/system/node");
        let list = |path: PathBuf| sysfs::read(&path).ok().and_then(|text| parse_list(&text));
        let mut nodes: Vec<Node> = list(directory.join("online"))
            .unwrap_or_default()
            .into_iter()
            .filter_map(|id| {
                let cpus = list(directory.join(format!("node{id}/cpulist")))?;
                Some(Node { id: SocketId(id), cpus })
            })
            .collect();
        if nodes.is_empty() {
            let cpus = list(root.join("sys/devices/system/cpu/online")).unwrap_or_else(|| {
                let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                (0..u16::try_from(count).unwrap_or(u16::MAX)).collect()
            });
            nodes.push(Node { id: SocketId(0), cpus });
        }
        Self { root: root.to_owned(), nodes }
    }

    /// The nodes, ascending; there is at least one.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of a processor; `None` if it is not online.
    #[must_use]
    pub fn socket_of(&self, cpu: u16) -> Option<SocketId> {
        self.nodes.iter().find(|node| node.cpus.binary_search(&cpu).is_ok()).map(|node| node.id)
    }

    /// Every processor that is online, ascending.
    #[must_use]
    pub fn cpus(&self) -> Vec<u16> {
        let mut cpus: Vec<u16> = self.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus
    }

    /// The processors that share a core with this one, itself among them; only itself where that is not known. Reads a
    /// file.
    #[must_use]
    pub fn siblings(&self, cpu: u16) -> Vec<u16> {
        let path = self.root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        sysfs::read(&path).ok().and_then(|text| parse_list(&text)).unwrap_or_else(|| vec![cpu])
    }

    /// The node numbers, as a person reads them: `node 0` or `nodes 0, 1`.
    #[must_use]
    pub fn describe(&self) -> String {
        let ids: Vec<String> = self.nodes.iter().map(|node| node.id.to_string()).collect();
        format!("node{} {}", if ids.len() == 1 { "" } else { "s" }, ids.join(", "))
    }
}

/// Reads Linux's list format: `0-3,8`, ascending, empty for none. `None` for anything else.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<u16>> {
    let mut numbers: Vec<u16> = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        // Ascending, so that no text makes more numbers than there are.
        if first > last || numbers.last().is_some_and(|before| *before >= first) {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    /// A tree of files, to stand for `/`.
    pub(crate) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory for a tree");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has a parent")).expect("directories");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn lists_read_as_linux_writes_them() {
        assert_eq!(parse_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_list("\n"), Some(vec![]));
        for bad in ["a", "1-", "-1", "1-2-3", "70000", "3-1", "1,1", "0-9,5"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn two_nodes_with_interleaved_processors() {
        let root = tree(&[
            ("sys/devices/system/node/online", "0-1\n"),
            ("sys/devices/system/node/node0/cpulist", "0,2\n"),
            ("sys/devices/system/node/node1/cpulist", "1,3\n"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
        ]);
        let topology = Topology::read(root.path());
        assert_eq!(topology.nodes().len(), 2);
        assert_eq!(topology.socket_of(2), Some(SocketId(0)));
        assert_eq!(topology.socket_of(3), Some(SocketId(1)));
        assert_eq!(topology.socket_of(4), None);
        assert_eq!(topology.cpus(), [0, 1, 2, 3]);
        assert_eq!(topology.siblings(2), [0, 2]);
        assert_eq!(topology.siblings(3), [3], "not told");
        assert_eq!(topology.describe(), "nodes 0, 1");
    }

    #[test]
    fn a_node_of_memory_only_has_no_processors() {
        let root = tree(&[
            ("sys/devices/system/node/online", "0,2\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1\n"),
            ("sys/devices/system/node/node2/cpulist", "\n"),
        ]);
        let topology = Topology::read(root.path());
        assert_eq!(topology.nodes()[1], Node { id: SocketId(2), cpus: vec![] });
    }

    #[test]
    fn without_numa_there_is_one_node() {
        let root = tree(&[("sys/devices/system/cpu/online", "0-2\n")]);
        assert_eq!(Topology::read(root.path()).nodes(), [Node { id: SocketId(0), cpus: vec![0, 1, 2] }]);
        let root = tree(&[]);
        assert_eq!(Topology::read(root.path()).nodes().len(), 1);
    }

    #[test]
    fn this_machine_has_the_processor_we_run_on() {
        let topology = Topology::read(Path::new("/"));
        let cpu = crate::region::current_cpu().expect("Linux tells");
        assert!(topology.socket_of(cpu).is_some(), "{cpu} in {topology:?}");
    }
}
