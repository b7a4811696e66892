//! Attributes of the driver's calls, by method.
//!
//! Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`.

/// Attributes of [`devx::OTHER`](super::method::devx::OTHER). Source: `enum mlx5_ib_devx_other_attrs`.
pub mod devx_other {
    /// `MLX5_IB_ATTR_DEVX_OTHER_CMD_IN`.
    pub const CMD_IN: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT`.
    pub const CMD_OUT: u16 = 0x1001;
}

/// Attributes of [`devx::QUERY_UAR`](super::method::devx::QUERY_UAR). Source: `enum mlx5_ib_devx_query_uar_attrs`.
pub mod devx_query_uar {
    /// `MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX`.
    pub const USER_IDX: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX`.
    pub const DEV_IDX: u16 = 0x1001;
}

/// Attributes of [`devx::QUERY_EQN`](super::method::devx::QUERY_EQN). Source: `enum mlx5_ib_devx_query_eqn_attrs`.
pub mod devx_query_eqn {
    /// `MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC`.
    pub const USER_VEC: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN`.
    pub const DEV_EQN: u16 = 0x1001;
}

/// Attributes of [`devx::SUBSCRIBE_EVENT`](super::method::devx::SUBSCRIBE_EVENT). Source: `enum mlx5_ib_devx_subscribe_event_attrs`.
pub mod devx_subscribe_event {
    /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE`.
    pub const FD_HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE`.
    pub const OBJ_HANDLE: u16 = 0x1001;
    /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST`.
    pub const TYPE_NUM_LIST: u16 = 0x1002;
    /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM`.
    pub const FD_NUM: u16 = 0x1003;
    /// `MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE`.
    pub const COOKIE: u16 = 0x1004;
}

/// Attributes of [`devx_obj::CREATE`](super::method::devx_obj::CREATE). Source: `enum mlx5_ib_devx_obj_create_attrs`.
pub mod devx_obj_create {
    /// `MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN`.
    pub const CMD_IN: u16 = 0x1001;
    /// `MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT`.
    pub const CMD_OUT: u16 = 0x1002;
}

/// Attributes of [`devx_obj::DESTROY`](super::method::devx_obj::DESTROY). Source: `enum mlx5_ib_devx_obj_destroy_attrs`.
pub mod devx_obj_destroy {
    /// `MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
}

/// Attributes of [`devx_obj::MODIFY`](super::method::devx_obj::MODIFY). Source: `enum mlx5_ib_devx_obj_modify_attrs`.
pub mod devx_obj_modify {
    /// `MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN`.
    pub const CMD_IN: u16 = 0x1001;
    /// `MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT`.
    pub const CMD_OUT: u16 = 0x1002;
}

/// Attributes of [`devx_obj::QUERY`](super::method::devx_obj::QUERY). Source: `enum mlx5_ib_devx_obj_query_attrs`.
pub mod devx_obj_query {
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN`.
    pub const CMD_IN: u16 = 0x1001;
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT`.
    pub const CMD_OUT: u16 = 0x1002;
}

/// Attributes of [`devx_obj::ASYNC_QUERY`](super::method::devx_obj::ASYNC_QUERY). Source: `enum mlx5_ib_devx_obj_query_async_attrs`.
pub mod devx_obj_query_async {
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN`.
    pub const CMD_IN: u16 = 0x1001;
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD`.
    pub const FD: u16 = 0x1002;
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID`.
    pub const WR_ID: u16 = 0x1003;
    /// `MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN`.
    pub const OUT_LEN: u16 = 0x1004;
}

/// Attributes of [`devx_umem::REG`](super::method::devx_umem::REG). Source: `enum mlx5_ib_devx_umem_reg_attrs`.
pub mod devx_umem_reg {
    /// `MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR`.
    pub const ADDR: u16 = 0x1001;
    /// `MLX5_IB_ATTR_DEVX_UMEM_REG_LEN`.
    pub const LEN: u16 = 0x1002;
    /// `MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS`.
    pub const ACCESS: u16 = 0x1003;
    /// `MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID`.
    pub const OUT_ID: u16 = 0x1004;
    /// `MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP`.
    pub const PGSZ_BITMAP: u16 = 0x1005;
    /// `MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD`.
    pub const DMABUF_FD: u16 = 0x1006;
}

/// Attributes of [`devx_umem::DEREG`](super::method::devx_umem::DEREG). Source: `enum mlx5_ib_devx_umem_dereg_attrs`.
pub mod devx_umem_dereg {
    /// `MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
}

