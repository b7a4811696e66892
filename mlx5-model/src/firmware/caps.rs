//! What the device can do, in the words of QUERY_HCA_CAP. What is not modelled is not claimed.

mod second;

use std::collections::BTreeMap;

use pollux_mlx5_abi::caps::ethernet::{EthernetCaps, inline_mode, lro_size};
use pollux_mlx5_abi::caps::flow_table::{FlowTableFields, FlowTableNicCaps, FlowTableProperties};
use pollux_mlx5_abi::caps::general::{GeneralCaps, port_type, stamps};
use pollux_mlx5_abi::caps::roce::{AtomicCaps, RoceCaps, atomic, l3, version};
use pollux_mlx5_abi::caps::{self, QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn, kind};
use pollux_mlx5_abi::command::environment::steering_failures;
use pollux_mlx5_abi::command::user::{capability, general_object, place};
use pollux_mlx5_abi::command::wq::stamp;
use pollux_mlx5_abi::command::{dct, opcode as op, order, period_mode, psv, source_port};
use pollux_mlx5_abi::paging;
use pollux_mlx5_abi::wqe::copy;

use super::{Call, No, lent, need};
use crate::card::Traits;
use crate::completion;
use crate::device::core::Core;
use crate::device::joint::{FIRST_ID, Joint};
use crate::device::uar::UARS;
use crate::event::QUEUES_MAX;
use crate::frame::VXLAN_PORTS_MAX;
use crate::steering::rewrite::{CHANGES_MAX, HEADER_MAX};
use crate::steering::{Counters, ENTRIES_MAX, LEVELS, REFORMATS_MAX, REWRITES_MAX};
use crate::{hairpin, rdma, receive};

/// Most entries of a send or receive ring, of a completion and of an event ring, as logarithms.
pub(super) const LOG_WQ: u32 = 15;
/// Reads and atomics under way on a queue pair, each way, as logarithm.
pub(super) const LOG_READS: u32 = 4;
/// Pieces of a key that stands for others, as logarithm.
const LOG_KLM: u32 = 16;
/// Least page of a key, which is what every system has, as logarithm.
pub(super) const LOG_PAGE_MIN: u32 = 12;
/// Longest message, as logarithm.
pub(super) const LOG_MESSAGE: u32 = 30;
pub(super) const LOG_CQ: u32 = 22;
pub(super) const LOG_EQ: u32 = 20;
/// Most queues in a table of queues, as logarithm.
pub(super) const LOG_RQT: u32 = 11;
/// Size of a steering table as logarithm.
pub(super) const LOG_FT: u32 = 24;
/// Bytes of a send entry at most: 16 blocks, of which 63 segments count.
const SEND_ENTRY_BYTES_MAX: u32 = 1024;
/// Bytes that a frame has at most before it is cut up, as logarithm.
const LOG_CUT: u32 = 16;

impl Traits {
    /// The blocks of all kinds that are known, as long as an answer.
    pub(crate) fn blocks(&self, joint: Option<&Joint>) -> BTreeMap<u16, Vec<u8>> {
        let mut blocks = BTreeMap::new();
        let mut put = |kind, block: &[u8]| {
            let mut whole = vec![0; 4096];
            whole[..block.len()].copy_from_slice(block);
            blocks.insert(kind, whole);
        };
        let mut general = self.general();
        if let Some(joint) = joint {
            joint.tell(&mut general);
        }
        put(kind::GENERAL, &general);
        put(kind::GENERAL_2, &self.second());
        put(kind::ETHERNET_OFFLOADS, &self.ethernet());
        put(kind::ROCE, &self.roce());
        put(kind::FLOW_TABLE, &self.flow_table());
        put(kind::ATOMIC, &if self.rdma { atomic(self.dynamic_connections) } else { [0; 256] });
        if self.device_memory {
            put(kind::DEV_MEM, &lent::caps());
        }
        put(kind::ODP, &if self.on_demand_paging { paging() } else { [0; 256] });
        put(kind::QOS, &self.qos());
        blocks
    }

