//! What this process may do.

use crate::finding::{Check, Findings, Mend};
use crate::machine::Machine;
use crate::process::Capability;

/// `CAP_NET_RAW`.
static RAW: Check = Check {
    id: "rights.raw",
    title: "CAP_NET_RAW",
    why: "The kernel makes RAW_PACKET queue pairs and flow rules, on which an Ethernet port stands, for those who have this right. RDMA programs do without.",
    source: "Linux drivers/infiniband/core/uverbs_std_types_qp.c; DPDK doc/guides/platform/mlx5.rst, Run as Non-Root",
};

/// `CAP_NET_ADMIN`.
static ADMIN: Check = Check {
    id: "rights.admin",
    title: "CAP_NET_ADMIN",
    why: "Changing MTU, address, link or promiscuous mode of the card's interface needs it; forwarding does not.",
    source: "DPDK doc/guides/platform/mlx5.rst, Run as Non-Root",
};

/// Whether processes may read each other's memory.
static PTRACE: Check = Check {
    id: "rights.ptrace",
    title: "kernel.yama.ptrace_scope",
    why: "Under mlx5-run, the device of a program that forks reaches its children's memory with process_vm_readv(2).",
    source: "Linux Documentation/admin-guide/LSM/Yama.rst; process_vm_readv(2)",
};

/// Whether the process may count cycles and cache misses.
static PERF: Check = Check {
    id: "rights.perf",
    title: "kernel.perf_event_paranoid",
    why: "perf(1) shows where an lcore's cycles go; some distributions keep it to root.",
    source: "Linux Documentation/admin-guide/perf-security.rst",
};

pub(super) static ALL: &[&Check] = &[&RAW, &ADMIN, &PTRACE, &PERF];

pub(super) fn check(machine: &Machine, out: &mut Findings) {
    raw(machine, out);
    admin(machine, out);
    ptrace(machine, out);
    perf(machine, out);
}

fn raw(machine: &Machine, out: &mut Findings) {
    if machine.cards.is_empty() {
        return out.ok(&RAW, "No card needs it.");
    }
    let process = &machine.process;
    if process.inner_namespace {
        return out.unknown(
            &RAW,
            "This process is in a user namespace of its own: most kernels ask for the right in the first one, newer \
             ones in that of the card's network namespace.",
        );
    }
    match process.may(Capability::NetRaw) {
        Ok(true) => out.ok(&RAW, "This process has CAP_NET_RAW."),
        Err(gap) => out.gap(&RAW, &gap),
        Ok(false) => {
            let (what, mend) = if process.no_new_privileges && machine.container.is_none() {
                (
                    "This process lacks CAP_NET_RAW, and its no_new_privs flag keeps programs from gaining it.",
                    Mend::action("Start it from a shell or a unit without no_new_privs (NoNewPrivileges=)."),
                )
            } else {
                (
                    "This process lacks CAP_NET_RAW. What setcap gave to a program is not seen here.",
                    Mend::root("setcap cap_net_raw,cap_ipc_lock+ep target/release/l2fwd"),
                )
            };
            out.problem(&RAW, what, granted(machine, &["NET_RAW", "IPC_LOCK"], mend));
        }
    }
}

fn admin(machine: &Machine, out: &mut Findings) {
    if machine.cards.is_empty() {
        return out.ok(&ADMIN, "No card needs it.");
    }
    match machine.process.may(Capability::NetAdmin) {
        Ok(true) => out.ok(&ADMIN, "This process has CAP_NET_ADMIN."),
        Err(gap) => out.gap(&ADMIN, &gap),
        Ok(false) => {
            let mend = Mend::root("setcap cap_net_raw,cap_net_admin,cap_ipc_lock+ep target/release/l2fwd");
            out.advice(&ADMIN, "This process lacks CAP_NET_ADMIN.", granted(machine, &["NET_ADMIN"], mend));
        }
    }
}

/// How a container gets rights; elsewhere, `otherwise`.
pub(super) fn granted(machine: &Machine, rights: &[&str], otherwise: Mend) -> Mend {
    let options: Vec<String> = rights.iter().map(|right| format!("--cap-add={right}")).collect();
    let named = rights.join(", ");
    machine.started_with(
        &options.join(" "),
        &format!("`capabilities: {{add: [{named}]}}` in securityContext"),
        &format!("the capabilities {named}"),
        otherwise,
    )
}

fn ptrace(machine: &Machine, out: &mut Findings) {
    const FILE: &str = "proc/sys/kernel/yama/ptrace_scope";
    let scope: u32 = match machine.root.number(FILE) {
        Ok(scope) => scope,
        Err(gap) if gap.is_missing() => return out.ok(&PTRACE, "The kernel has no such limit."),
        Err(gap) => return out.gap(&PTRACE, &gap),
    };
    let allowed = scope < 2 || scope == 2 && machine.process.may(Capability::SysPtrace) == Ok(true);
    if allowed {
        return out.ok(&PTRACE, format!("ptrace_scope is {scope}."));
    }
    let mend = if scope == 2 {
        Mend::root("sysctl kernel.yama.ptrace_scope=1")
    } else {
        Mend::action("A scope of 3 stays until the next boot; boot with another one in /etc/sysctl.d.")
    };
    out.advice(
        &PTRACE,
        format!("ptrace_scope is {scope}: under mlx5-run, forked children cannot use their devices."),
        mend,
    );
}

fn perf(machine: &Machine, out: &mut Findings) {
    const FILE: &str = "proc/sys/kernel/perf_event_paranoid";
    let level: i32 = match machine.root.number(FILE) {
        Ok(level) => level,
        Err(gap) if gap.is_missing() => return out.ok(&PERF, "This kernel counts no events."),
        Err(gap) => return out.gap(&PERF, &gap),
    };
    let process = &machine.process;
    let may = [Capability::Perfmon, Capability::SysAdmin].iter().any(|right| process.may(*right) == Ok(true));
    // 2 lets a process count its own events outside of the kernel.
    if level <= 2 || may {
        return out.ok(&PERF, format!("perf_event_paranoid is {level}."));
    }
    let what = format!("perf_event_paranoid is {level}: perf(1) is for root alone.");
    out.advice(&PERF, what, Mend::root("sysctl kernel.perf_event_paranoid=2"));
}
