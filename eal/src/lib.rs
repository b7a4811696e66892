//! Memory, lcores, clock, timers, alarms, interrupts, logs and shutdown.

pub mod region;
pub mod slot;
