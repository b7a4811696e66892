//! Queue pairs, shared receive queues, memory windows.

use std::mem::offset_of;

use super::described::described;

described! {
    /// Streams of a dynamically connected initiator.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_qp_dci_streams`.
    DciStreams = "mlx5_ib_create_qp_dci_streams" {
        /// Streams, as a logarithm.
        log_num_concurent: u8,
        /// Streams in error allowed, as a logarithm.
        log_num_errored: u8,
    }
}

const _: () = assert!(size_of::<DciStreams>() == 2 && offset_of!(DciStreams, log_num_errored) == 1);

described! {
    /// What a queue pair is made of. Its rings are one piece, receive first; of a raw packet queue pair the send ring is a piece
    /// of its own.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_qp`.
    CreateQp = "mlx5_ib_create_qp" {
        /// The rings.
        buf_addr: u64,
        /// The doorbell record.
        db_addr: u64,
        /// Blocks of the send ring.
        sq_wqe_count: u32,
        /// Entries of the receive ring.
        rq_wqe_count: u32,
        /// Bytes of a receive entry, as a logarithm.
        rq_wqe_shift: u32,
        /// A mask of [`qp_flag`].
        flags: u32,
        /// What completions shall call it, with completions of version 1.
        uidx: u32,
        /// BlueFlame register, or UAR page with [`qp_flag::UAR_PAGE_INDEX`].
        bfreg_index: u32,
        /// Send ring of a raw packet queue pair; access key of a dynamic target.
        sq_buf_addr: u64,
        /// Enhanced connection options.
        ece_options: u32,
        /// Streams of a dynamic initiator.
        dci_streams: DciStreams,
        /// Reserved.
        reserved: u16,
    }
}

const _: () = assert!(size_of::<CreateQp>() == 56 && offset_of!(CreateQp, reserved) == 54);

described! {
    /// What comes back. Older kernels give the first 4 bytes.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_qp_resp`.
    CreateQpAnswer = "mlx5_ib_create_qp_resp" {
        /// The BlueFlame register chosen.
        bfreg_index: u32,
        /// Enhanced connection options.
        ece_options: u32,
        /// A mask of [`qp_answer`].
        comp_mask: u32,
        /// TIR of a raw packet queue pair.
        tirn: u32,
        /// TIS.
        tisn: u32,
        /// Receive queue.
        rqn: u32,
        /// Send queue.
        sqn: u32,
        /// Reserved.
        reserved1: u32,
        /// Where the TIR stands in the device's memory.
        tir_icm_addr: u64,
    }
}

const _: () = assert!(size_of::<CreateQpAnswer>() == 40 && offset_of!(CreateQpAnswer, tir_icm_addr) == 32);

described! { no default:
    /// What a hash queue pair is made of: it spreads frames over an indirection table.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_qp_rss`.
    CreateRssQp = "mlx5_ib_create_qp_rss" {
        /// A mask of [`hash_field`].
        rx_hash_fields_mask: u64,
        /// One bit of [`hash_function`].
        rx_hash_function: u8,
        /// Bytes of the key: 40 for Toeplitz.
        rx_key_len: u8,
        /// Reserved.
        reserved: [u8; 6],
        /// The key.
        rx_hash_key: [u8; 128],
        /// None is defined.
        comp_mask: u32,
        /// A mask of [`qp_flag`].
        flags: u32,
    }
}

const _: () = assert!(size_of::<CreateRssQp>() == 152 && offset_of!(CreateRssQp, flags) == 148);

described! {
    /// How bursty a rate limited queue pair may be.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_burst_info`.
    BurstInfo = "mlx5_ib_burst_info" {
        /// Bytes of the longest burst.
        max_burst_sz: u32,
        /// Bytes of a usual packet.
        typical_pkt_sz: u16,
        /// Reserved.
        reserved: u16,
    }
}

const _: () = assert!(size_of::<BurstInfo>() == 8 && offset_of!(BurstInfo, reserved) == 6);

described! {
    /// What a transition adds.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_modify_qp`.
    ModifyQp = "mlx5_ib_modify_qp" {
        /// A mask of what follows.
        comp_mask: u32,
        /// Bursts.
        burst_info: BurstInfo,
        /// Enhanced connection options.
        ece_options: u32,
    }
}

const _: () = assert!(size_of::<ModifyQp>() == 16 && offset_of!(ModifyQp, ece_options) == 12);