/// Attributes of [`devx_async_cmd_fd::ALLOC`](super::method::devx_async_cmd_fd::ALLOC). Source: `enum mlx5_ib_devx_async_cmd_fd_alloc_attrs`.
pub mod devx_async_cmd_fd_alloc {
    /// `MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
}

/// Attributes of [`devx_async_event_fd::ALLOC`](super::method::devx_async_event_fd::ALLOC). Source: `enum mlx5_ib_devx_async_event_fd_alloc_attrs`.
pub mod devx_async_event_fd_alloc {
    /// `MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS`.
    pub const FLAGS: u16 = 0x1001;
}

/// Attributes of [`uar::ALLOC`](super::method::uar::ALLOC). Source: `enum mlx5_ib_uar_alloc_attrs`.
pub mod uar_alloc {
    /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE`.
    pub const TYPE: u16 = 0x1001;
    /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET`.
    pub const MMAP_OFFSET: u16 = 0x1002;
    /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH`.
    pub const MMAP_LENGTH: u16 = 0x1003;
    /// `MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID`.
    pub const PAGE_ID: u16 = 0x1004;
}

/// Attributes of [`uar::DESTROY`](super::method::uar::DESTROY). Source: `enum mlx5_ib_uar_obj_destroy_attrs`.
pub mod uar_destroy {
    /// `MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
}

/// Attributes of [`pp::ALLOC`](super::method::pp::ALLOC). Source: `enum mlx5_ib_pp_alloc_attrs`.
pub mod pp_alloc {
    /// `MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX`.
    pub const CTX: u16 = 0x1001;
    /// `MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS`.
    pub const FLAGS: u16 = 0x1002;
    /// `MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX`.
    pub const INDEX: u16 = 0x1003;
}

/// Attributes of [`pp::DESTROY`](super::method::pp::DESTROY). Source: `enum mlx5_ib_pp_obj_destroy_attrs`.
pub mod pp_destroy {
    /// `MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
}

/// Attributes of [`flow_matcher::CREATE`](super::method::flow_matcher::CREATE). Source: `enum mlx5_ib_flow_matcher_create_attrs`.
pub mod flow_matcher_create {
    /// `MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE`.
    pub const CREATE_HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK`.
    pub const MATCH_MASK: u16 = 0x1001;
    /// `MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE`.
    pub const FLOW_TYPE: u16 = 0x1002;
    /// `MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA`.
    pub const MATCH_CRITERIA: u16 = 0x1003;
    /// `MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS`.
    pub const FLOW_FLAGS: u16 = 0x1004;
    /// `MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE`.
    pub const FT_TYPE: u16 = 0x1005;
}

/// Attributes of [`flow_matcher::DESTROY`](super::method::flow_matcher::DESTROY). Source: `enum mlx5_ib_flow_matcher_destroy_attrs`.
pub mod flow_matcher_destroy {
    /// `MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
}

/// Attributes of [`flow::CREATE_FLOW`](super::method::flow::CREATE_FLOW). Source: `enum mlx5_ib_create_flow_attrs`.
pub mod create_flow {
    /// `MLX5_IB_ATTR_CREATE_FLOW_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE`.
    pub const MATCH_VALUE: u16 = 0x1001;
    /// `MLX5_IB_ATTR_CREATE_FLOW_DEST_QP`.
    pub const DEST_QP: u16 = 0x1002;
    /// `MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX`.
    pub const DEST_DEVX: u16 = 0x1003;
    /// `MLX5_IB_ATTR_CREATE_FLOW_MATCHER`.
    pub const MATCHER: u16 = 0x1004;
    /// `MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS`.
    pub const ARR_FLOW_ACTIONS: u16 = 0x1005;
    /// `MLX5_IB_ATTR_CREATE_FLOW_TAG`.
    pub const TAG: u16 = 0x1006;
    /// `MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX`.
    pub const ARR_COUNTERS_DEVX: u16 = 0x1007;
    /// `MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET`.
    pub const ARR_COUNTERS_DEVX_OFFSET: u16 = 0x1008;
    /// `MLX5_IB_ATTR_CREATE_FLOW_FLAGS`.
    pub const FLAGS: u16 = 0x1009;
}

