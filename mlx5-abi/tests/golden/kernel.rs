use std::mem::offset_of;

use pollux_mlx5_abi::kernel::{self, completion_queue, context, device, flow, queue_pair, verbs, work_queue};

use crate::{Golden, numbers};

/// Compares a structure's size and its members' places.
macro_rules! same {
    ($golden:expr, $ours:ty, $c:literal, { $($field:ident $(= $name:literal)?),+ $(,)? }) => {{
        $golden.same("struct", $c, &[size_of::<$ours>() as u64]);
        $(
            let name = concat!($c, ".", same!(@name $field $($name)?));
            let bytes = member_bytes(|ours: &$ours| &ours.$field);
            $golden.same("field", name, &[offset_of!($ours, $field) as u64, bytes as u64]);
        )+
    }};
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}

fn member_bytes<Whole, Member>(_: impl Fn(&Whole) -> &Member) -> usize {
    size_of::<Member>()
}

pub(crate) fn compare(golden: &mut Golden) {
    structures(golden);
    flags(golden);
    methods(golden);
    attributes(golden);
    golden.same("const", "MLX5_IB_UVERBS_ABI_VERSION", &[kernel::ABI_VERSION.into()]);
    golden.same("const", "UVERBS_ID_NS_SHIFT", &[kernel::DRIVER_NAMESPACE.trailing_zeros().into()]);
    golden.same("const", "RDMA_DRIVER_MLX5", &[kernel::DRIVER_ID.into()]);
    golden.same("const", "MLX5_IB_DW_MATCH_PARAM", &[kernel::MATCH_DWORDS as u64]);
}