    fn general(&self) -> [u8; 256] {
        use GeneralCaps as G;
        let mut caps = G::ZERO;
        let block = &mut caps;
        for (field, value) in [
            (G::HCA_CAP_2, 1),
            (G::VHCA_ID, FIRST_ID),
            (G::PORT_TYPE, port_type::ETH),
            (G::NUM_PORTS, 1),
            (G::ETH_NET_OFFLOADS, 1),
            (G::QOS, 1),
            (G::NIC_FLOW_TABLE, 1),
            (G::ROCE, 1),
            (G::LOG_MAX_CQ, 14),
            (G::LOG_MAX_CQ_SZ, LOG_CQ),
            (G::LOG_MAX_EQ, 6),
            (G::MAX_NUM_EQS, QUEUES_MAX as u32 - 1),
            (G::LOG_MAX_EQ_SZ, LOG_EQ),
            (G::LOG_MAX_MKEY, 16),
            (G::LOG_MAX_MRW_SZ, 48),
            (G::LOG_MAX_PD, 12),
            (G::LOG_MAX_TRANSPORT_DOMAIN, 12),
            (G::LOG_MAX_XRCD, 12),
            (G::LOG_MAX_RQ, 14),
            (G::LOG_MAX_SQ, 14),
            (G::LOG_MAX_TIR, 16),
            (G::LOG_MAX_TIS, 14),
            (G::LOG_MAX_TIS_PER_SQ, 1),
            (G::LOG_MAX_RMP, 14),
            (G::LOG_MAX_RQT, 10),
            (G::LOG_MAX_RQT_SIZE, LOG_RQT),
            (G::LOG_MAX_WQ_SZ, LOG_WQ),
            (G::LOG_MAX_QP_SZ, LOG_WQ),
            (G::LOG_MIN_STRIDE_SZ_RQ, 4),
            (G::LOG_MAX_STRIDE_SZ_RQ, receive::ENTRY_BYTES_MAX.trailing_zeros()),
            (G::LOG_MIN_STRIDE_SZ_SQ, 6),
            (G::LOG_MAX_STRIDE_SZ_SQ, 6),
            (G::MAX_WQE_SZ_SQ, SEND_ENTRY_BYTES_MAX),
            (G::MAX_WQE_SZ_RQ, receive::ENTRY_BYTES_MAX as u32),
            (G::BASIC_CYCLIC_RCV_WQE, 1),
            (G::SQ_TS_FORMAT, self.stamp_caps()),
            (G::RQ_TS_FORMAT, self.stamp_caps()),
            (G::CQE_VERSION, self.cqe_version.into()),
            (G::CQ_OI, 1),
            (G::CQ_RESIZE, self.cq_resize.into()),
            (G::IMAICL, 1),
            (G::CQ_MODERATION, 1),
            (G::CQ_PERIOD_START_FROM_CQE, 1),
            (period_mode::CAP, 1),
            (G::END_PAD, 1),
            (G::UMR_MODIFY_ENTITY_SIZE_DISABLED, (!self.change_keys).into()),
            (G::UMR_INDIRECT_MKEY_DISABLED, (!self.change_keys).into()),
            (G::UMR_EXTENDED_TRANSLATION_OFFSET, self.change_keys.into()),
            (G::UMR_PTR_RLKY, self.change_keys.into()),
            (G::FIXED_BUFFER_SIZE, self.change_keys.into()),
            (G::LOG_MAX_KLM_LIST_SIZE, if self.change_keys { LOG_KLM } else { 0 }),
            (G::PG, self.on_demand_paging.into()),
            // What Linux asks of a card before it registers all memory of a program at once. Source: Linux
            // `drivers/infiniband/hw/mlx5/odp.c`, `mlx5_ib_internal_fill_odp_caps`.
            (G::NULL_MKEY, (self.on_demand_paging && self.change_keys).into()),
            (G::CQE_128_ALWAYS, self.padded_completions.into()),
            (G::LOG_PG_SZ, 12),
            (G::UAR_4K, u32::from(self.uar_4k)),
            (G::UAR_SZ, (UARS * 4096 * 2 / (1 << 20)).next_power_of_two().trailing_zeros()),
            (G::NUM_OF_UARS_PER_PAGE, 1),
            (G::BF, self.blue_flame.into()),
            (G::LOG_BF_REG_SIZE, if self.blue_flame { self.blue_flame_log } else { 0 }),
            (G::LOG_MAX_CURRENT_UC_LIST, 7),
            (G::LOG_MAX_CURRENT_MC_LIST, 9),
            (G::LOG_MAX_VLAN_LIST, 9),
            (G::LOG_MAX_L2_TABLE, 7),
            (G::VPORT_COUNTERS, 1),
            (G::VNIC_ENV_QUEUE_COUNTERS, 1),
            (G::VNIC_ENV_CQ_OVERRUN, 1),
            (G::NIC_RECEIVE_STEERING_DISCARD, 1),
            (G::RECEIVE_DISCARD_VPORT_DOWN, 1),
            (G::TRANSMIT_DISCARD_VPORT_DOWN, 1),
            (G::EQ_OVERRUN_COUNT, 1),
            (G::INVALID_COMMAND_COUNT, 1),
            (steering_failures::CAP, 1),
            (G::MAX_QP_CNT, receive::COUNTER_SETS as u32),
            (G::OUT_OF_SEQ_CNT, 1),
            (G::RETRANSMISSION_Q_COUNTERS, 1),
            (G::PCAM_REG, 1),
            (G::MCAM_REG, 1),
            (G::DISABLE_LOCAL_LB_UC, 1),
            (G::DISABLE_LOCAL_LB_MC, 1),
            (G::MODIFY_RQ_COUNTER_SET_ID, 1),
            (G::MAX_FLOW_COUNTER_31_16, (Counters::MOST >> 16) as u32),
            (G::MAX_FLOW_COUNTER_15_0, (Counters::MOST & 0xffff) as u32),
            (G::FLOW_COUNTER_BULK_ALLOC, 0xff),
            (G::DEVICE_FREQUENCY_MHZ, 1000),
            (G::DEVICE_FREQUENCY_KHZ, 1_000_000),
            (G::DUMP_FILL_MKEY, self.dump_fill_key.into()),
            (G::STRIDING_RQ, self.striding_rq.into()),
            (G::EXT_STRIDE_NUM_RANGE, (self.striding_rq && self.short_striding).into()),
            (G::CQE_COMPRESSION, self.cqe_compression.into()),
            (G::CQE_COMPRESSION_MAX_NUM, if self.cqe_compression { completion::BLOCK_MAX as u32 } else { 0 }),
            (place::CAP_MINI_FLOW_TAG, (self.cqe_compression && self.mini_cqe_tags).into()),
            (place::CAP_MINI_HEADERS, (self.cqe_compression && self.mini_cqe_tags).into()),
            (G::ENHANCED_CQE_COMPRESSION, (self.cqe_compression && self.enhanced_cqe_compression).into()),
            (G::MINI_CQE_RESP_STRIDE_INDEX, (self.cqe_compression && self.mini_cqe_stride_index).into()),
            (G::LOG_MAX_UCTX, if self.devx { 10 } else { 0 }),
            (G::LOG_MAX_UMEM, if self.devx { 14 } else { 0 }),
            (G::UCTX_CAP, if self.devx { capability::RAW_TX } else { 0 }),
        ] {
            field.set(block, value);
        }
        if self.hairpin {
            for (field, value) in [
                (G::HAIRPIN, 1),
                (G::LOG_MAX_HAIRPIN_QUEUES, hairpin::LOG_QUEUES),
                (G::LOG_MIN_HAIRPIN_WQ_DATA_SZ, hairpin::LOG_BYTES_MIN),
                (G::LOG_MAX_HAIRPIN_WQ_DATA_SZ, hairpin::LOG_BYTES_MAX),
                (G::LOG_MAX_HAIRPIN_NUM_PACKETS, hairpin::LOG_PACKETS_MAX),
                (G::VNIC_ENV_INT_RQ_OOB, 1),
            ] {
                field.set(block, value);
            }
        }
        if !self.rdma {
            return caps;
        }
        for (field, value) in [
            (G::RC, 1),
            (G::UC, 1),
            (G::UD, 1),
            (G::XRC, 1),
            (G::ATOMIC, 1),
            (G::LOG_MAX_QP, 14),
            (G::LOG_MAX_SRQ, 14),
            (G::LOG_MAX_SRQ_SZ, LOG_WQ),
            (G::LOG_MAX_RA_REQ_QP, LOG_READS),
            (G::LOG_MAX_RA_RES_QP, LOG_READS),
            (G::LOG_MAX_MSG, LOG_MESSAGE),
            (G::LOG_MAX_MCG, rdma::GROUPS_MAX.trailing_zeros()),
            (G::MAX_QP_MCG, rdma::MEMBERS_MAX as u32),
            (G::LOCAL_CA_ACK_DELAY, 8),
            (G::DEVICE_MEMORY, self.device_memory.into()),
            (G::BLOCK_LB_MC, 1),
            (G::ECE_SUPPORT, self.ece.into()),
            (order::CAP, self.data_in_order.into()),
            (source_port::CAP, 1),
            (copy::CAP, self.copies_memory.into()),
            (copy::LOG_BYTES_MAX, if self.copies_memory { rdma::COPY_LOG_BYTES_MAX } else { 0 }),
            (G::SET_DETH_SQPN, 1),
            (G::PKV, 1),
            (G::QKV, 1),
            (G::RTS2RTS_QP_COUNTERS_SET_ID, 1),
        ] {
            field.set(block, value);
        }
        if self.dynamic_connections {
            for (field, value) in [
                (G::DCT, 1),
                (G::LOG_MAX_RA_REQ_DC, LOG_READS),
                (G::LOG_MAX_RA_RES_DC, LOG_READS),
                (G::MAX_WQE_SZ_SQ_DC, SEND_ENTRY_BYTES_MAX),
                (G::LOG_MAX_DCI_STREAM_CHANNELS, rdma::dynamic::STREAMS_MAX_LOG),
                (G::LOG_MAX_DCI_ERRORED_STREAMS, rdma::dynamic::FAILED_MAX_LOG),
                (dct::stream::CAP_MORE, 1),
            ] {
                field.set(&mut caps, value);
            }
        }
        for field in [
            G::SHO,
            G::SIGERR_CQE,
            G::DRAIN_SIGERR,
            psv::cap::DOMAIN_AND_TYPE,
            psv::cap::BLOCK_4048,
            psv::cap::CRC32C,
            psv::cap::CRC64_XP10,
        ] {
            field.set(&mut caps, self.signatures.into());
        }
        if self.devx {
            G::GENERAL_OBJ_TYPES.set(&mut caps, 1 << general_object::RESERVED_QPN);
        }
        caps
    }

