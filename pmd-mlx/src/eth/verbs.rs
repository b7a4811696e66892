//! Queues and rules as objects of the kernel.
//!
//! Source of what the kernel checks: Linux `drivers/infiniband/hw/mlx5/{cq,qp,fs}.c`; of the order of the steps: DPDK
//! `drivers/net/mlx5/linux/mlx5_verbs.c`.

use std::sync::{Arc, Mutex, PoisonError};

use pollux_mlx5_abi::cqe::MiniFormat;
use pollux_mlx5_abi::kernel::completion_queue::{self, CreateCqAnswer, cq_flag, mini_format};
use pollux_mlx5_abi::kernel::context;
use pollux_mlx5_abi::kernel::flow::{CounterPlace, CountersData, CreateFlow, counter};
use pollux_mlx5_abi::kernel::queue_pair::{self, CreateQpAnswer, CreateRssQp, hash_function, qp_flag};
use pollux_mlx5_abi::kernel::work_queue::{self, CreateRwqTableAnswer, CreateWqAnswer, ModifyWq, wq_mask};
use pollux_uverbs::abi::flags::{CqFlags, FlowFlags, FlowType, QpMask, QpState, QpType, WqFlags, WqState};
use pollux_uverbs::abi::queue_pair::{ModifyQp, QpCap};
use pollux_uverbs::cq::CqRequest;
use pollux_uverbs::flow::{self, FlowSpec};
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::wq::{WqChange, WqRequest};
use pollux_uverbs::{CqHandle, Driver, Errno, QpHandle, UverbsError, WqHandle};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::matching::IpVersions;
use super::rule;
use crate::eth::backend::{
    Backend, CqSpec, FlowAction, FlowCounter, FlowRule, HashSpec, QueueState, RqSpec, SendQueue, SqSpec,
};
use pollux_mlx5_abi::kernel::queue_pair::HASH_KEY_BYTES;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::{Device, PORT, Pinning};
use pollux_mlx5_common::object::{Id, NumberedObject, Object, other};
use pollux_mlx5_common::uar::{Uar, Uars, page};

/// The back end over the kernel's own objects (`dv_flow_en=0`).
#[derive(Debug)]
pub struct Verbs {
    device: Arc<Device>,
    uars: Arc<Uars>,
    /// Where rules that drop lead, for a rule of the kernel needs a queue pair: made when the first of them is.
    sink: Mutex<Option<Object>>,
}

impl Verbs {
    /// Over the device that has these doorbell pages.
    #[must_use]
    pub fn new(uars: Arc<Uars>) -> Self {
        Self { device: Arc::clone(uars.device()), uars, sink: Mutex::default() }
    }

    fn cq_handle(object: &NumberedObject) -> CqHandle {
        match object.object.id() {
            Id::Cq(handle) => handle,
            other => unreachable!("{other:?} is not a completion queue of the kernel"),
        }
    }

    fn wq_handle(object: &NumberedObject) -> WqHandle {
        match object.object.id() {
            Id::Wq(handle) => handle,
            other => unreachable!("{other:?} is not a work queue of the kernel"),
        }
    }

    fn qp_handle(object: &Object) -> QpHandle {
        match object.id() {
            Id::Qp(handle) => handle,
            other => unreachable!("{other:?} is not a queue pair of the kernel"),
        }
    }

    fn refused(&self, what: &'static str) -> impl FnOnce(UverbsError) -> MlxError {
        let device = Arc::clone(&self.device);
        move |error| device.failed(what, error)
    }

    fn step(&self, qp: QpHandle, what: &'static str, mask: QpMask, values: ModifyQp) -> Result<(), MlxError> {
        let context = self.device.context();
        context.modify_qp(qp, mask | QpMask::STATE, &values, Driver::none()).map_err(self.refused(what))
    }

