//! What huge pages the machine has, and what can be had of memory at all.
//!
//! Sources: Linux `Documentation/admin-guide/mm/hugetlbpage.rst` (the pools in sysfs), `Documentation/filesystems/proc.rst`
//! (`MemAvailable`), `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst` (limits).

mod available;
mod dir;

use std::fmt;
use std::fs;
use std::path::Path;

pub(crate) use available::{address_space, available};
pub(crate) use dir::page_size_of_mount;

use crate::sysfs;
use crate::topology::SocketId;

/// The kernel's pool of huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePool {
    /// Bytes a page.
    pub page_size: usize,
    /// Pages in the pool, taken or not.
    pub total: usize,
    /// Pages that a mapping made now can have. It includes those that the pool may still grow by (overcommit).
    pub free: usize,
}

impl HugePool {
    /// The pools of this kernel, largest pages first; empty where it has none. `root` is `/` but for tests. With `node`,
    /// what that NUMA node has.
    #[must_use]
    pub fn all(root: &Path, node: Option<SocketId>) -> Vec<Self> {
        let directory = match node {
            None => root.join("sys/kernel/mm/hugepages"),
            Some(node) => root.join(format!("sys/devices/system/node/node{node}/hugepages")),
        };
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let mut pools: Vec<Self> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name();
                let kib: usize =
                    name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
                let count = |file: &str| -> Option<usize> {
                    sysfs::read(&entry.path().join(file)).ok()?.trim().parse().ok()
                };
                // A node's directory has neither reservations nor overcommit.
                let reserved = count("resv_hugepages").unwrap_or(0);
                let surplus = count("surplus_hugepages").unwrap_or(0);
                let grow = count("nr_overcommit_hugepages").unwrap_or(0).saturating_sub(surplus);
                Some(Self {
                    page_size: kib.checked_mul(1024)?,
                    total: count("nr_hugepages")?,
                    free: count("free_hugepages")?.saturating_sub(reserved).saturating_add(grow),
                })
            })
            .collect();
        pools.sort_unstable_by_key(|pool| std::cmp::Reverse(pool.page_size));
        pools
    }
}

impl fmt::Display for HugePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pages of {} free", self.free, self.total, Bytes(self.page_size))
    }
}

/// Why the pools of huge pages cannot be looked at, if it is this process that may not open one file more, and what lets it.
pub(crate) fn hidden(root: &Path) -> Option<(String, String)> {
    let error = match fs::read_dir(root.join("sys/kernel/mm/hugepages")) {
        // The folder stays open while the files in it are read.
        Ok(mut pools) => {
            pools.find_map(|pool| fs::File::open(pool.ok()?.path().join("nr_hugepages")).err())?
        }
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            let what =
                format!("too few file descriptors to look for huge pages: {} are allowed", open_file_limit());
            Some((what, RAISE_OPEN_FILES.into()))
        }
        Some(libc::ENFILE) => {
            let what = "the machine has no file descriptor left to look for huge pages".into();
            Some((what, "as root, `sysctl fs.file-max=1000000`".into()))
        }
        _ => None,
    }
}

/// What raises [`open_file_limit`].
pub const RAISE_OPEN_FILES: &str = "`ulimit -n 1024`";

/// How many files this process may have open at once (`RLIMIT_NOFILE`, the soft limit).
#[must_use]
pub fn open_file_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What is free, for a message.
pub(crate) fn describe(pools: &[HugePool]) -> String {
    if pools.is_empty() {
        return "this kernel has no huge pages".into();
    }
    pools.iter().map(HugePool::to_string).collect::<Vec<_>>().join(", ")
}

/// The command that makes room for `bytes` more, in the smallest pages there are.
pub(crate) fn command_for(pools: &[HugePool], bytes: usize, node: Option<SocketId>) -> String {
    let Some(pool) = pools.last() else {
        return "boot a kernel with CONFIG_HUGETLBFS".into();
    };
    let missing = bytes.div_ceil(pool.page_size).saturating_sub(pool.free);
    let pages = pool.total + missing;
    let directory = match node {
        None => "/sys/kernel/mm".into(),
        Some(node) => format!("/sys/devices/system/node/node{node}"),
    };
    format!(
        "as root, `echo {pages} > {directory}/hugepages/hugepages-{}kB/nr_hugepages`",
        pool.page_size / 1024
    )
}

/// How much was wanted and how much less there is, in one unit, so that the two can be compared: the former rounded up, the
/// latter down.
pub(crate) fn wanted_and_had(wanted: usize, had: usize) -> (String, String) {
    let units = [(20, "MiB"), (10, "KiB")].into_iter();
    let (shift, unit) = units.clone().find(|(shift, _)| wanted >> shift > 0).unwrap_or((0, "bytes"));
    let up = wanted.div_ceil(1 << shift);
    (format!("{up} {unit}"), format!("{} {unit}", had >> shift))
}

/// A number of bytes, as a person reads it: whole KiB, MiB or GiB where it is that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests;
