//! Devices for programs that nobody here wrote: `mlx5-run -- ib_send_bw` runs a program of rdma-core or perftest as it is, on a ConnectX
//! in software, without an adapter, a kernel module, a virtual machine or a right of root.
//!
//! ```text
//!   mlx5-run ── plan ──► environment ──► the program, with this library
//!      │                                     │ open, ioctl, mmap of /dev/infiniband/uverbsN
//!      └── sysfs: a folder that              ▼
//!          describes the devices         mlx5-model in the program's process ── wire ──► another program's
//! ```
//!
//! Programs that share devices are attached to a daemon, `mlx5-run --serve`, which has them in its own process.

pub mod interface;
pub mod plan;
mod preload;
pub mod sysfs;

pub use preload::{Daemon, plan_of};

/// Descriptors that are not a program's own are from here on: programs count on small numbers, and choose some themselves.
pub const DESCRIPTORS_FROM: i32 = 900;
