//! Forwarding applications, one small binary each: `skeleton` and `l2fwd`.
//!
//! ```text
//!   src/bin/APP/main.rs       arguments, bring-up, launch, report
//!   src/bin/APP/forward.rs    the loop; l2fwd's is src/forward.rs, so that benches run the very same code
//!   ../kit                    what all share: options, pairs of ports, counts, the table, the JSON report
//!   src/exchange/             how the ends of an RDMA program meet, in the words of rdma-core's pingpongs and of perftest
//!   src/{pingpong,perftest}/  options, checks and reports of those two families
//! ```
//!
//! Each app runs without privileges on software ports:
//!
//! ```text
//!   cargo run --release --bin l2fwd
//!   cargo run --release --bin skeleton -- --vdev net_ring0 --vdev net_ring1
//! ```

#![forbid(unsafe_code)]

pub mod exchange;
pub mod forward;
pub mod perftest;
pub mod pingpong;
pub mod rdma;
