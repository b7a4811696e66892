//! Queue pairs of RC, UC, UD and XRC: one object of the firmware's, its rings one piece of the program's memory, receive
//! ring first. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `create_user_qp`, `create_xrc_tgt_qp`, `destroy_qp_common`.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::RoceCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::qp::context::{QpContext, migration, receive, service};
use pollux_mlx5_abi::command::qp::{CreateQpIn, CreateQpOut};
use pollux_mlx5_abi::kernel::queue_pair::{CreateQp, CreateQpAnswer, qp_flag};
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::{Access, QpFlags, QpState, QpType};

use super::shared::TransportQp;
use super::{Body, Parts, Wanted};
use crate::core::Core;
use crate::cq::{Cq, stamp_format};
use crate::device::Rights;
use crate::firmware::begin;
use crate::pd::Pd;
use crate::ring::{DEFAULT_USER_INDEX, user_index};
use crate::session::Session;
use crate::srq::Srq;
use crate::uar::register::{NO_REGISTER, StaticRegisters};
use crate::udata;
use crate::umem::Umem;
use crate::xrcd::Xrcd;

/// Bits of the place of the rings in their first page.
const OFFSET_BITS: u32 = 6;

/// A block of a send ring, and the unit of a receive entry, as logarithms.
const LOG_BLOCK: u32 = 6;
/// See [`LOG_BLOCK`].
const LOG_SEGMENT: u32 = 4;

/// Longest receive entry, as a logarithm: what the context can say.
const LOG_ENTRY_MAX: u32 = LOG_SEGMENT + 7;

/// Payload in completions: of 32 and of 64 bytes, at the responder and at the requester. Source: Linux
/// `include/linux/mlx5/device.h`, `MLX5_RES_SCAT_DATA32_CQE` and its neighbours.
mod scatter {
    pub(super) const RESPONDER_32: u32 = 0x1;
    pub(super) const RESPONDER_64: u32 = 0x2;
    pub(super) const REQUESTER_32: u32 = 0x11;
    pub(super) const REQUESTER_64: u32 = 0x22;
}

/// The firmware's number of a kind; `None` for those that are not of a transport.
pub(super) fn service_of(kind: QpType) -> Option<u32> {
    Some(match kind {
        QpType::RC => service::RC,
        QpType::UC => service::UC,
        QpType::UD => service::UD,
        QpType::GSI => service::QP1,
        QpType::XRC_INI | QpType::XRC_TGT => service::XRC,
        _ => return None,
    })
}

