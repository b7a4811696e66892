//! Memory: huge pages, the limit on locked memory, swap.

use pollux_eal::SocketId;
use pollux_eal::hugepage::{Bytes, HugePool};

use crate::finding::{Check, Findings, Mend};
use crate::machine::Machine;
use crate::process::{Capability, Limit};

/// Huge pages that a mapping made now can have.
static HUGE_PAGES: Check = Check {
    id: "memory.hugepages",
    title: "free huge pages",
    why: "Pools and rings use huge pages where there are some, and ordinary pages otherwise: a processor's translation cache then covers less of them. No mount is needed.",
    source: "DPDK doc/guides/linux_gsg/sys_reqs.rst; Linux Documentation/admin-guide/mm/hugetlbpage.rst",
};

/// Huge pages on the node of each card.
static NODE: Check = Check {
    id: "memory.node",
    title: "huge pages on the card's NUMA node",
    why: "The card reads and writes buffers of another node over the link between the sockets.",
    source: "DPDK doc/guides/linux_gsg/sys_reqs.rst; Linux Documentation/admin-guide/mm/hugetlbpage.rst",
};

/// `RLIMIT_MEMLOCK`.
static LOCKED: Check = Check {
    id: "memory.locked",
    title: "limit on locked memory",
    why: "The kernel pins pools and rings for a card and counts them against this limit; beyond it registration fails with ENOMEM.",
    source: "Linux drivers/infiniband/core/umem.c, ib_umem_get; DPDK doc/guides/linux_gsg/enable_func.rst",
};

/// Transparent huge pages, for the ordinary pages.
static TRANSPARENT: Check = Check {
    id: "memory.transparent",
    title: "transparent huge pages",
    why: "Where no huge pages are free, the EAL asks for transparent ones, which `never` refuses.",
    source: "Linux Documentation/admin-guide/mm/transhuge.rst",
};

/// Swap.
static SWAP: Check = Check {
    id: "memory.swap",
    title: "swap",
    why: "The EAL locks memory where the limit allows; what is neither locked nor huge can be swapped out, and the next packet waits for a disk.",
    source: "Linux Documentation/filesystems/proc.rst; mlock(2)",
};

pub(super) static ALL: &[&Check] = &[&HUGE_PAGES, &NODE, &LOCKED, &TRANSPARENT, &SWAP];

/// Bytes that a command asks for: what README.md and DPDK's guide reserve for a start.
const RESERVED_BYTES: usize = 1 << 30;

/// What l2fwd pins for one ConnectX and its smallest pool, rounded up: it says so itself when it is refused.
const L2FWD_BYTES: u64 = 12 << 20;

pub(super) fn check(machine: &Machine, out: &mut Findings) {
    huge_pages(machine, out);
    locked(machine, out);
    transparent(machine, out);
    swap(machine, out);
}

pub(super) fn check_card(machine: &Machine, node: u16, out: &mut Findings) {
    let nodes = machine.topology.nodes();
    let pools = HugePool::all(machine.root.path(), Some(SocketId(node)));
    if nodes.len() < 2 || pools.is_empty() {
        return;
    }
    let free: Vec<&HugePool> = pools.iter().filter(|pool| pool.free > 0).collect();
    if !free.is_empty() {
        let free = free.into_iter().map(HugePool::to_string).collect::<Vec<_>>().join(", ");
        return out.ok(&NODE, format!("Node {node}, where the card is, has {free}."));
    }
    let elsewhere = nodes.iter().any(|other| {
        other.id.0 != node
            && HugePool::all(machine.root.path(), Some(other.id)).iter().any(|pool| pool.free > 0)
    });
    // With none anywhere, memory.hugepages says so.
    if elsewhere {
        let what = format!("Node {node}, where the card is, has no free huge page; another node has.");
        let mend = Mend::root(reserve(&format!("/sys/devices/system/node/node{node}"), &pools));
        out.advice(&NODE, what, mend);
    }
}

fn huge_pages(machine: &Machine, out: &mut Findings) {
    let pools = HugePool::all(machine.root.path(), None);
    let described = || pools.iter().map(HugePool::to_string).collect::<Vec<_>>().join(", ");
    if pools.is_empty() {
        return match machine.root.names("sys/kernel/mm/hugepages") {
            Err(gap) if gap.is_missing() && machine.root.has("sys/kernel/mm") => out.advice(
                &HUGE_PAGES,
                "This kernel has no huge pages.",
                Mend::action("Boot a kernel that is built with CONFIG_HUGETLBFS."),
            ),
            Err(gap) => out.gap(&HUGE_PAGES, &gap),
            Ok(_) => out.unknown(&HUGE_PAGES, "No pool in /sys/kernel/mm/hugepages can be read."),
        };
    }
    if pools.iter().any(|pool| pool.free > 0) {
        return out.ok(&HUGE_PAGES, format!("{}.", described()));
    }
    let what = if pools.iter().all(|pool| pool.total == 0) {
        "No huge pages are reserved.".to_owned()
    } else {
        format!("No huge page is free: {}.", described())
    };
    out.advice(&HUGE_PAGES, what, Mend::root(reserve("/sys/kernel/mm", &pools)));
}

