//! Queue pairs, at two devices on a cable, stepped by the test.

mod node;

mod basic;
mod datagram;
mod dynamic;
mod error;
mod fuzz;
mod local;
mod paging;
mod privilege;
mod registration;
mod reserved;
mod seeds;
mod shared;
mod signature;
mod transition;
mod transport;
mod window;
mod wire;
