//! Objects of the driver.
//!
//! Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`, `enum mlx5_ib_objects`.

/// `MLX5_IB_OBJECT_DEVX`.
pub const DEVX: u16 = 0x1000;
/// `MLX5_IB_OBJECT_DEVX_OBJ`.
pub const DEVX_OBJ: u16 = 0x1001;
/// `MLX5_IB_OBJECT_DEVX_UMEM`.
pub const DEVX_UMEM: u16 = 0x1002;
/// `MLX5_IB_OBJECT_FLOW_MATCHER`.
pub const FLOW_MATCHER: u16 = 0x1003;
/// `MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD`.
pub const DEVX_ASYNC_CMD_FD: u16 = 0x1004;
/// `MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD`.
pub const DEVX_ASYNC_EVENT_FD: u16 = 0x1005;
/// `MLX5_IB_OBJECT_VAR`.
pub const VAR: u16 = 0x1006;
/// `MLX5_IB_OBJECT_PP`.
pub const PP: u16 = 0x1007;
/// `MLX5_IB_OBJECT_UAR`.
pub const UAR: u16 = 0x1008;
/// `MLX5_IB_OBJECT_STEERING_ANCHOR`.
pub const STEERING_ANCHOR: u16 = 0x1009;
