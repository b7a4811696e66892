//! What happens to IDs.

use pollux_verbs::{Errno, Path};

use crate::id::{Id, IdNumber};
use crate::occurrence::{Occurrence, What};
use crate::parameters::{ConnectionParameters, RejectReason};

/// An event. It is a value of its own: there is nothing to acknowledge, and the ID that it names may be gone.
#[derive(Debug)]
#[doc(alias = "rdma_cm_event")]
pub struct Event {
    /// Which ID; of a request the listening one.
    pub id: IdNumber,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to an ID.
#[derive(Debug)]
#[non_exhaustive]
#[doc(alias = "rdma_cm_event_type")]
pub enum EventKind {
    /// The address leads somewhere: [`Id::device`] is the device.
    AddressResolved,
    /// It does not.
    AddressError(Errno),
    /// The way is known: the ID can connect.
    RouteResolved,
    /// It is not.
    RouteError(Errno),
    /// Somebody asks for a connection: accept or reject it by the new ID. Dropped, it is rejected.
    ConnectRequest {
        /// The connection to be.
        id: Id,
        /// What the peer says.
        parameters: ConnectionParameters,
    },
    /// The peer agrees: go on with [`Id::establish`].
    ConnectResponse(ConnectionParameters),
    /// The connection could not be made.
    ConnectError(Errno),
    /// The peer does not answer.
    Unreachable(Errno),
    /// The peer, or its connection manager, says no. Of datagrams librdmacm tells that as `RDMA_CM_EVENT_UNREACHABLE`, with the status of the
    /// answer, which is the reason here: 1, nobody takes them; 2, the program says no.
    Rejected {
        /// Why.
        reason: RejectReason,
        /// What the peer's program said.
        private_data: Vec<u8>,
    },
    /// Both sides may send.
    Established(ConnectionParameters),
    /// The peer ended the connection, or agreed to its end.
    Disconnected,
    /// Somebody asks for a queue pair that takes datagrams: accept or reject it by the new ID. Dropped, it is rejected.
    DatagramRequest {
        /// The answer to be.
        id: Id,
        /// What the peer says.
        private_data: Vec<u8>,
    },
    /// The peer told the queue pair that takes datagrams.
    DatagramEstablished {
        /// Where to.
        path: Path,
        /// Its number.
        qpn: u32,
        /// Its key.
        qkey: u32,
        /// What the peer says.
        private_data: Vec<u8>,
    },
    /// The multicast group can be sent to, and is heard by queue pairs that are
    /// [attached](pollux_verbs::Qp::attach_multicast) to `path.gid`.
    MulticastJoined {
        /// Where to.
        path: Path,
        /// The number that stands for all of the group.
        qpn: u32,
        /// Their key.
        qkey: u32,
    },
    /// It cannot.
    MulticastError(Errno),
    /// The device is gone.
    DeviceRemoval,
    /// The address of the interface changed.
    AddressChange,
    /// All packets of the connection are gone: its queue pair may be used again.
    TimewaitExit,
}

impl EventKind {
    /// Its name in librdmacm. Source: rdma-core `librdmacm/cma.c`, `rdma_event_str`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AddressResolved => "RDMA_CM_EVENT_ADDR_RESOLVED",
            Self::AddressError(_) => "RDMA_CM_EVENT_ADDR_ERROR",
            Self::RouteResolved => "RDMA_CM_EVENT_ROUTE_RESOLVED",
            Self::RouteError(_) => "RDMA_CM_EVENT_ROUTE_ERROR",
            Self::ConnectRequest { .. } | Self::DatagramRequest { .. } => "RDMA_CM_EVENT_CONNECT_REQUEST",
            Self::ConnectResponse(_) => "RDMA_CM_EVENT_CONNECT_RESPONSE",
            Self::ConnectError(_) => "RDMA_CM_EVENT_CONNECT_ERROR",
            Self::Unreachable(_) => "RDMA_CM_EVENT_UNREACHABLE",
            Self::Rejected { .. } => "RDMA_CM_EVENT_REJECTED",
            Self::Established(_) | Self::DatagramEstablished { .. } => "RDMA_CM_EVENT_ESTABLISHED",
            Self::Disconnected => "RDMA_CM_EVENT_DISCONNECTED",
            Self::MulticastJoined { .. } => "RDMA_CM_EVENT_MULTICAST_JOIN",
            Self::MulticastError(_) => "RDMA_CM_EVENT_MULTICAST_ERROR",
            Self::DeviceRemoval => "RDMA_CM_EVENT_DEVICE_REMOVAL",
            Self::AddressChange => "RDMA_CM_EVENT_ADDR_CHANGE",
            Self::TimewaitExit => "RDMA_CM_EVENT_TIMEWAIT_EXIT",
        }
    }
}

impl std::fmt::Display for EventKind {
    /// Its name, and what it says.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::AddressError(errno)
            | Self::RouteError(errno)
            | Self::ConnectError(errno)
            | Self::MulticastError(errno)
            | Self::Unreachable(errno) => write!(f, ": {errno}"),
            Self::Rejected { reason, .. } => write!(f, ": {reason}"),
            _ => Ok(()),
        }
    }
}

impl Event {
    /// What happened, as the program has it: `hand_out` makes the ID of a number.
    pub(crate) fn of(occurrence: Occurrence, hand_out: impl FnOnce(u64) -> Id) -> Self {
        let kind = match occurrence.what {
            What::AddressResolved => EventKind::AddressResolved,
            What::AddressError(errno) => EventKind::AddressError(errno),
            What::RouteResolved => EventKind::RouteResolved,
            What::RouteError(errno) => EventKind::RouteError(errno),
            What::ConnectRequest { made, parameters, .. } => {
                EventKind::ConnectRequest { id: hand_out(made), parameters }
            }
            What::ConnectResponse { parameters, .. } => EventKind::ConnectResponse(parameters),
            What::ConnectError(errno) => EventKind::ConnectError(errno),
            What::Unreachable(errno) => EventKind::Unreachable(errno),
            What::Rejected { reason, private_data } => EventKind::Rejected { reason, private_data },
            What::Established(parameters) => EventKind::Established(parameters),
            What::Disconnected => EventKind::Disconnected,
            What::DatagramRequest { made, private_data } => {
                EventKind::DatagramRequest { id: hand_out(made), private_data }
            }
            What::DatagramEstablished { path, qpn, qkey, private_data } => {
                EventKind::DatagramEstablished { path, qpn, qkey, private_data }
            }
            What::MulticastJoined { path, qpn, qkey } => EventKind::MulticastJoined { path, qpn, qkey },
            What::MulticastError(errno) => EventKind::MulticastError(errno),
            What::DeviceRemoval => EventKind::DeviceRemoval,
            What::AddressChange => EventKind::AddressChange,
            What::TimewaitExit => EventKind::TimewaitExit,
        };
        Self { id: IdNumber::of(occurrence.id), kind }
    }
}
