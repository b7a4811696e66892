//! What else runs on the machine, and the limits of containers and units.

use crate::finding::{Check, Findings, Mend};
use crate::machine::{Container, Machine};
use crate::root::Root;

/// irqbalance.
static IRQBALANCE: Check = Check {
    id: "system.irqbalance",
    title: "irqbalance",
    why: "It spreads interrupts over all processors that are not isolated, those of lcores included.",
    source: "Irqbalance/irqbalance irqbalance.1 (IRQBALANCE_BANNED_CPULIST)",
};

/// `kernel.sched_autogroup_enabled`.
static AUTOGROUP: Check = Check {
    id: "system.autogroup",
    title: "kernel.sched_autogroup_enabled",
    why: "Sessions then share a processor evenly, and nice(1) on a dataplane does not count against another session.",
    source: "sched(7), The autogroup feature",
};

/// Containers.
static CONTAINER: Check = Check {
    id: "system.container",
    title: "container",
    why: "A container has the devices, rights and limits that it was started with.",
    source: "systemd docs/CONTAINER_INTERFACE.md",
};

/// Limits on huge pages.
static HUGETLB: Check = Check {
    id: "system.hugetlb",
    title: "limit of the control group on huge pages",
    why: "Huge pages beyond the limit kill the program with SIGBUS or are refused.",
    source: "Linux Documentation/admin-guide/cgroup-v2.rst (HugeTLB), Documentation/admin-guide/cgroup-v1/hugetlb.rst",
};

/// Limits on processor time.
static QUOTA: Check = Check {
    id: "system.quota",
    title: "limit of the control group on processor time",
    why: "An lcore uses its processor without a pause; a quota stops it for the rest of each period.",
    source: "Linux Documentation/admin-guide/cgroup-v2.rst (cpu.max)",
};

pub(super) static ALL: &[&Check] = &[&CONTAINER, &HUGETLB, &QUOTA, &IRQBALANCE, &AUTOGROUP];

pub(super) fn check(machine: &Machine, out: &mut Findings) {
    match machine.container {
        Some(container) => {
            out.ok(&CONTAINER, format!("This is {}.", container.described()));
        }
        None => out.ok(&CONTAINER, "No sign of a container."),
    }
    let groups = groups(&machine.root);
    hugetlb(machine, &groups, out);
    quota(machine, &groups, out);
    irqbalance(machine, out);
    autogroup(machine, out);
}

/// How a pod gets processors of its own. Source: Kubernetes documentation, "Control CPU Management Policies on the Node".
pub(super) const WHOLE_PROCESSORS: &str = "a whole number of cpu in resources.limits and as many in requests, on a node whose \
                                           kubelet has the static CPU manager policy";

const CGROUP: &str = "sys/fs/cgroup";

/// Most levels of control groups that are looked at.
const LEVELS_MAX: usize = 32;

/// Folders of this process's control group and of those around it, innermost first. Source: cgroups(7), `/proc/pid/cgroup`.
fn groups(root: &Root) -> Vec<String> {
    let text = root.text("proc/self/cgroup").unwrap_or_default();
    // Version 2: `0::/user.slice/session.scope`. In a container the path may lead out of what is mounted (`/../..`).
    let path = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".." && *part != ".")
        .take(LEVELS_MAX)
        .collect();
    (0..=parts.len())
        .rev()
        .map(|count| {
            let inner = parts[..count].join("/");
            if inner.is_empty() { CGROUP.to_owned() } else { format!("{CGROUP}/{inner}") }
        })
        .collect()
}

fn hugetlb(machine: &Machine, groups: &[String], out: &mut Findings) {
    let root = &machine.root;
    let mut some = false;
    for (size, name) in [(2u64 << 20, "2MB"), (1 << 30, "1GB")] {
        // Version 2, then version 1, whose own group a container sees as the root.
        let files = groups.iter().map(|group| format!("{group}/hugetlb.{name}.max"));
        let files = files.chain([format!("{CGROUP}/hugetlb/hugetlb.{name}.limit_in_bytes")]);
        for file in files {
            let Ok(limit) = root.number::<u64>(&file) else { continue };
            some = true;
            if limit < size {
                let what = format!("The control group allows no huge page of {name}: /{file} is {limit}.");
                let kind = if name == "2MB" { "2Mi" } else { "1Gi" };
                let mend = match machine.container {
                    Some(Container::Kubernetes) => Mend::action(format!(
                        "In the pod's specification: `hugepages-{kind}: 1Gi` in resources.limits and in requests."
                    )),
                    Some(_) => Mend::action("Start the container without a limit on huge pages."),
                    None => Mend::root(format!("echo max > /{file}")),
                };
                return out.advice(&HUGETLB, what, mend);
            }
        }
    }
    out.ok(&HUGETLB, if some { "The limit leaves room for huge pages." } else { "No limit on huge pages." });
}

