//! A device, the kernel over it, and a record of every command between the two.
#![expect(unsafe_code, reason = "opens contexts and registers memory")]

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use pollux_eal::memory::Memory;
use pollux_eal::region::Zone;
use pollux_mlx5_abi::command::{header, opcode as op, status};
use pollux_mlx5_abi::kernel::completion_queue::{self, CreateCqAnswer};
use pollux_mlx5_abi::kernel::context::{ContextAnswer, ContextRequest, PdAnswer, context_flag, library};
use pollux_mlx5_abi::kernel::queue_pair::{
    CreateQp, CreateQpAnswer, CreateRssQp, CreateSrq, CreateSrqAnswer, hash_function,
};
use pollux_mlx5_abi::kernel::work_queue::{CreateRwqTableAnswer, CreateWq, CreateWqAnswer};
use pollux_mlx5_kernel::{CommandQueue, DoorProfile, Gone, Identity, InterruptHandler, Kernel};
use pollux_mlx5_model::wire::{Sent, Wire};
use pollux_mlx5_model::{Device, DeviceConfig};
use pollux_uverbs::abi::flags::{CqFlags, QpType, WqFlags};
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::abi::queue_pair::QpCap;
use pollux_uverbs::cq::{Cq, CqRequest};
use pollux_uverbs::event::CompChannel;
use pollux_uverbs::mr::{Mr, MrChange, MrRequest};
use pollux_uverbs::qp::{Qp, QpHome, QpRequest};
use pollux_uverbs::srq::{Srq, SrqKind, SrqRequest};
use pollux_uverbs::wq::{RwqIndTable, Wq, WqRequest};
use pollux_uverbs::{
    Channel, Context, CqHandle, Driver, Errno, MrHandle, Page, PdHandle, RwqIndTableHandle, UverbsError,
    WqHandle,
};
use zerocopy::{FromZeros, IntoBytes};

/// What makes an object and what destroys it.
const PAIRS: &[(u16, u16)] = &[
    (op::CREATE_MKEY, op::DESTROY_MKEY),
    (op::CREATE_EQ, op::DESTROY_EQ),
    (op::CREATE_CQ, op::DESTROY_CQ),
    (op::CREATE_QP, op::DESTROY_QP),
    (op::CREATE_RMP, op::DESTROY_RMP),
    (op::CREATE_XRC_SRQ, op::DESTROY_XRC_SRQ),
    (op::ALLOC_XRCD, op::DEALLOC_XRCD),
    (op::ATTACH_TO_MCG, op::DETACH_FROM_MCG),
    (op::ALLOC_MEMIC, op::DEALLOC_MEMIC),
    (op::CREATE_RQ, op::DESTROY_RQ),
    (op::CREATE_SQ, op::DESTROY_SQ),
    (op::CREATE_TIR, op::DESTROY_TIR),
    (op::CREATE_TIS, op::DESTROY_TIS),
    (op::CREATE_RQT, op::DESTROY_RQT),
    (op::CREATE_UCTX, op::DESTROY_UCTX),
    (op::CREATE_UMEM, op::DESTROY_UMEM),
    (op::ALLOC_PD, op::DEALLOC_PD),
    (op::ALLOC_UAR, op::DEALLOC_UAR),
    (op::ALLOC_TRANSPORT_DOMAIN, op::DEALLOC_TRANSPORT_DOMAIN),
    (op::ALLOC_Q_COUNTER, op::DEALLOC_Q_COUNTER),
    (op::ALLOC_FLOW_COUNTER, op::DEALLOC_FLOW_COUNTER),
    (op::ALLOC_PACKET_REFORMAT_CONTEXT, op::DEALLOC_PACKET_REFORMAT_CONTEXT),
    (op::ALLOC_MODIFY_HEADER_CONTEXT, op::DEALLOC_MODIFY_HEADER_CONTEXT),
    (op::CREATE_PSV, op::DESTROY_PSV),
    (op::CREATE_FLOW_TABLE, op::DESTROY_FLOW_TABLE),
    (op::CREATE_FLOW_GROUP, op::DESTROY_FLOW_GROUP),
    (op::SET_FLOW_TABLE_ENTRY, op::DELETE_FLOW_TABLE_ENTRY),
];

/// One command as it went by.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) opcode: u16,
    pub(crate) op_mod: u16,
    pub(crate) uid: u16,
    pub(crate) status: u8,
    pub(crate) syndrome: u32,
    pub(crate) input: Vec<u8>,
}

