//! Sockets that have a file: made for their owner alone, taken over when stale, removed at the end.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::FrameError;

/// Longest path of a socket: `sun_path` of `struct sockaddr_un` less its closing zero.
const PATH_BYTES_MAX: usize = 107;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Rights of a socket's file: its owner's to connect, nobody else's.
const OWNER_ONLY: u32 = 0o600;

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
    /// [`FrameError::Setting`] for a path that is empty or too long; [`FrameError::System`] when something else stands there,
    /// another process has that socket open, or the folder does not let us.
    pub fn datagram(path: &Path) -> Result<(UnixDatagram, Self), FrameError> {
        let (socket, file) = Self::make(path, SocketType::DGRAM)?;
        Ok((socket.into(), file))
    }

    /// Binds a stream socket to `path` and listens; otherwise as [`datagram`](Self::datagram).
    ///
    /// # Errors
    /// As [`datagram`](Self::datagram).
    pub fn listener(path: &Path) -> Result<(UnixListener, Self), FrameError> {
        let (socket, file) = Self::make(path, SocketType::STREAM)?;
        listen(&socket, BACKLOG).map_err(|why| refused("listening on a socket", path, why.into()))?;
        Ok((socket.into(), file))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn make(path: &Path, kind: SocketType) -> Result<(OwnedFd, Self), FrameError> {
        check_path(path)?;
        let failed = |operation| move |source: io::Error| refused(operation, path, source);
        let address =
            SocketAddrUnix::new(path).map_err(|why| refused("making a socket", path, why.into()))?;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .map_err(|why| refused("making a socket", path, why.into()))?;
        // Before bind(2), so that there is no moment at which others may connect.
        fchmod(socket.as_fd(), Mode::from_raw_mode(OWNER_ONLY))
            .map_err(|why| refused("making a socket", path, why.into()))?;
        match bind(&socket, &address).map_err(io::Error::from) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                take_over(path, &address, kind).map_err(failed("taking over a socket"))?;
                bind(&socket, &address).map_err(io::Error::from)
            }
            other => other,
        }
        .map_err(failed("making a socket"))?;
        let metadata = fs::symlink_metadata(path).map_err(failed("stat"))?;
        let file = Self { path: path.into(), identity: (metadata.dev(), metadata.ino()) };
        if metadata.mode() & 0o777 != OWNER_ONLY {
            // The umask took rights from the owner.
            fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY)).map_err(failed("chmod"))?;
        }
        Ok((socket, file))
    }
}

fn refused(operation: &'static str, path: &Path, source: io::Error) -> FrameError {
    FrameError::system(operation, &path.display().to_string(), source)
}

pub(super) fn check_path(path: &Path) -> Result<(), FrameError> {
    let bytes = path.as_os_str().len();
    if (1..=PATH_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    Err(FrameError::Setting {
        setting: "socket path",
        value: path.display().to_string(),
        allowed: format!("a socket's path has 1 to {PATH_BYTES_MAX} bytes"),
    })
}

/// Removes a socket that no process has open. Nothing else is removed: connect(2) refuses a regular file with the same error
/// as a stale socket.
fn take_over(path: &Path, address: &SocketAddrUnix, kind: SocketType) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::other(
            "something that is no socket stands there: remove it or name another path",
        ));
    }
    // A listener whose backlog is full would have a blocking socket wait.
    let probe = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    match connect(&probe, address).map_err(io::Error::from) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        // Connected, or refused because it talks to another, or of another kind: in any case somebody has it.
        _ => Err(io::Error::other("another process has this socket open: name another path")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
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
    use std::error::Error;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn cause(error: &FrameError) -> String {
        error.source().expect("a cause").to_string()
    }

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
            assert!(cause(&error).contains("another process has this socket open"), "{error}");
        }
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (precious, link) = (folder.path().join("precious"), folder.path().join("link"));
        fs::write(&precious, "data").expect("written");
        std::os::unix::fs::symlink(&precious, &link).expect("a link");
        for path in [&precious, &link, folder.path()] {
            let error = SocketFile::listener(path).map(|_| ()).expect_err("refused");
            assert!(cause(&error).contains("no socket"), "{error}");
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
        assert!(cause(&error).contains("another process has this socket open"), "{error}");
        drop(waiting);
    }
}
