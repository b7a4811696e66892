//! Attributes of the driver's calls, by method.
//!
//! Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`.

macro_rules! attributes {
    ($($(#[$doc:meta])* $module:ident of $object:expr, $method:expr => {
        $($(#[$inner:meta])* $name:ident = $number:literal,)*
    })*) => {
        $($(#[$doc])* pub mod $module {
            $($(#[$inner])* pub const $name: u16 = $number;)*
        })*

        /// Name of an attribute of the driver's: of its own methods, and of those of the kernel's to which it adds.
        #[must_use]
        pub const fn name(object: u16, method: u16, attribute: u16) -> Option<&'static str> {
            $($(
                if object == $object && method == $method && attribute == $number {
                    return Some(stringify!($name));
                }
            )*)*
            None
        }
    };
}

attributes! {
    /// Attributes of [`devx::OTHER`](super::method::devx::OTHER). Source: `enum mlx5_ib_devx_other_attrs`.
    devx_other of super::object::DEVX, super::method::devx::OTHER => {
        /// `MLX5_IB_ATTR_DEVX_OTHER_CMD_IN`.
        CMD_IN = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT`.
        CMD_OUT = 0x1001,
    }
    /// Attributes of [`devx::QUERY_UAR`](super::method::devx::QUERY_UAR). Source: `enum mlx5_ib_devx_query_uar_attrs`.
    devx_query_uar of super::object::DEVX, super::method::devx::QUERY_UAR => {
        /// `MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX`.
        USER_IDX = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX`.
        DEV_IDX = 0x1001,
    }
    /// Attributes of [`devx::QUERY_EQN`](super::method::devx::QUERY_EQN). Source: `enum mlx5_ib_devx_query_eqn_attrs`.
    devx_query_eqn of super::object::DEVX, super::method::devx::QUERY_EQN => {
        /// `MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC`.
        USER_VEC = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN`.
        DEV_EQN = 0x1001,
    }
    /// Attributes of [`devx::SUBSCRIBE_EVENT`](super::method::devx::SUBSCRIBE_EVENT). Source: `enum mlx5_ib_devx_subscribe_event_attrs`.
    devx_subscribe_event of super::object::DEVX, super::method::devx::SUBSCRIBE_EVENT => {
        /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE`.
        FD_HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE`.
        OBJ_HANDLE = 0x1001,
        /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST`.
        TYPE_NUM_LIST = 0x1002,
        /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM`.
        FD_NUM = 0x1003,
        /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE`.
        COOKIE = 0x1004,
    }
    /// Attributes of [`devx_obj::CREATE`](super::method::devx_obj::CREATE). Source: `enum mlx5_ib_devx_obj_create_attrs`.
    devx_obj_create of super::object::DEVX_OBJ, super::method::devx_obj::CREATE => {
        /// `MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN`.
        CMD_IN = 0x1001,
        /// `MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT`.
        CMD_OUT = 0x1002,
    }
    /// Attributes of [`devx_obj::DESTROY`](super::method::devx_obj::DESTROY). Source: `enum mlx5_ib_devx_obj_destroy_attrs`.
    devx_obj_destroy of super::object::DEVX_OBJ, super::method::devx_obj::DESTROY => {
        /// `MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE`.
        HANDLE = 0x1000,
    }
    /// Attributes of [`devx_obj::MODIFY`](super::method::devx_obj::MODIFY). Source: `enum mlx5_ib_devx_obj_modify_attrs`.
    devx_obj_modify of super::object::DEVX_OBJ, super::method::devx_obj::MODIFY => {
        /// `MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN`.
        CMD_IN = 0x1001,
        /// `MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT`.
        CMD_OUT = 0x1002,
    }
    /// Attributes of [`devx_obj::QUERY`](super::method::devx_obj::QUERY). Source: `enum mlx5_ib_devx_obj_query_attrs`.
    devx_obj_query of super::object::DEVX_OBJ, super::method::devx_obj::QUERY => {
        /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN`.
        CMD_IN = 0x1001,
        /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT`.
        CMD_OUT = 0x1002,
    }
    /// Attributes of [`devx_obj::ASYNC_QUERY`](super::method::devx_obj::ASYNC_QUERY). Source: `enum mlx5_ib_devx_obj_query_async_attrs`.
    devx_obj_query_async of super::object::DEVX_OBJ, super::method::devx_obj::ASYNC_QUERY => {
        /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN`.
        CMD_IN = 0x1001,
        /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD`.
        FD = 0x1002,
        /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID`.
        WR_ID = 0x1003,
        /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN`.
        OUT_LEN = 0x1004,
    }
    /// Attributes of [`devx_umem::REG`](super::method::devx_umem::REG). Source: `enum mlx5_ib_devx_umem_reg_attrs`.
    devx_umem_reg of super::object::DEVX_UMEM, super::method::devx_umem::REG => {
        /// `MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR`.
        ADDR = 0x1001,
        /// `MLX5_IB_ATTR_DEVX_UMEM_REG_LEN`.
        LEN = 0x1002,
        /// `MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS`.
        ACCESS = 0x1003,
        /// `MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID`.
        OUT_ID = 0x1004,
        /// `MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP`.
        PGSZ_BITMAP = 0x1005,
        /// `MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD`.
        DMABUF_FD = 0x1006,
    }
    /// Attributes of [`devx_umem::DEREG`](super::method::devx_umem::DEREG). Source: `enum mlx5_ib_devx_umem_dereg_attrs`.
    devx_umem_dereg of super::object::DEVX_UMEM, super::method::devx_umem::DEREG => {
        /// `MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE`.
        HANDLE = 0x1000,
    }
    /// Attributes of [`devx_async_cmd_fd::ALLOC`](super::method::devx_async_cmd_fd::ALLOC). Source: `enum mlx5_ib_devx_async_cmd_fd_alloc_attrs`.
    devx_async_cmd_fd_alloc of super::object::DEVX_ASYNC_CMD_FD, super::method::devx_async_cmd_fd::ALLOC => {
        /// `MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE`.
        HANDLE = 0x1000,
    }
    /// Attributes of [`devx_async_event_fd::ALLOC`](super::method::devx_async_event_fd::ALLOC). Source: `enum mlx5_ib_devx_async_event_fd_alloc_attrs`.
    devx_async_event_fd_alloc of super::object::DEVX_ASYNC_EVENT_FD, super::method::devx_async_event_fd::ALLOC => {
        /// `MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS`.
        FLAGS = 0x1001,
    }
    /// Attributes of [`uar::ALLOC`](super::method::uar::ALLOC). Source: `enum mlx5_ib_uar_alloc_attrs`.
    uar_alloc of super::object::UAR, super::method::uar::ALLOC => {
        /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE`.
        TYPE = 0x1001,
        /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET`.
        MMAP_OFFSET = 0x1002,
        /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH`.
        MMAP_LENGTH = 0x1003,
        /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID`.
        PAGE_ID = 0x1004,
    }
    /// Attributes of [`uar::DESTROY`](super::method::uar::DESTROY). Source: `enum mlx5_ib_uar_obj_destroy_attrs`.
    uar_destroy of super::object::UAR, super::method::uar::DESTROY => {
        /// `MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE`.
        HANDLE = 0x1000,
    }
    /// Attributes of [`pp::ALLOC`](super::method::pp::ALLOC). Source: `enum mlx5_ib_pp_alloc_attrs`.
    pp_alloc of super::object::PP, super::method::pp::ALLOC => {
        /// `MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX`.
        CTX = 0x1001,
        /// `MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS`.
        FLAGS = 0x1002,
        /// `MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX`.
        INDEX = 0x1003,
    }
    /// Attributes of [`pp::DESTROY`](super::method::pp::DESTROY). Source: `enum mlx5_ib_pp_obj_destroy_attrs`.
    pp_destroy of super::object::PP, super::method::pp::DESTROY => {
        /// `MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE`.
        HANDLE = 0x1000,
    }
    /// Attributes of [`flow_matcher::CREATE`](super::method::flow_matcher::CREATE). Source: `enum mlx5_ib_flow_matcher_create_attrs`.
    flow_matcher_create of super::object::FLOW_MATCHER, super::method::flow_matcher::CREATE => {
        /// `MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE`.
        CREATE_HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK`.
        MATCH_MASK = 0x1001,
        /// `MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE`.
        FLOW_TYPE = 0x1002,
        /// `MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA`.
        MATCH_CRITERIA = 0x1003,
        /// `MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS`.
        FLOW_FLAGS = 0x1004,
        /// `MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE`.
        FT_TYPE = 0x1005,
    }
    /// Attributes of [`flow_matcher::DESTROY`](super::method::flow_matcher::DESTROY). Source: `enum mlx5_ib_flow_matcher_destroy_attrs`.
    flow_matcher_destroy of super::object::FLOW_MATCHER, super::method::flow_matcher::DESTROY => {
        /// `MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE`.
        HANDLE = 0x1000,
    }
    /// Attributes of [`flow::CREATE_FLOW`](super::method::flow::CREATE_FLOW). Source: `enum mlx5_ib_create_flow_attrs`.
    create_flow of 9, super::method::flow::CREATE_FLOW => {
        /// `MLX5_IB_ATTR_CREATE_FLOW_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE`.
        MATCH_VALUE = 0x1001,
        /// `MLX5_IB_ATTR_CREATE_FLOW_DEST_QP`.
        DEST_QP = 0x1002,
        /// `MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX`.
        DEST_DEVX = 0x1003,
        /// `MLX5_IB_ATTR_CREATE_FLOW_MATCHER`.
        MATCHER = 0x1004,
        /// `MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS`.
        ARR_FLOW_ACTIONS = 0x1005,
        /// `MLX5_IB_ATTR_CREATE_FLOW_TAG`.
        TAG = 0x1006,
        /// `MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX`.
        ARR_COUNTERS_DEVX = 0x1007,
        /// `MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET`.
        ARR_COUNTERS_DEVX_OFFSET = 0x1008,
        /// `MLX5_IB_ATTR_CREATE_FLOW_FLAGS`.
        FLAGS = 0x1009,
    }
    /// Attributes of [`flow::DESTROY_FLOW`](super::method::flow::DESTROY_FLOW). Source: `enum mlx5_ib_destroy_flow_attrs`.
    destroy_flow of 9, super::method::flow::DESTROY_FLOW => {
        /// `MLX5_IB_ATTR_DESTROY_FLOW_HANDLE`.
        HANDLE = 0x1000,
    }
    /// Attributes of [`flow_action::CREATE_MODIFY_HEADER`](super::method::flow_action::CREATE_MODIFY_HEADER). Source: `enum mlx5_ib_create_flow_action_create_modify_header_attrs`.
    create_modify_header of 13, super::method::flow_action::CREATE_MODIFY_HEADER => {
        /// `MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM`.
        ACTIONS_PRM = 0x1001,
        /// `MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE`.
        FT_TYPE = 0x1002,
    }
    /// Attributes of [`flow_action::CREATE_PACKET_REFORMAT`](super::method::flow_action::CREATE_PACKET_REFORMAT). Source: `enum mlx5_ib_create_flow_action_create_packet_reformat_attrs`.
    create_packet_reformat of 13, super::method::flow_action::CREATE_PACKET_REFORMAT => {
        /// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE`.
        TYPE = 0x1001,
        /// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE`.
        FT_TYPE = 0x1002,
        /// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF`.
        DATA_BUF = 0x1003,
    }
    /// Attributes of the core's context query, added by the driver. Source: `enum mlx5_ib_device_query_context_attrs`.
    query_context of 0, 4 => {
        /// `MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX`.
        RESP_UCTX = 0x1000,
    }
    /// Attributes of [`device::QUERY_PORT`](super::method::device::QUERY_PORT). Source: `enum mlx5_ib_query_port_attrs`.
    query_port of 0, super::method::device::QUERY_PORT => {
        /// `MLX5_IB_ATTR_QUERY_PORT_PORT_NUM`.
        QUERY_PORT_PORT_NUM = 0x1000,
        /// `MLX5_IB_ATTR_QUERY_PORT`.
        QUERY_PORT = 0x1001,
    }
    /// Attributes of [`pd::QUERY`](super::method::pd::QUERY). Source: `enum mlx5_ib_query_pd_attrs`.
    query_pd of 1, super::method::pd::QUERY => {
        /// `MLX5_IB_ATTR_QUERY_PD_HANDLE`.
        HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_QUERY_PD_RESP_PDN`.
        RESP_PDN = 0x1001,
    }
    /// Attributes of device memory allocation, added by the driver. Source: `enum mlx5_ib_alloc_dm_attrs`.
    alloc_dm of 14, 0 => {
        /// `MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET`.
        RESP_START_OFFSET = 0x1000,
        /// `MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX`.
        RESP_PAGE_INDEX = 0x1001,
        /// `MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE`.
        REQ_TYPE = 0x1002,
    }
    /// Attributes of [`dm::MAP_OP_ADDR`](super::method::dm::MAP_OP_ADDR). Source: `enum mlx5_ib_dm_map_op_addr_attrs`.
    dm_map_op_addr of 14, super::method::dm::MAP_OP_ADDR => {
        /// `MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE`.
        REQ_HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP`.
        REQ_OP = 0x1001,
        /// `MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET`.
        RESP_START_OFFSET = 0x1002,
        /// `MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX`.
        RESP_PAGE_INDEX = 0x1003,
    }
    /// Attributes of [`dm::QUERY`](super::method::dm::QUERY). Source: `enum mlx5_ib_query_dm_attrs`.
    query_dm of 14, super::method::dm::QUERY => {
        /// `MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE`.
        REQ_HANDLE = 0x1000,
        /// `MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET`.
        RESP_START_OFFSET = 0x1001,
        /// `MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX`.
        RESP_PAGE_INDEX = 0x1002,
        /// `MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH`.
        RESP_LENGTH = 0x1003,
    }
}
