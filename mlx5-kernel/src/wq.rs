//! Receive work queues. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `mlx5_ib_create_wq`, `mlx5_ib_modify_wq`.

use std::mem::offset_of;
use std::sync::Arc;

use pollux_mlx5_abi::caps::ethernet::EthernetCaps;
use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::rq::{CreateRqIn, ModifyRqIn, RqContext, memory, modify};
use pollux_mlx5_abi::command::wq::{
    LOG_STRIDE_BYTES_BASE, LOG_STRIDES_BASE, WorkQueue, end_padding, kind, state,
};
use pollux_mlx5_abi::eqe::queue_kind;
use pollux_mlx5_abi::kernel::work_queue::{CreateWq, CreateWqAnswer, ModifyWq, wq_mask};
use pollux_uverbs::abi::flags::{WqFlags, WqMask, WqState};
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};
use pollux_uverbs::abi::queue::{ExCreateWq, ExCreateWqResp, ExDestroyWq, ExDestroyWqResp, ExModifyWq};
use pollux_uverbs::{Call, Errno, Output, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::cq::{Cq, stamp_format};
use crate::device::Rights;
use crate::event::file::{Count, EventFile};
use crate::event::{QueueTarget, reported};
use crate::firmware::{SHORT, begin};
use crate::handle::{Object, ObjectKind};
use crate::pd::Pd;
use crate::pieces::Pieces;
use crate::ring::{Ring, offloads, user_index};
use crate::session::Session;
use crate::udata;
use crate::umem::{Record, Umem};

/// Longest stride and most strides of an entry, as logarithms, and the fewest where the device has the wider range. Source:
/// Linux `include/linux/mlx5/device.h`, `MLX5_MAX_SINGLE_STRIDE_LOG_NUM_BYTES` and around.
pub(crate) const LOG_STRIDE_BYTES_MAX: u32 = 13;
/// See [`LOG_STRIDE_BYTES_MAX`].
pub(crate) const LOG_STRIDES_MAX: u32 = 16;
/// See [`LOG_STRIDE_BYTES_MAX`].
pub(crate) const LOG_STRIDES_MIN_EXTENDED: u32 = 3;

/// A work queue.
#[derive(Debug)]
pub(crate) struct Wq {
    pub(crate) rqn: u32,
    uid: u16,
    state: WqState,
    pieces: Pieces,
    _ring: Umem,
    _record: Record,
    file: Option<Arc<EventFile>>,
    events: Count,
}

/// What is asked for.
#[derive(Debug)]
struct Wanted<'a> {
    pd: u32,
    cq: u32,
    kind: u64,
    max_wr: u32,
    flags: u32,
    user_handle: u64,
    file: Option<Arc<EventFile>>,
    driver: &'a [u8],
    driver_room: usize,
}

impl Object for Wq {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Wq
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        self.pieces.end(core)?;
        core.events.remove_queue(queue_kind::RQ, self.rqn, &self.events);
        Ok(())
    }

    fn parts(&self) -> Vec<(u16, u32)> {
        vec![(opcode::CREATE_RQ, self.rqn)]
    }
}

impl Session {
    /// `WQ/CREATE`.
    pub(crate) fn create_wq(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::wq::create as a;
        let (max_wr, max_sge) = (call.input_as::<u32>(a::MAX_WR)?, call.input_as::<u32>(a::MAX_SGE)?);
        let driver_room = call.output(UHW_OUT).map_or(0, |output| output.room());
        let flags = if call.find(a::FLAGS).is_some() { call.number(a::FLAGS)? } else { 0 };
        let (handle, rqn) = self.make_wq(&Wanted {
            pd: call.handle(a::PD_HANDLE)?,
            cq: call.handle(a::CQ_HANDLE)?,
            kind: call.number(a::TYPE)?,
            max_wr,
            flags: u32::try_from(flags).map_err(|_| Errno::EINVAL)?,
            user_handle: call.number(a::USER_HANDLE)?,
            file: self.event_file(call, a::EVENT_FD)?,
            driver: call.input(UHW_IN).unwrap_or_default(),
            driver_room,
        })?;
        call.create(a::HANDLE, handle)?;
        call.reply(a::RESP_MAX_WR, &max_wr)?;
        call.reply(a::RESP_MAX_SGE, &max_sge)?;
        call.reply(a::RESP_WQ_NUM, &rqn)?;
        answer(call.output(UHW_OUT));
        Ok(())
    }

