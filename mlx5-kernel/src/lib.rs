//! The kernel's half of mlx5, in user space: what Linux's `mlx5_core` and `mlx5_ib` do between a program's uverbs calls and
//! the adapter's firmware.
//!
//! ```text
//!   pmd-mlx, verbs, foreign programs
//!        │ uverbs::Channel: calls with the kernel's bytes
//!   session: method │ write      attributes and lengths checked as Linux checks them, handles looked up
//!        │
//!   pd mr cq wq rwq_table qp flow counters uar matcher devx      one file a kind of object: the driver's part checked,
//!        │                  │                                    memory pinned, commands made, answers told
//!      umem             steering                                 tables, groups, entries, shared by all contexts
//!        │                  │
//!   firmware: commands  ────┘                event: event queues ──► descriptors of programs
//!        │ CommandQueue                           ▲ interrupts
//!   mlx5-model (a real function behind VFIO one day)
//! ```
//!
//! [`Kernel::new`] starts the firmware and makes the kernel's own event queues; [`Kernel::open`] is what opening the
//! device's file is. Everything a channel made goes with its last handle, younger objects first. [`DoorProfile`] says what
//! this "kernel" lacks, so that fall-backs are tried out.
//!
//! Called by `mlx5-model` and what stands in front of it; calls `uverbs` for the ABI, `mlx5-abi` for layouts, `eal` for
//! memory. What comes in is bytes of strangers: nothing here panics on them.
//!
//! What is here is what Ethernet needs. Queue pairs of RC, UC and UD, shared receive queues, XRC domains, address handles and
//! memory windows are `EOPNOTSUPP`; so are device memory, changed headers and pacing.
#![forbid(unsafe_code)]

mod capability;
mod clock;
mod context;
mod core;
mod counters;
mod cq;
mod device;
mod devx;
mod error;
mod event;
mod firmware;
mod flow;
mod handle;
mod kernel;
mod matcher;
mod method;
mod mr;
mod pd;
mod pieces;
mod port;
mod profile;
mod qp;
mod query;
mod ring;
mod rwq_table;
mod session;
mod start;
mod steering;
mod uar;
mod udata;
mod umem;
mod wq;
mod write;

pub use device::{CommandQueue, DmaMemory, Gone, Identity, InterruptHandler, Pinned, Rights};
pub use error::KernelError;
pub use handle::ObjectKind;
pub use kernel::Kernel;
pub use method::{AttributeSpec, Carries, attributes};
pub use profile::DoorProfile;
