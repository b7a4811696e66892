//! Why a pool could not be made.

use pollux_eal::region::MemoryError;

/// What can go wrong while a pool is set up. Nothing here happens on the data path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A count, size or option is outside what is allowed.
    #[error("pool {name}: {what} is {value}, allowed is {allowed}")]
    OutOfRange {
        /// The pool.
        name: String,
        /// The option.
        what: &'static str,
        /// What was asked for.
        value: usize,
        /// What would have been accepted.
        allowed: String,
    },
    /// The zones given hold fewer objects than asked for.
    #[error(
        "pool {name}: the zones given hold {fit} objects of {stride} bytes, {count} are wanted; give more memory or ask for fewer"
    )]
    ZonesTooSmall {
        /// The pool.
        name: String,
        /// How many fit.
        fit: usize,
        /// How many were asked for.
        count: usize,
        /// Bytes that one object takes.
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
    /// A pool was made from within a pool event callback.
    #[error("pool {name}: a pool event callback may not make a pool")]
    InsideEvent {
        /// The pool.
        name: String,
    },
}
