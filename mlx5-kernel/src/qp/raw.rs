//! Raw packet queue pairs: a send queue with its TIS, a receive queue with its TIR.

use pollux_mlx5_abi::caps::ethernet::EthernetCaps;
use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::rq::{self, CreateRqIn, ModifyRqIn, RqContext};
use pollux_mlx5_abi::command::sq::{self, CreateSqIn, ModifySqIn, SqContext};
use pollux_mlx5_abi::command::tir::{CreateTirIn, CreateTisIn, TirContext, TisContext, dispatch, loopback};
use pollux_mlx5_abi::command::wq::{WorkQueue, end_padding, kind, state};
use pollux_mlx5_abi::kernel::queue_pair::{CreateQp, CreateQpAnswer, qp_answer, qp_flag};
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::{QpFlags, QpState};

use super::{Body, Parts, Wanted};
use crate::core::Core;
use crate::cq::{Cq, stamp_format};
use crate::device::Rights;
use crate::firmware::{SHORT, begin};
use crate::loopback::User;
use crate::pd::Pd;
use crate::pieces::Pieces;
use crate::rate::RateLimit;
use crate::ring::{Ring, offloads, tunnels, user_index};
use crate::session::Session;
use crate::uar::register::{NO_REGISTER, StaticRegisters};
use crate::udata;
use crate::umem::{Record, Umem};

/// A block of a send ring, as a logarithm.
const LOG_BLOCK: u32 = 6;

/// The queues of a raw packet queue pair.
#[derive(Debug)]
pub(crate) struct RawQp {
    pub(crate) sqn: Option<u32>,
    pub(crate) rqn: Option<u32>,
    pub(crate) tirn: Option<u32>,
    pub(crate) tisn: Option<u32>,
    takes_own: OwnFrames,
    pieces: Pieces,
    sq_state: u32,
    rq_state: u32,
    /// What the send queue is held to.
    limit: RateLimit,
    _send: Option<Umem>,
    _receive: Option<Umem>,
    _record: Record,
}

/// What both queues have in common.
struct Common {
    uid: u16,
    domain: u32,
    uar: u32,
    user_index: u32,
    pdn: u32,
    record: u64,
}

impl RawQp {
    pub(super) fn end(&mut self, core: &Core, uid: u16, state: QpState) -> Result<(), Errno> {
        if state != QpState::RESET {
            // One that is refused this is destroyed all the same. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`,
            // `destroy_qp_common`.
            let _refused = self.go(core, uid, state::RESET, true);
        }
        self.pieces.end(core)?;
        self.takes_own.end(core);
        Ok(())
    }

    /// Takes both queues to a state; `counters` with the set of counters that a receive queue gets.
    pub(super) fn go(&mut self, core: &Core, uid: u16, to: u32, ending: bool) -> Result<(), Errno> {
        if let Some(rqn) = self.rqn {
            let mut input: [u8; ModifyRqIn::BYTES] = begin(opcode::MODIFY_RQ, uid, 0);
            ModifyRqIn::RQ_STATE.set(&mut input, self.rq_state);
            ModifyRqIn::RQN.set(&mut input, rqn);
            if !ending
                && to == state::READY
                && core.caps.has(GeneralCaps::MODIFY_RQ_COUNTER_SET_ID)
                && let Some(set) = core.port.counters.set
            {
                ModifyRqIn::MODIFY_BITMASK.set(&mut input, rq::modify::COUNTER_SET_ID);
                RqContext::COUNTER_SET_ID.set(ModifyRqIn::CTX.of_mut(&mut input), set.into());
            }
            RqContext::STATE.set(ModifyRqIn::CTX.of_mut(&mut input), to);
            core.execute(&input, &mut [0; SHORT])?;
            self.rq_state = to;
        }
        if let Some(sqn) = self.sqn {
            let mut input: [u8; ModifySqIn::BYTES] = begin(opcode::MODIFY_SQ, uid, 0);
            ModifySqIn::SQ_STATE.set(&mut input, self.sq_state);
            ModifySqIn::SQN.set(&mut input, sqn);
            SqContext::STATE.set(ModifySqIn::CTX.of_mut(&mut input), to);
            core.execute(&input, &mut [0; SHORT])?;
            self.sq_state = to;
            if to != state::READY && !self.limit.is_none() {
                core.rates.give_back(core, std::mem::take(&mut self.limit));
            }
        }
        Ok(())
    }

