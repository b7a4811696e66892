//! Shared receive queues: plain ones are the firmware's receive pools, those of XRC its XRC SRQs. Source: Linux
//! `drivers/infiniband/core/uverbs_cmd.c` and `uverbs_std_types_srq.c`, `drivers/infiniband/hw/mlx5/srq.c`, `srq_cmd.c`.

use std::mem::offset_of;
use std::sync::Arc;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::rq::{CreateRmpIn, ModifyRmpIn, QueryRmpIn, QueryRmpOut, RmpContext};
use pollux_mlx5_abi::command::srq::{
    ArmXrcSrqIn, CreateXrcSrqIn, QueryXrcSrqIn, QueryXrcSrqOut, XrcSrqContext,
};
use pollux_mlx5_abi::command::wq::{WorkQueue, state};
use pollux_mlx5_abi::kernel::queue_pair::{self, CreateSrqAnswer};
use pollux_uverbs::abi::flags::SrqType;
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};
use pollux_uverbs::abi::queue::{
    CreateSrq, CreateSrqResp, CreateXsrq, DestroySrq, DestroySrqResp, ModifySrq, QuerySrq, QuerySrqResp,
};
use pollux_uverbs::{Call, Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::cq::Cq;
use crate::device::Rights;
use crate::event::file::{Count, EventFile};
use crate::event::{QueueTarget, SHARED_RECEIVE_QUEUE, reported};
use crate::firmware::{SHORT, begin};
use crate::handle::{Object, ObjectKind};
use crate::pd::Pd;
use crate::pieces::Pieces;
use crate::ring::{DEFAULT_USER_INDEX, OFFSET_BITS, user_index};
use crate::session::Session;
use crate::udata;
use crate::umem::{Record, Umem};
use crate::xrcd::Xrcd;

/// Bytes in front of an entry's segments, and of a segment, as rdma-core `providers/mlx5/mlx5dv.h` has them in
/// `struct mlx5_wqe_srq_next_seg` and `struct mlx5_wqe_data_seg`.
const SEGMENT: u32 = 16;

/// Shortest entry.
const ENTRY_MIN: u32 = 32;

/// Bits of the place of the ring in its first page, in the context of an XRC one.
const XRC_OFFSET_BITS: u32 = 6;

/// `op_mod` of ARM_XRC_SRQ. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ`.
const ARM_XRC: u16 = 1;

/// What MODIFY_SRQ changes. Source: rdma-core `libibverbs/verbs.h`, `enum ibv_srq_attr_mask`.
mod change {
    pub(super) const MAX_WR: u32 = 1 << 0;
    pub(super) const LIMIT: u32 = 1 << 1;
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) number: u32,
    pub(crate) is_xrc: bool,
    uid: u16,
    entries: u32,
    pieces_max: u32,
    pieces: Pieces,
    _ring: Umem,
    _record: Record,
    file: Option<Arc<EventFile>>,
    events: Count,
}

/// What is asked for.
#[derive(Debug)]
struct Wanted<'a> {
    kind: SrqType,
    pd: u32,
    xrcd: Option<u32>,
    cq: Option<u32>,
    max_wr: u32,
    max_sge: u32,
    user_handle: u64,
    file: Option<Arc<EventFile>>,
    driver: &'a [u8],
}

/// What was made.
#[derive(Clone, Copy, Debug)]
struct Made {
    handle: u32,
    max_wr: u32,
    number: u32,
}

/// The ring, for both kinds of contexts.
struct Shape<'a> {
    umem: &'a Umem,
    record: u64,
    log_entries: u32,
    log_stride: u32,
    pdn: u32,
    signed: bool,
}

impl Object for Srq {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Srq
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        self.pieces.end(core)?;
        core.events.remove_queue(SHARED_RECEIVE_QUEUE, self.number, &self.events);
        Ok(())
    }

    fn parts(&self) -> Vec<(u16, u32)> {
        vec![(if self.is_xrc { opcode::CREATE_XRC_SRQ } else { opcode::CREATE_RMP }, self.number)]
    }
}

