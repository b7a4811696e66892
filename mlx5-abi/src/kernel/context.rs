//! Opening the device, and its protection domains, address handles and clock.

use std::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a user asks for when it opens the device. Older kernels take the first 8, 16 or 24 bytes.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_alloc_ucontext_req_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ContextRequest {
    /// BlueFlame registers wanted in all, of the static kind.
    pub total_num_bfregs: u32,
    /// How many of them no two queue pairs share.
    pub num_low_latency_bfregs: u32,
    /// A mask of [`context_flag`].
    pub flags: u32,
    /// None is defined.
    pub comp_mask: u32,
    /// Highest version of completions that the user reads: 0 or 1.
    pub max_cqe_version: u8,
    /// Reserved.
    pub reserved0: u8,
    /// Reserved.
    pub reserved1: u16,
    /// Reserved.
    pub reserved2: u32,
    /// A mask of [`library`].
    pub lib_caps: u64,
}

const _: () = assert!(size_of::<ContextRequest>() == 32 && offset_of!(ContextRequest, lib_caps) == 24);

/// What the user gets. Older kernels give less: `response_length` says how much.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_alloc_ucontext_resp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ContextAnswer {
    /// Queue pairs the device can have.
    pub qp_tab_size: u32,
    /// Bytes of a BlueFlame register, both buffers.
    pub bf_reg_size: u32,
    /// BlueFlame registers given; 0 where all are allocated one by one.
    pub tot_bfregs: u32,
    /// Bytes of a cache line.
    pub cache_line_size: u32,
    /// Bytes of the longest send entry.
    pub max_sq_desc_sz: u16,
    /// Bytes of the longest receive entry.
    pub max_rq_desc_sz: u16,
    /// Blocks in the longest send ring.
    pub max_send_wqebb: u32,
    /// Entries in the longest receive ring.
    pub max_recv_wr: u32,
    /// Entries in the longest shared receive ring.
    pub max_srq_recv_wr: u32,
    /// Ports.
    pub num_ports: u16,
    /// IPsec abilities.
    pub flow_action_flags: u16,
    /// A mask of [`answer`].
    pub comp_mask: u32,
    /// Bytes of this answer.
    pub response_length: u32,
    /// Version of completions that the device writes.
    pub cqe_version: u8,
    /// A mask of [`uhw`].
    pub cmds_supp_uhw: u8,
    /// One of [`inline_mode`].
    pub eth_min_inline: u8,
    /// Bit n: version n of the clock page; bit 0 is [`ClockInfo`].
    pub clock_info_versions: u8,
    /// Where in its page the adapter's clock stands.
    pub hca_core_clock_offset: u64,
    /// Bytes of a UAR page, as a logarithm.
    pub log_uar_size: u32,
    /// UAR pages in a page of the host.
    pub num_uars_per_page: u32,
    /// BlueFlame registers that can be allocated one by one.
    pub num_dyn_bfregs: u32,
    /// Key for reads that nobody wants.
    pub dump_fill_mkey: u32,
}

const _: () = assert!(size_of::<ContextAnswer>() == 72 && offset_of!(ContextAnswer, dump_fill_mkey) == 68);

/// What comes back with a protection domain.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_alloc_pd_resp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct PdAnswer {
    /// Its number.
    pub pdn: u32,
}

const _: () = assert!(size_of::<PdAnswer>() == 4 && offset_of!(PdAnswer, pdn) == 0);

/// What comes back with an address handle.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_ah_resp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AhAnswer {
    /// Bytes of this answer.
    pub response_length: u32,
    /// MAC that the address resolves to.
    pub dmac: [u8; 6],
    /// Reserved.
    pub reserved: [u8; 6],
}

const _: () = assert!(size_of::<AhAnswer>() == 16 && offset_of!(AhAnswer, reserved) == 10);

/// The page by which ticks of the adapter become time: read `sign`, the rest, `sign` again, as with a sequence lock.
///
/// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_clock_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ClockInfo {
    /// Changes with each update; bit 0 is set during one.
    pub sign: u32,
    /// Reserved.
    pub reserved: u32,
    /// Time at `cycles`.
    pub nsec: u64,
    /// Ticks.
    pub cycles: u64,
    /// Fraction of a nanosecond, shifted.
    pub frac: u64,
    /// Nanoseconds a tick, shifted.
    pub mult: u32,
    /// By how much.
    pub shift: u32,
    /// Which bits of the ticks count.
    pub mask: u64,
    /// How long until the ticks wrap half round, in nanoseconds.
    pub overflow_period: u64,
}

const _: () = assert!(size_of::<ClockInfo>() == 56 && offset_of!(ClockInfo, overflow_period) == 48);

/// What a context may do. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_alloc_uctx_v2_flags`.
pub mod context_flag {
    /// Send firmware commands of its own.
    pub const DEVX: u32 = 1 << 0;
}

/// What the user knows of. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_lib_caps`.
pub mod library {
    /// UAR pages of 4 KiB on hosts with larger pages.
    pub const UAR_4K: u64 = 1 << 0;
    /// UAR pages allocated one by one.
    pub const DYN_UAR: u64 = 1 << 1;
}

/// Which parts of the answer count. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_alloc_ucontext_resp_mask`.
pub mod answer {
    /// `hca_core_clock_offset`.
    pub const CORE_CLOCK_OFFSET: u32 = 1 << 0;
    /// `dump_fill_mkey`.
    pub const DUMP_FILL_MKEY: u32 = 1 << 1;
    /// Enhanced connection establishment works.
    pub const ECE: u32 = 1 << 2;
    /// A drained queue pair may go on.
    pub const SQD2RTS: u32 = 1 << 3;
    /// Completions can carry real time.
    pub const REAL_TIME_TS: u32 = 1 << 4;
    /// Tags of keys can be changed.
    pub const MKEY_UPDATE_TAG: u32 = 1 << 5;
}

/// Which calls carry driver data. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_user_cmds_supp_uhw`.
pub mod uhw {
    /// Device query.
    pub const QUERY_DEVICE: u8 = 1 << 0;
    /// Address handle.
    pub const CREATE_AH: u8 = 1 << 1;
}

/// How much of a frame must be inline; one more than the firmware's number. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_user_inline_mode`.
pub mod inline_mode {
    /// Not told: assume layer 2.
    pub const NA: u8 = 0;
    /// Nothing.
    pub const NONE: u8 = 1;
    /// Up to layer 2, 18 bytes.
    pub const L2: u8 = 2;
    /// Up to layer 3.
    pub const IP: u8 = 3;
    /// Up to layer 4.
    pub const TCP_UDP: u8 = 4;
}

/// In [`ClockInfo::sign`]. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `MLX5_IB_CLOCK_INFO_KERNEL_UPDATING`.
pub mod clock {
    /// An update is under way.
    pub const KERNEL_UPDATING: u32 = 1;
}
