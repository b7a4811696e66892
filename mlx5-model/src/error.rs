//! What can go wrong when a model is made.

use pollux_eal::region::MemoryError;
use pollux_frame_io::FrameError;
use pollux_mlx5_kernel::KernelError;

/// Why a model, or its wire, could not be made. One line each: what, which value, the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The text after `wire=` means nothing.
    #[error("wire '{text}': {problem}; wires: {}", crate::wire::FORMS)]
    Wire {
        /// As given.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A cable has two ends.
    #[error("cable '{name}' has both its ends in use: name another cable, or let one device go first")]
    CableTaken {
        /// The cable.
        name: String,
    },
    /// A file, an interface or a socket.
    #[error(transparent)]
    Frames(#[from] FrameError),
    /// The firmware did not start, or the kernel's half found it unfit.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// No memory for the device's registers.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A value outside what is possible.
    #[error("{key}={value}: {allowed}")]
    Setting {
        /// Which setting.
        key: &'static str,
        /// The value given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// A thread could not be made, or not put where it was asked for.
    #[error("{thread}: cannot {operation}{mend}: {source}")]
    Thread {
        /// Its name.
        thread: String,
        /// What was tried.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
        /// The way out, if there is one.
        mend: &'static str,
    },
}
