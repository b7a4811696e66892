//! Programs, one small binary each: the forwarders `skeleton` and `l2fwd`, and those of RDMA.
//!
//! ```text
//!   src/bin/APP.rs            options and the order of things
//!   ../kit                    what forwarders share: l2fwd and its loop, options, pairs of ports, counts, the table, the JSON report
//!   src/cm/                   programs that connect by address: librdmacm's
//!   src/exchange/             how the ends of an RDMA program meet, in the words of rdma-core's pingpongs and of perftest
//!   src/number.rs             numbers that their options take
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

pub mod cm;
pub mod exchange;
pub mod number;
pub mod perftest;
pub mod pingpong;
pub mod rdma;
