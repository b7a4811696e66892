//! Processors: which may be used, which are kept free, how fast they are, and how they tell the time.

use std::collections::BTreeMap;

use crate::finding::{Check, Findings, Mend};
use crate::machine::Machine;

use super::{boot, list, processors};

/// Processors that this process may use.
static ALLOWED: Check = Check {
    id: "cpu.allowed",
    title: "processors that this process may use",
    why: "An lcore is pinned to its processor, which has to be online and in the affinity mask (taskset, cpuset).",
    source: "Linux Documentation/filesystems/proc.rst (Cpus_allowed_list)",
};

/// Isolation.
static ISOLATION: Check = Check {
    id: "cpu.isolation",
    title: "isolated processors (isolcpus, nohz_full, rcu_nocbs)",
    why: "Other programs, the kernel's tick and its callbacks take turns with an lcore; each turn delays or drops packets.",
    source: "DPDK doc/guides/linux_gsg/enable_func.rst; Linux Documentation/admin-guide/kernel-parameters.txt",
};

/// Threads of one core.
static SIBLINGS: Check = Check {
    id: "cpu.siblings",
    title: "lcores that share a core",
    why: "Two threads of a core share its units and its first caches: two lcores there do little more than one.",
    source: "Linux Documentation/admin-guide/cputopology.rst; DPDK usertools/cpu_layout.py",
};

/// The frequency governor.
static GOVERNOR: Check = Check {
    id: "cpu.governor",
    title: "frequency governor",
    why: "All governors but `performance` may lower the frequency, and cycles per packet then take longer.",
    source: "Linux Documentation/admin-guide/pm/cpufreq.rst, Documentation/admin-guide/pm/intel_pstate.rst",
};

/// Frequencies above the base.
static TURBO: Check = Check {
    id: "cpu.turbo",
    title: "turbo frequencies",
    why: "They make an lcore faster. For figures that repeat, off is right.",
    source: "DPDK doc/guides/linux_gsg/nic_perf_intel_platform.rst; Linux Documentation/admin-guide/pm/cpufreq.rst",
};

/// Idle states.
static IDLE: Check = Check {
    id: "cpu.idle",
    title: "idle states",
    why: "A polling lcore never idles; one that sleeps until an interrupt needs this long to wake up.",
    source: "Linux Documentation/ABI/testing/sysfs-devices-system-cpu (cpuidle)",
};

/// Clock.
static CLOCK: Check = Check {
    id: "cpu.clock",
    title: "clock source and time stamp counter",
    why: "The EAL reads the time stamp counter where it is steady. Otherwise it asks the kernel, which costs a system call with clock sources that are read from a device.",
    source: "pollux-eal, clock; Linux Documentation/ABI/testing/sysfs-devices-system-cpu, arch/x86/include/asm/cpufeatures.h",
};

pub(super) static ALL: &[&Check] = &[&ALLOWED, &ISOLATION, &SIBLINGS, &GOVERNOR, &TURBO, &IDLE, &CLOCK];

const FOLDER: &str = "sys/devices/system/cpu";

pub(super) fn check(machine: &Machine, out: &mut Findings) {
    allowed(machine, out);
    isolation(machine, out);
    siblings(machine, out);
    governor(machine, out);
    turbo(machine, out);
    idle(machine, out);
    clock(machine, out);
}

fn allowed(machine: &Machine, out: &mut Findings) {
    let allowed = match &machine.process.allowed {
        Ok(allowed) => allowed,
        Err(gap) => return out.gap(&ALLOWED, gap),
    };
    let online = machine.topology.cpus();
    let usable: Vec<u16> = online.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
    let lcores = machine.lcores.as_deref().unwrap_or_default();
    let lost: Vec<u16> = lcores.iter().copied().filter(|cpu| !usable.contains(cpu)).collect();
    if lost.is_empty() {
        return out.ok(&ALLOWED, format!("This process may use {}.", processors(&usable)));
    }
    let what = format!("This process may not use {}: it has {}.", processors(&lost), list(&usable));
    let (offline, masked): (Vec<u16>, Vec<u16>) = lost.iter().partition(|cpu| !online.contains(cpu));
    let mend = if masked.is_empty() {
        Mend::action(format!(
            "Name others: {} {} not online.",
            list(&offline),
            if offline.len() == 1 { "is" } else { "are" }
        ))
    } else {
        machine.started_with(
            &format!("--cpuset-cpus={}", list(lcores)),
            super::system::WHOLE_PROCESSORS,
            "these processors in its cpuset",
            Mend::user(format!("taskset -pc {} $$", list(lcores))),
        )
    };
    out.problem(&ALLOWED, what, mend);
}

