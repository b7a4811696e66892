//! Sockets that have a file: made for their owner alone, taken over when stale, removed at the end.
//!
//! Called by `telemetry` here, by `frame-io` for wires of datagrams, and by the programs that serve the device model.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Longest path of a socket: `sun_path` of `struct sockaddr_un` less its closing zero.
const PATH_BYTES_MAX: usize = 107;

/// How long a start waits for others in the same folder: each takes some system calls.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Rights of a socket's file: its owner's to connect, nobody else's.
const OWNER_ONLY: u32 = 0o600;

/// Why a socket cannot be made. Each prints as one line, with the system's answer as its source where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketFileError {
    /// The path is empty or too long.
    #[error("socket path {} is not possible: a socket's path has 1 to {PATH_BYTES_MAX} bytes", .0.display())]
    Path(PathBuf),
    /// A living process has it.
    #[error("{}: another process has this socket open: name another path", .0.display())]
    InUse(PathBuf),
    /// Something else stands there, which is left alone.
    #[error("{}: something that is no socket stands there: remove it or name another path", .0.display())]
    NoSocket(PathBuf),
    /// The folder stays locked.
    #[error(
        "{}: another program keeps a lock on the folder (`lslocks` names it): end it or name another folder",
        .0.display()
    )]
    Locked(PathBuf),
    /// The kernel refused for another reason.
    #[error("{operation} for {}", path.display())]
    System {
        /// What was tried.
        operation: &'static str,
        /// The socket's path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The file of a bound socket. Dropping it removes the file, unless another file has taken its place.
///
/// Whatever the umask, the file's mode is 0600 from the moment on that it exists: the kernel gives it the mode of the socket
/// itself, less the umask. Source: Linux `net/unix/af_unix.c`, `unix_bind_bsd`.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode, so that no other file is removed at the end.
    identity: (u64, u64),
}

impl SocketFile {
    /// Binds a datagram socket to `path`. A socket that stands there and that no process has open is taken over: a process that
    /// was killed leaves one.
    ///
    /// # Errors
    /// [`SocketFileError`]: the path is empty or too long, something else stands there, another process has that socket open, or the
    /// folder does not let us.
    pub fn datagram(path: &Path) -> Result<(UnixDatagram, Self), SocketFileError> {
        let (socket, file) = Self::make(path, SocketType::DGRAM, |_| Ok(()))?;
        Ok((socket.into(), file))
    }

    /// Binds a stream socket to `path` and listens; otherwise as [`datagram`](Self::datagram).
    ///
    /// # Errors
    /// As [`datagram`](Self::datagram).
    pub fn listener(path: &Path) -> Result<(UnixListener, Self), SocketFileError> {
        let (socket, file) = Self::make(path, SocketType::STREAM, |socket| listen(socket, BACKLOG))?;
        Ok((socket.into(), file))
    }

