//! Queues and rules as objects of the firmware, made by its own commands through the kernel (DevX).
//!
//! ```text
//!   ring, record ──► UMEM ─┐
//!   UAR page ──────────────┼─► CQ ─► RQ ─► RQT ─► TIR ◄── flow (matcher, value)
//!   transport domain, TIS ─┴─► CQ ─► SQ
//! ```
//!
//! Source of the commands: DPDK `drivers/common/mlx5/mlx5_devx_cmds.c`, `mlx5_common_devx.c`; Linux
//! `include/linux/mlx5/mlx5_ifc.h`, `drivers/infiniband/hw/mlx5/{devx,fs}.c`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pollux_eal::region::Zone;
use pollux_mlx5_abi::caps::ethernet::{EthernetCaps, lro_size, min_inline};
use pollux_mlx5_abi::caps::flow_table::{FlowTableFields, FlowTableNicCaps, FlowTableProperties};
use pollux_mlx5_abi::caps::general::{GeneralCaps, stamps};
use pollux_mlx5_abi::caps::kind;
use pollux_mlx5_abi::command::cq::{self, CqContext, CreateCqIn, CreateCqOut};
use pollux_mlx5_abi::command::object::AllocTransportDomainOut;
use pollux_mlx5_abi::command::rq::{
    self, CreateRqIn, CreateRqOut, ModifyRqIn, QueryRqIn, QueryRqOut, RqContext,
};
use pollux_mlx5_abi::command::rqt::{CreateRqtIn, CreateRqtOut, RqtContext};
use pollux_mlx5_abi::command::sq::{CreateSqIn, CreateSqOut, ModifySqIn, QuerySqIn, QuerySqOut, SqContext};
use pollux_mlx5_abi::command::tir::{
    CreateTirIn, CreateTirOut, CreateTisIn, CreateTisOut, HashFields, TirContext, TisContext, dispatch, hash,
    hash_field, merge, protocol,
};
use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::wq::{self, WorkQueue, stamp};
use pollux_mlx5_abi::command::{CommandIn, counter, opcode, start};
use pollux_mlx5_abi::cqe::{MiniFormat, layout};
use pollux_mlx5_abi::kernel::queue_pair::hash_field as kernel_field;

use super::matching::IpVersions;
use super::rule;
use super::verbs::Verbs;
use crate::eth::backend::{
    Backend, CqSpec, FlowCounter, FlowRule, HashSpec, LroCaps, QueueState, RqSpec, SendQueue, SqSpec,
};
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::{Device, Pinning, RECORD_PAGE_BYTES};
use pollux_mlx5_common::dbrec::DoorbellRecord;
use pollux_mlx5_common::firmware::Firmware;
use pollux_mlx5_common::object::{NumberedObject, Object};
use pollux_mlx5_common::uar::{Uar, Uars, page};

/// Bytes of a send block, as a power of two.
const BLOCK_LOG2: u8 = 6;

/// The back end over the firmware's objects (`dv_flow_en=1`).
#[derive(Debug)]
pub struct Devx {
    firmware: Firmware,
    /// Completion queues that tell by a channel are the kernel's.
    verbs: Verbs,
    /// The event queue of completion vector 0.
    eqn: u32,
    domain: NumberedObject,
    tis: NumberedObject,
    /// What receive queues count under: packets for which there was no buffer.
    counters: Option<NumberedObject>,
    /// Forms of short completions that the kernel does not tell of.
    mini_formats: Vec<MiniFormat>,
    /// The enhanced layout of compressed completions, too, it does not tell of.
    enhanced_layout: bool,
    /// Joining of TCP segments, which the kernel does not tell of either.
    lro: Option<LroCaps>,
    /// Nor of VLAN tags that the device inserts.
    inserts_tags: bool,
    /// What receive queues, and what send queues can stamp: of [`stamps`].
    stamps: (u32, u32),
    /// There are capabilities of flow tables to be asked for.
    has_flow_tables: bool,
    /// Where rules can match the version in an IP header; asked when the first of them wants to.
    ip_versions: OnceLock<IpVersions>,
    /// Pages of doorbell records, by address.
    records: Mutex<HashMap<u64, NumberedObject>>,
}

