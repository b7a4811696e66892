//! Where a port stands in its life.

use std::fmt;

/// Where a port stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortState {
    /// Opened, nothing else.
    Unconfigured,
    /// Has queue counts and options; never started since.
    Configured,
    /// Packets flow.
    Started,
    /// Was started and is not now.
    Stopped,
    /// The device has disappeared; only stop and close are left.
    Gone,
    /// Ended.
    Closed,
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unconfigured => "unconfigured",
            Self::Configured => "configured",
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
            Self::Closed => "closed",
        })
    }
}
