//! Requests that a batch has written down and the kernel has not been told of. The queue pair keeps them, so that a batch of
//! either provider is small enough for registers.

use super::abi::{SendEntry, Sge};
use super::track::Note;
use crate::provider::request::PostError;

/// The request that is being written.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) entry: SendEntry,
    pub(super) note: Note,
    pub(super) sges: Vec<Sge>,
    pub(super) inline: Vec<u8>,
    /// The kernel writes its pieces.
    pub(super) writes: bool,
    /// A datagram without an address.
    pub(super) lacks: bool,
    /// It has no data.
    pub(super) bare: bool,
}

/// What a batch has written down so far.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) closed: Vec<Note>,
    pub(super) open: Option<Request>,
    pub(super) failed: Option<PostError>,
}

impl Written {
    /// Drops what no doorbell told of.
    #[inline(never)]
    pub(super) fn forget(&mut self) {
        self.closed.clear();
        self.open = None;
        self.failed = None;
    }
}
