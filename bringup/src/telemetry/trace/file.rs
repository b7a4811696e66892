//! The file of a trace: of a length that is limited, written while its watcher lives, gone with the trace.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pollux_uverbs::trace::FULL;

/// Between two looks whether the watcher still holds its lock: so much is written at most for one that was killed.
const LOOK_BYTES: usize = 256 << 10;

/// Traces of this process so far: each has a number of its own, by which a watcher tells its own from a later one.
static TRACES: AtomicU64 = AtomicU64::new(0);

/// A trace and its file, which is removed with it.
#[derive(Debug)]
pub(super) struct TraceFile {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    lines: Lines,
}

impl TraceFile {
    /// A file in that directory, for the user of this process alone, of `bytes_max` bytes at most.
    pub(super) fn new(directory: &Path, device: &str, bytes_max: usize) -> io::Result<Self> {
        let number = TRACES.fetch_add(1, Ordering::Relaxed);
        // A device's name is the command line's.
        let plain: String = device.chars().map(|c| if c == '/' { '_' } else { c }).collect();
        let path = directory.join(format!("uverbs_trace.{}.{number}.{plain}", std::process::id()));
        // An earlier process of this number may have been killed.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        let bounded = Bounded {
            file,
            left: bytes_max.saturating_sub(FULL.len() + 1),
            unlooked: 0,
            seen: false,
            ended: false,
        };
        Ok(Self { number, path, lines: Lines(Arc::new(Mutex::new(bounded))) })
    }

    /// Where its writers write.
    pub(super) fn lines(&self) -> Lines {
        self.lines.clone()
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        // Whoever reads it has it open.
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// What several writers write to, a whole line at a time.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<Mutex<Bounded>>);

#[derive(Debug)]
struct Bounded {
    file: File,
    left: usize,
    /// Bytes since the last look at the watcher's lock.
    unlooked: usize,
    /// A watcher held its lock: `explain` does, a script need not.
    seen: bool,
    ended: bool,
}

impl Bounded {
    /// Whether the watcher that held a lock on the file is gone.
    fn is_left(&mut self) -> bool {
        match self.file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                self.seen = true;
                false
            }
            // What cannot be locked tells nothing.
            Err(TryLockError::Error(_)) => false,
            Ok(()) => {
                let _unlocked = self.file.unlock();
                self.seen
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        self.unlooked += line.len();
        if !self.ended && self.unlooked >= LOOK_BYTES {
            self.unlooked = 0;
            self.ended = self.is_left();
        }
        if self.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let Some(left) = self.left.checked_sub(line.len()) else {
            self.ended = true;
            self.file.write_all(format!("{FULL}\n").as_bytes())?;
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        self.left = left;
        self.file.write_all(line)
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).line(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes_max: usize) -> (tempfile::TempDir, TraceFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = TraceFile::new(folder.path(), "a/0", bytes_max).expect("a file");
        (folder, file)
    }

    #[test]
    fn all_writers_share_the_limit_and_the_last_line_tells_of_it() {
        let (folder, file) = file(20);
        let [mut one, mut two] = [file.lines(), file.lines()];
        one.write_all(b"0123456\n").expect("room");
        two.write_all(b"abcdef\n").expect("room");
        assert!(one.write_all(b"0\n").is_err() && two.write_all(b"\n").is_err());
        let said = std::fs::read_to_string(&file.path).expect("text");
        assert_eq!(said, "0123456\nabcdef\nfull\n");
        assert_eq!(said.len(), 20);
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "it goes with its trace");
    }

    #[test]
    fn nothing_is_written_for_a_watcher_that_is_gone() {
        let (_folder, file) = file(usize::MAX);
        let (mut lines, half) = (file.lines(), vec![b'x'; LOOK_BYTES / 2]);
        for _ in 0..4 {
            lines.write_all(&half).expect("whoever holds no lock is not missed");
        }
        let watcher = File::open(&file.path).expect("it is there");
        watcher.try_lock_shared().expect("nobody has it");
        for _ in 0..4 {
            lines.write_all(&half).expect("it is watched");
        }
        drop(watcher);
        assert!((0..2).any(|_| lines.write_all(&half).is_err()), "nobody reads it");
        assert!(lines.write_all(b"x").is_err());
    }
}
