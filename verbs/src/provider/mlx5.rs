//! RDMA: queue pairs, shared receive queues and completion queues that many of them share.
//!
//! ```text
//!   verbs: Qp ── post::Poster ── Batch        entries into the rings, one doorbell a batch
//!                   │ post::track: what each entry was, and the memory that it owns
//!   verbs: Cq ── poll::Poller ── Wc           completions, each with what its entry was; the memory comes back
//!
//!   qp  srq  wq  cq   objects of the kernel, and their rings
//! ```
//!
//! Memory that a request names is moved into the queue ([`Piece`](crate::Piece)) and comes back with the completion, or goes home when
//! the device's queue is destroyed; or it outlives the queue (a region, [`Mr`](crate::Mr)). Nothing else can be posted, so neither a
//! forgotten queue nor one that is dropped early leaves the device with memory that somebody else uses. Where the kernel
//! refuses to destroy a queue, its memory is never freed.

pub(crate) mod address;
pub(crate) mod cq;
pub(crate) mod dm;
pub(crate) mod hca;
mod left;
mod order;
pub(crate) mod poll;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod status;
pub(crate) mod wq;

pub(crate) use pollux_mlx5_abi::command::ece;
