//! The ring under a send queue, a receive queue or a shared receive pool.

use crate::layout::layouts;

layouts! {
    /// The ring; page addresses follow it.
    WorkQueue = "wq" [192] {
        WQ_TYPE: field(0x00, 31, 28),
        WQ_SIGNATURE: field(0x00, 27, 27),
        END_PADDING_MODE: field(0x00, 26, 25),
        CD_SLAVE: field(0x00, 24, 24),
        HDS_SKIP_FIRST_SGE: field(0x04, 31, 31),
        LOG2_HDS_BUF_SIZE: field(0x04, 30, 28),
        PAGE_OFFSET: field(0x04, 20, 16),
        LWM: field(0x04, 15, 0),
        PD: field(0x08, 23, 0),
        UAR_PAGE: field(0x0c, 23, 0),
        DBR_ADDR: wide(0x10, 63, 0),
        HW_COUNTER: field(0x18, 31, 0),
        SW_COUNTER: field(0x1c, 31, 0),
        LOG_WQ_STRIDE: field(0x20, 19, 16),
        LOG_WQ_PG_SZ: field(0x20, 12, 8),
        LOG_WQ_SZ: field(0x20, 4, 0),
        DBR_UMEM_VALID: field(0x24, 31, 31),
        WQ_UMEM_VALID: field(0x24, 30, 30),
        LOG_HAIRPIN_NUM_PACKETS: field(0x24, 28, 24),
        LOG_HAIRPIN_DATA_SZ: field(0x24, 20, 16),
        LOG_WQE_NUM_OF_STRIDES: field(0x24, 11, 8),
        TWO_BYTE_SHIFT_EN: field(0x24, 7, 7),
        LOG_WQE_STRIDE_SIZE: field(0x24, 2, 0),
        HEADERS_MKEY: field(0x38, 31, 0),
        SHAMPO_ENABLE: field(0x3c, 31, 31),
        LOG_RESERVATION_SIZE: field(0x3c, 26, 24),
        LOG_MAX_NUM_OF_PACKETS_PER_RESERVATION: field(0x3c, 18, 16),
        LOG_HEADERS_ENTRY_SIZE: field(0x3c, 9, 8),
        LOG_HEADERS_BUFFER_ENTRY_NUM: field(0x3c, 3, 0),
    }
}

/// States of a send queue and of a receive queue. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_SQC_STATE_*`,
/// `MLX5_RQC_STATE_*`.
pub mod state {
    /// Nothing runs; packets that arrive are dropped.
    pub const RESET: u32 = 0x0;
    /// Work is done.
    pub const READY: u32 = 0x1;
    /// All that is posted is flushed with an error.
    pub const ERROR: u32 = 0x3;
}

/// `wq_type`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_WQ_TYPE_*`.
pub mod kind {
    /// Entries lead to the next one by a segment.
    pub const LINKED_LIST: u32 = 0x0;
    /// Entries follow each other.
    pub const CYCLIC: u32 = 0x1;
    /// Linked, each with many strides.
    pub const LINKED_LIST_STRIDING_RQ: u32 = 0x2;
    /// In a row, each with many strides.
    pub const CYCLIC_STRIDING_RQ: u32 = 0x3;
}

/// `end_padding_mode`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_WQ_END_PAD_MODE_*`.
pub mod end_padding {
    /// The packet's bytes alone are written.
    pub const NONE: u32 = 0x0;
    /// The last cache line is filled up.
    pub const ALIGN: u32 = 0x1;
}

/// `log_wqe_stride_size` counts from strides of 64 bytes. Source: Linux `include/linux/mlx5/device.h`,
/// `MLX5_MPWQE_LOG_STRIDE_SZ_BASE`.
pub const LOG_STRIDE_BYTES_BASE: u32 = 6;

/// `log_wqe_num_of_strides` counts from 512 strides. Source: Linux `include/linux/mlx5/device.h`,
/// `MLX5_MPWQE_LOG_NUM_STRIDES_BASE`.
pub const LOG_STRIDES_BASE: u32 = 9;

/// What a queue's completions are stamped with (`ts_format`). Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `MLX5_TIMESTAMP_FORMAT_*`.
pub mod stamp {
    /// What a free-running clock says.
    pub const FREE_RUNNING: u32 = 0x0;
    /// What the card stamps by itself.
    pub const DEFAULT: u32 = 0x1;
    /// The time of day.
    pub const REAL_TIME: u32 = 0x2;
}
