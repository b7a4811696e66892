use pollux_mlx5_abi::command::flow::modify;
use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::{self, hairpin, opcode, tir};

use crate::{Golden, numbers};

pub(crate) fn compare(golden: &mut Golden) {
    for layout in command::LAYOUTS.iter().copied().flatten() {
        golden.same("struct", layout.name, &[layout.bytes as u64 * 8]);
        for place in layout.fields {
            let name = format!("{}.{}", layout.name, place.manual_name());
            golden.same("field", &name, &[place.bit.into(), place.bits.into()]);
        }
    }
    for (code, name) in opcode::NAMES {
        golden.same("const", &format!("MLX5_CMD_OP_{name}"), &[(*code).into()]);
    }
    places(golden);
    codes(golden);
}

/// Masks of which the header gives the places of the bits.
fn places(golden: &mut Golden) {
    for (name, ours) in [
        ("MLX5_SET_FTE_MODIFY_ENABLE_MASK_ACTION", modify::ACTION),
        ("MLX5_SET_FTE_MODIFY_ENABLE_MASK_FLOW_TAG", modify::FLOW_TAG),
        ("MLX5_SET_FTE_MODIFY_ENABLE_MASK_DESTINATION_LIST", modify::DESTINATION_LIST),
        ("MLX5_SET_FTE_MODIFY_ENABLE_MASK_FLOW_COUNTERS", modify::FLOW_COUNTERS),
    ] {
        golden.same("const", name, &[ours.trailing_zeros().into()]);
    }
    for (name, ours) in [
        ("packet_merge", tir::modify::LRO),
        ("hash", tir::modify::HASH),
        ("self_lb_en", tir::modify::SELF_LB_EN),
    ] {
        golden.same("field", &format!("modify_tir_bitmask.{name}"), &[ours.leading_zeros().into(), 1]);
    }
}

/// Where memory is named by umem, and what else only DPDK's header has.
pub(crate) fn places_by_umem(golden: &mut Golden) {
    macro_rules! places {
        ($($name:literal = $ours:ident;)+) => {
            $(golden.same("field", $name, &[place::$ours.bit().into(), place::$ours.bits().into()]);)+
        };
    }
    places! {
        "qpc.dbr_umem_id" = QP_RECORD_UMEM;
        "create_qp_in.wq_umem_offset" = QP_OFFSET;
        "create_qp_in.wq_umem_id" = QP_UMEM;
        "wq.dbr_umem_id" = WQ_RECORD_UMEM;
        "wq.wq_umem_id" = WQ_UMEM;
        "wq.wq_umem_offset" = WQ_OFFSET;
        "cqc.dbr_umem_id" = CQ_RECORD_UMEM;
        "cqc.mini_cqe_res_format_ext" = CQ_MINI_FORMAT_EXT;
        "create_cq_in.cq_umem_offset" = CQ_OFFSET;
        "create_cq_in.cq_umem_id" = CQ_UMEM;
        "create_mkey_in.mkey_umem_id" = MKEY_UMEM;
        "create_mkey_in.mkey_umem_offset" = MKEY_OFFSET;
        "cmd_hca_cap.mini_cqe_resp_l3_l4_tag" = CAP_MINI_HEADERS;
        "cmd_hca_cap.mini_cqe_resp_flow_tag" = CAP_MINI_FLOW_TAG;
    }
}

