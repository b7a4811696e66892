//! The device as a PCI function: what a kernel's own mlx5 driver binds to.
//!
//! ```text
//!   a guest's kernel ── its machine (QEMU) ── vfio-user messages (vfio_user, session) ──► Function
//!      configuration space        config_space
//!      BAR 0: first pages         initialization segment: command queue, health, clock
//!             UAR pages           Device::doorbell_store
//!      memory                     GuestMemory, mapped piece by piece
//!      interrupts                 event descriptors, one a vector
//! ```
//!
//! It is the same device as in process: the commands that come here through entries and mailboxes in the guest's memory go to
//! the same firmware, and the queues to the same core.

mod command_ring;
mod config_space;
mod function;
mod server;
mod session;
mod step;
mod vectors;
mod vfio_user;
mod write_combining;

#[cfg(test)]
mod tests;

pub use function::{Function, Health};
pub use server::{ServeError, Slot, Stop, serve};