fn isolation(machine: &Machine, out: &mut Findings) {
    let isolation = &machine.isolation;
    let kinds =
        [("isolcpus", &isolation.scheduler), ("nohz_full", &isolation.tick), ("rcu_nocbs", &isolation.rcu)];
    let Some(lcores) = &machine.lcores else {
        if isolation.scheduler.is_empty() && isolation.tick.is_empty() {
            return out.advice(
                &ISOLATION,
                "No processor is isolated.",
                Mend::action(
                    "Choose processors for lcores; `doctor --lcores LIST` judges them and says how to isolate them.",
                ),
            );
        }
        let parts: Vec<String> = kinds
            .iter()
            .filter(|(_, cpus)| !cpus.is_empty())
            .map(|(name, cpus)| format!("{name} {}", list(cpus)))
            .collect();
        return out.ok(&ISOLATION, format!("Isolated: {}.", parts.join(", ")));
    };
    let lacking: Vec<(&str, Vec<u16>)> = kinds
        .iter()
        .map(|(name, cpus)| (*name, lcores.iter().copied().filter(|cpu| !cpus.contains(cpu)).collect()))
        .filter(|(_, lacking): &(_, Vec<u16>)| !lacking.is_empty())
        .collect();
    if lacking.is_empty() {
        return out.ok(&ISOLATION, "All lcores are isolated (isolcpus, nohz_full, rcu_nocbs).");
    }
    let parts: Vec<String> = lacking.iter().map(|(name, cpus)| format!("{name} {}", list(cpus))).collect();
    let what = format!("Lcores that are not isolated: {}.", parts.join(", "));
    // What is isolated already stays so.
    let parameters: Vec<String> = kinds
        .iter()
        .map(|(name, cpus)| {
            let both: Vec<u16> = lcores.iter().chain(cpus.iter()).copied().collect();
            format!("{name}={}", list(&both))
        })
        .collect();
    out.advice(&ISOLATION, what, boot(&machine.root, &parameters.join(" ")));
}

fn siblings(machine: &Machine, out: &mut Findings) {
    let Some(lcores) = &machine.lcores else {
        return match machine.root.text(&format!("{FOLDER}/smt/control")) {
            Ok(control) => out.ok(&SIBLINGS, format!("Several threads to a core: {control}.")),
            Err(gap) => out.gap(&SIBLINGS, &gap),
        };
    };
    let mut cores: BTreeMap<Vec<u16>, Vec<u16>> = BTreeMap::new();
    for lcore in lcores {
        cores.entry(machine.topology.siblings(*lcore)).or_default().push(*lcore);
    }
    let shared: Vec<String> = cores.values().filter(|both| both.len() > 1).map(|both| list(both)).collect();
    if !shared.is_empty() {
        let what = format!("Lcores on one core: {}.", shared.join("; "));
        let one: Vec<u16> = cores.values().filter_map(|both| both.first().copied()).collect();
        let mend = Mend::action(format!("Take one of each core: `-l {}`.", list(&one)));
        return out.advice(&SIBLINGS, what, mend);
    }
    // Threads beside the lcores that others' work may be put on.
    let free: Vec<u16> = cores
        .keys()
        .flatten()
        .copied()
        .filter(|cpu| !lcores.contains(cpu) && !machine.isolation.scheduler.contains(cpu))
        .collect();
    if free.is_empty() {
        out.ok(&SIBLINGS, "Each lcore has a core of its own.");
    } else {
        let what = format!("Other work may run on {}, which share cores with lcores.", processors(&free));
        let mend = format!("for c in {}; do echo 0 > /{FOLDER}/cpu$c/online; done", spaced(&free));
        out.advice(&SIBLINGS, what, Mend::root(mend));
    }
}

fn spaced(numbers: &[u16]) -> String {
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
}

fn governor(machine: &Machine, out: &mut Findings) {
    // Governor and driver, and who has them.
    let mut kinds: BTreeMap<(String, String), Vec<u16>> = BTreeMap::new();
    for cpu in machine.cpus() {
        let folder = format!("{FOLDER}/cpu{cpu}/cpufreq");
        match machine.root.text(&format!("{folder}/scaling_governor")) {
            Ok(governor) => {
                let driver = machine.root.text(&format!("{folder}/scaling_driver")).unwrap_or_default();
                kinds.entry((governor, driver)).or_default().push(cpu);
            }
            Err(gap) if gap.is_missing() => {}
            Err(gap) => return out.gap(&GOVERNOR, &gap),
        }
    }
    if kinds.is_empty() {
        return out.ok(&GOVERNOR, "The kernel does not set the frequency (a guest, or cpufreq is off).");
    }
    let slow: Vec<u16> = kinds
        .iter()
        .filter(|((name, _), _)| name != "performance")
        .flat_map(|(_, cpus)| cpus.clone())
        .collect();
    let described: Vec<String> = kinds
        .iter()
        .map(|((governor, driver), cpus)| {
            let driver = if driver.is_empty() { String::new() } else { format!(" ({driver})") };
            format!("{governor}{driver} on {}", processors(cpus))
        })
        .collect();
    let what = format!("Governor {}.", described.join(", "));
    if slow.is_empty() {
        return out.ok(&GOVERNOR, what);
    }
    let files = if machine.lcores.is_some() {
        format!(
            "for c in {}; do echo performance > /{FOLDER}/cpu$c/cpufreq/scaling_governor; done",
            spaced(&slow)
        )
    } else {
        format!("echo performance | tee /{FOLDER}/cpu*/cpufreq/scaling_governor")
    };
    out.advice(&GOVERNOR, what, Mend::root(files));
}

