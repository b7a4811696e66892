//! The kernel's half over a model of the device: each call goes down to the model's firmware, and nothing is left when the
//! last channel is closed.

#[path = "model/bench.rs"]
mod bench;
#[path = "model/context.rs"]
mod context;
#[path = "model/devx.rs"]
mod devx;
#[path = "model/door.rs"]
mod door;
#[path = "model/event.rs"]
mod event;
#[path = "model/fault.rs"]
mod fault;
#[path = "model/flow.rs"]
mod flow;
#[path = "model/fuzz.rs"]
mod fuzz;
#[path = "model/golden.rs"]
mod golden;
#[path = "model/loopback.rs"]
mod loopback;
#[path = "model/matcher.rs"]
mod matcher;
#[path = "model/memory.rs"]
mod memory;
#[path = "model/queue.rs"]
mod queue;
#[path = "model/rate.rs"]
mod rate;
#[path = "model/transport.rs"]
mod transport;
