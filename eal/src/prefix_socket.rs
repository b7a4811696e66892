//! Sockets of a file prefix: where they are, and how they get there. Other processes of the same prefix keep theirs, those of dead ones are
//! taken over.
//!
//! Called by `telemetry` here, by `bringup` for captures, by `pktgen` for its commands, and by their clients, which look for them.

mod messages;
mod serve;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::EalError;
use crate::socket_file::{SocketFile, SocketFileError};
#[cfg(test)]
pub(crate) use messages::UNREAD_MAX;
pub use messages::{Answers, MessageClient, Messages};
pub use serve::{Gone, Service, serve};

/// Names of sockets of one prefix are tried up to this suffix. Source: DPDK `lib/telemetry/telemetry.c`, a 16-bit suffix.
const SUFFIX_MAX: u16 = i16::MAX.cast_unsigned();

/// Returns the runtime directory of a file prefix for this process and user.
#[must_use]
#[doc(alias = "rte_eal_get_runtime_dir")]
pub fn directory(file_prefix: &str) -> PathBuf {
    directory_of(file_prefix, |name| std::env::var_os(name), rustix::process::getuid().is_root())
}

/// Returns the name of the socket `base` of the process that came `number`th, 0 for the first.
#[must_use]
pub fn name(base: &str, number: u16) -> String {
    match number {
        0 => base.to_owned(),
        number => format!("{base}:{number}"),
    }
}

/// Returns the path of the socket `base` of the process that has `other`, of the same number.
#[must_use]
pub fn beside(other: &Path, base: &str) -> PathBuf {
    let file = other.file_name().unwrap_or_default().to_string_lossy();
    let number = file.rsplit_once(':').and_then(|(_, number)| number.parse().ok());
    other.with_file_name(name(base, number.unwrap_or(0)))
}

/// The runtime directory of a file prefix. Source: DPDK `lib/eal/unix/eal_filesystem.c`, `eal_create_runtime_dir`; where a variable is
/// empty, its Python tools take it for unset, and so do we.
fn directory_of(prefix: &str, variable: impl Fn(&str) -> Option<OsString>, root: bool) -> PathBuf {
    let variable = |name| variable(name).filter(|value| !value.is_empty());
    let base = variable("RUNTIME_DIRECTORY").map(PathBuf::from);
    let base = base.unwrap_or_else(|| match root {
        true => "/var/run".into(),
        false => variable("XDG_RUNTIME_DIR").map_or_else(|| "/tmp".into(), PathBuf::from),
    });
    base.join("dpdk").join(prefix)
}

/// A socket of packets that keep their order, to which processes of the same user can connect. Its file goes when this is dropped.
#[derive(Debug)]
pub struct PrefixSocket {
    socket: OwnedFd,
    file: SocketFile,
}

impl PrefixSocket {
    /// Makes a socket in a directory, which is made if need be, under the first of the names of `base` ([`name`]) that no living process
    /// has.
    ///
    /// # Errors
    /// [`EalError::RuntimeDirectory`]: the directory cannot be made, or others may write to it. [`EalError::PrefixSocket`].
    pub fn bind(directory: &Path, base: &str) -> Result<Self, EalError> {
        make(directory)?;
        let mut suffix = 0;
        loop {
            match Self::at(&directory.join(name(base, suffix))) {
                Err(EalError::PrefixSocket(SocketFileError::InUse(_))) if suffix < SUFFIX_MAX => suffix += 1,
                other => return other,
            }
        }
    }

    /// Makes a socket at a path in a directory that [`bind`](Self::bind) has made for another.
    ///
    /// # Errors
    /// [`EalError::PrefixSocket`].
    pub fn at(path: &Path) -> Result<Self, EalError> {
        let (socket, file) = SocketFile::packet_listener(path)?;
        Ok(Self { socket, file })
    }

    /// Returns where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the next client that waits, without waiting for one.
    ///
    /// # Errors
    /// The kernel's answer: `EAGAIN` when none waits.
    pub fn accept(&self) -> Result<OwnedFd, Errno> {
        rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }
}

impl AsFd for PrefixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Makes the directory and that around it, both for this user alone.
fn make(directory: &Path) -> Result<(), EalError> {
    let around = directory.parent().unwrap_or(directory);
    for path in [around, directory] {
        let failed = |source| EalError::RuntimeDirectory { path: path.to_owned(), source };
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

    const BASE: &str = "dpdk_telemetry.v2";
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
            directory_of("rte", variable, root).to_string_lossy().into_owned()
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
        let first = PrefixSocket::bind(&directory, BASE).expect("a socket");
        let second = PrefixSocket::bind(&directory, BASE).expect("another socket");
        assert_eq!(names(&directory), ["dpdk_telemetry.v2", "dpdk_telemetry.v2:1"]);
        let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o7777;
        assert_eq!(
            (mode(first.path()), mode(&directory), mode(&base.path().join("dpdk"))),
            (0o600, 0o700, 0o700)
        );
        drop(first);
        assert_eq!(
            PrefixSocket::bind(&directory, BASE).expect("the first name is free").path(),
            directory.join("dpdk_telemetry.v2")
        );
        drop(second);
        assert_eq!(names(&directory), [""; 0]);
    }

    #[test]
    fn sockets_of_one_process_have_one_number() {
        for (other, path) in
            [("/d/dpdk_telemetry.v2", "/d/more"), ("/d:9/dpdk_telemetry.v2:12", "/d:9/more:12")]
        {
            assert_eq!(beside(Path::new(other), "more"), Path::new(path));
        }
    }

    #[test]
    fn sockets_of_the_dead_are_taken_over_and_files_are_not() {
        let base = tempfile::tempdir().expect("a directory");
        let directory = base.path().join("dpdk/rte");
        let path = directory.join("dpdk_telemetry.v2");
        make(&directory).expect("made");
        // As if its process had been killed: the file stays.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
        let alive = PrefixSocket::bind(&directory, BASE).expect("in its place");
        assert_eq!(alive.path(), path);
        // Another one took its name meanwhile; it is not ours to remove.
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "precious").expect("a file");
        drop(alive);
        let error = PrefixSocket::bind(&directory, BASE).expect_err("a file is there");
        assert!(
            matches!(&error, EalError::PrefixSocket(SocketFileError::NoSocket(about)) if *about == path),
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
        match PrefixSocket::bind(&around.join("rte"), BASE).expect_err("anybody's") {
            EalError::RuntimeDirectory { path, source } => {
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
        assert!(PrefixSocket::bind(&around.join("rte"), BASE).is_err(), "a link");
        let long = base.path().join("d".repeat(120)).join("rte");
        let error = PrefixSocket::bind(&long, BASE).expect_err("longer than an address may be");
        assert!(matches!(error, EalError::PrefixSocket(SocketFileError::Path(_))), "{error}");
    }
}
