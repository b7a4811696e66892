//! What can go wrong, in one line each.

use std::io;
use std::net::{IpAddr, SocketAddr};

use pollux_cm::{CmError, RejectReason};
use pollux_verbs::{Errno, VerbsError, WcStatus};

use crate::message::NotRsocket;
use crate::protocol::Violation;

/// Errors of stream and datagram sockets. What is like [`std::net`]'s has them as the source of an [`io::Error`].
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
    /// The kernel's UDP, by which datagram sockets meet, refuses.
    #[error("{address}: UDP, by which datagram sockets meet: {source}{}", advice(source))]
    Udp {
        /// Ours, or the peer's.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// An address for which the device has no GID.
    #[error(
        "{address}: the device has no GID of it; wait until its interface is up, or take another address"
    )]
    NoGid {
        /// Ours.
        address: IpAddr,
    },
    /// A datagram that does not fit.
    #[error("a datagram of {bytes} bytes, where at most {most} fit; send less at once")]
    TooLong {
        /// How many.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// An address of one interface alone.
    #[error("{address} is a link-local address, which datagram sockets do not have; give another one")]
    LinkLocal {
        /// Ours, or the peer's.
        address: SocketAddr,
    },
    /// A peer of the other IP version.
    #[error("{peer} is not of the IP version of {local}; bind a socket of that version")]
    Family {
        /// Ours.
        local: SocketAddr,
        /// The peer's.
        peer: SocketAddr,
    },
}

/// How an error of UDP is mended.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "; give an address of this machine, to a device model as well, such as ip=127.0.0.2/8"
        }
        _ => "",
    }
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
            Self::NotMapped(_) | Self::TooLong { .. } | Self::LinkLocal { .. } | Self::Family { .. } => {
                Kind::InvalidInput
            }
            Self::Udp { source, .. } => source.kind(),
            Self::NoGid { .. } => Kind::AddrNotAvailable,
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
