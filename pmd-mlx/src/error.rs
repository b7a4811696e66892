//! What can go wrong, in one line each.

use pollux_eal::region::MemoryError;
use pollux_mlx5_abi::command::{Refused, opcode};
use pollux_uverbs::UverbsError;

/// Why a port could not be opened, or a queue not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MlxError {
    /// The kernel, or the model in its place, refused.
    #[error("cannot {what}: {source}")]
    Verbs {
        /// What was being done.
        what: &'static str,
        /// The answer.
        source: UverbsError,
    },
    /// The firmware refused a command.
    #[error("cannot {what}: {}: {refused}", opcode::name(*.opcode).unwrap_or("command"))]
    Firmware {
        /// What was being done.
        what: &'static str,
        /// The command.
        opcode: u16,
        /// Status and syndrome.
        refused: Refused,
    },
    /// More locked memory than the limit allows.
    #[error(
        "cannot {what}: {} KiB of locked memory are needed ({} KiB in pools, {} KiB in queues and doorbell records, \
         {} KiB now), the limit is {} KiB; `ulimit -l unlimited` in the shell before, or LimitMEMLOCK=infinity in the unit, raises it",
        (pools + queues + wanted) / 1024, pools / 1024, queues / 1024, wanted / 1024, limit / 1024
    )]
    Memlock {
        /// What was being done.
        what: &'static str,
        /// Bytes registered for pools.
        pools: u64,
        /// Bytes registered for rings and doorbell records.
        queues: u64,
        /// Bytes that were to be added.
        wanted: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// No memory for rings.
    #[error("cannot {what}")]
    Memory {
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: MemoryError,
    },
    /// A queue cannot be what was asked for.
    #[error("{queue}: {problem}")]
    Queue {
        /// Which.
        queue: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The device is not what this driver drives, or lacks what it needs.
    #[error("{device}: {problem}")]
    Device {
        /// The channel's description.
        device: String,
        /// What is wrong.
        problem: String,
    },
}

impl MlxError {
    /// For `map_err`: what was being done when the kernel refused.
    pub(crate) fn verbs(what: &'static str) -> impl FnOnce(UverbsError) -> Self {
        move |source| Self::Verbs { what, source }
    }

    /// Whether it says that the device is gone.
    #[must_use]
    pub fn says_gone(&self) -> bool {
        use pollux_uverbs::Errno;
        match self {
            Self::Verbs { source, .. } => matches!(source.errno(), Some(Errno::EIO | Errno::ENODEV)),
            _ => false,
        }
    }
}
