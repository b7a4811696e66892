//! Memory, lcores, clock, timers, alarms, interrupts, logs and shutdown.

mod control;
mod error;
mod panic;
mod runtime;
mod stop;

pub mod alarm;
pub mod barrier;
pub mod clock;
pub mod event;
pub mod hugepage;
pub mod interrupt;
pub mod iova;
pub mod lcore;
pub mod log;
pub mod memory;
pub mod mmio;
pub mod region;
pub mod service;
pub mod signal;
pub mod simd;
pub mod slot;
pub mod topology;

pub use control::ControlThread;
pub use error::EalError;
pub use lcore::{LcoreContext, LcoreId};
pub use panic::Panicked;
pub use runtime::{Eal, Exit};
pub use stop::{StopFlag, StopReason};
pub use topology::SocketId;
