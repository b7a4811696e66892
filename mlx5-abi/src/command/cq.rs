//! Completion queues.

use crate::layout::layouts;

layouts! {
    /// A completion queue.
    CqContext = "cqc" [64] {
        STATUS: field(0x00, 31, 28),
        DBR_UMEM_VALID: field(0x00, 25, 25),
        APU_CQ: field(0x00, 24, 24),
        CQE_SZ: field(0x00, 23, 21),
        CC: field(0x00, 20, 20),
        SCQE_BREAK_MODERATION_EN: field(0x00, 18, 18),
        OI: field(0x00, 17, 17),
        CQ_PERIOD_MODE: field(0x00, 16, 15),
        CQE_COMP_EN: field(0x00, 14, 14),
        MINI_CQE_RES_FORMAT: field(0x00, 13, 12),
        ST: field(0x00, 11, 8),
        CQE_COMPRESSION_LAYOUT: field(0x00, 1, 0),
        PAGE_OFFSET: field(0x08, 11, 6),
        LOG_CQ_SIZE: field(0x0c, 28, 24),
        UAR_PAGE: field(0x0c, 23, 0),
        CQ_PERIOD: field(0x10, 27, 16),
        CQ_MAX_COUNT: field(0x10, 15, 0),
        C_EQN_OR_APU_ELEMENT: field(0x14, 31, 0),
        LOG_PAGE_SIZE: field(0x18, 28, 24),
        LAST_NOTIFIED_INDEX: field(0x20, 23, 0),
        LAST_SOLICIT_INDEX: field(0x24, 23, 0),
        CONSUMER_COUNTER: field(0x28, 23, 0),
        PRODUCER_COUNTER: field(0x2c, 23, 0),
        DBR_ADDR: wide(0x38, 63, 0),
    }

    /// Context, page addresses after it.
    CreateCqIn = "create_cq_in" [272] {
        CQ_CONTEXT: run(0x10, 64),
        CQ_UMEM_VALID: field(0x5c, 31, 31),
    }

    /// The number.
    CreateCqOut = "create_cq_out" [16] {
        CQN: field(0x08, 23, 0),
    }

    /// Changes moderation, size or place; the mask is of [`modify`].
    ModifyCqIn = "modify_cq_in" [272] {
        CQN: field(0x08, 23, 0),
        MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT: field(0x0c, 31, 0),
        CQ_CONTEXT: run(0x10, 64),
    }

    /// Asks for a completion queue's context.
    QueryCqIn = "query_cq_in" [16] {
        CQN: field(0x08, 23, 0),
    }

    /// The context.
    QueryCqOut = "query_cq_out" [272] {
        CQ_CONTEXT: run(0x10, 64),
    }

    /// Destroys a completion queue.
    DestroyCqIn = "destroy_cq_in" [16] {
        CQN: field(0x08, 23, 0),
    }
}

/// States of a completion queue (`st`). Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_CQC_ST_*`.
pub mod state {
    /// The next solicited completion makes an event.
    pub const SOLICITED_NOTIFICATION_REQUEST_ARMED: u32 = 0x6;
    /// The next completion makes an event.
    pub const NOTIFICATION_REQUEST_ARMED: u32 = 0x9;
    /// An event was made; no more until it is armed again.
    pub const FIRED: u32 = 0xa;
}

/// Size of an entry (`cqe_sz`). Source: Linux `include/linux/mlx5/cq.h`, `CQE_STRIDE_*`.
pub mod stride {
    /// 64 bytes.
    pub const BYTES_64: u32 = 0;
    /// 128 bytes: what an inline scatter of up to 64 bytes needs comes before the completion.
    pub const BYTES_128: u32 = 1;
    /// 128 bytes, the first half only padding.
    pub const BYTES_128_PAD: u32 = 2;
}

/// Bits of MODIFY_CQ's mask. Source: Linux `include/linux/mlx5/cq.h`, `MLX5_CQ_MODIFY_*`.
pub mod modify {
    /// `cq_period`.
    pub const PERIOD: u32 = 1 << 0;
    /// `cq_max_count`.
    pub const COUNT: u32 = 1 << 1;
    /// `oi`, ignore overrun.
    pub const OVERRUN: u32 = 1 << 2;
    /// With op_mod 1: `log_cq_size`, `page_offset` and `log_page_size`, all that says where a ring is. Source: Linux
    /// `include/linux/mlx5/mlx5_ifc.h`, `MLX5_MODIFY_CQ_MASK_*`.
    pub const RING: u32 = 0x7;
}
