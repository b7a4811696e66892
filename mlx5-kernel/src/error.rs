//! Why a device could not be started.

use pollux_eal::region::MemoryError;
use pollux_mlx5_abi::command::Refused;
use pollux_uverbs::{Errno, UverbsError};

use crate::device::Gone;

/// Why a device could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The device answers no command.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The firmware refused a command of the start.
    #[error("the firmware refused {command} while the device was started: {refused}; {}", .refused.advice())]
    Refused {
        /// Its name.
        command: &'static str,
        /// What it answered.
        refused: Refused,
    },
    /// No memory for a ring of the kernel's own.
    #[error("no memory for {what}")]
    Memory {
        /// For what.
        what: &'static str,
        /// Why.
        source: MemoryError,
    },
    /// The device may not reach memory of the kernel's own.
    #[error(
        "{bytes} bytes for {what} cannot be pinned: {source}; `ulimit -l` tells the limit on locked memory"
    )]
    Pin {
        /// What the memory is for.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// Why.
        source: Errno,
    },
    /// A UAR page that the firmware gave cannot be mapped.
    #[error("UAR {number}, given by the firmware, is no page of the device")]
    NoUar {
        /// Its number.
        number: u32,
    },
    /// A UAR page that the kernel needs for itself is taken.
    #[error("the kernel's own UAR page cannot be used")]
    Registers(#[from] UverbsError),
    /// The device lacks what nothing can be done without.
    #[error("the device tells {what} = {value}, {wanted} is needed")]
    Unfit {
        /// Which capability.
        what: &'static str,
        /// What it tells.
        value: u64,
        /// What is needed.
        wanted: &'static str,
    },
}
