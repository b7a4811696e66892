//! What Linux's mlx5_ib adds to the kernel's RDMA interface: driver data of the common calls, calls of its own, and
//! the offsets at which pages are mapped.
//!
//! All numbers are in the byte order of the host, unlike what the adapter reads. A structure may be longer or shorter
//! in another kernel: what is beyond the one side's knowledge is zero or left out.
//!
//! Data of the common calls: [`context`], [`device`], [`completion_queue`], [`queue_pair`], [`work_queue`], [`flow`]. Calls of
//! the driver: [`object`], [`method`], [`attribute`], [`verbs`]. Pages: [`mmap`]. Names of fields: [`part`].

pub mod attribute;
pub mod completion_queue;
pub mod context;
pub mod described;
pub mod device;
pub mod flow;
pub mod method;
pub mod mmap;
pub mod object;
pub mod part;
pub mod queue_pair;
pub mod verbs;
pub mod work_queue;

/// Version of the driver's interface, as in the device's `abi_version`. Source: rdma-core
/// `kernel-headers/rdma/mlx5-abi.h`, `MLX5_IB_UVERBS_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;

/// First number of the driver's own objects, methods and attributes. Source: rdma-core
/// `kernel-headers/rdma/ib_user_ioctl_cmds.h`, `UVERBS_ID_NS_SHIFT`.
pub const DRIVER_NAMESPACE: u16 = 1 << 12;

/// The driver's number in a call's head. Source: rdma-core `kernel-headers/rdma/ib_user_ioctl_verbs.h`,
/// `RDMA_DRIVER_MLX5`.
pub const DRIVER_ID: u32 = 1;

/// Dwords of a flow match as the driver takes it, all parts. Source: rdma-core
/// `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`, `MLX5_IB_DW_MATCH_PARAM`.
pub const MATCH_DWORDS: usize = 0xa0;

/// What a flow matcher matches. Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`, `enum
/// mlx5_ib_flow_type`.
pub mod flow_type {
    /// What its mask and the flow's value say.
    pub const NORMAL: u32 = 0;
    /// Everything, as a copy.
    pub const SNIFFER: u32 = 1;
    /// Everything that nobody else takes.
    pub const ALL_DEFAULT: u32 = 2;
    /// All multicast that nobody else takes.
    pub const MC_DEFAULT: u32 = 3;
}

/// Of a flow. Source: rdma-core `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`, `enum mlx5_ib_create_flow_flags`.
pub mod flow_flag {
    /// To where it would go without the rule.
    pub const DEFAULT_MISS: u32 = 1 << 0;
    /// Nowhere.
    pub const DROP: u32 = 1 << 1;
}
