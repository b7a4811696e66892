//! What can go wrong, in one line each.

use crate::provider::request::PostError;
use pollux_eal::region::MemoryError;
use pollux_mlx5_common::MlxError;
use pollux_uverbs::UverbsError;

use crate::QpState;

/// Why something could not be made, changed or asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The kernel, or the model in its place, refused.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What was being done.
        what: &'static str,
        /// The answer.
        source: UverbsError,
    },
    /// The mlx5 provider could not.
    #[error(transparent)]
    Mlx5(#[from] MlxError),
    /// A request could not be posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// No memory.
    #[error("cannot {what}: {source}")]
    Memory {
        /// What was being done.
        what: &'static str,
        /// Why not.
        source: MemoryError,
    },
    /// Something that this device or this kind of object does not have.
    #[error("{what}: {why}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// Why it is not to be had, and what is.
        why: String,
    },
    /// A change of a queue pair that its state does not allow.
    #[error("a {kind} queue pair cannot go from {from} to {to}{}", missing(.lacks, .surplus))]
    Transition {
        /// Its transport.
        kind: &'static str,
        /// Where it is.
        from: QpState,
        /// Where it was to go.
        to: QpState,
        /// Attributes that the change needs and that were not given.
        lacks: Vec<&'static str>,
        /// Attributes that were given and have no place in it.
        surplus: Vec<&'static str>,
    },
    /// Somebody still uses it.
    #[error("{what} is still in use: {by}")]
    InUse {
        /// What.
        what: &'static str,
        /// By whom.
        by: &'static str,
    },
    /// An object of one context was given to an object of another.
    #[error("{what} of {of} cannot be used with {here}: both must be made of one Context")]
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
    #[error("{device} has the driver {driver}; mlx5_core and rxe are known")]
    Driver {
        /// The device.
        device: String,
        /// Its driver.
        driver: String,
    },
    /// A wait for events failed.
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

    /// The kernel's error number, if it is one of its refusals.
    #[must_use]
    pub fn errno(&self) -> Option<pollux_uverbs::Errno> {
        match self {
            Self::Kernel { source, .. } | Self::Discovery(source) => source.errno(),
            Self::Mlx5(MlxError::Verbs { source, .. }) => source.errno(),
            _ => None,
        }
    }
}
