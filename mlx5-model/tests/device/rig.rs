//! A driver by hand: the shortest way from a command to a frame, with every field in reach.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use pollux_eal::region::{Region, Zone};
use pollux_mlx5_abi::caps;
use pollux_mlx5_abi::command::cq::{CqContext, CreateCqIn};
use pollux_mlx5_abi::command::eq::{CreateEqIn, EqContext};
use pollux_mlx5_abi::command::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, Destination, FlowContext, FlowTableContext, SetFlowEntryIn,
    SetFlowTableRootIn, action, destination, table,
};
use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext, access_mode};
use pollux_mlx5_abi::command::object::AllocPdOut;
use pollux_mlx5_abi::command::rq::{CreateRqIn, ModifyRqIn, RqContext};
use pollux_mlx5_abi::command::sq::{CreateSqIn, ModifySqIn, SqContext};
use pollux_mlx5_abi::command::tir::{CreateTirIn, CreateTisIn, TirContext, TisContext};
use pollux_mlx5_abi::command::user::{CreateUctxIn, CreateUctxOut};
use pollux_mlx5_abi::command::vport::{FieldSelect, ModifyNicVportContextIn, NicVportContext};
use pollux_mlx5_abi::command::wq::{WorkQueue, kind};
use pollux_mlx5_abi::command::{self, Refused, opcode as op};
use pollux_mlx5_abi::cqe::FRESH;
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::eqe::Eqe;
use pollux_mlx5_kernel::{CommandQueue, DmaMemory, Pinned, Rights};
use pollux_mlx5_model::wire::{Sent, Wire};
use pollux_mlx5_model::{Device, DeviceConfig};
use pollux_uverbs::{Page, Registers};
use zerocopy::FromBytes;

mod ring;

pub(crate) use ring::{Cq, Rq, Sq};

/// The registered addresses differ from the process's by so much.
pub(crate) const HCA_DELTA: u64 = 0x7_3000;
const ARENA: usize = 8 << 20;

/// What is on a wire.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) incoming: VecDeque<Vec<u8>>,
    /// Frames that the wire still takes.
    pub(crate) room: Option<usize>,
    pub(crate) down: bool,
}

/// A wire that a test holds the other end of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hand(pub(crate) Arc<Mutex<Ends>>);

impl Hand {
    pub(crate) fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().expect("no test thread panicked")
    }
}

impl Wire for Hand {
    fn send(&mut self, frame: &[u8]) -> Sent {
        let mut ends = self.ends();
        match &mut ends.room {
            Some(0) => return Sent::Busy,
            Some(room) => *room -= 1,
            None => {}
        }
        ends.sent.push(frame.to_vec());
        Sent::Yes
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        let frame = self.ends().incoming.pop_front()?;
        let bytes = frame.len().min(room.len());
        room[..bytes].copy_from_slice(&frame[..bytes]);
        Some(frame.len())
    }

    fn is_up(&self) -> bool {
        !self.ends().down
    }

    fn describe(&self) -> String {
        "hand".into()
    }
}

/// A device that has been brought up, and memory that it may reach.
pub(crate) struct Rig {
    pub(crate) device: Arc<Device>,
    pub(crate) wire: Hand,
    arena: Mutex<(Zone, usize)>,
    base: u64,
    _pin: Pinned,
    pub(crate) pd: u32,
    pub(crate) td: u32,
    pub(crate) tis: u32,
    pub(crate) uar: u32,
    registers: Mutex<Registers>,
    pub(crate) lkey: u32,
    pub(crate) eq: Eq,
}

/// An event queue.
pub(crate) struct Eq {
    pub(crate) number: u32,
    ring: u64,
    log: u8,
    next: Mutex<u32>,
}

pub(crate) fn number(output: &[u8]) -> u32 {
    AllocPdOut::PD.get(output.first_chunk().expect("an answer with a number"))
}

