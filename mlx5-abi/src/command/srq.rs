//! Shared receive queues, plain and XRC. Their numbers come from one space, which pools (RMP) share too.

use crate::layout::layouts;

layouts! {
    /// A shared receive queue.
    SrqContext = "srqc" [64] {
        STATE: field(0x00, 31, 28),
        LOG_SRQ_SIZE: field(0x00, 27, 24),
        WQ_SIGNATURE: field(0x04, 31, 31),
        CONT_SRQ: field(0x04, 30, 30),
        RLKY: field(0x04, 28, 28),
        LOG_RQ_STRIDE: field(0x04, 26, 24),
        XRCD: field(0x04, 23, 0),
        PAGE_OFFSET: field(0x08, 31, 26),
        CQN: field(0x08, 23, 0),
        LOG_PAGE_SIZE: field(0x10, 29, 24),
        PD: field(0x18, 23, 0),
        LWM: field(0x1c, 31, 16),
        WQE_CNT: field(0x1c, 15, 0),
        DBR_ADDR: wide(0x28, 63, 0),
    }

    /// Context, page addresses after it.
    CreateSrqIn = "create_srq_in" [272] {
        SRQ_CONTEXT_ENTRY: run(0x10, 64),
    }

    /// The number.
    CreateSrqOut = "create_srq_out" [16] {
        SRQN: field(0x08, 23, 0),
    }

    /// Asks for a shared receive queue's context.
    QuerySrqIn = "query_srq_in" [16] {
        SRQN: field(0x08, 23, 0),
    }

    /// The context.
    QuerySrqOut = "query_srq_out" [272] {
        SRQ_CONTEXT_ENTRY: run(0x10, 64),
    }

    /// An event comes when fewer than `lwm` entries are left.
    ArmRqIn = "arm_rq_in" [16] {
        SRQ_NUMBER: field(0x08, 23, 0),
        LWM: field(0x0c, 15, 0),
    }

    /// Destroys a shared receive queue.
    DestroySrqIn = "destroy_srq_in" [16] {
        SRQN: field(0x08, 23, 0),
    }

    /// A shared receive queue of an XRC domain.
    XrcSrqContext = "xrc_srqc" [64] {
        STATE: field(0x00, 31, 28),
        LOG_XRC_SRQ_SIZE: field(0x00, 27, 24),
        WQ_SIGNATURE: field(0x04, 31, 31),
        CONT_SRQ: field(0x04, 30, 30),
        RLKY: field(0x04, 28, 28),
        BASIC_CYCLIC_RCV_WQE: field(0x04, 27, 27),
        LOG_RQ_STRIDE: field(0x04, 26, 24),
        XRCD: field(0x04, 23, 0),
        PAGE_OFFSET: field(0x08, 31, 26),
        DBR_UMEM_VALID: field(0x08, 24, 24),
        CQN: field(0x08, 23, 0),
        USER_INDEX_EQUAL_XRC_SRQN: field(0x10, 31, 31),
        LOG_PAGE_SIZE: field(0x10, 29, 24),
        USER_INDEX: field(0x10, 23, 0),
        PD: field(0x18, 23, 0),
        LWM: field(0x1c, 31, 16),
        WQE_CNT: field(0x1c, 15, 0),
        DBR_ADDR_4 as "db_record_addr_h..db_record_addr_l": wide(0x28, 63, 2),
    }

    /// Context, page addresses after it.
    CreateXrcSrqIn = "create_xrc_srq_in" [272] {
        XRC_SRQ_CONTEXT_ENTRY: run(0x10, 64),
        XRC_SRQ_UMEM_VALID: field(0x5c, 31, 31),
    }

    /// The number.
    CreateXrcSrqOut = "create_xrc_srq_out" [16] {
        XRC_SRQN: field(0x08, 23, 0),
    }

    /// Asks for an XRC shared receive queue's context.
    QueryXrcSrqIn = "query_xrc_srq_in" [16] {
        XRC_SRQN: field(0x08, 23, 0),
    }

    /// The context.
    QueryXrcSrqOut = "query_xrc_srq_out" [272] {
        XRC_SRQ_CONTEXT_ENTRY: run(0x10, 64),
    }

    /// An event comes when fewer than `lwm` entries are left; op_mod is 1.
    ArmXrcSrqIn = "arm_xrc_srq_in" [16] {
        XRC_SRQN: field(0x08, 23, 0),
        LWM: field(0x0c, 15, 0),
    }

    /// Destroys an XRC shared receive queue.
    DestroyXrcSrqIn = "destroy_xrc_srq_in" [16] {
        XRC_SRQN: field(0x08, 23, 0),
    }
}
