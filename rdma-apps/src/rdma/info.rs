//! What a device is, as `ibv_devinfo` prints it.
//!
//! Source: rdma-core `libibverbs/examples/devinfo.c`; the firmware's version: `providers/mlx5/verbs.c`, `mlx5_query_device_ex`. What
//! only the vendor's part of the kernel's answer tells (segmentation, hashing and pacing of Ethernet queues): `mlx5_query_device_ex` too.

use std::fmt::Write;
use std::net::Ipv6Addr;

use pollux_verbs::{DeviceAttributes, FrameLimits, Gid, OdpService, PortAttributes};

/// All that is asked of a device.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// What it can do.
    pub device: DeviceAttributes,
    /// What its Ethernet queues can do.
    pub frames: FrameLimits,
    /// Its ports, with their numbers.
    pub ports: Vec<(u8, PortAttributes)>,
    /// Mbit/s that they carry now, where that is told.
    pub speeds_mbps: Vec<(u8, u64)>,
    /// Its GIDs, of all ports.
    pub gids: Vec<Gid>,
    /// The board, where sysfs tells it.
    pub board: Option<String>,
    /// Completion vectors.
    pub vectors: u32,
}

/// A GUID as four groups.
fn guid(value: u64) -> String {
    let group = |shift: u32| (value >> shift) as u16;
    format!("{:04x}:{:04x}:{:04x}:{:04x}", group(48), group(32), group(16), group(0))
}

/// The name of a code, or what the original says of one that has none.
fn named<'a, const COUNT: usize>(code: u32, names: [(u32, &'a str); COUNT], otherwise: &'a str) -> &'a str {
    names.into_iter().find(|(known, _)| *known == code).map_or(otherwise, |(_, name)| name)
}

fn mtu(code: u8) -> &'static str {
    named(code.into(), [(1, "256"), (2, "512"), (3, "1024"), (4, "2048"), (5, "4096")], "invalid MTU")
}

const STATES: [(u32, &str); 4] = [(1, "PORT_DOWN"), (2, "PORT_INIT"), (3, "PORT_ARMED"), (4, "PORT_ACTIVE")];
const WIDTHS: [(u32, &str); 5] = [(1, "1"), (2, "4"), (4, "8"), (8, "12"), (16, "2")];
const SPEEDS: [(u32, &str); 9] = [
    (1, "2.5 Gbps"),
    (2, "5.0 Gbps"),
    (4, "10.0 Gbps"),
    (8, "10.0 Gbps"),
    (16, "14.0 Gbps"),
    (32, "25.0 Gbps"),
    (64, "50.0 Gbps"),
    (128, "100.0 Gbps"),
    (256, "200.0 Gbps"),
];
const PHYSICAL: [(u32, &str); 7] = [
    (1, "SLEEP"),
    (2, "POLLING"),
    (3, "DISABLED"),
    (4, "PORT_CONFIGURATION TRAINNING"),
    (5, "LINK_UP"),
    (6, "LINK_ERROR_RECOVERY"),
    (7, "PHY TEST"),
];
const ATOMICS: [(u32, &str); 3] = [(0, "ATOMIC_NONE"), (1, "ATOMIC_HCA"), (2, "ATOMIC_GLOB")];
const LANES: [(u32, &str); 5] = [(1, "1"), (2, "2"), (3, "4"), (4, "8"), (5, "15")];

