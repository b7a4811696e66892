use pollux_mlx5_abi::cqe::{self, Layer3, Layer4, MiniFormat};
use pollux_mlx5_abi::doorbell;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{self, Completion, Fence};

use crate::{Golden, numbers};

pub(crate) fn user(golden: &mut Golden) {
    numbers!(golden, pollux_mlx5_abi::opcode::send {
        "MLX5_OPCODE_NOP" = NOP;
        "MLX5_OPCODE_SEND_INVAL" = SEND_INVAL;
        "MLX5_OPCODE_RDMA_WRITE" = RDMA_WRITE;
        "MLX5_OPCODE_RDMA_WRITE_IMM" = RDMA_WRITE_IMM;
        "MLX5_OPCODE_SEND" = SEND;
        "MLX5_OPCODE_SEND_IMM" = SEND_IMM;
        "MLX5_OPCODE_TSO" = TSO;
        "MLX5_OPCODE_RDMA_READ" = RDMA_READ;
        "MLX5_OPCODE_ATOMIC_CS" = ATOMIC_CS;
        "MLX5_OPCODE_ATOMIC_FA" = ATOMIC_FA;
        "MLX5_OPCODE_ATOMIC_MASKED_CS" = ATOMIC_MASKED_CS;
        "MLX5_OPCODE_ATOMIC_MASKED_FA" = ATOMIC_MASKED_FA;
        "MLX5_OPCODE_LOCAL_INVAL" = LOCAL_INVAL;
        "MLX5_OPCODE_CONFIG_CMD" = CONFIG_CMD;
        "MLX5_OPCODE_SET_PSV" = SET_PSV;
        "MLX5_OPCODE_UMR" = UMR;
        "MLX5_OPCODE_TAG_MATCHING" = TAG_MATCHING;
        "MLX5_OPCODE_FLOW_TBL_ACCESS" = FLOW_TBL_ACCESS;
        "MLX5_OPCODE_MMO" = MMO;
    });
    numbers!(golden, pollux_mlx5_abi::opcode::completion {
        "MLX5_CQE_REQ" = REQUESTER;
        "MLX5_CQE_RESP_WR_IMM" = RESPONDER_RDMA_WRITE_IMM;
        "MLX5_CQE_RESP_SEND" = RESPONDER_SEND;
        "MLX5_CQE_RESP_SEND_IMM" = RESPONDER_SEND_IMM;
        "MLX5_CQE_RESP_SEND_INV" = RESPONDER_SEND_INVAL;
        "MLX5_CQE_RESIZE_CQ" = RESIZE_CQ;
        "MLX5_CQE_NO_PACKET" = NO_PACKET;
        "MLX5_CQE_SIG_ERR" = SIGNATURE_ERROR;
        "MLX5_CQE_REQ_ERR" = REQUESTER_ERROR;
        "MLX5_CQE_RESP_ERR" = RESPONDER_ERROR;
        "MLX5_CQE_INVALID" = INVALID;
    });
    for code in Syndrome::KNOWN {
        let name = Syndrome { code: *code, vendor: 0 }.name().expect("a known code has a name");
        golden.same("const", &format!("MLX5_CQE_SYNDROME_{name}"), &[u64::from(*code)]);
    }
    numbers!(golden, pollux_mlx5_abi::cqe::status {
        "MLX5_CQE_L2_OK" = L2_OK;
        "MLX5_CQE_L3_OK" = L3_OK;
        "MLX5_CQE_L4_OK" = L4_OK;
    });
    numbers!(golden, pollux_mlx5_abi::wqe::umr_flag {
        "MLX5_WQE_UMR_CTRL_FLAG_INLINE" = INLINE;
        "MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE" = CHECK_FREE;
        "MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET" = TRANSLATION_OFFSET;
        "MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN" = CHECK_QPN;
    });
    numbers!(golden, pollux_mlx5_abi::wqe::mkey_access {
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ" = LOCAL_READ;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE" = LOCAL_WRITE;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ" = REMOTE_READ;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE" = REMOTE_WRITE;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC" = ATOMIC;
    });
    for (name, ours) in [
        ("MLX5_CQE_L3_HDR_TYPE_NONE", u64::from(Layer3::None as u8)),
        ("MLX5_CQE_L3_HDR_TYPE_IPV6", u64::from(Layer3::Ipv6 as u8)),
        ("MLX5_CQE_L3_HDR_TYPE_IPV4", u64::from(Layer3::Ipv4 as u8)),
        ("MLX5_CQE_OWNER_MASK", u64::from(cqe::OWNER)),
        ("MLX5_INVALID_LKEY", u64::from(wqe::INVALID_LKEY)),
        ("MLX5_INLINE_SEG", u64::from(wqe::INLINE)),
        ("MLX5_EXTENDED_UD_AV", u64::from(wqe::EXTENDED_UD_AV)),
        ("MLX5_WQE_CTRL_CQ_UPDATE", u64::from(Completion::Always as u8)),
        ("MLX5_WQE_CTRL_SOLICITED", u64::from(wqe::SOLICITED)),
        ("MLX5_WQE_CTRL_FENCE", u64::from(Fence::SmallAndFence as u8)),
        ("MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE", u64::from(Fence::InitiatorSmall as u8)),
        ("MLX5_WQE_MKEY_CONTEXT_FREE", u64::from(wqe::mkey_flag::FREE)),
        (
            "MLX5_CQ_DB_REQ_NOT_SOL",
            u64::from(doorbell::ArmWord { sequence: 0, solicited_only: true, consumer: 0 }.word()),
        ),
        (
            "MLX5_CQ_DB_REQ_NOT",
            u64::from(doorbell::ArmWord { sequence: 0, solicited_only: false, consumer: 0 }.word()),
        ),
    ] {
        golden.same("const", name, &[ours]);
    }
}