    fn ethernet(&self) -> [u8; 256] {
        use EthernetCaps as E;
        let mut caps = E::ZERO;
        let mode = if self.needs_inline_l2 { inline_mode::L2 } else { inline_mode::VPORT_CONTEXT };
        for (field, value) in [
            (E::CSUM_CAP, 1),
            (E::VLAN_CAP, 1),
            (E::WQE_VLAN_INSERT, self.vlan_insert.into()),
            (E::MAX_LSO_CAP, LOG_CUT),
            (E::WQE_INLINE_MODE, mode),
            (E::RSS_IND_TBL_CAP, LOG_RQT),
            (E::SELF_LB_EN_MODIFIABLE, 1),
            (E::SCATTER_FCS, 1),
            (E::CQE_CHECKSUM_FULL, 1),
            // Both: queues are allowed by the first, and it is by both that drivers pack. Source: Linux
            // `drivers/infiniband/hw/mlx5/qp.c`, `create_raw_packet_qp_sq`; DPDK `drivers/net/mlx5/linux/mlx5_os.c`,
            // `mlx5_os_capabilities_prepare`, and `doc/guides/nics/mlx5.rst`, `txq_mpw_en`, on which cards.
            (E::MULTI_PKT_SEND_WQE, self.enhanced_multi_packet.into()),
            (E::ENHANCED_MULTI_PKT_SEND_WQE, self.enhanced_multi_packet.into()),
            (E::LRO_CAP, self.lro.into()),
            (E::LRO_PSH_FLAG, self.lro.into()),
            (lro_size::MODE, lro_size::FROM_L4),
            (E::LRO_MIN_MSS_SIZE, if self.lro { receive::join::PAYLOAD_MIN as u32 } else { 0 }),
            (E::TUNNEL_STATELESS_VXLAN, self.vxlan.into()),
            (E::MAX_VXLAN_UDP_PORTS, if self.vxlan { VXLAN_PORTS_MAX as u32 } else { 0 }),
            (E::TUNNEL_STATELESS_GRE, self.gre.into()),
            (E::TUNNEL_STATELESS_GENEVE_RX, self.geneve.into()),
            (E::TUNNEL_STATELESS_MPLS_OVER_GRE, self.mpls.into()),
            (E::TUNNEL_STATELESS_MPLS_OVER_UDP, self.mpls.into()),
            (E::TUNNEL_STATELESS_GENEVE_TX, self.geneve.into()),
            (E::TUNNEL_STATELESS_IP_OVER_IP, self.ip_in_ip.into()),
            (E::TUNNEL_STATELESS_IP_OVER_IP_RX, self.ip_in_ip.into()),
            (E::TUNNEL_STATELESS_IP_OVER_IP_TX, self.ip_in_ip.into()),
            (E::REG_UMR_SQ, self.change_keys.into()),
            (E::SWP, self.software_parsing.into()),
            (E::SWP_CSUM, self.software_parsing.into()),
            (E::SWP_LSO, self.software_parsing.into()),
        ] {
            field.set(&mut caps, value);
        }
        if self.lro {
            let mut periods = [0; 16];
            for (place, period) in periods.as_chunks_mut::<4>().0.iter_mut().zip(receive::join::PERIODS_US) {
                *place = period.to_be_bytes();
            }
            E::LRO_TIMER_SUPPORTED_PERIODS.set(&mut caps, periods);
        }
        caps
    }

