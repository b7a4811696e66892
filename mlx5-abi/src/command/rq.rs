//! Receive queues, and the memory pools (RMP) that they can share.

use crate::layout::layouts;

layouts! {
    /// A receive queue.
    RqContext = "rqc" [240] {
        RLKY: field(0x00, 31, 31),
        DELAY_DROP_EN: field(0x00, 30, 30),
        SCATTER_FCS: field(0x00, 29, 29),
        VSD: field(0x00, 28, 28),
        MEM_RQ_TYPE: field(0x00, 27, 24),
        STATE: field(0x00, 23, 20),
        FLUSH_IN_ERROR_EN: field(0x00, 18, 18),
        HAIRPIN: field(0x00, 17, 17),
        TS_FORMAT: field(0x00, 5, 4),
        USER_INDEX: field(0x04, 23, 0),
        CQN: field(0x08, 23, 0),
        COUNTER_SET_ID: field(0x0c, 31, 24),
        RMPN: field(0x10, 23, 0),
        HAIRPIN_PEER_SQ: field(0x14, 23, 0),
        HAIRPIN_PEER_VHCA: field(0x18, 15, 0),
        SHAMPO_NO_MATCH_ALIGNMENT_GRANULARITY: field(0x24, 25, 24),
        SHAMPO_MATCH_CRITERIA_TYPE: field(0x24, 17, 16),
        RESERVATION_TIMEOUT: field(0x24, 15, 0),
        WQ: run(0x30, 192),
    }

    /// Context with its ring, page addresses after it.
    CreateRqIn = "create_rq_in" [272] {
        CTX: run(0x20, 240),
    }

    /// The number.
    CreateRqOut = "create_rq_out" [16] {
        RQN: field(0x08, 23, 0),
    }

    /// `rq_state` is the state it has, the context's state the one it gets.
    ModifyRqIn = "modify_rq_in" [272] {
        RQ_STATE: field(0x08, 31, 28),
        RQN: field(0x08, 23, 0),
        MODIFY_BITMASK: wide(0x10, 63, 0),
        CTX: run(0x20, 240),
    }

    /// Asks for a receive queue's context.
    QueryRqIn = "query_rq_in" [16] {
        RQN: field(0x08, 23, 0),
    }

    /// The context.
    QueryRqOut = "query_rq_out" [272] {
        RQ_CONTEXT: run(0x20, 240),
    }

    /// Destroys a receive queue.
    DestroyRqIn = "destroy_rq_in" [16] {
        RQN: field(0x08, 23, 0),
    }

    /// A receive memory pool.
    RmpContext = "rmpc" [240] {
        STATE: field(0x00, 23, 20),
        BASIC_CYCLIC_RCV_WQE: field(0x04, 31, 31),
        WQ: run(0x30, 192),
    }

    /// Context with its ring, page addresses after it.
    CreateRmpIn = "create_rmp_in" [272] {
        CTX: run(0x20, 240),
    }

    /// The number, from the space that SRQs and XRC SRQs share.
    CreateRmpOut = "create_rmp_out" [16] {
        RMPN: field(0x08, 23, 0),
    }

    /// State and limit.
    ModifyRmpIn = "modify_rmp_in" [272] {
        RMP_STATE: field(0x08, 31, 28),
        RMPN: field(0x08, 23, 0),
        BITMASK_LWM as "bitmask.lwm": field(0x14, 0, 0),
        CTX: run(0x20, 240),
    }

    /// Asks for a pool's context.
    QueryRmpIn = "query_rmp_in" [16] {
        RMPN: field(0x08, 23, 0),
    }

    /// The context.
    QueryRmpOut = "query_rmp_out" [272] {
        RMP_CONTEXT: run(0x20, 240),
    }

    /// Destroys a pool.
    DestroyRmpIn = "destroy_rmp_in" [16] {
        RMPN: field(0x08, 23, 0),
    }
}

/// `mem_rq_type`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_RQC_MEM_RQ_TYPE_*`.
pub mod memory {
    /// The ring is in the context.
    pub const INLINE: u32 = 0x0;
    /// The ring is a pool's.
    pub const RMP: u32 = 0x1;
}

/// `modify_bitmask` of MODIFY_RQ beside the state. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*`.
pub mod modify {
    /// `vsd`.
    pub const VSD: u64 = 1 << 1;
    /// `scatter_fcs`.
    pub const SCATTER_FCS: u64 = 1 << 2;
    /// `counter_set_id`.
    pub const COUNTER_SET_ID: u64 = 1 << 3;
}
