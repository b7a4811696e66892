//! Forwarding applications, one small binary each: `skeleton` and `l2fwd`.
//!
//! ```text
//!   src/bin/APP/main.rs       arguments, bring-up, launch, report
//!   src/bin/APP/forward.rs    the loop; l2fwd's is src/forward.rs, so that benches run the very same code
//!   src/                      what the apps share: options, pairs of ports, counts, the table, the JSON report
//! ```
//!
//! Each app runs without privileges on software ports:
//!
//! ```text
//!   cargo run --release --bin l2fwd
//!   cargo run --release --bin skeleton -- --vdev net_ring0 --vdev net_ring1
//! ```

#![forbid(unsafe_code)]

pub mod counts;
pub mod forward;
pub mod options;
pub mod pairs;
pub mod report;
pub mod table;
pub mod watch;
