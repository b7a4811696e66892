//! RDMA: devices, memory, queues, requests and completions as owned values.
//!
//! ```text
//!   Context ── Pd ──┬── Mr, Buffers ── Buf        memory; Mw, Dm beside it
//!      │            ├── Qp ── batch(), receives()  requests: what they are given moves into the queue
//!      │            ├── Srq ── receives()
//!      │            └── Ah                         where datagrams go
//!      │            ├── (a raw Qp takes the frames that a Rule gives it)
//!      │            └── HashQp ── WqTable ── Wq ── receives()   frames spread over queues by hash
//!      ├── Cq ── poll(|wc| ...)                    completions: what was given comes back
//!      ├── CompletionChannel, next_event()         what happens meanwhile; nothing waits
//!      └── Xrcd
//!   provider: mlx5 (a card, or its model) or rxe (RoCE in the kernel), chosen when the context is opened
//! ```
//!
//! Called by `rdma-apps` and `bringup`; calls `mlx5-common` for what a card shares with Ethernet, `mlx5-abi` for its layouts, `uverbs` for the kernel, `mempool` for mbufs, `eal` for memory.
//!
//! # From open to poll
//! The program that everybody begins with: open, register, create, connect, post, poll. Here both ends are in one process, on
//! two models of a card and the cable between them.
//!
//! ```
//! use pollux_mlx5_model::Model;
//! use pollux_mlx5_model::wire::Cable;
//! use pollux_verbs::{Access, Buffers, Connection, Context, Cq, CqOptions, Options, Path, Pd, Provider, Qp, QpKind, QpOptions};
//!
//! struct End {
//!     cq: Cq,
//!     qp: Qp,
//!     buffers: Buffers,
//!     context: Context,
//! }
//!
//! fn end(model: &Model) -> Result<End, Box<dyn std::error::Error>> {
//!     let context = Context::open(model.open(), Provider::Mlx5, Options::default())?;      // open
//!     let pd = Pd::new(&context)?;
//!     let buffers = Buffers::new(&pd, 16, 4096)?;                                          // register
//!     let cq = Cq::new(&context, CqOptions::new(64))?;                                     // create
//!     let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc).inline(64))?;
//!     qp.init(1, Access::empty())?;
//!     Ok(End { cq, qp, buffers, context })
//! }
//!
//! let (near, far) = Cable::pair();
//! let models = [Model::builder("near").plugged(near).build()?, Model::builder("far").plugged(far).build()?];
//! let (mut near, mut far) = (end(&models[0])?, end(&models[1])?);
//!
//! // Connect: each end is told the other's GID and number; by any means, here by looking.
//! let (near_gid, far_gid) = (near.context.gid(1, 0)?.expect("a GID").gid, far.context.gid(1, 0)?.expect("a GID").gid);
//! let (near_qpn, far_qpn) = (near.qp.qpn(), far.qp.qpn());
//! near.qp.connect(&Connection::new(Path::new(far_gid, 0), far_qpn))?;
//! far.qp.connect(&Connection::new(Path::new(near_gid, 0), near_qpn))?;
//!
//! // Post: the buffer moves into the queue.
//! let mut receives = far.qp.receives().expect("it has a ring of its own");
//! receives.piece(1, far.buffers.take().expect("a buffer"));
//! receives.ring()?;
//! let mut batch = near.qp.batch();
//! batch.send(2).piece(near.buffers.filled(b"hello").expect("a buffer")).signalled();
//! batch.ring()?;
//!
//! // Poll: it comes back.
//! let mut received = None;
//! while received.is_none() {
//!     near.cq.poll(16, |wc| assert!(wc.is_ok(), "{wc:?}"));
//!     far.cq.poll(16, |wc| received = wc.take_buf());
//! }
//! assert_eq!(received.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two processes of one program exchange these over any stream: [`Endpoint::pair`].
//!
//! # Memory
//! There are two kinds, and the compiler keeps them apart.
//!
//! - A [`Buf`] (or an [`Mbuf`](pollux_mempool::Mbuf) of a pool that the domain knows) is owned: its bytes are a slice as long
//!   as it is. Posting moves it into the queue; the completion gives it back ([`Wc::take`]). No peer has rights there. So
//!   nobody can look at it, change it or free it while a device uses it:
//!
//!   ```compile_fail,E0382
//!   # use pollux_verbs::{Buf, Qp};
//!   fn posted_and_changed(qp: &mut Qp, mut buf: Buf) {
//!       let mut batch = qp.batch();
//!       batch.send(1).piece(buf).signalled();
//!       batch.ring().unwrap();
//!       buf[0] = 1; // moved into the queue
//!   }
//!   ```
//!
//!   ```compile_fail,E0382
//!   # use pollux_verbs::{Buf, Qp};
//!   fn posted_twice(qp: &mut Qp, buf: Buf) {
//!       let mut receives = qp.receives().unwrap();
//!       receives.piece(1, buf).piece(2, buf);
//!       receives.ring().unwrap();
//!   }
//!   ```
//!
//!   ```compile_fail,E0505
//!   # use pollux_verbs::{Buf, Qp};
//!   fn posted_while_borrowed(qp: &mut Qp, buf: Buf) {
//!       let head = &buf[..4];
//!       qp.batch().send(1).piece(buf);
//!       println!("{head:?}");
//!   }
//!   ```
//!
//!   A packet of several segments goes along with one request, a piece a segment ([`Batch::packet`], [`Receives::packet`]), and comes
//!   back as one packet ([`Wc::take_packet`]); those of requests that make no completion come back one by one with the next that does.
//!
//! - An [`Mr`] is memory that peers may reach at any time, so nobody ever gets a reference into it: it is read and written by
//!   copies. Requests may name parts of it; the queue keeps it from then on, and it is freed after the kernel has
//!   deregistered it.
//!
//!   ```compile_fail,E0599
//!   # use pollux_verbs::Mr;
//!   fn lent_out(mr: &mut Mr) -> &mut [u8] {
//!       mr.as_mut_slice()
//!   }
//!   ```
//!
//! Nor is memory registered by its address, or anything destroyed by its number, which would go behind all this: the kernel's side of
//! a context is not handed out.
//!
//! ```compile_fail,E0624
//! # use pollux_verbs::Context;
//! fn behind_its_back(context: &Context) {
//!     context.uverbs();
//! }
//! ```
//!
//! Objects go with those of their own [`Context`] alone. Another device takes a key or a handle for one of its own, so what is given
//! across is refused: by [`VerbsError::Foreign`] when something is made, by [`Batch::ring`] and [`Receives::ring`] when it is posted.
//!
//! Queues belong to whoever uses them: two threads cannot post to one, nor poll one, at the same time.
//!
//! ```compile_fail,E0499
//! # use pollux_verbs::Qp;
//! fn two_batches(qp: &mut Qp) {
//!     let (mut one, mut two) = (qp.batch(), qp.batch());
//!     one.send(1);
//!     two.send(2);
//! }
//! ```
//!
//! ```compile_fail,E0521
//! # use pollux_verbs::{Cq, Piece};
//! fn completion_kept(cq: &mut Cq) {
//!     let mut kept = None;
//!     cq.poll(1, |wc| kept = Some(wc));
//! }
//! ```
//!
//! That holds for queues that are dropped early or forgotten. A dropped [`Qp`] is destroyed at the device first; only then goes
//! what was posted, and it goes to its pools. If the kernel refuses to destroy it, nothing of it is ever freed. A forgotten one
//! keeps all it has. Completion queues and shared receive queues stay, at the device, as long as queue pairs use them.
//!
//! # Options of a connection
//! Newer cards agree on how they treat a connection, such as what they do about lost packets. Who connects two queue pairs carries
//! each one's word to the other: [`Ece`].
//!
//! # Cost
//! Posting and polling make no system call, take no lock and allocate nothing; see `provider/mlx5.rs`. The exceptions are the
//! first time that a queue meets a region, and the first poll after a queue came or went.
//!
//! Not so with rxe, where the kernel does in software what a card does: a batch of sends ends in a call, and locks and lists on
//! the way are no loss beside it.

