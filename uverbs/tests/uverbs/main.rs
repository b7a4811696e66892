//! Public behaviour: contexts over a scripted door, in place of kernels old and new.

mod door;
mod every_command;
mod fallback;
mod golden;
mod hostile;
mod kernel;
