//! Programs as a user runs them, ours and DPDK's.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use pollux_tests::require::PYTHON;

/// How a run ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> End {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output().expect("it runs");
    End {
        status: output.status.code().expect("no signal ended it"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A script of DPDK's.
pub(crate) fn script(script: &Path, arguments: &[&str]) -> End {
    run(PYTHON, [script.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)))
}

/// Holds a run to have failed with one line, which says this.
#[track_caller]
pub(crate) fn refused(end: &End, status: i32, said: &str) {
    assert_eq!((end.status, end.stdout.as_str()), (status, ""), "{end:?}");
    assert!(end.stderr.contains(said), "{end:?}");
}
