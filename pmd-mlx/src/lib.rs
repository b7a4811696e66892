//! The poll-mode driver for ConnectX adapters.
//!
//! Control goes through [`pollux_uverbs::Context`], to the kernel's file or a model; data through rings, doorbell records
//! and registers that are memory in both cases.

pub mod cq;
pub mod dbrec;
mod error;
pub mod eth;
pub mod key;
pub mod netdev;

pub use error::MlxError;
