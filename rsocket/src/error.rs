//! What can go wrong, in one line each.

use std::io;
use std::net::SocketAddr;

use pollux_cm::{CmError, RejectReason};
use pollux_verbs::{Errno, VerbsError, WcStatus};

use crate::message::NotRsocket;
use crate::protocol::Violation;

/// Errors of stream sockets. What is like [`std::net`]'s has them as the source of an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RsError {
    /// The connection manager could not.
    #[error(transparent)]
    Cm(#[from] CmError),
    /// The device could not.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// There is no way to the peer, or nobody answers there.
    #[error("cannot connect to {peer}: {what}: {errno}")]
    Unreachable {
        /// Who was asked.
        peer: SocketAddr,
        /// What failed: librdmacm's name of the event.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// The peer refused.
    #[error("{peer} refused the connection: {reason}")]
    Refused {
        /// Who was asked.
        peer: SocketAddr,
        /// Why.
        reason: RejectReason,
    },
    /// The peer is not a stream socket.
    #[error("the peer is not a stream socket of this protocol: {0}; connect it with a program on rsockets")]
    NotRsocket(#[from] NotRsocket),
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}; the connection is closed")]
    Violation(#[from] Violation),
    /// A request failed: the peer does not answer, or took back its memory.
    #[error("the connection is lost: {0}")]
    Completion(WcStatus),
    /// The connection ended before it was made.
    #[error("the connection ended before it was made: {0}")]
    Ended(&'static str),
    /// The device is gone.
    #[error("the device was removed")]
    Removed,
    /// Nothing is mapped at an offset.
    #[error("the peer has mapped nothing at offset {0:#x}")]
    NotMapped(u64),
    /// The peer's table of maps is full.
    #[error("the peer has room for {0} maps, and all are used; drop one, or give the peer room for more")]
    MapsFull(u16),
}

impl RsError {
    fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as Kind;
        match self {
            Self::Cm(CmError::PortInUse { .. }) => Kind::AddrInUse,
            Self::Cm(CmError::NoDevice { .. }) => Kind::AddrNotAvailable,
            Self::Cm(CmError::Open { source, .. }) => source.kind(),
            Self::Cm(CmError::Kernel { errno, .. }) | Self::Unreachable { errno, .. } => {
                io::Error::from_raw_os_error(errno.0).kind()
            }
            Self::Refused { .. } => Kind::ConnectionRefused,
            Self::NotRsocket(_) | Self::Violation(_) => Kind::InvalidData,
            Self::Completion(WcStatus::RETRY_EXC_ERR | WcStatus::RNR_RETRY_EXC_ERR) => Kind::TimedOut,
            Self::Completion(_) | Self::Removed => Kind::ConnectionReset,
            Self::Ended(_) => Kind::ConnectionAborted,
            Self::NotMapped(_) => Kind::InvalidInput,
            Self::MapsFull(_) => Kind::StorageFull,
            Self::Cm(_) | Self::Verbs(_) => Kind::Other,
        }
    }
}

impl From<RsError> for io::Error {
    fn from(error: RsError) -> Self {
        Self::new(error.kind(), error)
    }
}