/// Where the memory of hairpin queues is, of which only DPDK's header tells.
pub(crate) fn hairpin_memory(golden: &mut Golden) {
    for (name, bit, bits) in [
        (
            "cmd_hca_cap_2.hairpin_sq_wqe_bb_size",
            hairpin::SQ_WQE_BB_SIZE.bit(),
            hairpin::SQ_WQE_BB_SIZE.bits(),
        ),
        (
            "cmd_hca_cap_2.hairpin_sq_wq_in_host_mem",
            hairpin::SQ_WQ_IN_HOST_MEM.bit(),
            hairpin::SQ_WQ_IN_HOST_MEM.bits(),
        ),
        (
            "cmd_hca_cap_2.hairpin_data_buffer_locked",
            hairpin::DATA_BUFFER_LOCKED.bit(),
            hairpin::DATA_BUFFER_LOCKED.bits(),
        ),
        ("rqc.hairpin_data_buffer_type", hairpin::DATA_BUFFER_TYPE.bit(), hairpin::DATA_BUFFER_TYPE.bits()),
        ("sqc.hairpin_wq_buffer_type", hairpin::WQ_BUFFER_TYPE.bit(), hairpin::WQ_BUFFER_TYPE.bits()),
    ] {
        golden.same("field", name, &[bit.into(), bits.into()]);
    }
}

