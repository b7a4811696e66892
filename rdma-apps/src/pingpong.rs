//! What `rc_pingpong` and its siblings share; the originals are rdma-core's `ibv_rc_pingpong` and so on.
//!
//! ```text
//!   memory: where messages are, registered as the options say
//!   options ─► single (RC, UC, UD)   ─► report        check: what is sent, and whether it comes back
//!              shared (RC on an SRQ)
//!              xrc    (XRC)
//! ```

pub mod check;
pub mod memory;
pub mod options;
pub mod report;
pub mod shared;
pub mod single;
pub mod xrc;

use std::time::Duration;

use pollux_bringup::RdmaDevice;

use crate::exchange::line::Stop;
use crate::rdma::{Failure, device};

/// How long nothing may come when the peer closed the connection. The originals hang up before they begin.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Waits for the wire, unless told to stop.
fn wire_up(device: &RdmaDevice, port: u8, stop: Stop<'_>) -> Result<(), Failure> {
    device::wait_active(device, port, Some(device::PATIENCE), stop).map(drop)
}