impl Devx {
    /// Over the device that has these doorbell pages, which was opened with the right to send commands.
    ///
    /// # Errors
    /// What the kernel or the firmware says: then the device is used through the kernel's objects.
    pub fn new(uars: &Arc<Uars>) -> Result<Self, MlxError> {
        let device = uars.device();
        if device.answer.tot_bfregs != 0 {
            // The firmware's queues name their page by its own number, which such a kernel does not tell.
            let problem = "its kernel chooses the doorbell pages of queues itself".into();
            return Err(MlxError::Device { device: device.name().to_owned(), problem });
        }
        let firmware = Firmware::new(device);
        // A card that does not answer is not one that can do nothing. Which blocks there are, the general one says. Source: DPDK
        // `drivers/common/mlx5/mlx5_devx_cmds.c`, `mlx5_devx_cmd_query_hca_attr`.
        let caps: [u8; GeneralCaps::BYTES] = firmware.capabilities(kind::GENERAL)?;
        let ethernet = if GeneralCaps::ETH_NET_OFFLOADS.is_set(&caps) {
            firmware.capabilities(kind::ETHERNET_OFFLOADS)?
        } else {
            EthernetCaps::ZERO
        };
        let stamps = (GeneralCaps::RQ_TS_FORMAT.get(&caps), GeneralCaps::SQ_TS_FORMAT.get(&caps));
        for (name, format) in [("rq_ts_format", stamps.0), ("sq_ts_format", stamps.1)] {
            if !KNOWN_STAMPS.contains(&format) {
                let problem = format!("{name} is {format}, one of {KNOWN_STAMPS:?} expected");
                return Err(device.answered("QUERY_HCA_CAP", problem, "this driver, which knows no other"));
            }
        }
        let eqn = firmware.event_queue(0)?;
        let mut input = CommandIn::ZERO;
        start(&mut input, opcode::ALLOC_TRANSPORT_DOMAIN, 0, 0);
        let domain = firmware.create("allocate a transport domain", &input, Vec::new(), |output| {
            AllocTransportDomainOut::TRANSPORT_DOMAIN.get(output)
        })?;
        let mut input = CreateTisIn::ZERO;
        start(&mut input, opcode::CREATE_TIS, 0, 0);
        TisContext::TRANSPORT_DOMAIN.set(CreateTisIn::CTX.of_mut(&mut input), domain.number);
        let over = vec![domain.object.clone()];
        let tis = firmware.create("create a TIS", &input, over, |output| CreateTisOut::TISN.get(output))?;
        let counters = Self::counters(&firmware);
        Ok(Self {
            firmware,
            mini_formats: mini_formats(&caps),
            enhanced_layout: GeneralCaps::ENHANCED_CQE_COMPRESSION.is_set(&caps),
            lro: lro(&ethernet),
            // As Linux, and DPDK where no header has to be inline. Source: Linux
            // `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`, `MLX5E_SQ_STATE_VLAN_NEED_L2_INLINE`; DPDK
            // `drivers/net/mlx5/mlx5.c`, `mlx5_set_min_inline`.
            inserts_tags: EthernetCaps::WQE_VLAN_INSERT.is_set(&ethernet) && device.inline_min() == 0,
            stamps,
            has_flow_tables: GeneralCaps::NIC_FLOW_TABLE.is_set(&caps),
            ip_versions: OnceLock::new(),
            verbs: Verbs::new(Arc::clone(uars)),
            eqn,
            domain,
            tis,
            counters,
            records: Mutex::default(),
        })
    }

