//! What queue pairs and shared receive queues are made with: the same for users, providers and the kernel.

use pollux_uverbs::abi::queue_pair::QpCap;

use crate::provider::request::Kind as QpKind;

/// What queue pair to make.
#[derive(Clone, Copy, Debug)]
pub struct QpOptions {
    /// Its transport.
    pub kind: QpKind,
    /// What it shall have room for, at least.
    pub room: QpSizes,
    /// Every send makes a completion; otherwise those that ask for one.
    pub all_signalled: bool,
    /// Multicasts that it sends do not come back to it.
    pub block_loopback: bool,
    /// Small requests are copied to the device instead of being fetched.
    pub blueflame: bool,
}

impl QpOptions {
    /// Of a transport: 128 sends and receives of one piece, nothing inline.
    #[must_use]
    pub fn new(kind: QpKind) -> Self {
        Self {
            kind,
            room: QpSizes { sends: 128, receives: 128, send_pieces: 1, recv_pieces: 1, inline: 0 },
            all_signalled: false,
            block_loopback: false,
            blueflame: true,
        }
    }

    /// With so many sends and receives.
    #[must_use]
    pub fn depth(self, sends: u32, receives: u32) -> Self {
        Self { room: QpSizes { sends, receives, ..self.room }, ..self }
    }

    /// With so many inline bytes.
    #[must_use]
    pub fn inline(self, inline: u32) -> Self {
        Self { room: QpSizes { inline, ..self.room }, ..self }
    }

    /// With so many pieces of memory in sends and receives.
    #[must_use]
    pub fn pieces(self, send_pieces: u32, recv_pieces: u32) -> Self {
        Self { room: QpSizes { send_pieces, recv_pieces, ..self.room }, ..self }
    }
}

/// What a queue pair has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpSizes {
    /// Sends of the longest kind.
    pub sends: u32,
    /// Receives; 0 where it has a shared queue, or receives nothing.
    pub receives: u32,
    /// Pieces of a send.
    pub send_pieces: u32,
    /// Pieces of a receive.
    pub recv_pieces: u32,
    /// Inline bytes of a send.
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

/// What shared receive queue to make.
#[derive(Clone, Copy, Debug)]
pub struct SrqOptions {
    /// Receives that it shall have room for.
    pub receives: u32,
    /// Pieces of memory of one.
    pub pieces: u32,
    /// An event when fewer than so many are left; 0 for none.
    pub limit: u32,
}

impl SrqOptions {
    /// With room for so many receives of one piece.
    #[must_use]
    pub fn new(receives: u32) -> Self {
        Self { receives, pieces: 1, limit: 0 }
    }
}
