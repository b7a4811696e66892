//! What a target keeps of each initiator that is connected.

use std::collections::{BTreeMap, VecDeque};

use pollux_wire::roce::Syndrome;

use crate::rdma::path::Path;
use crate::rdma::responder::Responder;
use crate::time::TICKS_PER_US;

/// Targets of a device at most.
pub(crate) const TARGETS_MAX: usize = 256;
/// Connections of a target at most.
const CONNECTIONS_MAX: usize = 64;
/// One that was not used for so long gives way to another: whoever goes on begins a new one.
pub(super) const IDLE: u64 = 1_000_000 * TICKS_PER_US;
/// Initiators at most that are told at once that they are not connected.
const REFUSED_MAX: usize = 64;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: u64,
    pub(super) path: Path,
    pub(super) responder: Responder,
    pub(super) used: u64,
    /// A request of it was refused: it takes no other.
    pub(super) over: bool,
}

/// What a request without a connection is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) path: Path,
    pub(super) source: u32,
    pub(super) psn: u32,
    pub(super) syndrome: Syndrome,
}

/// What a queue pair has that is a target.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) key: u64,
    /// Requests with another key.
    pub(crate) violations: u32,
    /// The next one makes an event.
    pub(crate) armed: bool,
    /// By initiator: its address and its number.
    pub(super) connections: BTreeMap<([u8; 16], u32), Connection>,
    pub(super) refused: VecDeque<Refused>,
    /// As it was made.
    pub(crate) context: [u8; 64],
}

impl Target {
    pub(crate) fn new(key: u64, context: [u8; 64]) -> Self {
        Self {
            key,
            violations: 0,
            armed: false,
            connections: BTreeMap::new(),
            refused: VecDeque::new(),
            context,
        }
    }

    pub(super) fn refuse(&mut self, refused: Refused) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.push_back(refused);
        }
    }

    /// Makes room for one more connection; false when all are in use.
    pub(super) fn make_room(&mut self, now: u64) -> bool {
        if self.connections.len() < CONNECTIONS_MAX {
            return true;
        }
        let unused = |connection: &Connection| {
            connection.responder.is_idle() && now.saturating_sub(connection.used) >= IDLE
        };
        let oldest = self.connections.iter().filter(|(_, connection)| unused(connection));
        let Some(from) = oldest.min_by_key(|(_, connection)| connection.used).map(|(from, _)| *from) else {
            return false;
        };
        self.connections.remove(&from);
        true
    }
}
