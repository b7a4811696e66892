//! Programs of tests that wait for other processes most of the time: more of their tests run at once than there are processors.
//!
//! Cargo starts each program of tests by a runner, this one, which becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Outcome, TARGET};

/// Those of `cargo test --workspace` that end much sooner so. What measures time is not among them.
const WAITING: &[&str] = &["kernel", "programs", "rdma", "traffic"];
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
    if waits(&args.program) {
        command.env("RUST_TEST_THREADS", THREADS);
    }
    Err(format!("cannot start {}: {}", args.program.display(), command.exec()))
}

/// By the name that cargo gave it, with a hash behind.
fn waits(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('-'));
    name.is_some_and(|(name, _)| WAITING.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_name() {
        for (path, is_one) in [
            ("target/debug/deps/rdma-0123", true),
            ("deps/rdma_loss-0123", false),
            ("rdma", false),
            ("a/run-1", false),
        ] {
            assert_eq!(waits(Path::new(path)), is_one, "{path}");
        }
    }
}
