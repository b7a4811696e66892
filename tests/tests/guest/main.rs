//! What Linux's own mlx5 drivers, and others' programs on top of them, make of the device model: in a guest that
//! `cargo xtask vm` boots, one job a module. Outside of one there is nothing to test.

mod bed;
mod control;
mod forward;
mod gone;
mod ib;
mod net;
