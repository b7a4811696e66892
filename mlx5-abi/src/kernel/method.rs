//! Methods of the driver's calls, by object.
//!
//! Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`. The driver's numbers begin at 0x1000; those that
//! the driver adds to the kernel's own objects too.

/// Methods of [`object::DEVX`](super::object::DEVX). Source: `enum mlx5_ib_devx_methods`.
pub mod devx {
    /// `MLX5_IB_METHOD_DEVX_OTHER`.
    pub const OTHER: u16 = 0x1000;
    /// `MLX5_IB_METHOD_DEVX_QUERY_UAR`.
    pub const QUERY_UAR: u16 = 0x1001;
    /// `MLX5_IB_METHOD_DEVX_QUERY_EQN`.
    pub const QUERY_EQN: u16 = 0x1002;
    /// `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
    pub const SUBSCRIBE_EVENT: u16 = 0x1003;
}

/// Methods of [`object::DEVX_OBJ`](super::object::DEVX_OBJ). Source: `enum mlx5_ib_devx_obj_methods`.
pub mod devx_obj {
    /// `MLX5_IB_METHOD_DEVX_OBJ_CREATE`.
    pub const CREATE: u16 = 0x1000;
    /// `MLX5_IB_METHOD_DEVX_OBJ_DESTROY`.
    pub const DESTROY: u16 = 0x1001;
    /// `MLX5_IB_METHOD_DEVX_OBJ_MODIFY`.
    pub const MODIFY: u16 = 0x1002;
    /// `MLX5_IB_METHOD_DEVX_OBJ_QUERY`.
    pub const QUERY: u16 = 0x1003;
    /// `MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY`.
    pub const ASYNC_QUERY: u16 = 0x1004;
}

/// Methods of [`object::DEVX_UMEM`](super::object::DEVX_UMEM). Source: `enum mlx5_ib_devx_umem_methods`.
pub mod devx_umem {
    /// `MLX5_IB_METHOD_DEVX_UMEM_REG`.
    pub const REG: u16 = 0x1000;
    /// `MLX5_IB_METHOD_DEVX_UMEM_DEREG`.
    pub const DEREG: u16 = 0x1001;
}

/// Methods of [`object::DEVX_ASYNC_CMD_FD`](super::object::DEVX_ASYNC_CMD_FD). Source: `enum mlx5_ib_devx_async_cmd_fd_methods`.
pub mod devx_async_cmd_fd {
    /// `MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC`.
    pub const ALLOC: u16 = 0x1000;
}

/// Methods of [`object::DEVX_ASYNC_EVENT_FD`](super::object::DEVX_ASYNC_EVENT_FD). Source: `enum mlx5_ib_devx_async_event_fd_methods`.
pub mod devx_async_event_fd {
    /// `MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC`.
    pub const ALLOC: u16 = 0x1000;
}

/// Methods of [`object::UAR`](super::object::UAR). Source: `enum mlx5_ib_uar_obj_methods`.
pub mod uar {
    /// `MLX5_IB_METHOD_UAR_OBJ_ALLOC`.
    pub const ALLOC: u16 = 0x1000;
    /// `MLX5_IB_METHOD_UAR_OBJ_DESTROY`.
    pub const DESTROY: u16 = 0x1001;
}

/// Methods of [`object::VAR`](super::object::VAR). Source: `enum mlx5_ib_var_obj_methods`.
pub mod var {
    /// `MLX5_IB_METHOD_VAR_OBJ_ALLOC`.
    pub const ALLOC: u16 = 0x1000;
    /// `MLX5_IB_METHOD_VAR_OBJ_DESTROY`.
    pub const DESTROY: u16 = 0x1001;
}

/// Methods of [`object::PP`](super::object::PP). Source: `enum mlx5_ib_pp_obj_methods`.
pub mod pp {
    /// `MLX5_IB_METHOD_PP_OBJ_ALLOC`.
    pub const ALLOC: u16 = 0x1000;
    /// `MLX5_IB_METHOD_PP_OBJ_DESTROY`.
    pub const DESTROY: u16 = 0x1001;
}

/// Methods of [`object::FLOW_MATCHER`](super::object::FLOW_MATCHER). Source: `enum mlx5_ib_flow_matcher_methods`.
pub mod flow_matcher {
    /// `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
    pub const CREATE: u16 = 0x1000;
    /// `MLX5_IB_METHOD_FLOW_MATCHER_DESTROY`.
    pub const DESTROY: u16 = 0x1001;
}

/// Methods of [`object::STEERING_ANCHOR`](super::object::STEERING_ANCHOR). Source: `enum mlx5_ib_steering_anchor_methods`.
pub mod steering_anchor {
    /// `MLX5_IB_METHOD_STEERING_ANCHOR_CREATE`.
    pub const CREATE: u16 = 0x1000;
    /// `MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY`.
    pub const DESTROY: u16 = 0x1001;
}

/// Methods that the driver adds to the flow object. Source: `enum mlx5_ib_flow_methods`.
pub mod flow {
    /// `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const CREATE_FLOW: u16 = 0x1000;
    /// `MLX5_IB_METHOD_DESTROY_FLOW`.
    pub const DESTROY_FLOW: u16 = 0x1001;
}

/// Methods that the driver adds to the flow action object. Source: `enum mlx5_ib_flow_action_methods`.
pub mod flow_action {
    /// `MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER`.
    pub const CREATE_MODIFY_HEADER: u16 = 0x1000;
    /// `MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT`.
    pub const CREATE_PACKET_REFORMAT: u16 = 0x1001;
}

/// Methods that the driver adds to the device object. Source: `enum mlx5_ib_device_methods`.
pub mod device {
    /// `MLX5_IB_METHOD_QUERY_PORT`.
    pub const QUERY_PORT: u16 = 0x1000;
}

/// Methods that the driver adds to the protection domain object. Source: `enum mlx5_ib_pd_methods`.
pub mod pd {
    /// `MLX5_IB_METHOD_PD_QUERY`.
    pub const QUERY: u16 = 0x1000;
}

/// Methods that the driver adds to the device memory object. Source: `enum mlx5_ib_dm_methods`.
pub mod dm {
    /// `MLX5_IB_METHOD_DM_MAP_OP_ADDR`.
    pub const MAP_OP_ADDR: u16 = 0x1000;
    /// `MLX5_IB_METHOD_DM_QUERY`.
    pub const QUERY: u16 = 0x1001;
}