described! {
    /// What comes back.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_modify_qp_resp`.
    ModifyQpAnswer = "mlx5_ib_modify_qp_resp" {
        /// Bytes of this answer.
        response_length: u32,
        /// Number of a dynamic target.
        dctn: u32,
        /// Enhanced connection options.
        ece_options: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () = assert!(size_of::<ModifyQpAnswer>() == 16 && offset_of!(ModifyQpAnswer, reserved) == 12);

described! {
    /// What a shared receive queue is made of.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_srq`.
    CreateSrq = "mlx5_ib_create_srq" {
        /// The ring.
        buf_addr: u64,
        /// Its doorbell record.
        db_addr: u64,
        /// Bit 0: check bytes.
        flags: u32,
        /// Reserved.
        reserved0: u32,
        /// What completions shall call it.
        uidx: u32,
        /// Reserved.
        reserved1: u32,
    }
}

const _: () = assert!(size_of::<CreateSrq>() == 32 && offset_of!(CreateSrq, reserved1) == 28);

described! {
    /// What comes back.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_srq_resp`.
    CreateSrqAnswer = "mlx5_ib_create_srq_resp" {
        /// Its number.
        srqn: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () = assert!(size_of::<CreateSrqAnswer>() == 8 && offset_of!(CreateSrqAnswer, reserved) == 4);

described! {
    /// What a memory window is made of.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_alloc_mw`.
    AllocMw = "mlx5_ib_alloc_mw" {
        /// None is defined.
        comp_mask: u32,
        /// Pieces of memory it may have.
        num_klms: u8,
        /// Reserved.
        reserved1: u8,
        /// Reserved.
        reserved2: u16,
    }
}

const _: () = assert!(size_of::<AllocMw>() == 8 && offset_of!(AllocMw, reserved2) == 6);

described! {
    /// What comes back with an address handle.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_create_ah_resp`.
    CreateAhAnswer = "mlx5_ib_create_ah_resp" {
        /// Bytes of this answer.
        response_length: u32,
        /// The MAC to which datagrams go.
        dmac: [u8; 6],
        /// Reserved.
        reserved: [u8; 6],
    }
}

const _: () = assert!(size_of::<CreateAhAnswer>() == 16 && offset_of!(CreateAhAnswer, reserved) == 10);

/// Of a queue pair. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `MLX5_QP_FLAG_*`.
pub mod qp_flag {
    /// Check bytes.
    pub const SIGNATURE: u32 = 1 << 0;
    /// Small payload goes into completions.
    pub const SCATTER_CQE: u32 = 1 << 1;
    /// Offloads inside tunnels.
    pub const TUNNEL_OFFLOADS: u32 = 1 << 2;
    /// `bfreg_index` counts.
    pub const BFREG_INDEX: u32 = 1 << 3;
    /// A dynamically connected target.
    pub const TYPE_DCT: u32 = 1 << 4;
    /// A dynamically connected initiator.
    pub const TYPE_DCI: u32 = 1 << 5;
    /// Its own unicast frames come back.
    pub const TIR_ALLOW_SELF_LB_UC: u32 = 1 << 6;
    /// Its own multicast frames come back.
    pub const TIR_ALLOW_SELF_LB_MC: u32 = 1 << 7;
    /// Small payload may go into completions.
    pub const ALLOW_SCATTER_CQE: u32 = 1 << 8;
    /// Credits by packets.
    pub const PACKET_BASED_CREDIT_MODE: u32 = 1 << 9;
    /// `bfreg_index` is a UAR page.
    pub const UAR_PAGE_INDEX: u32 = 1 << 10;
    /// `dci_streams` counts.
    pub const DCI_STREAM: u32 = 1 << 11;
}

/// Which parts of the answer count. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_create_qp_resp_mask`.
pub mod qp_answer {
    /// `tirn`.
    pub const TIRN: u32 = 1 << 0;
    /// `tisn`.
    pub const TISN: u32 = 1 << 1;
    /// `rqn`.
    pub const RQN: u32 = 1 << 2;
    /// `sqn`.
    pub const SQN: u32 = 1 << 3;
    /// `tir_icm_addr`.
    pub const TIR_ICM_ADDR: u32 = 1 << 4;
}

/// Hash functions. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_rx_hash_function_flags`.
pub mod hash_function {
    /// Toeplitz.
    pub const TOEPLITZ: u8 = 1 << 0;
}

/// Bytes of a hash key. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `create_rss_raw_qp_tir`; rdma-core `providers/mlx5/verbs.c`.
pub const HASH_KEY_BYTES: usize = 40;

/// What is hashed. The kernel refuses IPv4 with IPv6, and TCP with UDP. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_rx_hash_fields`.
pub mod hash_field {
    /// Source, IPv4.
    pub const SRC_IPV4: u64 = 1 << 0;
    /// Destination, IPv4.
    pub const DST_IPV4: u64 = 1 << 1;
    /// Source, IPv6.
    pub const SRC_IPV6: u64 = 1 << 2;
    /// Destination, IPv6.
    pub const DST_IPV6: u64 = 1 << 3;
    /// Source port, TCP.
    pub const SRC_PORT_TCP: u64 = 1 << 4;
    /// Destination port, TCP.
    pub const DST_PORT_TCP: u64 = 1 << 5;
    /// Source port, UDP.
    pub const SRC_PORT_UDP: u64 = 1 << 6;
    /// Destination port, UDP.
    pub const DST_PORT_UDP: u64 = 1 << 7;
    /// IPsec's index.
    pub const IPSEC_SPI: u64 = 1 << 8;
    /// Headers inside a tunnel.
    pub const INNER: u64 = 1 << 31;
}
