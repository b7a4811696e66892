//! Ports bonded by the card (link aggregation).

use crate::layout::layouts;

layouts! {
    /// How the ports are bonded; nothing set where they are not.
    LagContext = "lagc" [8] {
        FDB_SELECTION_MODE: field(0x00, 31, 31),
        PORT_SELECT_MODE: field(0x00, 10, 8),
        /// 0: not bonded.
        LAG_STATE: field(0x00, 2, 0),
        TX_REMAP_AFFINITY_2: field(0x04, 11, 8),
        TX_REMAP_AFFINITY_1: field(0x04, 3, 0),
    }

    /// The context.
    QueryLagOut = "query_lag_out" [16] {
        CTX: run(0x08, 8),
    }
}