    /// Holds the send queue, which works, to another rate.
    pub(super) fn hold_to(&mut self, core: &Core, uid: u16, limit: RateLimit) -> Result<(), Errno> {
        let Some(sqn) = self.sqn.filter(|_| limit != self.limit) else { return Ok(()) };
        let index = if limit.is_none() { 0 } else { core.rates.take(core, limit)? };
        let mut input: [u8; ModifySqIn::BYTES] = begin(opcode::MODIFY_SQ, uid, 0);
        ModifySqIn::SQ_STATE.set(&mut input, self.sq_state);
        ModifySqIn::SQN.set(&mut input, sqn);
        ModifySqIn::MODIFY_BITMASK.set(&mut input, sq::modify::RATE_LIMIT_INDEX);
        let context = ModifySqIn::CTX.of_mut(&mut input);
        SqContext::STATE.set(context, self.sq_state);
        SqContext::PACKET_PACING_RATE_LIMIT_INDEX.set(context, index);
        let done = core.execute(&input, &mut [0; SHORT]);
        // The old one goes when the new one is in force.
        let over = if done.is_ok() { std::mem::replace(&mut self.limit, limit) } else { limit };
        if !over.is_none() {
            core.rates.give_back(core, over);
        }
        done
    }

    /// Takes note of the states that the device told.
    pub(super) fn observed(&mut self, rq_state: Option<u32>, sq_state: Option<u32>) {
        self.rq_state = rq_state.unwrap_or(self.rq_state);
        self.sq_state = sq_state.unwrap_or(self.sq_state);
    }

    fn make_send(
        &mut self,
        core: &Core,
        common: &Common,
        driver: &CreateQp,
        cq: &crate::cq::Cq,
    ) -> Result<(), Errno> {
        let mut input: [u8; CreateTisIn::BYTES] = begin(opcode::CREATE_TIS, common.uid, 0);
        TisContext::TRANSPORT_DOMAIN.set(CreateTisIn::CTX.of_mut(&mut input), common.domain);
        let tisn = self.pieces.make(core, &input, opcode::DESTROY_TIS, common.uid)?;
        self.tisn = Some(tisn);
        let bytes = u64::from(driver.sq_wqe_count) << LOG_BLOCK;
        let umem = Umem::pin(core.memory.as_ref(), driver.sq_buf_addr, bytes, Rights::Read)?;
        let mut head: [u8; CreateSqIn::BYTES] = begin(opcode::CREATE_SQ, common.uid, 0);
        let context = CreateSqIn::CTX.of_mut(&mut head);
        // By the older capability alone, also for the newer way of packing.
        let packs = core.caps.has_ethernet(EthernetCaps::MULTI_PKT_SEND_WQE);
        SqContext::FLUSH_IN_ERROR_EN.set(context, 1);
        SqContext::ALLOW_MULTI_PKT_SEND_WQE.set(context, packs.into());
        SqContext::ALLOW_SWP.set(context, offloads(core, EthernetCaps::SWP).into());
        SqContext::STATE.set(context, state::RESET);
        SqContext::TS_FORMAT
            .set(context, stamp_format(Some(cq), core.caps.general(GeneralCaps::SQ_TS_FORMAT))?);
        SqContext::USER_INDEX.set(context, common.user_index);
        SqContext::CQN.set(context, cq.cqn);
        SqContext::TIS_LST_SZ.set(context, 1);
        SqContext::TIS_NUM_0.set(context, tisn);
        let ring = SqContext::WQ.of_mut(context);
        let fields = Ring {
            kind: kind::CYCLIC,
            log_entries: driver.sq_wqe_count.ilog2(),
            log_stride: LOG_BLOCK,
            pdn: common.pdn,
            record: common.record,
        };
        fields.write(ring, &umem)?;
        WorkQueue::UAR_PAGE.set(ring, common.uar & 0xff_ffff);
        let mut input = head.to_vec();
        input.extend_from_slice(&umem.pages(12, 0));
        self.sqn = Some(self.pieces.make(core, &input, opcode::DESTROY_SQ, common.uid)?);
        self._send = Some(umem);
        Ok(())
    }

