//! A ConnectX adapter in software. It executes the firmware's commands, reads real work queue entries, checks what silicon
//! checks, writes real completions, and puts frames on a wire.
//!
//! ```text
//!   mlx5-kernel ── commands ──► firmware: objects ──► memory_keys  send  receive  completion  steering
//!   driver      ── stores ────► UAR pages ─────────►      │         ▲
//!                                                         ▼         │
//!                                              Wire: cable source null pcap iface unix
//! ```

pub mod config;
mod error;
pub mod fault;
pub mod ledger;
mod random;
pub mod time;
pub mod wire;

pub use error::ModelError;