/// Bits of `device_cap_flags` (rdma-core `libibverbs/verbs.h`, `enum ibv_device_cap_flags`).
const CAPABILITIES: [(u32, &str); 24] = [
    (1, "RESIZE_MAX_WR"),
    (1 << 1, "BAD_PKEY_CNTR"),
    (1 << 2, "BAD_QKEY_CNTR"),
    (1 << 3, "RAW_MULTI"),
    (1 << 4, "AUTO_PATH_MIG"),
    (1 << 5, "CHANGE_PHY_PORT"),
    (1 << 6, "UD_AV_PORT_ENFORCE"),
    (1 << 7, "CURR_QP_STATE_MOD"),
    (1 << 8, "SHUTDOWN_PORT"),
    (1 << 9, "INIT_TYPE"),
    (1 << 10, "PORT_ACTIVE_EVENT"),
    (1 << 11, "SYS_IMAGE_GUID"),
    (1 << 12, "RC_RNR_NAK_GEN"),
    (1 << 13, "SRQ_RESIZE"),
    (1 << 14, "N_NOTIFY_CQ"),
    (1 << 17, "MEM_WINDOW"),
    (1 << 18, "UD_IP_CSUM"),
    (1 << 20, "XRC"),
    (1 << 21, "MEM_MGT_EXTENSIONS"),
    (1 << 23, "MEM_WINDOW_TYPE_2A"),
    (1 << 24, "MEM_WINDOW_TYPE_2B"),
    (1 << 25, "RC_IP_CSUM"),
    (1 << 26, "RAW_IP_CSUM"),
    (1 << 29, "MANAGED_FLOW_STEERING"),
];

/// Bits of operations that page on demand.
const PAGED: [(u32, &str); 8] = [
    (OdpService::SEND.bits(), "SUPPORT_SEND"),
    (OdpService::RECV.bits(), "SUPPORT_RECV"),
    (OdpService::WRITE.bits(), "SUPPORT_WRITE"),
    (OdpService::READ.bits(), "SUPPORT_READ"),
    (OdpService::ATOMIC.bits(), "SUPPORT_ATOMIC"),
    (OdpService::SRQ_RECV.bits(), "SUPPORT_SRQ"),
    (OdpService::FLUSH.bits(), "SUPPORT_FLUSH"),
    (OdpService::ATOMIC_WRITE.bits(), "SUPPORT_ATOMIC_WRITE"),
];

/// Bits of `raw_packet_caps`.
const RAW: [(u32, &str); 4] = [
    (1, "C-VLAN stripping offload"),
    (1 << 1, "Scatter FCS offload"),
    (1 << 2, "IP csum offload"),
    (1 << 3, "Delay drop"),
];

/// Types of queue pair as bits (`enum ibv_qp_type`): raw packets are 8, datagrams 4.
const HASHED: [(u32, &str); 2] = [(1 << 8, "SUPPORT_RAW_PACKET"), (1 << 4, "SUPPORT_UD")];

const DEEP: &str = "\t\t\t\t\t";

fn bits(text: &mut String, value: u32, names: &[(u32, &str)]) {
    for (bit, name) in names {
        if value & bit != 0 {
            let _ = writeln!(text, "{DEEP}{name}");
        }
    }
    let unknown = names.iter().fold(value, |left, (bit, _)| left & !bit);
    if unknown != 0 {
        let _ = writeln!(text, "{DEEP}Unknown flags: 0x{unknown:X}");
    }
}

impl Info {
    /// The lines, with `-v` all of them; of one port, or of all.
    #[must_use]
    pub fn lines(&self, verbose: bool, only: Option<u8>) -> String {
        let base = &self.device.base;
        let mut text = format!("hca_id:\t{}\n\ttransport:\t\t\tInfiniBand (0)\n", self.name);
        let firmware = base.fw_ver;
        if firmware != 0 {
            let (major, minor, patch) = (firmware >> 32 & 0xffff, firmware >> 16 & 0xffff, firmware & 0xffff);
            let _ = writeln!(text, "\tfw_ver:\t\t\t\t{major}.{minor}.{patch:04}");
        }
        let _ = writeln!(text, "\tnode_guid:\t\t\t{}", guid(base.node_guid.get()));
        let _ = writeln!(text, "\tsys_image_guid:\t\t\t{}", guid(base.sys_image_guid.get()));
        let _ = writeln!(text, "\tvendor_id:\t\t\t0x{:04x}", base.vendor_id);
        let _ = writeln!(text, "\tvendor_part_id:\t\t\t{}", base.vendor_part_id);
        let _ = writeln!(text, "\thw_ver:\t\t\t\t0x{:X}", base.hw_ver);
        if let Some(board) = &self.board {
            let _ = writeln!(text, "\tboard_id:\t\t\t{board}");
        }
        let _ = writeln!(text, "\tphys_port_cnt:\t\t\t{}", base.phys_port_cnt);
        if verbose {
            self.limits(&mut text);
        }
        for (number, port) in self.ports.iter().filter(|(number, _)| only.is_none_or(|only| only == *number))
        {
            self.port(&mut text, *number, port, verbose);
        }
        text
    }

