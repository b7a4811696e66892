//! Programs of RDMA, one small binary each: rdma-core's pingpongs, librdmacm's programs, perftest's, and `forward_and_serve`, which
//! also forwards.
//!
//! ```text
//!   src/bin/APP.rs            options and the order of things
//!   src/cm/                   programs that connect by address: librdmacm's
//!   src/exchange/             how the ends of an RDMA program meet, in the words of rdma-core's pingpongs and of perftest
//!   src/number.rs             numbers that their options take
//!   src/{pingpong,perftest}/  options, checks and reports of those two families
//!   src/rdma/                 what all share: device, waits, failures
//! ```
//!
//! Each runs without privileges on the device model, either end in a process of its own:
//!
//! ```text
//!   cargo run --release --bin rc_pingpong -- -l 0 --vdev mlx5_model0,wire=unix:/tmp/a:/tmp/b -- -g 0
//!   cargo run --release --bin rc_pingpong -- -l 1 --vdev mlx5_model0,wire=unix:/tmp/b:/tmp/a -- -g 0 127.0.0.1
//! ```

#![forbid(unsafe_code)]

pub mod cm;
pub mod exchange;
pub mod number;
pub mod perftest;
pub mod pingpong;
pub mod rdma;
