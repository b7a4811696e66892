use std::mem::offset_of;

use pollux_mlx5_abi::command::queue::{self, init_segment};
use pollux_mlx5_abi::{cqe, doorbell, eqe, wqe};

use crate::Golden;

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

pub(crate) fn user(golden: &mut Golden) {
    same!(golden, wqe::Control, "mlx5_wqe_ctrl_seg", { opmod_idx_opcode, qpn_ds, signature, fm_ce_se, imm });
    same!(golden, wqe::Data, "mlx5_wqe_data_seg", { byte_count, lkey, addr });
    same!(golden, wqe::InlineHeader, "mlx5_wqe_inl_data_seg", { byte_count });
    same!(golden, wqe::NextSegment, "mlx5_wqe_srq_next_seg", { next_wqe_index, signature });
    same!(golden, wqe::StridingReceive, "mlx5_mprq_wqe", { next = "nseg", data = "dseg" });
    same!(golden, wqe::AddressVector, "mlx5_wqe_av", { key = "key.dc_key", dqp_dct, stat_rate_sl, fl_mlid, rlid, rmac, tclass, hop_limit, grh_gid_fl, rgid });
    same!(golden, wqe::RemoteAddress, "mlx5_wqe_raddr_seg", { raddr, rkey });
    same!(golden, wqe::Atomic, "mlx5_wqe_atomic_seg", { swap_add, compare });
    same!(golden, wqe::UmrControl, "mlx5_wqe_umr_ctrl_seg", { flags, klm_octowords, translation_offset, mkey_mask });
    same!(golden, wqe::MkeyContext, "mlx5_wqe_mkey_context_seg", { free, access_flags, sf, qpn_mkey, flags_pd, start_addr, len, bsf_octword_size, translations_octword_size, log_page_size });
    same!(golden, wqe::Klm, "mlx5_wqe_umr_klm_seg", { byte_count, mkey, address });
    same!(golden, wqe::RepeatBlock, "mlx5_wqe_umr_repeat_block_seg", { byte_count, op, repeat_count, num_ent });
    same!(golden, wqe::RepeatEntry, "mlx5_wqe_umr_repeat_ent_seg", { stride, byte_count, memkey, va });
    same!(golden, cqe::Cqe64, "mlx5_cqe64", { wqe_id, ml_path, slid, flags_rqpn, hds_ip_ext, l4_l3_hdr_type = "l4_hdr_type_etc", vlan_info, srqn_uidx, imm_inval_pkey, app, app_op, app_info, byte_cnt, timestamp, sop_drop_qpn, wqe_counter, signature, op_own });
    same!(golden, cqe::CqeError, "mlx5_err_cqe", { srqn, vendor_err_synd, syndrome, s_wqe_opcode_qpn, wqe_counter, signature, op_own });
}

