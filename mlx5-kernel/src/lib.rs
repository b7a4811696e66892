//! The kernel's half of mlx5, in user space: what Linux's `mlx5_core` and `mlx5_ib` do between a program's uverbs calls and
//! the adapter's firmware.
//!
//! ```text
//!   pmd-mlx, verbs, foreign programs
//!        │ uverbs::Channel: calls with the kernel's bytes
//!   uverbs_channel: method │ write   attributes and lengths checked as Linux checks them, and who carries a call out
//!        │
//!   pd mr mw cq srq qp xrcd ah wq rwq_table                      one file a kind of object: the driver's part checked,
//!   flow flow_action counters uar matcher devx                   memory pinned, commands made, answers told
//!        │
//!   session: handles             a context and its objects, of which it knows that they end, and not what they are
//!        │
//!   core: umem          steering      neighbour ◄── frames       tables shared by all contexts; who has which address
//!        │                  │
//!   adapter                 │
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
//! A kernel's own network is behind the port only as far as RDMA needs it ([`Network`]): its addresses become GIDs, and ARP and
//! neighbour discovery are answered and asked; a GID's MAC is found as Linux finds it. A call that waits for an answer holds
//! up its own context, for three seconds at most.
//!
//! RoCE is version 2 alone. Absent: queue pair 1 and connection management, dynamically connected queue pairs, tag matching,
//! pacing, atomics with masks, congestion control. The port's addresses stay what they were
//! made, so no event says that a GID changed.

mod adapter;
mod ah;
mod capability;
mod clock;
mod context;
mod core;
mod counters;
mod cq;
mod device;
mod devx;
mod dm;
mod error;
mod event;
mod firmware;
mod flow;
mod flow_action;
mod gid;
mod handle;
mod joined;
mod kernel;
mod loopback;
mod matcher;
mod method;
mod mkey;
mod mr;
mod mw;
mod neighbour;
mod object_counts;
mod own;
mod paging;
mod pd;
mod pieces;
mod port;
mod profile;
mod qp;
mod query;
mod queue_counters;
mod rate;
mod ring;
mod rwq_table;
mod session;
mod srq;
mod start;
mod steering;
mod uar;
mod udata;
mod umem;
mod uverbs_channel;
mod wq;
mod write;
mod xrcd;

pub use device::{CommandQueue, DmaMemory, Gone, Identity, InterruptHandler, Pinned, Rights};
pub use error::KernelError;
pub use handle::ObjectKind;
pub use kernel::Kernel;
pub use method::{AttributeSpec, Carries, attributes};
pub use neighbour::{FrameListener, Frames, InterfaceAddress, InterfaceAddressError, Network};
pub use profile::DoorProfile;
