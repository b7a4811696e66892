//! What runs in a guest.

use std::path::PathBuf;
use std::time::Duration;

use crate::run::{Outcome, cargo, output, root};

/// Commands that run one after the other in the guest, until one fails.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    commands: &'static [&'static [&'static str]],
    seconds: u64,
    /// Whether it runs tests, of which some must have passed and none may be skipped.
    pub(crate) tests: bool,
}

/// A program of ours and where the guest has it.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) inside: &'static str,
}

/// Programs are linked statically for this target: the guest's libraries are none of ours. Naming the target keeps the
/// flag away from build scripts and procedural macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn all() -> Vec<Job> {
    vec![Job {
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
    }]
}

/// Builds every program that the jobs name.
pub(crate) fn build(jobs: &[Job]) -> Outcome<Vec<Program>> {
    let mut programs = vec![Program { file: binary("guest_init")?, inside: "/init" }];
    let named = |inside: &str| {
        jobs.iter().flat_map(|job| job.commands).flat_map(|words| *words).any(|word| *word == inside)
    };
    if named("/ours/uverbs") {
        programs.push(Program { file: test_binary("pollux-uverbs", "uverbs")?, inside: "/ours/uverbs" });
    }
    Ok(programs)
}

fn build_with(args: &[&str]) -> Outcome<String> {
    let target = root().join("target/guest");
    output(
        cargo(args)
            .args(["--target", TARGET, "--message-format", "json-render-diagnostics"])
            .env(
                "CARGO_TARGET_DIR",
                std::env::var_os("CARGO_TARGET_DIR").map_or(target, |dir| PathBuf::from(dir).join("guest")),
            )
            .env("CARGO_PROFILE_TEST_STRIP", "debuginfo")
            .env("CARGO_PROFILE_DEV_STRIP", "debuginfo")
            .env("RUSTFLAGS", "-C target-feature=+crt-static"),
    )
}

fn binary(name: &str) -> Outcome<PathBuf> {
    executable(&build_with(&["build", "--package", "pollux-tests", "--bin", name])?, name)
}

fn test_binary(package: &str, name: &str) -> Outcome<PathBuf> {
    executable(&build_with(&["test", "--no-run", "--package", package, "--test", name])?, name)
}

/// Finds the path of a program in what cargo said.
fn executable(said: &str, name: &str) -> Outcome<PathBuf> {
    said.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| format!("cargo built no program {name}"))
}

/// The jobs as the guest's first process reads them.
pub(crate) fn describe(jobs: &[Job]) -> String {
    let jobs: Vec<_> = jobs
        .iter()
        .map(|job| serde_json::json!({ "name": job.name, "commands": job.commands, "seconds": job.seconds }))
        .collect();
    serde_json::Value::from(jobs).to_string()
}

/// How long a guest may take: its jobs one after the other, and a minute to boot and to end.
pub(crate) fn limit(jobs: &[Job]) -> Duration {
    Duration::from_secs(60 + jobs.iter().map(|job| job.seconds).sum::<u64>())
}
