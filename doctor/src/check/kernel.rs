//! The kernel and its modules.

use crate::finding::{Check, Findings, Mend, quoted};
use crate::machine::Machine;

/// Version of Linux.
static VERSION: Check = Check {
    id: "kernel.version",
    title: "version of Linux",
    why: "The mlx5 driver uses calls that Linux has since 5.4.",
    source: "pollux-pmd-mlx, crate documentation; DPDK doc/guides/linux_gsg/sys_reqs.rst",
};

/// Modules that a card needs.
static MODULES: Check = Check {
    id: "kernel.modules",
    title: "kernel modules mlx5_core, mlx5_ib, ib_uverbs",
    why: "mlx5_core drives the card, mlx5_ib makes an RDMA device of it, ib_uverbs gives it to programs.",
    source: "DPDK doc/guides/platform/mlx5.rst",
};

pub(super) static ALL: &[&Check] = &[&VERSION, &MODULES];

const OLDEST: (u32, u32) = (5, 4);
const NEEDED: [&str; 3] = ["mlx5_core", "mlx5_ib", "ib_uverbs"];
/// `modules.dep` of a distribution's kernel has some 700 KB.
const LIST_BYTES_MAX: u64 = 8 << 20;

pub(super) fn check(machine: &Machine, out: &mut Findings) {
    version(machine, out);
    modules(machine, out);
}

const RELEASE: &str = "proc/sys/kernel/osrelease";

fn version(machine: &Machine, out: &mut Findings) {
    let release = match machine.root.text(RELEASE) {
        Ok(release) => release,
        Err(gap) => return out.gap(&VERSION, &gap),
    };
    // `6.1.0-13-amd64`
    let mut numbers = release.split(|one: char| !one.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return out.gap(&VERSION, &crate::root::malformed(RELEASE, "a version", &release));
    };
    if (major, minor) >= OLDEST || machine.cards.is_empty() {
        return out.ok(&VERSION, format!("Linux {release}."));
    }
    let what = format!("Linux {release}; cards need {}.{} or newer.", OLDEST.0, OLDEST.1);
    out.problem(&VERSION, what, Mend::action("Install a newer kernel."));
}

/// Whether a module is loaded or built in. Source: Linux `Documentation/ABI/stable/sysfs-module`,
/// `Documentation/kbuild/kbuild.rst` (`modules.builtin`).
pub(super) fn has(machine: &Machine, module: &str) -> bool {
    let root = &machine.root;
    let loaded = |text: String| text.lines().any(|line| line.split(' ').next() == Some(module));
    root.has(&format!("sys/module/{module}"))
        || root.head("proc/modules", LIST_BYTES_MAX).is_ok_and(loaded)
        || listed(machine, "modules.builtin", module) == Some(true)
}

/// Whether a list of this kernel's modules has one; `None` without the list.
fn listed(machine: &Machine, list: &str, module: &str) -> Option<bool> {
    let release = machine.root.text(RELEASE).ok().filter(|release| !release.contains('/'))?;
    let text = machine.root.head(&format!("lib/modules/{release}/{list}"), LIST_BYTES_MAX).ok()?;
    Some(text.contains(&format!("/{module}.ko")))
}

fn modules(machine: &Machine, out: &mut Findings) {
    if machine.cards.is_empty() {
        return out.ok(&MODULES, "No card needs a module.");
    }
    let missing: Vec<&str> = if machine.cards.iter().all(|card| card.device.is_some()) {
        Vec::new()
    } else {
        NEEDED.into_iter().filter(|module| !has(machine, module)).collect()
    };
    if missing.is_empty() {
        return out.ok(&MODULES, format!("{} are there.", NEEDED.join(", ")));
    }
    let absent: Vec<&str> = missing
        .iter()
        .copied()
        .filter(|module| listed(machine, "modules.dep", module) == Some(false))
        .collect();
    let what = format!("Not loaded: {}.", missing.join(", "));
    let load = format!("modprobe -a {}", missing.join(" "));
    let mend = if !absent.is_empty() {
        package(machine, &absent, &load)
    } else if machine.container.is_some() {
        Mend::action(format!("On the machine, outside of the container: `{load}`."))
    } else {
        Mend::root(load)
    };
    out.problem(&MODULES, what, mend);
}

/// What installs modules that this kernel's package lacks, where the distribution is known to keep them in another.
fn package(machine: &Machine, absent: &[&str], load: &str) -> Mend {
    let release = machine.root.text(RELEASE).unwrap_or_default();
    let system = machine.root.text("etc/os-release").unwrap_or_default();
    let id = system.lines().find_map(|line| line.strip_prefix("ID=")).map(|id| id.trim_matches('"'));
    if id == Some("ubuntu") {
        let name = quoted(&format!("linux-modules-extra-{release}"));
        return Mend::root(format!("apt install {name} && {load}"));
    }
    Mend::action(format!(
        "This kernel was installed without {}: install its package of further modules, or another kernel.",
        absent.join(", ")
    ))
}