    fn limits(&self, text: &mut String) {
        let device = &self.device;
        let base = &device.base;
        let _ = writeln!(text, "\tmax_mr_size:\t\t\t0x{:x}", base.max_mr_size);
        let _ = writeln!(text, "\tpage_size_cap:\t\t\t0x{:x}", base.page_size_cap);
        let _ = writeln!(text, "\tmax_qp:\t\t\t\t{}", base.max_qp);
        let _ = writeln!(text, "\tmax_qp_wr:\t\t\t{}", base.max_qp_wr);
        let _ = writeln!(text, "\tdevice_cap_flags:\t\t0x{:08x}", base.device_cap_flags);
        bits(text, base.device_cap_flags, &CAPABILITIES);
        for (name, value) in [
            ("max_sge:\t\t\t", base.max_sge),
            ("max_sge_rd:\t\t\t", base.max_sge_rd),
            ("max_cq:\t\t\t\t", base.max_cq),
            ("max_cqe:\t\t\t", base.max_cqe),
            ("max_mr:\t\t\t\t", base.max_mr),
            ("max_pd:\t\t\t\t", base.max_pd),
            ("max_qp_rd_atom:\t\t\t", base.max_qp_rd_atom),
            ("max_ee_rd_atom:\t\t\t", base.max_ee_rd_atom),
            ("max_res_rd_atom:\t\t", base.max_res_rd_atom),
            ("max_qp_init_rd_atom:\t\t", base.max_qp_init_rd_atom),
            ("max_ee_init_rd_atom:\t\t", base.max_ee_init_rd_atom),
        ] {
            let _ = writeln!(text, "\t{name}{value}");
        }
        let atomics = named(base.atomic_cap, ATOMICS, "invalid atomic capability");
        let _ = writeln!(text, "\tatomic_cap:\t\t\t{atomics} ({})", base.atomic_cap);
        for (name, value) in [
            ("max_ee:\t\t\t\t", base.max_ee),
            ("max_rdd:\t\t\t", base.max_rdd),
            ("max_mw:\t\t\t\t", base.max_mw),
            ("max_raw_ipv6_qp:\t\t", base.max_raw_ipv6_qp),
            ("max_raw_ethy_qp:\t\t", base.max_raw_ethy_qp),
            ("max_mcast_grp:\t\t\t", base.max_mcast_grp),
            ("max_mcast_qp_attach:\t\t", base.max_mcast_qp_attach),
            ("max_total_mcast_qp_attach:\t", base.max_total_mcast_qp_attach),
            ("max_ah:\t\t\t\t", base.max_ah),
            ("max_fmr:\t\t\t", base.max_fmr),
        ] {
            let _ = writeln!(text, "\t{name}{value}");
        }
        if base.max_fmr > 0 {
            let _ = writeln!(text, "\tmax_map_per_fmr:\t\t{}", base.max_map_per_fmr);
        }
        let _ = writeln!(text, "\tmax_srq:\t\t\t{}", base.max_srq);
        if base.max_srq > 0 {
            let _ = writeln!(text, "\tmax_srq_wr:\t\t\t{}", base.max_srq_wr);
            let _ = writeln!(text, "\tmax_srq_sge:\t\t\t{}", base.max_srq_sge);
        }
        let _ = writeln!(text, "\tmax_pkeys:\t\t\t{}", base.max_pkeys);
        let _ = writeln!(text, "\tlocal_ca_ack_delay:\t\t{}", base.local_ca_ack_delay);
        self.more(text);
    }

