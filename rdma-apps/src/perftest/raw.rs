//! `raw_ethernet_bw`, `raw_ethernet_lat` and `raw_ethernet_burst_lat`: the loops of the family over whole Ethernet frames; perftest's
//! originals have the same names.
//!
//! ```text
//!   options ─► plan ─► frame: what is sent        session: queue pairs, rules, the loops, the report
//!   (typed)   (checked) rule: what is received    forward: what comes goes back, addresses exchanged
//!                                                 burst: latency under load
//! ```
//!
//! The two ends do not meet before: each is told by hand what the frames look like. So the one that receives is started first,
//! and a frame that nobody had a receive for is missed for good. Source of the course of events: linux-rdma/perftest
//! `src/raw_ethernet_{send_bw,send_lat,send_burst_lat,resources}.c`.
//!
//! Ours differs where the original would not work: rules tell several queue pairs apart by their ports, where the original gives
//! all the same rule, which copies each frame to all; `--raw_mcast` receives by a rule too, as Linux attaches raw queue pairs to no
//! group; checksums of TCP, and of UDP over IPv6, are right.

pub mod burst;
pub mod forward;
pub mod frame;
pub mod options;
pub mod plan;
pub mod rule;
pub mod session;