impl Srq {
    /// An event comes when fewer than `limit` entries are left.
    fn arm(&self, core: &Core, limit: u32) -> Result<(), Errno> {
        if self.is_xrc {
            let mut input: [u8; ArmXrcSrqIn::BYTES] = begin(opcode::ARM_XRC_SRQ, self.uid, ARM_XRC);
            ArmXrcSrqIn::XRC_SRQN.set(&mut input, self.number);
            ArmXrcSrqIn::LWM.set(&mut input, limit);
            return core.execute(&input, &mut [0; SHORT]);
        }
        let mut input: [u8; ModifyRmpIn::BYTES] = begin(opcode::MODIFY_RMP, self.uid, 0);
        ModifyRmpIn::RMP_STATE.set(&mut input, state::READY);
        ModifyRmpIn::RMPN.set(&mut input, self.number);
        ModifyRmpIn::BITMASK_LWM.set(&mut input, 1);
        let context = ModifyRmpIn::CTX.of_mut(&mut input);
        RmpContext::STATE.set(context, state::READY);
        WorkQueue::LWM.set(RmpContext::WQ.of_mut(context), limit);
        core.execute(&input, &mut [0; SHORT])
    }

    /// Below how many entries an event comes.
    fn limit(&self, core: &Core) -> Result<u32, Errno> {
        if self.is_xrc {
            let mut input: [u8; QueryXrcSrqIn::BYTES] = begin(opcode::QUERY_XRC_SRQ, self.uid, 0);
            QueryXrcSrqIn::XRC_SRQN.set(&mut input, self.number);
            let mut output = QueryXrcSrqOut::ZERO;
            core.execute(&input, &mut output)?;
            return Ok(XrcSrqContext::LWM.get(QueryXrcSrqOut::XRC_SRQ_CONTEXT_ENTRY.of(&output)));
        }
        let mut input: [u8; QueryRmpIn::BYTES] = begin(opcode::QUERY_RMP, self.uid, 0);
        QueryRmpIn::RMPN.set(&mut input, self.number);
        let mut output = QueryRmpOut::ZERO;
        core.execute(&input, &mut output)?;
        Ok(WorkQueue::LWM.get(RmpContext::WQ.of(QueryRmpOut::RMP_CONTEXT.of(&output))))
    }
}

impl Session {
    /// `SRQ/CREATE`.
    pub(crate) fn create_srq(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::srq::create as a;
        let kind = u32::try_from(call.number(a::TYPE)?).map_err(|_| Errno::EINVAL)?;
        let optional = |id| call.find(id).map(|_| call.handle(id)).transpose();
        let max_sge = call.input_as(a::MAX_SGE)?;
        let wanted = Wanted {
            kind: SrqType(kind),
            pd: call.handle(a::PD_HANDLE)?,
            xrcd: optional(a::XRCD_HANDLE)?,
            cq: optional(a::CQ_HANDLE)?,
            max_wr: call.input_as(a::MAX_WR)?,
            max_sge,
            user_handle: call.number(a::USER_HANDLE)?,
            file: self.event_file(call, a::EVENT_FD)?,
            driver: call.input(UHW_IN).unwrap_or_default(),
        };
        let made = self.make_srq(&wanted)?;
        call.create(a::HANDLE, made.handle)?;
        call.reply(a::RESP_MAX_WR, &made.max_wr)?;
        call.reply(a::RESP_MAX_SGE, &max_sge)?;
        if let Some(output) = call.output(a::RESP_SRQ_NUM).filter(|_| kind == SrqType::XRC.0) {
            output.write(made.number.as_bytes());
        }
        let answer = CreateSrqAnswer { srqn: made.number, reserved: 0 };
        udata::answer(call.output(UHW_OUT), answer.as_bytes());
        Ok(())
    }

