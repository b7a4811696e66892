//! A disk that is soon full.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::netns::must;

/// A file system in memory of a given size, on a folder of its own; gone when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts one. Needs root.
    ///
    /// # Panics
    /// When it cannot be mounted.
    #[must_use]
    pub fn new(kibibytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|why| panic!("no temporary folder: {why}"));
        let size = format!("size={kibibytes}k");
        must(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder.path()));
        Self { folder }
    }

    /// A file on it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Files that are still open keep it until they are closed.
        drop(Command::new("umount").arg("--lazy").arg(self.path()).output());
    }
}
