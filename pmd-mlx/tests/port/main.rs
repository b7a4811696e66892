//! The driver on the device model: opening, queues, frames, rules, errors.

mod harness;
mod traffic;
mod trouble;
