//! The poll-mode driver for ConnectX adapters.
//!
//! Control goes through [`pollux_uverbs::Context`], to the kernel's file or a model; data through rings, doorbell records
//! and registers that are memory in both cases.

pub mod context;
pub mod cq;
pub mod dbrec;
pub mod devargs;
mod error;
pub mod eth;
pub mod key;
mod memlock;
pub mod mr;
pub mod netdev;
pub mod object;
pub mod uar;

pub use devargs::Arguments;
pub use error::MlxError;
pub use eth::port::{Mlx5Port, PortSpec};
pub use netdev::{KernelNetdev, Netdev};