    fn counters(firmware: &Firmware) -> Option<NumberedObject> {
        let mut input = CommandIn::ZERO;
        start(&mut input, opcode::ALLOC_Q_COUNTER, 0, 0);
        let made = firmware.create("allocate a queue counter set", &input, Vec::new(), |output| {
            counter::AllocQCounterOut::COUNTER_SET_ID.get(output)
        });
        made.map_err(|error| tracing::debug!(target: "pmd.net.mlx5", "{error}")).ok()
    }

    fn ip_versions(&self) -> Result<IpVersions, MlxError> {
        if let Some(known) = self.ip_versions.get() {
            return Ok(*known);
        }
        let caps = if self.has_flow_tables {
            self.firmware.capabilities(kind::FLOW_TABLE)?
        } else {
            FlowTableNicCaps::ZERO
        };
        let receive = FlowTableNicCaps::FLOW_TABLE_PROPERTIES_NIC_RECEIVE.of(&caps);
        let fields = FlowTableProperties::FT_FIELD_SUPPORT.of(receive);
        Ok(*self.ip_versions.get_or_init(|| IpVersions {
            outer: FlowTableFields::OUTER_IP_VERSION.is_set(fields),
            inner: FlowTableFields::INNER_IP_VERSION.is_set(fields),
        }))
    }

    fn device(&self) -> &Arc<Device> {
        self.firmware.device()
    }

    /// The page that a record lies in, by number.
    fn record(&self, record: &DoorbellRecord) -> Result<NumberedObject, MlxError> {
        let page = record.address() - record.offset();
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = records.get(&page) {
            return Ok(known.clone());
        }
        // It was counted when it was reserved, and is not to be counted twice, with what is missing neither.
        let bytes = RECORD_PAGE_BYTES as u64;
        self.device().unpinned(Pinning::Queue, bytes);
        let made = self
            .firmware
            .umem("register doorbell records", page, bytes)
            .inspect_err(|_| self.device().locked().add(Pinning::Queue, bytes))?;
        Ok(records.entry(page).or_insert(made).clone())
    }

    fn ring(&self, ring: &Zone) -> Result<NumberedObject, MlxError> {
        self.firmware.umem("register a ring", ring.base().as_ptr().addr() as u64, ring.bytes() as u64)
    }

    /// The number of a doorbell page, which queues cannot do without.
    fn page(&self, page: Option<&Uar>) -> Result<u32, MlxError> {
        page.map(Uar::number).ok_or_else(|| MlxError::Device {
            device: self.device().name().to_owned(),
            problem: "a queue of the firmware was to be made without a doorbell page".into(),
        })
    }

    fn work_queue(
        &self,
        queue: &mut [u8; WorkQueue::BYTES],
        ring: &NumberedObject,
        (records, offset): (&NumberedObject, u64),
        (stride_log2, entries_log2): (u8, u8),
    ) {
        WorkQueue::WQ_TYPE.set(queue, wq::kind::CYCLIC);
        WorkQueue::PD.set(queue, self.device().pdn);
        WorkQueue::LOG_WQ_STRIDE.set(queue, stride_log2.into());
        WorkQueue::LOG_WQ_SZ.set(queue, entries_log2.into());
        // Pages of 4 KiB are 0.
        WorkQueue::LOG_WQ_PG_SZ.set(queue, 0);
        WorkQueue::DBR_UMEM_VALID.set(queue, 1);
        WorkQueue::WQ_UMEM_VALID.set(queue, 1);
        WorkQueue::DBR_ADDR.set(queue, offset);
        place::WQ_RECORD_UMEM.set(queue, records.number);
        place::WQ_UMEM.set(queue, ring.number);
        place::WQ_OFFSET.set(queue, 0);
    }
}

fn lro(caps: &[u8; EthernetCaps::BYTES]) -> Option<LroCaps> {
    let (periods, _) = EthernetCaps::LRO_TIMER_SUPPORTED_PERIODS.of(caps).as_chunks::<4>();
    let mut periods_us = [0; 4];
    for (place, period) in periods_us.iter_mut().zip(periods) {
        *place = u32::from_be_bytes(*period);
    }
    EthernetCaps::LRO_CAP
        .is_set(caps)
        .then_some(LroCaps { periods_us, from_l4: lro_size::MODE.get(caps) == lro_size::FROM_L4 })
}

