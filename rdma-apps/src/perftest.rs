//! What `send_bw`, `write_lat` and their family share; the originals are perftest's `ib_send_bw` and so on.
//!
//! ```text
//!   options ─► settings ─► session ─► bandwidth, latency ─► statistic ─► format, json
//!   (typed)    (checked)   (the ends   (the loops, over      (numbers)   (as the originals print, by way of `report`)
//!                           in step)    an `end`)
//! ```
//!
//! With `-R` and `-z` the ends meet through a connection manager: `by_address`. The raw Ethernet tests are the same loops over frames: `raw`.

pub mod absent;
pub mod bandwidth;
pub mod by_address;
pub mod counters;
pub mod end;
pub mod format;
pub mod json;
pub mod latency;
pub mod load;
pub mod options;
pub mod pace;
pub mod pattern;
pub mod raw;
pub mod refusal;
pub mod report;
pub mod session;
pub mod settings;
pub mod statistic;
pub mod validate;
