//! `mlx5-device` as its machines find it: friendly ones, hostile ones, and what stands where its sockets shall be.

mod hostile;
mod machine;
mod program;
mod sockets;