pub(crate) fn linux(golden: &mut Golden) {
    same!(golden, wqe::Control, "mlx5_wqe_ctrl_seg", { opmod_idx_opcode, qpn_ds, signature, dci_stream_channel_id = "rsvd", fm_ce_se, imm });
    same!(golden, wqe::Ethernet, "mlx5_wqe_eth_seg", { swp_outer_l4_offset, swp_outer_l3_offset, swp_inner_l4_offset, swp_inner_l3_offset, cs_flags, swp_flags, mss, flow_table_metadata, inline_hdr_sz = "inline_hdr.sz", inline_hdr_start = "inline_hdr.start" });
    same!(golden, wqe::AddressVector, "mlx5_av", { key = "key.dc_key", dqp_dct, stat_rate_sl, fl_mlid, rlid = "udp_sport", rmac, tclass, hop_limit, grh_gid_fl, rgid });
    same!(golden, wqe::MaskedAtomic, "mlx5_wqe_masked_atomic_seg", { swap_add, compare, swap_add_mask, compare_mask });
    same!(golden, wqe::Xrc, "mlx5_wqe_xrc_seg", { xrc_srqn });
    same!(golden, wqe::UmrControl, "mlx5_wqe_umr_ctrl_seg", { flags, klm_octowords = "xlt_octowords", translation_offset = "xlt_offset", mkey_mask, xlt_offset_47_16 });
    same!(golden, wqe::signature::SetPsv, "mlx5_seg_set_psv", { psv_index = "psv_num", syndrome, status });
    same!(golden, wqe::signature::BsfInline, "mlx5_bsf_inl", { vld_refresh, dif_apptag, dif_reftag, sig_type, rp_inv_seed, dif_inc_ref_guard_check, dif_app_bitmask_check });
    same!(golden, wqe::signature::Bsf, "mlx5_bsf", { bsf_size_sbs = "basic.bsf_size_sbs", check_byte_mask = "basic.check_byte_mask", wire = "basic.wire.bs_selector", mem = "basic.mem.bs_selector", raw_data_size = "basic.raw_data_size", w_bfs_psv = "basic.w_bfs_psv", m_bfs_psv = "basic.m_bfs_psv", t_init_gen_pro_size = "ext.t_init_gen_pro_size", rsvd_epi_size = "ext.rsvd_epi_size", w_tfs_psv = "ext.w_tfs_psv", m_tfs_psv = "ext.m_tfs_psv", w_inl, m_inl });
    same!(golden, wqe::MkeyContext, "mlx5_mkey_seg", { free = "status", access_flags = "flags", sf = "version", qpn_mkey = "qpn_mkey7_0", flags_pd, start_addr, len, bsf_octword_size = "bsfs_octo_size", translations_octword_size = "xlt_oct_size", log_page_size = "log2_page_size" });
    same!(golden, cqe::Cqe64, "mlx5_cqe64", { pkt_info = "tls_outer_l3_tunneled", wqe_id, lro_tcppsh_abort_dupack = "lro.tcppsh_abort_dupack", lro_min_ttl = "lro.min_ttl", lro_tcp_win = "lro.tcp_win", lro_ack_seq_num = "lro.ack_seq_num", rss_hash_result, rss_hash_type, ml_path, check_sum, slid, flags_rqpn, hds_ip_ext, l4_l3_hdr_type, vlan_info, srqn_uidx = "srqn", imm_inval_pkey = "immediate", byte_cnt, timestamp = "timestamp_h..timestamp_l", sop_drop_qpn, wqe_counter, signature, op_own });
    same!(golden, cqe::Cqe128, "mlx5_cqe128", { inline = "inl_grh", entry = "cqe64" });
    same!(golden, cqe::CqeError, "mlx5_err_cqe", { srqn, vendor_err_synd, syndrome, s_wqe_opcode_qpn, wqe_counter, signature, op_own });
    same!(golden, cqe::CqeSignature, "mlx5_sig_err_cqe", { expected_trans_sig, actual_trans_sig, expected_reftag, actual_reftag, syndrome, mkey, err_offset, qpn, signature, op_own });
    same!(golden, cqe::MiniCqe, "mlx5_mini_cqe8", { head = "rx_hash_result", byte_cnt });
    same!(golden, eqe::Eqe, "mlx5_eqe", { kind = "type", sub_type, data, signature, owner });
    same!(golden, eqe::Completion, "mlx5_eqe_comp", { cqn });
    same!(golden, eqe::Target, "mlx5_eqe_dct", { dctn });
    same!(golden, eqe::Queue, "mlx5_eqe_qp_srq", { kind = "type", qp_srq_n });
    same!(golden, eqe::CqError, "mlx5_eqe_cq_err", { cqn, syndrome });
    same!(golden, eqe::Port, "mlx5_eqe_port_state", { port });
    same!(golden, eqe::Commands, "mlx5_eqe_cmd", { vector });
    same!(golden, eqe::PageRequest, "mlx5_eqe_page_req", { ec_function, func_id, num_pages });
    same!(golden, eqe::VportChange, "mlx5_eqe_vport_change", { vport_num });
    same!(golden, eqe::PageFault, "mlx5_eqe_page_fault", { bytes_committed, r_key = "rdma.r_key", packet_length = "rdma.packet_length", rdma_op_len = "rdma.rdma_op_len", rdma_va = "rdma.rdma_va", pftype_token = "rdma.pftype_token" });
    same!(golden, queue::Entry, "mlx5_cmd_layout", { transport = "type", input_bytes = "inlen", input_mailbox = "in_ptr", input = "in", output = "out", output_mailbox = "out_ptr", output_bytes = "outlen", token, signature = "sig", status_own });
    same!(golden, queue::Mailbox, "mlx5_cmd_prot_block", { data, next, block_num, token, control_signature = "ctrl_sig", signature = "sig" });
    for (ours, name, bytes) in [
        (init_segment::FW_REV, "fw_rev", 4),
        (init_segment::CMDIF_REV_FW_SUB, "cmdif_rev_fw_sub", 4),
        (init_segment::CMDQ_ADDR_H, "cmdq_addr_h", 4),
        (init_segment::CMDQ_ADDR_L_SZ, "cmdq_addr_l_sz", 4),
        (init_segment::CMD_DBELL, "cmd_dbell", 4),
        (init_segment::INITIALIZING, "initializing", 4),
        (init_segment::HEALTH, "health", 64),
        (init_segment::HEALTH_SEVERITY, "health.rfr_severity", 1),
        (init_segment::HEALTH_SYNDROME, "health.synd", 1),
        (init_segment::INTERNAL_TIMER_H, "internal_timer_h", 4),
        (init_segment::INTERNAL_TIMER_L, "internal_timer_l", 4),
        (init_segment::HEALTH_COUNTER, "health_counter", 4),
        (init_segment::REAL_TIME_H, "real_time_h", 4),
        (init_segment::REAL_TIME_L, "real_time_l", 4),
    ] {
        golden.same("field", &format!("mlx5_init_seg.{name}"), &[ours as u64, bytes]);
    }
    let records = [
        ("MLX5_RCV_DBR", offset_of!(doorbell::QueueRecord, receive)),
        ("MLX5_SND_DBR", offset_of!(doorbell::QueueRecord, send)),
    ];
    for (name, offset) in records {
        golden.same("const", name, &[offset as u64 / 4]);
    }
    for (name, ours) in [
        ("MLX5_BF_OFFSET", doorbell::uar::BLUE_FLAME),
        ("MLX5_CQ_DOORBELL", doorbell::uar::CQ_ARM),
        ("MLX5_ADAPTER_PAGE_SIZE", doorbell::uar::PAGE_BYTES),
        ("MLX5_NON_FP_BFREGS_PER_UAR", doorbell::uar::REGISTERS),
        ("MLX5_BFREGS_PER_UAR", doorbell::uar::REGISTERS_ALL),
        ("MLX5_MAX_COMMANDS", queue::ENTRIES_MAX),
        (
            "MLX5_CMD_DATA_BLOCK_SIZE",
            size_of_val(&<queue::Mailbox as zerocopy::FromZeros>::new_zeroed().data),
        ),
        ("MLX5_SEND_WQE_DS", wqe::SEGMENT_BYTES),
        ("MLX5_SEND_WQE_BB", wqe::BLOCK_BYTES),
        ("MLX5_MINI_CQE_ARRAY_SIZE", cqe::MINIS),
        ("MLX5_UMR_MTT_ALIGNMENT", wqe::TRANSLATION_ALIGN),
    ] {
        golden.same("const", name, &[ours as u64]);
    }
}
