//! What runs in a guest.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::run::{Outcome, cargo, output, root};

/// Commands that run one after the other in a guest of their own, until one fails.
#[derive(Default)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// The guest's functions of the device model, by their wires.
    pub(crate) wires: &'static [Wire],
    /// The guest has a network card whose wire ends at the host's own device model, and another one through which TCP
    /// connections come and go.
    pub(crate) across: bool,
    commands: &'static [&'static [&'static str]],
    /// Programs of `apps` that it starts, as the guest has them.
    apps: &'static [&'static str],
    seconds: u64,
    /// Whether it runs tests, of which some must have passed and none may be skipped.
    pub(crate) tests: bool,
    /// What the kernel's log must have. The drivers of a job that has this may warn; the guest ends at once, for they wait for
    /// a device that is gone.
    pub(crate) reports: &'static [&'static str],
    /// Runs with `--all` alone.
    pub(crate) long: bool,
}

/// The wire of a function.
#[derive(Clone, Copy)]
pub(crate) enum Wire {
    /// To the other function with the same name.
    Cable(&'static str),
    /// To the host, which sends and receives there.
    Host,
}

/// A program of ours and where the guest has it.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) inside: &'static str,
}

/// Programs are linked statically for this target: the guest's libraries are none of ours. Naming the target keeps the
/// flag away from build scripts and procedural macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The functions' program, which runs on the host.
pub(crate) const DEVICE: &str = "mlx5-device";

const CABLE: &[Wire] = &[Wire::Cable("a"), Wire::Cable("a")];
const HOST: &[Wire] = &[Wire::Host, Wire::Host];

/// The programs whose originals the guest has.
const ORIGINALS: &[&str] = &[
    "/ours/rc_pingpong",
    "/ours/uc_pingpong",
    "/ours/ud_pingpong",
    "/ours/srq_pingpong",
    "/ours/xsrq_pingpong",
    "/ours/send_bw",
    "/ours/send_lat",
    "/ours/write_bw",
    "/ours/write_lat",
    "/ours/read_bw",
    "/ours/read_lat",
    "/ours/atomic_bw",
    "/ours/atomic_lat",
];

/// A job of tests of `tests/tests/guest`.
macro_rules! tests {
    ($name:literal, $filter:literal, $wires:expr, $seconds:literal) => {
        Job {
            name: $name,
            wires: $wires,
            apps: &["/ours/l2fwd"],
            commands: &[&["POLLUX_REQUIRE=guest", "/ours/guest", $filter, "--test-threads=1"]],
            seconds: $seconds,
            tests: true,
            ..Job::default()
        }
    };
}

