//! What a port is: control handle, rx and tx queues, stats, and layers around ports.
//!
//! ```text
//!   application, lcore n                         application, main lcore
//!   RxQueue::rx_burst  TxQueue::tx_burst         Port: configure, start, stop, stats, link, ...
//!        |    one dynamic call a burst |               | states and limits are checked here
//!        v                             v               v
//!   dyn RxBurst                 dyn TxBurst      dyn PortDriver       <- a driver (port-soft, pmd-mlx), or layers
//!        \_________ gate, counters ____________________/                 (tracer, tee, fault) around one
//! ```
//!
//! Called by the applications and `bringup`; implemented by `port-soft` and `pmd-mlx`; calls `mempool` for mbufs.
//!
//! A [`Port`] is the control handle and stays behind; [`RxQueue`] and [`TxQueue`] are values that move to the lcore that
//! polls them. They share a [`Gate`], one word read once a burst, through which stop, start and the loss of the device
//! reach the queues without a lock, and counters that only the queue's owner writes.
//!
//! ```
//! use pollux_mempool::{Burst, MbufPool};
//! use pollux_port::{Port, PortConfig, PortError, Queues};
//!
//! /// Brings a port up and sends back what it receives for a while.
//! fn echo(port: &mut Port, pool: &MbufPool) -> Result<u64, PortError> {
//!     let Queues { mut rx, mut tx } = port.bring_up(PortConfig::queues(1, 1, pool))?;
//!     let mut burst = Burst::new();
//!     for _ in 0..1000 {
//!         rx[0].rx_burst(&mut burst, 32);
//!         tx[0].tx_burst(&mut burst);
//!         // What a full queue leaves is dropped here; its mbufs go home.
//!         burst.clear();
//!     }
//!     port.stop()?;
//!     Ok(port.stats().opackets)
//! }
//! ```
mod buffer;
mod burst;
pub mod capture;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod control;
#[cfg(doctest)]
mod doctests;
pub mod driver;
mod error;
mod event;
pub mod finish;
pub mod flow;
mod gate;
mod id;
mod interrupt;
pub mod layer;
mod link;
mod offload;
mod order;
mod owner;
mod packet;
mod prepare;
mod queue;
mod registry;
mod rss;
mod slot;
mod state;
mod stats;
mod timestamp;
mod view;
mod vlan;

pub use buffer::{TxBuffer, TxErrorCallback};
pub use burst::STOP_PATIENCE;
pub use config::{
    DescriptorLimits, PortConfig, PortInfo, RxQueueConfig, RxSegment, SplitInfo, TxQueueConfig,
};
pub use control::{Port, Queues};
pub use driver::PowerMonitor;
pub use error::{Direction, PortError};
pub use event::{EventCallback, EventCallbackId, EventSink, PortEvent};
pub use gate::Gate;
pub use id::{PortId, QueueId};
pub use link::{Duplex, Fec, FecModes, Link, SpeedFec, SpeedLanes};
pub use offload::{RxOffloads, TxOffloads};
pub use owner::Owner;
pub use packet::{FrameSource, PacketMut};
pub use prepare::{BadPacket, TxProblem};
pub use queue::{CallbackId, Queue, Rx, RxCallback, RxQueue, Tx, TxCallback, TxQueue, Way};
pub use registry::Ports;
pub use rss::{HashAlgorithm, HashFields, RssConfig, RssInfo};
pub use state::PortState;
pub use stats::{Dropped, PortStats, QueueStats, RxCounters, RxDrop, TxCounters, TxDrop, Xstat};
pub use timestamp::{DeviceClock, RxTimestamp};
pub use view::{PortReading, PortView, PortViews, QueueView};
pub use vlan::VlanTagPlace;

/// The address of a port.
pub use pollux_wire::MacAddress;
