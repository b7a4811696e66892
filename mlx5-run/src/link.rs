//! Links between two programs: a pair of sockets by name, of which each program takes an end that is free.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::lease::Lease;

/// Most characters of a name: the path of a socket has 108.
const NAME_MAX: usize = 40;

/// One end, held as long as this is.
#[derive(Debug)]
pub(crate) struct Link {
    own: PathBuf,
    peer: PathBuf,
    _lease: Lease,
}

impl Link {
    /// Takes an end that nobody has.
    pub(crate) fn take(name: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
            return Err(format!("--link '{name}': must be 1 to {NAME_MAX} letters, digits, '-', '_' or '.'"));
        }
        let folder = folder()?;
        remove_left(&folder);
        for (own, peer) in [("a", "b"), ("b", "a")] {
            let path = folder.join(format!("{name}.{own}.lock"));
            let lease = Lease::take(&path).map_err(|why| format!("cannot hold {}: {why}", path.display()))?;
            if let Some(lease) = lease {
                let end = |end| folder.join(format!("{name}.{end}"));
                return Ok(Self { own: end(own), peer: end(peer), _lease: lease });
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

/// Removes sockets of ends that nobody has: who had them was killed.
fn remove_left(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for socket in entries.flatten().map(|entry| entry.path()) {
        let end = socket.extension().is_some_and(|end| end == "a" || end == "b");
        let lock = || PathBuf::from(format!("{}.lock", socket.display()));
        if end && let Ok(Some(_held)) = Lease::take(&lock()) {
            let _left = fs::remove_file(&socket);
        }
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
