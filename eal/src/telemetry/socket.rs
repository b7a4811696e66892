//! Where the socket is, and how it gets there: other processes of the same prefix keep theirs, those of dead ones are taken over.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::EalError;
use crate::socket_file::{SocketFile, SocketFileError};

/// Names of sockets of one prefix are tried up to this suffix. Source: DPDK `lib/telemetry/telemetry.c`, a 16-bit suffix.
const SUFFIX_MAX: u16 = i16::MAX.cast_unsigned();

/// The runtime directory of a file prefix. Source: DPDK `lib/eal/unix/eal_filesystem.c`, `eal_create_runtime_dir`; where a variable is
/// empty, its Python tools take it for unset, and so do we.
pub(super) fn directory(prefix: &str, variable: impl Fn(&str) -> Option<OsString>, root: bool) -> PathBuf {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    let base = variable("RUNTIME_DIRECTORY").map(PathBuf::from);
    let base = base.unwrap_or_else(|| match root {
        true => "/var/run".into(),
        false => variable("XDG_RUNTIME_DIR").map_or_else(|| "/tmp".into(), PathBuf::from),
    });
    base.join("dpdk").join(prefix)
}

/// A socket that others can connect to. It goes when this is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    file: SocketFile,
}

impl Listener {
    /// Makes a socket in a directory, under the first name that no living process has.
    pub(super) fn bind(directory: &Path) -> Result<Self, EalError> {
        make(directory)?;
        let mut suffix = 0;
        loop {
            let name = match suffix {
                0 => "dpdk_telemetry.v2".to_owned(),
                suffix => format!("dpdk_telemetry.v2:{suffix}"),
            };
            match SocketFile::packet_listener(&directory.join(name)) {
                Ok((socket, file)) => return Ok(Self { socket, file }),
                Err(SocketFileError::InUse(_)) if suffix < SUFFIX_MAX => suffix += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// The next client that waits, if any.
    pub(super) fn accept(&self) -> Result<OwnedFd, Errno> {
        rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Makes the directory and that around it, both for this user alone.
fn make(directory: &Path) -> Result<(), EalError> {
    let around = directory.parent().unwrap_or(directory);
    for path in [around, directory] {
        let failed = |source| EalError::TelemetryDirectory { path: path.to_owned(), source };
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        check_owner(path).map_err(failed)?;
    }
    Ok(())
}

/// In a directory of somebody else's, or one that others may write to, somebody could put a socket of his own in our place.
fn check_owner(path: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    let (user, writable) = (rustix::process::geteuid().as_raw(), found.mode() & 0o022 != 0);
    if !found.is_dir() {
        return Err(io::Error::other("is not a directory; remove it"));
    }
    if found.uid() != user && found.uid() != 0 {
        let problem =
            format!("belongs to user {}; set XDG_RUNTIME_DIR to a directory of your own", found.uid());
        return Err(io::Error::other(problem));
    }
    if writable {
        let problem =
            format!("others may write to it (mode {:o}); take that away: chmod go-w", found.mode() & 0o7777);
        return Err(io::Error::other(problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_directory_is_where_dpdk_has_it() {
        let under = |set: &[(&str, &str)], root| {
            let set: Vec<(String, OsString)> =
                set.iter().map(|(name, value)| ((*name).into(), value.into())).collect();
            let variable =
                |name: &str| set.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
            directory("rte", variable, root).to_string_lossy().into_owned()
        };
        assert_eq!(under(&[], true), "/var/run/dpdk/rte");
        assert_eq!(under(&[], false), "/tmp/dpdk/rte");
        assert_eq!(under(&[("XDG_RUNTIME_DIR", "/run/user/5")], false), "/run/user/5/dpdk/rte");
        assert_eq!(under(&[("XDG_RUNTIME_DIR", "/run/user/0")], true), "/var/run/dpdk/rte");
        assert_eq!(
            under(&[("RUNTIME_DIRECTORY", "/run/x"), ("XDG_RUNTIME_DIR", "/y")], true),
            "/run/x/dpdk/rte"
        );
        assert_eq!(under(&[("RUNTIME_DIRECTORY", ""), ("XDG_RUNTIME_DIR", "")], false), "/tmp/dpdk/rte");
    }

    #[test]
    fn two_have_two_names_and_nothing_is_left() {
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path().join("dpdk/rte");
        let first = Listener::bind(&directory).expect("a socket");
        let second = Listener::bind(&directory).expect("another socket");
        assert_eq!(names(&directory), ["dpdk_telemetry.v2", "dpdk_telemetry.v2:1"]);
        let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o7777;
        assert_eq!(
            (mode(first.path()), mode(&directory), mode(&base.path().join("dpdk"))),
            (0o600, 0o700, 0o700)
        );
        drop(first);
        assert_eq!(
            Listener::bind(&directory).expect("the first name is free").path(),
            directory.join("dpdk_telemetry.v2")
        );
        drop(second);
        assert_eq!(names(&directory), [""; 0]);
    }

    #[test]
    fn sockets_of_the_dead_are_taken_over_and_files_are_not() {
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path().join("dpdk/rte");
        let path = directory.join("dpdk_telemetry.v2");
        make(&directory).expect("made");
        // As if its process had been killed: the file stays.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
        let alive = Listener::bind(&directory).expect("in its place");
        assert_eq!(alive.path(), path);
        // Another one took its name meanwhile; it is not ours to remove.
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "precious").expect("a file");
        drop(alive);
        let error = Listener::bind(&directory).expect_err("a file is there");
        assert!(
            matches!(&error, EalError::TelemetrySocket(SocketFileError::NoSocket(about)) if *about == path),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "precious");
    }

    #[test]
    fn directories_that_others_may_write_to_are_refused() {
        let base = tempfile::tempdir().expect("a directory");
        let around = base.path().join("dpdk");
        std::fs::create_dir(&around).expect("made");
        std::fs::set_permissions(&around, std::fs::Permissions::from_mode(0o777)).expect("its own");
        match Listener::bind(&around.join("rte")).expect_err("anybody's") {
            EalError::TelemetryDirectory { path, source } => {
                assert_eq!(
                    (path, source.to_string().contains("chmod go-w")),
                    (around.clone(), true),
                    "{source}"
                );
            }
            other => panic!("{other}"),
        }
        std::fs::set_permissions(&around, std::fs::Permissions::from_mode(0o755)).expect("its own");
        symlink("/tmp", around.join("rte")).expect("a link");
        assert!(Listener::bind(&around.join("rte")).is_err(), "a link");
        let long = base.path().join("d".repeat(120)).join("rte");
        let error = Listener::bind(&long).expect_err("longer than an address may be");
        assert!(matches!(error, EalError::TelemetrySocket(SocketFileError::Path(_))), "{error}");
    }
}
