//! The checks that a change passes before it lands.

use crate::run::{Outcome, cargo, must, root};
use crate::tidy;

/// Formatting, clippy, layout rules, documentation and tests, in that order.
pub(crate) fn check() -> Outcome {
    must(&mut cargo(&["fmt", "--all", "--check"]))?;
    must(&mut cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))?;
    tidy::tidy()?;
    must(cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    must(&mut cargo(&["test", "--workspace"]))
}

/// The loom models. They get a target directory of their own: `--cfg loom` rebuilds everything.
pub(crate) fn loom() -> Outcome {
    must(
        cargo(&["test", "--release", "--package", "pollux-ring", "--lib", "loom_tests"])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", root().join("target/loom")),
    )
}

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The crates that hold unsafe code and run without privileges.
const UNSAFE_CRATES: [&str; 4] = ["pollux-ring", "pollux-mempool", "pollux-eal", "pollux-port-soft"];

/// Tests of the unsafe crates under both sanitizers. The flags are unstable, hence `RUSTC_BOOTSTRAP`; the sanitized
/// code is only ever a test.
pub(crate) fn sanitize() -> Outcome {
    for sanitizer in ["address", "thread"] {
        let mut command = cargo(&["test", "--release", "--lib", "--tests", "--target", TARGET]);
        for package in UNSAFE_CRATES {
            command.args(["--package", package]);
        }
        let mut flags = format!("-Zsanitizer={sanitizer}");
        if sanitizer == "thread" {
            // The standard library is not instrumented and cannot be rebuilt from a stable toolchain.
            flags.push_str(" -Cunsafe-allow-abi-mismatch=sanitizer");
        }
        must(
            command
                .env("RUSTC_BOOTSTRAP", "1")
                .env("RUSTFLAGS", flags)
                .env("TSAN_OPTIONS", format!("suppressions={}", root().join("xtask/tsan.supp").display()))
                .env("CARGO_TARGET_DIR", root().join("target").join(sanitizer)),
        )?;
    }
    Ok(())
}
