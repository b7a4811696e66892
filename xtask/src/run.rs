//! Starting other programs, and saying clearly what failed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a task answers: nothing, or one line that says what failed.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The top of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Where programs built by `cargo build --release` stand.
pub(crate) fn release_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("release")
}

/// A `cargo` command at the top of the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Runs a command to its end with our own output streams.
pub(crate) fn must(command: &mut Command) -> Outcome {
    let shown = shown(command);
    eprintln!("xtask: {shown}");
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` ended with {status}")),
        Err(why) => Err(format!("cannot start `{shown}`: {why}")),
    }
}

/// Runs a command and gives back what it wrote on standard output.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let shown = shown(command);
    match command.stdin(Stdio::null()).stderr(Stdio::inherit()).output() {
        Ok(done) if done.status.success() => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        Ok(done) => Err(format!("`{shown}` ended with {}", done.status)),
        Err(why) => Err(format!("cannot start `{shown}`: {why}")),
    }
}

fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