fn structures(golden: &mut Golden) {
    same!(golden, context::ContextRequest, "mlx5_ib_alloc_ucontext_req_v2", { total_num_bfregs, num_low_latency_bfregs, flags, comp_mask, max_cqe_version, lib_caps });
    same!(golden, context::ContextAnswer, "mlx5_ib_alloc_ucontext_resp", { qp_tab_size, bf_reg_size, tot_bfregs, cache_line_size, max_sq_desc_sz, max_rq_desc_sz, max_send_wqebb, max_recv_wr, max_srq_recv_wr, num_ports, flow_action_flags, comp_mask, response_length, cqe_version, cmds_supp_uhw, eth_min_inline, clock_info_versions, hca_core_clock_offset, log_uar_size, num_uars_per_page, num_dyn_bfregs, dump_fill_mkey });
    same!(golden, context::PdAnswer, "mlx5_ib_alloc_pd_resp", { pdn });
    same!(golden, context::AhAnswer, "mlx5_ib_create_ah_resp", { response_length, dmac });
    same!(golden, context::ClockInfo, "mlx5_ib_clock_info", { sign, nsec, cycles, frac, mult, shift, mask, overflow_period });
    same!(golden, device::TsoCaps, "mlx5_ib_tso_caps", { max_tso, supported_qpts });
    same!(golden, device::RssCaps, "mlx5_ib_rss_caps", { rx_hash_fields_mask, rx_hash_function });
    same!(golden, device::CqeCompressionCaps, "mlx5_ib_cqe_comp_caps", { max_num, supported_format });
    same!(golden, device::PacingCaps, "mlx5_packet_pacing_caps", { qp_rate_limit_min, qp_rate_limit_max, supported_qpts, cap_flags });
    same!(golden, device::ParsingCaps, "mlx5_ib_sw_parsing_caps", { sw_parsing_offloads, supported_qpts });
    same!(golden, device::StridingCaps, "mlx5_ib_striding_rq_caps", { min_single_stride_log_num_of_bytes, max_single_stride_log_num_of_bytes, min_single_wqe_log_num_of_strides, max_single_wqe_log_num_of_strides, supported_qpts });
    same!(golden, device::DciStreamsCaps, "mlx5_ib_dci_streams_caps", { max_log_num_concurent, max_log_num_errored });
    same!(golden, device::DeviceAnswer, "mlx5_ib_query_device_resp", { comp_mask, response_length, tso_caps, rss_caps, cqe_comp_caps, packet_pacing_caps, multi_pkt_send_wqes = "mlx5_ib_support_multi_pkt_send_wqes", flags, sw_parsing_caps, striding_rq_caps, tunnel_offloads_caps, dci_streams_caps });
    same!(golden, completion_queue::CreateCq, "mlx5_ib_create_cq", { buf_addr, db_addr, cqe_size, cqe_comp_en, cqe_comp_res_format, flags, uar_page_index });
    same!(golden, completion_queue::CreateCqAnswer, "mlx5_ib_create_cq_resp", { cqn });
    same!(golden, completion_queue::ResizeCq, "mlx5_ib_resize_cq", { buf_addr, cqe_size });
    same!(golden, queue_pair::DciStreams, "mlx5_ib_create_qp_dci_streams", { log_num_concurent, log_num_errored });
    same!(golden, queue_pair::CreateQp, "mlx5_ib_create_qp", { buf_addr, db_addr, sq_wqe_count, rq_wqe_count, rq_wqe_shift, flags, uidx, bfreg_index, sq_buf_addr, ece_options, dci_streams });
    same!(golden, queue_pair::CreateQpAnswer, "mlx5_ib_create_qp_resp", { bfreg_index, ece_options, comp_mask, tirn, tisn, rqn, sqn, tir_icm_addr });
    same!(golden, queue_pair::CreateRssQp, "mlx5_ib_create_qp_rss", { rx_hash_fields_mask, rx_hash_function, rx_key_len, rx_hash_key, comp_mask, flags });
    same!(golden, queue_pair::BurstInfo, "mlx5_ib_burst_info", { max_burst_sz, typical_pkt_sz });
    same!(golden, queue_pair::ModifyQp, "mlx5_ib_modify_qp", { comp_mask, burst_info, ece_options });
    same!(golden, queue_pair::ModifyQpAnswer, "mlx5_ib_modify_qp_resp", { response_length, dctn, ece_options });
    same!(golden, queue_pair::CreateSrq, "mlx5_ib_create_srq", { buf_addr, db_addr, flags, uidx });
    same!(golden, queue_pair::CreateAhAnswer, "mlx5_ib_create_ah_resp", { response_length, dmac });
    same!(golden, queue_pair::CreateSrqAnswer, "mlx5_ib_create_srq_resp", { srqn });
    same!(golden, queue_pair::AllocMw, "mlx5_ib_alloc_mw", { comp_mask, num_klms });
    same!(golden, work_queue::CreateWq, "mlx5_ib_create_wq", { buf_addr, db_addr, rq_wqe_count, rq_wqe_shift, user_index, flags, comp_mask, single_stride_log_num_of_bytes, single_wqe_log_num_of_strides, two_byte_shift_en });
    same!(golden, work_queue::CreateWqAnswer, "mlx5_ib_create_wq_resp", { response_length });
    same!(golden, work_queue::ModifyWq, "mlx5_ib_modify_wq", { comp_mask });
    same!(golden, flow::CreateFlow, "mlx5_ib_create_flow", { ncounters_data });
    same!(golden, flow::CountersData, "mlx5_ib_flow_counters_data", { counters_data, ncounters });
    same!(golden, flow::CounterPlace, "mlx5_ib_flow_counters_desc", { description, index });
    same!(golden, work_queue::CreateRwqTableAnswer, "mlx5_ib_create_rwq_ind_tbl_resp", { response_length });
    same!(golden, verbs::AsyncCommand, "mlx5_ib_uapi_devx_async_cmd_hdr", { wr_id });
    same!(golden, verbs::AsyncEvent, "mlx5_ib_uapi_devx_async_event_hdr", { cookie });
    same!(golden, verbs::Register, "mlx5_ib_uapi_reg", { value, mask });
    same!(golden, verbs::QueryPort, "mlx5_ib_uapi_query_port", { flags, vport, vport_vhca_id, esw_owner_vhca_id, vport_steering_icm_rx, vport_steering_icm_tx, reg_c0 });
}

