//! The kernel's half over a model of the device: each call goes down to the model's firmware, and nothing is left when the
//! last channel is closed.

mod bench;
mod context;
mod devx;
mod door;
mod event;
mod fault;
mod flow;
mod flow_action;
mod fuzz;
mod golden;
mod joined;
mod loopback;
mod matcher;
mod memory;
mod queue;
mod rate;
mod refusal;
mod transport;
