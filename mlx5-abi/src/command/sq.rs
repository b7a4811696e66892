//! Send queues.

use crate::layout::layouts;

layouts! {
    /// A send queue.
    SqContext = "sqc" [240] {
        RLKY: field(0x00, 31, 31),
        CD_MASTER: field(0x00, 30, 30),
        FRE: field(0x00, 29, 29),
        FLUSH_IN_ERROR_EN: field(0x00, 28, 28),
        ALLOW_MULTI_PKT_SEND_WQE: field(0x00, 27, 27),
        MIN_WQE_INLINE_MODE: field(0x00, 26, 24),
        STATE: field(0x00, 23, 20),
        REG_UMR: field(0x00, 19, 19),
        ALLOW_SWP: field(0x00, 18, 18),
        HAIRPIN: field(0x00, 17, 17),
        TS_FORMAT: field(0x00, 5, 4),
        USER_INDEX: field(0x04, 23, 0),
        CQN: field(0x08, 23, 0),
        HAIRPIN_PEER_RQ: field(0x0c, 23, 0),
        HAIRPIN_PEER_VHCA: field(0x10, 15, 0),
        TS_CQE_TO_DEST_CQN: field(0x18, 23, 0),
        PACKET_PACING_RATE_LIMIT_INDEX: field(0x1c, 15, 0),
        TIS_LST_SZ: field(0x20, 31, 16),
        QOS_QUEUE_GROUP_ID: field(0x20, 15, 0),
        TIS_NUM_0: field(0x2c, 23, 0),
        WQ: run(0x30, 192),
    }

    /// Context with its ring, page addresses after it.
    CreateSqIn = "create_sq_in" [272] {
        CTX: run(0x20, 240),
    }

    /// The number.
    CreateSqOut = "create_sq_out" [16] {
        SQN: field(0x08, 23, 0),
    }

    /// `sq_state` is the state it has, the context's state the one it gets.
    ModifySqIn = "modify_sq_in" [272] {
        SQ_STATE: field(0x08, 31, 28),
        SQN: field(0x08, 23, 0),
        MODIFY_BITMASK: wide(0x10, 63, 0),
        CTX: run(0x20, 240),
    }

    /// Asks for a send queue's context.
    QuerySqIn = "query_sq_in" [16] {
        SQN: field(0x08, 23, 0),
    }

    /// The context.
    QuerySqOut = "query_sq_out" [272] {
        SQ_CONTEXT: run(0x20, 240),
    }

    /// Destroys a send queue.
    DestroySqIn = "destroy_sq_in" [16] {
        SQN: field(0x08, 23, 0),
    }
}

/// Bits of MODIFY_SQ's mask. Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_MODIFY_SQ_IN_MODIFY_BITMASK_*`; Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`, `mlx5e_modify_sq`.
pub mod modify {
    /// `packet_pacing_rate_limit_index`.
    pub const RATE_LIMIT_INDEX: u64 = 1 << 0;
}
