//! What is a run's as long as any of its processes lives, and is cleared away by a later run if none of them did.
//!
//! A lease is a lock of a file, flock(2), by a descriptor that the program and all that it starts inherit: the lock ends with the last of
//! them, however they end.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use pollux_mlx5_run::DESCRIPTORS_FROM;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use tempfile::TempDir;

/// The file of a folder's lease.
const LOCK: &str = "lock";
/// How folders' names begin.
const PREFIX: &str = "mlx5-run-";

/// A file that is held.
#[derive(Debug)]
pub(crate) struct Lease {
    _file: OwnedFd,
}

impl Lease {
    /// Takes a lease, unless somebody has it.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        Self::of(&file)
    }

    fn of(file: &File) -> io::Result<Option<Self>> {
        if flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        // Where there are no descriptors so high, any.
        let held = fcntl_dupfd_cloexec(file, DESCRIPTORS_FROM).or_else(|_| fcntl_dupfd_cloexec(file, 3))?;
        fcntl_setfd(&held, FdFlags::empty())?;
        Ok(Some(Self { _file: held }))
    }
}

/// A folder of this run's own, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    _lease: Lease,
}

impl Folder {
    /// Makes one, and removes those of runs of this user's whose processes have all ended.
    pub(crate) fn make() -> io::Result<Self> {
        remove_left(&std::env::temp_dir());
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        // It has its name once it is held, so that nobody takes it for left.
        let unnamed = folder.path().join("taken");
        let lease = Lease::take(&unnamed)?.ok_or(io::ErrorKind::ResourceBusy)?;
        fs::rename(unnamed, folder.path().join(LOCK))?;
        Ok(Self { folder, _lease: lease })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn remove_left(parent: &Path) {
    let user = rustix::process::getuid().as_raw();
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // Not through a link, and not another user's.
        let own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        let lock = OpenOptions::new().write(true).open(entry.path().join(LOCK));
        if own
            && let Ok(lock) = lock
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _left = fs::remove_dir_all(entry.path());
        }
    }
}
