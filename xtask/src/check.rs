//! The checks that a change passes before it lands.

use std::process::Command;

use crate::run::{Outcome, TARGET, cargo, must, root, target_dir};
use crate::{example, tidy, waiting};

/// Formatting, clippy, layout rules, packages, documentation and tests, in that order.
pub(crate) fn check() -> Outcome {
    must(&mut cargo(&["fmt", "--all", "--check"]))?;
    example::locked()?;
    must(&mut cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))?;
    tidy::tidy()?;
    package()?;
    must(cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    must(&mut cargo(&["test", "--workspace", &waiting::runner()?]))
}

/// What a registry would be given, without building it: each dependency has a version, and nothing is missing.
fn package() -> Outcome {
    let mut command = cargo(&["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"]);
    for name in tidy::UNPUBLISHED {
        command.arg(format!("--exclude=pollux-{name}"));
    }
    must(&mut command)
}

/// The crates that have loom models.
pub(crate) const LOOM_CRATES: &[&str] = &["ring", "lookup", "eal", "mempool", "capture", "port"];

/// Cargo for those loom models of crates whose names have `test` in them. A target is named, here and elsewhere, so that flags do not reach
/// procedural macros and build scripts: those are built already.
pub(crate) fn loom_cargo(packages: &[&str], test: &str) -> Command {
    let mut command = cargo(&["test", "--lib", "--target", TARGET, test]);
    command.args(packages.iter().map(|package| format!("--package=pollux-{package}")));
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("CARGO_PROFILE_TEST_OPT_LEVEL", "3");
    // What is not in a model's loop is built far longer than it runs.
    for slow in ["'*'", "pollux-tests"] {
        command.arg(format!("--config=profile.test.package.{slow}.opt-level=0"));
    }
    for fast in ["loom", "generator"] {
        command.arg(format!("--config=profile.test.package.{fast}.opt-level=3"));
    }
    command
}

/// The loom models, with at most so many preemptions if a number is given, else with as many as each model says.
pub(crate) fn loom(preemptions: Option<u32>) -> Outcome {
    let mut command = loom_cargo(LOOM_CRATES, "loom_tests");
    if let Some(most) = preemptions {
        command.env("POLLUX_PREEMPTIONS", most.to_string());
    }
    must(&mut command)
}

/// Those that synchronise by atomics of their own. The standard library's locks are not instrumented, and to build
/// the library anew (`-Zbuild-std`) takes its source, a component (`rust-src`) that is not installed with a toolchain; so
/// under the thread sanitizer whatever a lock protects is reported as a race.
pub(crate) const LOCK_FREE_CRATES: &[&str] = &["ring"];

/// The unit tests of the unsafe crates, those in `src`, under both sanitizers; what only tests in `tests/` reach is not covered. The flags are unstable, hence `RUSTC_BOOTSTRAP`; the sanitized
/// code is only ever a test. It is built apart: `RUSTC_BOOTSTRAP` changes what build scripts of macros find out, and would have all else
/// built again that stands on these.
pub(crate) fn sanitize() -> Outcome {
    let folder = target_dir().join("sanitize");
    let lock_free = LOCK_FREE_CRATES.to_vec();
    for (sanitizer, packages) in [("address", tidy::unsafe_libraries()), ("thread", lock_free)] {
        let mut command = cargo(&["test", "--lib", "--target", TARGET]);
        for package in packages {
            command.arg(format!("--package=pollux-{package}"));
        }
        let mut flags = format!("-Zsanitizer={sanitizer}");
        if sanitizer == "thread" {
            flags.push_str(" -Cunsafe-allow-abi-mismatch=sanitizer");
            // The tests in which threads meet: the others' libraries share what only locks protect.
            command.args(["--", "stress", "--test-threads=1"]);
            // Suppressions name functions that are inlined: a stack has their paths in full debug information alone.
            command.env("CARGO_PROFILE_DEV_DEBUG", "full").env("CARGO_PROFILE_TEST_DEBUG", "full");
        } else {
            // It is built far longer than it runs; and what the optimiser would take away is looked at, too.
            command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_TEST_OPT_LEVEL", "0");
        }
        must(
            command
                .env("CARGO_TARGET_DIR", &folder)
                .env("RUSTC_BOOTSTRAP", "1")
                .env("RUSTFLAGS", flags)
                .env("TSAN_OPTIONS", format!("suppressions={}", root().join("xtask/tsan.supp").display())),
        )?;
    }
    Ok(())
}