/// Longest headers in front of TCP's. Source: DPDK `drivers/net/mlx5/mlx5_rxq.c`, `MLX5_MAX_TCP_HDR_OFFSET`.
const BEFORE_TCP: usize = 14 + 2 * 4 + 40;

fn mini_formats(caps: &[u8; GeneralCaps::BYTES]) -> Vec<MiniFormat> {
    let compresses = GeneralCaps::CQE_COMPRESSION.is_set(caps);
    let there = [
        (place::CAP_MINI_FLOW_TAG, MiniFormat::FlowTagStride),
        (place::CAP_MINI_HEADERS, MiniFormat::HeaderStride),
    ];
    there.into_iter().filter(|(cap, _)| compresses && cap.is_set(caps)).map(|(_, format)| format).collect()
}

/// Ticks of the clock where they can be had, as mlx5_ib asks for; a card that stamps the time of day alone refuses them.
/// Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `get_ts_format`; DPDK `drivers/common/mlx5/mlx5_prm.h`,
/// `mlx5_ts_format_conv`.
fn stamp_format(offered: u32) -> u32 {
    if offered == stamps::REAL_TIME { stamp::DEFAULT } else { stamp::FREE_RUNNING }
}

/// Formats of stamps that cards tell of: the clock, the time of day, both. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `MLX5_TIMESTAMP_FORMAT_CAP_*`.
const KNOWN_STAMPS: [u32; 3] = [stamps::FREE_RUNNING, stamps::REAL_TIME, stamps::BOTH];

/// All states of a queue.
const STATES: [QueueState; 3] = [QueueState::Reset, QueueState::Ready, QueueState::Error];

/// A state as contexts of send and receive queues have it.
fn code(state: QueueState) -> u32 {
    match state {
        QueueState::Reset => wq::state::RESET,
        QueueState::Ready => wq::state::READY,
        QueueState::Error => wq::state::ERROR,
    }
}

fn state_of(context_state: u32) -> Option<QueueState> {
    STATES.into_iter().find(|state| code(*state) == context_state)
}

