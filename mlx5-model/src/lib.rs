//! A ConnectX adapter in software. It executes the firmware's commands, reads real work queue entries, checks what silicon
//! checks, writes real completions, and puts frames on a wire.
//!
//! ```text
//!   mlx5-kernel ── commands ──► firmware: objects ──► memory_keys  send  receive  completion  steering
//!   driver      ── stores ────► UAR pages ─────────►      │         ▲
//!                                                         ▼         │
//!                              rdma ◄─── RoCE ───►│
//!                                              Wire: cable source null pcap iface unix
//! ```
//!
//! Called by `mlx5-kernel` ([`CommandQueue`](pollux_mlx5_kernel::CommandQueue)), by whoever steps it ([`Device::step`], or a
//! [`Model`]'s thread) and by tests that see doorbells as they are stored ([`Device::doorbell_store`]). It calls nothing but
//! its wire and the interrupt handlers it was given.
//!
//! # One step
//! 1. Registers of all UAR pages are looked at: send doorbells, arms, event queues' consumer counters.
//! 2. `send`: entries of queues with work, in turn. Headers and data are gathered through the keys, offloads applied, frames
//!    put on the wire, completions written. A wire that takes no more keeps the entry where it is.
//! 3. `receive`: frames from the wire through the port's filter, `steering` (tables, TIRs, hash), into buffers, completions.
//!    RoCE to the device's own addresses goes to `rdma` before that, whoever else listens. TCP segments of a TIR that joins
//!    them are kept until they are full, pushed, followed by what does not continue them, or old enough.
//! 4. `rdma`: timers, then queue pairs in turn: what the peer is to be told, then requests as far as window and wire allow.
//! 5. Queues in error are flushed, open blocks of compressed completions closed, events sent, interrupts fired.
//!
//! # What it insists on
//! * Memory is reached only where it is pinned, by copies; keys are checked by variable bits, protection domain, rights and
//!   bounds, in the key's own address space.
//! * A send entry names its queue and its place; opcodes, segments, lengths and inline headers are checked, and that headers are where it says they are. The first that
//!   fails is reported with the syndrome that silicon gives (`LOCAL_LENGTH_ERR`, `LOCAL_PROT_ERR`, `LOCAL_QP_OP_ERR`), its queue
//!   is in error, the rest is flushed. Vendor bytes are the model's own and tell the check.
//! * Doorbells keep rules ([`Violation`]): the 8 bytes are the head of the last entry, the record was written before.
//! * A full completion queue is dead, and an event says so.
//! * Commands check lengths, state, ownership and every field; the syndrome of a refusal is the opcode and the number of the
//!   check. Objects in use stay.
//! * A queue pair goes from state to state by the commands for it alone, and changes what their masks allow. Requests are
//!   checked at both ends by key, domain, rights and bounds; who is refused learns it by the syndrome that silicon has.
//!
//! # What is assumed
//! Where no public source says what silicon does: which side of a symmetric hash is the or and which the exclusive or; a
//! packet that a TIR's fields are not for has hash 0 and goes to the table's first queue; a tag of 802.1ad is not stripped; an
//! arm whose sequence number was answered already is a repetition; a frame to a group passes the port, and steering decides.
//!
//! Of joining (LRO): segments of less than 64 bytes of payload are left alone; sessions last 8, 16, 32 or 1024 microseconds, as
//! capabilities say, and a TIR that asks for another time is refused; 64 flows are joined at a time; what is delivered begins
//! with the first segment's headers, as they came.
//!
//! Of RDMA: a send that fails takes queue pairs without acknowledgement to SQER, others to ERR; a datagram that its receive
//! entry cannot hold, and an unreliable message, is an error of the receiving queue pair; a window is checked against the
//! memory that it is bound to when it is bound; 512 packets are under way at most. Selective repeat is not a published format:
//! a NAK names the packet that is missing, and in the place of the message count the one that came in its stead, as the
//! acknowledgements of IRN do (Mittal et al., "Revisiting network support for RDMA", SIGCOMM 2018, section 3).
//!
//! Of dynamic connections (`rdma/dynamic.rs`) no public source has the packets: they are the model's own, in opcodes that are left to
//! manufacturers, and go between models alone. A request with a wrong key is answered as one that memory refuses. A connection ends
//! when nothing is under way, or its initiator turns to another target.
//!
//! Of hairpin queues see `hairpin.rs`: how much of a buffer a packet takes, what becomes of tags, who waits for whom.
//!
//! Of signatures see `memory_keys/signature.rs`: what a block's signature depends on, where errors are reported, what is refused.
//!
//! Of what a user context's queue may do to a key see `memory_keys/change.rs`: addresses of the bus come from the kernel's queues alone.
//!
//! # What is not there
//! Congestion control of RDMA, path migration, tag matching,
//! queue pairs for raw frames (those are made of send and receive queues), atomics with masks;
//! queue pair 1 is there, what manages connections is not. Steering by software beyond root tables, tunnels but VXLAN,
//! Geneve, GRE and IP in IP (others go where send entries say where headers are), checksums of outer UDP, the embedded switch. Capabilities do not claim them, and commands and entries that need them are refused.

mod ability;
mod card;
mod completion;
pub mod config;
pub mod device;
mod error;
mod event;
mod failure;
pub mod fault;
mod firmware;
mod frame;
mod hairpin;
pub mod ledger;
mod memory;
mod memory_keys;
mod model;
mod network;
pub mod pci;
mod port;
pub mod random;
mod rdma;
mod receive;
mod send;
mod spare;
mod steering;
pub mod time;
pub mod wire;

pub use ability::Ability;
pub use card::Traits;
pub use device::{Before, Device, DeviceConfig, FastPath, Fence, Joint, Violation, Visibility};
#[cfg(feature = "trace")]
pub use device::{Watched, watch, watch_as};
pub use error::ModelError;
pub use memory::{GuestMemory, ProcessMemory, for_process};
pub use model::{Builder, Model};
pub use port::{MTU_MAX, PortCounters, Traffic, Way};
