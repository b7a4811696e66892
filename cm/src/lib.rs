//! RDMA connections by address: events, IDs, resolution, connect and accept, as librdmacm has them.
//!
//! ```text
//!   Manager ── channel() ─► EventChannel ── create_id() ─► Id ── bind, listen
//!      │                        │                          │     resolve_address, resolve_route, connect, establish
//!      │                        next(), wait() ─► Event     │     accept, reject, disconnect
//!      │
//!      ├── kernel: /dev/infiniband/rdma_cm, the kernel's own connection manager, without librdmacm
//!      └── over(ports): in this process, over queue pair 1 of a device without a kernel, as a model is one
//!              software (ports, addresses) ─► agent (states, timers) ─► management (queue pair 1) ─► verbs
//! ```
//!
//! Called by programs; calls `verbs` for queue pairs and `uverbs` for its layouts. A connection, from listen to disconnect, between two
//! models of a card and the cable between them:
//!
//! ```
//! use std::time::Duration;
//! use pollux_cm::{ConnectionParameters, EventChannel, EventKind, ManagementPort, Manager, PortSpace};
//! use pollux_mlx5_kernel::DoorProfile;
//! use pollux_mlx5_model::{Model, wire::Cable};
//! use pollux_verbs::{Buffers, Context, Cq, CqOptions, Options, Pd, Provider, Qp, QpKind, QpOptions};
//!
//! # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
//! /// Waits for the next event.
//! fn next(channel: &EventChannel) -> Result<EventKind> {
//!     Ok(channel.wait(Duration::from_secs(10))?.ok_or("no event")?.kind)
//! }
//!
//! // Two devices; a thread for each end, as two programs would be.
//! let door = DoorProfile { management: true, ..DoorProfile::NEWEST };
//! let (near, far) = Cable::pair();
//! let model = |name, plug, ip: &str| -> Result<Model> {
//!     Ok(Model::builder(name).door(door).plugged(plug).ip(ip.parse()?).build()?)
//! };
//! let (near, far) = (model("near", near, "192.0.2.1/24")?, model("far", far, "192.0.2.2/24")?);
//! let manager = |model: &Model| -> Result<Manager> {
//!     let context = Context::open(model.open(), Provider::Mlx5, Options::default())?;
//!     Ok(Manager::over(vec![ManagementPort::open(&context, 1)?]))
//! };
//! let (ours, theirs) = (manager(&near)?, manager(&far)?);
//!
//! let (channel, listener) = { let channel = theirs.channel()?; let id = channel.create_id(PortSpace::Tcp)?; (channel, id) };
//! listener.bind("192.0.2.2:7174".parse()?)?;
//! listener.listen(1)?;
//! let server = std::thread::spawn(move || {
//!     let serve = || -> Result<Vec<u8>> {
//!         let EventKind::ConnectRequest { id, parameters } = next(&channel)? else { return Err("no request".into()) };
//!         let (context, _) = id.device()?.ok_or("no device")?;
//!         let (pd, mut cq) = (Pd::new(&context)?, Cq::new(&context, CqOptions::new(256))?);
//!         let mut qp = id.create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc))?;
//!         let mut receives = qp.receives().ok_or("no ring")?;
//!         receives.piece(1, Buffers::new(&pd, 1, 64)?.take().ok_or("a buffer")?);
//!         receives.ring()?;
//!         id.accept(&mut qp, &ConnectionParameters { private_data: Vec::new(), ..parameters })?;
//!         let mut received = None;
//!         while received.is_none() {
//!             channel.next()?;
//!             cq.poll(1, |wc| received = wc.take_buf());
//!         }
//!         id.disconnect(&mut qp)?;
//!         Ok(received.ok_or("nothing")?.to_vec())
//!     };
//!     serve().map_err(|error| error.to_string())
//! });
//!
//! let channel = ours.channel()?;
//! let id = channel.create_id(PortSpace::Tcp)?;
//! id.resolve_address(None, "192.0.2.2:7174".parse()?, Duration::from_secs(2))?;
//! assert!(matches!(next(&channel)?, EventKind::AddressResolved));
//! id.resolve_route(Duration::from_secs(2))?;
//! assert!(matches!(next(&channel)?, EventKind::RouteResolved));
//! let (context, _) = id.device()?.ok_or("no device")?;
//! let (pd, cq) = (Pd::new(&context)?, Cq::new(&context, CqOptions::new(256))?);
//! let mut qp: Qp = id.create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc).inline(16))?;
//! id.connect(&qp, &ConnectionParameters::default())?;
//! assert!(matches!(next(&channel)?, EventKind::ConnectResponse(_)));
//! id.establish(&mut qp)?;
//! let mut batch = qp.batch();
//! batch.send(1).inline(b"by address").signalled();
//! batch.ring()?;
//! assert!(matches!(next(&channel)?, EventKind::Disconnected));
//! id.disconnect(&mut qp)?;
//! assert_eq!(server.join().expect("it ends")?, b"by address");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Queue pairs
//! A queue pair is the program's own: it is made by [`Id::create_qp`], and the calls that change its state are given it. So it can
//! move to the lcore that polls it between these calls, and there is none that the manager changes behind its owner's back.
//!
//! # Events and IDs
//! An [`Event`] is a value: nothing is acknowledged, and an ID can be dropped whether its events were read or not. An [`Id`] keeps its
//! manager, not its channel: without a channel it goes on, and nobody hears of it. What is dropped ends: see [`Id`].
//!
//! ```compile_fail,E0382
//! # use pollux_cm::{ConnectionParameters, Id};
//! # use pollux_verbs::Qp;
//! fn used_after_its_end(id: Id, qp: &Qp) {
//!     drop(id);
//!     id.connect(qp, &ConnectionParameters::default()).unwrap();
//! }
//! ```
//!
//! # What the manager of this process keeps to
//! Messages that are lost are sent again, those that come twice are answered twice and do nothing else, those that are cut, of another
//! class, of nothing that is known or of another address than the connection's are dropped and [counted](Counts). Not there: alternate
//! paths (LAP, which RoCE does not use), and addresses of InfiniBand.

mod abi;
mod address;
mod agent;
mod channel;
mod error;
mod event;
mod id;
mod kernel;
mod management;
mod manager;
mod message;
mod occurrence;
mod parameters;
mod served;
mod service;
mod software;

pub use address::{AddressFamily, AddressHints, AddressInfo, address_info};
pub use agent::{Counts, Timing};
pub use channel::EventChannel;
pub use error::CmError;
pub use event::{Event, EventKind};
pub use id::{Id, IdNumber};
pub use management::ManagementPort;
pub use manager::Manager;
pub use parameters::{ConnectionParameters, IdOptions, RejectReason, private_data};
pub use served::{ClientMemory, Served, ServedFile};
pub use service::PortSpace;
