//! What can go wrong while pools are set up.

use pollux_eal::region::MemoryError;
use pollux_ring::RingError;

/// What can go wrong while a pool or a dynamic field is set up. Nothing here happens on the data path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A count, size or option is outside what is allowed.
    #[error("pool {name}: {what} is {value}, allowed is {least} to {most}")]
    OutOfRange {
        /// The pool.
        name: String,
        /// The option.
        what: &'static str,
        /// What was asked for.
        value: usize,
        /// The least that is accepted.
        least: usize,
        /// The most that is accepted.
        most: usize,
    },
    /// The memory given holds fewer objects than asked for.
    #[error(
        "pool {name}: the memory given holds {fit} pieces of {stride} bytes, {count} are wanted; give more or ask for fewer"
    )]
    AreasTooSmall {
        /// The pool.
        name: String,
        /// How many fit.
        fit: usize,
        /// How many were asked for.
        count: usize,
        /// Bytes that one takes.
        stride: usize,
    },
    /// Every pool number is in use.
    #[error("pool {name}: all {limit} pool numbers are in use; drop a pool first")]
    TooManyPools {
        /// The pool.
        name: String,
        /// How many pools there can be.
        limit: usize,
    },
    /// Memory could not be had.
    #[error("pool {name}: no memory for {count} objects of {stride} bytes")]
    Memory {
        /// The pool.
        name: String,
        /// How many objects were asked for.
        count: usize,
        /// Bytes that one object takes.
        stride: usize,
        /// The reason.
        source: MemoryError,
    },
    /// The back end could not be made.
    #[error("pool {name}: no back end for {count} objects")]
    Backend {
        /// The pool.
        name: String,
        /// How many objects were asked for.
        count: usize,
        /// The reason.
        source: RingError,
    },
    /// A pool was made from within a pool event callback.
    #[error("pool {name}: a pool event callback may not make a pool")]
    InsideEvent {
        /// The pool.
        name: String,
    },
    /// A dynamic field was registered again with another size.
    #[error("dynamic field {name}: registered with {registered} bytes, asked for with {bytes}")]
    FieldSize {
        /// The field.
        name: String,
        /// Its size.
        registered: usize,
        /// The size asked for.
        bytes: usize,
    },
    /// There is no room for another dynamic field or flag.
    #[error("dynamic {what} {name}: no room left in the mbuf for another one")]
    NoDynamicRoom {
        /// Its name.
        name: String,
        /// `field` or `flag`.
        what: &'static str,
    },
}