/// What a faulty device does instead of answering.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It refuses the command, which it did not carry out.
    Refuse,
    /// It carries it out and answers what comes of this number.
    Noise(u64),
    /// It answers no more.
    Gone,
}

/// The device, with a record of its commands.
pub(crate) struct Watch {
    device: Arc<Device>,
    /// After how many more commands it does what.
    pub(crate) faults: Mutex<Vec<(usize, Fault)>>,
    pub(crate) seen: Mutex<Vec<Seen>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl CommandQueue for Watch {
    fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Gone> {
        match self.fault() {
            None => self.device.execute(input, output)?,
            Some(Fault::Refuse) => pollux_mlx5_abi::command::answer(output, status::INT_ERR, 0xbad),
            Some(Fault::Noise(seed)) => {
                self.device.execute(input, output)?;
                let mut noise = seed | 1;
                for byte in output.iter_mut().skip(8) {
                    // As Marsaglia's xorshift has it.
                    noise ^= noise << 13;
                    noise ^= noise >> 7;
                    noise ^= noise << 17;
                    *byte = noise as u8;
                }
            }
            Some(Fault::Gone) => {
                self.device.remove();
                return Err(Gone);
            }
        }
        let head = header(input).expect("a command has a head");
        self.seen.lock().unwrap().push(Seen {
            opcode: head.opcode,
            op_mod: head.op_mod,
            uid: head.uid,
            status: output[0],
            syndrome: u32::from_be_bytes(output[4..8].try_into().unwrap()),
            input: input.to_vec(),
        });
        Ok(())
    }

    fn set_key_entries(&self, index: u32, unit: u64, entries: &[u8]) -> bool {
        self.device.set_key_entries(index, unit, entries)
    }

    fn sets_key_entries(&self) -> bool {
        self.device.sets_key_entries()
    }

    fn uar(&self, number: u32, write_combining: bool) -> Option<Page> {
        self.device.uar(number, write_combining)
    }

    fn device_memory(&self, address: u64, bytes: usize) -> Option<Page> {
        self.device.device_memory(address, bytes)
    }

    fn clock(&self) -> Option<Page> {
        self.device.clock()
    }

    fn on_interrupt(&self, vector: u32, handler: InterruptHandler) {
        self.device.on_interrupt(vector, handler);
    }

    fn vectors(&self) -> u32 {
        self.device.vectors()
    }

    fn identity(&self) -> Identity {
        CommandQueue::identity(self.device.as_ref())
    }

    fn set_key_memory(&self, index: u32, context: &[u8; 64], entries: &[u8]) -> bool {
        self.device.set_key_memory(index, context, entries)
    }

    fn is_gone(&self) -> bool {
        self.device.is_gone()
    }
}

impl Watch {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::clone(device), seen: Mutex::default(), faults: Mutex::default() }
    }

    /// What is due with this command.
    fn fault(&self) -> Option<Fault> {
        let mut due = None;
        self.faults.lock().unwrap().retain_mut(|(after, fault)| {
            if *after == 0 {
                due = Some(*fault);
                return false;
            }
            *after -= 1;
            true
        });
        due
    }

    /// Commands of that kind that the device carried out.
    pub(crate) fn done(&self, opcode: u16) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|one| one.opcode == opcode && one.status == 0).cloned().collect()
    }

    /// Objects that were made and not destroyed, by the opcode that makes them. A rule that is changed is not made.
    pub(crate) fn left(&self) -> BTreeMap<&'static str, i64> {
        let seen = self.seen.lock().unwrap();
        let mut left = BTreeMap::new();
        for one in seen.iter().filter(|one| one.status == 0) {
            for &(make, destroy) in PAIRS {
                let name = op::NAMES.iter().find(|(code, _)| *code == make).expect("it has a name").1;
                let step = match one.opcode {
                    opcode if opcode == make => {
                        i64::from(make != op::SET_FLOW_TABLE_ENTRY || one.op_mod == 0)
                    }
                    opcode if opcode == destroy => -1,
                    _ => 0,
                };
                *left.entry(name).or_default() += step;
            }
        }
        left.retain(|_, count| *count != 0);
        left
    }

    /// Commands that the device refused, for messages.
    pub(crate) fn refused(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let refused = seen.iter().filter(|one| one.status != 0);
        let name = |code| op::NAMES.iter().find(|(other, _)| *other == code).map_or("?", |(_, name)| name);
        refused.map(|one| format!("{} {:#x} {:#x}", name(one.opcode), one.status, one.syndrome)).collect()
    }
}