    /// What only newer kernels tell.
    fn more(&self, text: &mut String) {
        let device = &self.device;
        let paging = &device.odp_caps;
        text.push_str("\tgeneral_odp_caps:\n");
        bits(text, paging.general_caps as u32, &[(1, "ODP_SUPPORT"), (2, "ODP_SUPPORT_IMPLICIT")]);
        let [rc, uc, ud] = paging.per_transport_caps;
        for (name, caps) in [("rc", rc), ("uc", uc), ("ud", ud), ("xrc", device.xrc_odp_caps)] {
            let _ = writeln!(text, "\t{name}_odp_caps:");
            if caps == 0 {
                let _ = writeln!(text, "{DEEP}NO SUPPORT");
            }
            bits(text, caps, &PAGED);
        }
        if device.timestamp_mask == 0 {
            text.push_str("\tcompletion_timestamp_mask not supported\n");
        } else {
            let _ = writeln!(text, "\tcompletion timestamp_mask:\t\t\t0x{:016x}", device.timestamp_mask);
        }
        if device.hca_core_clock == 0 {
            text.push_str("\tcore clock not supported\n");
        } else {
            let _ = writeln!(text, "\thca_core_clock:\t\t\t{}kHZ", device.hca_core_clock);
        }
        if device.raw_packet_caps != 0 {
            text.push_str("\traw packet caps:\n");
            bits(text, device.raw_packet_caps, &RAW);
        }
        let flags = device.device_cap_flags_ex;
        let _ = writeln!(text, "\tdevice_cap_flags_ex:\t\t0x{flags:X}");
        // The upper half: RAW_SCATTER_FCS is bit 34, PCI_WRITE_END_PADDING 36.
        bits(text, (flags >> 32) as u32, &[(1 << 2, "RAW_SCATTER_FCS"), (1 << 4, "PCI_WRITE_END_PADDING")]);
        let frames = &self.frames;
        let _ = writeln!(text, "\ttso_caps:\n\t\tmax_tso:\t\t\t{}", frames.max_tso);
        if frames.max_tso != 0 {
            text.push_str("\t\tsupported_qp:\n");
            bits(text, frames.tso_kinds, &HASHED);
        }
        let rss = &device.rss_caps;
        text.push_str("\trss_caps:\n");
        let _ = writeln!(text, "\t\tmax_rwq_indirection_tables:\t\t\t{}", rss.max_rwq_indirection_tables);
        let _ =
            writeln!(text, "\t\tmax_rwq_indirection_table_size:\t\t\t{}", rss.max_rwq_indirection_table_size);
        let _ = writeln!(text, "\t\trx_hash_function:\t\t\t\t0x{:x}", frames.hash_functions);
        let _ = writeln!(text, "\t\trx_hash_fields_mask:\t\t\t\t0x{:X}", frames.hash_fields);
        if rss.supported_qpts != 0 {
            text.push_str("\t\tsupported_qp:\n");
            bits(text, rss.supported_qpts, &HASHED);
        }
        let _ = writeln!(text, "\tmax_wq_type_rq:\t\t\t{}", device.max_wq_type_rq);
        let _ = writeln!(text, "\tpacket_pacing_caps:\n\t\tqp_rate_limit_min:\t{}kbps", frames.rate_min);
        let _ = writeln!(text, "\t\tqp_rate_limit_max:\t{}kbps", frames.rate_max);
        if frames.rate_max != 0 {
            text.push_str("\t\tsupported_qp:\n");
            bits(text, frames.rate_kinds, &HASHED);
        }
        let tags = &device.tm_caps;
        if tags.max_num_tags == 0 {
            text.push_str("\ttag matching not supported\n");
        } else {
            let _ = writeln!(text, "\tmax_rndv_hdr_size:\t\t{}", tags.max_rndv_hdr_size);
            let _ = writeln!(text, "\tmax_num_tags:\t\t\t{}", tags.max_num_tags);
            let _ = writeln!(text, "\tmax_ops:\t\t\t{}\n\tmax_sge:\t\t\t{}", tags.max_ops, tags.max_sge);
            text.push_str("\tflags:\n");
            bits(text, tags.flags, &[(1, "IBV_TM_CAP_RC")]);
        }
        let moderation = &device.cq_moderation_caps;
        let (count, period) = (moderation.max_cq_moderation_count, moderation.max_cq_moderation_period);
        if count != 0 && period != 0 {
            let _ = writeln!(
                text,
                "\n\tcq moderation caps:\n\t\tmax_cq_count:\t{count}\n\t\tmax_cq_period:\t{period} us\n"
            );
        }
        if device.max_dm_size != 0 {
            let _ = writeln!(text, "\tmaximum available device memory:\t{}Bytes\n", device.max_dm_size);
        }
        let _ = writeln!(text, "\tnum_comp_vectors:\t\t{}", self.vectors);
    }

