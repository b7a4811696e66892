//! Huge pages: what there is of each size on each node, where it is mounted, and reserving more.

use std::fmt::Write;
use std::path::Path;

use pollux_eal::hugepage::{Bytes, HugePool};
use pollux_eal::topology::{SocketId, Topology};

use crate::DoctorError;
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

pub(super) fn text(root: &Root) -> Result<String, Gap> {
    let mut out = format!("{:<5}{:<8}{:<8}{:<9}{}\n", "Node", "Pages", "Free", "Size", "Total");
    root.names("sys/kernel/mm/hugepages")?;
    let nodes: Vec<SocketId> = Topology::read(root.path()).nodes().iter().map(|node| node.id).collect();
    let mut any = false;
    for node in nodes {
        for pool in HugePool::all(root.path(), Some(node)).into_iter().filter(|pool| pool.total > 0) {
            any = true;
            let (size, total) = (Bytes(pool.page_size), Bytes(pool.page_size.saturating_mul(pool.total)));
            let (node, size) = (node.to_string(), size.to_string());
            let _ = writeln!(out, "{node:<5}{:<8}{:<8}{size:<9}{total}", pool.total, pool.free);
        }
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

/// Huge pages that are to be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Bytes in all, rounded up to whole pages.
    pub bytes: usize,
    /// Bytes a page; `None`: the machine's usual size.
    pub page_bytes: Option<usize>,
    /// The NUMA node; `None`: the kernel spreads them over all.
    pub node: Option<u16>,
}

impl Reservation {
    /// Makes the pool as large: more pages, or fewer, down to those in use. What that came to, in a line.
    ///
    /// # Errors
    /// [`DoctorError::Show`]: no such size or node, no right, or the kernel has not so many.
    pub fn make(self, root: &Path) -> Result<String, DoctorError> {
        let root = Root::new(root);
        let refuse = |problem: String| DoctorError::Show { problem };
        let page = match self.page_bytes {
            Some(page) => page,
            None => usual_page(&root).map_err(|gap| refuse(gap.to_string()))?,
        };
        let place = self.node.map_or_else(
            || "sys/kernel/mm/hugepages".to_owned(),
            |node| format!("sys/devices/system/node/node{node}/hugepages"),
        );
        let sizes = root.names(&place).map_err(|gap| refuse(gap.to_string()))?;
        let name = format!("hugepages-{}kB", page / 1024);
        if !sizes.contains(&name) {
            let sizes: Vec<&str> = sizes.iter().filter_map(|size| size.strip_prefix("hugepages-")).collect();
            let problem = format!("--page-size {}: there are pages of {}", Bytes(page), sizes.join(", "));
            return Err(refuse(problem));
        }
        let (pages, file) = (self.bytes.div_ceil(page), format!("{place}/{name}/nr_hugepages"));
        let before: usize = root.number(&file).map_err(|gap| refuse(gap.to_string()))?;
        std::fs::write(root.join(&file), format!("{pages}\n"))
            .map_err(|why| refuse(format!("/{file} cannot be written: {why}; try as root")))?;
        // The kernel takes what it gets.
        let now: usize = root.number(&file).map_err(|gap| refuse(gap.to_string()))?;
        let size = Bytes(page);
        if now < pages {
            return Err(refuse(format!(
                "{now} of {pages} pages of {size} were reserved: memory is taken or in pieces; reserve them when the machine starts \
                 (hugepagesz={}M hugepages={pages} on the kernel's command line)",
                page >> 20
            )));
        }
        let more = if now > pages { format!("; {} of them are in use", now - pages) } else { String::new() };
        Ok(format!(
            "{now} pages of {size}, {} in all, {before} before{more}\n",
            Bytes(page.saturating_mul(now))
        ))
    }
}

/// The size of pages that a mapping has which asks for none. Source: Linux `Documentation/filesystems/proc.rst`, `Hugepagesize`.
fn usual_page(root: &Root) -> Result<usize, Gap> {
    let file = "proc/meminfo";
    let text = root.head(file, 64 << 10)?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:")?.trim().strip_suffix("kB"));
    let kib: Option<usize> = kib.and_then(|kib| kib.trim().parse().ok());
    kib.and_then(|kib| kib.checked_mul(1024))
        .filter(|bytes| *bytes != 0)
        .ok_or_else(|| crate::root::malformed(file, "the size of huge pages", ""))
}