    fn roce(&self) -> [u8; 256] {
        let mut caps = RoceCaps::ZERO;
        RoceCaps::L3_TYPE.set(&mut caps, l3::IPV4 | l3::IPV6);
        RoceCaps::ROCE_VERSION.set(&mut caps, version::V2);
        RoceCaps::R_ROCE_DEST_UDP_PORT.set(&mut caps, 4791);
        RoceCaps::R_ROCE_MAX_SRC_UDP_PORT.set(&mut caps, 0xffff);
        RoceCaps::R_ROCE_MIN_SRC_UDP_PORT.set(&mut caps, 0xc000);
        RoceCaps::ROCE_ADDRESS_TABLE_SIZE.set(&mut caps, rdma::path::ADDRESSES as u32);
        RoceCaps::QP_TS_FORMAT.set(&mut caps, self.stamp_caps());
        caps
    }
}

fn paging() -> [u8; 256] {
    use paging::service as s;
    let mut caps = [0; 256];
    let connected = s::SEND | s::RECEIVE | s::WRITE | s::READ | s::ATOMIC | s::SHARED;
    paging::BY_MEMORY.set(&mut caps, 1);
    paging::RELIABLE.set(&mut caps, connected);
    paging::XRC.set(&mut caps, connected);
    paging::DATAGRAM.set(&mut caps, s::SEND);
    caps
}

