//! What a driver did against the rules of doorbells: silicon would fail in its own way, or at random.

use std::fmt;

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A doorbell of a queue that is not there, or not on this page.
    Unknown {
        /// The UAR page.
        uar: u32,
        /// What was stored.
        rung: [u8; 8],
    },
    /// A doorbell of a queue in the RESET state.
    NotReady {
        /// The queue.
        queue: u32,
    },
    /// The doorbell is not the head of the last entry posted: it was rung before the entry was written, or with another's.
    Head {
        /// The queue.
        queue: u32,
        /// What was stored.
        rung: [u8; 8],
        /// What stands in the ring.
        posted: [u8; 8],
    },
    /// The doorbell record does not say what the doorbell does: it was written late, or not at all.
    RecordValue {
        /// The queue.
        queue: u32,
        /// What it says.
        record: u16,
        /// The block behind the last entry.
        expected: u16,
    },
    /// The doorbell record or the ring cannot be read.
    Record {
        /// The queue.
        queue: u32,
    },
    /// More is posted than the ring has room for.
    TooMuch {
        /// The queue.
        queue: u32,
        /// Blocks, or receive entries.
        posted: u16,
    },
    /// An arm word that differs from the one in the doorbell record, or of a queue that is not there.
    Arm {
        /// The completion queue.
        queue: u32,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { uar, rung } => {
                write!(out, "doorbell {rung:02x?} on page {uar:#x} names no queue of that page")
            }
            Self::NotReady { queue } => write!(out, "doorbell of queue {queue:#x}, which is in RESET"),
            Self::Head { queue, rung, posted } => {
                write!(out, "doorbell {rung:02x?} of queue {queue:#x}, but the ring has {posted:02x?} there")
            }
            Self::RecordValue { queue, record, expected } => write!(
                out,
                "doorbell record of queue {queue:#x} says {record:#x} where the doorbell's entry ends at {expected:#x}"
            ),
            Self::Record { queue } => {
                write!(out, "queue {queue:#x}: its doorbell record or ring is not pinned")
            }
            Self::TooMuch { queue, posted } => {
                write!(out, "queue {queue:#x}: {posted} posted, which is more than its ring has")
            }
            Self::Arm { queue } => {
                write!(out, "completion queue {queue:#x}: the arm register differs from its record")
            }
        }
    }
}

/// The violations seen, the first ones in full.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    pub(crate) first: Vec<Violation>,
    pub(crate) count: u64,
}

impl Violations {
    pub(crate) fn note(&mut self, violation: Violation) {
        self.count += 1;
        if self.first.len() < 256 {
            self.first.push(violation);
        }
    }
}
