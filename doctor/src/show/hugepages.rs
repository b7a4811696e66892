//! Huge pages: what there is of each size on each node, and where it is mounted.

use std::fmt::Write;
use std::path::Path;

use pollux_eal::hugepage::{Bytes, HugePool};
use pollux_eal::topology::{SocketId, Topology};

use crate::root::{Gap, Root};

/// A mount of hugetlbfs, of `proc/mounts`. Source: Linux `Documentation/filesystems/proc.rst`.
fn mounts(root: &Root) -> Vec<String> {
    let text = root.head("proc/mounts", 1 << 20).unwrap_or_default();
    let mounts = text.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind, options) = (words.next()?, words.next()?, words.next()?);
        let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="));
        let size = size.map_or_else(String::new, |size| format!(", pages of {size}"));
        (kind == "hugetlbfs").then(|| crate::finding::printable(&format!("{path}{size}")))
    });
    mounts.collect()
}

/// The pools of each node; those of the machine where the kernel was built without NUMA.
fn pools(root: &Path) -> Vec<(Option<SocketId>, HugePool)> {
    let on = |node| HugePool::all(root, node).into_iter().map(move |pool| (node, pool));
    if !root.join("sys/devices/system/node").is_dir() {
        return on(None).collect();
    }
    Topology::read(root).nodes().iter().flat_map(|node| on(Some(node.id))).collect()
}

pub(super) fn text(root: &Root) -> Result<String, Gap> {
    let mut out = format!("{:<5}{:<8}{:<8}{:<9}{}\n", "Node", "Pages", "Free", "Size", "Total");
    root.names("sys/kernel/mm/hugepages")?;
    let mut any = false;
    for (node, pool) in pools(root.path()).into_iter().filter(|(_, pool)| pool.total > 0) {
        any = true;
        let (size, total) = (Bytes(pool.page_size), Bytes(pool.page_size.saturating_mul(pool.total)));
        let node = node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        let size = size.to_string();
        let _ = writeln!(out, "{node:<5}{:<8}{:<8}{size:<9}{total}", pool.total, pool.free);
    }
    if !any {
        out = "No huge pages are reserved\n".into();
    }
    let mounts = mounts(root);
    out += "\n";
    if mounts.is_empty() {
        out += "Hugepages not mounted; programs of Pollux need no mount\n";
    }
    for mount in mounts {
        let _ = writeln!(out, "Hugepages mounted on {mount}");
    }
    Ok(out)
}