fn atomic(dynamic_connections: bool) -> [u8; 256] {
    use AtomicCaps as A;
    let mut caps = A::ZERO;
    // Operands in memory are in the host's order from the beginning, and cannot be otherwise.
    A::ATOMIC_REQ_8B_ENDIANNESS_MODE.set(&mut caps, atomic::HOST_ENDIANNESS);
    A::SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1.set(&mut caps, 1);
    A::ATOMIC_OPERATIONS.set(&mut caps, atomic::COMPARE_SWAP | atomic::FETCH_ADD);
    A::ATOMIC_SIZE_QP.set(&mut caps, atomic::BYTES_8);
    A::ATOMIC_SIZE_DC.set(&mut caps, if dynamic_connections { atomic::BYTES_8 } else { 0 });
    caps
}

/// Label, traffic class, bottom of stack, time to live. Source: Linux `include/linux/mlx5/device.h`, `MLX5_FIELD_SUPPORT_MPLS_*`.
const MPLS_FIELDS: u32 = 0xf;

fn flow_table_properties(traits: &Traits) -> [u8; FlowTableProperties::BYTES] {
    use FlowTableProperties as P;
    let mut properties = P::ZERO;
    for (field, value) in [
        (P::FT_SUPPORT, 1),
        (P::FLOW_COUNTER, 1),
        (P::FLOW_MODIFY_EN, 1),
        (P::MODIFY_ROOT, 1),
        (P::IDENTIFIED_MISS_TABLE_MODE, 1),
        (P::FLOW_TABLE_MODIFY, 1),
        (P::LOG_MAX_FT_SIZE, LOG_FT),
        (P::MAX_FT_LEVEL, LEVELS),
        (P::LOG_MAX_FT_NUM, 16),
        (P::LOG_MAX_FLOW_COUNTER, 16),
        (P::LOG_MAX_DESTINATION, 6),
        (P::LOG_MAX_FLOW, ENTRIES_MAX.ilog2()),
    ] {
        field.set(&mut properties, value);
    }
    use FlowTableFields as F;
    let mut fields = F::ZERO;
    for field in [
        F::OUTER_DMAC,
        F::OUTER_SMAC,
        F::OUTER_ETHER_TYPE,
        F::OUTER_IP_VERSION,
        F::OUTER_FIRST_PRIO,
        F::OUTER_FIRST_CFI,
        F::OUTER_FIRST_VID,
        F::OUTER_IPV4_TTL,
        F::OUTER_SECOND_PRIO,
        F::OUTER_SECOND_CFI,
        F::OUTER_SECOND_VID,
        F::OUTER_SIP,
        F::OUTER_DIP,
        F::OUTER_FRAG,
        F::OUTER_IP_PROTOCOL,
        F::OUTER_IP_ECN,
        F::OUTER_IP_DSCP,
        F::OUTER_UDP_SPORT,
        F::OUTER_UDP_DPORT,
        F::OUTER_TCP_SPORT,
        F::OUTER_TCP_DPORT,
        F::OUTER_TCP_FLAGS,
        F::OUTER_VXLAN_VNI,
        F::INNER_DMAC,
        F::INNER_SMAC,
        F::INNER_ETHER_TYPE,
        F::INNER_IP_VERSION,
        F::INNER_FIRST_PRIO,
        F::INNER_FIRST_CFI,
        F::INNER_FIRST_VID,
        F::INNER_SECOND_PRIO,
        F::INNER_SECOND_CFI,
        F::INNER_SECOND_VID,
        F::INNER_SIP,
        F::INNER_DIP,
        F::INNER_FRAG,
        F::INNER_IP_PROTOCOL,
        F::INNER_IP_ECN,
        F::INNER_IP_DSCP,
        F::INNER_UDP_SPORT,
        F::INNER_UDP_DPORT,
        F::INNER_TCP_SPORT,
        F::INNER_TCP_DPORT,
        F::INNER_TCP_FLAGS,
    ] {
        field.set(&mut fields, 1);
    }
    let mpls = if traits.mpls { MPLS_FIELDS } else { 0 };
    for (field, value) in [
        (F::OUTER_IP_VERSION, traits.match_ip_version.into()),
        (F::INNER_IP_VERSION, traits.match_ip_version.into()),
        (F::OUTER_GRE_PROTOCOL, traits.gre.into()),
        (F::OUTER_GRE_KEY, traits.gre.into()),
        (F::OUTER_FIRST_MPLS, mpls),
        (F::INNER_FIRST_MPLS, mpls),
        (F::OUTER_FIRST_MPLS_OVER_GRE, mpls),
        (F::OUTER_FIRST_MPLS_OVER_UDP, mpls),
    ] {
        field.set(&mut fields, value);
    }
    P::FT_FIELD_SUPPORT.set(&mut properties, fields);
    P::FT_FIELD_BITMASK_SUPPORT.set(&mut properties, fields);
    properties
}

