//! The program that is to run: where it is, and whether a library can be loaded into it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Status of a program that is not there, as a shell has it.
pub const NOT_FOUND: u8 = 127;
/// Status of one that may not be run, or into which no library can be loaded.
pub const NOT_EXECUTABLE: u8 = 126;

/// Why a program cannot be run, in one line, and the status for it.
pub type Refusal = (String, u8);

/// Where the program is that a shell would run.
///
/// # Errors
/// There is none, or it may not be run.
pub fn find(name: &str) -> Result<PathBuf, Refusal> {
    let is_file = |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file());
    let runs = |path: &Path| {
        is_file(path) && fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
    };
    let places: Vec<PathBuf> = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).map(|folder| folder.join(name)).collect()
    };
    if let Some(found) = places.iter().find(|path| runs(path)) {
        return Ok(found.clone());
    }
    if let Some(file) = places.iter().find(|path| path.exists()) {
        let why = if is_file(file) {
            "is not executable: chmod +x makes it so, or name its interpreter"
        } else {
            "is not a file"
        };
        return Err((format!("{} {why}", file.display()), NOT_EXECUTABLE));
    }
    let place = if name.contains('/') { "" } else { " in PATH" };
    Err((format!("there is no program {name}{place}"), NOT_FOUND))
}

/// Refuses programs that load no libraries.
///
/// # Errors
/// It is one, or nothing that is run.
///
/// Source: the System V ABI's object file format, and `PT_INTERP` in elf(5).
pub fn takes_libraries(path: &Path) -> Result<(), Refusal> {
    const HEADER: usize = 64;
    const INTERPRETER: u32 = 3;
    let refuse = |why: String| (format!("{} {why}", path.display()), NOT_EXECUTABLE);
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(1 << 16).read_to_end(&mut bytes));
    read.map_err(|why| refuse(format!("cannot be read: {why}")))?;
    // A script's interpreter is a program of its own.
    if bytes.starts_with(b"#!") {
        return Ok(());
    }
    if bytes.len() < HEADER || !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err(refuse("is neither a script nor a program for 64-bit processors".into()));
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
    Err(refuse("is linked statically: no library can be loaded into it".into()))
}