    fn make_receive(
        &mut self,
        core: &Core,
        common: &Common,
        driver: &CreateQp,
        cq: &crate::cq::Cq,
        flags: QpFlags,
    ) -> Result<(), Errno> {
        let bytes = u64::from(driver.rq_wqe_count) << driver.rq_wqe_shift;
        let umem = Umem::pin(core.memory.as_ref(), driver.buf_addr, bytes, Rights::Read)?;
        let mut head: [u8; CreateRqIn::BYTES] = begin(opcode::CREATE_RQ, common.uid, 0);
        let context = CreateRqIn::CTX.of_mut(&mut head);
        RqContext::VSD.set(context, u32::from(!flags.contains(QpFlags::CVLAN_STRIPPING)));
        RqContext::MEM_RQ_TYPE.set(context, rq::memory::INLINE);
        RqContext::STATE.set(context, state::RESET);
        RqContext::FLUSH_IN_ERROR_EN.set(context, 1);
        RqContext::TS_FORMAT
            .set(context, stamp_format(Some(cq), core.caps.general(GeneralCaps::RQ_TS_FORMAT))?);
        RqContext::USER_INDEX.set(context, common.user_index);
        RqContext::CQN.set(context, cq.cqn);
        RqContext::SCATTER_FCS.set(context, flags.contains(QpFlags::SCATTER_FCS).into());
        let ring = RqContext::WQ.of_mut(context);
        let fields = Ring {
            kind: kind::CYCLIC,
            log_entries: driver.rq_wqe_count.ilog2(),
            log_stride: driver.rq_wqe_shift,
            pdn: common.pdn,
            record: common.record,
        };
        fields.write(ring, &umem)?;
        if flags.contains(QpFlags::PCI_WRITE_END_PADDING) {
            WorkQueue::END_PADDING_MODE.set(ring, end_padding::ALIGN);
        }
        let mut input = head.to_vec();
        input.extend_from_slice(&umem.pages(12, 0));
        let rqn = self.pieces.make(core, &input, opcode::DESTROY_RQ, common.uid)?;
        self.rqn = Some(rqn);
        self._receive = Some(umem);
        let mut input: [u8; CreateTirIn::BYTES] = begin(opcode::CREATE_TIR, common.uid, 0);
        let context = CreateTirIn::CTX.of_mut(&mut input);
        TirContext::DISP_TYPE.set(context, dispatch::DIRECT);
        TirContext::INLINE_RQN.set(context, rqn);
        TirContext::TRANSPORT_DOMAIN.set(context, common.domain);
        let tunnel = driver.flags & qp_flag::TUNNEL_OFFLOADS != 0;
        TirContext::TUNNELED_OFFLOAD_EN.set(context, tunnel.into());
        TirContext::SELF_LB_BLOCK.set(context, self_loopback(driver.flags));
        self.tirn = Some(self.pieces.make(core, &input, opcode::DESTROY_TIR, common.uid)?);
        self.takes_own.begin(core, driver.flags)
    }
}

/// Whether a TIR counts among those that take frames of their own domain.
#[derive(Debug, Default)]
pub(super) struct OwnFrames(bool);