impl Traits {
    fn flow_table(&self) -> [u8; 4096] {
        use {FlowTableNicCaps as N, FlowTableProperties as P};
        let mut caps = N::ZERO;
        N::NIC_RX_MULTI_PATH_TIRS.set(&mut caps, 1);
        let (mut receive, mut transmit) = (flow_table_properties(self), flow_table_properties(self));
        if self.change_packets {
            let log = |most: usize| most.ilog2();
            for properties in [&mut receive, &mut transmit] {
                P::LOG_MAX_MODIFY_HEADER_CONTEXT.set(properties, log(REWRITES_MAX));
                P::MAX_MODIFY_HEADER_ACTIONS.set(properties, CHANGES_MAX as u32);
                P::REFORMAT_AND_MODIFY_ACTION.set(properties, 1);
                P::REFORMAT_AND_FWD_TO_TABLE.set(properties, 1);
            }
            P::DECAP.set(&mut receive, 1);
            // Of what is received it is a header in a tunnel's place. Cards say so both ways: rdma-core `tests/test_mlx5_flow.py`,
            // `requires_reformat_support`.
            P::REFORMAT.set(&mut receive, 1);
            P::REFORMAT_L3_TUNNEL_TO_L2.set(&mut receive, 1);
            P::REFORMAT.set(&mut transmit, 1);
            P::REFORMAT_L2_TO_L3_TUNNEL.set(&mut transmit, 1);
            N::LOG_MAX_PACKET_REFORMAT_CONTEXT.set(&mut caps, log(REFORMATS_MAX));
            N::ENCAP_GENERAL_HEADER.set(&mut caps, 1);
            N::MAX_ENCAP_HEADER_SIZE.set(&mut caps, HEADER_MAX as u32);
            N::FLOW_TABLE_PROPERTIES_NIC_TRANSMIT.set(&mut caps, transmit);
        }
        N::FLOW_TABLE_PROPERTIES_NIC_RECEIVE.set(&mut caps, receive);
        if self.sniffer {
            N::ALLOW_SNIFFER_AND_NIC_RX_SHARED_TIR.set(&mut caps, 1);
            N::FLOW_TABLE_PROPERTIES_NIC_RECEIVE_SNIFFER.set(&mut caps, flow_table_properties(self));
            N::FLOW_TABLE_PROPERTIES_NIC_TRANSMIT_SNIFFER.set(&mut caps, flow_table_properties(self));
        }
        caps
    }

