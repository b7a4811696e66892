//! What a queue pair is made of, and the way to its peer.

use crate::layout::layouts;

layouts! {
    /// A queue pair.
    QpContext = "qpc" [232] {
        STATE: field(0x00, 31, 28),
        LAG_TX_PORT_AFFINITY: field(0x00, 27, 24),
        ST: field(0x00, 23, 16),
        ISOLATE_VL_TC: field(0x00, 13, 13),
        PM_STATE: field(0x00, 12, 11),
        REQ_E2E_CREDIT_MODE: field(0x00, 9, 8),
        OFFLOAD_TYPE: field(0x00, 7, 4),
        END_PADDING_MODE: field(0x00, 3, 2),
        WQ_SIGNATURE: field(0x04, 31, 31),
        BLOCK_LB_MC: field(0x04, 30, 30),
        ATOMIC_LIKE_WRITE_EN: field(0x04, 29, 29),
        LATENCY_SENSITIVE: field(0x04, 28, 28),
        DRAIN_SIGERR: field(0x04, 26, 26),
        PD: field(0x04, 23, 0),
        MTU: field(0x08, 31, 29),
        LOG_MSG_MAX: field(0x08, 28, 24),
        LOG_RQ_SIZE: field(0x08, 22, 19),
        LOG_RQ_STRIDE: field(0x08, 18, 16),
        NO_SQ: field(0x08, 15, 15),
        LOG_SQ_SIZE: field(0x08, 14, 11),
        TS_FORMAT: field(0x08, 7, 6),
        RLKY: field(0x08, 4, 4),
        ULP_STATELESS_OFFLOAD_MODE: field(0x08, 3, 0),
        COUNTER_SET_ID: field(0x0c, 31, 24),
        UAR_PAGE: field(0x0c, 23, 0),
        USER_INDEX: field(0x10, 23, 0),
        LOG_PAGE_SIZE: field(0x14, 28, 24),
        REMOTE_QPN: field(0x14, 23, 0),
        PRIMARY_ADDRESS_PATH: run(0x18, 44),
        SECONDARY_ADDRESS_PATH: run(0x44, 44),
        LOG_ACK_REQ_FREQ: field(0x70, 31, 28),
        LOG_SRA_MAX: field(0x70, 23, 21),
        RETRY_COUNT: field(0x70, 18, 16),
        RNR_RETRY: field(0x70, 15, 13),
        FRE: field(0x70, 11, 11),
        CUR_RNR_RETRY: field(0x70, 10, 8),
        CUR_RETRY_COUNT: field(0x70, 7, 5),
        NEXT_SEND_PSN: field(0x78, 23, 0),
        LOG_NUM_DCI_STREAM_CHANNELS: field(0x7c, 28, 24),
        CQN_SND: field(0x7c, 23, 0),
        LOG_NUM_DCI_ERRORED_STREAMS: field(0x80, 28, 24),
        DETH_SQPN: field(0x80, 23, 0),
        LAST_ACKED_PSN: field(0x88, 23, 0),
        SSN: field(0x8c, 23, 0),
        LOG_RRA_MAX: field(0x90, 23, 21),
        ATOMIC_MODE: field(0x90, 19, 16),
        RRE: field(0x90, 15, 15),
        RWE: field(0x90, 14, 14),
        RAE: field(0x90, 13, 13),
        PAGE_OFFSET: field(0x90, 11, 6),
        CD_SLAVE_RECEIVE: field(0x90, 2, 2),
        CD_SLAVE_SEND: field(0x90, 1, 1),
        CD_MASTER: field(0x90, 0, 0),
        MIN_RNR_NAK: field(0x94, 28, 24),
        NEXT_RCV_PSN: field(0x94, 23, 0),
        XRCD: field(0x98, 23, 0),
        CQN_RCV: field(0x9c, 23, 0),
        DBR_ADDR: wide(0xa0, 63, 0),
        Q_KEY: field(0xa8, 31, 0),
        RQ_TYPE: field(0xac, 26, 24),
        SRQN_RMPN_XRQN: field(0xac, 23, 0),
        RMSN: field(0xb0, 23, 0),
        HW_SQ_WQEBB_COUNTER: field(0xb4, 31, 16),
        SW_SQ_WQEBB_COUNTER: field(0xb4, 15, 0),
        HW_RQ_COUNTER: field(0xb8, 31, 0),
        SW_RQ_COUNTER: field(0xbc, 31, 0),
        CGS: field(0xc4, 16, 16),
        CS_REQ: field(0xc4, 15, 8),
        CS_RES: field(0xc4, 7, 0),
        DC_ACCESS_KEY: wide(0xc8, 63, 0),
        DBR_UMEM_VALID: field(0xd0, 28, 28),
    }

    /// Where packets go: with RoCE the peer's MAC and GID, traffic class, hop limit and UDP source port.
    AddressPath = "ads" [44] {
        FL: field(0x00, 31, 31),
        FREE_AR: field(0x00, 30, 30),
        PKEY_INDEX: field(0x00, 15, 0),
        GRH: field(0x04, 23, 23),
        MLID: field(0x04, 22, 16),
        RLID: field(0x04, 15, 0),
        ACK_TIMEOUT: field(0x08, 31, 27),
        SRC_ADDR_INDEX: field(0x08, 23, 16),
        STAT_RATE: field(0x08, 11, 8),
        HOP_LIMIT: field(0x08, 7, 0),
        TCLASS: field(0x0c, 27, 20),
        FLOW_LABEL: field(0x0c, 19, 0),
        RGID_RIP: run(0x10, 16),
        F_DSCP: field(0x20, 27, 27),
        F_ECN: field(0x20, 26, 26),
        F_ETH_PRIO: field(0x20, 24, 24),
        ECN: field(0x20, 23, 22),
        DSCP: field(0x20, 21, 16),
        UDP_SPORT: field(0x20, 15, 0),
        DEI_CFI: field(0x24, 31, 31),
        ETH_PRIO: field(0x24, 30, 28),
        SL: field(0x24, 27, 24),
        VHCA_PORT_NUM: field(0x24, 23, 16),
        RMAC as "rmac_47_32..rmac_31_0": wide(0x24, 47, 0),
    }
}