mod ah;
mod batch;
mod comp_channel;
mod context;
mod cq;
mod dm;
mod endpoint;
mod error;
pub mod event;
mod flow;
mod mr;
mod mw;
mod opened;
mod options;
mod packet;
mod pd;
mod port;
mod provider;
mod qp;
mod srq;
mod state;
mod view;
mod wq;
mod xrcd;

pub use crate::provider::mlx5::hca::FrameLimits;
pub use crate::provider::mlx5::status::{WcOpcode, WcStatus};
pub use crate::provider::mlx5::wq::HashFields;
pub use crate::provider::request::{Kind as QpKind, PostError};
pub use ah::{Ah, Path};
pub use batch::{Batch, Receives};
pub use comp_channel::CompletionChannel;
pub use context::{Context, Options, Provider, devices, find};
pub use cq::{Cq, CqOptions, Wc};
pub use dm::Dm;
pub use endpoint::{Endpoint, EndpointOptions, PairError, RemoteMemory};
pub use error::VerbsError;
pub use event::{Element, Event};
pub use flow::{Rule, RuleId};
pub use mr::{AllMemory, Buf, Buffers, Mr, Piece};
pub use mw::{Mw, next_rkey};
pub use opened::OpenedQp;
pub use options::{QpOptions, QpSizes, SrqOptions};
pub use packet::Segments;
pub use pd::Pd;
pub use pollux_uverbs::abi::device::ExQueryDeviceResp as DeviceAttributes;
pub use pollux_uverbs::abi::flags::{
    Access, Advice, DeviceCaps, FlowType, OdpGeneral, OdpService, Placement, QpState, Selectivity, WqState,
};
pub use pollux_uverbs::abi::flow::{EspFilter, EthFilter, GreFilter, Ipv4Filter, Ipv6Filter, TcpUdpFilter};
pub use pollux_uverbs::abi::ioctl_verbs::QueryPortRespEx as PortAttributes;
pub use pollux_uverbs::discovery::Device;
pub use pollux_uverbs::event::AsyncKind;
pub use pollux_uverbs::flow::FlowSpec;
pub use pollux_uverbs::mw::MwType;
pub use pollux_uverbs::{Errno, Gid};
pub use port::{Mtu, PortState, roce_gid};
pub use qp::ece::Ece;
pub use qp::order::DataOrder;
pub use qp::{Connection, Qp, QpAttributes, random_psn};
pub use srq::Srq;
pub use view::{Armed, ContextView, CqView, Level, MrKind, MrView, ObjectKind, Operations, QpView, RqView};
pub use wq::{HashQp, Wq, WqOptions, WqTable};
pub use xrcd::Xrcd;
