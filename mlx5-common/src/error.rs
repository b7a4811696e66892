//! What can go wrong, in one line each.

use pollux_eal::region::MemoryError;
use pollux_mlx5_abi::command::{Refused, opcode};
use pollux_uverbs::UverbsError;

pub use crate::memlock::Shortage;

/// Why a port could not be opened, or a queue not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MlxError {
    /// The kernel, or the model in its place, refused.
    #[error("cannot {what}{}: {source}", of(.asked))]
    Verbs {
        /// What was being done.
        what: &'static str,
        /// With which values; empty where there were none to speak of.
        asked: String,
        /// The answer.
        source: UverbsError,
    },
    /// The firmware refused a command.
    #[error("cannot {what}: {}: {refused}; {}", opcode::name(*.opcode).unwrap_or("command"), .refused.advice())]
    Firmware {
        /// What was being done.
        what: &'static str,
        /// The command.
        opcode: u16,
        /// Status and syndrome.
        refused: Refused,
    },
    /// The kernel or the firmware answered with what this driver cannot work with.
    #[error("{device}: {call}: {problem}; update {mend}")]
    Answer {
        /// The channel's description.
        device: String,
        /// What was asked.
        call: &'static str,
        /// What is wrong with the answer, and what would be right.
        problem: String,
        /// What is to be updated.
        mend: &'static str,
    },
    /// More locked memory than the limit allows.
    #[error("cannot {what}: {shortage}")]
    Memlock {
        /// What was being done.
        what: &'static str,
        /// How much is there, needed and allowed.
        shortage: Shortage,
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

fn of(asked: &str) -> String {
    if asked.is_empty() { String::new() } else { format!(" of {asked}") }
}

impl MlxError {
    /// For `map_err`: what was being done when the kernel refused.
    pub fn verbs(what: &'static str) -> impl FnOnce(UverbsError) -> Self {
        move |source| Self::Verbs { what, asked: String::new(), source }
    }

    /// Says with which values it was asked for.
    pub fn with(self, values: impl FnOnce() -> String) -> Self {
        match self {
            Self::Verbs { what, source, .. } => Self::Verbs { what, asked: values(), source },
            other => other,
        }
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
