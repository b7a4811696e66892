//! Records of what Linux answers: a job's tests send them line by line, and `--record` has them become the golden files.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::run::{Outcome, root};

/// Where the files stand, below the top.
const GOLDEN: &str = "mlx5-kernel/tests/golden";

/// Where a job's records are until then.
fn folder(logs: &Path) -> PathBuf {
    logs.join("record")
}

/// Forgets the records of the run before.
pub(crate) fn forget(logs: &Path) {
    drop(fs::remove_dir_all(folder(logs)));
}

/// Takes `NAME LINE` to the record of that name.
pub(crate) fn take(logs: &Path, text: &str) -> Outcome<String> {
    let (name, line) = text.split_once(' ').ok_or_else(|| format!("'{text}' has no name and line"))?;
    if !name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
        || name.starts_with('.')
    {
        return Err(format!("'{name}' is no name of a record"));
    }
    let (folder, path) = (folder(logs), folder(logs).join(name));
    let failed = |why| format!("cannot write {}: {why}", path.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
    writeln!(file, "{line}").map_err(failed)?;
    Ok(String::new())
}

/// Makes the records the golden files.
///
/// # Errors
/// Also when there are none.
pub(crate) fn keep(logs: &Path) -> Outcome {
    let from = folder(logs);
    let entries = fs::read_dir(&from)
        .map_err(|_| format!("no test of the job recorded anything in {}", from.display()))?;
    for entry in entries.flatten() {
        let to = root().join(GOLDEN).join(entry.file_name());
        fs::copy(entry.path(), &to).map_err(|why| format!("cannot write {}: {why}", to.display()))?;
        println!("vm: recorded {}", to.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_by_name() {
        let logs = tempfile::tempdir().expect("a folder");
        for line in ["a.txt one two", "a.txt three", "b-1.txt x"] {
            assert_eq!(take(logs.path(), line), Ok(String::new()));
        }
        let read = |name: &str| fs::read_to_string(folder(logs.path()).join(name)).expect("a record");
        assert_eq!((read("a.txt").as_str(), read("b-1.txt").as_str()), ("one two\nthree\n", "x\n"));
        for wrong in ["a.txt", "../a x", ".a x", "A x"] {
            assert!(take(logs.path(), wrong).is_err(), "{wrong}");
        }
        forget(logs.path());
        assert!(!folder(logs.path()).exists());
    }
}
