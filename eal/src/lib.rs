//! Memory, lcores, clock, timers, alarms, interrupts, logs and shutdown.

mod control;
mod error;
mod runtime;
mod stop;

pub mod barrier;
pub mod clock;
pub mod event;
pub mod hugepage;
pub mod iova;
pub mod lcore;
pub mod memory;
pub mod mmio;
pub mod region;
pub mod simd;
pub mod slot;
pub mod topology;

pub use error::EalError;
pub use lcore::{LcoreContext, LcoreId};
pub use runtime::{Eal, Exit};
pub use stop::{StopFlag, StopReason};
pub use topology::SocketId;
