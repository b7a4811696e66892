//! What can go wrong while pools are set up.

use pollux_eal::region::MemoryError;
use pollux_ring::RingError;

/// Errors of creating a pool or a dynamic field. None of them occurs on the data path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A count, size or option is out of range.
    #[error("pool {name}: {what} is {value}, must be from {least} to {most}")]
    OutOfRange {
        /// The pool.
        name: String,
        /// The option.
        what: &'static str,
        /// Requested value.
        value: usize,
        /// Minimum.
        least: usize,
        /// Maximum.
        most: usize,
    },
    /// The memory given holds fewer objects than asked for.
    #[error(
        "pool {name}: the given memory holds {fit} objects of {stride} bytes, but {count} are required; give more memory or fewer objects"
    )]
    AreasTooSmall {
        /// The pool.
        name: String,
        /// Number of objects that fit.
        fit: usize,
        /// Requested number of objects.
        count: usize,
        /// Size of an object in bytes.
        stride: usize,
    },
    /// All pool IDs are in use.
    #[error("pool {name}: all {limit} pool numbers are in use; drop a pool first")]
    TooManyPools {
        /// The pool.
        name: String,
        /// Maximum number of pools.
        limit: usize,
    },
    /// Memory could not be allocated.
    #[error("pool {name}: no memory for {count} objects of {stride} bytes")]
    Memory {
        /// The pool.
        name: String,
        /// Requested number of objects.
        count: usize,
        /// Size of an object in bytes.
        stride: usize,
        /// The reason.
        source: MemoryError,
    },
    /// The backend could not be created.
    #[error("pool {name}: no back end for {count} objects")]
    Backend {
        /// The pool.
        name: String,
        /// Requested number of objects.
        count: usize,
        /// The reason.
        source: RingError,
    },
    /// A pool event callback tried to create a pool.
    #[error("pool {name}: a pool event callback must not create a pool")]
    InsideEvent {
        /// The pool.
        name: String,
    },
    /// A dynamic field was registered again with another size.
    #[error("dynamic field {name}: requested with {bytes} bytes, but already registered with {registered}")]
    FieldSize {
        /// The field.
        name: String,
        /// Its size.
        registered: usize,
        /// The size asked for.
        bytes: usize,
    },
    /// There is no room for another dynamic field or flag.
    #[error("dynamic {what} {name}: no space left in the mbuf")]
    NoDynamicRoom {
        /// Its name.
        name: String,
        /// `field` or `flag`.
        what: &'static str,
    },
}
