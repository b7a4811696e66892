//! Memory, lcores, clock, timers, alarms, interrupts, logs and shutdown.

mod control;
mod error;
mod runtime;
mod stop;

pub mod clock;
pub mod event;
pub mod lcore;
pub mod memory;
pub mod region;
pub mod slot;
pub mod topology;

pub use error::EalError;
pub use lcore::{LcoreContext, LcoreId};
pub use runtime::{Eal, Exit};
pub use stop::{StopFlag, StopReason};
pub use topology::SocketId;