/// Reserves pages of the smallest size beside those that there are.
fn reserve(folder: &str, pools: &[HugePool]) -> String {
    let Some(pool) = pools.last() else { return String::new() };
    let pages = pool.total.saturating_add(RESERVED_BYTES.div_ceil(pool.page_size.max(1)));
    format!("echo {pages} > {folder}/hugepages/hugepages-{}kB/nr_hugepages", pool.page_size / 1024)
}

fn locked(machine: &Machine, out: &mut Findings) {
    let limit = match &machine.process.locked {
        Ok(limit) => limit,
        Err(gap) => return out.gap(&LOCKED, gap),
    };
    let Some(soft) = limit.soft else {
        return out.ok(&LOCKED, "No limit on locked memory.");
    };
    let amount = Bytes(usize::try_from(soft).unwrap_or(usize::MAX));
    if machine.process.may(Capability::IpcLock) == Ok(true) {
        return out.ok(&LOCKED, format!("The limit is {amount}, and CAP_IPC_LOCK lifts it."));
    }
    if machine.cards.is_empty() {
        return out.ok(&LOCKED, format!("The limit is {amount}; only cards need locked memory."));
    }
    let lasting = match machine.container {
        None => {
            " For a systemd unit LimitMEMLOCK=infinity lifts it, for logins a line `* - memlock unlimited` in \
              /etc/security/limits.conf."
        }
        Some(_) => "",
    };
    if soft < L2FWD_BYTES {
        let least = Bytes(L2FWD_BYTES as usize);
        let what = format!("The limit is {amount}; l2fwd pins {least} for one card.{lasting}");
        out.problem(&LOCKED, what, raise(machine, *limit));
    } else {
        let what = format!("The limit is {amount}, which larger pools exceed.{lasting}");
        out.advice(&LOCKED, what, raise(machine, *limit));
    }
}

/// Lifts the limit on locked memory: of a container, of a shell that may do so itself, of one that may not.
fn raise(machine: &Machine, limit: Limit) -> Mend {
    let shell = match limit.hard {
        None => "ulimit -l unlimited",
        Some(_) => "sudo prlimit --pid $$ --memlock=unlimited",
    };
    machine.started_with(
        "--ulimit memlock=-1",
        "`capabilities: {add: [IPC_LOCK]}` in securityContext, which lifts the limit",
        "no limit on locked memory (RLIMIT_MEMLOCK)",
        Mend::user(shell),
    )
}

fn transparent(machine: &Machine, out: &mut Findings) {
    const FILE: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    let text = match machine.root.text(FILE) {
        Ok(text) => text,
        Err(gap) if gap.is_missing() => return out.ok(&TRANSPARENT, "This kernel has none."),
        Err(gap) => return out.gap(&TRANSPARENT, &gap),
    };
    // `always [madvise] never`
    match text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')) {
        Some("never") => {
            let mend = Mend::root(format!("echo madvise > /{FILE}"));
            out.advice(&TRANSPARENT, "Transparent huge pages are off (never).", mend);
        }
        Some(mode @ ("always" | "madvise")) => {
            out.ok(&TRANSPARENT, format!("Transparent huge pages: {mode}."));
        }
        _ => out.gap(&TRANSPARENT, &crate::root::malformed(FILE, "a mode", &text)),
    }
}

fn swap(machine: &Machine, out: &mut Findings) {
    let text = match machine.root.text("proc/swaps") {
        Ok(text) => text,
        Err(gap) if gap.is_missing() => return out.ok(&SWAP, "This kernel has no swap."),
        Err(gap) => return out.gap(&SWAP, &gap),
    };
    // A line of titles first.
    if text.lines().skip(1).all(|line| line.trim().is_empty()) {
        return out.ok(&SWAP, "No swap is in use.");
    }
    let limit = match &machine.process.locked {
        Ok(limit) => *limit,
        Err(gap) => return out.gap(&SWAP, gap),
    };
    if limit.soft.is_none() || machine.process.may(Capability::IpcLock) == Ok(true) {
        out.ok(&SWAP, "Swap is on; this process may lock its memory.");
    } else {
        let what = "Swap is on, and this process may not lock all its memory.";
        out.advice(&SWAP, what, raise(machine, limit));
    }
}
