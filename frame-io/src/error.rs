//! What can go wrong, in one line each.

use std::io;
use std::path::PathBuf;

/// Why something could not be opened, set up or read. Each prints as one line: what, which value, the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// There is no such interface in this network namespace.
    #[error("interface {name:?} does not exist in this network namespace (`ip link` lists those that do)")]
    NoInterface {
        /// The name asked for.
        name: String,
    },
    /// The interface is of no use as it is.
    #[error("interface {name}: {problem}")]
    Interface {
        /// The interface.
        name: String,
        /// What is wrong with it, and how to mend it.
        problem: String,
    },
    /// The process may not do this.
    #[error(
        "{operation} for {subject} needs {capability}: run as root, or grant it with `setcap {}+ep PROGRAM`",
        .capability.to_lowercase()
    )]
    Permission {
        /// What was tried.
        operation: &'static str,
        /// On what.
        subject: String,
        /// The capability that allows it.
        capability: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused for another reason.
    #[error("{operation} for {subject}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        subject: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A socket's file could not be made.
    #[error(transparent)]
    Socket(#[from] pollux_eal::socket_file::SocketFileError),
    /// A setting is outside what is possible.
    #[error("{setting} {value} is not possible: {allowed}")]
    Setting {
        /// Which setting.
        setting: &'static str,
        /// The value given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A file could not be opened, read or written.
    #[error("cannot {operation} {}", .path.display())]
    File {
        /// What was tried: "open", "create", "read", "write".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A capture file is not what it claims to be.
    #[error("{} is damaged at byte {offset}: {problem}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Where the record in question begins.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
}

impl FrameError {
    pub(crate) fn system(operation: &'static str, subject: &str, source: io::Error) -> Self {
        Self::System { operation, subject: subject.into(), source }
    }

    /// A refusal for lack of rights becomes [`FrameError::Permission`], any other [`FrameError::System`].
    pub(crate) fn refused(
        operation: &'static str,
        subject: &str,
        capability: &'static str,
        source: io::Error,
    ) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::Permission { operation, subject: subject.into(), capability, source }
            }
            _ => Self::System { operation, subject: subject.into(), source },
        }
    }
}

/// Why frames do not move at this moment. Small and free to make, since data paths return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The interface is administratively down; it may come back.
    Down,
    /// The interface is gone for good.
    Gone,
    /// The kernel has no room now; try again.
    Busy,
    /// The kernel dropped the frame on its way to the device: that takes none now, or cannot do what the frame asks for.
    Dropped,
    /// The frame cannot be sent as it is (too long, malformed).
    Refused,
    /// Another error, by its `errno`.
    Other(i32),
}

impl Trouble {
    pub(crate) fn from_errno(errno: i32) -> Self {
        match errno {
            libc::ENETDOWN | libc::EIO => Self::Down,
            libc::ENXIO | libc::ENODEV | libc::EBADFD | libc::EBADF => Self::Gone,
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR => Self::Busy,
            libc::EMSGSIZE | libc::EINVAL => Self::Refused,
            other => Self::Other(other),
        }
    }

    pub(crate) fn last() -> Self {
        Self::from_errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}
