//! A file that a program writes at its end: what was there stays until the new text is whole.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where a report goes. It is looked at before the work that the report is of, so that a place that takes none is told of at once.
#[derive(Debug)]
pub struct OutputFile {
    named: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A file, new or in the place of another one.
    File { folder: PathBuf, path: PathBuf },
    /// A pipe, a terminal: it cannot be replaced.
    Stream,
}

impl OutputFile {
    /// Sees whether it can be written to, and writes nothing.
    ///
    /// # Errors
    /// The kernel's answer, as for opening it.
    pub fn at(named: &Path) -> io::Result<Self> {
        Ok(Self { named: named.to_owned(), place: Place::of(named)? })
    }

    /// The path that was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.named
    }

    /// Writes it, in one step for whoever reads it.
    ///
    /// # Errors
    /// The kernel's answer; what was there is as it was.
    pub fn write(&self, text: &[u8]) -> io::Result<()> {
        match &self.place {
            Place::File { folder, path } => {
                let mut file = beside(folder)?;
                file.write_all(text)?;
                file.as_file().sync_all()?;
                file.persist(path).map(drop).map_err(|kept| kept.error)
            }
            Place::Stream => File::options().write(true).open(&self.named)?.write_all(text),
        }
    }
}

impl Place {
    fn of(named: &Path) -> io::Result<Self> {
        // Behind a link the file that it leads to is replaced, not the link.
        let path = named.canonicalize().unwrap_or_else(|_| named.to_owned());
        let is_there = path.try_exists()?;
        if is_there && !path.metadata()?.is_file() {
            return Ok(Self::Stream);
        }
        if is_there {
            let _may_be_written = File::options().write(true).open(&path)?;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _may_be_made = beside(folder)?;
        Ok(Self::File { folder: folder.to_owned(), path })
    }
}

/// A file that is gone with its value, unless it takes its place by then.
fn beside(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    // As any file is made: the umask takes away.
    let rights = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".report-").permissions(rights).tempfile_in(folder)
}