fn turbo(machine: &Machine, out: &mut Findings) {
    // The first says "no", the second "yes".
    for (file, off, on) in [("intel_pstate/no_turbo", 1, 0), ("cpufreq/boost", 0, 1)] {
        let file = format!("{FOLDER}/{file}");
        match machine.root.number::<u8>(&file) {
            Ok(value) if value == off => {
                let mend = Mend::root(format!("echo {on} > /{file}"));
                return out.advice(&TURBO, "Turbo frequencies are off.", mend);
            }
            Ok(_) => return out.ok(&TURBO, "Turbo frequencies are on."),
            Err(gap) if gap.is_missing() => {}
            Err(gap) => return out.gap(&TURBO, &gap),
        }
    }
    out.ok(&TURBO, "The kernel does not switch turbo frequencies.");
}

/// Most idle states of a processor. Source: Linux `include/linux/cpuidle.h`, `CPUIDLE_STATE_MAX`.
const STATES_MAX: u32 = 10;

fn idle(machine: &Machine, out: &mut Findings) {
    let Some(cpu) = machine.cpus().first().copied() else {
        return out.unknown(&IDLE, "No processor is known.");
    };
    let mut deepest: Option<(u64, String)> = None;
    for state in 0..STATES_MAX {
        let folder = format!("{FOLDER}/cpu{cpu}/cpuidle/state{state}");
        let (Ok(name), Ok(latency)) = (
            machine.root.text(&format!("{folder}/name")),
            machine.root.number::<u64>(&format!("{folder}/latency")),
        ) else {
            continue;
        };
        let enabled = machine.root.number::<u8>(&format!("{folder}/disable")).map_or(true, |off| off == 0);
        if enabled && deepest.as_ref().is_none_or(|(most, _)| latency >= *most) {
            deepest = Some((latency, name));
        }
    }
    match deepest {
        Some((latency, name)) => {
            out.ok(&IDLE, format!("The deepest state of processor {cpu} is {name}, left in {latency} us."));
        }
        None => out.ok(&IDLE, "The kernel shows no idle states."),
    }
}

/// Clock sources that the kernel reads without a system call. Source: Linux `arch/x86/include/asm/vdso/clocksource.h` (tsc, pvclock,
/// hvclock), `drivers/clocksource/arm_arch_timer.c`.
const CHEAP: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// The first processor of a machine stands in the first bytes.
const CPUINFO_BYTES: u64 = 16 << 10;

fn clock(machine: &Machine, out: &mut Findings) {
    const SOURCES: &str = "sys/devices/system/clocksource/clocksource0";
    let current = match machine.root.text(&format!("{SOURCES}/current_clocksource")) {
        Ok(current) => current,
        Err(gap) => return out.gap(&CLOCK, &gap),
    };
    let available = machine.root.text(&format!("{SOURCES}/available_clocksource")).unwrap_or_default();
    let has_tsc = available.split_whitespace().any(|source| source == "tsc");
    let cpuinfo = match machine.root.head("proc/cpuinfo", CPUINFO_BYTES) {
        Ok(cpuinfo) => cpuinfo,
        Err(gap) => return out.gap(&CLOCK, &gap),
    };
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'));
    // Other processors have no such counter, and their clock is cheap.
    let lacking: Vec<&str> = flags.map_or_else(Vec::new, |flags| {
        let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
        ["constant_tsc", "nonstop_tsc"].into_iter().filter(|flag| !has(flag)).collect()
    });
    let steady = lacking.is_empty() && (has_tsc || flags.is_none());
    let cheap = CHEAP.contains(&current.as_str());
    if steady && cheap {
        let counter = if flags.is_some() { "; the time stamp counter is steady" } else { "" };
        return out.ok(&CLOCK, format!("The clock source is {current}{counter}."));
    }
    if has_tsc && lacking.is_empty() {
        let what = format!("The clock source is {current}; tsc can be had.");
        return out.advice(&CLOCK, what, Mend::root(format!("echo tsc > /{SOURCES}/current_clocksource")));
    }
    let reason = if lacking.is_empty() {
        "the kernel does not list tsc".to_owned()
    } else {
        format!("the processor lacks {}", lacking.join(" and "))
    };
    let what = format!("The time stamp counter is not steady ({reason}); the clock source is {current}.");
    let mend = "`dmesg | grep -i tsc` shows why. In a guest, let the hypervisor pass the counter on (QEMU: `-cpu host,+invtsc`).";
    out.advice(&CLOCK, what, Mend::action(mend));
}