fn flags(golden: &mut Golden) {
    numbers!(golden, pollux_mlx5_abi::kernel::flow::counter {
        "IBV_COUNTER_PACKETS" = PACKETS;
        "IBV_COUNTER_BYTES" = BYTES;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::context::context_flag {
        "MLX5_IB_ALLOC_UCTX_DEVX" = DEVX;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::context::answer {
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET" = CORE_CLOCK_OFFSET;
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY" = DUMP_FILL_MKEY;
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE" = ECE;
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_SQD2RTS" = SQD2RTS;
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_REAL_TIME_TS" = REAL_TIME_TS;
        "MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG" = MKEY_UPDATE_TAG;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::context::uhw {
        "MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE" = QUERY_DEVICE;
        "MLX5_USER_CMDS_SUPP_UHW_CREATE_AH" = CREATE_AH;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::context::inline_mode {
        "MLX5_USER_INLINE_MODE_NA" = NA;
        "MLX5_USER_INLINE_MODE_NONE" = NONE;
        "MLX5_USER_INLINE_MODE_L2" = L2;
        "MLX5_USER_INLINE_MODE_IP" = IP;
        "MLX5_USER_INLINE_MODE_TCP_UDP" = TCP_UDP;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::context::clock {
        "MLX5_IB_CLOCK_INFO_KERNEL_UPDATING" = KERNEL_UPDATING;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::device::pacing {
        "MLX5_IB_PP_SUPPORT_BURST" = SUPPORT_BURST;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::device::multi_packet {
        "MLX5_IB_ALLOW_MPW" = ALLOW_MPW;
        "MLX5_IB_SUPPORT_EMPW" = SUPPORT_EMPW;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::device::device_flag {
        "MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP" = CQE_128B_COMP;
        "MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD" = CQE_128B_PAD;
        "MLX5_IB_QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE" = PACKET_BASED_CREDIT_MODE;
        "MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT" = SCAT2CQE_DCT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::device::tunnel {
        "MLX5_IB_TUNNELED_OFFLOADS_VXLAN" = VXLAN;
        "MLX5_IB_TUNNELED_OFFLOADS_GRE" = GRE;
        "MLX5_IB_TUNNELED_OFFLOADS_GENEVE" = GENEVE;
        "MLX5_IB_TUNNELED_OFFLOADS_MPLS_GRE" = MPLS_GRE;
        "MLX5_IB_TUNNELED_OFFLOADS_MPLS_UDP" = MPLS_UDP;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::device::parsing {
        "MLX5_IB_SW_PARSING" = ANY;
        "MLX5_IB_SW_PARSING_CSUM" = CSUM;
        "MLX5_IB_SW_PARSING_LSO" = LSO;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::completion_queue::cq_flag {
        "MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD" = CQE_128B_PAD;
        "MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX" = UAR_PAGE_INDEX;
        "MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS" = REAL_TIME_TS;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::completion_queue::mini_format {
        "MLX5_IB_CQE_RES_FORMAT_HASH" = HASH;
        "MLX5_IB_CQE_RES_FORMAT_CSUM" = CSUM;
        "MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX" = CSUM_STRIDX;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::queue_pair::qp_flag {
        "MLX5_QP_FLAG_SIGNATURE" = SIGNATURE;
        "MLX5_QP_FLAG_SCATTER_CQE" = SCATTER_CQE;
        "MLX5_QP_FLAG_TUNNEL_OFFLOADS" = TUNNEL_OFFLOADS;
        "MLX5_QP_FLAG_BFREG_INDEX" = BFREG_INDEX;
        "MLX5_QP_FLAG_TYPE_DCT" = TYPE_DCT;
        "MLX5_QP_FLAG_TYPE_DCI" = TYPE_DCI;
        "MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC" = TIR_ALLOW_SELF_LB_UC;
        "MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC" = TIR_ALLOW_SELF_LB_MC;
        "MLX5_QP_FLAG_ALLOW_SCATTER_CQE" = ALLOW_SCATTER_CQE;
        "MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE" = PACKET_BASED_CREDIT_MODE;
        "MLX5_QP_FLAG_UAR_PAGE_INDEX" = UAR_PAGE_INDEX;
        "MLX5_QP_FLAG_DCI_STREAM" = DCI_STREAM;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::queue_pair::qp_answer {
        "MLX5_IB_CREATE_QP_RESP_MASK_TIRN" = TIRN;
        "MLX5_IB_CREATE_QP_RESP_MASK_TISN" = TISN;
        "MLX5_IB_CREATE_QP_RESP_MASK_RQN" = RQN;
        "MLX5_IB_CREATE_QP_RESP_MASK_SQN" = SQN;
        "MLX5_IB_CREATE_QP_RESP_MASK_TIR_ICM_ADDR" = TIR_ICM_ADDR;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::queue_pair::hash_function {
        "MLX5_RX_HASH_FUNC_TOEPLITZ" = TOEPLITZ;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::queue_pair::hash_field {
        "MLX5_RX_HASH_SRC_IPV4" = SRC_IPV4;
        "MLX5_RX_HASH_DST_IPV4" = DST_IPV4;
        "MLX5_RX_HASH_SRC_IPV6" = SRC_IPV6;
        "MLX5_RX_HASH_DST_IPV6" = DST_IPV6;
        "MLX5_RX_HASH_SRC_PORT_TCP" = SRC_PORT_TCP;
        "MLX5_RX_HASH_DST_PORT_TCP" = DST_PORT_TCP;
        "MLX5_RX_HASH_SRC_PORT_UDP" = SRC_PORT_UDP;
        "MLX5_RX_HASH_DST_PORT_UDP" = DST_PORT_UDP;
        "MLX5_RX_HASH_IPSEC_SPI" = IPSEC_SPI;
        "MLX5_RX_HASH_INNER" = INNER;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::work_queue::wq_mask {
        "MLX5_IB_CREATE_WQ_STRIDING_RQ" = STRIDING_RQ;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::verbs::uar_type {
        "MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF" = BF;
        "MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC" = NC;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::verbs::flow_table {
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX" = NIC_RX;
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX" = NIC_TX;
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB" = FDB;
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_RX" = RDMA_RX;
        "MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX" = RDMA_TX;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::verbs::device_memory {
        "MLX5_IB_UAPI_DM_TYPE_MEMIC" = MEMIC;
        "MLX5_IB_UAPI_DM_TYPE_STEERING_SW_ICM" = STEERING_SW_ICM;
        "MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_SW_ICM" = HEADER_MODIFY_SW_ICM;
        "MLX5_IB_UAPI_DM_TYPE_HEADER_MODIFY_PATTERN_SW_ICM" = HEADER_MODIFY_PATTERN_SW_ICM;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::verbs::event_channel {
        "MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA" = OMIT_DATA;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::context::library {
        "MLX5_LIB_CAP_4K_UAR" = UAR_4K;
        "MLX5_LIB_CAP_DYN_UAR" = DYN_UAR;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::flow_type {
        "MLX5_IB_FLOW_TYPE_NORMAL" = NORMAL;
        "MLX5_IB_FLOW_TYPE_SNIFFER" = SNIFFER;
        "MLX5_IB_FLOW_TYPE_ALL_DEFAULT" = ALL_DEFAULT;
        "MLX5_IB_FLOW_TYPE_MC_DEFAULT" = MC_DEFAULT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::flow_flag {
        "MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS" = DEFAULT_MISS;
        "MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP" = DROP;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::mmap {
        "MLX5_IB_MMAP_REGULAR_PAGE" = REGULAR_PAGE;
        "MLX5_IB_MMAP_GET_CONTIGUOUS_PAGES" = GET_CONTIGUOUS_PAGES;
        "MLX5_IB_MMAP_WC_PAGE" = WC_PAGE;
        "MLX5_IB_MMAP_NC_PAGE" = NC_PAGE;
        "MLX5_IB_MMAP_CORE_CLOCK" = CORE_CLOCK;
        "MLX5_IB_MMAP_ALLOC_WC" = ALLOC_WC;
        "MLX5_IB_MMAP_CLOCK_INFO" = CLOCK_INFO;
        "MLX5_IB_MMAP_DEVICE_MEM" = DEVICE_MEM;
    });
}

fn methods(golden: &mut Golden) {
    numbers!(golden, pollux_mlx5_abi::kernel::object {
        "MLX5_IB_OBJECT_DEVX" = DEVX;
        "MLX5_IB_OBJECT_DEVX_OBJ" = DEVX_OBJ;
        "MLX5_IB_OBJECT_DEVX_UMEM" = DEVX_UMEM;
        "MLX5_IB_OBJECT_FLOW_MATCHER" = FLOW_MATCHER;
        "MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD" = DEVX_ASYNC_CMD_FD;
        "MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD" = DEVX_ASYNC_EVENT_FD;
        "MLX5_IB_OBJECT_VAR" = VAR;
        "MLX5_IB_OBJECT_PP" = PP;
        "MLX5_IB_OBJECT_UAR" = UAR;
        "MLX5_IB_OBJECT_STEERING_ANCHOR" = STEERING_ANCHOR;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::devx {
        "MLX5_IB_METHOD_DEVX_OTHER" = OTHER;
        "MLX5_IB_METHOD_DEVX_QUERY_UAR" = QUERY_UAR;
        "MLX5_IB_METHOD_DEVX_QUERY_EQN" = QUERY_EQN;
        "MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT" = SUBSCRIBE_EVENT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::devx_obj {
        "MLX5_IB_METHOD_DEVX_OBJ_CREATE" = CREATE;
        "MLX5_IB_METHOD_DEVX_OBJ_DESTROY" = DESTROY;
        "MLX5_IB_METHOD_DEVX_OBJ_MODIFY" = MODIFY;
        "MLX5_IB_METHOD_DEVX_OBJ_QUERY" = QUERY;
        "MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY" = ASYNC_QUERY;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::devx_umem {
        "MLX5_IB_METHOD_DEVX_UMEM_REG" = REG;
        "MLX5_IB_METHOD_DEVX_UMEM_DEREG" = DEREG;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::devx_async_cmd_fd {
        "MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC" = ALLOC;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::devx_async_event_fd {
        "MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC" = ALLOC;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::uar {
        "MLX5_IB_METHOD_UAR_OBJ_ALLOC" = ALLOC;
        "MLX5_IB_METHOD_UAR_OBJ_DESTROY" = DESTROY;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::var {
        "MLX5_IB_METHOD_VAR_OBJ_ALLOC" = ALLOC;
        "MLX5_IB_METHOD_VAR_OBJ_DESTROY" = DESTROY;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::pp {
        "MLX5_IB_METHOD_PP_OBJ_ALLOC" = ALLOC;
        "MLX5_IB_METHOD_PP_OBJ_DESTROY" = DESTROY;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::flow_matcher {
        "MLX5_IB_METHOD_FLOW_MATCHER_CREATE" = CREATE;
        "MLX5_IB_METHOD_FLOW_MATCHER_DESTROY" = DESTROY;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::steering_anchor {
        "MLX5_IB_METHOD_STEERING_ANCHOR_CREATE" = CREATE;
        "MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY" = DESTROY;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::flow {
        "MLX5_IB_METHOD_CREATE_FLOW" = CREATE_FLOW;
        "MLX5_IB_METHOD_DESTROY_FLOW" = DESTROY_FLOW;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::flow_action {
        "MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER" = CREATE_MODIFY_HEADER;
        "MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT" = CREATE_PACKET_REFORMAT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::device {
        "MLX5_IB_METHOD_QUERY_PORT" = QUERY_PORT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::pd {
        "MLX5_IB_METHOD_PD_QUERY" = QUERY;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::method::dm {
        "MLX5_IB_METHOD_DM_MAP_OP_ADDR" = MAP_OP_ADDR;
        "MLX5_IB_METHOD_DM_QUERY" = QUERY;
    });
}

fn attributes(golden: &mut Golden) {
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_other {
        "MLX5_IB_ATTR_DEVX_OTHER_CMD_IN" = CMD_IN;
        "MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT" = CMD_OUT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_query_uar {
        "MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX" = USER_IDX;
        "MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX" = DEV_IDX;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_query_eqn {
        "MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC" = USER_VEC;
        "MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN" = DEV_EQN;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_subscribe_event {
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE" = FD_HANDLE;
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE" = OBJ_HANDLE;
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST" = TYPE_NUM_LIST;
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM" = FD_NUM;
        "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE" = COOKIE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_obj_create {
        "MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN" = CMD_IN;
        "MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT" = CMD_OUT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_obj_destroy {
        "MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE" = HANDLE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_obj_modify {
        "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN" = CMD_IN;
        "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT" = CMD_OUT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_obj_query {
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN" = CMD_IN;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT" = CMD_OUT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_obj_query_async {
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN" = CMD_IN;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD" = FD;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID" = WR_ID;
        "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN" = OUT_LEN;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_umem_reg {
        "MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR" = ADDR;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_LEN" = LEN;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS" = ACCESS;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID" = OUT_ID;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP" = PGSZ_BITMAP;
        "MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD" = DMABUF_FD;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_umem_dereg {
        "MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE" = HANDLE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_async_cmd_fd_alloc {
        "MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE" = HANDLE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::devx_async_event_fd_alloc {
        "MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS" = FLAGS;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::uar_alloc {
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE" = TYPE;
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET" = MMAP_OFFSET;
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH" = MMAP_LENGTH;
        "MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID" = PAGE_ID;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::uar_destroy {
        "MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE" = HANDLE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::pp_alloc {
        "MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX" = CTX;
        "MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS" = FLAGS;
        "MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX" = INDEX;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::pp_destroy {
        "MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE" = HANDLE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::flow_matcher_create {
        "MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE" = CREATE_HANDLE;
        "MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK" = MATCH_MASK;
        "MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE" = FLOW_TYPE;
        "MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA" = MATCH_CRITERIA;
        "MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS" = FLOW_FLAGS;
        "MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE" = FT_TYPE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::flow_matcher_destroy {
        "MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE" = HANDLE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::create_flow {
        "MLX5_IB_ATTR_CREATE_FLOW_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE" = MATCH_VALUE;
        "MLX5_IB_ATTR_CREATE_FLOW_DEST_QP" = DEST_QP;
        "MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX" = DEST_DEVX;
        "MLX5_IB_ATTR_CREATE_FLOW_MATCHER" = MATCHER;
        "MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS" = ARR_FLOW_ACTIONS;
        "MLX5_IB_ATTR_CREATE_FLOW_TAG" = TAG;
        "MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX" = ARR_COUNTERS_DEVX;
        "MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET" = ARR_COUNTERS_DEVX_OFFSET;
        "MLX5_IB_ATTR_CREATE_FLOW_FLAGS" = FLAGS;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::destroy_flow {
        "MLX5_IB_ATTR_DESTROY_FLOW_HANDLE" = HANDLE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::create_modify_header {
        "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM" = ACTIONS_PRM;
        "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE" = FT_TYPE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::create_packet_reformat {
        "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE" = TYPE;
        "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE" = FT_TYPE;
        "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF" = DATA_BUF;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::query_context {
        "MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX" = RESP_UCTX;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::query_port {
        "MLX5_IB_ATTR_QUERY_PORT_PORT_NUM" = QUERY_PORT_PORT_NUM;
        "MLX5_IB_ATTR_QUERY_PORT" = QUERY_PORT;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::query_pd {
        "MLX5_IB_ATTR_QUERY_PD_HANDLE" = HANDLE;
        "MLX5_IB_ATTR_QUERY_PD_RESP_PDN" = RESP_PDN;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::alloc_dm {
        "MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET" = RESP_START_OFFSET;
        "MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX" = RESP_PAGE_INDEX;
        "MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE" = REQ_TYPE;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::dm_map_op_addr {
        "MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE" = REQ_HANDLE;
        "MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP" = REQ_OP;
        "MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET" = RESP_START_OFFSET;
        "MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX" = RESP_PAGE_INDEX;
    });
    numbers!(golden, pollux_mlx5_abi::kernel::attribute::query_dm {
        "MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE" = REQ_HANDLE;
        "MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET" = RESP_START_OFFSET;
        "MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX" = RESP_PAGE_INDEX;
        "MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH" = RESP_LENGTH;
    });
}