fn codes(golden: &mut Golden) {
    numbers!(golden, pollux_mlx5_abi::command::mkey::access_mode {
        "MLX5_MKC_ACCESS_MODE_PA" = PA;
        "MLX5_MKC_ACCESS_MODE_MTT" = MTT;
        "MLX5_MKC_ACCESS_MODE_KLMS" = KLM;
        "MLX5_MKC_ACCESS_MODE_KSM" = KSM;
        "MLX5_MKC_ACCESS_MODE_SW_ICM" = SW_ICM;
        "MLX5_MKC_ACCESS_MODE_MEMIC" = MEMIC;
    });
    numbers!(golden, pollux_mlx5_abi::command::eq::state {
        "MLX5_EQC_ST_ARMED" = ARMED;
        "MLX5_EQC_ST_FIRED" = FIRED;
    });
    numbers!(golden, pollux_mlx5_abi::command::cq::state {
        "MLX5_CQC_ST_SOLICITED_NOTIFICATION_REQUEST_ARMED" = SOLICITED_NOTIFICATION_REQUEST_ARMED;
        "MLX5_CQC_ST_NOTIFICATION_REQUEST_ARMED" = NOTIFICATION_REQUEST_ARMED;
        "MLX5_CQC_ST_FIRED" = FIRED;
    });
    numbers!(golden, pollux_mlx5_abi::command::wq::kind {
        "MLX5_WQ_TYPE_LINKED_LIST" = LINKED_LIST;
        "MLX5_WQ_TYPE_CYCLIC" = CYCLIC;
        "MLX5_WQ_TYPE_LINKED_LIST_STRIDING_RQ" = LINKED_LIST_STRIDING_RQ;
        "MLX5_WQ_TYPE_CYCLIC_STRIDING_RQ" = CYCLIC_STRIDING_RQ;
    });
    numbers!(golden, pollux_mlx5_abi::command::wq::end_padding {
        "MLX5_WQ_END_PAD_MODE_NONE" = NONE;
        "MLX5_WQ_END_PAD_MODE_ALIGN" = ALIGN;
    });
    numbers!(golden, pollux_mlx5_abi::command::wq::state {
        "MLX5_SQC_STATE_RST" = RESET;
        "MLX5_SQC_STATE_RDY" = READY;
        "MLX5_SQC_STATE_ERR" = ERROR;
    });
    numbers!(golden, pollux_mlx5_abi::command::wq::state {
        "MLX5_RQC_STATE_RST" = RESET;
        "MLX5_RQC_STATE_RDY" = READY;
        "MLX5_RQC_STATE_ERR" = ERROR;
    });
    numbers!(golden, pollux_mlx5_abi::command::rq::memory {
        "MLX5_RQC_MEM_RQ_TYPE_MEMORY_RQ_INLINE" = INLINE;
        "MLX5_RQC_MEM_RQ_TYPE_MEMORY_RQ_RMP" = RMP;
    });
    numbers!(golden, pollux_mlx5_abi::command::rq::modify {
        "MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD" = VSD;
        "MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_SCATTER_FCS" = SCATTER_FCS;
        "MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_RQ_COUNTER_SET_ID" = COUNTER_SET_ID;
    });
    numbers!(golden, pollux_mlx5_abi::command::tir::dispatch {
        "MLX5_TIRC_DISP_TYPE_DIRECT" = DIRECT;
        "MLX5_TIRC_DISP_TYPE_INDIRECT" = INDIRECT;
    });
    numbers!(golden, pollux_mlx5_abi::command::tir::hash {
        "MLX5_RX_HASH_FN_NONE" = NONE;
        "MLX5_RX_HASH_FN_INVERTED_XOR8" = INVERTED_XOR8;
        "MLX5_RX_HASH_FN_TOEPLITZ" = TOEPLITZ;
    });
    numbers!(golden, pollux_mlx5_abi::command::tir::loopback {
        "MLX5_TIRC_SELF_LB_BLOCK_BLOCK_UNICAST" = ALLOW_UNICAST;
        "MLX5_TIRC_SELF_LB_BLOCK_BLOCK_MULTICAST" = ALLOW_MULTICAST;
    });
    numbers!(golden, pollux_mlx5_abi::command::flow::action {
        "MLX5_FLOW_CONTEXT_ACTION_ALLOW" = ALLOW;
        "MLX5_FLOW_CONTEXT_ACTION_DROP" = DROP;
        "MLX5_FLOW_CONTEXT_ACTION_FWD_DEST" = FWD_DEST;
        "MLX5_FLOW_CONTEXT_ACTION_COUNT" = COUNT;
        "MLX5_FLOW_CONTEXT_ACTION_PACKET_REFORMAT" = PACKET_REFORMAT;
        "MLX5_FLOW_CONTEXT_ACTION_DECAP" = DECAP;
        "MLX5_FLOW_CONTEXT_ACTION_MOD_HDR" = MOD_HDR;
        "MLX5_FLOW_CONTEXT_ACTION_VLAN_POP" = VLAN_POP;
        "MLX5_FLOW_CONTEXT_ACTION_VLAN_PUSH" = VLAN_PUSH;
        "MLX5_FLOW_CONTEXT_ACTION_VLAN_POP_2" = VLAN_POP_2;
        "MLX5_FLOW_CONTEXT_ACTION_VLAN_PUSH_2" = VLAN_PUSH_2;
    });
    numbers!(golden, pollux_mlx5_abi::command::flow::destination {
        "MLX5_IFC_FLOW_DESTINATION_TYPE_VPORT" = VPORT;
        "MLX5_IFC_FLOW_DESTINATION_TYPE_FLOW_TABLE" = FLOW_TABLE;
        "MLX5_IFC_FLOW_DESTINATION_TYPE_TIR" = TIR;
        "MLX5_IFC_FLOW_DESTINATION_TYPE_FLOW_SAMPLER" = FLOW_SAMPLER;
        "MLX5_IFC_FLOW_DESTINATION_TYPE_UPLINK" = UPLINK;
    });
    numbers!(golden, pollux_mlx5_abi::command::start::page_phase {
        "MLX5_QUERY_PAGES_IN_OP_MOD_BOOT_PAGES" = BOOT;
        "MLX5_QUERY_PAGES_IN_OP_MOD_INIT_PAGES" = INIT;
        "MLX5_QUERY_PAGES_IN_OP_MOD_REGULAR_PAGES" = REGULAR;
    });
    numbers!(golden, pollux_mlx5_abi::command::register::access {
        "MLX5_ACCESS_REGISTER_IN_OP_MOD_WRITE" = WRITE;
        "MLX5_ACCESS_REGISTER_IN_OP_MOD_READ" = READ;
    });
    numbers!(golden, pollux_mlx5_abi::command::user::capability {
        "MLX5_UCTX_CAP_RAW_TX" = RAW_TX;
        "MLX5_UCTX_CAP_INTERNAL_DEV_RES" = INTERNAL_DEV_RES;
    });
}
