//! The kernel's RDMA ABI, with no vendor in it: what `/dev/infiniband/uverbsN` understands, and everything that can stand in
//! its place.
//!
//! ```text
//!   mlx5-common, pmd-mlx, verbs   objects as the device has them; driver bytes and driver methods from mlx5-abi
//!        │
//!   Context                one function per command: pd mr mw cq qp wq srq xrcd ah dm flow counters query
//!        │                 newest form first; what a kernel lacks is remembered, and the older form used
//!   Call, WriteCall        attributes with their data borrowed: no address, no layout of the frame
//!        │
//!   Channel ───────────────┬──────────────────────┐
//!        │                 │                      │
//!   KernelFile             a model, in process    a preload library's door (parses the same frames)
//!   ioctl write mmap read
//! ```
//!
//! From open to close:
//! 1. [`discovery::find`] reads sysfs and names the file; [`discovery::Device::open`] opens it as a [`Channel`].
//! 2. [`Context::open`] finds out how write commands travel, asks for the context and the descriptor of its events.
//! 3. Objects are made, parents first: [`Context::alloc_pd`], [`Context::reg_mr`], [`Context::create_cq`],
//!    [`Context::create_qp`] and so on. Memory that they use is the caller's own, told by address inside the driver's bytes.
//!    Handles are numbers; who made an object destroys it, children first.
//! 4. [`Context::map`] maps registers; a queue takes its own with [`Page::registers`]. From here on the data path needs
//!    nothing of this crate.
//! 5. [`Context::events`] and [`event::CompChannel`] tell what happens meanwhile; neither waits.
//! 6. When the last handle of the channel goes, the kernel destroys what is left.
//!
//! Whoever writes a channel answers with [`Call::input`], [`Call::reply`] and [`Call::create`], and with the same layouts
//! ([`abi`]).
//!
//! ```
//! use std::path::Path;
//! use pollux_uverbs::{UverbsError, discovery};
//!
//! match discovery::devices(Path::new("/")) {
//!     Ok(devices) => println!("{} devices", devices.len()),
//!     Err(UverbsError::NoKernel { .. }) => println!("no RDMA in this kernel"),
//!     Err(other) => return Err(other),
//! }
//! # Ok::<(), UverbsError>(())
//! ```

mod ah;
mod context;
mod counters;
mod dm;
mod driver;
mod errno;
mod error;
mod handle;
mod ioctl;
mod page;
mod pd;
mod query;
mod routes;

pub mod abi;
pub mod call;
pub mod channel;
pub mod cq;
pub mod discovery;
pub mod event;
pub mod flow;
pub mod mr;
pub mod mw;
pub mod qp;
pub mod srq;
pub mod trace;
pub mod wq;
pub mod xrcd;

pub use call::{Attribute, Call, Output, Value, WriteCall};
pub use channel::{Channel, Route};
pub use context::Context;
pub use driver::Driver;
pub use errno::Errno;
pub use error::{FIRMWARE_SAID, Operation, UverbsError};
pub use handle::{
    AhHandle, CountersHandle, CqHandle, DmHandle, FlowHandle, MrHandle, MwHandle, PdHandle, QpHandle,
    RwqIndTableHandle, SrqHandle, WqHandle, XrcdHandle,
};
pub use ioctl::KernelFile;
pub use page::{Page, Protection, Registers};
pub use query::Gid;
