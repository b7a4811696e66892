//! What both providers say of requests: kinds of queue pairs, pieces of memory, windows, and why a request is not posted.

use pollux_uverbs::abi::flags::{Access, DeviceCaps, QpType};

pub(crate) use pollux_uverbs::abi::flags::{Placement, Selectivity};

/// A piece of memory as the device knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its address under the key.
    pub address: u64,
    /// The key.
    pub lkey: u32,
    /// Bytes.
    pub bytes: u32,
}

impl Span {
    /// The piece of the same length that stands `index` pieces behind it.
    pub(crate) fn after(self, index: u32) -> Self {
        Self { address: self.address.wrapping_add(u64::from(index) * u64::from(self.bytes)), ..self }
    }
}

/// What a device does with a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It reads what is in it.
    Read,
    /// It writes over what is in it.
    Write,
    /// It fills its room with a message.
    Fill,
}

/// Why a request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No free entry.
    #[error("the queue is full; poll its CQ, and request a CQE at least once per queue depth")]
    Full,
    /// More pieces of memory than an entry has room for.
    #[error("more than {limit} SGEs in a work request: the queue was created with that limit")]
    Pieces {
        /// The limit.
        limit: u32,
    },
    /// More inline data than an entry has room for.
    #[error("{bytes} bytes of inline data: the queue was created with a limit of {limit}")]
    Inline {
        /// How many.
        bytes: usize,
        /// The limit.
        limit: u32,
    },
    /// An operation that the transport does not have.
    #[error("{kind} QPs do not support this operation: {operation}")]
    Operation {
        /// The transport.
        kind: Kind,
        /// The operation.
        operation: &'static str,
    },
    /// An operation that this device, or the kernel's driver of it, does not have.
    #[error(
        "this device does not support this operation: {operation}; Context::device tells what it does (device_cap_flags_ex)"
    )]
    Device {
        /// The operation.
        operation: &'static str,
    },
    /// A header of a frame to be segmented (TSO) that is too short, or longer than an entry has room for.
    #[error("a TSO header of {bytes} bytes: this queue takes {least} to {limit} (QpOptions::tso_header)")]
    Header {
        /// How many.
        bytes: usize,
        /// The fewest.
        least: u32,
        /// The limit that the queue was created with.
        limit: u32,
    },
    /// More payload than the device segments at once (TSO).
    #[error("{bytes} bytes of TSO payload: the device segments {limit} at most (FrameLimits::max_tso)")]
    Payload {
        /// How many.
        bytes: u64,
        /// The limit.
        limit: u32,
    },
    /// Memory without a key.
    #[error("memory that is not registered in the queue's protection domain, or that is shared")]
    Memory,
    /// A request that lacks what its operation needs, or has what it cannot.
    #[error("{0}")]
    Incomplete(&'static str),
}

/// A receive in a list, where entries are linked.
pub(crate) const LINKED: PostError = PostError::Incomplete(
    "a linked receive queue (Qp::link_receives): post by Qp::post_linked until it is reset",
);

/// Linked receives of a queue that has none.
pub(crate) const NOT_LINKED: PostError =
    PostError::Incomplete("no linked receive queue: call Qp::link_receives first");

/// Receives of a queue pair that takes them from a shared queue, or takes none.
pub(crate) const NO_RECEIVES: PostError =
    PostError::Incomplete("a QP without a receive queue of its own: linked receives are posted to none else");

/// Linking entries of which some are posted.
pub(crate) const NOT_IDLE: PostError = PostError::Incomplete(
    "a receive queue with posted receives: link it before the first, or when all are polled",
);

/// Transport of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Datagrams of management: queue pair 1 of a port, which every kernel keeps to itself. Models of a device that say so have it.
    Gsi,
    /// Raw frames.
    Raw,
    /// Sender of XRC.
    XrcSend,
    /// Receiver of XRC.
    XrcReceive,
}

impl Kind {
    /// As the kernel calls it.
    pub(crate) fn qp_type(self) -> QpType {
        match self {
            Self::Rc => QpType::RC,
            Self::Uc => QpType::UC,
            Self::Ud => QpType::UD,
            Self::Gsi => QpType::GSI,
            Self::Raw => QpType::RAW_PACKET,
            Self::XrcSend => QpType::XRC_INI,
            Self::XrcReceive => QpType::XRC_TGT,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Gsi => "GSI",
            Self::Raw => "RAW_PACKET",
            Self::XrcSend => "XRC_SEND",
            Self::XrcReceive => "XRC_RECV",
        })
    }
}

/// What a flush is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushRange {
    /// Where it begins, under the key.
    pub address: u64,
    /// The peer's key.
    pub rkey: u32,
    /// Its length.
    pub bytes: u32,
    /// How far it takes what was written.
    pub placement: Placement,
    /// Whether it is of the range alone.
    pub level: Selectivity,
}

impl FlushRange {
    /// What a device must be able to do.
    pub(crate) fn caps(&self) -> DeviceCaps {
        let mut caps = DeviceCaps::empty();
        caps.set(DeviceCaps::FLUSH_GLOBAL, self.placement.contains(Placement::GLOBAL));
        caps.set(DeviceCaps::FLUSH_PERSISTENT, self.placement.contains(Placement::PERSISTENT));
        caps
    }
}

/// How a memory window is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Its key now.
    pub key: u32,
    /// Its key afterwards: the low 8 bits count.
    pub next_key: u32,
    /// It serves the peer of this queue pair alone (type 2).
    pub bound_to_queue: bool,
    /// What peers may do there.
    pub access: Access,
}
