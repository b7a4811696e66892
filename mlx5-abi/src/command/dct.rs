//! Targets of dynamic connections (DC): queue pairs of no peer, which initiators connect to one request at a time.
//!
//! An initiator is a queue pair of the service [`DCI`](super::qp::context::service::DCI); its send entries say where each goes
//! ([`AddressVector`](crate::wqe::AddressVector), with the target's key), and, where it was made with streams, which of them
//! ([`Control::dci_stream_channel_id`](crate::wqe::Control::dci_stream_channel_id)). Source: Linux
//! `drivers/infiniband/hw/mlx5/qp.c`, `create_dct`, `mlx5_ib_modify_dct`, `create_dci`, and `qpc.c`, `_mlx5_core_destroy_dct`;
//! rdma-core `providers/mlx5/qp.c`, `mlx5_send_wr_set_dc_addr_stream`, and `providers/mlx5/man/mlx5dv_create_qp.3.md`.

use crate::field::Field;
use crate::layout::layouts;

layouts! {
    /// A target.
    DctContext = "dctc" [64] {
        STATE: field(0x00, 27, 24),
        USER_INDEX: field(0x04, 23, 0),
        CQN: field(0x08, 23, 0),
        COUNTER_SET_ID: field(0x0c, 31, 24),
        ATOMIC_MODE: field(0x0c, 23, 20),
        RRE: field(0x0c, 19, 19),
        RWE: field(0x0c, 18, 18),
        RAE: field(0x0c, 17, 17),
        ATOMIC_LIKE_WRITE_EN: field(0x0c, 16, 16),
        LATENCY_SENSITIVE: field(0x0c, 15, 15),
        RLKY: field(0x0c, 14, 14),
        FREE_AR: field(0x0c, 13, 13),
        CS_RES: field(0x10, 23, 16),
        MIN_RNR_NAK: field(0x10, 12, 8),
        SRQN_XRQN: field(0x14, 23, 0),
        PD: field(0x18, 23, 0),
        TCLASS: field(0x1c, 31, 24),
        FLOW_LABEL: field(0x1c, 19, 0),
        DC_ACCESS_KEY: wide(0x20, 63, 0),
        MTU: field(0x28, 26, 24),
        PORT: field(0x28, 23, 16),
        PKEY_INDEX: field(0x28, 15, 0),
        MY_ADDR_INDEX: field(0x2c, 23, 16),
        HOP_LIMIT: field(0x2c, 7, 0),
        DC_ACCESS_KEY_VIOLATION_COUNT: field(0x30, 31, 0),
        DEI_CFI: field(0x34, 11, 11),
        ETH_PRIO: field(0x34, 10, 8),
        ECN: field(0x34, 7, 6),
        DSCP: field(0x34, 5, 0),
        ECE: field(0x3c, 31, 0),
    }

    /// The context.
    CreateDctIn = "create_dct_in" [128] {
        DCT_CONTEXT_ENTRY: run(0x10, 64),
    }

    /// The number.
    CreateDctOut = "create_dct_out" [16] {
        DCTN: field(0x08, 23, 0),
        ECE: field(0x0c, 31, 0),
    }

    /// No request is taken any more; an event ([`DCT_DRAINED`](crate::eqe::event::DCT_DRAINED)) says when none is under way.
    DrainDctIn = "drain_dct_in" [16] {
        DCTN: field(0x08, 23, 0),
    }

    /// Destroys a target that is drained.
    DestroyDctIn = "destroy_dct_in" [16] {
        DCTN: field(0x08, 23, 0),
    }

    /// Asks for a target's context.
    QueryDctIn = "query_dct_in" [16] {
        DCTN: field(0x08, 23, 0),
    }

    /// The context.
    QueryDctOut = "query_dct_out" [128] {
        DCT_CONTEXT_ENTRY: run(0x10, 64),
    }

    /// An event ([`DCT_KEY_VIOLATION`](crate::eqe::event::DCT_KEY_VIOLATION)) comes at the next request with another key.
    ArmDctIn = "arm_dct_in" [16] {
        DCT_NUMBER: field(0x08, 23, 0),
    }
}

/// `state`. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_DCTC_STATE_*`.
pub mod state {
    /// It takes requests.
    pub const ACTIVE: u32 = 0;
    /// It takes none, and finishes those that it has.
    pub const DRAINING: u32 = 1;
    /// It has.
    pub const DRAINED: u32 = 2;
}

/// In a [`DctContext`]: what messages bring is written in order. Source: rdma-core `providers/mlx5/mlx5_ifc.h`,
/// `mlx5_ifc_dctc_bits.data_in_order`, and `providers/mlx5/verbs.c`, `query_dct_in_order`.
pub const DATA_IN_ORDER: Field<64> = Field::new(0x00, 2, 2);

/// A stream of an initiator that failed takes requests again: an RTS2RTS with this part of
/// [`MORE_PARTS`](super::source_port::MORE_PARTS). Source: rdma-core `providers/mlx5/mlx5.c`, `mlx5dv_dci_stream_id_reset`, and
/// `providers/mlx5/mlx5_ifc.h`, `MLX5_QPC_OPT_MASK_32_DCI_STREAM_CHANNEL_ID`.
pub mod stream {
    use crate::field::Field;

    /// The part.
    pub const PART: u64 = 1 << 0;
    /// In [`GeneralCaps`](crate::caps::general::GeneralCaps): transitions may have more of the context behind them. Source: Linux
    /// `include/linux/mlx5/mlx5_ifc.h` and rdma-core `providers/mlx5/mlx5_ifc.h`, `mlx5_ifc_cmd_hca_cap_bits.qpc_extension`.
    pub const CAP_MORE: Field<256> = Field::new(0x24, 29, 29);
    /// In a [`TransitionIn`](crate::command::qp::TransitionIn): more of the context stands behind it. Source: rdma-core
    /// `providers/mlx5/mlx5_ifc.h`, `mlx5_ifc_rts2rts_qp_in_bits.qpc_ext`.
    pub const HAS_MORE: Field<272> = Field::new(0x08, 31, 31);
    /// In that, 192 bytes: which stream. Source: rdma-core `providers/mlx5/mlx5_ifc.h`,
    /// `mlx5_ifc_qpc_ext_bits.dci_stream_channel_id`.
    pub const NUMBER: Field<192> = Field::new(0x00, 15, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit offsets as the header's structures give them.
    #[test]
    fn they_stand_where_the_headers_structures_have_them() {
        assert_eq!([DATA_IN_ORDER.bit(), stream::HAS_MORE.bit(), stream::NUMBER.bit()], [0x1d, 0x40, 16]);
        assert_eq!(stream::CAP_MORE.bit(), 290);
    }
}
