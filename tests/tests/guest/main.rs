//! What Linux's own mlx5 drivers, and others' programs on top of them, make of the device model; and what the originals of our RDMA
//! programs say to ours: in a guest that `cargo xtask vm` boots, one job a module. Outside of one there is nothing to test.

mod bed;
mod control;
mod forward;
mod gone;
mod ib;
mod net;
mod originals;
mod record;
mod reset;
mod soak;
