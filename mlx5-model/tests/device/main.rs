//! The device by its own rules: commands in, entries in rings, doorbells; frames, completions and events out. No driver here
//! but the test itself, so each rule is seen alone.

mod rig;

mod capability;
mod command;
mod completion;
mod environment;
mod fault;
mod fuzz;
mod hairpin;
mod join;
mod joint;
mod label;
mod loopback;
mod memory_key;
mod offload;
mod order;
mod pace;
mod rdma;
mod receive;
mod register;
mod rewrite;
mod rule;
mod send;
mod spread;
mod steering;
mod striding;
mod throughput;
mod tunnel;
