//! Opening the device, and its protection domains, address handles and clock.

use std::mem::offset_of;

use super::described::described;

described! {
    /// What a user asks for when it opens the device. Older kernels take the first 8, 16 or 24 bytes.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_alloc_ucontext_req_v2`.
    ContextRequest = "mlx5_ib_alloc_ucontext_req_v2" {
        /// BlueFlame registers wanted in all, of the static kind.
        total_num_bfregs: u32,
        /// How many of them no two queue pairs share.
        num_low_latency_bfregs: u32,
        /// A mask of [`context_flag`].
        flags: u32,
        /// None is defined.
        comp_mask: u32,
        /// Highest version of completions that the user reads: 0 or 1.
        max_cqe_version: u8,
        /// Reserved.
        reserved0: u8,
        /// Reserved.
        reserved1: u16,
        /// Reserved.
        reserved2: u32,
        /// A mask of [`library`].
        lib_caps: u64,
    }
}

const _: () = assert!(size_of::<ContextRequest>() == 32 && offset_of!(ContextRequest, lib_caps) == 24);

described! {
    /// What the user gets. Older kernels give less: `response_length` says how much.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_alloc_ucontext_resp`.
    ContextAnswer = "mlx5_ib_alloc_ucontext_resp" {
        /// Queue pairs the device can have.
        qp_tab_size: u32,
        /// Bytes of a BlueFlame register, both buffers.
        bf_reg_size: u32,
        /// BlueFlame registers given; 0 where all are allocated one by one.
        tot_bfregs: u32,
        /// Bytes of a cache line.
        cache_line_size: u32,
        /// Bytes of the longest send entry.
        max_sq_desc_sz: u16,
        /// Bytes of the longest receive entry.
        max_rq_desc_sz: u16,
        /// Blocks in the longest send ring.
        max_send_wqebb: u32,
        /// Entries in the longest receive ring.
        max_recv_wr: u32,
        /// Entries in the longest shared receive ring.
        max_srq_recv_wr: u32,
        /// Ports.
        num_ports: u16,
        /// IPsec abilities.
        flow_action_flags: u16,
        /// A mask of [`answer`].
        comp_mask: u32,
        /// Bytes of this answer.
        response_length: u32,
        /// Version of completions that the device writes.
        cqe_version: u8,
        /// A mask of [`uhw`].
        cmds_supp_uhw: u8,
        /// One of [`inline_mode`].
        eth_min_inline: u8,
        /// Bit n: version n of the clock page; bit 0 is [`ClockInfo`].
        clock_info_versions: u8,
        /// Where in its page the adapter's clock stands.
        hca_core_clock_offset: u64,
        /// Bytes of a UAR page, as a logarithm.
        log_uar_size: u32,
        /// UAR pages in a page of the host.
        num_uars_per_page: u32,
        /// BlueFlame registers that can be allocated one by one.
        num_dyn_bfregs: u32,
        /// Key for reads that nobody wants.
        dump_fill_mkey: u32,
    }
}

const _: () = assert!(size_of::<ContextAnswer>() == 72 && offset_of!(ContextAnswer, dump_fill_mkey) == 68);

described! {
    /// What comes back with a protection domain.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_alloc_pd_resp`.
    PdAnswer = "mlx5_ib_alloc_pd_resp" {
        /// Its number.
        pdn: u32,
    }
}

const _: () = assert!(size_of::<PdAnswer>() == 4 && offset_of!(PdAnswer, pdn) == 0);

described! {
    /// What comes back with an address handle.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_ah_resp`.
    AhAnswer = "mlx5_ib_create_ah_resp" {
        /// Bytes of this answer.
        response_length: u32,
        /// MAC that the address resolves to.
        dmac: [u8; 6],
        /// Reserved.
        reserved: [u8; 6],
    }
}

const _: () = assert!(size_of::<AhAnswer>() == 16 && offset_of!(AhAnswer, reserved) == 10);

described! {
    /// The page by which ticks of the adapter become time: read `sign`, the rest, `sign` again, as with a sequence lock.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_clock_info`.
    ClockInfo = "mlx5_ib_clock_info" {
        /// Changes with each update; bit 0 is set during one.
        sign: u32,
        /// Reserved.
        reserved: u32,
        /// Time at `cycles`.
        nsec: u64,
        /// Ticks.
        cycles: u64,
        /// Fraction of a nanosecond, shifted.
        frac: u64,
        /// Nanoseconds a tick, shifted.
        mult: u32,
        /// By how much.
        shift: u32,
        /// Which bits of the ticks count.
        mask: u64,
        /// How long until the ticks wrap half round, in nanoseconds.
        overflow_period: u64,
    }
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
