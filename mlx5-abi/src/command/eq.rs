//! Event queues.

use crate::layout::layouts;

layouts! {
    /// An event queue.
    EqContext = "eqc" [64] {
        STATUS: field(0x00, 31, 28),
        EC: field(0x00, 18, 18),
        OI: field(0x00, 17, 17),
        ST: field(0x00, 11, 8),
        PAGE_OFFSET: field(0x08, 11, 6),
        LOG_EQ_SIZE: field(0x0c, 28, 24),
        UAR_PAGE: field(0x0c, 23, 0),
        INTR: field(0x14, 11, 0),
        LOG_PAGE_SIZE: field(0x18, 28, 24),
        CONSUMER_COUNTER: field(0x28, 23, 0),
        PRODUCER_COUNTER: field(0x2c, 23, 0),
    }

    /// Context, the events it takes, page addresses after it.
    CreateEqIn = "create_eq_in" [272] {
        EQ_CONTEXT_ENTRY: run(0x10, 64),
        /// Four masks of 64 event types each: type `t` is bit `t % 64` of big-endian mask `t / 64`. Completions are taken
        /// whatever it says. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/eq.c`, `create_map_eq`.
        ///
        EVENT_BITMASK: run(0x58, 32),
    }

    /// The number; the vector is in the context.
    CreateEqOut = "create_eq_out" [16] {
        EQ_NUMBER: field(0x08, 7, 0),
    }

    /// Asks for an event queue's context.
    QueryEqIn = "query_eq_in" [16] {
        EQ_NUMBER: field(0x08, 7, 0),
    }

    /// The context.
    QueryEqOut = "query_eq_out" [272] {
        EQ_CONTEXT_ENTRY: run(0x10, 64),
    }

    /// Destroys an event queue.
    DestroyEqIn = "destroy_eq_in" [16] {
        EQ_NUMBER: field(0x08, 7, 0),
    }
}

/// States of an event queue (`st`). Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_EQC_ST_*`.
pub mod state {
    /// The next event raises the vector.
    pub const ARMED: u32 = 0x9;
    /// It has been raised.
    pub const FIRED: u32 = 0xa;
}
