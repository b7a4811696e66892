//! `mlx5-device` as its machines find it: friendly ones, hostile ones, and what stands where its sockets shall be.

#[path = "vfio_user/hostile.rs"]
mod hostile;
#[path = "vfio_user/machine.rs"]
mod machine;
#[path = "vfio_user/program.rs"]
mod program;
#[path = "vfio_user/sockets.rs"]
mod sockets;
