//! The bytes that ConnectX adapters and Linux's mlx5 drivers exchange: layouts and nothing else.
//!
//! The driver and the device model share them, so neither can drift: a structure is declared once, its size and
//! offsets asserted at compile time, its source named, and the tests compare every one with what a C compiler says of the
//! headers of Linux and rdma-core (`golden/`).
//!
//! ```text
//!            host memory                                               adapter
//!   +--------------------------------+
//!   | send ring: blocks of 64 bytes  |<--- reads entries --------------+
//!   |  Control|Ethernet|Data ...     |      (wqe)                      |
//!   +--------------------------------+                                 |
//!   | doorbell record: receive, send |<--- reads ----------------------+
//!   +--------------------------------+      (doorbell)                 |
//!             software: entry, then record, then                       |
//!             8 bytes -----------------------------> UAR page + 0x800 -+
//!                                                    (doorbell::uar)
//!   +--------------------------------+
//!   | completion ring: 64 bytes each |<--- writes; the owner bit flips each pass
//!   |  Cqe64 | CqeError | MiniCqe x8 |      (cqe, opcode, syndrome)
//!   +--------------------------------+
//!   | doorbell record: consumer, arm |<--- reads, when told by UAR + 0x20
//!   +--------------------------------+
//!   | event ring: 64 bytes each      |<--- writes, then raises an interrupt
//!   |  Eqe                           |      (eqe)
//!   +--------------------------------+
//!
//!   set-up:   software --- uverbs call (kernel) ---> mlx5_ib --- command ---> firmware
//!                      \-- DevX: the command itself -----------/  (command, caps)
//! ```
//!
//! - [`wqe`], [`cqe`], [`eqe`], [`doorbell`]: the data path, structures of big-endian numbers.
//! - [`command`], [`caps`]: the firmware's commands, blocks of bytes with [`field`]s.
//! - [`opcode`], [`syndrome`], [`command::status`]: codes and their names.
//! - [`kernel`]: what mlx5_ib adds to the kernel's RDMA interface.
//!
//! Called by `mlx5-common`, `pmd-mlx`, `verbs`, `mlx5-kernel` and `mlx5-model`; calls nothing. What comes from a device or a stranger is read
//! as numbers, so no bytes can make it panic.

#![forbid(unsafe_code)]

pub mod caps;
pub mod command;
pub mod cqe;
pub mod doorbell;
mod dump;
pub mod eqe;
pub mod field;
pub mod kernel;
pub mod layout;
pub mod opcode;
pub mod paging;
pub mod syndrome;
pub mod wqe;
