//! Queue pairs and their transitions.
//!
//! A transition names its own command; those that carry a context share one form, [`TransitionIn`], those that only name
//! the queue pair another, [`QpIn`].

use crate::layout::layouts;

pub mod context;

layouts! {
    /// Context, page addresses after it.
    CreateQpIn = "create_qp_in" [272] {
        INPUT_QPN: field(0x08, 23, 0),
        OPT_PARAM_MASK: field(0x10, 31, 0),
        ECE: field(0x14, 31, 0),
        QPC: run(0x18, 232),
        WQ_UMEM_VALID: field(0x10c, 31, 31),
    }

    /// The number.
    CreateQpOut = "create_qp_out" [16] {
        QPN: field(0x08, 23, 0),
        ECE: field(0x0c, 31, 0),
    }

    /// RST2INIT, INIT2RTR, RTR2RTS, RTS2RTS, SQERR2RTS, INIT2INIT, SQD2RTS: all of one form.
    TransitionIn = "rst2init_qp_in" [272] {
        QPN: field(0x08, 23, 0),
        OPT_PARAM_MASK: field(0x10, 31, 0),
        ECE: field(0x14, 31, 0),
        QPC: run(0x18, 232),
    }

    /// What the firmware made of the enhanced connection options.
    TransitionOut = "rtr2rts_qp_out" [16] {
        ECE: field(0x0c, 31, 0),
    }

    /// 2ERR, 2RST and DESTROY: the number and nothing more.
    QpIn = "qp_2err_in" [16] {
        QPN: field(0x08, 23, 0),
    }

    /// Asks for a queue pair's context.
    QueryQpIn = "query_qp_in" [16] {
        QPN: field(0x08, 23, 0),
    }

    /// The context.
    QueryQpOut = "query_qp_out" [272] {
        OPT_PARAM_MASK: field(0x10, 31, 0),
        ECE: field(0x14, 31, 0),
        QPC: run(0x18, 232),
    }
}