    fn stamp_caps(&self) -> u32 {
        match (self.real_time_only, self.real_time_too) {
            (true, _) => stamps::REAL_TIME,
            (false, true) => stamps::BOTH,
            (false, false) => stamps::FREE_RUNNING,
        }
    }

    /// Whether a queue may ask for this format of stamps: free running where there is that alone, the default or real time
    /// where there is no other. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
    /// `MLX5_TIMESTAMP_FORMAT_*`; DPDK `drivers/common/mlx5/mlx5_prm.h`, `mlx5_ts_format_conv`.
    pub(super) fn stamps(&self, format: u32) -> bool {
        match format {
            stamp::FREE_RUNNING => !self.real_time_only,
            _ => self.real_time_only || self.real_time_too,
        }
    }
}

impl Core {
    pub(super) fn caps_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        let kind = call.op_mod >> 1;
        if opcode == op::QUERY_HCA_CAP {
            call.input::<{ QueryHcaCapIn::BYTES }>()?;
            let Some(block) = self.function.caps.get(&kind) else {
                return Err(super::no(pollux_mlx5_abi::command::status::BAD_PARAM_ERR, 16));
            };
            need!(call.output.len() > 16, BAD_OUTP_LEN_ERR, 17);
            let bytes = (call.output.len() - 16).min(QueryHcaCapOut::BYTES - 16);
            call.output[16..16 + bytes].copy_from_slice(&block[..bytes]);
            if kind == kind::GENERAL_2
                && call.op_mod & 1 == caps::NOW
                && let Some(block) = call.output[16..].first_chunk_mut()
            {
                self.function.software_id.now(block);
            }
            return Ok(());
        }
        let input: &[u8; SetHcaCapIn::BYTES] = call.input()?;
        need!(!self.function.is_running(), BAD_SYS_STATE_ERR, 16);
        need!(self.function.caps.contains_key(&kind), BAD_PARAM_ERR, 17);
        if kind == kind::GENERAL_2 {
            return self.function.software_id.ask(&self.traits.second(), input);
        }
        // What is wanted is less than what is offered; the device goes on offering it all.
        Ok(())
    }
}