    fn create_cq_with(&self, spec: &CqSpec<'_>, flags: CqFlags) -> Result<NumberedObject, MlxError> {
        let driver = completion_queue::CreateCq {
            buf_addr: spec.ring.base().as_ptr().addr() as u64,
            db_addr: spec.record.address(),
            cqe_size: spec.cqe_bytes as u32,
            cqe_comp_en: u8::from(spec.compressed.is_some()),
            cqe_comp_res_format: match spec.compressed {
                None => 0,
                Some(MiniFormat::Hash) => mini_format::HASH,
                Some(MiniFormat::ChecksumStride) => mini_format::CSUM_STRIDX,
                // The kernel knows no other by name.
                Some(_) => mini_format::CSUM,
            },
            flags: if spec.uar.is_some() { cq_flag::UAR_PAGE_INDEX } else { 0 },
            uar_page_index: spec.uar.map_or(0, Uar::number) as u16,
            ..completion_queue::CreateCq::default()
        };
        let request = CqRequest {
            // The kernel adds one and rounds up to a power of two.
            entries: (1 << spec.entries_log2) - 1,
            user_handle: spec.user_handle,
            channel: spec.channel,
            vector: 0,
            flags,
        };
        let bytes = spec.ring.bytes() as u64;
        let mut answer = CreateCqAnswer::new_zeroed();
        let cq = self.device.pinning("create a completion queue", Pinning::Queue, bytes, |context| {
            context.create_cq(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
        });
        let cq = cq.map_err(|error| {
            error.with(|| {
                let form = spec.compressed.map_or(String::new(), |form| format!(", compressed as {form:?}"));
                format!("{} entries of {} bytes{form}", 1 << spec.entries_log2, spec.cqe_bytes)
            })
        })?;
        let object = Object::pinning(&self.device, Id::Cq(cq.handle), page(spec.uar).collect(), bytes);
        Ok(NumberedObject { object, number: self.device.number("a completion queue", answer.cqn)? })
    }

    /// A receive queue that stays in RESET, over a completion queue with these flags.
    fn idle_queue(&self, flags: CqFlags) -> Result<NumberedObject, MlxError> {
        let mut ring = self.device.zone("idle queue", 2 * 4096)?;
        for entry in 0..4 {
            ring.copy_in(entry * 64 + 63, &[pollux_mlx5_abi::cqe::FRESH]);
        }
        let (cq_record, record) = (self.device.record()?, self.device.record()?);
        let page = self.uars.for_completions()?;
        let spec = CqSpec {
            ring: &ring,
            entries_log2: 2,
            cqe_bytes: 64,
            record: &cq_record,
            uar: page.as_ref(),
            compressed: None,
            enhanced: false,
            channel: None,
            user_handle: 0,
        };
        let cq = self.create_cq_with(&spec, flags)?;
        let entries = self.device.zone("idle queue", 4096)?;
        let rq = self.create_rq(&RqSpec {
            ring: &entries,
            wqes_log2: 2,
            wqe_bytes_log2: 4,
            record: &record,
            cq: &cq,
            striding: None,
            vlan_strip: false,
            keep_crc: false,
            delay_drop: false,
            padding: false,
            user_index: self.device.user_index(0),
        })?;
        // Nothing ever arrives, and yet a record is the device's as long as its queue is there: another queue's stores to it would
        // be taken for this one's.
        let NumberedObject { object, number } = rq;
        Ok(NumberedObject { object: object.keeping((ring, entries, cq_record, record)), number })
    }

    /// A queue pair on which nothing ever arrives.
    fn sink(&self) -> Result<Object, MlxError> {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*sink {
            return Ok(made.clone());
        }
        let rq = self.idle_queue(CqFlags::empty())?;
        let table = self.create_table(&[&rq])?;
        let hash =
            self.create_hash(&HashSpec { fields: 0, key: [0; HASH_KEY_BYTES], merge: None }, &table, 0)?;
        Ok(sink.insert(hash.object).clone())
    }
}

impl Backend for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn stamps_ticks(&self) -> bool {
        // A kernel that tells of real time does so of cards that stamp nothing else, and of such as stamp either. It refuses
        // ticks to the former alone. Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `set_ucontext_resp`; `qp.c`,
        // `get_ts_format`.
        if self.device.answer.comp_mask & context::answer::REAL_TIME_TS == 0 {
            return true;
        }
        match self.idle_queue(CqFlags::TIMESTAMP_COMPLETION) {
            Ok(_destroyed) => true,
            Err(error) => {
                tracing::debug!(target: "pmd.net.mlx5", "{}: no time stamps: {error}", self.device.name());
                false
            }
        }
    }

    fn create_cq(&self, spec: &CqSpec<'_>) -> Result<NumberedObject, MlxError> {
        self.create_cq_with(spec, CqFlags::empty())
    }

