//! What Ethernet and RDMA share of a ConnectX adapter: one open device, and what both halves of a queue stand on.
//!
//! ```text
//!   context ── object ── firmware      a device's context; what is made of it, and goes children first; commands by DevX
//!      ├─ uar ── dbrec                 doorbell pages and registers; doorbell records
//!      ├─ send_ring                    send rings as they are written and posted
//!      ├─ cq                           completion queues as they are read
//!      ├─ mr ── key ── memlock         memory that the device knows, found by address; what is pinned for it
//!      └─ clock
//! ```
//!
//! Called by `pmd-mlx` (Ethernet) and `verbs` (RDMA); calls `uverbs`, `mlx5-abi`, `mempool`, `eal`. As DPDK's `drivers/common/mlx5`.
//!
//! A device is raw, and so is what is made of it: see [`context::Device::open`].

pub mod clock;
pub mod context;
pub mod cq;
pub mod dbrec;
mod error;
pub mod firmware;
pub mod key;
pub mod memlock;
pub mod mr;
pub mod object;
pub mod processor;
pub mod send_ring;
pub mod uar;

pub use error::{MlxError, Shortage};
