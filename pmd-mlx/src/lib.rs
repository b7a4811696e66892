//! The poll-mode driver for ConnectX adapters.
//!
//! Control goes through [`pollux_uverbs::Context`], to the kernel's file or a model; data through rings, doorbell records
//! and registers that are memory in both cases. The kernel keeps its own interface on the function: rules decide what comes
//! here, the rest stays there.
//!
//! ```text
//!   bringup ── Mlx5Spec: channel, interface, arguments, memory
//!        │
//!   Mlx5Port (eth::port) ── context ── uar ── dbrec ── mr, key          one device, its doorbells, records and memory
//!        │        │  └───── netdev                                      address, MTU, link: the kernel's interface
//!        │        ├─ filter  rss  flow                                  which packets come, and to which queue
//!        │        ├─ stats  recovery  dump                              what is counted; queues in error
//!        │        └─ object ── eth::verbs   the kernel's objects        (dv_flow_en=0)
//!        │                 └── eth::devx    the firmware's              (dv_flow_en=1, the default)
//!        │
//!   RxQueue (eth::rx)   TxQueue (eth::tx)     values that go to lcores: no call into the kernel from here on
//!     rq  cq              sq  cq
//! ```
//!
//! Context, objects, doorbells, keys and completion queues stand in `mlx5-common`, for RDMA has them, too.
//!
//! Called by `bringup`; calls `mlx5-common`, `port` (the traits it implements), `uverbs`, `mlx5-abi`, `mempool`, `eal`, `frame-io`.
//!
//! # From open to close
//! 1. [`Mlx5Port::open`] opens the context, with the right to send firmware commands if `dv_flow_en=1` and they may be had,
//!    else without, and says so in one line. Pools that exist or will be made are registered whole.
//! 2. Queue set-up takes a doorbell page of the queue's own (allocated, or on kernels before 5.7 the static one that the
//!    kernel chose), makes completion queue and queue, and hands ring, record and registers to the data half.
//! 3. Start makes the table, a hash queue for each kind of packet, and the default rules; stop takes them away. Queues stay. One
//!    queue stops by a reset of its own, its buffers at home, and starts again while others go on; tables and rules stay.
//! 4. A completion with an error parks its queue. The thread `control-mlx5` finds it within 20 ms and takes it through
//!    ERROR and RESET back to work; what was lost is counted.
//! 5. A device that goes away (an event, or `EIO`) shuts the port's gate. What it may still write stays allocated until its
//!    file is closed, with the last of the port and its queues.
//!
//! Whichever goes first, queue or port: the device's queue is reset before its buffers are.
//!
//! # Memory
//! The device knows memory by key and by an address of its own, which differs from the process's by whole pages if the
//! kernel is told so; the difference travels with the key ([`Key`](pollux_mlx5_common::key::Key)). Tests run with one that no address has by chance.
//!
//! Three kinds are known to it: pools, whole, when they are made (`mr_mempool_reg_en=0`: with the first queue that uses one);
//! other memory of the EAL when a packet brings it, a region at once (`mr_ext_memseg_en=0`: the packet's pages); and an
//! application's own, by `Port::register_memory`. A packet from anywhere else is dropped and counted (`unregistered memory`).
//! Defaults are DPDK's; source: `doc/guides/platform/mlx5.rst`. What is pinned is summed up ([`Shortage`](pollux_mlx5_common::Shortage)) where the limit on
//! locked memory is too low.
//!
//! # What it needs
//! Linux 5.4 or newer. `CAP_NET_RAW` for queues and rules; locked memory for pools and rings; `CAP_NET_ADMIN` to change the
//! interface, and for nothing else.
//!
//! # What was tried
//! The device model, as four cards, behind doors that lack what older kernels lack (Linux 5.4 among them), and every
//! device argument. No adapter in silicon yet: what the model and the sources of Linux, rdma-core and DPDK do not show may
//! differ there, first of all what a firmware answers to a queue that is told to go to a state which it is in already.
//!
//! # The life of a packet
//! ```text
//!   pool ──► Rq: an mbuf's address into an entry ─ record ──► device writes frame, then completion
//!    ▲                                                                    │ owner bit
//!    │       rx: header written from the completion ◄── cq: peek ◄────────┘
//!    │                    │ burst ──► application ──► burst
//!    │       tx: entry written from the header ──► Sq: mbuf's address kept ─ record ─ doorbell ──► device reads
//!    │                                                                    │ completion of the last one asked
//!    └────────────────────────────── freed in bulk ◄── Sq: reap ◄─────────┘
//! ```
//!
//! 1. [`eth::rq`] takes mbufs from the pool in bulk, as addresses, and writes where their data is to go, as the device knows
//!    it ([`key`](pollux_mlx5_common::key)), into the ring. One store to the doorbell record ([`dbrec`](pollux_mlx5_common::dbrec)) a burst tells how far.
//! 2. The device writes the frame and then a completion ([`cq`](pollux_mlx5_common::cq)). [`eth::rx`] finds it by its owner bit, reads it after a
//!    barrier, checks it, and writes the mbuf's header: length, port, type, checksums, hash, tag, mark, time. The mbuf is the
//!    application's from here on.
//! 3. [`eth::tx`] gets it back in a burst and writes an entry: a pointer to the data or the data itself, one packet an entry
//!    or many. [`eth::sq`] keeps its address and rings once.
//! 4. When the completion of an entry comes that was asked for one, all mbufs up to it go home at once.
//!
//! Whatever makes no sense parks the queue ([`eth::parking`]): bursts then move nothing, until the control half has emptied,
//! reset and refilled it. No mbuf is lost and none freed twice on the way; what the device holds when a queue is dropped
//! goes home when its [`eth::parts::Hold`] says that the device reaches it no more.
//!
//! # Invariants of the data path
//! - No system call, no allocation, no lock, no log between start and stop, errors apart. Each queue belongs to one lcore.
//! - What a device writes is read as integers, by volatile loads behind the owner bit, never through a reference; every
//!   length, index and stride is checked against what was posted before it is used.
//! - Features that are off are not compiled into the function that a queue runs.

pub mod devargs;
pub mod eth;
pub mod info;
pub mod netdev;
mod patience;

pub use devargs::Arguments;
pub use eth::port::{Mlx5Port, Mlx5Spec};
pub use netdev::{KernelNetdev, Netdev};
pub use patience::PortClock;
