//! What queue pairs and shared receive queues are made with: the same for users, providers and the kernel.

use pollux_uverbs::abi::queue_pair::QpCap;

use crate::provider::request::Kind as QpKind;

/// Creation parameters of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpOptions {
    /// Transport type.
    pub kind: QpKind,
    /// Minimum capacities.
    pub room: QpSizes,
    /// Every send generates a CQE (`sq_sig_all`); otherwise only signaled ones.
    pub all_signalled: bool,
    /// Blocks loopback of its own multicast packets (`IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`).
    pub block_loopback: bool,
    /// Writes small WQEs directly to the device (BlueFlame) instead of letting it fetch them.
    pub blueflame: bool,
    /// Longest header of a frame to be segmented, in bytes (`max_tso_header`); 0: none is ([`Batch::send_tso`](crate::Batch::send_tso)). RAW_PACKET
    /// alone. Each send takes room for it in the ring.
    pub tso_header: u32,
}

impl QpOptions {
    /// Creates parameters with 128 sends and 128 receives of one SGE and no inline data.
    #[must_use]
    pub fn new(kind: QpKind) -> Self {
        Self {
            kind,
            room: QpSizes { sends: 128, receives: 128, send_pieces: 1, recv_pieces: 1, inline: 0 },
            all_signalled: false,
            block_loopback: false,
            blueflame: true,
            tso_header: 0,
        }
    }

    /// Sets the queue depths.
    #[must_use]
    pub fn depth(self, sends: u32, receives: u32) -> Self {
        Self { room: QpSizes { sends, receives, ..self.room }, ..self }
    }

    /// Sets the inline data per send.
    #[must_use]
    pub fn inline(self, inline: u32) -> Self {
        Self { room: QpSizes { inline, ..self.room }, ..self }
    }

    /// Sets the longest header of a frame to be segmented (TSO), in bytes. IPv4 and TCP without options take 54, IPv6 and TCP with
    /// all options 114; a VLAN tag takes 4 more.
    #[must_use]
    #[doc(alias = "max_tso_header")]
    pub fn tso_header(self, tso_header: u32) -> Self {
        Self { tso_header, ..self }
    }

    /// Sets the SGEs per send and per receive.
    #[must_use]
    pub fn pieces(self, send_pieces: u32, recv_pieces: u32) -> Self {
        Self { room: QpSizes { send_pieces, recv_pieces, ..self.room }, ..self }
    }
}

/// Capacities of a queue pair, requested or actual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSizes {
    /// Sends, if all have the maximum size.
    pub sends: u32,
    /// Receives; 0 where it has a shared queue, or receives nothing.
    pub receives: u32,
    /// SGEs per send.
    pub send_pieces: u32,
    /// SGEs per receive.
    pub recv_pieces: u32,
    /// Inline data per send, in bytes (`max_inline_data`).
    pub inline: u32,
}

impl QpSizes {
    /// As the kernel is asked for it.
    pub(crate) fn cap(self) -> QpCap {
        QpCap {
            max_send_wr: self.sends,
            max_recv_wr: self.receives,
            max_send_sge: self.send_pieces,
            max_recv_sge: self.recv_pieces,
            max_inline_data: self.inline,
        }
    }
}

/// Creation parameters of a shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SrqOptions {
    /// Receives that it shall have room for.
    pub receives: u32,
    /// SGEs per receive (`max_sge`).
    pub pieces: u32,
    /// SRQ limit: an event is raised when fewer receives are left; 0 disables it.
    pub limit: u32,
}

impl SrqOptions {
    /// Creates parameters with this depth and one SGE per receive.
    #[must_use]
    pub fn new(receives: u32) -> Self {
        Self { receives, pieces: 1, limit: 0 }
    }
}
