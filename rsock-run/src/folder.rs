//! The folder of the control socket: this user's alone, gone with the launcher, or with the next one if it was killed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use tempfile::TempDir;

/// How folders' names begin.
const PREFIX: &str = "rsock-run-";
/// The socket in it, and before it listens.
const SOCKET: &str = "control";
const BEGUN: &str = "control.new";
/// Calls of the program that may wait for the launcher.
const BACKLOG: i32 = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    /// Makes one with a socket that listens.
    pub(crate) fn make() -> io::Result<(Self, OwnedFd)> {
        remove_left(&std::env::temp_dir());
        let own = fs::Permissions::from_mode(0o700);
        let folder = Self(tempfile::Builder::new().prefix(PREFIX).permissions(own).tempdir()?);
        let socket = packets()?;
        // Under its name it listens already: another launcher takes one that does not for left behind.
        let begun = folder.0.path().join(BEGUN);
        bind(&socket, &SocketAddrUnix::new(&begun)?)?;
        listen(&socket, BACKLOG)?;
        fs::rename(begun, folder.socket())?;
        Ok((folder, socket))
    }

    /// The path of the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.path().join(SOCKET)
    }
}

fn packets() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Removes folders of this user's whose launcher has ended: nobody listens at their socket.
fn remove_left(parent: &Path) {
    let user = rustix::process::getuid().as_raw();
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        // Not through a link, and not another user's.
        let own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        if own && is_left(&entry.path().join(SOCKET)) {
            let _left = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_left(socket: &Path) -> bool {
    let (Ok(address), Ok(probe)) = (SocketAddrUnix::new(socket), packets()) else { return false };
    connect(&probe, &address) == Err(Errno::CONNREFUSED)
}
