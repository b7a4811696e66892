//! TCP programs as they are over RDMA: `rsock-run -- redis-server` gives a program that knows nothing of RDMA connections in librdmacm's
//! rsocket protocol.
//!
//! ```text
//!   program ── TCP over loopback ─► rsock-run ── RDMA ─► its peer: a program under rsock-run, or one on rsockets
//!      │                                ▲
//!      └─ this library ── control ──────┘   what was meant by bind, listen, connect; which addresses a connection has
//! ```
//!
//! The program's descriptors are the kernel's TCP sockets: what it does with them, poll, dup, fork, exec, sendfile, is the kernel's.
//! The library stands in for the functions alone that name a peer or an address. It keeps nothing about a socket: the launcher has it,
//! by the addresses that the kernel knows, so that children and programs that a program becomes find it too.

pub mod control;
pub mod loopback;
mod preload;