fn quota(machine: &Machine, groups: &[String], out: &mut Findings) {
    let root = &machine.root;
    // `200000 100000`: so much of each period, in microseconds; `max` without a limit.
    let told = groups.iter().find_map(|group| {
        let text = root.text(&format!("{group}/cpu.max")).ok()?;
        let (quota, period) = text.split_once(' ')?;
        Some((quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?))
    });
    // Version 1: -1 without a limit.
    let older = || {
        let quota = root.number::<i64>(&format!("{CGROUP}/cpu/cpu.cfs_quota_us")).ok()?;
        let period = root.number::<u64>(&format!("{CGROUP}/cpu/cpu.cfs_period_us")).ok()?;
        Some((u64::try_from(quota).ok()?, period))
    };
    match told.or_else(older) {
        Some((quota, period)) if period > 0 => {
            let what = format!("The control group has {:.2} processors' time.", quota as f64 / period as f64);
            let mend = machine.started_with(
                "--cpuset-cpus=LCORES",
                WHOLE_PROCESSORS,
                "processors of its own (a cpuset), not with a share of them",
                Mend::action(
                    "Take CPUQuota= out of the unit or slice; `systemctl status` shows which it is.",
                ),
            );
            out.advice(&QUOTA, what, mend);
        }
        _ => out.ok(&QUOTA, "No limit on processor time."),
    }
}

fn irqbalance(machine: &Machine, out: &mut Findings) {
    let processes = match machine.root.names("proc") {
        Ok(names) => names.into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())),
        Err(gap) => return out.gap(&IRQBALANCE, &gap),
    };
    let mut names = processes.filter_map(|id| machine.root.text(&format!("proc/{id}/comm")).ok());
    if !names.any(|name| name == "irqbalance") {
        return if machine.container.is_some() {
            out.unknown(&IRQBALANCE, "A container does not see the machine's programs.");
        } else {
            out.ok(&IRQBALANCE, "irqbalance does not run.");
        };
    }
    let isolation = &machine.isolation;
    let kept = |cpu: &u16| isolation.scheduler.contains(cpu) || isolation.tick.contains(cpu);
    let safe = match &machine.lcores {
        Some(lcores) => lcores.iter().all(kept),
        None => !isolation.scheduler.is_empty() || !isolation.tick.is_empty(),
    };
    if safe {
        out.ok(&IRQBALANCE, "irqbalance runs and leaves isolated processors alone.");
    } else {
        let what = "irqbalance runs and may move interrupts to processors of lcores.";
        out.advice(&IRQBALANCE, what, Mend::root("systemctl disable --now irqbalance"));
    }
}

fn autogroup(machine: &Machine, out: &mut Findings) {
    const FILE: &str = "proc/sys/kernel/sched_autogroup_enabled";
    let enabled: u8 = match machine.root.number(FILE) {
        Ok(enabled) => enabled,
        Err(gap) if gap.is_missing() => return out.ok(&AUTOGROUP, "The kernel has no such groups."),
        Err(gap) => return out.gap(&AUTOGROUP, &gap),
    };
    let isolated = match &machine.lcores {
        Some(lcores) => lcores.iter().all(|cpu| machine.isolation.scheduler.contains(cpu)),
        None => !machine.isolation.scheduler.is_empty(),
    };
    if enabled == 0 {
        out.ok(&AUTOGROUP, "Sessions are not grouped.");
    } else if isolated {
        out.ok(&AUTOGROUP, "Sessions are grouped; isolated processors have one program.");
    } else {
        let mend = Mend::root("sysctl kernel.sched_autogroup_enabled=0");
        out.advice(&AUTOGROUP, "The scheduler groups programs by session.", mend);
    }
}