/// Attributes of [`flow::DESTROY_FLOW`](super::method::flow::DESTROY_FLOW). Source: `enum mlx5_ib_destroy_flow_attrs`.
pub mod destroy_flow {
    /// `MLX5_IB_ATTR_DESTROY_FLOW_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
}

/// Attributes of [`flow_action::CREATE_MODIFY_HEADER`](super::method::flow_action::CREATE_MODIFY_HEADER). Source: `enum mlx5_ib_create_flow_action_create_modify_header_attrs`.
pub mod create_modify_header {
    /// `MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM`.
    pub const ACTIONS_PRM: u16 = 0x1001;
    /// `MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE`.
    pub const FT_TYPE: u16 = 0x1002;
}

/// Attributes of [`flow_action::CREATE_PACKET_REFORMAT`](super::method::flow_action::CREATE_PACKET_REFORMAT). Source: `enum mlx5_ib_create_flow_action_create_packet_reformat_attrs`.
pub mod create_packet_reformat {
    /// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE`.
    pub const TYPE: u16 = 0x1001;
    /// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE`.
    pub const FT_TYPE: u16 = 0x1002;
    /// `MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF`.
    pub const DATA_BUF: u16 = 0x1003;
}

/// Attributes of the core's context query, added by the driver. Source: `enum mlx5_ib_device_query_context_attrs`.
pub mod query_context {
    /// `MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX`.
    pub const RESP_UCTX: u16 = 0x1000;
}

/// Attributes of [`device::QUERY_PORT`](super::method::device::QUERY_PORT). Source: `enum mlx5_ib_query_port_attrs`.
pub mod query_port {
    /// `MLX5_IB_ATTR_QUERY_PORT_PORT_NUM`.
    pub const QUERY_PORT_PORT_NUM: u16 = 0x1000;
    /// `MLX5_IB_ATTR_QUERY_PORT`.
    pub const QUERY_PORT: u16 = 0x1001;
}

/// Attributes of [`pd::QUERY`](super::method::pd::QUERY). Source: `enum mlx5_ib_query_pd_attrs`.
pub mod query_pd {
    /// `MLX5_IB_ATTR_QUERY_PD_HANDLE`.
    pub const HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_QUERY_PD_RESP_PDN`.
    pub const RESP_PDN: u16 = 0x1001;
}

/// Attributes of device memory allocation, added by the driver. Source: `enum mlx5_ib_alloc_dm_attrs`.
pub mod alloc_dm {
    /// `MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET`.
    pub const RESP_START_OFFSET: u16 = 0x1000;
    /// `MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX`.
    pub const RESP_PAGE_INDEX: u16 = 0x1001;
    /// `MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE`.
    pub const REQ_TYPE: u16 = 0x1002;
}

/// Attributes of [`dm::MAP_OP_ADDR`](super::method::dm::MAP_OP_ADDR). Source: `enum mlx5_ib_dm_map_op_addr_attrs`.
pub mod dm_map_op_addr {
    /// `MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE`.
    pub const REQ_HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP`.
    pub const REQ_OP: u16 = 0x1001;
    /// `MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET`.
    pub const RESP_START_OFFSET: u16 = 0x1002;
    /// `MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX`.
    pub const RESP_PAGE_INDEX: u16 = 0x1003;
}

/// Attributes of [`dm::QUERY`](super::method::dm::QUERY). Source: `enum mlx5_ib_query_dm_attrs`.
pub mod query_dm {
    /// `MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE`.
    pub const REQ_HANDLE: u16 = 0x1000;
    /// `MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET`.
    pub const RESP_START_OFFSET: u16 = 0x1001;
    /// `MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX`.
    pub const RESP_PAGE_INDEX: u16 = 0x1002;
    /// `MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH`.
    pub const RESP_LENGTH: u16 = 0x1003;
}