impl Backend for Devx {
    fn name(&self) -> &'static str {
        "devx"
    }

    fn has_mini_format(&self, format: MiniFormat) -> bool {
        self.mini_formats.contains(&format)
    }

    fn inserts_tags(&self) -> bool {
        self.inserts_tags
    }

    fn stamps_ticks(&self) -> bool {
        self.stamps.0 != stamps::REAL_TIME
    }

    fn lro(&self) -> Option<LroCaps> {
        self.lro
    }

    fn has_enhanced_layout(&self) -> bool {
        self.enhanced_layout
    }

    fn create_cq(&self, spec: &CqSpec<'_>) -> Result<NumberedObject, MlxError> {
        if spec.channel.is_some() {
            return self.verbs.create_cq(spec);
        }
        let (ring, records) = (self.ring(spec.ring)?, self.record(spec.record)?);
        let mut input = CreateCqIn::ZERO;
        start(&mut input, opcode::CREATE_CQ, 0, 0);
        let context = CreateCqIn::CQ_CONTEXT.of_mut(&mut input);
        let stride = if spec.cqe_bytes == 128 { cq::stride::BYTES_128 } else { cq::stride::BYTES_64 };
        CqContext::CQE_SZ.set(context, stride);
        CqContext::DBR_UMEM_VALID.set(context, 1);
        CqContext::LOG_CQ_SIZE.set(context, spec.entries_log2.into());
        CqContext::UAR_PAGE.set(context, self.page(spec.uar)?);
        CqContext::C_EQN_OR_APU_ELEMENT.set(context, self.eqn);
        CqContext::LOG_PAGE_SIZE.set(context, 0);
        CqContext::DBR_ADDR.set(context, spec.record.offset());
        if let Some(format) = spec.compressed {
            CqContext::CQE_COMP_EN.set(context, 1);
            CqContext::MINI_CQE_RES_FORMAT.set(context, format as u32 & 3);
            place::CQ_MINI_FORMAT_EXT.set(context, format as u32 >> 2);
            let layout = if spec.enhanced { layout::ENHANCED } else { layout::BASIC };
            CqContext::CQE_COMPRESSION_LAYOUT.set(context, layout);
        }
        place::CQ_RECORD_UMEM.set(context, records.number);
        CreateCqIn::CQ_UMEM_VALID.set(&mut input, 1);
        place::CQ_UMEM.set(&mut input, ring.number);
        place::CQ_OFFSET.set(&mut input, 0);
        let over = [ring.object, records.object].into_iter().chain(page(spec.uar)).collect();
        self.firmware.create("create a completion queue", &input, over, |output| CreateCqOut::CQN.get(output))
    }

    fn create_rq(&self, spec: &RqSpec<'_>) -> Result<NumberedObject, MlxError> {
        let (ring, records) = (self.ring(spec.ring)?, self.record(spec.record)?);
        let mut input = CreateRqIn::ZERO;
        start(&mut input, opcode::CREATE_RQ, 0, 0);
        let context = CreateRqIn::CTX.of_mut(&mut input);
        RqContext::VSD.set(context, u32::from(!spec.vlan_strip));
        RqContext::SCATTER_FCS.set(context, spec.keep_crc.into());
        RqContext::DELAY_DROP_EN.set(context, spec.delay_drop.into());
        RqContext::FLUSH_IN_ERROR_EN.set(context, 1);
        RqContext::MEM_RQ_TYPE.set(context, rq::memory::INLINE);
        RqContext::STATE.set(context, wq::state::RESET);
        RqContext::TS_FORMAT.set(context, stamp_format(self.stamps.0));
        RqContext::USER_INDEX.set(context, spec.user_index);
        RqContext::CQN.set(context, spec.cq.number);
        let mut over = vec![spec.cq.object.clone(), ring.object.clone(), records.object.clone()];
        if let Some(counters) = &self.counters {
            RqContext::COUNTER_SET_ID.set(context, counters.number);
            over.push(counters.object.clone());
        }
        let queue = RqContext::WQ.of_mut(context);
        let record = (&records, spec.record.offset());
        self.work_queue(queue, &ring, record, (spec.wqe_bytes_log2, spec.wqes_log2));
        if spec.padding {
            WorkQueue::END_PADDING_MODE.set(queue, wq::end_padding::ALIGN);
        }
        if let Some((strides_log2, stride_bytes_log2, shift)) = spec.striding {
            WorkQueue::WQ_TYPE.set(queue, wq::kind::CYCLIC_STRIDING_RQ);
            // Fewer strides than the base wrap in the field's four bits. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`,
            // `create_rq`, `fw_map`.
            let strides = u32::from(strides_log2).wrapping_sub(wq::LOG_STRIDES_BASE) & 0xf;
            WorkQueue::LOG_WQE_NUM_OF_STRIDES.set(queue, strides);
            let bytes = u32::from(stride_bytes_log2).saturating_sub(wq::LOG_STRIDE_BYTES_BASE);
            WorkQueue::LOG_WQE_STRIDE_SIZE.set(queue, bytes);
            WorkQueue::TWO_BYTE_SHIFT_EN.set(queue, shift.into());
        }
        self.firmware.create("create a receive queue", &input, over, |output| CreateRqOut::RQN.get(output))
    }

    fn modify_rq(&self, rq: &NumberedObject, from: QueueState, to: QueueState) -> Result<(), MlxError> {
        let mut input = ModifyRqIn::ZERO;
        start(&mut input, opcode::MODIFY_RQ, 0, 0);
        ModifyRqIn::RQ_STATE.set(&mut input, code(from));
        ModifyRqIn::RQN.set(&mut input, rq.number);
        RqContext::STATE.set(ModifyRqIn::CTX.of_mut(&mut input), code(to));
        self.firmware.modify("change the state of a receive queue", &rq.object, &input)
    }

    fn rq_state(&self, rq: &NumberedObject) -> Result<Option<QueueState>, MlxError> {
        let mut input = QueryRqIn::ZERO;
        start(&mut input, opcode::QUERY_RQ, 0, 0);
        QueryRqIn::RQN.set(&mut input, rq.number);
        let mut output = QueryRqOut::ZERO;
        self.firmware.query("ask for the state of a receive queue", &rq.object, &input, &mut output)?;
        Ok(state_of(RqContext::STATE.get(QueryRqOut::RQ_CONTEXT.of(&output))))
    }

    fn set_vlan_strip(&self, rq: &NumberedObject, state: QueueState, on: bool) -> Result<(), MlxError> {
        let mut input = ModifyRqIn::ZERO;
        start(&mut input, opcode::MODIFY_RQ, 0, 0);
        ModifyRqIn::RQ_STATE.set(&mut input, code(state));
        ModifyRqIn::RQN.set(&mut input, rq.number);
        ModifyRqIn::MODIFY_BITMASK.set(&mut input, rq::modify::VSD);
        let context = ModifyRqIn::CTX.of_mut(&mut input);
        RqContext::STATE.set(context, code(state));
        RqContext::VSD.set(context, u32::from(!on));
        self.firmware.modify("change VLAN stripping", &rq.object, &input)
    }

    fn create_sq(&self, spec: &SqSpec<'_>) -> Result<SendQueue, MlxError> {
        let (ring, records) = (self.ring(spec.ring)?, self.record(spec.record)?);
        let mut input = CreateSqIn::ZERO;
        start(&mut input, opcode::CREATE_SQ, 0, 0);
        let context = CreateSqIn::CTX.of_mut(&mut input);
        SqContext::FLUSH_IN_ERROR_EN.set(context, 1);
        SqContext::ALLOW_MULTI_PKT_SEND_WQE.set(context, spec.multi_packet.into());
        SqContext::MIN_WQE_INLINE_MODE.set(context, self.inline_mode());
        SqContext::ALLOW_SWP.set(context, spec.software_parsing.into());
        SqContext::STATE.set(context, wq::state::RESET);
        SqContext::TS_FORMAT.set(context, stamp_format(self.stamps.1));
        SqContext::USER_INDEX.set(context, spec.user_index);
        SqContext::CQN.set(context, spec.cq.number);
        SqContext::TIS_LST_SZ.set(context, 1);
        SqContext::TIS_NUM_0.set(context, self.tis.number);
        let queue = SqContext::WQ.of_mut(context);
        let blocks = (BLOCK_LOG2, spec.wqebbs_log2);
        self.work_queue(queue, &ring, (&records, spec.record.offset()), blocks);
        WorkQueue::UAR_PAGE.set(queue, self.page(spec.uar)?);
        let over = [spec.cq.object.clone(), ring.object, records.object, self.tis.object.clone()];
        let over = over.into_iter().chain(page(spec.uar)).collect();
        let made = self
            .firmware
            .create("create a send queue", &input, over, |output| CreateSqOut::SQN.get(output))?;
        Ok(SendQueue { object: made.object, number: made.number, control_imm: 0, register: 0 })
    }

    fn modify_sq(&self, sq: &SendQueue, from: QueueState, to: QueueState) -> Result<(), MlxError> {
        let mut input = ModifySqIn::ZERO;
        start(&mut input, opcode::MODIFY_SQ, 0, 0);
        ModifySqIn::SQ_STATE.set(&mut input, code(from));
        ModifySqIn::SQN.set(&mut input, sq.number);
        SqContext::STATE.set(ModifySqIn::CTX.of_mut(&mut input), code(to));
        self.firmware.modify("change the state of a send queue", &sq.object, &input)
    }

    fn sq_state(&self, sq: &SendQueue) -> Result<Option<QueueState>, MlxError> {
        let mut input = QuerySqIn::ZERO;
        start(&mut input, opcode::QUERY_SQ, 0, 0);
        QuerySqIn::SQN.set(&mut input, sq.number);
        let mut output = QuerySqOut::ZERO;
        self.firmware.query("ask for the state of a send queue", &sq.object, &input, &mut output)?;
        Ok(state_of(SqContext::STATE.get(QuerySqOut::SQ_CONTEXT.of(&output))))
    }

    fn create_table(&self, queues: &[&NumberedObject]) -> Result<NumberedObject, MlxError> {
        let mut input = CreateRqtIn::ZERO;
        start(&mut input, opcode::CREATE_RQT, 0, 0);
        let context = CreateRqtIn::RQT_CONTEXT.of_mut(&mut input);
        RqtContext::RQT_MAX_SIZE.set(context, queues.len() as u32);
        RqtContext::RQT_ACTUAL_SIZE.set(context, queues.len() as u32);
        let mut input = input.to_vec();
        input.extend(queues.iter().flat_map(|queue| queue.number.to_be_bytes()));
        let over = queues.iter().map(|queue| queue.object.clone()).collect();
        self.firmware.create("create a receive queue indirection table", &input, over, |output| {
            CreateRqtOut::RQTN.get(output)
        })
    }

    fn create_hash(
        &self,
        spec: &HashSpec,
        table: &NumberedObject,
        _table_log2: u8,
    ) -> Result<NumberedObject, MlxError> {
        let mut input = CreateTirIn::ZERO;
        start(&mut input, opcode::CREATE_TIR, 0, 0);
        let context = CreateTirIn::CTX.of_mut(&mut input);
        TirContext::DISP_TYPE.set(context, dispatch::INDIRECT);
        TirContext::INDIRECT_TABLE.set(context, table.number);
        TirContext::TRANSPORT_DOMAIN.set(context, self.domain.number);
        // Over no field too: a TIR over a table has a function. Source: DPDK `drivers/net/mlx5/mlx5_devx.c`,
        // `mlx5_devx_tir_attr_set`; Linux `drivers/infiniband/hw/mlx5/qp.c`, `create_rss_raw_qp_tir`.
        TirContext::RX_HASH_FN.set(context, hash::TOEPLITZ);
        TirContext::RX_HASH_TOEPLITZ_KEY.set(context, spec.key);
        TirContext::RX_HASH_FIELD_SELECTOR_OUTER.set(context, selector(spec.fields));
        if let (Some(merge), Some(caps)) = (&spec.merge, &self.lro) {
            let bytes = merge.bytes_max.saturating_sub(if caps.from_l4 { BEFORE_TCP } else { 0 });
            let units = (bytes / merge::SIZE_UNIT).min(merge::SIZE_MAX as usize) as u32;
            // Less than one unit is nothing that could be joined.
            if units > 0 {
                TirContext::LRO_TIMEOUT_PERIOD_USECS.set(context, merge.timeout_us);
                TirContext::PACKET_MERGE_MASK.set(context, merge::IPV4_LRO | merge::IPV6_LRO);
                TirContext::LRO_MAX_IP_PAYLOAD_SIZE.set(context, units);
            }
        }
        let over = vec![table.object.clone(), self.domain.object.clone()];
        self.firmware.create("create an RSS queue", &input, over, |output| CreateTirOut::TIRN.get(output))
    }

    fn create_counter(&self) -> Result<FlowCounter, MlxError> {
        let mut input = counter::AllocFlowCounterIn::ZERO;
        start(&mut input, opcode::ALLOC_FLOW_COUNTER, 0, 0);
        let made = self.firmware.create("create a flow counter", &input, Vec::new(), |output| {
            counter::AllocFlowCounterOut::FLOW_COUNTER_ID.get(output)
        })?;
        Ok(FlowCounter { object: made.object, number: made.number })
    }

    fn read_counter(&self, flow_counter: &FlowCounter) -> Result<(u64, u64), MlxError> {
        use counter::{QueryFlowCounterIn, QueryFlowCounterOut, TrafficCounter};
        let mut input = QueryFlowCounterIn::ZERO;
        start(&mut input, opcode::QUERY_FLOW_COUNTER, 0, 0);
        QueryFlowCounterIn::FLOW_COUNTER_ID.set(&mut input, flow_counter.number);
        let mut output = [0; QueryFlowCounterOut::BYTES + TrafficCounter::BYTES];
        self.firmware.query("read a flow counter", &flow_counter.object, &input, &mut output)?;
        let values: &[u8; TrafficCounter::BYTES] =
            output.last_chunk().expect("the answer ends with the counter");
        Ok((TrafficCounter::PACKETS.get(values), TrafficCounter::OCTETS.get(values)))
    }

    fn out_of_buffer(&self) -> Result<Option<u64>, MlxError> {
        let Some(counters) = &self.counters else { return Ok(None) };
        let mut input = counter::QueryQCounterIn::ZERO;
        start(&mut input, opcode::QUERY_Q_COUNTER, 0, 0);
        counter::QueryQCounterIn::COUNTER_SET_ID.set(&mut input, counters.number);
        let mut output = counter::QueryQCounterOut::ZERO;
        self.firmware.query("read queue counters", &counters.object, &input, &mut output)?;
        Ok(Some(counter::QueryQCounterOut::OUT_OF_BUFFER.get(&output).into()))
    }

    fn create_flow(&self, flow: &FlowRule<'_>) -> Result<Object, MlxError> {
        rule::create(self.device(), flow, || self.ip_versions())
    }
}

