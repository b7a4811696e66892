//! The program that is run: where it is, whether a library can be loaded into it, how it ends.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Status of a program that is not there, as a shell has it.
pub(crate) const NOT_FOUND: u8 = 127;

/// Where the program is that a shell would run.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        Some(PathBuf::from(name)).filter(|path| runs(path))
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| runs(path))
    }
}

/// Refuses programs that load no libraries.
///
/// Source: the System V ABI's object file format, and `PT_INTERP` in elf(5).
pub(crate) fn takes_libraries(path: &Path) -> Result<(), String> {
    const HEADER: usize = 64;
    const INTERPRETER: u32 = 3;
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(1 << 16).read_to_end(&mut bytes));
    read.map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    // A script's interpreter is a program of its own.
    if bytes.len() < HEADER || !bytes.starts_with(b"\x7fELF\x02\x01") {
        return if bytes.starts_with(b"#!") {
            Ok(())
        } else {
            Err(format!("{} is neither a script nor a program for 64-bit processors", path.display()))
        };
    }
    let half = |at: usize| bytes.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    let table = bytes[32..40].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let (entry, count) = (usize::from(half(54)), usize::from(half(56)));
    let kind = |index: usize| {
        let at = usize::try_from(table).ok()?.checked_add(index.checked_mul(entry)?)?;
        let four = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
    };
    if (0..count).any(|index| kind(index) == Some(INTERPRETER)) {
        return Ok(());
    }
    Err(format!("{} is linked statically: no library can be loaded into it", path.display()))
}

/// Runs the program to its end. Signals go to it.
pub(crate) fn run(mut command: Command, name: &str) -> Result<ExitCode, String> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(|why| format!("cannot wait for signals: {why}"))?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(why) if why.kind() == ErrorKind::NotFound => {
            eprintln!("mlx5-run: there is no interpreter for {name}");
            return Ok(ExitCode::from(NOT_FOUND));
        }
        Err(why) => return Err(format!("cannot run {name}: {why}")),
    };
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    let forwards = std::thread::spawn(move || {
        for signal in &mut signals {
            // A terminal has sent its own to all of the foreground.
            if signal != SIGINT
                && let Some(signal) = Signal::from_named_raw(signal)
            {
                let _ended = kill_process(pid, signal);
            }
        }
    });
    let status = child.wait().map_err(|why| format!("cannot wait for {name}: {why}"))?;
    handle.close();
    let _ended = forwards.join();
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
