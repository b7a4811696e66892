//! A file that is read again when it changes.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What tells one content of a file from another: device, inode, bytes, and the times of the last change of content and of inode.
type Stamp = (u64, u64, u64, [i64; 4]);

fn stamp(file: &Metadata) -> Stamp {
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
    (file.dev(), file.ino(), file.len(), times)
}

/// A file of rules, say, that a running program reads again when it changes.
///
/// ```
/// use pollux_kit::WatchedFile;
///
/// # let path = std::env::temp_dir().join(format!("pollux-watched-{}", std::process::id()));
/// std::fs::write(&path, "drop tcp")?;
/// let mut rules = WatchedFile::new(&path);
/// assert_eq!(rules.read(1 << 20).as_deref(), Ok("drop tcp"));
/// // Some times a second, on a control thread:
/// assert!(!rules.has_changed());
/// std::fs::write(&path, "drop udp 53")?;
/// assert!(!rules.has_changed(), "who writes it may not be done");
/// assert!(rules.has_changed());
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct WatchedFile {
    path: PathBuf,
    /// As it was when it was read; none: it was not there.
    read: Option<Stamp>,
    /// As it was at the last look.
    seen: Option<Stamp>,
}

impl WatchedFile {
    /// The file at `path`, which need not be there yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), read: None, seen: None }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is another one than was read, and has been so since the last look: who writes it is done then. To be asked some times a
    /// second; costs a system call. A file that is gone has changed too.
    pub fn has_changed(&mut self) -> bool {
        let now = fs::metadata(&self.path).ok().as_ref().map(stamp);
        let before = std::mem::replace(&mut self.seen, now);
        now == before && now != self.read
    }

    /// Its text, with a mark for each byte that is none. What changes meanwhile counts as a change.
    ///
    /// # Errors
    /// One line, with the path: it cannot be read, is no regular file, or has more than `bytes_max` bytes.
    pub fn read(&mut self, bytes_max: u64) -> Result<String, String> {
        let path = &self.path;
        let cannot = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
        self.read = None;
        let about = fs::metadata(path).map_err(|why| cannot(&why))?;
        self.read = Some(stamp(&about));
        if !about.is_file() {
            return Err(cannot(&"it is not a regular file"));
        }
        let mut text = Vec::new();
        // It may grow meanwhile.
        let read = File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut text));
        read.map_err(|why| cannot(&why))?;
        if text.len() as u64 > bytes_max {
            return Err(cannot(&format!("it has more than {bytes_max} bytes")));
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
