//! Memory, lcores, clock, timers, alarms, interrupts, logs and shutdown.

pub mod clock;
pub mod memory;
pub mod region;
pub mod slot;
pub mod topology;
