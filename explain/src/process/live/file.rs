//! The file that a program writes a trace to. The program names it, and may be hostile while `explain` has rights that it lacks: no file but
//! a trace of its own is opened or removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::process::{Told, plain};

/// Bytes that are read at once.
const AT_ONCE: u64 = 1 << 20;
/// No line of a trace is longer: an attribute of 64 KiB each way, and names.
const LINE_MAX: usize = 1 << 20;
/// Most that is still read behind the end: what a program writes at most (`bringup/src/telemetry/trace.rs`).
const LEFT_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    file: File,
    /// A line that is not whole yet.
    rest: Vec<u8>,
    read: u64,
    /// Nothing behind it is read.
    end: u64,
}

impl TraceFile {
    /// Opens the file that the program named.
    pub(super) fn open(path: PathBuf, told: &Told) -> io::Result<Self> {
        let refused = |why: &dyn std::fmt::Display| {
            io::Error::other(format!("{}: {why}", plain(&path.to_string_lossy())))
        };
        let own = format!("uverbs_trace.{}.", told.pid());
        let is_own = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own));
        if !is_own || path.parent() != Some(told.directory()) {
            return Err(refused(
                &"is no trace of that process beside its telemetry socket; it is not opened",
            ));
        }
        // Neither what a link names nor a pipe that nobody writes to.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(&path);
        let file = file.map_err(|why| refused(&why))?;
        let about = file.metadata().map_err(|why| refused(&why))?;
        if !about.is_file() || about.uid() != told.user() {
            return Err(refused(&"is no file of that process's user; it is not read"));
        }
        // By this the program sees that it is read. If it looks at this moment it never does, and writes up to its limit.
        let _locked = file.try_lock_shared();
        Ok(Self { path, file, rest: Vec::new(), read: 0, end: u64::MAX })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it was removed, as another watcher's trace removes it.
    pub(super) fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|about| about.nlink() == 0)
    }

    /// The next whole lines, which may be none; `None` where nothing was written since.
    pub(super) fn lines(&mut self) -> io::Result<Option<Vec<u8>>> {
        let most = AT_ONCE.min(self.end.saturating_sub(self.read));
        let read = Read::by_ref(&mut self.file).take(most).read_to_end(&mut self.rest)?;
        if read == 0 {
            return Ok(None);
        }
        self.read += read as u64;
        if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
            return Ok(Some(self.rest.drain(..=end).collect()));
        }
        if self.rest.len() > LINE_MAX {
            self.rest.clear();
        }
        Ok(Some(Vec::new()))
    }

    /// What is written from now on is not read.
    pub(super) fn stop(&mut self) {
        let written = self.file.metadata().map_or(0, |about| about.len());
        self.end = self.end.min(written).min(self.read + LEFT_MAX);
    }

    /// Removes it, which the program does itself unless it was killed.
    pub(super) fn remove(&self) {
        let _gone = fs::remove_file(&self.path);
    }
}
