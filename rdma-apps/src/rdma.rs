//! What the RDMA programs share below their protocols.
//!
//! ```text
//!   info      what a device is, in lines
//!   program   the frame: a device, an lcore, the end
//!   appointment  the other end, as long as it was not met
//!   device    which device, port and GID; what is wrong with it
//!   endless   waits that see a signal, and an end that is gone
//!   paging    memory on demand, where the device can
//!   queue     a completion queue that is polled, or slept on
//!   failure   why a run ended early, in one line
//! ```

pub mod appointment;
pub mod device;
pub mod endless;
pub mod failure;
pub mod info;
pub mod paging;
pub mod program;
pub mod queue;

pub use appointment::Appointment;
pub use failure::Failure;
