//! The long forms of what `check` and the other tasks try in short.

use std::process::Command;

use crate::check::{LOCK_FREE_CRATES, loom};
use crate::run::{Outcome, cargo, must, root, target_dir};
use crate::{mutant, relax, vm};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also run the virtual-machine jobs on every kernel (hours)
    #[arg(long)]
    vm: bool,
    /// Number of seeds for the seeded tests
    #[arg(long, default_value_t = 10_000)]
    seeds: u32,
}

/// Tests that draw their scenes: as many seeds as `POLLUX_SEEDS` says, or cases as `PROPTEST_CASES`.
const SEEDED: &[&[&str]] = &[
    &["--package=pollux-mlx5-model", "--test=device", "seeds"],
    &["--package=pollux-ring", "--lib", "oracle"],
    &["--package=pollux-ring", "--lib", "guards_agree"],
    &["--package=pollux-mempool", "--test=model"],
];

/// Runs all of them; what fails is said at the end, and does not keep the others from running.
pub(crate) fn nightly(args: &Args) -> Outcome {
    let mut failed = Vec::new();
    let mut step = |name: &'static str, outcome: Outcome| {
        if let Err(why) = outcome {
            eprintln!("xtask: nightly: {name}: {why}");
            failed.push(name);
        }
    };
    step("seeds", seeds(args.seeds));
    step("packets", packets());
    step("transfers", transfers());
    step("loom", loom(None));
    step("relaxations", relax::relaxations());
    step("mutants", mutant::mutants(&mutant::Args::all()));
    step("miri", miri());
    step("thread sanitizer", thread_sanitizer());
    if args.vm {
        step("virtual machines", vm::vm(&vm::Args::all()));
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("nightly: failed: {}", failed.join(", "))) }
}

fn seeds(count: u32) -> Outcome {
    for which in SEEDED {
        must(
            cargo(&["test"])
                .args(*which)
                .env("POLLUX_SEEDS", count.to_string())
                .env("PROPTEST_CASES", count.to_string()),
        )?;
    }
    Ok(())
}

/// From port to port, ten times as many as `check` sends.
fn packets() -> Outcome {
    let test = ["test", "--package=pollux-pmd-mlx", "--test=model", "crossing"];
    must(cargo(&test).env("POLLUX_PACKETS", "10000000"))
}

/// Between hosts that forwarders join, four times as much as `check` transfers.
fn transfers() -> Outcome {
    must(cargo(&["test", "--workspace", "--test=traffic"]).env("POLLUX_MEBIBYTES", "256"))
}

/// The rings and the pools under Miri, where a toolchain has it. The product stays on stable.
fn miri() -> Outcome {
    if !succeeds(Command::new("cargo").args(["+nightly", "miri", "--version"])) {
        eprintln!(
            "xtask: nightly: no Miri: `rustup toolchain install nightly --component miri,rust-src` brings it; skipped"
        );
        return Ok(());
    }
    // Many of its threads would be the same as few, and take hours.
    for (package, skipped) in [("pollux-ring", "stress"), ("pollux-mempool", "moves")] {
        let mut command = Command::new("cargo");
        command.current_dir(root()).args(["+nightly", "miri", "test", "--lib", "--package", package, "--"]);
        // Memory is mapped by system calls and named by number, which Miri takes for permissive provenance.
        must(
            command
                .args(["--skip", skipped])
                .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance")
                .env("PROPTEST_CASES", "8")
                .env("CARGO_TARGET_DIR", target_dir().join("miri")),
        )?;
    }
    Ok(())
}

/// The crates with atomics of their own under the thread sanitizer, with a standard library that is instrumented too, so that what
/// locks protect is no race.
fn thread_sanitizer() -> Outcome {
    let sysroot = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    let sysroot =
        sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let source = std::path::Path::new(&sysroot).join("lib/rustlib/src/rust/library/Cargo.lock");
    if sysroot.is_empty() || !source.exists() {
        eprintln!(
            "xtask: nightly: no source of the standard library for `-Zbuild-std`: `rustup toolchain install nightly --component \
             rust-src` brings it; skipped (`cargo xtask sanitize` has the rings without it)"
        );
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.current_dir(root()).args([
        "+nightly",
        "test",
        "-Zbuild-std",
        "--lib",
        "--target",
        crate::run::TARGET,
    ]);
    for package in LOCK_FREE_CRATES.iter().chain(&["mempool", "port"]) {
        command.arg(format!("--package=pollux-{package}"));
    }
    must(
        command
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            .env("TSAN_OPTIONS", format!("suppressions={}", root().join("xtask/tsan.supp").display()))
            .env("CARGO_TARGET_DIR", target_dir().join("thread-std")),
    )
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
