//! Links between two programs: a pair of sockets by name, of which each program takes an end that is free.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Most characters of a name: the path of a socket has 108.
const NAME_MAX: usize = 40;

/// One end, held as long as this is.
#[derive(Debug)]
pub(crate) struct Link {
    own: PathBuf,
    peer: PathBuf,
    _lock: File,
}

impl Link {
    /// Takes an end that nobody has.
    pub(crate) fn take(name: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
            return Err(format!("--link '{name}': must be 1 to {NAME_MAX} letters, digits, '-', '_' or '.'"));
        }
        let folder = folder()?;
        for (own, peer) in [("a", "b"), ("b", "a")] {
            let path = folder.join(format!("{name}.{own}.lock"));
            let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
            let lock = lock.map_err(|why| format!("cannot open {}: {why}", path.display()))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let end = |end| folder.join(format!("{name}.{end}"));
                return Ok(Self { own: end(own), peer: end(peer), _lock: lock });
            }
        }
        Err(format!(
            "both ends of the link '{name}' are taken by programs that run: name another with --link"
        ))
    }

    /// As [`WireSpec`](pollux_mlx5_model::wire::WireSpec) reads it.
    pub(crate) fn wire(&self) -> String {
        format!("unix:{}:{}", self.own.display(), self.peer.display())
    }
}

impl Drop for Link {
    /// The program that had the socket has ended, and may have left it.
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.own);
    }
}

/// The user's own folder for sockets.
fn folder() -> Result<PathBuf, String> {
    let user = rustix::process::getuid().as_raw();
    let is_own =
        |folder: &Path| fs::metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == user);
    // A shell that became another user may still name the first one's.
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| is_own(folder));
    let folder = runtime.map_or_else(
        || std::env::temp_dir().join(format!("mlx5-run-links-{user}")),
        |runtime| runtime.join("mlx5-run"),
    );
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|why| format!("cannot make the folder of links {}: {why}", folder.display()))?;
    // In a folder that all may write to, somebody else may have made it.
    if is_own(&folder) {
        return Ok(folder);
    }
    Err(format!("{} is another user's: set XDG_RUNTIME_DIR to a folder of your own", folder.display()))
}