pub(crate) fn all() -> Vec<Job> {
    vec![
        Job {
            name: "uverbs-rxe",
            commands: &[
                &["modprobe", "ib_uverbs"],
                &["modprobe", "rdma_rxe"],
                &["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
                &["ip", "address", "add", "10.0.0.1/24", "dev", "v0"],
                &["ip", "address", "add", "10.0.0.2/24", "dev", "v1"],
                &["ip", "link", "set", "v0", "up"],
                &["ip", "link", "set", "v1", "up"],
                &["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "v0"],
                // Until then IPv6 is not sure of its addresses, and resolves none.
                &["sleep", "2"],
                &["POLLUX_REQUIRE=rxe", "/ours/uverbs", "kernel::", "--test-threads=1"],
            ],
            seconds: 120,
            tests: true,
            ..Job::default()
        },
        Job {
            name: "verbs-rxe",
            commands: &[
                &["modprobe", "ib_uverbs"],
                &["modprobe", "rdma_rxe"],
                &["ip", "link", "set", "lo", "up"],
                &["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
                &["ip", "address", "add", "10.0.0.1/24", "dev", "v0"],
                &["ip", "link", "set", "v0", "up"],
                &["ip", "link", "set", "v1", "up"],
                &["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "v0"],
                &["sleep", "2"],
                &["POLLUX_REQUIRE=rxe", "/ours/verbs-rxe", "--test-threads=1"],
            ],
            seconds: 180,
            tests: true,
            ..Job::default()
        },
        Job {
            name: "originals-rxe",
            commands: &[
                &["modprobe", "ib_uverbs"],
                &["modprobe", "rdma_rxe"],
                &["ip", "link", "set", "lo", "up"],
                &["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
                &["ip", "address", "add", "10.0.0.1/24", "dev", "v0"],
                &["ip", "link", "set", "v0", "up"],
                &["ip", "link", "set", "v1", "up"],
                &["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "v0"],
                &["sleep", "2"],
                &["POLLUX_REQUIRE=guest", "/ours/guest", "originals::rxe::", "--test-threads=1"],
            ],
            apps: ORIGINALS,
            seconds: 420,
            tests: true,
            ..Job::default()
        },
        Job {
            name: "originals-across",
            across: true,
            commands: &[
                &["modprobe", "ib_uverbs"],
                &["modprobe", "rdma_rxe"],
                &["modprobe", "virtio_net"],
                &["ip", "link", "set", "lo", "up"],
                // The wire, and the way of TCP: in the order in which the host has them.
                &["ip", "address", "add", "10.1.0.2/24", "dev", "eth0"],
                &["ip", "link", "set", "eth0", "up"],
                &["ip", "address", "add", "10.0.2.15/24", "dev", "eth1"],
                &["ip", "link", "set", "eth1", "up"],
                &["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"],
                &["sleep", "2"],
                &["POLLUX_REQUIRE=guest", "/ours/guest", "originals::across::", "--test-threads=1"],
            ],
            apps: ORIGINALS,
            seconds: 420,
            tests: true,
            ..Job::default()
        },
        Job { apps: ORIGINALS, ..tests!("originals-mlx5", "originals::mlx5::", CABLE, 480) },
        tests!("mlx5-net", "net::", CABLE, 240),
        tests!("mlx5-ib", "ib::", CABLE, 120),
        tests!("mlx5-forward", "forward::", HOST, 240),
        tests!("mlx5-control", "control::", CABLE, 240),
        Job { reports: &["Fatal error"], ..tests!("mlx5-gone", "gone::", CABLE, 60) },
    ]
}

/// Builds every program that the jobs name.
pub(crate) fn build(jobs: &[Job]) -> Outcome<Vec<Program>> {
    // One profile for all, so that what they share is built once.
    let mut build = vec!["build", "--profile", "test", "--package", "pollux-tests", "--bin", "guest_init"];
    let devices = jobs.iter().any(|job| !job.wires.is_empty());
    if devices {
        build.extend(["--package", "pollux-mlx5-model", "--bin", "mlx5-device"]);
    }
    let apps: BTreeSet<&'static str> = jobs.iter().flat_map(|job| job.apps).copied().collect();
    let app = |inside: &'static str| inside.trim_start_matches("/ours/");
    if !apps.is_empty() {
        build.extend(["--package", "pollux-apps"]);
        build.extend(apps.iter().flat_map(|inside| ["--bin", app(inside)]));
    }
    let said = built(&build)?;
    let mut programs = vec![Program { file: executable(&said, "guest_init")?, inside: "/init" }];
    if devices {
        programs.push(Program { file: executable(&said, "mlx5-device")?, inside: DEVICE });
    }
    for inside in apps {
        programs.push(Program { file: executable(&said, app(inside))?, inside });
    }
    let named = |inside: &str| {
        jobs.iter().flat_map(|job| job.commands).flat_map(|words| *words).any(|word| *word == inside)
    };
    for (package, test, inside) in [
        ("pollux-uverbs", "uverbs", "/ours/uverbs"),
        ("pollux-verbs", "rxe", "/ours/verbs-rxe"),
        ("pollux-tests", "guest", "/ours/guest"),
    ] {
        if named(inside) {
            let said = built(&["test", "--no-run", "--package", package, "--test", test])?;
            programs.push(Program { file: executable(&said, test)?, inside });
        }
    }
    Ok(programs)
}

fn built(args: &[&str]) -> Outcome<String> {
    let target = root().join("target/guest");
    output(
        cargo(args)
            .args(["--target", TARGET, "--message-format", "json-render-diagnostics"])
            .env(
                "CARGO_TARGET_DIR",
                std::env::var_os("CARGO_TARGET_DIR").map_or(target, |dir| PathBuf::from(dir).join("guest")),
            )
            .env("CARGO_PROFILE_TEST_STRIP", "debuginfo")
            .env("RUSTFLAGS", "-C target-feature=+crt-static"),
    )
}

/// Finds the path of a program in what cargo said.
fn executable(said: &str, name: &str) -> Outcome<PathBuf> {
    said.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| format!("cargo built no program {name}"))
}

/// The jobs as the guest's first process reads them; of the tests of `tests/tests/guest`, those alone that `only` names.
pub(crate) fn describe(jobs: &[Job], only: Option<&str>) -> String {
    let words = |command: &&[&'static str]| {
        let mut words: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        if let (Some(only), Some(at)) = (only, words.iter().position(|word| word == "/ours/guest")) {
            words[at + 1] = only.to_owned();
        }
        words
    };
    let jobs: Vec<_> = jobs
        .iter()
        .map(|job| {
            let commands: Vec<_> = job.commands.iter().map(words).collect();
            serde_json::json!({ "name": job.name, "commands": commands, "seconds": job.seconds, "abrupt": !job.reports.is_empty() })
        })
        .collect();
    serde_json::Value::from(jobs).to_string()
}

/// How long a guest may take: its job, and a minute to boot and to end.
pub(crate) fn limit(job: &Job) -> Duration {
    Duration::from_secs(60 + job.seconds)
}
