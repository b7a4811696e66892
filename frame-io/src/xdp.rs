//! AF_XDP sockets: frames of one queue of an interface in memory that the caller gives, past the kernel's stack.
//!
//! ```text
//!   caller --XdpRx::fill--> fill ring --> kernel --> receive ring --XdpRx::next--> caller
//!   caller --XdpTx::push--> transmit ring --> kernel --> completion ring --XdpTx::completed--> caller
//!
//!   interface --XdpProgram: redirect by queue--> the socket that XdpProgram::admit put there, else the kernel's stack
//! ```
//!
//! The memory (UMEM) is the caller's, and pieces of it (chunks) go round: the kernel writes a frame into one that it was filled with,
//! and gives it back with the frame. Addresses are distances from the start of the memory; they may be any (unaligned mode), so chunks
//! need not lie at multiples of their size.
//!
//! # What the kernel is believed
//! Rings are memory that the kernel writes. Their entries are read as atomic words, counts are held against the size of the ring, and
//! addresses and lengths in entries are handed on as numbers: whoever makes memory of them checks them first. So whatever stands in a
//! ring, nothing here reads or writes outside of it. What cannot be checked is that the kernel writes only chunks that it was given;
//! that is the kernel's own promise, as with any `read`.
//!
//! # When the memory is the caller's again
//! The kernel gives up a socket's chunks some time after the socket was closed (`xp_release_deferred` runs as work of its own), and
//! not before the last descriptor and the last mapping of it are gone, a forked child's among them. [`XdpSocket::close`] waits for that and
//! tells whether it has happened: once another socket could be bound to the queue, the queue has nothing of the first one.
//!
//! Sources: `include/uapi/linux/if_xdp.h`, `Documentation/networking/af_xdp.rst`, `net/xdp/xsk.c`, `net/xdp/xsk_buff_pool.c` of Linux.

mod end;
mod program;
mod ring;
mod socket;

pub use end::{XdpFrame, XdpRx, XdpTx};
pub use program::XdpProgram;
pub use socket::{Umem, XdpOpen, XdpOptions, XdpSocket, XdpStatistics};

/// Bytes that the kernel leaves free before a received frame (`XDP_PACKET_HEADROOM`, include/uapi/linux/bpf.h).
pub const HEADROOM: usize = 256;
/// Shortest chunk (`XDP_UMEM_MIN_CHUNK_SIZE`, include/net/xdp_sock.h, 2048 since Linux 4.18).
pub const CHUNK_MIN: usize = 2048;
/// Longest chunk: a page (`xdp_umem_reg`, net/xdp/xdp_umem.c).
pub const CHUNK_MAX: usize = 4096;
/// Most pieces of a frame: 17 of the kernel's fragments and its first part (`MAX_SKB_FRAGS`), one less to be safe with all drivers.
pub const PIECES_MAX: usize = 17;

/// What is needed to make maps and programs and to attach them, and to open sockets; named at once, so that one try is enough.
const CAPABILITIES: &str = "CAP_NET_RAW,CAP_NET_ADMIN,CAP_BPF";