impl OwnFrames {
    /// The TIR is made, by these flags of the driver's.
    pub(super) fn begin(&mut self, core: &Core, flags: u32) -> Result<(), Errno> {
        if self_loopback(flags) != 0 {
            core.loopback.enter(core, User::Pair)?;
            self.0 = true;
        }
        Ok(())
    }

    /// The TIR is gone.
    pub(super) fn end(&mut self, core: &Core) {
        if std::mem::take(&mut self.0) {
            core.loopback.leave(core, User::Pair);
        }
    }
}

/// What the driver's flags say about a TIR's own packets. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`,
/// `create_raw_packet_qp_tir`.
pub(super) fn self_loopback(flags: u32) -> u32 {
    let bits = [
        (qp_flag::TIR_ALLOW_SELF_LB_UC, loopback::ALLOW_UNICAST),
        (qp_flag::TIR_ALLOW_SELF_LB_MC, loopback::ALLOW_MULTICAST),
    ];
    bits.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, bit)| all | bit)
}

impl Session {
    pub(super) fn make_raw(&mut self, core: &Core, wanted: &Wanted<'_>) -> Result<Parts, Errno> {
        let driver: CreateQp = udata::strict(wanted.driver, 0)?;
        check(core, wanted, &driver)?;
        let least = std::mem::offset_of!(CreateQp, uidx) + 4;
        if wanted.driver.len() < least {
            return Err(Errno::EINVAL);
        }
        let has_receive = wanted.cap.max_recv_wr != 0 && driver.rq_wqe_count != 0;
        let mut cap = wanted.cap;
        if !has_receive {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let has_send = driver.sq_wqe_count != 0;
        if !has_send && !has_receive {
            return Err(Errno::EINVAL);
        }
        let send_cq = wanted.send_cq.or(wanted.recv_cq).ok_or(Errno::EINVAL)?;
        let recv_cq = wanted.recv_cq.unwrap_or(send_cq);
        let pd = wanted.pd.ok_or(Errno::EINVAL)?;
        let pdn = self.handles.get::<Pd>(pd)?.pdn;
        self.handles.get::<Cq>(send_cq)?;
        self.handles.get::<Cq>(recv_cq)?;
        let record = self.records.pin(core.memory.as_ref(), driver.db_addr)?;
        let (uar, register) = self.register_of(&driver)?;
        let granted = self.granted()?;
        let common = Common {
            uid: granted.uid,
            domain: granted.domain,
            uar,
            user_index: user_index(granted.cqe_version, driver.uidx)?,
            pdn,
            record: record.dma,
        };
        let mut raw = RawQp {
            sqn: None,
            rqn: None,
            tirn: None,
            tisn: None,
            takes_own: OwnFrames::default(),
            pieces: Pieces::default(),
            sq_state: state::RESET,
            rq_state: state::RESET,
            limit: RateLimit::default(),
            _send: None,
            _receive: None,
            _record: record,
        };
        let result = (|| {
            if has_send {
                raw.make_send(core, &common, &driver, self.handles.get::<Cq>(send_cq)?)?;
            }
            if has_receive {
                raw.make_receive(core, &common, &driver, self.handles.get::<Cq>(recv_cq)?, wanted.flags)?;
            }
            Ok(())
        })();
        if let Err(errno) = result {
            raw.pieces.abandon(core);
            self.give_register_back(register);
            return Err(errno);
        }
        let answer = CreateQpAnswer {
            bfreg_index: register.map_or(NO_REGISTER, StaticRegisters::told),
            ..numbers(common.uid, &raw)
        };
        let qpn = raw.sqn.or(raw.rqn).unwrap_or(0);
        let parents = vec![pd, send_cq, recv_cq];
        Ok(Parts { body: Body::Raw(Box::new(raw)), qpn, cap, answer, register, parents })
    }

    /// The UAR that a queue pair rings, and its register of the static kind.
    pub(super) fn register_of(&mut self, driver: &CreateQp) -> Result<(u32, Option<usize>), Errno> {
        let granted = self.granted_mut()?;
        match driver.flags & (qp_flag::UAR_PAGE_INDEX | qp_flag::BFREG_INDEX) {
            qp_flag::UAR_PAGE_INDEX => Ok((driver.bfreg_index, None)),
            qp_flag::BFREG_INDEX => {
                let registers = granted.registers.as_ref().ok_or(Errno::EINVAL)?;
                Ok((registers.dynamic_uar(driver.bfreg_index)?, None))
            }
            0 => {
                let registers = granted.registers.as_mut().ok_or(Errno::EINVAL)?;
                let register = registers.take();
                Ok((registers.uar(register)?, Some(register)))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn give_register_back(&mut self, register: Option<usize>) {
        if let (Some(register), Some(granted)) = (register, &mut self.granted)
            && let Some(registers) = &mut granted.registers
        {
            registers.give_back(register);
        }
    }
}

/// Numbers that are told to users of DevX alone.
fn numbers(uid: u16, raw: &RawQp) -> CreateQpAnswer {
    let mut answer = CreateQpAnswer::default();
    if uid == 0 {
        return answer;
    }
    let CreateQpAnswer { comp_mask, tirn, tisn, rqn, sqn, .. } = &mut answer;
    let parts = [
        (qp_answer::TIRN, raw.tirn, tirn),
        (qp_answer::TISN, raw.tisn, tisn),
        (qp_answer::RQN, raw.rqn, rqn),
        (qp_answer::SQN, raw.sqn, sqn),
    ];
    for (bit, number, place) in parts {
        if let Some(number) = number {
            *comp_mask |= bit;
            *place = number;
        }
    }
    answer
}

/// Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `process_vendor_flags`, `process_create_flags`, `set_rq_size`,
/// `set_user_buf_size`.
fn check(core: &Core, wanted: &Wanted<'_>, driver: &CreateQp) -> Result<(), Errno> {
    let known = qp_flag::SIGNATURE
        | qp_flag::SCATTER_CQE
        | qp_flag::TUNNEL_OFFLOADS
        | qp_flag::BFREG_INDEX
        | qp_flag::TIR_ALLOW_SELF_LB_UC
        | qp_flag::TIR_ALLOW_SELF_LB_MC
        | qp_flag::UAR_PAGE_INDEX;
    if driver.flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    if driver.flags & qp_flag::TUNNEL_OFFLOADS != 0 && !tunnels(core) {
        return Err(Errno::EOPNOTSUPP);
    }
    let caps = &core.caps;
    let needs = [
        (QpFlags::SCATTER_FCS, offloads(core, EthernetCaps::SCATTER_FCS)),
        (QpFlags::CVLAN_STRIPPING, offloads(core, EthernetCaps::VLAN_CAP)),
        (QpFlags::PCI_WRITE_END_PADDING, caps.has(GeneralCaps::END_PAD)),
        (QpFlags::BLOCK_MULTICAST_LOOPBACK, caps.has(GeneralCaps::BLOCK_LB_MC)),
    ];
    if needs.iter().any(|(flag, has)| wanted.flags.contains(*flag) && !has) {
        return Err(Errno::EOPNOTSUPP);
    }
    let most = caps.count(GeneralCaps::LOG_MAX_QP_SZ);
    if wanted.cap.max_recv_wr > most || driver.sq_wqe_count > most || driver.rq_wqe_count > most {
        return Err(Errno::EINVAL);
    }
    if driver.sq_wqe_count != 0 && !driver.sq_wqe_count.is_power_of_two() {
        return Err(Errno::EINVAL);
    }
    let shifts = 4..=15;
    if wanted.cap.max_recv_wr != 0 && driver.rq_wqe_count != 0 && !shifts.contains(&driver.rq_wqe_shift) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}