/// `st`, the service. Source: Linux `include/linux/mlx5/qp.h`, `MLX5_QP_ST_*`.
pub mod service {
    /// Reliable connection.
    pub const RC: u32 = 0x0;
    /// Unreliable connection.
    pub const UC: u32 = 0x1;
    /// Unreliable datagram.
    pub const UD: u32 = 0x2;
    /// Extended reliable connection.
    pub const XRC: u32 = 0x3;
    /// Dynamically connected initiator.
    pub const DCI: u32 = 0x5;
    /// Dynamically connected target.
    pub const DCT: u32 = 0x6;
    /// Management, queue pair 1.
    pub const QP1: u32 = 0x8;
    /// Frames as they are.
    pub const RAW_ETHERTYPE: u32 = 0x9;
    /// The kernel's own, for memory keys.
    pub const REG_UMR: u32 = 0xc;
}

/// `state`. Source: Linux `include/linux/mlx5/qp.h`, `MLX5_QP_STATE_*`.
pub mod state {
    /// Reset.
    pub const RST: u32 = 0;
    /// Initialized: receives may be posted.
    pub const INIT: u32 = 1;
    /// Ready to receive.
    pub const RTR: u32 = 2;
    /// Ready to send.
    pub const RTS: u32 = 3;
    /// Send queue in error.
    pub const SQER: u32 = 4;
    /// Send queue drained.
    pub const SQD: u32 = 5;
    /// Error.
    pub const ERR: u32 = 6;
    /// Send queue draining.
    pub const SQ_DRAINING: u32 = 7;
    /// Suspended.
    pub const SUSPENDED: u32 = 9;
}

/// `pm_state`, path migration. Source: Linux `include/linux/mlx5/qp.h`, `MLX5_QP_PM_*`.
pub mod migration {
    /// Armed.
    pub const ARMED: u32 = 0x0;
    /// To be armed again.
    pub const REARM: u32 = 0x1;
    /// Migrated.
    pub const MIGRATED: u32 = 0x3;
}

/// `atomic_mode`. Source: Linux `include/linux/mlx5/qp.h`, `MLX5_ATOMIC_MODE_*`.
pub mod atomic_mode {
    /// Not atomic.
    pub const NONE: u32 = 0x0;
    /// 8 bytes, as InfiniBand has it.
    pub const IB_COMP: u32 = 0x1;
}

/// `rq_type`. Source: Linux `include/linux/mlx5/qp.h`, `MLX5_NON_ZERO_RQ` and its neighbours.
pub mod receive {
    /// A ring of its own.
    pub const OWN: u32 = 0x0;
    /// A shared receive queue.
    pub const SRQ: u32 = 0x1;
    /// A ring whose entries complete into the CQE.
    pub const CRQ: u32 = 0x2;
    /// No ring.
    pub const NONE: u32 = 0x3;
}

/// Bits of `opt_param_mask`: what a transition changes beside what it must. Source: Linux
/// `include/linux/mlx5/qp.h`, `MLX5_QP_OPTPAR_*`.
pub mod optional {
    /// Alternate path.
    pub const ALT_ADDR_PATH: u32 = 1 << 0;
    /// Remote read allowed.
    pub const RRE: u32 = 1 << 1;
    /// Remote atomic allowed.
    pub const RAE: u32 = 1 << 2;
    /// Remote write allowed.
    pub const RWE: u32 = 1 << 3;
    /// Partition key index.
    pub const PKEY_INDEX: u32 = 1 << 4;
    /// Queue key.
    pub const Q_KEY: u32 = 1 << 5;
    /// Receiver-not-ready timer.
    pub const RNR_TIMEOUT: u32 = 1 << 6;
    /// Primary path.
    pub const PRIMARY_ADDR_PATH: u32 = 1 << 7;
    /// Reads and atomics on the way out.
    pub const SRA_MAX: u32 = 1 << 8;
    /// Reads and atomics on the way in.
    pub const RRA_MAX: u32 = 1 << 9;
    /// Path migration.
    pub const PM_STATE: u32 = 1 << 10;
    /// The send queue is drained when a signature does not fit. Source: rdma-core `providers/mlx5/mlx5_ifc.h`,
    /// `MLX5_QPC_OPT_MASK_INIT2INIT_DRAIN_SIGERR`, and `providers/mlx5/mlx5.c`, `mlx5_modify_qp_drain_sigerr`.
    pub const DRAIN_SIGERR: u32 = 1 << 11;
    /// Transport retries.
    pub const RETRY_COUNT: u32 = 1 << 12;
    /// Receiver-not-ready retries.
    pub const RNR_RETRY: u32 = 1 << 13;
    /// Acknowledgement timeout.
    pub const ACK_TIMEOUT: u32 = 1 << 14;
    /// Port affinity of a bond.
    pub const LAG_TX_AFF: u32 = 1 << 15;
    /// Port of the primary path.
    pub const PRI_PORT: u32 = 1 << 16;
    /// Shared receive queue.
    pub const SRQN: u32 = 1 << 18;
    /// Receive completion queue.
    pub const CQN_RCV: u32 = 1 << 19;
    /// Counter set.
    pub const COUNTER_SET_ID: u32 = 1 << 25;
}