pub(crate) fn linux(golden: &mut Golden) {
    links(golden);
    numbers!(golden, pollux_mlx5_abi::opcode::send {
        "MLX5_OPCODE_LSO" = TSO;
        "MLX5_OPCODE_ENHANCED_MPSW" = ENHANCED_MPSW;
        "MLX5_OPCODE_ACCESS_ASO" = ACCESS_ASO;
        "MLX5_OPCODE_DUMP" = DUMP;
    });
    numbers!(golden, pollux_mlx5_abi::eqe::event {
        "MLX5_EVENT_TYPE_COMP" = COMP;
        "MLX5_EVENT_TYPE_PATH_MIG" = PATH_MIG;
        "MLX5_EVENT_TYPE_COMM_EST" = COMM_EST;
        "MLX5_EVENT_TYPE_SQ_DRAINED" = SQ_DRAINED;
        "MLX5_EVENT_TYPE_CQ_ERROR" = CQ_ERROR;
        "MLX5_EVENT_TYPE_WQ_CATAS_ERROR" = WQ_CATAS_ERROR;
        "MLX5_EVENT_TYPE_PATH_MIG_FAILED" = PATH_MIG_FAILED;
        "MLX5_EVENT_TYPE_INTERNAL_ERROR" = INTERNAL_ERROR;
        "MLX5_EVENT_TYPE_PORT_CHANGE" = PORT_CHANGE;
        "MLX5_EVENT_TYPE_CMD" = CMD;
        "MLX5_EVENT_TYPE_PAGE_REQUEST" = PAGE_REQUEST;
        "MLX5_EVENT_TYPE_PAGE_FAULT" = PAGE_FAULT;
        "MLX5_EVENT_TYPE_NIC_VPORT_CHANGE" = NIC_VPORT_CHANGE;
        "MLX5_EVENT_TYPE_ESW_FUNCTIONS_CHANGED" = ESW_FUNCTIONS_CHANGED;
        "MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR" = WQ_INVAL_REQ_ERROR;
        "MLX5_EVENT_TYPE_WQ_ACCESS_ERROR" = WQ_ACCESS_ERROR;
        "MLX5_EVENT_TYPE_SRQ_CATAS_ERROR" = SRQ_CATAS_ERROR;
        "MLX5_EVENT_TYPE_SRQ_LAST_WQE" = SRQ_LAST_WQE;
        "MLX5_EVENT_TYPE_SRQ_RQ_LIMIT" = SRQ_RQ_LIMIT;
        "MLX5_EVENT_TYPE_PORT_MODULE_EVENT" = PORT_MODULE_EVENT;
        "MLX5_EVENT_TYPE_TEMP_WARN_EVENT" = TEMP_WARN_EVENT;
        "MLX5_EVENT_TYPE_DB_BF_CONGESTION" = DB_BF_CONGESTION;
        "MLX5_EVENT_TYPE_DCT_DRAINED" = DCT_DRAINED;
        "MLX5_EVENT_TYPE_DCT_KEY_VIOLATION" = DCT_KEY_VIOLATION;
        "MLX5_EVENT_TYPE_GENERAL_EVENT" = GENERAL_EVENT;
        "MLX5_EVENT_TYPE_OBJECT_CHANGE" = OBJECT_CHANGE;
    });
    numbers!(golden, pollux_mlx5_abi::eqe::port_change {
        "MLX5_PORT_CHANGE_SUBTYPE_DOWN" = DOWN;
        "MLX5_PORT_CHANGE_SUBTYPE_ACTIVE" = ACTIVE;
        "MLX5_PORT_CHANGE_SUBTYPE_INITIALIZED" = INITIALIZED;
        "MLX5_PORT_CHANGE_SUBTYPE_LID" = LID;
        "MLX5_PORT_CHANGE_SUBTYPE_PKEY" = PKEY;
        "MLX5_PORT_CHANGE_SUBTYPE_GUID" = GUID;
        "MLX5_PORT_CHANGE_SUBTYPE_CLIENT_REREG" = CLIENT_REREG;
    });
    numbers!(golden, pollux_mlx5_abi::eqe::queue_kind {
        "MLX5_EVENT_QUEUE_TYPE_QP" = QP;
        "MLX5_EVENT_QUEUE_TYPE_RQ" = RQ;
        "MLX5_EVENT_QUEUE_TYPE_SQ" = SQ;
        "MLX5_EVENT_QUEUE_TYPE_DCT" = DCT;
    });
    numbers!(golden, pollux_mlx5_abi::cqe::format {
        "MLX5_NO_INLINE_DATA" = PLAIN;
        "MLX5_INLINE_DATA32_SEG" = INLINE_32;
        "MLX5_INLINE_DATA64_SEG" = INLINE_64;
        "MLX5_COMPRESSED" = COMPRESSED;
    });
    numbers!(golden, pollux_mlx5_abi::cqe::rss {
        "CQE_RSS_HTYPE_IP" = IP;
        "CQE_RSS_HTYPE_L4" = L4;
    });
    numbers!(golden, pollux_mlx5_abi::wqe::checksum {
        "MLX5_ETH_WQE_L3_INNER_CSUM" = L3_INNER;
        "MLX5_ETH_WQE_L4_INNER_CSUM" = L4_INNER;
        "MLX5_ETH_WQE_L3_CSUM" = L3;
        "MLX5_ETH_WQE_L4_CSUM" = L4;
    });
    numbers!(golden, pollux_mlx5_abi::wqe::parse {
        "MLX5_ETH_WQE_SWP_INNER_L3_IPV6" = INNER_L3_IPV6;
        "MLX5_ETH_WQE_SWP_INNER_L4_UDP" = INNER_L4_UDP;
        "MLX5_ETH_WQE_SWP_OUTER_L3_IPV6" = OUTER_L3_IPV6;
        "MLX5_ETH_WQE_SWP_OUTER_L4_UDP" = OUTER_L4_UDP;
    });
    numbers!(golden, pollux_mlx5_abi::wqe::mkey_mask {
        "MLX5_MKEY_MASK_LEN" = LEN;
        "MLX5_MKEY_MASK_PAGE_SIZE" = PAGE_SIZE;
        "MLX5_MKEY_MASK_START_ADDR" = START_ADDR;
        "MLX5_MKEY_MASK_PD" = PD;
        "MLX5_MKEY_MASK_EN_RINVAL" = EN_RINVAL;
        "MLX5_MKEY_MASK_EN_SIGERR" = EN_SIGERR;
        "MLX5_MKEY_MASK_BSF_EN" = BSF_EN;
        "MLX5_MKEY_MASK_KEY" = KEY;
        "MLX5_MKEY_MASK_QPN" = QPN;
        "MLX5_MKEY_MASK_LR" = LR;
        "MLX5_MKEY_MASK_LW" = LW;
        "MLX5_MKEY_MASK_RR" = RR;
        "MLX5_MKEY_MASK_RW" = RW;
        "MLX5_MKEY_MASK_A" = A;
        "MLX5_MKEY_MASK_RELAXED_ORDERING_WRITE" = RELAXED_ORDERING_WRITE;
        "MLX5_MKEY_MASK_FREE" = FREE;
        "MLX5_MKEY_MASK_RELAXED_ORDERING_READ" = RELAXED_ORDERING_READ;
    });
    numbers!(golden, pollux_mlx5_abi::command::qp::context::service {
        "MLX5_QP_ST_RC" = RC;
        "MLX5_QP_ST_UC" = UC;
        "MLX5_QP_ST_UD" = UD;
        "MLX5_QP_ST_XRC" = XRC;
        "MLX5_QP_ST_DCI" = DCI;
        "MLX5_QP_ST_DCT" = DCT;
        "MLX5_QP_ST_QP1" = QP1;
        "MLX5_QP_ST_RAW_ETHERTYPE" = RAW_ETHERTYPE;
        "MLX5_QP_ST_REG_UMR" = REG_UMR;
    });
    numbers!(golden, pollux_mlx5_abi::command::qp::context::state {
        "MLX5_QP_STATE_RST" = RST;
        "MLX5_QP_STATE_INIT" = INIT;
        "MLX5_QP_STATE_RTR" = RTR;
        "MLX5_QP_STATE_RTS" = RTS;
        "MLX5_QP_STATE_SQER" = SQER;
        "MLX5_QP_STATE_SQD" = SQD;
        "MLX5_QP_STATE_ERR" = ERR;
        "MLX5_QP_STATE_SQ_DRAINING" = SQ_DRAINING;
        "MLX5_QP_STATE_SUSPENDED" = SUSPENDED;
    });
    numbers!(golden, pollux_mlx5_abi::command::qp::context::migration {
        "MLX5_QP_PM_ARMED" = ARMED;
        "MLX5_QP_PM_REARM" = REARM;
        "MLX5_QP_PM_MIGRATED" = MIGRATED;
    });
    numbers!(golden, pollux_mlx5_abi::command::qp::context::receive {
        "MLX5_NON_ZERO_RQ" = OWN;
        "MLX5_SRQ_RQ" = SRQ;
        "MLX5_CRQ_RQ" = CRQ;
        "MLX5_ZERO_LEN_RQ" = NONE;
    });
    numbers!(golden, pollux_mlx5_abi::command::qp::context::optional {
        "MLX5_QP_OPTPAR_ALT_ADDR_PATH" = ALT_ADDR_PATH;
        "MLX5_QP_OPTPAR_RRE" = RRE;
        "MLX5_QP_OPTPAR_RAE" = RAE;
        "MLX5_QP_OPTPAR_RWE" = RWE;
        "MLX5_QP_OPTPAR_PKEY_INDEX" = PKEY_INDEX;
        "MLX5_QP_OPTPAR_Q_KEY" = Q_KEY;
        "MLX5_QP_OPTPAR_RNR_TIMEOUT" = RNR_TIMEOUT;
        "MLX5_QP_OPTPAR_PRIMARY_ADDR_PATH" = PRIMARY_ADDR_PATH;
        "MLX5_QP_OPTPAR_SRA_MAX" = SRA_MAX;
        "MLX5_QP_OPTPAR_RRA_MAX" = RRA_MAX;
        "MLX5_QP_OPTPAR_PM_STATE" = PM_STATE;
        "MLX5_QP_OPTPAR_RETRY_COUNT" = RETRY_COUNT;
        "MLX5_QP_OPTPAR_RNR_RETRY" = RNR_RETRY;
        "MLX5_QP_OPTPAR_ACK_TIMEOUT" = ACK_TIMEOUT;
        "MLX5_QP_OPTPAR_LAG_TX_AFF" = LAG_TX_AFF;
        "MLX5_QP_OPTPAR_PRI_PORT" = PRI_PORT;
        "MLX5_QP_OPTPAR_SRQN" = SRQN;
        "MLX5_QP_OPTPAR_CQN_RCV" = CQN_RCV;
        "MLX5_QP_OPTPAR_COUNTER_SET_ID" = COUNTER_SET_ID;
    });
    numbers!(golden, pollux_mlx5_abi::command::status {
        "MLX5_CMD_STAT_OK" = OK;
        "MLX5_CMD_STAT_INT_ERR" = INT_ERR;
        "MLX5_CMD_STAT_BAD_OP_ERR" = BAD_OP_ERR;
        "MLX5_CMD_STAT_BAD_PARAM_ERR" = BAD_PARAM_ERR;
        "MLX5_CMD_STAT_BAD_SYS_STATE_ERR" = BAD_SYS_STATE_ERR;
        "MLX5_CMD_STAT_BAD_RES_ERR" = BAD_RES_ERR;
        "MLX5_CMD_STAT_RES_BUSY" = RES_BUSY;
        "MLX5_CMD_STAT_LIM_ERR" = LIM_ERR;
        "MLX5_CMD_STAT_BAD_RES_STATE_ERR" = BAD_RES_STATE_ERR;
        "MLX5_CMD_STAT_IX_ERR" = IX_ERR;
        "MLX5_CMD_STAT_NO_RES_ERR" = NO_RES_ERR;
        "MLX5_CMD_STAT_BAD_QP_STATE_ERR" = BAD_QP_STATE_ERR;
        "MLX5_CMD_STAT_BAD_PKT_ERR" = BAD_PKT_ERR;
        "MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR" = BAD_SIZE_OUTS_CQES_ERR;
        "MLX5_CMD_STAT_BAD_INP_LEN_ERR" = BAD_INP_LEN_ERR;
        "MLX5_CMD_STAT_BAD_OUTP_LEN_ERR" = BAD_OUTP_LEN_ERR;
    });
    numbers!(golden, pollux_mlx5_abi::command::queue::delivery {
        "MLX5_CMD_DELIVERY_STAT_OK" = OK;
        "MLX5_CMD_DELIVERY_STAT_SIGNAT_ERR" = SIGNATURE_ERR;
        "MLX5_CMD_DELIVERY_STAT_TOK_ERR" = TOKEN_ERR;
        "MLX5_CMD_DELIVERY_STAT_BAD_BLK_NUM_ERR" = BAD_BLK_NUM_ERR;
        "MLX5_CMD_DELIVERY_STAT_OUT_PTR_ALIGN_ERR" = OUT_PTR_ALIGN_ERR;
        "MLX5_CMD_DELIVERY_STAT_IN_PTR_ALIGN_ERR" = IN_PTR_ALIGN_ERR;
        "MLX5_CMD_DELIVERY_STAT_FW_ERR" = FW_ERR;
        "MLX5_CMD_DELIVERY_STAT_IN_LENGTH_ERR" = IN_LENGTH_ERR;
        "MLX5_CMD_DELIVERY_STAT_OUT_LENGTH_ERR" = OUT_LENGTH_ERR;
        "MLX5_CMD_DELIVERY_STAT_RES_FLD_NOT_CLR_ERR" = RES_FLD_NOT_CLR_ERR;
        "MLX5_CMD_DELIVERY_STAT_CMD_DESCR_ERR" = CMD_DESCR_ERR;
    });
    numbers!(golden, pollux_mlx5_abi::command::register::id {
        "MLX5_REG_PCAP" = PCAP;
        "MLX5_REG_PMTU" = PMTU;
        "MLX5_REG_PTYS" = PTYS;
        "MLX5_REG_PAOS" = PAOS;
        "MLX5_REG_PFCC" = PFCC;
        "MLX5_REG_PPCNT" = PPCNT;
        "MLX5_REG_PBMC" = PBMC;
        "MLX5_REG_PMLP" = PMLP;
        "MLX5_REG_PCMR" = PCMR;
        "MLX5_REG_PDDR" = PDDR;
        "MLX5_REG_PCAM" = PCAM;
        "MLX5_REG_NODE_DESC" = NODE_DESC;
        "MLX5_REG_HOST_ENDIANNESS" = HOST_ENDIANNESS;
        "MLX5_REG_MCAM" = MCAM;
        "MLX5_REG_MCIA" = MCIA;
        "MLX5_REG_MPCNT" = MPCNT;
        "MLX5_REG_MCQS" = MCQS;
        "MLX5_REG_MCQI" = MCQI;
    });
    numbers!(golden, pollux_mlx5_abi::command::management::port_group {
        "MLX5_PCAM_REGS_5000_TO_507F" = REGS_5000_TO_507F;
    });
    numbers!(golden, pollux_mlx5_abi::command::management::management_group {
        "MLX5_MCAM_REGS_FIRST_128" = FIRST_128;
    });
    numbers!(golden, pollux_mlx5_abi::command::management::feature_group {
        "MLX5_PCAM_FEATURE_ENHANCED_FEATURES" = ENHANCED_FEATURES;
        "MLX5_MCAM_FEATURE_ENHANCED_FEATURES" = ENHANCED_FEATURES;
    });
    numbers!(golden, pollux_mlx5_abi::command::register::protocol {
        "MLX5_PTYS_IB" = IB;
        "MLX5_PTYS_EN" = EN;
    });
    numbers!(golden, pollux_mlx5_abi::command::register::port_status {
        "MLX5_PORT_UP" = UP;
        "MLX5_PORT_DOWN" = DOWN;
    });
    numbers!(golden, pollux_mlx5_abi::command::register::counter_group {
        "MLX5_IEEE_802_3_COUNTERS_GROUP" = IEEE_802_3;
        "MLX5_RFC_2863_COUNTERS_GROUP" = RFC_2863;
        "MLX5_RFC_2819_COUNTERS_GROUP" = RFC_2819;
        "MLX5_RFC_3635_COUNTERS_GROUP" = RFC_3635;
        "MLX5_ETHERNET_EXTENDED_COUNTERS_GROUP" = ETHERNET_EXTENDED;
        "MLX5_PER_PRIORITY_COUNTERS_GROUP" = PER_PRIORITY;
        "MLX5_PER_TRAFFIC_CLASS_COUNTERS_GROUP" = PER_TRAFFIC_CLASS;
        "MLX5_PHYSICAL_LAYER_COUNTERS_GROUP" = PHYSICAL_LAYER;
    });
    numbers!(golden, pollux_mlx5_abi::command::flow::criteria {
        "MLX5_MATCH_OUTER_HEADERS" = OUTER_HEADERS;
        "MLX5_MATCH_MISC_PARAMETERS" = MISC_PARAMETERS;
        "MLX5_MATCH_INNER_HEADERS" = INNER_HEADERS;
        "MLX5_MATCH_MISC_PARAMETERS_2" = MISC_PARAMETERS_2;
        "MLX5_MATCH_MISC_PARAMETERS_3" = MISC_PARAMETERS_3;
        "MLX5_MATCH_MISC_PARAMETERS_4" = MISC_PARAMETERS_4;
        "MLX5_MATCH_MISC_PARAMETERS_5" = MISC_PARAMETERS_5;
    });
    numbers!(golden, pollux_mlx5_abi::command::tir::hash_field {
        "MLX5_HASH_FIELD_SEL_SRC_IP" = SRC_IP;
        "MLX5_HASH_FIELD_SEL_DST_IP" = DST_IP;
        "MLX5_HASH_FIELD_SEL_L4_SPORT" = L4_SPORT;
        "MLX5_HASH_FIELD_SEL_L4_DPORT" = L4_DPORT;
        "MLX5_HASH_FIELD_SEL_IPSEC_SPI" = IPSEC_SPI;
    });
    numbers!(golden, pollux_mlx5_abi::command::tir::protocol {
        "MLX5_L3_PROT_TYPE_IPV4" = IPV4;
        "MLX5_L3_PROT_TYPE_IPV6" = IPV6;
        "MLX5_L4_PROT_TYPE_TCP" = TCP;
        "MLX5_L4_PROT_TYPE_UDP" = UDP;
    });
    numbers!(golden, pollux_mlx5_abi::command::cq::stride {
        "CQE_STRIDE_64" = BYTES_64;
        "CQE_STRIDE_128" = BYTES_128;
        "CQE_STRIDE_128_PAD" = BYTES_128_PAD;
    });
    numbers!(golden, pollux_mlx5_abi::command::cq::modify {
        "MLX5_CQ_MODIFY_PERIOD" = PERIOD;
        "MLX5_CQ_MODIFY_COUNT" = COUNT;
        "MLX5_CQ_MODIFY_OVERRUN" = OVERRUN;
    });
    numbers!(golden, pollux_mlx5_abi::command::wq {
        "MLX5_MPWQE_LOG_STRIDE_SZ_BASE" = LOG_STRIDE_BYTES_BASE;
        "MLX5_MPWQE_LOG_NUM_STRIDES_BASE" = LOG_STRIDES_BASE;
    });
    numbers!(golden, pollux_mlx5_abi::command::vport::state {
        "VPORT_STATE_DOWN" = DOWN;
        "VPORT_STATE_UP" = UP;
    });
    numbers!(golden, pollux_mlx5_abi::command::vport::address_list {
        "MLX5_NVPRT_LIST_TYPE_UC" = UNICAST;
        "MLX5_NVPRT_LIST_TYPE_MC" = MULTICAST;
        "MLX5_NVPRT_LIST_TYPE_VLAN" = VLAN;
    });
    numbers!(golden, pollux_mlx5_abi::command::start::page_request {
        "MLX5_PAGES_CANT_GIVE" = CANNOT_GIVE;
        "MLX5_PAGES_GIVE" = GIVE;
        "MLX5_PAGES_TAKE" = TAKE;
    });
    numbers!(golden, pollux_mlx5_abi::command::flow::table {
        "FS_FT_NIC_RX" = NIC_RX;
        "FS_FT_NIC_TX" = NIC_TX;
        "FS_FT_ESW_EGRESS_ACL" = ESW_EGRESS_ACL;
        "FS_FT_ESW_INGRESS_ACL" = ESW_INGRESS_ACL;
        "FS_FT_FDB" = FDB;
        "FS_FT_SNIFFER_RX" = SNIFFER_RX;
        "FS_FT_SNIFFER_TX" = SNIFFER_TX;
        "FS_FT_RDMA_RX" = RDMA_RX;
        "FS_FT_RDMA_TX" = RDMA_TX;
    });
    numbers!(golden, pollux_mlx5_abi::command::queue {
        "CMD_OWNER_HW" = OWNER;
    });
    numbers!(golden, pollux_mlx5_abi::command::vport::admin {
        "MLX5_VPORT_ADMIN_STATE_DOWN" = DOWN;
        "MLX5_VPORT_ADMIN_STATE_UP" = UP;
        "MLX5_VPORT_ADMIN_STATE_AUTO" = AUTO;
    });
    numbers!(golden, pollux_mlx5_abi::command::vport::roce_version {
        "MLX5_ROCE_VERSION_1" = V1;
        "MLX5_ROCE_VERSION_2" = V2;
    });
    numbers!(golden, pollux_mlx5_abi::command::vport::roce_l3 {
        "MLX5_ROCE_L3_TYPE_IPV4" = IPV4;
        "MLX5_ROCE_L3_TYPE_IPV6" = IPV6;
    });
    numbers!(golden, pollux_mlx5_abi::caps::kind {
        "MLX5_CAP_GENERAL" = GENERAL;
        "MLX5_CAP_ETHERNET_OFFLOADS" = ETHERNET_OFFLOADS;
        "MLX5_CAP_ODP" = ODP;
        "MLX5_CAP_ATOMIC" = ATOMIC;
        "MLX5_CAP_ROCE" = ROCE;
        "MLX5_CAP_FLOW_TABLE" = FLOW_TABLE;
        "MLX5_CAP_ESWITCH_FLOW_TABLE" = ESWITCH_FLOW_TABLE;
        "MLX5_CAP_ESWITCH" = ESWITCH;
        "MLX5_CAP_QOS" = QOS;
        "MLX5_CAP_DEV_MEM" = DEV_MEM;
        "MLX5_CAP_GENERAL_2" = GENERAL_2;
    });
    numbers!(golden, pollux_mlx5_abi::caps {
        "HCA_CAP_OPMOD_GET_MAX" = AT_MOST;
        "HCA_CAP_OPMOD_GET_CUR" = NOW;
    });
    numbers!(golden, pollux_mlx5_abi::caps::general::port_type {
        "MLX5_CAP_PORT_TYPE_IB" = IB;
        "MLX5_CAP_PORT_TYPE_ETH" = ETH;
    });
    numbers!(golden, pollux_mlx5_abi::caps::ethernet::inline_mode {
        "MLX5_CAP_INLINE_MODE_L2" = L2;
        "MLX5_CAP_INLINE_MODE_VPORT_CONTEXT" = VPORT_CONTEXT;
        "MLX5_CAP_INLINE_MODE_NOT_REQUIRED" = NOT_REQUIRED;
    });
    numbers!(golden, pollux_mlx5_abi::caps::ethernet::min_inline {
        "MLX5_INLINE_MODE_NONE" = NONE;
        "MLX5_INLINE_MODE_L2" = L2;
        "MLX5_INLINE_MODE_IP" = IP;
        "MLX5_INLINE_MODE_TCP_UDP" = TCP_UDP;
    });
    numbers!(golden, pollux_mlx5_abi::caps::roce::version {
        "MLX5_ROCE_VERSION_1_CAP" = V1;
        "MLX5_ROCE_VERSION_2_CAP" = V2;
    });
    numbers!(golden, pollux_mlx5_abi::caps::roce::l3 {
        "MLX5_ROCE_L3_TYPE_IPV4_CAP" = IPV4;
        "MLX5_ROCE_L3_TYPE_IPV6_CAP" = IPV6;
    });
    for (name, ours) in [
        ("MLX5_PCI_CMD_XPORT", u64::from(pollux_mlx5_abi::command::queue::PCI)),
        ("MLX5_ETH_WQE_INSERT_VLAN", u64::from(wqe::INSERT_VLAN)),
        ("MLX5_ETH_WQE_SVLAN", u64::from(wqe::INSERT_SVLAN)),
        ("MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE", u64::from(Completion::AlwaysAndEvent as u8)),
        ("MLX5_FENCE_MODE_NONE", u64::from(Fence::None as u8)),
        ("MLX5_FENCE_MODE_FENCE", u64::from(Fence::Fence as u8)),
        ("MLX5_FENCE_MODE_STRONG_ORDERING", u64::from(Fence::StrongOrdering as u8)),
        ("CQE_L4_HDR_TYPE_NONE", u64::from(Layer4::None as u8)),
        ("CQE_L4_HDR_TYPE_TCP_NO_ACK", u64::from(Layer4::Tcp as u8)),
        ("CQE_L4_HDR_TYPE_UDP", u64::from(Layer4::Udp as u8)),
        ("CQE_L4_HDR_TYPE_TCP_ACK_NO_DATA", u64::from(Layer4::TcpAckNoData as u8)),
        ("CQE_L4_HDR_TYPE_TCP_ACK_AND_DATA", u64::from(Layer4::TcpAckAndData as u8)),
        ("MLX5_CQE_FORMAT_CSUM", u64::from(MiniFormat::Checksum as u8)),
        ("MLX5_CQE_FORMAT_CSUM_STRIDX", u64::from(MiniFormat::ChecksumStride as u8)),
    ] {
        golden.same("const", name, &[ours]);
    }
}