    fn create_rq(&self, spec: &RqSpec<'_>) -> Result<NumberedObject, MlxError> {
        let mut driver = work_queue::CreateWq {
            buf_addr: spec.ring.base().as_ptr().addr() as u64,
            db_addr: spec.record.address(),
            rq_wqe_count: 1 << spec.wqes_log2,
            rq_wqe_shift: spec.wqe_bytes_log2.into(),
            user_index: spec.user_index,
            ..work_queue::CreateWq::default()
        };
        if let Some((strides_log2, stride_bytes_log2, shift)) = spec.striding {
            driver.comp_mask |= wq_mask::STRIDING_RQ;
            driver.single_wqe_log_num_of_strides = strides_log2.into();
            driver.single_stride_log_num_of_bytes = stride_bytes_log2.into();
            driver.two_byte_shift_en = shift.into();
        }
        let mut flags = WqFlags::empty();
        flags.set(WqFlags::CVLAN_STRIPPING, spec.vlan_strip);
        flags.set(WqFlags::SCATTER_FCS, spec.keep_crc);
        flags.set(WqFlags::DELAY_DROP, spec.delay_drop);
        flags.set(WqFlags::PCI_WRITE_END_PADDING, spec.padding);
        let request = WqRequest {
            pd: self.device.pd,
            cq: Self::cq_handle(spec.cq),
            max_wr: 1 << spec.wqes_log2,
            max_sge: 1 << (spec.wqe_bytes_log2 - 4),
            flags,
            user_handle: spec.user_index.into(),
        };
        let bytes = spec.ring.bytes() as u64;
        let mut answer = CreateWqAnswer::new_zeroed();
        let wq = self.device.pinning("create a receive queue", Pinning::Queue, bytes, |context| {
            context.create_wq(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
        });
        let wq = wq.map_err(|error| {
            error.with(|| {
                let strides = spec.striding.map_or(String::new(), |(count, bytes, _)| {
                    format!(", {} strides of {} bytes", 1_u32 << count, 1_u32 << bytes)
                });
                let flags = if flags.is_empty() { String::new() } else { format!(", {flags:?}") };
                format!(
                    "{} entries of {} bytes{strides}{flags}",
                    1 << spec.wqes_log2,
                    1 << spec.wqe_bytes_log2
                )
            })
        })?;
        let object = Object::pinning(&self.device, Id::Wq(wq.handle), vec![spec.cq.object.clone()], bytes);
        Ok(NumberedObject { object, number: self.device.number("a receive queue", wq.wqn)? })
    }

    fn modify_rq(&self, rq: &NumberedObject, _from: QueueState, to: QueueState) -> Result<(), MlxError> {
        let state = |state| match state {
            QueueState::Reset => WqState::RESET,
            QueueState::Ready => WqState::RDY,
            QueueState::Error => WqState::ERR,
        };
        // The kernel goes by the state that it knows, and refuses another.
        let change = WqChange { state: Some(state(to)), ..WqChange::default() };
        let driver = ModifyWq::default();
        self.device
            .context()
            .modify_wq(Self::wq_handle(rq), &change, Driver::new(driver.as_bytes(), &mut []))
            .map_err(self.refused("modify a receive queue"))
    }

    fn set_vlan_strip(&self, rq: &NumberedObject, _state: QueueState, on: bool) -> Result<(), MlxError> {
        let strip = WqFlags::CVLAN_STRIPPING;
        let flags = Some((if on { strip } else { WqFlags::empty() }, strip));
        let change = WqChange { flags, ..WqChange::default() };
        let driver = ModifyWq::default();
        self.device
            .context()
            .modify_wq(Self::wq_handle(rq), &change, Driver::new(driver.as_bytes(), &mut []))
            .map_err(self.refused("change VLAN stripping"))
    }

    fn create_sq(&self, spec: &SqSpec<'_>) -> Result<SendQueue, MlxError> {
        let driver = queue_pair::CreateQp {
            db_addr: spec.record.address(),
            sq_wqe_count: 1 << spec.wqebbs_log2,
            flags: if spec.uar.is_some() { qp_flag::UAR_PAGE_INDEX } else { 0 },
            uidx: spec.user_index,
            bfreg_index: spec.uar.map_or(0, Uar::number),
            sq_buf_addr: spec.ring.base().as_ptr().addr() as u64,
            ..queue_pair::CreateQp::default()
        };
        let cq = Self::cq_handle(spec.cq);
        let request = QpRequest {
            send_cq: Some(cq),
            recv_cq: Some(cq),
            cap: QpCap { max_send_wr: 1 << spec.wqebbs_log2, max_send_sge: 1, ..QpCap::default() },
            user_handle: spec.user_index.into(),
            ..QpRequest::new(QpType::RAW_PACKET, QpHome::Pd(self.device.pd))
        };
        let bytes = spec.ring.bytes() as u64;
        let mut answer = CreateQpAnswer::new_zeroed();
        let qp = self.device.pinning("create a send queue", Pinning::Queue, bytes, |context| {
            context.create_qp(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
        });
        let qp =
            qp.map_err(|error| error.with(|| format!("{} blocks of 64 bytes", 1 << spec.wqebbs_log2)))?;
        let over = [spec.cq.object.clone()].into_iter().chain(page(spec.uar)).collect();
        let object = Object::pinning(&self.device, Id::Qp(qp.handle), over, bytes);
        // The kernel calls a raw queue pair by its send queue's number.
        let number = self.device.number("a send queue", qp.qpn)?;
        Ok(SendQueue { object, number, control_imm: 0, register: answer.bfreg_index })
    }

    fn modify_sq(&self, sq: &SendQueue, _from: QueueState, to: QueueState) -> Result<(), MlxError> {
        let qp = Self::qp_handle(&sq.object);
        let what = "modify a send queue";
        let state = |state: QpState| ModifyQp { qp_state: state.0, ..ModifyQp::default() };
        match to {
            QueueState::Reset => self.step(qp, what, QpMask::empty(), state(QpState::RESET)),
            QueueState::Error => self.step(qp, what, QpMask::empty(), state(QpState::ERR)),
            QueueState::Ready => {
                let init = ModifyQp { port_num: PORT, ..state(QpState::INIT) };
                self.step(qp, what, QpMask::PORT, init)?;
                self.step(qp, what, QpMask::empty(), state(QpState::RTR))?;
                self.step(qp, what, QpMask::empty(), state(QpState::RTS))
            }
        }
    }

    /// The kernel asks the device, and names what it learns from then on, where it would name what it asked for last. Source:
    /// Linux `drivers/infiniband/hw/mlx5/qp.c`, `query_raw_packet_qp_sq_state`, `modify_raw_packet_qp_sq`. Of a receive work
    /// queue it has no such call: it goes by its own, which cards take from it (`mlx5_ib_modify_wq`).
    fn sq_state(&self, sq: &SendQueue) -> Result<Option<QueueState>, MlxError> {
        let qp = Self::qp_handle(&sq.object);
        let asked = self.device.context().query_qp(qp, QpMask::STATE);
        asked.map_err(self.refused("query a send queue")).map(|_| None)
    }

    fn create_table(&self, queues: &[&NumberedObject]) -> Result<NumberedObject, MlxError> {
        let handles: Vec<WqHandle> = queues.iter().map(|queue| Self::wq_handle(queue)).collect();
        let mut answer = CreateRwqTableAnswer::new_zeroed();
        let table = self
            .device
            .context()
            .create_rwq_ind_table(&handles, Driver::new(&[], answer.as_mut_bytes()))
            .map_err(self.refused("create a receive queue indirection table"))?;
        let over = queues.iter().map(|queue| queue.object.clone()).collect();
        let object = Object::over(&self.device, Id::Table(table.handle), over);
        Ok(NumberedObject { object, number: table.number })
    }

    fn create_hash(
        &self,
        spec: &HashSpec,
        table: &NumberedObject,
        _table_log2: u8,
    ) -> Result<NumberedObject, MlxError> {
        let mut driver = CreateRssQp::new_zeroed();
        driver.rx_hash_fields_mask = spec.fields;
        driver.rx_hash_function = hash_function::TOEPLITZ;
        driver.rx_key_len = HASH_KEY_BYTES as u8;
        driver.rx_hash_key[..HASH_KEY_BYTES].copy_from_slice(&spec.key);
        let Id::Table(handle) = table.object.id() else {
            unreachable!("{:?} is no table of the kernel", table.object.id())
        };
        let request = QpRequest {
            ind_table: Some(handle),
            ..QpRequest::new(QpType::RAW_PACKET, QpHome::Pd(self.device.pd))
        };
        let mut answer = CreateQpAnswer::new_zeroed();
        let qp = self
            .device
            .context()
            .create_qp(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
            .map_err(self.refused("create an RSS queue"))?;
        let object = Object::over(&self.device, Id::Qp(qp.handle), vec![table.object.clone()]);
        Ok(NumberedObject { object, number: answer.tirn })
    }

    fn create_counter(&self) -> Result<FlowCounter, MlxError> {
        let handle =
            self.device.context().create_counters(|_| {}).map_err(self.refused("create a flow counter"))?;
        Ok(FlowCounter { object: Object::new(&self.device, Id::Counters(handle)), number: 0 })
    }

    fn read_counter(&self, counter: &FlowCounter) -> Result<(u64, u64), MlxError> {
        let Id::Counters(handle) = counter.object.id() else {
            unreachable!("{:?} is no counter of the kernel", counter.object.id())
        };
        let mut values = [0; 2];
        self.device
            .context()
            .read_counters(handle, false, &mut values)
            .map_err(self.refused("read a flow counter"))?;
        Ok((values[0], values[1]))
    }

    fn create_flow(&self, flow: &FlowRule<'_>) -> Result<Object, MlxError> {
        let mut specs = flow.items.to_vec();
        let mut over = Vec::new();
        let target = match &flow.action {
            FlowAction::Queue(queue) => queue.clone(),
            FlowAction::Drop => {
                specs.push(FlowSpec::Drop);
                self.sink()?
            }
            // Verbs have no word for it.
            FlowAction::Kernel => {
                let versions = || Ok(IpVersions { outer: false, inner: false });
                return rule::create(&self.device, flow, versions);
            }
        };
        let qp = Self::qp_handle(&target);
        over.push(target);
        if let Some(tag) = flow.tag {
            specs.push(FlowSpec::Tag(tag));
        }
        // The kernel follows the address at once.
        let places = Counting::PLACES;
        let mut driver = Counting::default();
        if let Some(counter) = flow.counter {
            let Id::Counters(handle) = counter.object.id() else {
                unreachable!("{:?} is no counter of the kernel", counter.object.id())
            };
            specs.push(FlowSpec::Count(handle));
            over.push(counter.object.clone());
            driver = Counting::of(&places);
        }
        let rule = flow::FlowRule {
            qp,
            port: PORT,
            priority: flow.priority,
            kind: FlowType::NORMAL,
            flags: FlowFlags::empty(),
            specs: &specs,
        };
        let data = if rule.specs.iter().any(|spec| matches!(spec, FlowSpec::Count(_))) {
            Driver::new(driver.as_bytes(), &mut [])
        } else {
            Driver::none()
        };
        let made = self.device.context().create_flow(&rule, data);
        let handle = made.map_err(self.refused("create a flow rule"))?;
        Ok(Object::over(&self.device, Id::Flow(handle), over))
    }
}

/// What a rule that counts adds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
struct Counting {
    head: CreateFlow,
    list: CountersData,
}

impl Counting {
    /// Packets stand first in the answer, then bytes.
    const PLACES: [CounterPlace; 2] = [
        CounterPlace { description: counter::PACKETS, index: 0 },
        CounterPlace { description: counter::BYTES, index: 1 },
    ];

    fn of(places: &[CounterPlace]) -> Self {
        let counters_data = places.as_ptr().expose_provenance() as u64;
        let list = CountersData { counters_data, ncounters: places.len() as u32, reserved: 0 };
        Self { head: CreateFlow { ncounters_data: 1, reserved: 0 }, list }
    }
}

/// Highest priority number that the device takes, found by trial: kernels tell nobody. Source: DPDK
/// `drivers/net/mlx5/mlx5_flow.c`, `mlx5_flow_discover_priorities`.
///
/// # Errors
/// When not even priority 0 is taken.
pub fn priorities(backend: &dyn Backend) -> Result<u16, MlxError> {
    let tried = |priority| {
        let any = FlowSpec::Eth { value: Default::default(), mask: Default::default(), inner: false };
        let rule = FlowRule { items: &[any], priority, action: FlowAction::Drop, tag: None, counter: None };
        backend.create_flow(&rule)
    };
    drop(tried(0)?);
    let highest = [15, 7].into_iter().find(|priority| tried(*priority).is_ok());
    highest.ok_or_else(|| {
        let (operation, words) = (other("create_flow"), Some("neither 16 nor 8 priorities are taken".into()));
        let refused = UverbsError::Refused { operation, errno: Errno::EINVAL, words };
        MlxError::verbs("find the priorities of flow rules")(refused)
    })
}
