//! Objects of the driver.
//!
//! Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`, `enum mlx5_ib_objects`.

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        $($(#[$doc])* pub const $name: u16 = $number;)*

        /// Name of an object, without `MLX5_IB_OBJECT_`.
        #[must_use]
        pub const fn name(object: u16) -> Option<&'static str> {
            match object {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

objects! {
    /// `MLX5_IB_OBJECT_DEVX`.
    DEVX = 0x1000,
    /// `MLX5_IB_OBJECT_DEVX_OBJ`.
    DEVX_OBJ = 0x1001,
    /// `MLX5_IB_OBJECT_DEVX_UMEM`.
    DEVX_UMEM = 0x1002,
    /// `MLX5_IB_OBJECT_FLOW_MATCHER`.
    FLOW_MATCHER = 0x1003,
    /// `MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD`.
    DEVX_ASYNC_CMD_FD = 0x1004,
    /// `MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD`.
    DEVX_ASYNC_EVENT_FD = 0x1005,
    /// `MLX5_IB_OBJECT_VAR`.
    VAR = 0x1006,
    /// `MLX5_IB_OBJECT_PP`.
    PP = 0x1007,
    /// `MLX5_IB_OBJECT_UAR`.
    UAR = 0x1008,
    /// `MLX5_IB_OBJECT_STEERING_ANCHOR`.
    STEERING_ANCHOR = 0x1009,
}
