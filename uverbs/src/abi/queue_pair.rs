//! Commands and answers about queue pairs. Source: `rdma/ib_user_verbs.h`; [`QpCap`]: `rdma/ib_user_ioctl_verbs.h`.

use super::layout;

layout! {
    /// Address of the other side.
    QpDest = "ib_uverbs_qp_dest", 32 {
        /// GID of the destination.
        dgid: [u8; 16] = 0,
        /// Flow label.
        flow_label: u32 = 16,
        /// Local identifier of the destination.
        dlid: u16 = 20,
        /// Zero.
        reserved: u16 = 22,
        /// Our GID, by index.
        sgid_index: u8 = 24,
        /// Hop limit.
        hop_limit: u8 = 25,
        /// Traffic class.
        traffic_class: u8 = 26,
        /// Service level.
        sl: u8 = 27,
        /// Which of our paths.
        src_path_bits: u8 = 28,
        /// Rate, as code.
        static_rate: u8 = 29,
        /// Whether the global part counts.
        is_global: u8 = 30,
        /// Our port.
        port_num: u8 = 31,
    }

    /// CREATE_QP.
    CreateQp = "ib_uverbs_create_qp", 56 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// What events about it carry.
        user_handle: u64 = 8,
        /// Protection domain, or the XRC domain of a receiver.
        pd_handle: u32 = 16,
        /// Completion queue of the send side.
        send_cq_handle: u32 = 20,
        /// Completion queue of the receive side.
        recv_cq_handle: u32 = 24,
        /// Shared receive queue.
        srq_handle: u32 = 28,
        /// Work requests of the send side.
        max_send_wr: u32 = 32,
        /// Work requests of the receive side.
        max_recv_wr: u32 = 36,
        /// Pieces of a send.
        max_send_sge: u32 = 40,
        /// Pieces of a receive.
        max_recv_sge: u32 = 44,
        /// Bytes inside a work request.
        max_inline_data: u32 = 48,
        /// Whether each send completes.
        sq_sig_all: u8 = 52,
        /// See [`QpType`](super::flags::QpType).
        qp_type: u8 = 53,
        /// Whether `srq_handle` counts.
        is_srq: u8 = 54,
        /// Zero.
        reserved: u8 = 55,
    }

    /// EX_CREATE_QP.
    ExCreateQp = "ib_uverbs_ex_create_qp", 64 {
        /// What events about it carry.
        user_handle: u64 = 0,
        /// Protection domain, or the XRC domain of a receiver.
        pd_handle: u32 = 8,
        /// Completion queue of the send side.
        send_cq_handle: u32 = 12,
        /// Completion queue of the receive side.
        recv_cq_handle: u32 = 16,
        /// Shared receive queue.
        srq_handle: u32 = 20,
        /// Work requests of the send side.
        max_send_wr: u32 = 24,
        /// Work requests of the receive side.
        max_recv_wr: u32 = 28,
        /// Pieces of a send.
        max_send_sge: u32 = 32,
        /// Pieces of a receive.
        max_recv_sge: u32 = 36,
        /// Bytes inside a work request.
        max_inline_data: u32 = 40,
        /// Whether each send completes.
        sq_sig_all: u8 = 44,
        /// See [`QpType`](super::flags::QpType).
        qp_type: u8 = 45,
        /// Whether `srq_handle` counts.
        is_srq: u8 = 46,
        /// Zero.
        reserved: u8 = 47,
        /// 1: `rwq_ind_tbl_handle` counts.
        comp_mask: u32 = 48,
        /// See [`QpFlags`](super::flags::QpFlags).
        create_flags: u32 = 52,
        /// Indirection table.
        rwq_ind_tbl_handle: u32 = 56,
        /// Number to send under.
        source_qpn: u32 = 60,
    }

    /// OPEN_QP.
    OpenQp = "ib_uverbs_open_qp", 32 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// What events about it carry.
        user_handle: u64 = 8,
        /// The XRC domain.
        pd_handle: u32 = 16,
        /// Number of the queue pair.
        qpn: u32 = 20,
        /// See [`QpType`](super::flags::QpType).
        qp_type: u8 = 24,
        /// Zero.
        reserved: [u8; 7] = 25,
    }

    /// Answer of CREATE_QP and OPEN_QP.
    CreateQpResp = "ib_uverbs_create_qp_resp", 32 {
        /// The queue pair.
        qp_handle: u32 = 0,
        /// Its number.
        qpn: u32 = 4,
        /// Work requests of the send side.
        max_send_wr: u32 = 8,
        /// Work requests of the receive side.
        max_recv_wr: u32 = 12,
        /// Pieces of a send.
        max_send_sge: u32 = 16,
        /// Pieces of a receive.
        max_recv_sge: u32 = 20,
        /// Bytes inside a work request.
        max_inline_data: u32 = 24,
        /// Zero.
        reserved: u32 = 28,
    }

    /// Answer of EX_CREATE_QP.
    ExCreateQpResp = "ib_uverbs_ex_create_qp_resp", 40 {
        /// The older answer.
        base: CreateQpResp = 0,
        /// Zero.
        comp_mask: u32 = 32,
        /// Bytes that the kernel filled.
        response_length: u32 = 36,
    }

    /// Sizes of a queue pair, in the native method.
    QpCap = "ib_uverbs_qp_cap", 20 {
        /// Work requests of the send side.
        max_send_wr: u32 = 0,
        /// Work requests of the receive side.
        max_recv_wr: u32 = 4,
        /// Pieces of a send.
        max_send_sge: u32 = 8,
        /// Pieces of a receive.
        max_recv_sge: u32 = 12,
        /// Bytes inside a work request.
        max_inline_data: u32 = 16,
    }

    /// POST_SEND; work requests and pieces of memory follow, where they are not in memory that the kernel sees.
    PostSend = "ib_uverbs_post_send", 24 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The queue pair.
        qp_handle: u32 = 8,
        /// Work requests that follow.
        wr_count: u32 = 12,
        /// Pieces that follow.
        sge_count: u32 = 16,
        /// Bytes of a work request.
        wqe_size: u32 = 20,
    }

    /// Answer of POST_SEND.
    PostSendResp = "ib_uverbs_post_send_resp", 4 {
        /// The request that was not posted, from 1.
        bad_wr: u32 = 0,
    }

    /// QUERY_QP.
    QueryQp = "ib_uverbs_query_qp", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The queue pair.
        qp_handle: u32 = 8,
        /// What is asked for, see [`QpMask`](super::flags::QpMask).
        attr_mask: u32 = 12,
    }

    /// Answer of QUERY_QP.
    QueryQpResp = "ib_uverbs_query_qp_resp", 128 {
        /// The other side.
        dest: QpDest = 0,
        /// Its other path.
        alt_dest: QpDest = 32,
        /// Work requests of the send side.
        max_send_wr: u32 = 64,
        /// Work requests of the receive side.
        max_recv_wr: u32 = 68,
        /// Pieces of a send.
        max_send_sge: u32 = 72,
        /// Pieces of a receive.
        max_recv_sge: u32 = 76,
        /// Bytes inside a work request.
        max_inline_data: u32 = 80,
        /// Queue key.
        qkey: u32 = 84,
        /// Packet sequence number of the receive side.
        rq_psn: u32 = 88,
        /// Packet sequence number of the send side.
        sq_psn: u32 = 92,
        /// The other queue pair.
        dest_qp_num: u32 = 96,
        /// What the other side may do.
        qp_access_flags: u32 = 100,
        /// Partition, by index.
        pkey_index: u16 = 104,
        /// Partition of the other path.
        alt_pkey_index: u16 = 106,
        /// State, see [`QpState`](super::flags::QpState).
        qp_state: u8 = 108,
        /// State, again.
        cur_qp_state: u8 = 109,
        /// MTU, as code.
        path_mtu: u8 = 110,
        /// Migration state.
        path_mig_state: u8 = 111,
        /// Whether the send side drains.
        sq_draining: u8 = 112,
        /// RDMA READs and atomics under way.
        max_rd_atomic: u8 = 113,
        /// RDMA READs and atomics served.
        max_dest_rd_atomic: u8 = 114,
        /// Receiver-not-ready delay, as code.
        min_rnr_timer: u8 = 115,
        /// Our port.
        port_num: u8 = 116,
        /// Acknowledge timeout, as exponent.
        timeout: u8 = 117,
        /// Retries.
        retry_cnt: u8 = 118,
        /// Retries when the receiver is not ready; 7 for ever.
        rnr_retry: u8 = 119,
        /// Port of the other path.
        alt_port_num: u8 = 120,
        /// Timeout of the other path.
        alt_timeout: u8 = 121,
        /// Whether each send completes.
        sq_sig_all: u8 = 122,
        /// Zero.
        reserved: [u8; 5] = 123,
    }

    /// MODIFY_QP.
    ModifyQp = "ib_uverbs_modify_qp", 112 {
        /// The other side.
        dest: QpDest = 0,
        /// Its other path.
        alt_dest: QpDest = 32,
        /// The queue pair.
        qp_handle: u32 = 64,
        /// What counts, see [`QpMask`](super::flags::QpMask).
        attr_mask: u32 = 68,
        /// Queue key.
        qkey: u32 = 72,
        /// Packet sequence number of the receive side.
        rq_psn: u32 = 76,
        /// Packet sequence number of the send side.
        sq_psn: u32 = 80,
        /// The other queue pair.
        dest_qp_num: u32 = 84,
        /// What the other side may do.
        qp_access_flags: u32 = 88,
        /// Partition, by index.
        pkey_index: u16 = 92,
        /// Partition of the other path.
        alt_pkey_index: u16 = 94,
        /// State to go to, see [`QpState`](super::flags::QpState).
        qp_state: u8 = 96,
        /// State it is in.
        cur_qp_state: u8 = 97,
        /// MTU, as code.
        path_mtu: u8 = 98,
        /// Migration state.
        path_mig_state: u8 = 99,
        /// Whether draining is told as an event.
        en_sqd_async_notify: u8 = 100,
        /// RDMA READs and atomics under way.
        max_rd_atomic: u8 = 101,
        /// RDMA READs and atomics served.
        max_dest_rd_atomic: u8 = 102,
        /// Receiver-not-ready delay, as code.
        min_rnr_timer: u8 = 103,
        /// Our port.
        port_num: u8 = 104,
        /// Acknowledge timeout, as exponent.
        timeout: u8 = 105,
        /// Retries.
        retry_cnt: u8 = 106,
        /// Retries when the receiver is not ready; 7 for ever.
        rnr_retry: u8 = 107,
        /// Port of the other path.
        alt_port_num: u8 = 108,
        /// Timeout of the other path.
        alt_timeout: u8 = 109,
        /// Zero.
        reserved: [u8; 2] = 110,
    }

    /// EX_MODIFY_QP.
    ExModifyQp = "ib_uverbs_ex_modify_qp", 120 {
        /// The older command.
        base: ModifyQp = 0,
        /// Rate in kbit/s.
        rate_limit: u32 = 112,
        /// Zero.
        reserved: u32 = 116,
    }

    /// Answer of EX_MODIFY_QP.
    ExModifyQpResp = "ib_uverbs_ex_modify_qp_resp", 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Bytes that the kernel filled.
        response_length: u32 = 4,
    }

    /// DESTROY_QP.
    DestroyQp = "ib_uverbs_destroy_qp", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The queue pair.
        qp_handle: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// Answer of DESTROY_QP, also of the native method.
    DestroyQpResp = "ib_uverbs_destroy_qp_resp", 4 {
        /// Events that were read.
        events_reported: u32 = 0,
    }
}

impl PostSend {
    /// Without requests: the kernel is to look at the rings of the queue pair.
    pub(crate) const fn bell(qp: u32) -> Self {
        // It wants to hear of requests of its own size though none follow: `struct ib_uverbs_send_wr`.
        Self { response: 0, qp_handle: qp, wr_count: 0, sge_count: 0, wqe_size: 56 }
    }
}
