//! Codes of completions, as every verbs library numbers and words them. Source: rdma-core `libibverbs/verbs.h`,
//! `enum ibv_wc_status`, `enum ibv_wc_opcode`; `libibverbs/enum_strs.c`.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::syndrome::Syndrome;

macro_rules! codes {
    ($($(#[$outer:meta])* $name:ident { $($code:ident = $value:literal $text:literal),* $(,)? })*) => { $(
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u8);

        impl $name {
            $(
                #[doc = concat!("`", stringify!($code), "`: ", $text, ".")]
                pub const $code: Self = Self($value);
            )*

            /// What it means, in the words of rdma-core; `unknown` for other codes.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self.0 {
                    $($value => $text,)*
                    _ => "unknown",
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{} ({})", self.as_str(), self.0)
            }
        }
    )* };
}

codes! {
    /// How a request ended.
    WcStatus {
        SUCCESS = 0 "success", LOC_LEN_ERR = 1 "local length error", LOC_QP_OP_ERR = 2 "local QP operation error",
        LOC_EEC_OP_ERR = 3 "local EE context operation error", LOC_PROT_ERR = 4 "local protection error",
        WR_FLUSH_ERR = 5 "Work Request Flushed Error", MW_BIND_ERR = 6 "memory management operation error",
        BAD_RESP_ERR = 7 "bad response error", LOC_ACCESS_ERR = 8 "local access error",
        REM_INV_REQ_ERR = 9 "remote invalid request error", REM_ACCESS_ERR = 10 "remote access error",
        REM_OP_ERR = 11 "remote operation error", RETRY_EXC_ERR = 12 "transport retry counter exceeded",
        RNR_RETRY_EXC_ERR = 13 "RNR retry counter exceeded", LOC_RDD_VIOL_ERR = 14 "local RDD violation error",
        REM_INV_RD_REQ_ERR = 15 "remote invalid RD request", REM_ABORT_ERR = 16 "aborted error",
        INV_EECN_ERR = 17 "invalid EE context number", INV_EEC_STATE_ERR = 18 "invalid EE context state",
        FATAL_ERR = 19 "fatal error", RESP_TIMEOUT_ERR = 20 "response timeout error", GENERAL_ERR = 21 "general error",
        TM_ERR = 22 "TM error", TM_RNDV_INCOMPLETE = 23 "TM software rendezvous",
    }

    /// What a completion is of.
    WcOpcode {
        SEND = 0 "send", RDMA_WRITE = 1 "rdma-write", RDMA_READ = 2 "rdma-read", COMP_SWAP = 3 "atomic-cmp-and-swp",
        FETCH_ADD = 4 "atomic-fetch-and-add", BIND_MW = 5 "bind-mw", LOCAL_INV = 6 "local-inv", TSO = 7 "tso",
        FLUSH = 8 "flush", ATOMIC_WRITE = 9 "atomic-write",
        RECV = 128 "recv", RECV_RDMA_WITH_IMM = 129 "recv-rdma-with-imm",
    }
}

impl WcStatus {
    /// What a device's syndrome is here. Source: rdma-core `providers/mlx5/cq.c`, `mlx5_handle_error_cqe`.
    #[must_use]
    pub const fn of(syndrome: Syndrome) -> Self {
        match syndrome.code {
            Syndrome::LOCAL_LENGTH_ERR => Self::LOC_LEN_ERR,
            Syndrome::LOCAL_QP_OP_ERR => Self::LOC_QP_OP_ERR,
            Syndrome::LOCAL_PROT_ERR => Self::LOC_PROT_ERR,
            Syndrome::WR_FLUSH_ERR => Self::WR_FLUSH_ERR,
            Syndrome::MW_BIND_ERR => Self::MW_BIND_ERR,
            Syndrome::BAD_RESP_ERR => Self::BAD_RESP_ERR,
            Syndrome::LOCAL_ACCESS_ERR => Self::LOC_ACCESS_ERR,
            Syndrome::REMOTE_INVAL_REQ_ERR => Self::REM_INV_REQ_ERR,
            Syndrome::REMOTE_ACCESS_ERR => Self::REM_ACCESS_ERR,
            Syndrome::REMOTE_OP_ERR => Self::REM_OP_ERR,
            Syndrome::TRANSPORT_RETRY_EXC_ERR => Self::RETRY_EXC_ERR,
            Syndrome::RNR_RETRY_EXC_ERR => Self::RNR_RETRY_EXC_ERR,
            Syndrome::REMOTE_ABORTED_ERR => Self::REM_ABORT_ERR,
            _ => Self::GENERAL_ERR,
        }
    }
}

impl WcOpcode {
    /// What a send entry's opcode is here.
    #[must_use]
    pub const fn of_send(opcode: u8) -> Self {
        match opcode {
            send::RDMA_WRITE | send::RDMA_WRITE_IMM => Self::RDMA_WRITE,
            send::RDMA_READ => Self::RDMA_READ,
            send::ATOMIC_CS => Self::COMP_SWAP,
            send::ATOMIC_FA => Self::FETCH_ADD,
            send::UMR => Self::BIND_MW,
            send::LOCAL_INVAL => Self::LOCAL_INV,
            send::TSO => Self::TSO,
            _ => Self::SEND,
        }
    }
}
