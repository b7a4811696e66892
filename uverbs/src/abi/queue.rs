//! Commands and answers about completion queues, shared receive queues, work queues and indirection tables. Source:
//! `rdma/ib_user_verbs.h`.

use super::layout;

layout! {
    /// CREATE_COMP_CHANNEL.
    CreateCompChannel = "ib_uverbs_create_comp_channel", 8 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
    }

    /// Answer of CREATE_COMP_CHANNEL.
    CreateCompChannelResp = "ib_uverbs_create_comp_channel_resp", 4 {
        /// Descriptor of the completion events.
        fd: u32 = 0,
    }

    /// CREATE_CQ.
    CreateCq = "ib_uverbs_create_cq", 32 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// What events about it carry.
        user_handle: u64 = 8,
        /// Entries wanted.
        cqe: u32 = 16,
        /// Completion vector.
        comp_vector: u32 = 20,
        /// Descriptor of the completion channel, -1 for none.
        comp_channel: i32 = 24,
        /// Zero.
        reserved: u32 = 28,
    }

    /// EX_CREATE_CQ.
    ExCreateCq = "ib_uverbs_ex_create_cq", 32 {
        /// What events about it carry.
        user_handle: u64 = 0,
        /// Entries wanted.
        cqe: u32 = 8,
        /// Completion vector.
        comp_vector: u32 = 12,
        /// Descriptor of the completion channel, -1 for none.
        comp_channel: i32 = 16,
        /// Zero.
        comp_mask: u32 = 20,
        /// See [`CqFlags`](super::flags::CqFlags).
        flags: u32 = 24,
        /// Zero.
        reserved: u32 = 28,
    }

    /// Answer of CREATE_CQ.
    CreateCqResp = "ib_uverbs_create_cq_resp", 8 {
        /// The completion queue.
        cq_handle: u32 = 0,
        /// Entries it has.
        cqe: u32 = 4,
    }

    /// Answer of EX_CREATE_CQ.
    ExCreateCqResp = "ib_uverbs_ex_create_cq_resp", 16 {
        /// The older answer.
        base: CreateCqResp = 0,
        /// Zero.
        comp_mask: u32 = 8,
        /// Bytes that the kernel filled.
        response_length: u32 = 12,
    }

    /// RESIZE_CQ.
    ResizeCq = "ib_uverbs_resize_cq", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The completion queue.
        cq_handle: u32 = 8,
        /// Entries wanted.
        cqe: u32 = 12,
    }

    /// Answer of RESIZE_CQ.
    ResizeCqResp = "ib_uverbs_resize_cq_resp", 8 {
        /// Entries it has.
        cqe: u32 = 0,
        /// Zero.
        reserved: u32 = 4,
    }

    /// REQ_NOTIFY_CQ.
    ReqNotifyCq = "ib_uverbs_req_notify_cq", 8 {
        /// The completion queue.
        cq_handle: u32 = 0,
        /// 1 for solicited completions and errors alone.
        solicited_only: u32 = 4,
    }

    /// DESTROY_CQ.
    DestroyCq = "ib_uverbs_destroy_cq", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The completion queue.
        cq_handle: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// Answer of DESTROY_CQ, also of the native method.
    DestroyCqResp = "ib_uverbs_destroy_cq_resp", 8 {
        /// Completion events that were read from the channel.
        comp_events_reported: u32 = 0,
        /// Asynchronous events that were read.
        async_events_reported: u32 = 4,
    }

    /// EX_MODIFY_CQ.
    ExModifyCq = "ib_uverbs_ex_modify_cq", 16 {
        /// The completion queue.
        cq_handle: u32 = 0,
        /// 1: moderation.
        attr_mask: u32 = 4,
        /// Completions an event.
        cq_count: u16 = 8,
        /// Microseconds an event waits.
        cq_period: u16 = 10,
        /// Zero.
        reserved: u32 = 12,
    }

    /// CREATE_SRQ.
    CreateSrq = "ib_uverbs_create_srq", 32 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// What events about it carry.
        user_handle: u64 = 8,
        /// Protection domain.
        pd_handle: u32 = 16,
        /// Work requests wanted.
        max_wr: u32 = 20,
        /// Pieces of one.
        max_sge: u32 = 24,
        /// Event below this many.
        srq_limit: u32 = 28,
    }

    /// CREATE_XSRQ.
    CreateXsrq = "ib_uverbs_create_xsrq", 48 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// What events about it carry.
        user_handle: u64 = 8,
        /// See [`SrqType`](super::flags::SrqType).
        srq_type: u32 = 16,
        /// Protection domain.
        pd_handle: u32 = 20,
        /// Work requests wanted.
        max_wr: u32 = 24,
        /// Pieces of one.
        max_sge: u32 = 28,
        /// Event below this many.
        srq_limit: u32 = 32,
        /// Tags, for tag matching.
        max_num_tags: u32 = 36,
        /// Domain, for XRC.
        xrcd_handle: u32 = 40,
        /// Completion queue, for XRC and tag matching.
        cq_handle: u32 = 44,
    }

    /// Answer of CREATE_SRQ and CREATE_XSRQ.
    CreateSrqResp = "ib_uverbs_create_srq_resp", 16 {
        /// The queue.
        srq_handle: u32 = 0,
        /// Work requests it has room for.
        max_wr: u32 = 4,
        /// Pieces of one.
        max_sge: u32 = 8,
        /// Its number, for XRC.
        srqn: u32 = 12,
    }

    /// MODIFY_SRQ.
    ModifySrq = "ib_uverbs_modify_srq", 16 {
        /// The queue.
        srq_handle: u32 = 0,
        /// 1: `max_wr`, 2: `srq_limit`.
        attr_mask: u32 = 4,
        /// Work requests.
        max_wr: u32 = 8,
        /// Event below this many.
        srq_limit: u32 = 12,
    }

    /// QUERY_SRQ.
    QuerySrq = "ib_uverbs_query_srq", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The queue.
        srq_handle: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// Answer of QUERY_SRQ.
    QuerySrqResp = "ib_uverbs_query_srq_resp", 16 {
        /// Work requests.
        max_wr: u32 = 0,
        /// Pieces of one.
        max_sge: u32 = 4,
        /// Event below this many.
        srq_limit: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// DESTROY_SRQ.
    DestroySrq = "ib_uverbs_destroy_srq", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The queue.
        srq_handle: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// Answer of DESTROY_SRQ, also of the native method.
    DestroySrqResp = "ib_uverbs_destroy_srq_resp", 4 {
        /// Events that were read.
        events_reported: u32 = 0,
    }

    /// EX_CREATE_WQ.
    ExCreateWq = "ib_uverbs_ex_create_wq", 40 {
        /// Zero.
        comp_mask: u32 = 0,
        /// 0: receive.
        wq_type: u32 = 4,
        /// What events about it carry.
        user_handle: u64 = 8,
        /// Protection domain.
        pd_handle: u32 = 16,
        /// Completion queue.
        cq_handle: u32 = 20,
        /// Work requests wanted.
        max_wr: u32 = 24,
        /// Pieces of one.
        max_sge: u32 = 28,
        /// See [`WqFlags`](super::flags::WqFlags).
        create_flags: u32 = 32,
        /// Zero.
        reserved: u32 = 36,
    }

    /// Answer of EX_CREATE_WQ.
    ExCreateWqResp = "ib_uverbs_ex_create_wq_resp", 24 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Bytes that the kernel filled.
        response_length: u32 = 4,
        /// The work queue.
        wq_handle: u32 = 8,
        /// Work requests it has room for.
        max_wr: u32 = 12,
        /// Pieces of one.
        max_sge: u32 = 16,
        /// Its number.
        wqn: u32 = 20,
    }

    /// EX_DESTROY_WQ.
    ExDestroyWq = "ib_uverbs_ex_destroy_wq", 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// The work queue.
        wq_handle: u32 = 4,
    }

    /// Answer of EX_DESTROY_WQ.
    ExDestroyWqResp = "ib_uverbs_ex_destroy_wq_resp", 16 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Bytes that the kernel filled.
        response_length: u32 = 4,
        /// Events that were read.
        events_reported: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// EX_MODIFY_WQ.
    ExModifyWq = "ib_uverbs_ex_modify_wq", 24 {
        /// 1: state, 2: state now, 4: flags.
        attr_mask: u32 = 0,
        /// The work queue.
        wq_handle: u32 = 4,
        /// The state to go to, see [`WqState`](super::flags::WqState).
        wq_state: u32 = 8,
        /// The state it is in.
        curr_wq_state: u32 = 12,
        /// Flags to set, of those in `flags_mask`.
        flags: u32 = 16,
        /// Flags to change.
        flags_mask: u32 = 20,
    }

    /// EX_CREATE_RWQ_IND_TBL; the handles follow, padded to 8 bytes.
    ExCreateRwqIndTable = "ib_uverbs_ex_create_rwq_ind_table", 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Logarithm of the count of handles.
        log_ind_tbl_size: u32 = 4,
    }

    /// Answer of EX_CREATE_RWQ_IND_TBL.
    ExCreateRwqIndTableResp = "ib_uverbs_ex_create_rwq_ind_table_resp", 16 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Bytes that the kernel filled.
        response_length: u32 = 4,
        /// The table.
        ind_tbl_handle: u32 = 8,
        /// Its number.
        ind_tbl_num: u32 = 12,
    }

    /// EX_DESTROY_RWQ_IND_TBL.
    ExDestroyRwqIndTable = "ib_uverbs_ex_destroy_rwq_ind_table", 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// The table.
        ind_tbl_handle: u32 = 4,
    }
}
