//! What goes wrong, each as one line.

use std::io;
use std::path::PathBuf;

use pollux_capture::MESSAGE_BYTES_MAX;
use pollux_frame_io::FrameError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DumpcapError {
    /// Typed wrongly.
    #[error("{0}")]
    Usage(String),
    #[error(
        "no program with file prefix '{prefix}' can be captured ({}); start one, or name its prefix with --file-prefix",
        path.display()
    )]
    Connect { prefix: String, path: PathBuf, source: io::Error },
    #[error("{}: no answer", path.display())]
    Conversation { path: PathBuf, source: io::Error },
    #[error("{}: {problem}", path.display())]
    Refused { path: PathBuf, problem: String },
    #[error(
        "the filters make a request of {bytes} bytes, of which there may be {MESSAGE_BYTES_MAX}; capture from fewer ports at once"
    )]
    Long { bytes: usize },
    #[error("cannot map the buffer that the program made")]
    Map { source: io::Error },
    #[error(transparent)]
    Damaged(#[from] pollux_capture::Damaged),
    #[error("cannot {operation} {}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("the file ends with packet {packets}")]
    Write { packets: u64, source: FrameError },
    #[error("cannot {what}")]
    System { what: &'static str, source: io::Error },
}