/// Frames that a test puts on the wire, and those that the device sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) arrive: Arc<Mutex<VecDeque<Vec<u8>>>>,
    pub(crate) sent: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Wire for Script {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.sent.lock().unwrap().push(frame.to_vec());
        Sent::Yes
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        let frame = self.arrive.lock().unwrap().pop_front()?;
        let bytes = frame.len().min(room.len());
        room[..bytes].copy_from_slice(&frame[..bytes]);
        Some(frame.len())
    }

    fn is_up(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "script".into()
    }
}

/// A device with the kernel over it.
pub(crate) struct Bench {
    pub(crate) watch: Arc<Watch>,
    pub(crate) device: Arc<Device>,
    pub(crate) wire: Script,
    pub(crate) kernel: Option<Arc<Kernel>>,
}

/// A context as libmlx5 asks for one, and what it was told.
pub(crate) fn open(channel: Arc<dyn Channel>, devx: bool) -> Result<(Context, ContextAnswer), UverbsError> {
    let request = ContextRequest {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        flags: if devx { context_flag::DEVX } else { 0 },
        max_cqe_version: 1,
        lib_caps: library::UAR_4K,
        ..ContextRequest::default()
    };
    let mut answer = ContextAnswer::new_zeroed();
    let data = Driver::new(request.as_bytes(), answer.as_mut_bytes());
    // SAFETY: tests name zones that they own and look into after the device only, and destroy what they made.
    let context = unsafe { Context::open(channel, driver::MLX5, data)? };
    Ok((context, answer))
}

impl Bench {
    pub(crate) fn new(profile: DoorProfile) -> Self {
        Self::with(profile, DeviceConfig::default())
    }

    pub(crate) fn with(profile: DoorProfile, config: DeviceConfig) -> Self {
        let wire = Script::default();
        let device = Device::new(config, Box::new(wire.clone())).expect("there is memory");
        let watch = Arc::new(Watch::new(&device));
        let memory = Arc::new(device.memory().clone());
        let kernel = Kernel::new(Arc::clone(&watch) as Arc<dyn CommandQueue>, memory, profile);
        let kernel = match kernel {
            Ok(kernel) => kernel,
            Err(error) => panic!("{error}; refused: {:?}", watch.refused()),
        };
        Self { watch, device, wire, kernel: Some(kernel) }
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        self.kernel.as_ref().expect("it is up")
    }

    pub(crate) fn open(&self) -> Opened {
        self.try_open(true).unwrap_or_else(|error| panic!("{error}; refused: {:?}", self.watch.refused()))
    }

    pub(crate) fn try_open(&self, devx: bool) -> Result<Opened, UverbsError> {
        self.try_open_by(self.kernel().open(), devx)
    }

    /// The same through another channel.
    pub(crate) fn try_open_by(&self, channel: Arc<dyn Channel>, devx: bool) -> Result<Opened, UverbsError> {
        let (context, answer) = open(channel, devx)?;
        let mut pd_answer = PdAnswer::new_zeroed();
        let pd = context.alloc_pd(Driver::new(&[], pd_answer.as_mut_bytes()))?;
        Ok(Opened {
            context,
            answer,
            pd,
            pdn: pd_answer.pdn,
            watch: Arc::clone(&self.watch),
            memory: Memory::ordinary(),
            names: AtomicU32::new(0),
        })
    }

    /// Brings the function down; nothing is left of anything then.
    pub(crate) fn close(mut self) {
        self.kernel = None;
        let left = self.watch.left();
        assert!(left.is_empty(), "left on the device: {left:?}; refused: {:?}", self.watch.refused());
        assert_eq!(self.device.memory().pinned_bytes(), 0, "memory is still pinned");
    }
}

/// A context with a protection domain.
pub(crate) struct Opened {
    pub(crate) context: Context,
    pub(crate) answer: ContextAnswer,
    pub(crate) pd: PdHandle,
    pub(crate) pdn: u32,
    watch: Arc<Watch>,
    memory: Memory,
    names: AtomicU32,
}

/// A completion queue and its memory.
pub(crate) struct MadeCq {
    pub(crate) cq: Cq,
    pub(crate) cqn: u32,
    pub(crate) ring: Zone,
    pub(crate) record: Zone,
}

