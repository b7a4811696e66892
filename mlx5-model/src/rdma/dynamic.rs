//! Dynamic connections (DC): an initiator sends to any target, over a connection that lasts as long as it has requests under way.
//!
//! What initiators and targets are and do is said by Linux `drivers/infiniband/hw/mlx5/qp.c` (`create_dci`, `create_dct`,
//! `mlx5_ib_modify_dct`, `modify_dci_qp_is_ok`) and rdma-core's `providers/mlx5/man/mlx5dv_create_qp.3.md`, `mlx5dv_wr_post.3.md` and
//! `mlx5dv_dci_stream_id_reset.3.md`: a send entry names its target and the target's key; a target takes receive entries of a shared
//! queue; a stream that failed is flushed alone until it is reset, and too many of them take the initiator to ERR.
//!
//! # Assumed
//! No public source has the packets. They are this model's own, and no card understands them: opcodes are those of a reliable
//! connection in a range that the InfiniBand Architecture Specification (volume 1, 9.2.1) leaves to manufacturers ([`TRANSPORT`]),
//! and in front of a request's other headers stands a [`Header`]. Nor does one say how a request with a wrong key is answered (here:
//! as one that memory refuses), when a connection ends (here: when nothing is under way, or its initiator turns to another target),
//! and what becomes of the receive entry of a message that breaks off (here: it is flushed). Requests of different streams are
//! not mixed. A path's MTU is that of both ends, as of reliable connections, and pages that are not there are refused: capabilities
//! do not say that they are asked for.

mod connection;
mod initiator;
pub(super) mod target;

use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::path::Path;
pub(crate) use connection::{TARGETS_MAX, Target};
pub(crate) use initiator::{FAILED_MAX_LOG, Initiator, STREAMS_MAX_LOG};

/// The transport's part of an opcode.
pub(crate) const TRANSPORT: u8 = 0xc0;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) path: Path,
    pub(crate) target: u32,
    pub(crate) key: u64,
}

/// What a request is part of.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(crate) struct Header {
    /// The target's.
    pub(crate) key: U64,
    /// Which connection of the initiator: later ones have higher numbers.
    pub(crate) session: U64,
    /// The initiator.
    pub(crate) source: U32,
    /// The connection's first sequence number.
    pub(crate) first: U32,
}

impl Header {
    pub(crate) const BYTES: usize = size_of::<Self>();
}

const _: () = assert!(Header::BYTES == 24);