/// Masks of which the header gives the places of the bits.
fn links(golden: &mut Golden) {
    use pollux_mlx5_abi::command::register::{ext_link_mode as ext, link_mode as mode};
    for (name, ours) in [
        ("MLX5E_1000BASE_CX_SGMII", mode::MODE_1000BASE_CX_SGMII),
        ("MLX5E_1000BASE_KX", mode::MODE_1000BASE_KX),
        ("MLX5E_10GBASE_CX4", mode::MODE_10GBASE_CX4),
        ("MLX5E_10GBASE_KX4", mode::MODE_10GBASE_KX4),
        ("MLX5E_10GBASE_KR", mode::MODE_10GBASE_KR),
        ("MLX5E_20GBASE_KR2", mode::MODE_20GBASE_KR2),
        ("MLX5E_40GBASE_CR4", mode::MODE_40GBASE_CR4),
        ("MLX5E_40GBASE_KR4", mode::MODE_40GBASE_KR4),
        ("MLX5E_56GBASE_R4", mode::MODE_56GBASE_R4),
        ("MLX5E_10GBASE_CR", mode::MODE_10GBASE_CR),
        ("MLX5E_10GBASE_SR", mode::MODE_10GBASE_SR),
        ("MLX5E_10GBASE_ER", mode::MODE_10GBASE_ER),
        ("MLX5E_40GBASE_SR4", mode::MODE_40GBASE_SR4),
        ("MLX5E_40GBASE_LR4", mode::MODE_40GBASE_LR4),
        ("MLX5E_50GBASE_SR2", mode::MODE_50GBASE_SR2),
        ("MLX5E_100GBASE_CR4", mode::MODE_100GBASE_CR4),
        ("MLX5E_100GBASE_SR4", mode::MODE_100GBASE_SR4),
        ("MLX5E_100GBASE_KR4", mode::MODE_100GBASE_KR4),
        ("MLX5E_100GBASE_LR4", mode::MODE_100GBASE_LR4),
        ("MLX5E_100BASE_TX", mode::MODE_100BASE_TX),
        ("MLX5E_1000BASE_T", mode::MODE_1000BASE_T),
        ("MLX5E_10GBASE_T", mode::MODE_10GBASE_T),
        ("MLX5E_25GBASE_CR", mode::MODE_25GBASE_CR),
        ("MLX5E_25GBASE_KR", mode::MODE_25GBASE_KR),
        ("MLX5E_25GBASE_SR", mode::MODE_25GBASE_SR),
        ("MLX5E_50GBASE_CR2", mode::MODE_50GBASE_CR2),
        ("MLX5E_50GBASE_KR2", mode::MODE_50GBASE_KR2),
        ("MLX5E_SGMII_100M", ext::SGMII_100M),
        ("MLX5E_1000BASE_X_SGMII", ext::MODE_1000BASE_X_SGMII),
        ("MLX5E_5GBASE_R", ext::MODE_5GBASE_R),
        ("MLX5E_10GBASE_XFI_XAUI_1", ext::MODE_10GBASE_XFI_XAUI_1),
        ("MLX5E_40GBASE_XLAUI_4_XLPPI_4", ext::MODE_40GBASE_XLAUI_4_XLPPI_4),
        ("MLX5E_25GAUI_1_25GBASE_CR_KR", ext::MODE_25GAUI_1_25GBASE_CR_KR),
        ("MLX5E_50GAUI_2_LAUI_2_50GBASE_CR2_KR2", ext::MODE_50GAUI_2_LAUI_2_50GBASE_CR2_KR2),
        ("MLX5E_50GAUI_1_LAUI_1_50GBASE_CR_KR", ext::MODE_50GAUI_1_LAUI_1_50GBASE_CR_KR),
        ("MLX5E_CAUI_4_100GBASE_CR4_KR4", ext::CAUI_4_100GBASE_CR4_KR4),
        ("MLX5E_100GAUI_2_100GBASE_CR2_KR2", ext::MODE_100GAUI_2_100GBASE_CR2_KR2),
        ("MLX5E_100GAUI_1_100GBASE_CR_KR", ext::MODE_100GAUI_1_100GBASE_CR_KR),
        ("MLX5E_200GAUI_4_200GBASE_CR4_KR4", ext::MODE_200GAUI_4_200GBASE_CR4_KR4),
        ("MLX5E_200GAUI_2_200GBASE_CR2_KR2", ext::MODE_200GAUI_2_200GBASE_CR2_KR2),
        ("MLX5E_400GAUI_8", ext::MODE_400GAUI_8),
        ("MLX5E_400GAUI_4_400GBASE_CR4_KR4", ext::MODE_400GAUI_4_400GBASE_CR4_KR4),
    ] {
        golden.same("const", name, &[ours.trailing_zeros().into()]);
    }
}
