//! Methods of the driver's calls, by object.
//!
//! Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`. The driver's numbers begin at 0x1000; those that
//! the driver adds to the kernel's own objects too.

macro_rules! methods {
    ($($(#[$doc:meta])* $module:ident of $object:expr, $title:literal {
        $($(#[$inner:meta])* $name:ident = $number:literal,)*
    })*) => {
        $($(#[$doc])* pub mod $module {
            $($(#[$inner])* pub const $name: u16 = $number;)*
        })*

        /// Name of a method of the driver's, as `DEVX_OBJ/CREATE`: of its own objects, and of those of the kernel's to which it adds.
        #[must_use]
        pub const fn name(object: u16, method: u16) -> Option<&'static str> {
            $($(
                if object == $object && method == $number {
                    return Some(concat!($title, "/", stringify!($name)));
                }
            )*)*
            None
        }
    };
}

methods! {
    /// Methods of [`object::DEVX`](super::object::DEVX). Source: `enum mlx5_ib_devx_methods`.
    devx of super::object::DEVX, "DEVX" {
        /// `MLX5_IB_METHOD_DEVX_OTHER`.
        OTHER = 0x1000,
        /// `MLX5_IB_METHOD_DEVX_QUERY_UAR`.
        QUERY_UAR = 0x1001,
        /// `MLX5_IB_METHOD_DEVX_QUERY_EQN`.
        QUERY_EQN = 0x1002,
        /// `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
        SUBSCRIBE_EVENT = 0x1003,
    }
    /// Methods of [`object::DEVX_OBJ`](super::object::DEVX_OBJ). Source: `enum mlx5_ib_devx_obj_methods`.
    devx_obj of super::object::DEVX_OBJ, "DEVX_OBJ" {
        /// `MLX5_IB_METHOD_DEVX_OBJ_CREATE`.
        CREATE = 0x1000,
        /// `MLX5_IB_METHOD_DEVX_OBJ_DESTROY`.
        DESTROY = 0x1001,
        /// `MLX5_IB_METHOD_DEVX_OBJ_MODIFY`.
        MODIFY = 0x1002,
        /// `MLX5_IB_METHOD_DEVX_OBJ_QUERY`.
        QUERY = 0x1003,
        /// `MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY`.
        ASYNC_QUERY = 0x1004,
    }
    /// Methods of [`object::DEVX_UMEM`](super::object::DEVX_UMEM). Source: `enum mlx5_ib_devx_umem_methods`.
    devx_umem of super::object::DEVX_UMEM, "DEVX_UMEM" {
        /// `MLX5_IB_METHOD_DEVX_UMEM_REG`.
        REG = 0x1000,
        /// `MLX5_IB_METHOD_DEVX_UMEM_DEREG`.
        DEREG = 0x1001,
    }
    /// Methods of [`object::DEVX_ASYNC_CMD_FD`](super::object::DEVX_ASYNC_CMD_FD). Source: `enum mlx5_ib_devx_async_cmd_fd_methods`.
    devx_async_cmd_fd of super::object::DEVX_ASYNC_CMD_FD, "DEVX_ASYNC_CMD_FD" {
        /// `MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC`.
        ALLOC = 0x1000,
    }
    /// Methods of [`object::DEVX_ASYNC_EVENT_FD`](super::object::DEVX_ASYNC_EVENT_FD). Source: `enum mlx5_ib_devx_async_event_fd_methods`.
    devx_async_event_fd of super::object::DEVX_ASYNC_EVENT_FD, "DEVX_ASYNC_EVENT_FD" {
        /// `MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC`.
        ALLOC = 0x1000,
    }
    /// Methods of [`object::UAR`](super::object::UAR). Source: `enum mlx5_ib_uar_obj_methods`.
    uar of super::object::UAR, "UAR" {
        /// `MLX5_IB_METHOD_UAR_OBJ_ALLOC`.
        ALLOC = 0x1000,
        /// `MLX5_IB_METHOD_UAR_OBJ_DESTROY`.
        DESTROY = 0x1001,
    }
    /// Methods of [`object::VAR`](super::object::VAR). Source: `enum mlx5_ib_var_obj_methods`.
    var of super::object::VAR, "VAR" {
        /// `MLX5_IB_METHOD_VAR_OBJ_ALLOC`.
        ALLOC = 0x1000,
        /// `MLX5_IB_METHOD_VAR_OBJ_DESTROY`.
        DESTROY = 0x1001,
    }
    /// Methods of [`object::PP`](super::object::PP). Source: `enum mlx5_ib_pp_obj_methods`.
    pp of super::object::PP, "PP" {
        /// `MLX5_IB_METHOD_PP_OBJ_ALLOC`.
        ALLOC = 0x1000,
        /// `MLX5_IB_METHOD_PP_OBJ_DESTROY`.
        DESTROY = 0x1001,
    }
    /// Methods of [`object::FLOW_MATCHER`](super::object::FLOW_MATCHER). Source: `enum mlx5_ib_flow_matcher_methods`.
    flow_matcher of super::object::FLOW_MATCHER, "FLOW_MATCHER" {
        /// `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
        CREATE = 0x1000,
        /// `MLX5_IB_METHOD_FLOW_MATCHER_DESTROY`.
        DESTROY = 0x1001,
    }
    /// Methods of [`object::STEERING_ANCHOR`](super::object::STEERING_ANCHOR). Source: `enum mlx5_ib_steering_anchor_methods`.
    steering_anchor of super::object::STEERING_ANCHOR, "STEERING_ANCHOR" {
        /// `MLX5_IB_METHOD_STEERING_ANCHOR_CREATE`.
        CREATE = 0x1000,
        /// `MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY`.
        DESTROY = 0x1001,
    }
    /// Methods that the driver adds to the flow object. Source: `enum mlx5_ib_flow_methods`.
    flow of 9, "FLOW" {
        /// `MLX5_IB_METHOD_CREATE_FLOW`.
        CREATE_FLOW = 0x1000,
        /// `MLX5_IB_METHOD_DESTROY_FLOW`.
        DESTROY_FLOW = 0x1001,
    }
    /// Methods that the driver adds to the flow action object. Source: `enum mlx5_ib_flow_action_methods`.
    flow_action of 13, "FLOW_ACTION" {
        /// `MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER`.
        CREATE_MODIFY_HEADER = 0x1000,
        /// `MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT`.
        CREATE_PACKET_REFORMAT = 0x1001,
    }
    /// Methods that the driver adds to the device object. Source: `enum mlx5_ib_device_methods`.
    device of 0, "DEVICE" {
        /// `MLX5_IB_METHOD_QUERY_PORT`.
        QUERY_PORT = 0x1000,
    }
    /// Methods that the driver adds to the protection domain object. Source: `enum mlx5_ib_pd_methods`.
    pd of 1, "PD" {
        /// `MLX5_IB_METHOD_PD_QUERY`.
        QUERY = 0x1000,
    }
    /// Methods that the driver adds to the device memory object. Source: `enum mlx5_ib_dm_methods`.
    dm of 14, "DM" {
        /// `MLX5_IB_METHOD_DM_MAP_OP_ADDR`.
        MAP_OP_ADDR = 0x1000,
        /// `MLX5_IB_METHOD_DM_QUERY`.
        QUERY = 0x1001,
    }
}
