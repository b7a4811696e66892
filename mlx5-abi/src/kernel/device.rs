//! What the extended device query adds.

use std::mem::offset_of;

use super::described::described;

described! {
    /// Segmentation.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_tso_caps`.
    TsoCaps = "mlx5_ib_tso_caps" {
        /// Longest payload.
        max_tso: u32,
        /// Mask of queue pair types.
        supported_qpts: u32,
    }
}

const _: () = assert!(size_of::<TsoCaps>() == 8 && offset_of!(TsoCaps, supported_qpts) == 4);

described! {
    /// Hashing.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_rss_caps`.
    RssCaps = "mlx5_ib_rss_caps" {
        /// A mask of [`hash_field`](super::queue_pair::hash_field).
        rx_hash_fields_mask: u64,
        /// A mask of [`hash_function`](super::queue_pair::hash_function).
        rx_hash_function: u8,
        /// Reserved.
        reserved: [u8; 7],
    }
}

const _: () = assert!(size_of::<RssCaps>() == 16 && offset_of!(RssCaps, reserved) == 9);

described! {
    /// Compression of completions.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_cqe_comp_caps`.
    CqeCompressionCaps = "mlx5_ib_cqe_comp_caps" {
        /// Most completions in one title.
        max_num: u32,
        /// A mask of [`mini_format`](super::completion_queue::mini_format).
        supported_format: u32,
    }
}

const _: () =
    assert!(size_of::<CqeCompressionCaps>() == 8 && offset_of!(CqeCompressionCaps, supported_format) == 4);

described! {
    /// Rate limits.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_packet_pacing_caps`.
    PacingCaps = "mlx5_packet_pacing_caps" {
        /// Lowest rate, kbit/s.
        qp_rate_limit_min: u32,
        /// Highest rate, kbit/s.
        qp_rate_limit_max: u32,
        /// Mask of queue pair types.
        supported_qpts: u32,
        /// Of [`pacing`].
        cap_flags: u8,
        /// Reserved.
        reserved: [u8; 3],
    }
}

const _: () = assert!(size_of::<PacingCaps>() == 16 && offset_of!(PacingCaps, reserved) == 13);

described! {
    /// Frames that software has parsed.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_sw_parsing_caps`.
    ParsingCaps = "mlx5_ib_sw_parsing_caps" {
        /// A mask of [`parsing`].
        sw_parsing_offloads: u32,
        /// Mask of queue pair types.
        supported_qpts: u32,
    }
}

const _: () = assert!(size_of::<ParsingCaps>() == 8 && offset_of!(ParsingCaps, supported_qpts) == 4);

described! {
    /// Striding receive rings.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_striding_rq_caps`.
    StridingCaps = "mlx5_ib_striding_rq_caps" {
        /// Shortest stride, as a logarithm.
        min_single_stride_log_num_of_bytes: u32,
        /// Longest stride.
        max_single_stride_log_num_of_bytes: u32,
        /// Fewest strides in an entry, as a logarithm.
        min_single_wqe_log_num_of_strides: u32,
        /// Most strides in an entry.
        max_single_wqe_log_num_of_strides: u32,
        /// Mask of queue pair types.
        supported_qpts: u32,
        /// Reserved.
        reserved: u32,
    }
}

const _: () = assert!(size_of::<StridingCaps>() == 24 && offset_of!(StridingCaps, reserved) == 20);

described! {
    /// Streams of dynamically connected initiators.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_dci_streams_caps`.
    DciStreamsCaps = "mlx5_ib_dci_streams_caps" {
        /// Most streams, as a logarithm.
        max_log_num_concurent: u8,
        /// Most streams in error, as a logarithm.
        max_log_num_errored: u8,
    }
}

const _: () =
    assert!(size_of::<DciStreamsCaps>() == 2 && offset_of!(DciStreamsCaps, max_log_num_errored) == 1);

described! {
    /// The driver's part of the extended device query. Older kernels give less, newer ones more: `response_length` says how much.
    ///
    /// Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `struct mlx5_ib_query_device_resp`.
    DeviceAnswer = "mlx5_ib_query_device_resp" {
        /// None is defined.
        comp_mask: u32,
        /// Bytes of this answer.
        response_length: u32,
        /// Segmentation.
        tso_caps: TsoCaps,
        /// Hashing.
        rss_caps: RssCaps,
        /// Compression of completions.
        cqe_comp_caps: CqeCompressionCaps,
        /// Rate limits.
        packet_pacing_caps: PacingCaps,
        /// A mask of [`multi_packet`].
        multi_pkt_send_wqes: u32,
        /// A mask of [`device_flag`].
        flags: u32,
        /// Frames that software has parsed.
        sw_parsing_caps: ParsingCaps,
        /// Striding receive rings.
        striding_rq_caps: StridingCaps,
        /// A mask of [`tunnel`].
        tunnel_offloads_caps: u32,
        /// Streams.
        dci_streams_caps: DciStreamsCaps,
        /// Reserved.
        reserved: u16,
    }
}

const _: () = assert!(size_of::<DeviceAnswer>() == 104 && offset_of!(DeviceAnswer, reserved) == 102);

/// What of rates can be asked for. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_packet_pacing_cap_flags`.
pub mod pacing {
    /// The longest burst, and the usual packet.
    pub const SUPPORT_BURST: u8 = 1 << 0;
}

/// Many frames in one send entry. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_mpw_caps`.
pub mod multi_packet {
    /// The old form.
    pub const ALLOW_MPW: u32 = 1 << 1;
    /// The enhanced form.
    pub const SUPPORT_EMPW: u32 = 1 << 2;
}

/// What works on frames that software has parsed. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_sw_parsing_offloads`.
pub mod parsing {
    /// It is there.
    pub const ANY: u32 = 1 << 0;
    /// Checksums.
    pub const CSUM: u32 = 1 << 1;
    /// Segmentation.
    pub const LSO: u32 = 1 << 2;
}

/// Odds and ends. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_query_dev_resp_flags`.
pub mod device_flag {
    /// Completions of 128 bytes can be compressed.
    pub const CQE_128B_COMP: u32 = 1 << 0;
    /// Completions can be padded to 128 bytes.
    pub const CQE_128B_PAD: u32 = 1 << 1;
    /// Credits by packets.
    pub const PACKET_BASED_CREDIT_MODE: u32 = 1 << 2;
    /// Payload in completions of dynamic targets.
    pub const SCAT2CQE_DCT: u32 = 1 << 3;
}

/// Tunnels that the adapter looks into. Source: rdma-core `kernel-headers/rdma/mlx5-abi.h`, `enum mlx5_ib_tunnel_offloads`.
pub mod tunnel {
    /// VXLAN.
    pub const VXLAN: u32 = 1 << 0;
    /// GRE.
    pub const GRE: u32 = 1 << 1;
    /// Geneve.
    pub const GENEVE: u32 = 1 << 2;
    /// MPLS over GRE.
    pub const MPLS_GRE: u32 = 1 << 3;
    /// MPLS over UDP.
    pub const MPLS_UDP: u32 = 1 << 4;
}