    fn port(&self, text: &mut String, number: u8, port: &PortAttributes, verbose: bool) {
        let base = &port.legacy_resp;
        let state = named(base.state.into(), STATES, "invalid state");
        let layer = named(
            base.link_layer.into(),
            [(0, "Unspecified"), (1, "InfiniBand"), (2, "Ethernet")],
            "Unknown",
        );
        let _ = writeln!(text, "\t\tport:\t{number}");
        let _ = writeln!(text, "\t\t\tstate:\t\t\t{state} ({})", base.state);
        let _ = writeln!(text, "\t\t\tmax_mtu:\t\t{} ({})", mtu(base.max_mtu), base.max_mtu);
        let _ = writeln!(text, "\t\t\tactive_mtu:\t\t{} ({})", mtu(base.active_mtu), base.active_mtu);
        let _ = writeln!(text, "\t\t\tsm_lid:\t\t\t{}", base.sm_lid);
        let _ = writeln!(text, "\t\t\tport_lid:\t\t{}", base.lid);
        let _ = writeln!(text, "\t\t\tport_lmc:\t\t0x{:02x}", base.lmc);
        let _ = writeln!(text, "\t\t\tlink_layer:\t\t{layer}");
        if verbose {
            let speed =
                if port.active_speed_ex != 0 { port.active_speed_ex } else { base.active_speed.into() };
            let lanes = named(base.max_vl_num.into(), LANES, "invalid value");
            let width = named(base.active_width.into(), WIDTHS, "invalid width");
            let rate = named(speed, SPEEDS, "invalid speed");
            let physical = named(base.phys_state.into(), PHYSICAL, "invalid physical state");
            let _ = writeln!(text, "\t\t\tmax_msg_sz:\t\t0x{:x}", base.max_msg_sz);
            let _ = writeln!(text, "\t\t\tport_cap_flags:\t\t0x{:08x}", base.port_cap_flags);
            let _ = writeln!(text, "\t\t\tport_cap_flags2:\t0x{:04x}", port.port_cap_flags2);
            let _ = writeln!(text, "\t\t\tmax_vl_num:\t\t{lanes} ({})", base.max_vl_num);
            let _ = writeln!(text, "\t\t\tbad_pkey_cntr:\t\t0x{:x}", base.bad_pkey_cntr);
            let _ = writeln!(text, "\t\t\tqkey_viol_cntr:\t\t0x{:x}", base.qkey_viol_cntr);
            let _ = writeln!(text, "\t\t\tsm_sl:\t\t\t{}", base.sm_sl);
            let _ = writeln!(text, "\t\t\tpkey_tbl_len:\t\t{}", base.pkey_tbl_len);
            let _ = writeln!(text, "\t\t\tgid_tbl_len:\t\t{}", base.gid_tbl_len);
            let _ = writeln!(text, "\t\t\tsubnet_timeout:\t\t{}", base.subnet_timeout);
            let _ = writeln!(text, "\t\t\tinit_type_reply:\t{}", base.init_type_reply);
            let _ = writeln!(text, "\t\t\tactive_width:\t\t{width}X ({})", base.active_width);
            let _ = writeln!(text, "\t\t\tactive_speed:\t\t{rate} ({speed})");
            if let Some((_, mbps)) = self.speeds_mbps.iter().find(|(known, _)| *known == number) {
                let _ = writeln!(text, "\t\t\teffective_speed:\t{}.{} Gbps", mbps / 1000, mbps % 1000 / 100);
            }
            let _ = writeln!(text, "\t\t\tphys_state:\t\t{physical} ({})", base.phys_state);
            for gid in self.gids.iter().filter(|gid| gid.port == u32::from(number)) {
                let kind = named(gid.kind.0, [(1, ", RoCE v1"), (2, ", RoCE v2")], "");
                let _ = writeln!(text, "\t\t\tGID[{:3}]:\t\t{}{kind}", gid.index, Ipv6Addr::from(gid.gid));
            }
        }
        text.push('\n');
    }
}
