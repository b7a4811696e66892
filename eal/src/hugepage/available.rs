//! How much ordinary memory can be populated without waking the kernel's killer.

use std::fs;
use std::path::{Path, PathBuf};

/// How much can be had, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    pub(crate) bytes: usize,
    pub(crate) told_by: String,
}

/// The least that the machine and each control group above this process leave; `None` where nobody tells.
pub(crate) fn available(root: &Path) -> Option<Available> {
    machine(root).into_iter().chain(groups(root)).min_by_key(|available| available.bytes)
}

fn machine(root: &Path) -> Option<Available> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib: usize = field(&text, "MemAvailable:")?;
    Some(Available { bytes: kib.saturating_mul(1024), told_by: "MemAvailable in /proc/meminfo".into() })
}

/// What `RLIMIT_AS` leaves of this process's address space; `None` without a limit.
pub(crate) fn address_space(root: &Path) -> Option<Available> {
    // proc(5), `/proc/PID/limits`: name, soft limit, hard limit, units.
    let limits = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let limit: usize = field(&limits, "Max address space")?;
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    let used_kib: usize = field(&status, "VmSize:")?;
    let bytes = limit.saturating_sub(used_kib.saturating_mul(1024));
    Some(Available { bytes, told_by: "RLIMIT_AS, which `ulimit -v` shows".into() })
}

/// The number after a word at the beginning of a line.
fn field(text: &str, word: &str) -> Option<usize> {
    text.lines().find_map(|line| line.strip_prefix(word)?.split_whitespace().next()?.parse().ok())
}

struct Files {
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Page cache, which is counted as used and can be dropped.
    cache: [&'static str; 2],
}

const V2: Files = Files {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cache: ["inactive_file ", "active_file "],
};
const V1: Files = Files {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: ["total_inactive_file ", "total_active_file "],
};

fn groups(root: &Path) -> Vec<Available> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in text.lines() {
        // cgroups(7): `hierarchy:controllers:path`; version 2 has no controllers there.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let files = match controllers {
            "" => &V2,
            list if list.split(',').any(|controller| controller == "memory") => &V1,
            _ => continue,
        };
        let mount = root.join(files.mount);
        let mut group = PathBuf::from(path.trim_start_matches('/'));
        loop {
            found.extend(group_available(&mount.join(&group), files));
            if !group.pop() {
                break;
            }
        }
    }
    found
}

/// `None` for a group without a limit.
fn group_available(directory: &Path, files: &Files) -> Option<Available> {
    let number =
        |file: &str| -> Option<usize> { fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok() };
    // `max` in version 2; in version 1 a number near 2^63, which never is the least.
    let limit = number(files.limit)?;
    let used = number(files.used)?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let cache: usize = files.cache.iter().filter_map(|word| field(&stat, word)).sum();
    Some(Available {
        bytes: limit.saturating_sub(used.saturating_sub(cache)),
        told_by: format!("the limit in {}", directory.join(files.limit).display()),
    })
}
