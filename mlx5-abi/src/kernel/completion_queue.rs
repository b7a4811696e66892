//! Completion queues.

use std::mem::offset_of;

use super::described::described;

described! {
    /// What a completion queue is made of. Older kernels take the first 24 bytes.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_cq`.
    CreateCq = "mlx5_ib_create_cq" {
        /// The ring.
        buf_addr: u64,
        /// Its doorbell record.
        db_addr: u64,
        /// 64 or 128.
        cqe_size: u32,
        /// 1: completions may be compressed.
        cqe_comp_en: u8,
        /// One bit of [`mini_format`].
        cqe_comp_res_format: u8,
        /// A mask of [`cq_flag`].
        flags: u16,
        /// The UAR page, with [`cq_flag::UAR_PAGE_INDEX`].
        uar_page_index: u16,
        /// Reserved.
        reserved0: u16,
        /// Reserved.
        reserved1: u32,
    }
}

const _: () = assert!(size_of::<CreateCq>() == 32 && offset_of!(CreateCq, reserved1) == 28);

described! {
    /// What comes back.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_cq_resp`.
    CreateCqAnswer = "mlx5_ib_create_cq_resp" {
        /// Its number.
        cqn: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () = assert!(size_of::<CreateCqAnswer>() == 8 && offset_of!(CreateCqAnswer, reserved) == 4);

described! {
    /// The ring that takes over.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_resize_cq`.
    ResizeCq = "mlx5_ib_resize_cq" {
        /// The ring.
        buf_addr: u64,
        /// 64 or 128.
        cqe_size: u16,
        /// Reserved.
        reserved0: u16,
        /// Reserved.
        reserved1: u32,
    }
}

const _: () = assert!(size_of::<ResizeCq>() == 16 && offset_of!(ResizeCq, reserved1) == 12);

/// Of a completion queue. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_create_cq_flags`.
pub mod cq_flag {
    /// Entries of 128 bytes with padding first.
    pub const CQE_128B_PAD: u16 = 1 << 0;
    /// `uar_page_index` counts.
    pub const UAR_PAGE_INDEX: u16 = 1 << 1;
    /// Real time in completions.
    pub const REAL_TIME_TS: u16 = 1 << 2;
}

/// What compressed completions hold. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_cqe_comp_res_format`.
pub mod mini_format {
    /// The hash.
    pub const HASH: u8 = 1 << 0;
    /// The checksum.
    pub const CSUM: u8 = 1 << 1;
    /// The checksum and the stride.
    pub const CSUM_STRIDX: u8 = 1 << 2;
}