/// A work queue and its memory.
pub(crate) struct MadeWq {
    pub(crate) wq: Wq,
    pub(crate) ring: Zone,
    pub(crate) record: Zone,
}

/// A raw queue pair and its memory.
pub(crate) struct MadeQp {
    pub(crate) qp: Qp,
    pub(crate) answer: CreateQpAnswer,
    pub(crate) send: Zone,
    pub(crate) record: Zone,
    _receive: Zone,
}

/// Address of a zone.
pub(crate) fn address(zone: &Zone) -> u64 {
    zone.base().as_ptr().addr() as u64
}

/// What the kernel or the device said.
pub(crate) fn errno<T: fmt::Debug>(result: Result<T, UverbsError>) -> Errno {
    let error = result.expect_err("it is refused");
    error.errno().unwrap_or_else(|| panic!("{error}"))
}

impl Opened {
    /// What was made; else what the device refused is told too.
    pub(crate) fn must<T>(&self, result: Result<T, UverbsError>) -> T {
        result.unwrap_or_else(|error| panic!("{error}; refused: {:?}", self.watch.refused()))
    }

    /// Registers a part of a zone, or what is none.
    pub(crate) fn register(&self, request: &MrRequest) -> Result<Mr, UverbsError> {
        // SAFETY: tests keep their zones longer than the region, and look into them after the device only.
        unsafe { self.context.reg_mr(request, Driver::none()) }
    }

    /// Changes a region.
    pub(crate) fn change(&self, mr: MrHandle, change: &MrChange) -> Result<Mr, UverbsError> {
        // SAFETY: as in `register`.
        unsafe { self.context.rereg_mr(mr, change, Driver::none()) }
    }

    pub(crate) fn zone(&self, bytes: usize) -> Zone {
        let name = format!("zone {}", self.names.fetch_add(1, Ordering::Relaxed));
        self.memory.reserve(&name, bytes, 4096, None).expect("there is memory")
    }

    pub(crate) fn cq(&self, log: u8, channel: Option<&CompChannel>) -> MadeCq {
        self.must(self.try_cq(log, channel, 0))
    }