impl Session {
    pub(super) fn make_transport(&mut self, core: &Core, wanted: &Wanted<'_>) -> Result<Parts, Errno> {
        let kind = u8::try_from(wanted.kind).map_or(QpType(0), QpType);
        let unknown = if kind == QpType::DRIVER { Errno::EOPNOTSUPP } else { Errno::EINVAL };
        let service = service_of(kind).ok_or(unknown)?;
        let offered = match kind {
            QpType::RC => GeneralCaps::RC,
            QpType::UC => GeneralCaps::UC,
            QpType::UD | QpType::GSI => GeneralCaps::UD,
            _ => GeneralCaps::XRC,
        };
        if !core.caps.has(offered) {
            return Err(Errno::EOPNOTSUPP);
        }
        // A kernel has its own, and gives it to nobody: Linux `drivers/infiniband/core/uverbs_std_types_qp.c`,
        // `UVERBS_METHOD_QP_CREATE`.
        if kind == QpType::GSI && !self.has_management {
            return Err(Errno::EINVAL);
        }
        if let Some(neighbours) = &core.neighbours {
            neighbours.announce();
        }
        let flags = if kind == QpType::UD { QpFlags::BLOCK_MULTICAST_LOOPBACK } else { QpFlags::empty() };
        if !(wanted.flags - flags).is_empty() {
            return Err(Errno::EINVAL);
        }
        if wanted.flags.contains(QpFlags::BLOCK_MULTICAST_LOOPBACK)
            && !core.caps.has(GeneralCaps::BLOCK_LB_MC)
        {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut input: [u8; CreateQpIn::BYTES] = begin(opcode::CREATE_QP, 0, 0);
        let context = CreateQpIn::QPC.of_mut(&mut input);
        QpContext::ST.set(context, service);
        QpContext::PM_STATE.set(context, migration::MIGRATED);
        QpContext::BLOCK_LB_MC.set(context, wanted.flags.contains(QpFlags::BLOCK_MULTICAST_LOOPBACK).into());
        if kind == QpType::XRC_TGT {
            return self.make_receiver(core, wanted, input);
        }
        if wanted.xrcd.is_some() {
            return Err(Errno::EINVAL);
        }
        self.make_with_rings(core, wanted, kind, input)
    }

    /// A receiver of XRC: no rings, no completion queue; both are those of the XRC SRQ that a packet names.
    fn make_receiver(
        &mut self,
        core: &Core,
        wanted: &Wanted<'_>,
        mut input: [u8; CreateQpIn::BYTES],
    ) -> Result<Parts, Errno> {
        let of_others = [wanted.pd, wanted.send_cq, wanted.recv_cq, wanted.table];
        if of_others.iter().any(Option::is_some) {
            return Err(Errno::EINVAL);
        }
        let xrcd = wanted.xrcd.ok_or(Errno::ENOENT)?;
        let domain = Arc::clone(&self.handles.get::<Xrcd>(xrcd)?.domain);
        let own = core.own_numbers()?;
        let context = CreateQpIn::QPC.of_mut(&mut input);
        QpContext::PD.set(context, own.pdn);
        QpContext::RQ_TYPE.set(context, receive::SRQ);
        QpContext::NO_SQ.set(context, 1);
        QpContext::CQN_SND.set(context, own.cqn);
        QpContext::CQN_RCV.set(context, own.cqn);
        QpContext::SRQN_RMPN_XRQN.set(context, own.srqn);
        QpContext::XRCD.set(context, domain.number);
        QpContext::USER_INDEX.set(context, DEFAULT_USER_INDEX);
        let mut output = CreateQpOut::ZERO;
        core.execute(&input, &mut output)?;
        let qpn = CreateQpOut::QPN.get(&output);
        let qp = Arc::new(Mutex::new(TransportQp {
            kind: QpType::XRC_TGT,
            qpn,
            uid: 0,
            state: QpState::RESET,
            port: 0,
            access: Access::empty(),
            serves: 0,
            pdn: own.pdn,
            send_cqn: 0,
            recv_cqn: 0,
            record: 0,
            receive_entries: 0,
            receive_pieces: 0,
            handles: 1,
            _rings: None,
            _record: None,
        }));
        domain.add_receiver(&qp);
        Ok(Parts {
            body: Body::Transport { qp, domain: Some(domain) },
            qpn,
            cap: wanted.cap,
            // Linux makes it as one of the kernel's own, which the driver hears nothing of the program about
            // (`drivers/infiniband/core/uverbs_std_types_qp.c`). The program is told zeros, where Linux leaves them be.
            answer: CreateQpAnswer::default(),
            register: None,
            parents: vec![xrcd],
        })
    }

    fn make_with_rings(
        &mut self,
        core: &Core,
        wanted: &Wanted<'_>,
        kind: QpType,
        mut input: [u8; CreateQpIn::BYTES],
    ) -> Result<Parts, Errno> {
        let least = offset_of!(CreateQp, flags) + 4;
        let driver: CreateQp = udata::strict(wanted.driver, least)?;
        let mut cap = wanted.cap;
        let initiates = kind == QpType::XRC_INI;
        if initiates {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let has_receive = !initiates && wanted.srq.is_none() && cap.max_recv_wr != 0;
        check(core, kind, &driver, cap.max_recv_wr, has_receive)?;
        if !has_receive {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let pd = wanted.pd.ok_or(Errno::ENOENT)?;
        let send_cq = wanted.send_cq.ok_or(Errno::ENOENT)?;
        let recv_cq = if initiates { None } else { Some(wanted.recv_cq.ok_or(Errno::ENOENT)?) };
        let srq = if initiates { None } else { wanted.srq };
        let mut parents = vec![pd, send_cq];
        parents.extend(recv_cq.into_iter().chain(srq));
        let pdn = self.handles.get::<Pd>(pd)?.pdn;
        let send = self.handles.get::<Cq>(send_cq)?;
        let send_cqn = send.cqn;
        let receives = recv_cq.map(|cq| self.handles.get::<Cq>(cq)).transpose()?;
        let recv_cqn = receives.map(|cq| cq.cqn);
        let granted = self.granted()?;
        let uid = if initiates { 0 } else { granted.uid };
        pollux_mlx5_abi::command::start(&mut input, opcode::CREATE_QP, uid, 0);
        let has_index = wanted.driver.len() > offset_of!(CreateQp, uidx);
        let index =
            if has_index { user_index(granted.cqe_version, driver.uidx)? } else { DEFAULT_USER_INDEX };
        let context = CreateQpIn::QPC.of_mut(&mut input);
        QpContext::PD.set(context, pdn);
        QpContext::WQ_SIGNATURE.set(context, u32::from(driver.flags & qp_flag::SIGNATURE != 0));
        QpContext::USER_INDEX.set(context, index);
        let stamps = [Some(send), receives].into_iter().flatten().find(|cq| cq.stamps || cq.stamps_real_time);
        QpContext::TS_FORMAT.set(context, stamp_format(stamps, core.caps.roce(RoceCaps::QP_TS_FORMAT))?);
        QpContext::CQN_SND.set(context, send_cqn);
        if driver.flags & qp_flag::PACKET_BASED_CREDIT_MODE != 0 {
            QpContext::REQ_E2E_CREDIT_MODE.set(context, 1);
        }
        let scatters = driver.flags & qp_flag::SCATTER_CQE != 0
            && core.caps.has(GeneralCaps::SCTR_DATA_CQE)
            && matches!(kind, QpType::RC | QpType::UC);
        if scatters {
            let wide = receives.is_some_and(|cq| cq.cqe_bytes == 128);
            QpContext::CS_RES.set(context, if wide { scatter::RESPONDER_64 } else { scatter::RESPONDER_32 });
            if wanted.signals_all || driver.flags & qp_flag::ALLOW_SCATTER_CQE != 0 {
                let wide = send.cqe_bytes == 128;
                QpContext::CS_REQ
                    .set(context, if wide { scatter::REQUESTER_64 } else { scatter::REQUESTER_32 });
            }
        }
        match (initiates, srq) {
            (true, _) => {
                let own = core.own_numbers()?;
                QpContext::RQ_TYPE.set(context, receive::SRQ);
                QpContext::CQN_RCV.set(context, own.cqn);
                QpContext::XRCD.set(context, own.xrcd);
                QpContext::SRQN_RMPN_XRQN.set(context, own.srqn);
            }
            (false, Some(srq)) => {
                let srq = self.handles.get::<Srq>(srq)?;
                if srq.is_xrc {
                    return Err(Errno::EINVAL);
                }
                QpContext::RQ_TYPE.set(context, receive::SRQ);
                QpContext::SRQN_RMPN_XRQN.set(context, srq.number);
            }
            (false, None) => {
                QpContext::RQ_TYPE.set(context, if has_receive { receive::OWN } else { receive::NONE });
            }
        }
        if let Some(cqn) = recv_cqn {
            QpContext::CQN_RCV.set(context, cqn);
        }
        match driver.sq_wqe_count {
            0 => QpContext::NO_SQ.set(context, 1),
            blocks => QpContext::LOG_SQ_SIZE.set(context, blocks.ilog2()),
        }
        let receive_bytes =
            if has_receive { u64::from(driver.rq_wqe_count) << driver.rq_wqe_shift } else { 0 };
        let bytes = receive_bytes + (u64::from(driver.sq_wqe_count) << LOG_BLOCK);
        let memory = core.memory.as_ref();
        let rings = if bytes == 0 || driver.buf_addr == 0 {
            None
        } else {
            let rings = Umem::pin(memory, driver.buf_addr, bytes, Rights::Read)?;
            QpContext::PAGE_OFFSET.set(context, rings.quantized_offset(OFFSET_BITS)?);
            Some(rings)
        };
        if has_receive {
            let log = driver.rq_wqe_count.ilog2();
            if !QpContext::LOG_RQ_SIZE.fits(log) {
                return Err(Errno::EINVAL);
            }
            QpContext::LOG_RQ_STRIDE.set(context, driver.rq_wqe_shift - LOG_SEGMENT);
            QpContext::LOG_RQ_SIZE.set(context, log);
        }
        let record = self.records.pin(memory, driver.db_addr)?;
        QpContext::DBR_ADDR.set(context, record.dma);
        let (uar, register) = self.register_of(&driver)?;
        QpContext::UAR_PAGE.set(CreateQpIn::QPC.of_mut(&mut input), uar & 0xff_ffff);
        CreateQpIn::ECE.set(&mut input, ece(core, driver.ece_options));
        let mut command = input.to_vec();
        if let Some(rings) = &rings {
            command.extend_from_slice(&rings.pages(12, 0));
        }
        let mut output = CreateQpOut::ZERO;
        // A port has one.
        if kind == QpType::GSI && core.management.swap(true, Ordering::Relaxed) {
            self.give_register_back(register);
            return Err(Errno::EBUSY);
        }
        if let Err(errno) = core.execute(&command, &mut output) {
            if kind == QpType::GSI {
                core.management.store(false, Ordering::Relaxed);
            }
            self.give_register_back(register);
            return Err(errno);
        }
        let qpn = CreateQpOut::QPN.get(&output);
        if kind == QpType::GSI {
            self.management_domain = Some(pd);
        }
        let qp = TransportQp {
            kind,
            qpn,
            uid,
            state: QpState::RESET,
            port: 0,
            access: Access::empty(),
            serves: 0,
            pdn,
            send_cqn,
            recv_cqn: recv_cqn.unwrap_or(0),
            record: record.dma,
            receive_entries: if has_receive { driver.rq_wqe_count } else { 0 },
            receive_pieces: if has_receive { 1 << (driver.rq_wqe_shift - LOG_SEGMENT) } else { 0 },
            handles: 1,
            _rings: rings,
            _record: Some(record),
        };
        let answer = CreateQpAnswer {
            bfreg_index: register.map_or(NO_REGISTER, StaticRegisters::told),
            ece_options: ece(core, CreateQpOut::ECE.get(&output)),
            ..CreateQpAnswer::default()
        };
        let body = Body::Transport { qp: Arc::new(Mutex::new(qp)), domain: None };
        Ok(Parts { body, qpn, cap, answer, register, parents })
    }
}

/// Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `process_vendor_flags`, `set_rq_size`, `set_user_buf_size`.
fn check(
    core: &Core,
    kind: QpType,
    driver: &CreateQp,
    max_recv_wr: u32,
    has_receive: bool,
) -> Result<(), Errno> {
    let mut known = qp_flag::SIGNATURE
        | qp_flag::SCATTER_CQE
        | qp_flag::ALLOW_SCATTER_CQE
        | qp_flag::BFREG_INDEX
        | qp_flag::UAR_PAGE_INDEX;
    if kind == QpType::RC && core.caps.has(GeneralCaps::QP_PACKET_BASED) {
        known |= qp_flag::PACKET_BASED_CREDIT_MODE;
    }
    if driver.flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let most = core.caps.count(GeneralCaps::LOG_MAX_QP_SZ);
    let fits = |log: u32, field: pollux_mlx5_abi::field::Field<{ QpContext::BYTES }>| field.fits(log);
    let blocks = driver.sq_wqe_count;
    if max_recv_wr > most || blocks > most || blocks != 0 && !blocks.is_power_of_two() {
        return Err(Errno::EINVAL);
    }
    if blocks != 0 && !fits(blocks.ilog2(), QpContext::LOG_SQ_SIZE) {
        return Err(Errno::EINVAL);
    }
    if !has_receive {
        // A ring that nobody asked for.
        return if driver.rq_wqe_count == 0 { Ok(()) } else { Err(Errno::EINVAL) };
    }
    // Any number of entries, of which the device has the power of two that is in it.
    let is_ring = driver.rq_wqe_count != 0 && (LOG_SEGMENT..=LOG_ENTRY_MAX).contains(&driver.rq_wqe_shift);
    if is_ring { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Options of a connection, to the firmware or from it: none where it has nothing of them.
fn ece(core: &Core, options: u32) -> u32 {
    if core.caps.has(GeneralCaps::ECE_SUPPORT) { options } else { 0 }
}