    /// `EX_CREATE_WQ`.
    pub(crate) fn ex_create_wq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExCreateWq = udata::lenient(command.core_in);
        if request.comp_mask != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (wq_handle, wqn) = self.make_wq(&Wanted {
            pd: request.pd_handle,
            cq: request.cq_handle,
            kind: request.wq_type.into(),
            max_wr: request.max_wr,
            flags: request.create_flags,
            user_handle: request.user_handle,
            file: self.default_file.clone(),
            driver: command.driver_in,
            driver_room: command.driver_out.room(),
        })?;
        let response = ExCreateWqResp {
            wq_handle,
            max_wr: request.max_wr,
            max_sge: request.max_sge,
            wqn,
            ..ExCreateWqResp::default()
        };
        let offset = offset_of!(ExCreateWqResp, response_length);
        udata::answer_counted(&mut command.core_out, response.as_bytes(), offset);
        answer(Some(&mut command.driver_out));
        Ok(())
    }

    fn make_wq(&mut self, wanted: &Wanted<'_>) -> Result<(u32, u32), Errno> {
        let core = Arc::clone(&self.core);
        let granted = self.granted()?;
        if wanted.kind != 0 || (wanted.driver_room != 0 && wanted.driver_room < size_of::<CreateWqAnswer>()) {
            return Err(Errno::EINVAL);
        }
        let least = offset_of!(CreateWq, single_stride_log_num_of_bytes) + 4;
        let driver: CreateWq = udata::strict(wanted.driver, least)?;
        let flags = WqFlags::from_bits_retain(wanted.flags);
        check_flags(&core, flags)?;
        let strides = strides(&core, &driver)?;
        let most = 1_u32.checked_shl(core.caps.general(GeneralCaps::LOG_MAX_WQ_SZ)).unwrap_or(u32::MAX);
        if wanted.max_wr > most || driver.rq_wqe_count == 0 || driver.buf_addr == 0 {
            return Err(Errno::EINVAL);
        }
        let bytes = 1_u64.checked_shl(driver.rq_wqe_shift).ok_or(Errno::EINVAL)?;
        let bytes = bytes.checked_mul(driver.rq_wqe_count.into()).filter(|bytes| *bytes < 1 << 40);
        let bytes = bytes.ok_or(Errno::EINVAL)?;
        let pdn = self.handles.get::<Pd>(wanted.pd)?.pdn;
        let cq = self.handles.get::<Cq>(wanted.cq)?;
        let stamps = stamp_format(Some(cq), core.caps.general(GeneralCaps::RQ_TS_FORMAT))?;
        let memory = core.memory.as_ref();
        let umem = Umem::pin(memory, driver.buf_addr, bytes, Rights::Read)?;
        let record = self.records.pin(memory, driver.db_addr)?;
        let mut head: [u8; CreateRqIn::BYTES] = begin(opcode::CREATE_RQ, granted.uid, 0);
        let context = CreateRqIn::CTX.of_mut(&mut head);
        RqContext::MEM_RQ_TYPE.set(context, memory::INLINE);
        RqContext::USER_INDEX.set(context, user_index_of(granted.cqe_version, driver.user_index)?);
        RqContext::CQN.set(context, cq.cqn);
        RqContext::STATE.set(context, state::RESET);
        RqContext::TS_FORMAT.set(context, stamps);
        RqContext::FLUSH_IN_ERROR_EN.set(context, 1);
        RqContext::VSD.set(context, u32::from(!flags.contains(WqFlags::CVLAN_STRIPPING)));
        RqContext::SCATTER_FCS.set(context, flags.contains(WqFlags::SCATTER_FCS).into());
        RqContext::DELAY_DROP_EN.set(context, flags.contains(WqFlags::DELAY_DROP).into());
        let ring = RqContext::WQ.of_mut(context);
        let fields = Ring {
            kind: if strides.is_some() { kind::CYCLIC_STRIDING_RQ } else { kind::CYCLIC },
            log_entries: driver.rq_wqe_count.ilog2(),
            log_stride: driver.rq_wqe_shift,
            pdn,
            record: record.dma,
        };
        fields.write(ring, &umem)?;
        WorkQueue::WQ_SIGNATURE.set(ring, driver.flags & 1);
        if flags.contains(WqFlags::PCI_WRITE_END_PADDING) {
            WorkQueue::END_PADDING_MODE.set(ring, end_padding::ALIGN);
        }
        if let Some((size, count)) = strides {
            WorkQueue::TWO_BYTE_SHIFT_EN.set(ring, u32::from(driver.two_byte_shift_en != 0));
            WorkQueue::LOG_WQE_STRIDE_SIZE.set(ring, size);
            WorkQueue::LOG_WQE_NUM_OF_STRIDES.set(ring, count);
        }
        let mut input = head.to_vec();
        input.extend_from_slice(&umem.pages(12, 0));
        let uid = granted.uid;
        let mut pieces = Pieces::default();
        let rqn = pieces.make(&core, &input, opcode::DESTROY_RQ, uid)?;
        let events = Count::default();
        core.events.add_queue(
            queue_kind::RQ,
            rqn,
            QueueTarget {
                file: wanted.file.clone(),
                user_handle: wanted.user_handle,
                events: Arc::clone(&events),
                is_wq: true,
            },
        );
        let state = WqState::RESET;
        let file = wanted.file.clone();
        let wq = Wq { rqn, uid, state, pieces, _ring: umem, _record: record, file, events };
        Ok((self.handles.add(wq, &[wanted.pd, wanted.cq]), rqn))
    }

    /// `EX_MODIFY_WQ`.
    pub(crate) fn modify_wq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExModifyWq = udata::lenient(command.core_in);
        let mask =
            WqMask::from_bits(request.attr_mask).filter(|mask| !mask.is_empty()).ok_or(Errno::EINVAL)?;
        let core = Arc::clone(&self.core);
        let wq = self.handles.get_mut::<Wq>(request.wq_handle)?;
        // Source: Linux `drivers/infiniband/core/uverbs_cmd.c`, `ib_uverbs_ex_modify_wq`.
        let current =
            if mask.contains(WqMask::CURR_STATE) { WqState(request.curr_wq_state) } else { wq.state };
        let wanted = if mask.contains(WqMask::STATE) { WqState(request.wq_state) } else { current };
        if current.0 > WqState::ERR.0 || wanted.0 > WqState::ERR.0 {
            return Err(Errno::EINVAL);
        }
        if mask.contains(WqMask::STATE) {
            let leads = !(wanted == WqState::RDY && current != WqState::RESET && current != WqState::RDY
                || wanted == WqState::ERR && current == WqState::RESET);
            if current != wq.state || !leads {
                return Err(Errno::EINVAL);
            }
        }
        let driver: ModifyWq = udata::strict(command.driver_in, size_of::<ModifyWq>())?;
        if driver.comp_mask != 0 || driver.reserved != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut input: [u8; ModifyRqIn::BYTES] = begin(opcode::MODIFY_RQ, wq.uid, 0);
        ModifyRqIn::RQ_STATE.set(&mut input, firmware_state(current));
        ModifyRqIn::RQN.set(&mut input, wq.rqn);
        let mut bits = 0;
        if mask.contains(WqMask::FLAGS) {
            let flags = WqFlags::from_bits_retain(request.flags);
            let changes = WqFlags::from_bits_retain(request.flags_mask);
            if changes.contains(WqFlags::PCI_WRITE_END_PADDING) {
                return Err(Errno::EOPNOTSUPP);
            }
            if changes.contains(WqFlags::CVLAN_STRIPPING) {
                if !offloads(&core, EthernetCaps::VLAN_CAP) {
                    return Err(Errno::EOPNOTSUPP);
                }
                bits |= modify::VSD;
                let keep = u32::from(!flags.contains(WqFlags::CVLAN_STRIPPING));
                RqContext::VSD.set(ModifyRqIn::CTX.of_mut(&mut input), keep);
            }
        }
        if current == WqState::RESET
            && wanted == WqState::RDY
            && core.caps.has(GeneralCaps::MODIFY_RQ_COUNTER_SET_ID)
            && let Some(set) = core.port.counters.set
        {
            bits |= modify::COUNTER_SET_ID;
            RqContext::COUNTER_SET_ID.set(ModifyRqIn::CTX.of_mut(&mut input), set.into());
        }
        ModifyRqIn::MODIFY_BITMASK.set(&mut input, bits);
        RqContext::STATE.set(ModifyRqIn::CTX.of_mut(&mut input), firmware_state(wanted));
        core.execute(&input, &mut [0; SHORT])?;
        wq.state = wanted;
        Ok(())
    }

    /// `WQ/DESTROY`.
    pub(crate) fn destroy_wq(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let events = self.end_wq(call.handle(id::wq::destroy::HANDLE)?)?;
        call.reply(id::wq::destroy::RESP, &events)
    }

    /// `EX_DESTROY_WQ`.
    pub(crate) fn ex_destroy_wq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExDestroyWq = command.request()?;
        if request.comp_mask != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let events_reported = self.end_wq(request.wq_handle)?;
        let answer = ExDestroyWqResp { events_reported, ..ExDestroyWqResp::default() };
        let offset = offset_of!(ExDestroyWqResp, response_length);
        udata::answer_counted(&mut command.core_out, answer.as_bytes(), offset);
        Ok(())
    }

    fn end_wq(&mut self, handle: u32) -> Result<u32, Errno> {
        self.destroy::<Wq>(handle).map(|wq| reported(wq.file.as_ref(), &wq.events))
    }
}

