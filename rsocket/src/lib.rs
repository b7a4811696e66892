//! Stream and datagram sockets over RDMA in librdmacm's rsocket protocol: [`RsStream`], [`RsListener`] and [`RsDatagramSocket`] are used as
//! `std`'s `TcpStream`, `TcpListener` and `UdpSocket` are, and meet programs on rsockets.
//!
//! ```text
//!   RsListener ── accept() ─► RsStream          Read, Write, shutdown, map, write_at
//!   RsStream::connect() ────►    │
//!                                end          from resolution to disconnect       ─► cm
//!                                connection   queue pair, memory, completions     ─► verbs
//!                                protocol     what to post, what came: no device, no clock
//!
//!   RsDatagramSocket::bind() ──► socket          send_to, recv_from, connect, send, recv
//!                                queue           a UD queue pair of each local address    ─► cm, verbs
//!                                wire            headers and control messages, which go by the kernel's UDP
//!
//!   poll(entries)   waits for several
//! ```
//!
//! Called by programs; calls `cm` to connect and `verbs` to transfer. Data are RDMA writes into a buffer that the receiver offers;
//! nothing is copied by a kernel. Over either connection manager: the kernel's, or the one of this process over a device model:
//!
//! ```
//! use std::io::{Read, Write};
//! use pollux_cm::{ManagementPort, Manager};
//! use pollux_mlx5_kernel::DoorProfile;
//! use pollux_mlx5_model::{Model, wire::Cable};
//! use pollux_rsocket::{RsListener, RsStream};
//! use pollux_verbs::{Context, Options, Provider};
//!
//! # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
//! // Two devices and the cable between them.
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
//! let listener = RsListener::bind(&theirs, "192.0.2.2:7471".parse()?)?;
//! let server = std::thread::spawn(move || -> std::io::Result<()> {
//!     let (mut stream, _) = listener.accept()?;
//!     let mut heard = Vec::new();
//!     stream.read_to_end(&mut heard)?;
//!     stream.write_all(&heard)
//! });
//! let mut stream = RsStream::connect(&ours, "192.0.2.2:7471".parse()?)?;
//! stream.write_all(b"over RDMA")?;
//! stream.shutdown(std::net::Shutdown::Write)?;
//! let mut back = String::new();
//! stream.read_to_string(&mut back)?;
//! assert_eq!(back, "over RDMA");
//! server.join().expect("it ends")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the peer can do
//! It writes to the receive buffer, to a table of its own addresses and to what was [mapped](RsStream::map) for it, at any time: these
//! are read by copies alone. Messages that tell more than it was offered end the connection ([`Violation`]).
//!
//! Datagram sockets take a word from anybody: control messages and headers that are cut or of no known form are dropped and
//! [counted](RsDatagramCounts), and the number of peers that are remembered has a limit.
//!
//! # What is not there
//! iWARP (whose messages are sends), addresses of InfiniBand. There is no thread: a socket moves while a call of its program
//! is in it, and what was written is with the device when the call returns.

mod connection;
mod datagram;
mod end;
mod error;
mod listener;
mod map;
mod message;
mod options;
mod poll;
mod protocol;
mod stream;
mod wait;

pub use datagram::{RsDatagramCounts, RsDatagramSocket};
pub use end::Readiness;
pub use error::RsError;
pub use listener::RsListener;
pub use map::RsMap;
pub use message::NotRsocket;
pub use options::RsOptions;
pub use poll::{PollEntry, poll};
pub use protocol::Violation;
pub use stream::RsStream;