    /// `CREATE_SRQ`.
    pub(crate) fn write_create_srq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: CreateSrq = command.request()?;
        self.make_written_srq(
            &CreateXsrq {
                response: 0,
                user_handle: request.user_handle,
                srq_type: SrqType::BASIC.0,
                pd_handle: request.pd_handle,
                max_wr: request.max_wr,
                max_sge: request.max_sge,
                srq_limit: request.srq_limit,
                ..CreateXsrq::default()
            },
            command,
        )
    }

    /// `CREATE_XSRQ`.
    pub(crate) fn create_xsrq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: CreateXsrq = command.request()?;
        self.make_written_srq(&request, command)
    }

    fn make_written_srq(&mut self, request: &CreateXsrq, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let kind = SrqType(request.srq_type);
        if kind == SrqType::XRC {
            // Of domains the older form says so.
            self.handles.get::<Xrcd>(request.xrcd_handle).map_err(|_| Errno::EINVAL)?;
        }
        let made = self.make_srq(&Wanted {
            kind,
            pd: request.pd_handle,
            xrcd: (kind == SrqType::XRC).then_some(request.xrcd_handle),
            cq: (kind != SrqType::BASIC).then_some(request.cq_handle),
            max_wr: request.max_wr,
            max_sge: request.max_sge,
            user_handle: request.user_handle,
            file: self.default_file.clone(),
            driver: command.driver_in,
        })?;
        let answer = CreateSrqResp {
            srq_handle: made.handle,
            max_wr: made.max_wr,
            max_sge: request.max_sge,
            srqn: if kind == SrqType::XRC { made.number } else { 0 },
        };
        command.core_out.write(answer.as_bytes());
        let answer = CreateSrqAnswer { srqn: made.number, reserved: 0 };
        udata::answer(Some(&mut command.driver_out), answer.as_bytes());
        Ok(())
    }

    fn make_srq(&mut self, wanted: &Wanted<'_>) -> Result<Made, Errno> {
        let core = Arc::clone(&self.core);
        // Of tag matching the device has lists of no length: Linux `drivers/infiniband/hw/mlx5/srq.c`, `mlx5_ib_create_srq`.
        if wanted.kind != SrqType::BASIC && wanted.kind != SrqType::XRC {
            return Err(Errno::EINVAL);
        }
        let is_xrc = wanted.kind == SrqType::XRC;
        let caps = &core.caps;
        let segments = caps.general(GeneralCaps::MAX_WQE_SZ_RQ) / SEGMENT;
        if wanted.max_wr >= caps.count(GeneralCaps::LOG_MAX_SRQ_SZ) || wanted.max_sge > segments {
            return Err(Errno::EINVAL);
        }
        let entries = (wanted.max_wr + 1).next_power_of_two();
        let entry = ((1 + wanted.max_sge) * SEGMENT).next_power_of_two().max(ENTRY_MIN);
        let driver: queue_pair::CreateSrq =
            udata::strict(wanted.driver, offset_of!(queue_pair::CreateSrq, reserved0))?;
        if driver.reserved0 != 0 || driver.reserved1 != 0 {
            return Err(Errno::EINVAL);
        }
        let granted = self.granted()?;
        let has_index = wanted.driver.len() > offset_of!(queue_pair::CreateSrq, uidx);
        let index = match is_xrc && has_index {
            true => user_index(granted.cqe_version, driver.uidx)?,
            false => DEFAULT_USER_INDEX,
        };
        let uid = if is_xrc { 0 } else { granted.uid };
        let pdn = self.handles.get::<Pd>(wanted.pd)?.pdn;
        let memory = core.memory.as_ref();
        let bytes = u64::from(entries) * u64::from(entry);
        let umem = Umem::pin(memory, driver.buf_addr, bytes, Rights::Read)?;
        let record = self.records.pin(memory, driver.db_addr)?;
        let shape = Shape {
            umem: &umem,
            record: record.dma,
            log_entries: entries.ilog2(),
            log_stride: entry.ilog2(),
            pdn,
            signed: driver.flags & 1 != 0,
        };
        let mut pieces = Pieces::default();
        let mut parents = vec![wanted.pd];
        let number = if is_xrc {
            let (xrcd, cq) = (wanted.xrcd.ok_or(Errno::EINVAL)?, wanted.cq.ok_or(Errno::EINVAL)?);
            parents.extend([xrcd, cq]);
            let domain = self.handles.get::<Xrcd>(xrcd)?.domain.number;
            let input = xrc_command(&shape, domain, self.handles.get::<Cq>(cq)?.cqn, index)?;
            pieces.make(&core, &input, opcode::DESTROY_XRC_SRQ, uid)?
        } else {
            pieces.make(&core, &pool_command(&shape, uid)?, opcode::DESTROY_RMP, uid)?
        };
        let events = Count::default();
        core.events.add_queue(
            SHARED_RECEIVE_QUEUE,
            number,
            QueueTarget {
                file: wanted.file.clone(),
                user_handle: wanted.user_handle,
                events: Arc::clone(&events),
                is_wq: false,
            },
        );
        let srq = Srq {
            number,
            is_xrc,
            uid,
            entries,
            pieces_max: wanted.max_sge,
            pieces,
            _ring: umem,
            _record: record,
            file: wanted.file.clone(),
            events,
        };
        let handle = self.handles.add(srq, &parents);
        Ok(Made { handle, max_wr: entries - 1, number })
    }

    /// `MODIFY_SRQ`: the limit alone, as mlx5_ib has it.
    pub(crate) fn modify_srq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ModifySrq = command.request()?;
        let srq = self.handles.get::<Srq>(request.srq_handle)?;
        if request.attr_mask & change::MAX_WR != 0 {
            return Err(Errno::EINVAL);
        }
        if request.attr_mask & change::LIMIT != 0 {
            // The limit has 16 bits.
            if request.srq_limit >= srq.entries || request.srq_limit > u16::MAX.into() {
                return Err(Errno::EINVAL);
            }
            srq.arm(&self.core, request.srq_limit)?;
        }
        Ok(())
    }

    /// `QUERY_SRQ`.
    pub(crate) fn query_srq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: QuerySrq = command.request()?;
        let srq = self.handles.get::<Srq>(request.srq_handle)?;
        let answer = QuerySrqResp {
            max_wr: srq.entries - 1,
            max_sge: srq.pieces_max,
            srq_limit: srq.limit(&self.core)?,
            reserved: 0,
        };
        command.core_out.write(answer.as_bytes());
        Ok(())
    }

    /// `SRQ/DESTROY`.
    pub(crate) fn destroy_srq(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let answer = self.end_srq(call.handle(id::srq::destroy::HANDLE)?)?;
        call.reply(id::srq::destroy::RESP, &answer)
    }

    /// `DESTROY_SRQ`.
    pub(crate) fn write_destroy_srq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: DestroySrq = command.request()?;
        let answer = self.end_srq(request.srq_handle)?;
        command.core_out.write(answer.as_bytes());
        Ok(())
    }

    fn end_srq(&mut self, handle: u32) -> Result<DestroySrqResp, Errno> {
        let srq = self.destroy::<Srq>(handle)?;
        Ok(DestroySrqResp { events_reported: reported(srq.file.as_ref(), &srq.events) })
    }
}

