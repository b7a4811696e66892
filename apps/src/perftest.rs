//! What `send_bw`, `write_lat` and their family share; the originals are perftest's `ib_send_bw` and so on.
//!
//! ```text
//!   options ─► settings ─► the test ─► statistic ─► format, json
//!   (typed)    (checked)   (loops)     (numbers)    (as the originals print)
//! ```

pub mod format;
pub mod json;
pub mod options;
pub mod settings;
pub mod statistic;
