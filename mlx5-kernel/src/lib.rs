//! The kernel's half of mlx5, in user space: what Linux's `mlx5_core` and `mlx5_ib` do between a program's uverbs calls and
//! the adapter's firmware.
//!
//! ```text
//!   pmd-mlx, verbs, foreign programs
//!        │ uverbs::Channel: calls with the kernel's bytes
//!   mlx5-kernel: contexts, handles, checks, pinned memory, events
//!        │ CommandQueue: firmware commands          │ DmaMemory: pages that the device may reach
//!   mlx5-model (a real function behind VFIO one day)
//! ```
#![forbid(unsafe_code)]

mod device;

pub use device::{CommandQueue, DmaMemory, Gone, InterruptHandler, Pinned, Rights};
