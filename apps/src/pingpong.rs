//! What `rc_pingpong` and its four siblings share; the originals are rdma-core's `ibv_rc_pingpong` and so on.
//!
//! ```text
//!   options ─► the loop ─► report        check: what is sent, and whether it comes back
//! ```

pub mod check;
pub mod options;
pub mod report;
