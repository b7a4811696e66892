//! A ConnectX adapter in software. It executes the firmware's commands, reads real work queue entries, checks what silicon
//! checks, writes real completions, and puts frames on a wire.
//!
//! ```text
//!   mlx5-kernel ── commands ──► firmware: objects ──► memory_keys  send  receive  completion  steering
//!   driver      ── stores ────► UAR pages ─────────►      │         ▲
//!                                                         ▼         │
//!                                              Wire: cable source null pcap iface unix
//! ```

mod completion;
pub mod config;
pub mod device;
mod error;
mod event;
pub mod fault;
mod firmware;
mod frame;
pub mod ledger;
mod memory;
mod memory_keys;
mod model;
mod port;
mod random;
mod receive;
mod send;
mod steering;
pub mod time;
pub mod wire;

pub use device::{Device, DeviceConfig, Violation};
pub use error::ModelError;
pub use firmware::Traits;
pub use memory::ProcessMemory;
pub use model::{Builder, Model};
pub use port::{MTU_MAX, PortCounters, Traffic, Way};