/// The driver's answer: its own length, and that is all.
fn answer(output: Option<&mut Output<'_>>) {
    let answer = CreateWqAnswer { response_length: 4, reserved: 0 };
    udata::answer(output, &answer.as_bytes()[..4]);
}

/// The firmware's number of a state.
fn firmware_state(wanted: WqState) -> u32 {
    match wanted {
        WqState::RDY => state::READY,
        WqState::ERR => state::ERROR,
        _ => state::RESET,
    }
}

/// A work queue's index is the user's own choice; the kernel only cuts it to what the device can carry.
fn user_index_of(cqe_version: u8, wanted: u32) -> Result<u32, Errno> {
    if cqe_version == 0 { user_index(0, wanted) } else { Ok(wanted & 0xff_ffff) }
}

fn check_flags(core: &Core, flags: WqFlags) -> Result<(), Errno> {
    let drops_late =
        core.caps.has(GeneralCaps::RQ_DELAY_DROP) && core.caps.has(GeneralCaps::GENERAL_NOTIFICATION_EVENT);
    let needs = [
        (WqFlags::CVLAN_STRIPPING, offloads(core, EthernetCaps::VLAN_CAP)),
        (WqFlags::SCATTER_FCS, offloads(core, EthernetCaps::SCATTER_FCS)),
        (WqFlags::DELAY_DROP, drops_late),
        (WqFlags::PCI_WRITE_END_PADDING, core.caps.has(GeneralCaps::END_PAD)),
    ];
    if needs.iter().any(|(flag, has)| flags.contains(*flag) && !has) {
        return Err(Errno::EOPNOTSUPP);
    }
    let known = needs.iter().fold(WqFlags::empty(), |known, (flag, _)| known | *flag);
    if (flags - known).is_empty() { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Length and number of strides, as the firmware counts them, of a striding ring.
fn strides(core: &Core, driver: &CreateWq) -> Result<Option<(u32, u32)>, Errno> {
    if driver.comp_mask & !wq_mask::STRIDING_RQ != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if driver.comp_mask & wq_mask::STRIDING_RQ == 0 {
        return Ok(None);
    }
    if !core.caps.has(GeneralCaps::STRIDING_RQ) {
        return Err(Errno::EOPNOTSUPP);
    }
    let (bytes, count) = (driver.single_stride_log_num_of_bytes, driver.single_wqe_log_num_of_strides);
    let extended = core.caps.has(GeneralCaps::EXT_STRIDE_NUM_RANGE);
    let fewest = if extended { LOG_STRIDES_MIN_EXTENDED } else { LOG_STRIDES_BASE };
    if !(LOG_STRIDE_BYTES_BASE..=LOG_STRIDE_BYTES_MAX).contains(&bytes)
        || !(fewest..=LOG_STRIDES_MAX).contains(&count)
    {
        return Err(Errno::EINVAL);
    }
    // Four bits in two's complement: fewer strides than the base are negative.
    Ok(Some((bytes - LOG_STRIDE_BYTES_BASE, count.wrapping_sub(LOG_STRIDES_BASE) & 0xf)))
}
