//! Programs of tests that wait for other processes most of the time: more of their tests run at once than there are processors.
//!
//! Cargo starts each program of tests by a runner, this one, which becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Outcome, TARGET, root};

/// Those of `cargo test --workspace` that end much sooner so, by their packages' folders. What measures time is not among them.
const WAITING: &[(&str, &str)] =
    &[("mlx5-run", "programs"), ("port-soft", "kernel"), ("rdma-apps", "rdma"), ("tests", "traffic")];
/// Their threads.
const THREADS: &str = "4";

#[derive(clap::Args)]
pub(crate) struct Args {
    program: PathBuf,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// What tells cargo of the runner.
pub(crate) fn runner() -> Outcome<String> {
    let this = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let this = this.to_str().ok_or_else(|| format!("{}: no UTF-8", this.display()))?;
    Ok(format!("--config=target.{TARGET}.runner=[{}, \"start\"]", toml::Value::from(this)))
}

/// Becomes the program.
pub(crate) fn start(args: &Args) -> Outcome {
    let mut command = Command::new(&args.program);
    command.args(&args.arguments);
    let folder = std::env::current_dir().map_err(|why| format!("cannot tell the folder: {why}"))?;
    if waits(&folder, &args.program) {
        command.env("RUST_TEST_THREADS", THREADS);
    }
    Err(format!("cannot start {}: {}", args.program.display(), command.exec()))
}

/// By the folder that cargo starts it in, and the name that cargo gave it, with a hash behind.
fn waits(folder: &Path, program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('-'));
    name.is_some_and(|(name, _)| {
        WAITING.iter().any(|(package, program)| folder == root().join(package) && name == *program)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_are_there() {
        for (package, program) in WAITING {
            let tests = root().join(package).join("tests");
            let places = [tests.join(format!("{program}.rs")), tests.join(program).join("main.rs")];
            assert!(places.iter().any(|place| place.exists()), "{package} has no tests called {program}");
        }
    }

    #[test]
    fn a_program_is_known_by_its_package_and_name() {
        for (folder, program, is_one) in [
            ("rdma-apps", "target/debug/deps/rdma-0123", true),
            ("pmd-mlx", "target/debug/deps/rdma-0123", false),
            ("rdma-apps", "deps/rdma_loss-0123", false),
            ("rdma-apps", "rdma", false),
        ] {
            assert_eq!(waits(&root().join(folder), Path::new(program)), is_one, "{folder} {program}");
        }
    }
}
