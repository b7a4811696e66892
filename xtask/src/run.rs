//! Starting other programs, and saying clearly what failed.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::interrupt;

/// What a task answers: nothing, or one line that says what failed.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// What we build for.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The top of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Where cargo builds, and tasks write. Each kind of build that is not cargo's usual one has a folder of its own in it.
pub(crate) fn target_dir() -> PathBuf {
    // A relative one is so to where cargo runs.
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Where programs built by `cargo build --release` stand.
pub(crate) fn release_dir() -> PathBuf {
    target_dir().join("release")
}

/// A `cargo` command at the top of the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Builds programs as README.md does: for the whole workspace, whichever is wanted. A package alone has other features, and would be built
/// anew with all that it needs.
pub(crate) fn build(programs: &[&str]) -> Outcome {
    let mut args = vec!["build", "--release", "--workspace"];
    args.extend(programs.iter().flat_map(|program| ["--bin", *program]));
    must(&mut cargo(&args))?;
    if programs.contains(&"mlx5-run") { beside_programs("libpollux_mlx5_run.so") } else { Ok(()) }
}

/// Puts a library that a program was built with to the programs, where cargo puts only those that it is asked for.
fn beside_programs(library: &str) -> Outcome {
    let (from, to) = (release_dir().join("deps").join(library), release_dir().join(library));
    // It may be another name of the same file.
    drop(std::fs::remove_file(&to));
    std::fs::copy(&from, &to).map(drop).map_err(|why| format!("cannot copy {}: {why}", from.display()))
}

/// Runs a command to its end with our own output streams.
pub(crate) fn must(command: &mut Command) -> Outcome {
    eprintln!("xtask: {}", shown(command));
    run(command.stdout(Stdio::inherit())).map(drop)
}

/// Runs a command and gives back what it wrote on standard output.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    run(command.stdout(Stdio::piped()))
}

fn run(command: &mut Command) -> Outcome<String> {
    let shown = shown(command);
    if interrupt::listening() {
        // Not else: what ends this process from the terminal ends its group.
        command.process_group(0);
    }
    let started = command.stdin(Stdio::null()).spawn();
    let mut child = started.map_err(|why| format!("cannot start `{shown}`: {why}"))?;
    let reader = child.stdout.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| bytes)
        })
    });
    let status = interrupt::wait(&mut child).map_err(|why| format!("cannot wait for `{shown}`: {why}"))?;
    interrupt::check()?;
    let bytes = match reader.map(std::thread::JoinHandle::join) {
        Some(Ok(Ok(bytes))) => bytes,
        Some(_) => return Err(format!("cannot read what `{shown}` says")),
        None => Vec::new(),
    };
    ended(&shown, status).map(|()| String::from_utf8_lossy(&bytes).into_owned())
}

fn ended(shown: &str, status: ExitStatus) -> Outcome {
    if status.success() { Ok(()) } else { Err(format!("`{shown}` ended with {status}")) }
}

pub(crate) fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