/// CREATE_RMP.
fn pool_command(shape: &Shape<'_>, uid: u16) -> Result<Vec<u8>, Errno> {
    let mut head: [u8; CreateRmpIn::BYTES] = begin(opcode::CREATE_RMP, uid, 0);
    if !WorkQueue::LOG_WQ_STRIDE.fits(shape.log_stride) || !WorkQueue::LOG_WQ_SZ.fits(shape.log_entries) {
        return Err(Errno::EINVAL);
    }
    let context = CreateRmpIn::CTX.of_mut(&mut head);
    RmpContext::STATE.set(context, state::READY);
    let ring = RmpContext::WQ.of_mut(context);
    WorkQueue::WQ_SIGNATURE.set(ring, shape.signed.into());
    WorkQueue::LOG_WQ_STRIDE.set(ring, shape.log_stride);
    WorkQueue::LOG_WQ_SZ.set(ring, shape.log_entries);
    WorkQueue::PAGE_OFFSET.set(ring, shape.umem.quantized_offset(OFFSET_BITS)?);
    WorkQueue::PD.set(ring, shape.pdn);
    WorkQueue::DBR_ADDR.set(ring, shape.record);
    let mut input = head.to_vec();
    input.extend_from_slice(&shape.umem.pages(12, 0));
    Ok(input)
}

/// CREATE_XRC_SRQ.
fn xrc_command(shape: &Shape<'_>, xrcd: u32, cqn: u32, user_index: u32) -> Result<Vec<u8>, Errno> {
    let mut head: [u8; CreateXrcSrqIn::BYTES] = begin(opcode::CREATE_XRC_SRQ, 0, 0);
    let context = CreateXrcSrqIn::XRC_SRQ_CONTEXT_ENTRY.of_mut(&mut head);
    if !XrcSrqContext::LOG_XRC_SRQ_SIZE.fits(shape.log_entries)
        || !XrcSrqContext::LOG_RQ_STRIDE.fits(shape.log_stride - 4)
    {
        return Err(Errno::EINVAL);
    }
    XrcSrqContext::WQ_SIGNATURE.set(context, shape.signed.into());
    XrcSrqContext::LOG_XRC_SRQ_SIZE.set(context, shape.log_entries);
    // In units of 16 bytes.
    XrcSrqContext::LOG_RQ_STRIDE.set(context, shape.log_stride - 4);
    XrcSrqContext::XRCD.set(context, xrcd);
    XrcSrqContext::PAGE_OFFSET.set(context, shape.umem.quantized_offset(XRC_OFFSET_BITS)?);
    XrcSrqContext::CQN.set(context, cqn);
    XrcSrqContext::USER_INDEX.set(context, user_index);
    XrcSrqContext::PD.set(context, shape.pdn);
    XrcSrqContext::DBR_ADDR_4.set(context, shape.record >> 2);
    let mut input = head.to_vec();
    input.extend_from_slice(&shape.umem.pages(12, 0));
    Ok(input)
}
