//! What happens to IDs, as the managers tell it.

use pollux_verbs::{Errno, Path};

use crate::parameters::{ConnectionParameters, RejectReason};

/// What happened, before its IDs are handed out: the queue of a channel keeps none alive.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    pub(crate) id: u64,
    pub(crate) what: What,
}

impl Occurrence {
    /// The ID that a request made.
    pub(crate) fn made(&self) -> Option<u64> {
        match self.what {
            What::ConnectRequest { made, .. } | What::DatagramRequest { made, .. } => Some(made),
            _ => None,
        }
    }
}

/// See [`EventKind`](crate::EventKind).
#[derive(Clone, Debug)]
pub(crate) enum What {
    AddressResolved,
    AddressError(Errno),
    RouteResolved,
    RouteError(Errno),
    /// `qpn` is the peer's queue pair, as in what follows.
    ConnectRequest {
        made: u64,
        qpn: u32,
        parameters: ConnectionParameters,
    },
    ConnectResponse {
        qpn: u32,
        parameters: ConnectionParameters,
    },
    ConnectError(Errno),
    Unreachable(Errno),
    Rejected {
        reason: RejectReason,
        private_data: Vec<u8>,
    },
    Established(ConnectionParameters),
    Disconnected,
    DatagramRequest {
        made: u64,
        private_data: Vec<u8>,
    },
    DatagramEstablished {
        path: Path,
        qpn: u32,
        qkey: u32,
        private_data: Vec<u8>,
    },
    MulticastJoined {
        path: Path,
        qpn: u32,
        qkey: u32,
    },
    MulticastError(Errno),
    DeviceRemoval,
    AddressChange,
    TimewaitExit,
}
