//! What both sides say of a connection while they agree on it.

/// Most bytes of private data that a message has room for beside what the connection manager puts there. Source: Linux
/// `include/rdma/ib_cm.h`, `enum ib_cm_data_size`, less the 36 bytes of addresses in requests.
pub mod private_data {
    /// Of a request for a connection.
    pub const CONNECT: usize = 56;
    /// Of what accepts one.
    pub const ACCEPT: usize = 196;
    /// Of what rejects one.
    pub const REJECT: usize = 148;
    /// Of a request for a service of datagrams.
    pub const DATAGRAM_CONNECT: usize = 180;
    /// Of what accepts that.
    pub const DATAGRAM_ACCEPT: usize = 136;

    /// Refuses more than there is room for.
    pub(crate) fn check(bytes: &[u8], most: usize) -> Result<(), crate::CmError> {
        if bytes.len() <= most {
            Ok(())
        } else {
            Err(crate::CmError::PrivateData { bytes: bytes.len(), most })
        }
    }
}

/// What a side says of a connection, when it asks for one, accepts one, and as the other side hears it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "rdma_conn_param")]
pub struct ConnectionParameters {
    /// Bytes for the other side's program, see [`private_data`]. What is heard is as long as the message has room, zeros behind what
    /// was said.
    pub private_data: Vec<u8>,
    /// RDMA reads and atomics of the peer that this side answers at once.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this side has under way at once.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Retry count of both sides, 0 to 7; only who asks says it.
    pub retry_count: u8,
    /// RNR retry count, 0 to 7; 7 is infinite.
    pub rnr_retry_count: u8,
}

impl Default for ConnectionParameters {
    /// One read in each direction, retries 7 and 7: what rdma-core's programs say.
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
        }
    }
}

impl ConnectionParameters {
    /// The same with private data.
    #[must_use]
    pub fn private_data(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { private_data: bytes.into(), ..self }
    }
}

/// Options of an ID, to be set before it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias = "rdma_set_option")]
pub struct IdOptions {
    /// Type of service of the packets (`RDMA_OPTION_ID_TOS`).
    pub type_of_service: u8,
    /// Shares its local port with others that say so, none of which listens (`RDMA_OPTION_ID_REUSEADDR`).
    pub reuse_address: bool,
    /// Listening on any address, it takes requests of its own family alone (`RDMA_OPTION_ID_AFONLY`).
    pub own_family_only: bool,
    /// ACK timeout of the queue pair, 4.096 us x 2^n (`RDMA_OPTION_ID_ACK_TIMEOUT`); `None` is the manager's own.
    pub ack_timeout: Option<u8>,
}

/// Why the peer, or its connection manager, rejected a connection. Source: Linux `include/rdma/ib_cm.h`, `enum ib_cm_rej_reason`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal $text:literal,)*) => {
        impl RejectReason {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// What it means, in the kernel's words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 {
                    $($code => $text,)*
                    _ => "unrecognized reason",
                }
            }
        }
    };
}

reasons! {
    /// The queue pair is not there.
    NO_QP = 1 "no QP",
    /// No EE context.
    NO_EEC = 2 "no EEC",
    /// Too many connections.
    NO_RESOURCES = 3 "no resources",
    /// The other side gave up waiting.
    TIMEOUT = 4 "timeout",
    /// A message that cannot be served.
    UNSUPPORTED = 5 "unsupported",
    /// A number of a connection that is not known.
    INVALID_COMM_ID = 6 "invalid comm ID",
    /// Numbers that do not belong together.
    INVALID_COMM_INSTANCE = 7 "invalid comm instance",
    /// Nobody listens on the port.
    INVALID_SERVICE_ID = 8 "invalid service ID",
    /// A transport that is not RC.
    INVALID_TRANSPORT_TYPE = 9 "invalid transport type",
    /// A connection of the same queue pair is still known.
    STALE_CONN = 10 "stale conn",
    /// An address that is not the port's.
    INVALID_GID = 12 "invalid GID",
    /// A longer MTU than the port has.
    INVALID_MTU = 26 "invalid MTU",
    /// More reads than the device answers.
    INSUFFICIENT_RESP_RESOURCES = 27 "insufficient resp resources",
    /// The program at the other side said no.
    CONSUMER_DEFINED = 28 "consumer defined",
    /// RNR retries that cannot be.
    INVALID_RNR_RETRY = 29 "invalid RNR retry",
    /// A number of a connection that is used twice.
    DUPLICATE_LOCAL_COMM_ID = 30 "duplicate local comm ID",
}

impl std::fmt::Display for RejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text(), self.0)
    }
}

impl std::fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