/// A frame to somewhere, numbered.
pub(crate) fn frame(bytes: usize, mark: u8) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..].iter_mut().enumerate().for_each(|(index, byte)| *byte = mark.wrapping_add(index as u8));
    frame
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(DeviceConfig::default())
    }

    pub(crate) fn with(config: DeviceConfig) -> Self {
        let wire = Hand::default();
        Self::on(config, Box::new(wire.clone()), wire)
    }

    /// On another wire than the one that the test holds.
    pub(crate) fn on(config: DeviceConfig, plug: Box<dyn Wire>, wire: Hand) -> Self {
        let device = Device::new(config, plug).expect("memory");
        let zone = Region::anonymous("rig", ARENA).expect("memory").into_zone();
        let base = zone.base().as_ptr().expose_provenance() as u64;
        let pin = device.memory().pin(base, ARENA as u64, Rights::ReadWrite).expect("mapped");
        start(&device);
        let pd = number(&simple(&device, op::ALLOC_PD));
        let td = number(&simple(&device, op::ALLOC_TRANSPORT_DOMAIN));
        let uar = number(&simple(&device, op::ALLOC_UAR));
        let page = Arc::new(device.uar(uar, true).or_else(|| device.uar(uar, false)).expect("page"));
        let registers = Mutex::new(Page::registers(&page, 0..uar::PAGE_BYTES).expect("free"));
        let mut rig = Self {
            device,
            wire,
            arena: Mutex::new((zone, 0)),
            base,
            _pin: pin,
            pd,
            td,
            tis: 0,
            uar,
            registers,
            lkey: 0,
            eq: Eq { number: 0, ring: 0, log: 0, next: Mutex::new(0) },
        };
        rig.lkey = rig.mkey(base, ARENA as u64, true);
        let mut tis = CreateTisIn::ZERO;
        let mut context = TisContext::ZERO;
        TisContext::TRANSPORT_DOMAIN.set(&mut context, td);
        CreateTisIn::CTX.set(&mut tis, context);
        rig.tis = number(&rig.must(op::CREATE_TIS, 0, &mut tis, 16));
        rig.eq = rig.event_queue(6, !0);
        rig.arm_events();
        // As Linux does when it starts.
        rig.bring_back(false, false);
        rig
    }

    /// Whether frames that the function sends to itself come back.
    pub(crate) fn bring_back(&self, unicast: bool, multicast: bool) {
        let mut select = FieldSelect::ZERO;
        FieldSelect::DISABLE_UC_LOCAL_LB.set(&mut select, 1);
        FieldSelect::DISABLE_MC_LOCAL_LB.set(&mut select, 1);
        let mut input = ModifyNicVportContextIn::ZERO;
        ModifyNicVportContextIn::FIELD_SELECT.set(&mut input, u32::from_be_bytes(select));
        let context = ModifyNicVportContextIn::NIC_VPORT_CONTEXT.of_mut(&mut input);
        NicVportContext::DISABLE_UC_LOCAL_LB.set(context, (!unicast).into());
        NicVportContext::DISABLE_MC_LOCAL_LB.set(context, (!multicast).into());
        self.must(op::MODIFY_NIC_VPORT_CONTEXT, 0, &mut input, 16);
    }

    /// Room in the arena: its address.
    pub(crate) fn room(&self, bytes: usize) -> u64 {
        let mut arena = self.arena.lock().expect("whole");
        let at = arena.1.next_multiple_of(4096);
        arena.1 = at + bytes;
        assert!(arena.1 <= ARENA, "the arena is too small");
        self.base + at as u64
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.arena.lock().expect("whole").0.copy_in((at - self.base) as usize, bytes);
    }

    pub(crate) fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.arena.lock().expect("whole").0.copy_out((at - self.base) as usize, &mut out);
        out
    }

    pub(crate) fn command(
        &self,
        opcode: u16,
        op_mod: u16,
        input: &mut [u8],
        output: usize,
    ) -> Result<Vec<u8>, Refused> {
        run(&self.device, opcode, op_mod, input, output)
    }

    /// The same of a user context.
    pub(crate) fn command_as(
        &self,
        uid: u16,
        opcode: u16,
        input: &mut [u8],
        output: usize,
    ) -> Result<Vec<u8>, Refused> {
        command::start(input, opcode, uid, 0);
        let mut out = vec![0; output];
        self.device.execute(input, &mut out).expect("the device is there");
        command::outcome(&out).map(|()| out)
    }

    /// A user context.
    pub(crate) fn user(&self) -> u16 {
        let out = self.must(op::CREATE_UCTX, 0, &mut CreateUctxIn::ZERO.clone(), 16);
        CreateUctxOut::UID.get(out.first_chunk().expect("an answer")) as u16
    }

    /// A protection domain of a user context.
    pub(crate) fn domain_of(&self, uid: u16) -> u32 {
        number(&self.command_as(uid, op::ALLOC_PD, &mut [0; 16], 16).expect("a domain"))
    }

    #[track_caller]
    pub(crate) fn must(&self, opcode: u16, op_mod: u16, input: &mut [u8], output: usize) -> Vec<u8> {
        match self.command(opcode, op_mod, input, output) {
            Ok(output) => output,
            Err(refused) => panic!("{}: {refused}", command::describe_input(input)),
        }
    }

    /// A key for memory of the process, whose own addresses are [`HCA_DELTA`] higher.
    pub(crate) fn mkey(&self, at: u64, bytes: u64, write: bool) -> u32 {
        let mut context = MkeyContext::ZERO;
        MkeyContext::ACCESS_MODE_1_0.set(&mut context, access_mode::MTT);
        MkeyContext::LR.set(&mut context, 1);
        MkeyContext::LW.set(&mut context, write.into());
        MkeyContext::QPN.set(&mut context, 0xff_ffff);
        MkeyContext::MKEY_7_0.set(&mut context, 0x42);
        MkeyContext::PD.set(&mut context, self.pd);
        MkeyContext::START_ADDR.set(&mut context, at + HCA_DELTA);
        MkeyContext::LEN.set(&mut context, bytes);
        MkeyContext::LOG_PAGE_SIZE.set(&mut context, 12);
        let first = at & !0xfff;
        let count = (at + bytes - first).div_ceil(4096);
        MkeyContext::TRANSLATIONS_OCTWORD_SIZE.set(&mut context, count.div_ceil(2) as u32);
        let mut input = CreateMkeyIn::ZERO.to_vec();
        let head: &mut [u8; CreateMkeyIn::BYTES] = input.first_chunk_mut().expect("a command");
        CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.set(head, context);
        CreateMkeyIn::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.set(head, count.div_ceil(2) as u32);
        input.extend((0..count).flat_map(|page| ((first + page * 4096) | 3).to_be_bytes()));
        let index = number(&self.must(op::CREATE_MKEY, 0, &mut input, 16));
        index << 8 | 0x42
    }

    fn event_queue(&self, log: u8, mask: u64) -> Eq {
        let ring = self.room(64 << log);
        for entry in 0..1 << log {
            self.write(ring + entry * 64 + 63, &[1]);
        }
        let mut context = EqContext::ZERO;
        EqContext::LOG_EQ_SIZE.set(&mut context, log.into());
        EqContext::UAR_PAGE.set(&mut context, self.uar);
        let mut input = CreateEqIn::ZERO.to_vec();
        let head: &mut [u8; CreateEqIn::BYTES] = input.first_chunk_mut().expect("a command");
        CreateEqIn::EQ_CONTEXT_ENTRY.set(head, context);
        let mut bits = [0; 32];
        bits[..8].copy_from_slice(&mask.to_be_bytes());
        CreateEqIn::EVENT_BITMASK.set(head, bits);
        push_pages(&mut input, ring, 64 << log);
        let number = number(&self.must(op::CREATE_EQ, 0, &mut input, 16));
        Eq { number, ring, log, next: Mutex::new(0) }
    }

    /// The next event, if there is one.
    pub(crate) fn event(&self) -> Option<Eqe> {
        let mut next = self.eq.next.lock().expect("whole");
        let at = self.eq.ring + u64::from(*next & ((1 << self.eq.log) - 1)) * 64;
        let entry = Eqe::read_from_bytes(&self.read(at, 64)).expect("64 bytes");
        if !pollux_mlx5_abi::eqe::is_ready(entry.owner, *next, self.eq.log) {
            return None;
        }
        *next += 1;
        Some(entry)
    }

    /// Stores to a register and hands the store to the device.
    pub(crate) fn store(&self, offset: usize, bytes: &[u8]) {
        let mut registers = self.registers.lock().expect("whole");
        match *bytes {
            [a, b, c, d] => registers.store32(offset, u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => {
                registers.store64(offset, u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
            }
            _ => registers.copy64(offset, bytes.first_chunk().expect("64 bytes")),
        }
        drop(registers);
        self.device.doorbell_store(self.uar, offset, bytes);
    }

    /// Stores to a register; the device finds it when it looks.
    pub(crate) fn store_quietly(&self, offset: usize, bytes: [u8; 8]) {
        self.registers.lock().expect("whole").store64(offset, u64::from_ne_bytes(bytes));
    }

    pub(crate) fn arm_events(&self) {
        let next = *self.eq.next.lock().expect("whole");
        self.store(uar::EQ_ARM, &pollux_mlx5_abi::doorbell::eq_register(self.eq.number as u8, next));
    }

    /// Steps until nothing is left to do.
    pub(crate) fn settle(&self) {
        for _ in 0..10_000 {
            if !self.device.step(64) {
                return;
            }
        }
        panic!("the device does not come to rest");
    }

    pub(crate) fn cq(&self, log: u8) -> Cq {
        self.cq_with(log, |_| {})
    }

    pub(crate) fn cq_with(&self, log: u8, change: impl FnOnce(&mut [u8; CqContext::BYTES])) -> Cq {
        let mut context = CqContext::ZERO;
        CqContext::LOG_CQ_SIZE.set(&mut context, log.into());
        CqContext::UAR_PAGE.set(&mut context, self.uar);
        CqContext::C_EQN_OR_APU_ELEMENT.set(&mut context, self.eq.number);
        change(&mut context);
        let entry_bytes = if CqContext::CQE_SZ.get(&context) == 0 { 64 } else { 128 };
        let ring = self.room((entry_bytes as usize) << log);
        for entry in 1..=1_u64 << log {
            self.write(ring + entry * entry_bytes - 1, &[FRESH]);
        }
        let record = self.room(64);
        // An arm word that nobody writes: the first one that somebody does may be 0.
        self.write(record + 4, &[0xff; 4]);
        CqContext::DBR_ADDR.set(&mut context, record);
        let mut input = CreateCqIn::ZERO.to_vec();
        CreateCqIn::CQ_CONTEXT.set(input.first_chunk_mut().expect("a command"), context);
        push_pages(&mut input, ring, entry_bytes << log);
        let number = number(&self.must(op::CREATE_CQ, 0, &mut input, 16));
        Cq { number, ring, record, log, entry_bytes, next: 0 }
    }

    pub(crate) fn sq(&self, log: u8, cq: &Cq) -> Sq {
        self.sq_with(log, cq, |_| {})
    }

    pub(crate) fn sq_with(&self, log: u8, cq: &Cq, change: impl FnOnce(&mut [u8; SqContext::BYTES])) -> Sq {
        let (ring, record) = (self.room(64 << log), self.room(64));
        let mut input = self.sq_input(log, cq, ring, record, change);
        let number = number(&self.must(op::CREATE_SQ, 0, &mut input, 16));
        let sq = Sq { number, ring, record, log, next: 0, last: [0; 8] };
        self.sq_state(&sq, 0, 1).expect("from RESET to READY");
        sq
    }

    pub(crate) fn sq_input(
        &self,
        log: u8,
        cq: &Cq,
        ring: u64,
        record: u64,
        change: impl FnOnce(&mut [u8; SqContext::BYTES]),
    ) -> Vec<u8> {
        let mut context = SqContext::ZERO;
        SqContext::CQN.set(&mut context, cq.number);
        SqContext::USER_INDEX.set(&mut context, 0x51);
        SqContext::TIS_LST_SZ.set(&mut context, 1);
        SqContext::TIS_NUM_0.set(&mut context, self.tis);
        SqContext::FLUSH_IN_ERROR_EN.set(&mut context, 1);
        SqContext::ALLOW_MULTI_PKT_SEND_WQE.set(&mut context, 1);
        let wq = SqContext::WQ.of_mut(&mut context);
        WorkQueue::WQ_TYPE.set(wq, kind::CYCLIC);
        WorkQueue::PD.set(wq, self.pd);
        WorkQueue::UAR_PAGE.set(wq, self.uar);
        WorkQueue::DBR_ADDR.set(wq, record);
        WorkQueue::LOG_WQ_STRIDE.set(wq, 6);
        WorkQueue::LOG_WQ_SZ.set(wq, log.into());
        change(&mut context);
        let mut input = CreateSqIn::ZERO.to_vec();
        CreateSqIn::CTX.set(input.first_chunk_mut().expect("a command"), context);
        push_pages(&mut input, ring, 64 << log);
        input
    }

    pub(crate) fn sq_state(&self, sq: &Sq, from: u32, to: u32) -> Result<Vec<u8>, Refused> {
        let mut input = ModifySqIn::ZERO;
        ModifySqIn::SQN.set(&mut input, sq.number);
        ModifySqIn::SQ_STATE.set(&mut input, from);
        SqContext::STATE.set(ModifySqIn::CTX.of_mut(&mut input), to);
        self.command(op::MODIFY_SQ, 0, &mut input, 16)
    }

    pub(crate) fn rq(&self, log: u8, log_bytes: u8, cq: &Cq) -> Rq {
        self.rq_with(log, log_bytes, cq, |_| {})
    }

    pub(crate) fn rq_with(
        &self,
        log: u8,
        log_bytes: u8,
        cq: &Cq,
        change: impl FnOnce(&mut [u8; RqContext::BYTES]),
    ) -> Rq {
        let (ring, record) = (self.room(1 << (log + log_bytes)), self.room(64));
        let mut context = RqContext::ZERO;
        RqContext::CQN.set(&mut context, cq.number);
        RqContext::USER_INDEX.set(&mut context, 0x52);
        RqContext::VSD.set(&mut context, 1);
        RqContext::FLUSH_IN_ERROR_EN.set(&mut context, 1);
        let wq = RqContext::WQ.of_mut(&mut context);
        WorkQueue::WQ_TYPE.set(wq, kind::CYCLIC);
        WorkQueue::PD.set(wq, self.pd);
        WorkQueue::DBR_ADDR.set(wq, record);
        WorkQueue::LOG_WQ_STRIDE.set(wq, log_bytes.into());
        WorkQueue::LOG_WQ_SZ.set(wq, log.into());
        change(&mut context);
        let mut input = CreateRqIn::ZERO.to_vec();
        CreateRqIn::CTX.set(input.first_chunk_mut().expect("a command"), context);
        push_pages(&mut input, ring, 1 << (log + log_bytes));
        let number = number(&self.must(op::CREATE_RQ, 0, &mut input, 16));
        let rq = Rq { number, ring, record, log, log_bytes, posted: 0 };
        self.rq_state(&rq, 0, 1).expect("from RESET to READY");
        rq
    }

    pub(crate) fn rq_state(&self, rq: &Rq, from: u32, to: u32) -> Result<Vec<u8>, Refused> {
        let mut input = ModifyRqIn::ZERO;
        ModifyRqIn::RQN.set(&mut input, rq.number);
        ModifyRqIn::RQ_STATE.set(&mut input, from);
        RqContext::STATE.set(ModifyRqIn::CTX.of_mut(&mut input), to);
        self.command(op::MODIFY_RQ, 0, &mut input, 16)
    }

    pub(crate) fn tir(&self, change: impl FnOnce(&mut [u8; TirContext::BYTES])) -> u32 {
        let mut context = TirContext::ZERO;
        TirContext::TRANSPORT_DOMAIN.set(&mut context, self.td);
        change(&mut context);
        let mut input = CreateTirIn::ZERO;
        CreateTirIn::CTX.set(&mut input, context);
        number(&self.must(op::CREATE_TIR, 0, &mut input, 16))
    }

    pub(crate) fn direct_tir(&self, rq: &Rq) -> u32 {
        self.tir(|context| TirContext::INLINE_RQN.set(context, rq.number))
    }

    pub(crate) fn table(&self, level: u32, log_size: u32) -> u32 {
        self.table_of(table::NIC_RX, level, log_size)
    }

    pub(crate) fn table_of(&self, kind: u32, level: u32, log_size: u32) -> u32 {
        let mut input = CreateFlowTableIn::ZERO;
        CreateFlowTableIn::TABLE_TYPE.set(&mut input, kind);
        let context = CreateFlowTableIn::FLOW_TABLE_CONTEXT.of_mut(&mut input);
        FlowTableContext::LEVEL.set(context, level);
        FlowTableContext::LOG_SIZE.set(context, log_size);
        number(&self.must(op::CREATE_FLOW_TABLE, 0, &mut input, 16))
    }

    pub(crate) fn root(&self, table: u32) {
        self.root_of(table::NIC_RX, table);
    }

    pub(crate) fn root_of(&self, kind: u32, table: u32) {
        let mut input = SetFlowTableRootIn::ZERO;
        SetFlowTableRootIn::TABLE_TYPE.set(&mut input, kind);
        SetFlowTableRootIn::TABLE_ID.set(&mut input, table);
        self.must(op::SET_FLOW_TABLE_ROOT, 0, &mut input, 16);
    }

    pub(crate) fn group(&self, table: u32, start: u32, end: u32, criteria: u32, mask: [u8; 512]) -> u32 {
        let mut input = CreateFlowGroupIn::ZERO;
        CreateFlowGroupIn::TABLE_ID.set(&mut input, table);
        CreateFlowGroupIn::START_FLOW_INDEX.set(&mut input, start);
        CreateFlowGroupIn::END_FLOW_INDEX.set(&mut input, end);
        CreateFlowGroupIn::MATCH_CRITERIA_ENABLE.set(&mut input, criteria);
        CreateFlowGroupIn::MATCH_CRITERIA.set(&mut input, mask);
        number(&self.must(op::CREATE_FLOW_GROUP, 0, &mut input, 16))
    }

    /// An entry to TIRs and tables, counted by `counters`.
    #[expect(clippy::too_many_arguments, reason = "what an entry is made of")]
    pub(crate) fn entry(
        &self,
        table: u32,
        group: u32,
        index: u32,
        value: [u8; 512],
        tag: u32,
        to: &[(u32, u32)],
        counters: &[u32],
    ) -> Result<Vec<u8>, Refused> {
        let mut input = SetFlowEntryIn::ZERO.to_vec();
        let head: &mut [u8; SetFlowEntryIn::BYTES] = input.first_chunk_mut().expect("a command");
        SetFlowEntryIn::TABLE_ID.set(head, table);
        SetFlowEntryIn::FLOW_INDEX.set(head, index);
        let context = SetFlowEntryIn::FLOW_CONTEXT.of_mut(head);
        FlowContext::GROUP_ID.set(context, group);
        FlowContext::FLOW_TAG.set(context, tag);
        let actions = if to.is_empty() { action::DROP } else { action::FWD_DEST };
        let counted = if counters.is_empty() { 0 } else { action::COUNT };
        FlowContext::ACTION.set(context, actions | counted);
        FlowContext::DESTINATION_LIST_SIZE.set(context, to.len() as u32);
        FlowContext::FLOW_COUNTER_LIST_SIZE.set(context, counters.len() as u32);
        FlowContext::MATCH_VALUE.set(context, value);
        for (kind, id) in to {
            let mut block = Destination::ZERO;
            Destination::DESTINATION_TYPE.set(&mut block, *kind);
            Destination::DESTINATION_ID.set(&mut block, *id);
            input.extend(block);
        }
        for counter in counters {
            input.extend(counter.to_be_bytes());
            input.extend([0; 4]);
        }
        self.command(op::SET_FLOW_TABLE_ENTRY, 0, &mut input, 16)
    }

    /// Everything goes to one TIR.
    pub(crate) fn all_to(&self, tir: u32) {
        let table = self.table(0, 4);
        let group = self.group(table, 0, 0, 0, [0; 512]);
        self.entry(table, group, 0, [0; 512], 0, &[(destination::TIR, tir)], &[]).expect("an entry");
        self.root(table);
    }
}

fn push_pages(input: &mut Vec<u8>, ring: u64, bytes: u64) {
    input.extend((0..bytes.div_ceil(4096)).flat_map(|page| (ring + page * 4096).to_be_bytes()));
}

pub(crate) fn run(
    device: &Device,
    opcode: u16,
    op_mod: u16,
    input: &mut [u8],
    output: usize,
) -> Result<Vec<u8>, Refused> {
    command::start(input, opcode, 0, op_mod);
    let mut out = vec![0; output];
    device.execute(input, &mut out).expect("the device is there");
    command::outcome(&out).map(|()| out)
}

/// A block of capabilities, those of now or those at most.
pub(crate) fn block(device: &Device, kind: u16, when: u16) -> [u8; 256] {
    let out = run(device, op::QUERY_HCA_CAP, caps::op_mod(kind, when), &mut [0; 16], 4112).expect("accepted");
    *out[16..].first_chunk().expect("a block")
}

pub(crate) fn simple(device: &Device, opcode: u16) -> Vec<u8> {
    run(device, opcode, 0, &mut [0; 16], 16).expect("accepted")
}

/// From power-up to INIT_HCA, as Linux's mlx5_core does it.
fn start(device: &Device) {
    simple(device, op::ENABLE_HCA);
    run(device, op::QUERY_ISSI, 0, &mut [0; 16], 112).expect("accepted");
    let mut issi = [0; 16];
    issi[11] = 1;
    run(device, op::SET_ISSI, 0, &mut issi, 16).expect("accepted");
    for phase in [1, 2] {
        let wanted = run(device, op::QUERY_PAGES, phase, &mut [0; 16], 16).expect("accepted")[15];
        let mut pages = vec![0; 16];
        pages[15] = wanted;
        pages.extend((0..u64::from(wanted)).flat_map(|page| (page * 4096).to_be_bytes()));
        run(device, op::MANAGE_PAGES, 1, &mut pages, 16).expect("accepted");
    }
    run(device, op::INIT_HCA, 0, &mut [0; 32], 16).expect("accepted");
}