    pub(crate) fn try_cq(
        &self,
        log: u8,
        channel: Option<&CompChannel>,
        user_handle: u64,
    ) -> Result<MadeCq, UverbsError> {
        let (mut ring, record) = (self.zone((64 << log).max(4096)), self.zone(4096));
        for entry in 0..1 << log {
            ring.copy_in(entry * 64 + 63, &[pollux_mlx5_abi::cqe::FRESH]);
        }
        let driver = completion_queue::CreateCq {
            buf_addr: address(&ring),
            db_addr: address(&record),
            cqe_size: 64,
            ..completion_queue::CreateCq::default()
        };
        let request =
            CqRequest { entries: (1 << log) - 1, user_handle, channel, vector: 0, flags: CqFlags::empty() };
        let mut answer = CreateCqAnswer::new_zeroed();
        let cq = self.context.create_cq(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))?;
        Ok(MadeCq { cq, cqn: answer.cqn, ring, record })
    }

    /// A receive queue of entries of one segment.
    pub(crate) fn wq(&self, cq: CqHandle, log: u8, user_index: u32) -> MadeWq {
        self.must(self.try_wq(cq, log, user_index, |_| {}))
    }

    pub(crate) fn try_wq(
        &self,
        cq: CqHandle,
        log: u8,
        user_index: u32,
        change: impl FnOnce(&mut CreateWq),
    ) -> Result<MadeWq, UverbsError> {
        let (ring, record) = (self.zone((16 << log).max(4096)), self.zone(4096));
        let mut driver = CreateWq {
            buf_addr: address(&ring),
            db_addr: address(&record),
            rq_wqe_count: 1 << log,
            rq_wqe_shift: 4,
            user_index,
            ..CreateWq::default()
        };
        change(&mut driver);
        let request = WqRequest {
            pd: self.pd,
            cq,
            max_wr: 1 << log,
            max_sge: 1,
            flags: WqFlags::empty(),
            user_handle: 7,
        };
        let mut answer = CreateWqAnswer::new_zeroed();
        let wq = self.context.create_wq(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))?;
        Ok(MadeWq { wq, ring, record })
    }

    pub(crate) fn table(&self, queues: &[WqHandle]) -> Result<RwqIndTable, UverbsError> {
        let mut answer = CreateRwqTableAnswer::new_zeroed();
        self.context.create_rwq_ind_table(queues, Driver::new(&[], answer.as_mut_bytes()))
    }

    pub(crate) fn rss_request(&self, table: RwqIndTableHandle) -> QpRequest {
        QpRequest { ind_table: Some(table), ..QpRequest::new(QpType::RAW_PACKET, QpHome::Pd(self.pd)) }
    }

    pub(crate) fn rss(
        &self,
        table: RwqIndTableHandle,
        fields: u64,
    ) -> Result<(Qp, CreateQpAnswer), UverbsError> {
        let driver = CreateRssQp {
            rx_hash_fields_mask: fields,
            rx_hash_function: hash_function::TOEPLITZ,
            rx_key_len: 40,
            ..CreateRssQp::new_zeroed()
        };
        let mut answer = CreateQpAnswer::new_zeroed();
        let request = self.rss_request(table);
        let qp = self.context.create_qp(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))?;
        Ok((qp, answer))
    }

    pub(crate) fn raw(&self, cq: CqHandle) -> MadeQp {
        self.must(self.try_raw(cq, |_, _| {}))
    }

    pub(crate) fn try_raw(
        &self,
        cq: CqHandle,
        change: impl FnOnce(&mut QpRequest, &mut CreateQp),
    ) -> Result<MadeQp, UverbsError> {
        let (send, receive, record) = (self.zone(64 * 64), self.zone(4096), self.zone(4096));
        let mut request = QpRequest {
            send_cq: Some(cq),
            recv_cq: Some(cq),
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..QpRequest::new(QpType::RAW_PACKET, QpHome::Pd(self.pd))
        };
        let mut driver = CreateQp {
            buf_addr: address(&receive),
            db_addr: address(&record),
            sq_wqe_count: 64,
            rq_wqe_count: 64,
            rq_wqe_shift: 4,
            uidx: 5,
            sq_buf_addr: address(&send),
            ..CreateQp::default()
        };
        change(&mut request, &mut driver);
        let mut answer = CreateQpAnswer::new_zeroed();
        let qp = self.context.create_qp(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))?;
        Ok(MadeQp { qp, answer, send, record, _receive: receive })
    }

    /// A queue pair of a transport with 16 blocks and 16 receives of two pieces.
    pub(crate) fn transport(
        &self,
        kind: QpType,
        cq: CqHandle,
        change: impl FnOnce(&mut QpRequest, &mut CreateQp),
    ) -> Result<MadeTransport, UverbsError> {
        let (rings, record) = (self.zone(4096), self.zone(4096));
        let mut request = QpRequest {
            send_cq: Some(cq),
            recv_cq: Some(cq),
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 1,
                max_recv_sge: 2,
                max_inline_data: 0,
            },
            user_handle: 0x77,
            ..QpRequest::new(kind, QpHome::Pd(self.pd))
        };
        let mut driver = CreateQp {
            buf_addr: address(&rings),
            db_addr: address(&record),
            sq_wqe_count: 16,
            rq_wqe_count: 16,
            rq_wqe_shift: 5,
            uidx: 9,
            ..CreateQp::default()
        };
        change(&mut request, &mut driver);
        let mut answer = CreateQpAnswer::new_zeroed();
        let qp = self.context.create_qp(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))?;
        Ok(MadeTransport { qp, answer, _rings: rings, _record: record })
    }

    /// A shared receive queue of 15 entries of one piece.
    pub(crate) fn srq(&self, kind: SrqKind) -> Result<(Srq, Zone, Zone), UverbsError> {
        let (ring, record) = (self.zone(4096), self.zone(4096));
        let driver = CreateSrq {
            buf_addr: address(&ring),
            db_addr: address(&record),
            uidx: 11,
            ..CreateSrq::default()
        };
        let request = SrqRequest { pd: self.pd, kind, max_wr: 15, max_sge: 1, limit: 0, user_handle: 0x55 };
        let mut answer = CreateSrqAnswer::new_zeroed();
        let srq = self.context.create_srq(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))?;
        assert_ne!(answer.srqn, 0);
        Ok((srq, ring, record))
    }
}

/// A queue pair of a transport and its memory.
pub(crate) struct MadeTransport {
    pub(crate) qp: Qp,
    pub(crate) answer: CreateQpAnswer,
    _rings: Zone,
    _record: Zone,
}