    /// Binds a socket of packets that keep their order (`SOCK_SEQPACKET`) to `path` and listens; otherwise as
    /// [`datagram`](Self::datagram). accept(2) on it never waits.
    ///
    /// # Errors
    /// As [`datagram`](Self::datagram).
    pub fn packet_listener(path: &Path) -> Result<(OwnedFd, Self), SocketFileError> {
        Self::make(path, SocketType::SEQPACKET, |socket| {
            ioctl_fionbio(socket, true)?;
            listen(socket, BACKLOG)
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `ready` has the socket answer: until then it looks like a stale one.
    fn make(
        path: &Path,
        kind: SocketType,
        ready: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> Result<(OwnedFd, Self), SocketFileError> {
        check_path(path)?;
        let making = |error: Errno| failed("making a socket", path)(error.into());
        let address = SocketAddrUnix::new(path).map_err(making)?;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map_err(making)?;
        // Before bind(2), so that there is no moment at which others may connect.
        fchmod(socket.as_fd(), Mode::from_raw_mode(OWNER_ONLY)).map_err(making)?;
        let _alone = FolderLock::take(path)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => {
                take_over(path, &address, kind)?;
                bind(&socket, &address)
            }
            other => other,
        }
        .map_err(making)?;
        let metadata = fs::symlink_metadata(path).map_err(failed("stat", path))?;
        let file = Self { path: path.into(), identity: (metadata.dev(), metadata.ino()) };
        if metadata.mode() & 0o777 != OWNER_ONLY {
            // The umask took rights from the owner.
            fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY)).map_err(failed("chmod", path))?;
        }
        ready(&socket).map_err(|error| failed("listening on a socket", path)(error.into()))?;
        Ok((socket, file))
    }
}

fn failed(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> SocketFileError {
    move |source| SocketFileError::System { operation, path: path.into(), source }
}

/// Checks that a path can be that of a socket.
///
/// # Errors
/// [`SocketFileError::Path`].
pub fn check_path(path: &Path) -> Result<(), SocketFileError> {
    let bytes = path.as_os_str().len();
    if (1..=PATH_BYTES_MAX).contains(&bytes) { Ok(()) } else { Err(SocketFileError::Path(path.into())) }
}

/// Removes a socket that no process has open. Nothing else is removed: connect(2) refuses a regular file with the same error
/// as a stale socket.
fn take_over(path: &Path, address: &SocketAddrUnix, kind: SocketType) -> Result<(), SocketFileError> {
    let failed = failed("taking over a socket", path);
    if !fs::symlink_metadata(path).map_err(&failed)?.file_type().is_socket() {
        return Err(SocketFileError::NoSocket(path.into()));
    }
    // A listener whose backlog is full would have a blocking socket wait.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, kind, flags, None).map_err(|error| failed(error.into()))?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(failed),
        // Connected, or refused because it talks to another, or of another kind: in any case somebody has it.
        _ => Err(SocketFileError::InUse(path.into())),
    }
}

/// What makes looking at a socket, removing it and putting another there one step among all who do so: of two starts that find the
/// same stale socket one would remove the other's. It is a lock on the folder, so nothing is left behind, not even by SIGKILL.
struct FolderLock {
    _folder: Option<File>,
}

impl FolderLock {
    /// Waits for [`LOCK_PATIENCE`] at most. A folder that we may not read, or whose file system has no locks, is used without.
    fn take(path: &Path) -> Result<Self, SocketFileError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(folder) = File::open(folder) else { return Ok(Self { _folder: None }) };
        let begun = Instant::now();
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _folder: Some(folder) }),
                Err(Errno::AGAIN) if begun.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Errno::AGAIN) => return Err(SocketFileError::Locked(path.into())),
                Err(_) => return Ok(Self { _folder: None }),
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Without the lock, another socket might stand there by the time that ours is removed.
        let Ok(_alone) = FolderLock::take(&self.path) else { return };
        let still_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if still_ours {
            // What cannot be removed is taken over by the next one.
            let _kept = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_a_stale_socket_is_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        // Dropped without its own clean-up, as SIGKILL does.
        drop(UnixListener::bind(&path).expect("a socket"));
        let (listener, file) = SocketFile::listener(&path).expect("taken over");
        UnixStream::connect(&path).expect("it listens");
        listener.accept().expect("connected");
        for error in [
            SocketFile::listener(&path).map(|_| ()).expect_err("in use"),
            SocketFile::datagram(&path).map(|_| ()).expect_err("of another kind, and in use"),
        ] {
            assert!(matches!(error, SocketFileError::InUse(_)), "{error}");
        }
        drop((listener, file));
        assert!(!path.exists());
    }

    /// Starts at one moment: one of them has the socket, by its file, and the others say that it is in use.
    #[test]
    fn of_several_starts_one_takes_a_stale_socket_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        for round in 0..200 {
            let listens = round % 2 == 0;
            drop(UnixListener::bind(&path).expect("a socket that goes stale"));
            let gate = std::sync::Barrier::new(4);
            let made: Vec<_> = std::thread::scope(|scope| {
                let starts: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            gate.wait();
                            if listens {
                                SocketFile::listener(&path)
                                    .map(|(socket, file)| (OwnedFd::from(socket), file))
                            } else {
                                SocketFile::datagram(&path)
                                    .map(|(socket, file)| (OwnedFd::from(socket), file))
                            }
                        })
                    })
                    .collect();
                starts.into_iter().map(|start| start.join().expect("no panic")).collect()
            });
            let (won, lost): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
            assert_eq!((won.len(), lost.len()), (1, 3), "round {round}");
            for error in lost.into_iter().filter_map(Result::err) {
                assert!(matches!(error, SocketFileError::InUse(_)), "{error}");
            }
            if listens {
                UnixStream::connect(&path).expect("the one that won listens");
            } else {
                UnixDatagram::unbound().and_then(|socket| socket.connect(&path)).expect("it is there");
            }
            drop(won);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_folder_that_somebody_keeps_locked_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let kept = FolderLock::take(&path).expect("nobody has it");
        let error = SocketFile::datagram(&path).map(|_| ()).expect_err("locked");
        assert!(matches!(error, SocketFileError::Locked(_)), "{error}");
        drop(kept);
        SocketFile::datagram(&path).expect("free again");
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (precious, link) = (folder.path().join("precious"), folder.path().join("link"));
        fs::write(&precious, "data").expect("written");
        std::os::unix::fs::symlink(&precious, &link).expect("a link");
        for path in [&precious, &link, folder.path()] {
            let error = SocketFile::listener(path).map(|_| ()).expect_err("refused");
            assert!(matches!(error, SocketFileError::NoSocket(_)), "{error}");
            SocketFile::datagram(path).map(|_| ()).expect_err("refused");
        }
        assert_eq!(fs::read(&precious).expect("still there"), b"data");
        assert!(link.is_symlink());
    }

    #[test]
    fn a_full_backlog_is_a_socket_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let (_listener, _file) = SocketFile::listener(&path).expect("a socket");
        let waiting: Vec<_> = (0..=BACKLOG).map(|_| UnixStream::connect(&path).expect("waits")).collect();
        let error = SocketFile::listener(&path).map(|_| ()).expect_err("in use");
        assert!(matches!(error, SocketFileError::InUse(_)), "{error}");
        drop(waiting);
    }
}