impl Devx {
    fn inline_mode(&self) -> u32 {
        match self.device().inline_min() {
            0 => min_inline::NONE,
            18 => min_inline::L2,
            58 => min_inline::IP,
            _ => min_inline::TCP_UDP,
        }
    }
}

/// The firmware's way to say which fields are hashed.
fn selector(fields: u64) -> u32 {
    use kernel_field as k;
    if fields == 0 {
        return 0;
    }
    let has = |mask: u64| fields & mask != 0;
    let mut block = HashFields::ZERO;
    if has(k::SRC_IPV6 | k::DST_IPV6) {
        HashFields::L3_PROT_TYPE.set(&mut block, protocol::IPV6);
    }
    if has(k::SRC_PORT_UDP | k::DST_PORT_UDP) {
        HashFields::L4_PROT_TYPE.set(&mut block, protocol::UDP);
    }
    let mut selected = 0;
    for (mask, bit) in [
        (k::SRC_IPV4 | k::SRC_IPV6, hash_field::SRC_IP),
        (k::DST_IPV4 | k::DST_IPV6, hash_field::DST_IP),
        (k::SRC_PORT_TCP | k::SRC_PORT_UDP, hash_field::L4_SPORT),
        (k::DST_PORT_TCP | k::DST_PORT_UDP, hash_field::L4_DPORT),
    ] {
        if has(mask) {
            selected |= bit;
        }
    }
    HashFields::SELECTED_FIELDS.set(&mut block, selected);
    u32::from_be_bytes(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashed_fields_are_said_as_the_firmware_reads_them() {
        use kernel_field as k;
        assert_eq!(selector(0), 0);
        assert_eq!(selector(k::SRC_IPV4 | k::DST_IPV4), 0b0011);
        assert_eq!(selector(k::SRC_IPV4 | k::SRC_PORT_TCP | k::DST_PORT_TCP), 0b1101);
        assert_eq!(selector(k::SRC_IPV6 | k::DST_IPV6 | k::DST_PORT_UDP), 1 << 31 | 1 << 30 | 0b1011);
    }
}
