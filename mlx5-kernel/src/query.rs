//! What the device and its port can and are. Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_query_device`;
//! `drivers/infiniband/core/uverbs_std_types_device.c`.

use std::mem::{offset_of, size_of_val};

use pollux_mlx5_abi::caps::ethernet::EthernetCaps;
use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::{AtomicCaps, DeviceMemoryCaps, OdpCaps as OdpBlock, QosCaps, atomic};
use pollux_mlx5_abi::field::Field;
use pollux_mlx5_abi::kernel::completion_queue::mini_format;
use pollux_mlx5_abi::kernel::device::{DeviceAnswer, device_flag, multi_packet, pacing, parsing, tunnel};
use pollux_mlx5_abi::kernel::queue_pair::{hash_field as f, hash_function};
use pollux_mlx5_abi::paging;
use pollux_uverbs::abi::device::{
    CqModerationCaps, ExQueryDevice, ExQueryDeviceResp, OdpCaps, QueryDeviceResp, QueryPort, RssCaps,
};
use pollux_uverbs::abi::flags::{DeviceCaps, OdpGeneral, OdpService, QpType, RawPacketCaps};
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::ioctl_verbs::GidEntry;
use pollux_uverbs::{Call, Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::capability::Caps;
use crate::core::{Core, Outlet};
use crate::cq::PERIOD_MAX;
use crate::session::Session;
use crate::udata;
use crate::wq::{LOG_STRIDE_BYTES_MAX, LOG_STRIDES_MAX, LOG_STRIDES_MIN_EXTENDED};

/// Pieces of an RDMA READ. Source: Linux `include/rdma/ib_verbs.h`, `MLX5_MAX_SGE_RD` in `include/linux/mlx5/driver.h`.
const READ_PIECES: u32 = (512 - 16 - 16) / 16;

/// Flags that mlx5_ib sets whatever the device can: the port may be changed, its events and GUID are told, RNR NAKs are
/// made. Source: Linux `include/uapi/rdma/ib_user_verbs.h`, `IB_UVERBS_DEVICE_*`.
const ALWAYS: u64 = 1 << 5 | 1 << 10 | 1 << 11 | 1 << 12;

/// Blocks of the longest send entry that a queue pair must be able to hold. Source: Linux
/// `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_calc_max_qp_wr`.
const BLOCKS_PER_ENTRY: u32 = 4;
/// Partition keys, of which an Ethernet port has one. Source: Linux `include/linux/mlx5/port.h`,
/// `MLX5_MIN_PKEY_TABLE_SIZE`.
const PARTITION_KEYS: u16 = 128;

impl Session {
    /// `QUERY_DEVICE`.
    pub(crate) fn query_device(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        command.core_out.write(base(&self.core).as_bytes());
        Ok(())
    }

    /// `EX_QUERY_DEVICE`.
    pub(crate) fn ex_query_device(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExQueryDevice = command.request()?;
        if request.comp_mask != 0 || request.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        let room = command.driver_out.room();
        if room != 0 && room < offset_of!(DeviceAnswer, tso_caps) || !udata::is_cleared(command.driver_in) {
            return Err(Errno::EINVAL);
        }
        let core = &self.core;
        let caps = &core.caps;
        let base = base(core);
        let answer = ExQueryDeviceResp {
            odp_caps: OdpCaps {
                general_caps: match (core.pages_on_demand(), caps.pages_all_memory()) {
                    (false, _) => 0,
                    (true, false) => OdpGeneral::SUPPORT.bits(),
                    (true, true) => (OdpGeneral::SUPPORT | OdpGeneral::IMPLICIT).bits(),
                },
                // UC never.
                per_transport_caps: [
                    paged_services(core, paging::RELIABLE),
                    0,
                    paged_services(core, paging::DATAGRAM),
                ],
                ..OdpCaps::default()
            },
            xrc_odp_caps: paged_services(core, paging::XRC),
            timestamp_mask: i64::MAX.cast_unsigned(),
            hca_core_clock: caps.general(GeneralCaps::DEVICE_FREQUENCY_KHZ).into(),
            device_cap_flags_ex: capability_flags(core),
            rss_caps: RssCaps {
                supported_qpts: 1 << QpType::RAW_PACKET.0,
                max_rwq_indirection_tables: caps.count(GeneralCaps::LOG_MAX_RQT),
                max_rwq_indirection_table_size: caps.count(GeneralCaps::LOG_MAX_RQT_SIZE),
                reserved: 0,
            },
            max_wq_type_rq: caps.count(GeneralCaps::LOG_MAX_RQ),
            raw_packet_caps: raw_packet_caps(caps).bits(),
            max_dm_size: caps.device_memory(DeviceMemoryCaps::MAX_MEMIC_SIZE).into(),
            cq_moderation_caps: if caps.has(GeneralCaps::CQ_MODERATION) {
                CqModerationCaps {
                    max_cq_moderation_count: u16::MAX,
                    max_cq_moderation_period: PERIOD_MAX,
                    reserved: 0,
                }
            } else {
                CqModerationCaps::default()
            },
            base,
            ..ExQueryDeviceResp::default()
        };
        let offset = offset_of!(ExQueryDeviceResp, response_length);
        udata::answer_counted(&mut command.core_out, answer.as_bytes(), offset);
        if room > 0 {
            command.driver_out.write(&driver_answer(core, room));
        }
        Ok(())
    }

    /// `DEVICE/QUERY_PORT`.
    pub(crate) fn query_port(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::query_port as a;
        let Outlet { port, adapter, .. } = self.core.outlet(call.number(a::PORT_NUM)?)?;
        let answer = port.query(adapter)?;
        call.reply(a::RESP, &answer)
    }

    /// `DEVICE/QUERY_PORT_SPEED`.
    pub(crate) fn query_port_speed(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::query_port_speed as a;
        let Outlet { port, adapter, .. } = self.core.outlet(call.number(a::PORT_NUM)?)?;
        let speed = port.speed(adapter)?;
        call.reply(a::RESP, &speed)
    }

    /// `QUERY_PORT`.
    pub(crate) fn write_query_port(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: QueryPort = command.request()?;
        let Outlet { port, adapter, .. } = self.core.outlet(request.port_num.into())?;
        let answer = port.query(adapter)?;
        command.core_out.write(answer.legacy_resp.as_bytes());
        Ok(())
    }

    /// `DEVICE/QUERY_GID_ENTRY`.
    pub(crate) fn query_gid_entry(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::query_gid_entry as a;
        let flags = if call.find(a::FLAGS).is_some() { call.number(a::FLAGS)? } else { 0 };
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let entry = self.core.gid(call.number(a::PORT)?, call.number(a::GID_INDEX)?)?;
        call.reply(a::RESP_ENTRY, &entry)
    }

    /// `DEVICE/QUERY_GID_TABLE`.
    pub(crate) fn query_gid_table(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::query_gid_table as a;
        let flags = if call.find(a::FLAGS).is_some() { call.number(a::FLAGS)? } else { 0 };
        let size = usize::try_from(call.number(a::ENTRY_SIZE)?).map_err(|_| Errno::EINVAL)?;
        let room = call.output(a::RESP_ENTRIES).map_or(0, |output| output.room());
        if flags != 0 || size == 0 || size > usize::from(u16::MAX) {
            return Err(Errno::EINVAL);
        }
        let ports = (1..=self.core.ports()).filter_map(|number| self.core.outlet(number.into()).ok());
        let gids: Vec<&GidEntry> = ports.flat_map(|outlet| outlet.gids.entries()).collect();
        let count = gids.len();
        // All or none. Source: Linux `drivers/infiniband/core/uverbs_std_types_device.c`, the handler of this method, which wants room for
        // one at least; `drivers/infiniband/core/cache.c`, `rdma_query_gid_table`; rdma-core `tests/test_device.py`.
        if room < size || room / size < count {
            return Err(Errno::EINVAL);
        }
        let mut entries = Vec::with_capacity(count * size);
        for entry in gids {
            let bytes = GidEntry::as_bytes(entry);
            entries.extend_from_slice(&bytes[..bytes.len().min(size)]);
            entries.resize(entries.len().next_multiple_of(size), 0);
        }
        udata::answer(call.output(a::RESP_ENTRIES), &entries);
        call.reply(a::RESP_NUM_ENTRIES, &(count as u64))
    }

    /// `DEVICE/INFO_HANDLES`.
    pub(crate) fn info_handles(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use crate::handle::ObjectKind as K;
        use id::device::info_handles as a;
        use pollux_mlx5_abi::kernel::object;
        let kind = match u16::try_from(call.number(a::OBJECT_ID)?).map_err(|_| Errno::EINVAL)? {
            id::pd::OBJECT => K::Pd,
            id::mr::OBJECT => K::Mr,
            id::cq::OBJECT => K::Cq,
            id::qp::OBJECT => K::Qp,
            id::srq::OBJECT => K::Srq,
            id::ah::OBJECT => K::Ah,
            id::mw::OBJECT => K::Mw,
            id::dm::OBJECT => K::Dm,
            id::xrcd::OBJECT => K::Xrcd,
            id::wq::OBJECT => K::Wq,
            id::rwq_ind_table::OBJECT => K::RwqTable,
            id::flow::OBJECT => K::Flow,
            id::counters::OBJECT => K::Counters,
            object::UAR => K::Uar,
            object::DEVX_OBJ => K::DevxObject,
            object::DEVX_UMEM => K::DevxUmem,
            object::FLOW_MATCHER => K::Matcher,
            id::flow_action::OBJECT => K::FlowAction,
            _ => return Err(Errno::EINVAL),
        };
        let room = call.output(a::HANDLES_LIST).ok_or(Errno::EINVAL)?.room();
        if room == 0 || !room.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        let handles: Vec<u32> = self.handles.of_kind(kind).take(room / 4).collect();
        debug_assert!(size_of_val(handles.as_slice()) <= room);
        call.reply(a::HANDLES_LIST, handles.as_slice())?;
        if let Some(output) = call.output(a::TOTAL_HANDLES) {
            output.write((handles.len() as u32).as_bytes());
        }
        Ok(())
    }
}

/// What the older answer has.
fn base(core: &Core) -> QueryDeviceResp {
    let caps = &core.caps;
    let identity = core.firmware.queue.identity();
    let (major, minor, sub) = identity.firmware;
    let rq_pieces = caps.general(GeneralCaps::MAX_WQE_SZ_RQ) / 16;
    // A control and a remote address segment before the pieces.
    let sq_pieces = caps.general(GeneralCaps::MAX_WQE_SZ_SQ).min(512).saturating_sub(32) / 16;
    let groups = 1_u32.checked_shl(caps.general(GeneralCaps::LOG_MAX_MCG)).unwrap_or(u32::MAX);
    let attach = caps.general(GeneralCaps::MAX_QP_MCG);
    let atomics = caps.count(GeneralCaps::LOG_MAX_RA_REQ_QP);
    QueryDeviceResp {
        fw_ver: u64::from(major) << 32 | u64::from(minor) << 16 | u64::from(sub),
        node_guid: core.port.node_guid.into(),
        sys_image_guid: core.port.system_guid.into(),
        max_mr_size: u64::MAX,
        page_size_cap: !((1_u64 << caps.general(GeneralCaps::LOG_PG_SZ).min(63)) - 1),
        vendor_id: core.port.vendor,
        vendor_part_id: identity.device.into(),
        hw_ver: identity.revision.into(),
        max_qp: caps.count(GeneralCaps::LOG_MAX_QP),
        max_qp_wr: caps.count(GeneralCaps::LOG_MAX_QP_SZ) / BLOCKS_PER_ENTRY,
        device_cap_flags: capability_flags(core) as u32,
        max_sge: sq_pieces.min(rq_pieces),
        max_sge_rd: READ_PIECES,
        max_cq: caps.count(GeneralCaps::LOG_MAX_CQ),
        max_cqe: caps.count(GeneralCaps::LOG_MAX_CQ_SZ) - 1,
        max_mr: caps.count(GeneralCaps::LOG_MAX_MKEY),
        max_pd: caps.count(GeneralCaps::LOG_MAX_PD),
        max_qp_rd_atom: atomics,
        max_res_rd_atom: atomics.saturating_mul(caps.count(GeneralCaps::LOG_MAX_QP)),
        max_qp_init_rd_atom: caps.count(GeneralCaps::LOG_MAX_RA_RES_QP),
        atomic_cap: atomic_cap(caps),
        max_mw: if caps.has(GeneralCaps::IMAICL) { caps.count(GeneralCaps::LOG_MAX_MKEY) } else { 0 },
        max_mcast_grp: groups,
        max_mcast_qp_attach: attach,
        max_total_mcast_qp_attach: attach.saturating_mul(groups),
        max_ah: i32::MAX.cast_unsigned(),
        max_srq: caps.count(GeneralCaps::LOG_MAX_SRQ),
        max_srq_wr: caps.count(GeneralCaps::LOG_MAX_SRQ_SZ) - 1,
        max_srq_sge: rq_pieces.saturating_sub(1),
        max_pkeys: PARTITION_KEYS,
        local_ca_ack_delay: caps.general(GeneralCaps::LOCAL_CA_ACK_DELAY) as u8,
        phys_port_cnt: core.ports(),
        ..QueryDeviceResp::default()
    }
}

/// How far atomics are atomic: among all that the device does, or not at all. Source: Linux
/// `drivers/infiniband/hw/mlx5/main.c`, `get_atomic_caps_qp`; `include/rdma/ib_verbs.h`, `IB_ATOMIC_HCA`.
fn atomic_cap(caps: &Caps) -> u32 {
    const NONE: u32 = 0;
    const HCA: u32 = 1;
    let both = atomic::COMPARE_SWAP | atomic::FETCH_ADD;
    let works = caps.atomic(AtomicCaps::ATOMIC_OPERATIONS) & both == both
        && caps.atomic(AtomicCaps::ATOMIC_SIZE_QP) & atomic::BYTES_8 != 0
        && caps.atomic(AtomicCaps::ATOMIC_REQ_8B_ENDIANNESS_MODE) == atomic::HOST_ENDIANNESS;
    if works { HCA } else { NONE }
}

/// What a transport may do that comes upon pages which are not there, as the kernel tells it. Source: Linux
/// `drivers/infiniband/hw/mlx5/odp.c`, `mlx5_ib_internal_fill_odp_caps`.
fn paged_services(core: &Core, transport: Field<{ OdpBlock::BYTES }>) -> u32 {
    use paging::service as s;
    if !core.pages_on_demand() {
        return 0;
    }
    let has = core.caps.paged_services(transport);
    let mut services = OdpService::empty();
    for (bit, service) in [
        (s::SEND, OdpService::SEND),
        (s::RECEIVE, OdpService::RECV),
        (s::WRITE, OdpService::WRITE),
        (s::READ, OdpService::READ),
        (s::ATOMIC, OdpService::ATOMIC),
        (s::SHARED, OdpService::SRQ_RECV),
    ] {
        services.set(service, has & bit != 0);
    }
    services.bits()
}

fn raw_packet_caps(caps: &Caps) -> RawPacketCaps {
    let ethernet = |field| caps.has(GeneralCaps::ETH_NET_OFFLOADS) && caps.has_ethernet(field);
    let mut all = RawPacketCaps::empty();
    all.set(RawPacketCaps::IP_CSUM, ethernet(EthernetCaps::CSUM_CAP));
    all.set(RawPacketCaps::CVLAN_STRIPPING, ethernet(EthernetCaps::VLAN_CAP));
    all.set(RawPacketCaps::SCATTER_FCS, ethernet(EthernetCaps::SCATTER_FCS));
    let drops_late =
        caps.has(GeneralCaps::RQ_DELAY_DROP) && caps.has(GeneralCaps::GENERAL_NOTIFICATION_EVENT);
    all.set(RawPacketCaps::DELAY_DROP, drops_late);
    all
}

fn capability_flags(core: &Core) -> u64 {
    let caps = &core.caps;
    let raw = raw_packet_caps(caps);
    let steers = core.steering.lock().unwrap_or_else(std::sync::PoisonError::into_inner).works();
    let imaicl = caps.has(GeneralCaps::IMAICL);
    // Bits without a name here: partition and queue key violations are counted, paths migrate, the frame check sequence is
    // left in, and cache lines are filled. Source: Linux `include/uapi/rdma/ib_user_verbs.h`.
    let flags = [
        (caps.has(GeneralCaps::PKV), 1 << 1),
        (caps.has(GeneralCaps::QKV), 1 << 2),
        (caps.has(GeneralCaps::APM), 1 << 3),
        (caps.has(GeneralCaps::XRC), DeviceCaps::XRC.bits()),
        (imaicl, (DeviceCaps::MEM_WINDOW | DeviceCaps::MEM_WINDOW_TYPE_2B).bits()),
        (!caps.has(GeneralCaps::UMR_MODIFY_ENTITY_SIZE_DISABLED), DeviceCaps::MEM_MGT_EXTENSIONS.bits()),
        (raw.contains(RawPacketCaps::IP_CSUM), DeviceCaps::RAW_IP_CSUM.bits()),
        (raw.contains(RawPacketCaps::SCATTER_FCS), 1 << 34),
        (steers, DeviceCaps::MANAGED_FLOW_STEERING.bits()),
        (caps.has(GeneralCaps::END_PAD), 1 << 36),
    ];
    flags.iter().filter(|(is, _)| *is).fold(ALWAYS, |all, (_, bit)| all | bit)
}

/// The driver's part, as much of it as there is room for: each group of fields is there whole or not at all, and
/// `response_length` counts those that are.
fn driver_answer(core: &Core, room: usize) -> Vec<u8> {
    let caps = &core.caps;
    let mut answer = DeviceAnswer::default();
    let ethernet = |field| caps.has_ethernet(field);
    let raw = 1_u32 << QpType::RAW_PACKET.0;
    let segment = caps.ethernet(EthernetCaps::MAX_LSO_CAP);
    if segment != 0 {
        answer.tso_caps.max_tso = 1 << segment;
        answer.tso_caps.supported_qpts = raw;
    }
    answer.rss_caps.rx_hash_function = hash_function::TOEPLITZ;
    answer.rss_caps.rx_hash_fields_mask = f::SRC_IPV4
        | f::DST_IPV4
        | f::SRC_IPV6
        | f::DST_IPV6
        | f::SRC_PORT_TCP
        | f::DST_PORT_TCP
        | f::SRC_PORT_UDP
        | f::DST_PORT_UDP
        | f::INNER;
    if caps.has(GeneralCaps::CQE_COMPRESSION) {
        answer.cqe_comp_caps.max_num = caps.general(GeneralCaps::CQE_COMPRESSION_MAX_NUM);
        let strides = caps.has(GeneralCaps::MINI_CQE_RESP_STRIDE_INDEX);
        let strides = if strides { mini_format::CSUM_STRIDX } else { 0 };
        answer.cqe_comp_caps.supported_format = u32::from(mini_format::HASH | mini_format::CSUM | strides);
    }
    if caps.has(GeneralCaps::QOS) && caps.qos(QosCaps::PACKET_PACING) != 0 {
        answer.packet_pacing_caps.qp_rate_limit_max = caps.qos(QosCaps::PACKET_PACING_MAX_RATE);
        answer.packet_pacing_caps.qp_rate_limit_min = caps.qos(QosCaps::PACKET_PACING_MIN_RATE);
        answer.packet_pacing_caps.supported_qpts = raw;
        let bursts = [QosCaps::PACKET_PACING_BURST_BOUND, QosCaps::PACKET_PACING_TYPICAL_SIZE];
        if bursts.into_iter().all(|field| caps.qos(field) != 0) {
            answer.packet_pacing_caps.cap_flags = pacing::SUPPORT_BURST;
        }
    }
    let bit = |is: bool, bit: u32| if is { bit } else { 0 };
    answer.multi_pkt_send_wqes = bit(ethernet(EthernetCaps::MULTI_PKT_SEND_WQE), multi_packet::ALLOW_MPW)
        | bit(ethernet(EthernetCaps::ENHANCED_MULTI_PKT_SEND_WQE), multi_packet::SUPPORT_EMPW);
    answer.flags = bit(caps.has(GeneralCaps::CQE_COMPRESSION_128), device_flag::CQE_128B_COMP)
        | bit(caps.has(GeneralCaps::CQE_128_ALWAYS), device_flag::CQE_128B_PAD)
        | bit(caps.has(GeneralCaps::QP_PACKET_BASED), device_flag::PACKET_BASED_CREDIT_MODE)
        | device_flag::SCAT2CQE_DCT;
    if ethernet(EthernetCaps::SWP) {
        answer.sw_parsing_caps.sw_parsing_offloads = parsing::ANY
            | bit(ethernet(EthernetCaps::SWP_CSUM), parsing::CSUM)
            | bit(ethernet(EthernetCaps::SWP_LSO), parsing::LSO);
        answer.sw_parsing_caps.supported_qpts = raw;
    }
    if caps.has(GeneralCaps::STRIDING_RQ) {
        let strides = &mut answer.striding_rq_caps;
        strides.min_single_stride_log_num_of_bytes = pollux_mlx5_abi::command::wq::LOG_STRIDE_BYTES_BASE;
        strides.max_single_stride_log_num_of_bytes = LOG_STRIDE_BYTES_MAX;
        strides.min_single_wqe_log_num_of_strides = if caps.has(GeneralCaps::EXT_STRIDE_NUM_RANGE) {
            LOG_STRIDES_MIN_EXTENDED
        } else {
            pollux_mlx5_abi::command::wq::LOG_STRIDES_BASE
        };
        strides.max_single_wqe_log_num_of_strides = LOG_STRIDES_MAX;
        strides.supported_qpts = raw;
    }
    answer.tunnel_offloads_caps = bit(ethernet(EthernetCaps::TUNNEL_STATELESS_VXLAN), tunnel::VXLAN)
        | bit(ethernet(EthernetCaps::TUNNEL_STATELESS_GRE), tunnel::GRE)
        | bit(ethernet(EthernetCaps::TUNNEL_STATELESS_GENEVE_RX), tunnel::GENEVE)
        | bit(ethernet(EthernetCaps::TUNNEL_STATELESS_MPLS_OVER_GRE), tunnel::MPLS_GRE)
        | bit(ethernet(EthernetCaps::TUNNEL_STATELESS_MPLS_OVER_UDP), tunnel::MPLS_UDP);
    let ends = [
        offset_of!(DeviceAnswer, rss_caps),
        offset_of!(DeviceAnswer, cqe_comp_caps),
        offset_of!(DeviceAnswer, packet_pacing_caps),
        offset_of!(DeviceAnswer, multi_pkt_send_wqes),
        offset_of!(DeviceAnswer, flags),
        offset_of!(DeviceAnswer, sw_parsing_caps),
        offset_of!(DeviceAnswer, striding_rq_caps),
        offset_of!(DeviceAnswer, tunnel_offloads_caps),
        offset_of!(DeviceAnswer, dci_streams_caps),
        size_of::<DeviceAnswer>(),
    ];
    let head = offset_of!(DeviceAnswer, tso_caps);
    let length = ends.iter().copied().filter(|end| *end <= room).max().unwrap_or(head);
    answer.response_length = length as u32;
    answer.as_bytes()[..length].to_vec()
}
