//! What `send_bw`, `write_lat` and their family share; the originals are perftest's `ib_send_bw` and so on.
//!
//! ```text
//!   options ─► settings ─► session ─► bandwidth, latency ─► statistic ─► format, json
//!   (typed)    (checked)   (the ends   (the loops, over      (numbers)   (as the originals print)
//!                           in step)    an `end`)
//! ```

pub mod bandwidth;
pub mod end;
pub mod format;
pub mod json;
pub mod latency;
pub mod load;
pub mod options;
pub mod session;
pub mod settings;
pub mod statistic;
