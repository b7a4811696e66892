//! Tables of receive queues, over which a TIR spreads packets by hash.

use crate::layout::layouts;

layouts! {
    /// The table; queue numbers, 4 bytes each, follow.
    RqtContext = "rqtc" [240] {
        LIST_Q_TYPE: field(0x14, 26, 24),
        RQT_MAX_SIZE: field(0x14, 15, 0),
        RQ_VHCA_ID_FORMAT: field(0x18, 31, 31),
        RQT_ACTUAL_SIZE: field(0x18, 15, 0),
    }

    /// Context, queue numbers after it.
    CreateRqtIn = "create_rqt_in" [272] {
        RQT_CONTEXT: run(0x20, 240),
    }

    /// The number.
    CreateRqtOut = "create_rqt_out" [16] {
        RQTN: field(0x08, 23, 0),
    }

    /// Replaces the list; bit 0 of the mask says so.
    ModifyRqtIn = "modify_rqt_in" [272] {
        RQTN: field(0x08, 23, 0),
        BITMASK: wide(0x10, 63, 0),
        CTX: run(0x20, 240),
    }

    /// Asks for a table.
    QueryRqtIn = "query_rqt_in" [16] {
        RQTN: field(0x08, 23, 0),
    }

    /// Context, queue numbers after it.
    QueryRqtOut = "query_rqt_out" [272] {
        RQT_CONTEXT: run(0x20, 240),
    }

    /// Destroys a table.
    DestroyRqtIn = "destroy_rqt_in" [16] {
        RQTN: field(0x08, 23, 0),
    }
}
