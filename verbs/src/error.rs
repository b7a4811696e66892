//! What can go wrong, in one line each.

use crate::provider::request::PostError;
use pollux_eal::region::MemoryError;
use pollux_mlx5_common::MlxError;
use pollux_uverbs::UverbsError;

use crate::QpState;

/// Errors of verbs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The kernel, or the model in its place, returned an error.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What was being done.
        what: &'static str,
        /// The answer.
        source: UverbsError,
    },
    /// An error of the mlx5 provider.
    #[error(transparent)]
    Mlx5(#[from] MlxError),
    /// A request could not be posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Memory could not be allocated.
    #[error("cannot {what}: {source}")]
    Memory {
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: MemoryError,
    },
    /// Not supported by this device or kind of object.
    #[error("{what}: {why}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// The reason, and the alternative.
        why: String,
    },
    /// QP state transition that is not allowed.
    #[error("cannot modify a {kind} QP from {from} to {to}{}", missing(.lacks, .surplus))]
    Transition {
        /// Transport type.
        kind: &'static str,
        /// Current state.
        from: QpState,
        /// Requested state.
        to: QpState,
        /// Missing required attributes.
        lacks: Vec<&'static str>,
        /// Attributes that are not allowed in this transition.
        surplus: Vec<&'static str>,
    },
    /// The object is still in use.
    #[error("{what} is still in use: {by}")]
    InUse {
        /// What.
        what: &'static str,
        /// By whom.
        by: &'static str,
    },
    /// An object of one context was given to an object of another.
    #[error("{what} of {of} cannot be used with {here}: both must belong to the same Context")]
    Foreign {
        /// What was given.
        what: &'static str,
        /// Whose it is.
        of: String,
        /// To whom it was given.
        here: String,
    },
    /// A value out of range.
    #[error("{what} {value}: {allowed}")]
    Range {
        /// What.
        what: &'static str,
        /// The value.
        value: u64,
        /// What is allowed.
        allowed: String,
    },
    /// No such device.
    #[error(transparent)]
    Discovery(UverbsError),
    /// A device whose driver is not known here.
    #[error("{device} has driver {driver}; supported drivers: mlx5_core, rxe")]
    Driver {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
    },
    /// Waiting for events failed.
    #[error("cannot wait for events: {0}")]
    Wait(std::io::Error),
}

fn missing(lacks: &[&str], surplus: &[&str]) -> String {
    let mut text = String::new();
    if !lacks.is_empty() {
        text.push_str(&format!("; it needs {}", lacks.join(", ")));
    }
    if !surplus.is_empty() {
        text.push_str(&format!("; it takes no {}", surplus.join(", ")));
    }
    text
}

impl VerbsError {
    pub(crate) fn kernel(what: &'static str) -> impl FnOnce(UverbsError) -> Self {
        move |source| Self::Kernel { what, source }
    }

    /// Returns the errno, if the kernel returned the error.
    #[must_use]
    pub fn errno(&self) -> Option<pollux_uverbs::Errno> {
        match self {
            Self::Kernel { source, .. } | Self::Discovery(source) => source.errno(),
            Self::Mlx5(MlxError::Verbs { source, .. }) => source.errno(),
            _ => None,
        }
    }
}
