//! Queue pairs: those of a transport, those of raw packets, and those that spread packets over a table. Source: Linux
//! `drivers/infiniband/core/uverbs_cmd.c` and `uverbs_std_types_qp.c`, `drivers/infiniband/hw/mlx5/qp.c`.

mod group;
mod modify;
pub(crate) mod path;
mod query;
mod raw;
mod rss;
mod rules;
pub(crate) mod shared;
mod transition;
mod transport;

use std::mem::offset_of;
use std::sync::{Arc, Mutex};

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::eqe::queue_kind;
use pollux_mlx5_abi::kernel::queue_pair::CreateQpAnswer;
use pollux_uverbs::abi::flags::{QpFlags, QpState, QpType};
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};
use pollux_uverbs::abi::queue_pair::{
    CreateQp, CreateQpResp, DestroyQp, DestroyQpResp, ExCreateQp, ExCreateQpResp, OpenQp, QpCap,
};
use pollux_uverbs::{Call, Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::event::file::{Count, EventFile};
use crate::event::{QueueTarget, reported};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;
use crate::udata;
use crate::xrcd::Xrcd;
use crate::xrcd::domain::XrcDomain;
use group::Group;
use raw::RawQp;
use rss::RssQp;
use shared::{TransportQp, locked};

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) body: Body,
    pub(crate) uid: u16,
    /// Of a raw one; the others know it themselves.
    state: QpState,
    cap: QpCap,
    signals_all: bool,
    file: Option<Arc<EventFile>>,
    events: Count,
    /// Register of the static kind that it uses.
    register: Option<usize>,
    /// Multicast groups that it hears.
    groups: Vec<Group>,
}

/// What it is on the device.
#[derive(Debug)]
pub(crate) enum Body {
    Raw(Box<RawQp>),
    Rss(RssQp),
    Transport {
        qp: Arc<Mutex<TransportQp>>,
        /// Where others may open it.
        domain: Option<Arc<XrcDomain>>,
    },
}

/// What is asked for.
#[derive(Debug)]
struct Wanted<'a> {
    kind: u64,
    pd: Option<u32>,
    xrcd: Option<u32>,
    send_cq: Option<u32>,
    recv_cq: Option<u32>,
    srq: Option<u32>,
    table: Option<u32>,
    cap: QpCap,
    signals_all: bool,
    flags: QpFlags,
    source_qpn: bool,
    user_handle: u64,
    file: Option<Arc<EventFile>>,
    driver: &'a [u8],
    driver_room: usize,
}

/// What was made.
#[derive(Debug)]
struct Made {
    handle: u32,
    qpn: u32,
    cap: QpCap,
    answer: CreateQpAnswer,
}

/// Its parts, before it has a handle.
#[derive(Debug)]
struct Parts {
    body: Body,
    qpn: u32,
    cap: QpCap,
    answer: CreateQpAnswer,
    register: Option<usize>,
    parents: Vec<u32>,
}

impl Qp {
    /// Where a flow rule leads that leads here.
    pub(crate) fn tirn(&self) -> Option<u32> {
        match &self.body {
            Body::Raw(raw) => raw.tirn,
            Body::Rss(rss) => Some(rss.tirn),
            Body::Transport { .. } => None,
        }
    }

    /// The queues of the device whose events are this one's.
    fn event_sources(&self) -> Vec<(u8, u32)> {
        match &self.body {
            Body::Raw(raw) => [(queue_kind::SQ, raw.sqn), (queue_kind::RQ, raw.rqn)]
                .into_iter()
                .filter_map(|(kind, number)| number.map(|number| (kind, number)))
                .collect(),
            Body::Rss(_) => Vec::new(),
            Body::Transport { qp, .. } => vec![(queue_kind::QP, locked(qp).qpn)],
        }
    }
}

impl Object for Qp {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Qp
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        self.leave_groups(core)?;
        match &mut self.body {
            Body::Raw(raw) => {
                raw.end(core, self.uid, self.state)?;
                self.state = QpState::RESET;
            }
            Body::Rss(rss) => rss.end(core)?,
            Body::Transport { qp, domain } => {
                let mut inside = locked(qp);
                inside.end(core)?;
                let is_last = inside.handles == 0;
                drop(inside);
                if let Some(domain) = domain.as_ref().filter(|_| is_last) {
                    domain.remove_receiver(qp);
                }
            }
        }
        for (kind, number) in self.event_sources() {
            core.events.remove_queue(kind, number, &self.events);
        }
        Ok(())
    }

    fn parts(&self) -> Vec<(u16, u32)> {
        match &self.body {
            Body::Raw(raw) => [
                (opcode::CREATE_RQ, raw.rqn),
                (opcode::CREATE_SQ, raw.sqn),
                (opcode::CREATE_TIR, raw.tirn),
                (opcode::CREATE_TIS, raw.tisn),
            ]
            .into_iter()
            .filter_map(|(code, number)| number.map(|number| (code, number)))
            .collect(),
            Body::Rss(rss) => vec![(opcode::CREATE_TIR, rss.tirn)],
            Body::Transport { qp, .. } => vec![(opcode::CREATE_QP, locked(qp).qpn)],
        }
    }
}

impl Session {
    /// `QP/CREATE`.
    pub(crate) fn create_qp(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::qp::create as a;
        let optional = |id| call.find(id).map(|_| call.handle(id)).transpose();
        let flags = if call.find(a::FLAGS).is_some() { call.number(a::FLAGS)? } else { 0 };
        let flags = QpFlags::from_bits_retain(u32::try_from(flags).map_err(|_| Errno::EINVAL)?);
        let wanted = Wanted {
            kind: call.number(a::TYPE)?,
            pd: optional(a::PD_HANDLE)?,
            xrcd: optional(a::XRCD_HANDLE)?,
            send_cq: optional(a::SEND_CQ_HANDLE)?,
            recv_cq: optional(a::RECV_CQ_HANDLE)?,
            srq: optional(a::SRQ_HANDLE)?,
            table: optional(a::IND_TABLE_HANDLE)?,
            cap: call.input_as(a::CAP)?,
            signals_all: flags.contains(QpFlags::SQ_SIG_ALL),
            flags: flags - QpFlags::SQ_SIG_ALL,
            source_qpn: call.find(a::SOURCE_QPN).is_some(),
            user_handle: call.number(a::USER_HANDLE)?,
            file: self.event_file(call, a::EVENT_FD)?,
            driver: call.input(UHW_IN).unwrap_or_default(),
            driver_room: call.find(UHW_OUT).map_or(0, |attribute| match &attribute.value {
                pollux_uverbs::Value::Out(output) => output.room(),
                _ => 0,
            }),
        };
        let made = self.make_qp(&wanted)?;
        call.create(a::HANDLE, made.handle)?;
        call.reply(a::RESP_CAP, &made.cap)?;
        call.reply(a::RESP_QP_NUM, &made.qpn)?;
        udata::answer(call.output(UHW_OUT), made.answer.as_bytes());
        Ok(())
    }

    /// `CREATE_QP`.
    pub(crate) fn write_create_qp(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: CreateQp = command.request()?;
        let extended = ExCreateQp {
            user_handle: request.user_handle,
            pd_handle: request.pd_handle,
            send_cq_handle: request.send_cq_handle,
            recv_cq_handle: request.recv_cq_handle,
            srq_handle: request.srq_handle,
            max_send_wr: request.max_send_wr,
            max_recv_wr: request.max_recv_wr,
            max_send_sge: request.max_send_sge,
            max_recv_sge: request.max_recv_sge,
            max_inline_data: request.max_inline_data,
            sq_sig_all: request.sq_sig_all,
            qp_type: request.qp_type,
            is_srq: request.is_srq,
            ..ExCreateQp::default()
        };
        let made = self.make_written_qp(&extended, command)?;
        command.core_out.write(told(&made).as_bytes());
        udata::answer(Some(&mut command.driver_out), made.answer.as_bytes());
        Ok(())
    }

    /// `EX_CREATE_QP`.
    pub(crate) fn ex_create_qp(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExCreateQp = udata::lenient(command.core_in);
        if request.comp_mask & !1 != 0 || request.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        let made = self.make_written_qp(&request, command)?;
        let answer = ExCreateQpResp { base: told(&made), ..ExCreateQpResp::default() };
        let offset = offset_of!(ExCreateQpResp, response_length);
        udata::answer_counted(&mut command.core_out, answer.as_bytes(), offset);
        udata::answer(Some(&mut command.driver_out), made.answer.as_bytes());
        Ok(())
    }

    fn make_written_qp(&mut self, request: &ExCreateQp, command: &WriteCall<'_>) -> Result<Made, Errno> {
        let table = (request.comp_mask & 1 != 0).then_some(request.rwq_ind_tbl_handle);
        if table.is_some() && (request.max_recv_wr != 0 || request.max_recv_sge != 0 || request.is_srq != 0) {
            return Err(Errno::EINVAL);
        }
        let has_send = table.is_none() || request.max_send_wr != 0;
        // A receiver of XRC has its domain in place of a protection domain, and no completion queues.
        let is_receiver = QpType(request.qp_type) == QpType::XRC_TGT;
        if is_receiver {
            self.handles.get::<Xrcd>(request.pd_handle).map_err(|_| Errno::EINVAL)?;
        }
        self.make_qp(&Wanted {
            kind: request.qp_type.into(),
            pd: (!is_receiver).then_some(request.pd_handle),
            xrcd: is_receiver.then_some(request.pd_handle),
            send_cq: (has_send && !is_receiver).then_some(request.send_cq_handle),
            recv_cq: (table.is_none() && !is_receiver).then_some(request.recv_cq_handle),
            srq: (request.is_srq != 0).then_some(request.srq_handle),
            table,
            cap: QpCap {
                max_send_wr: request.max_send_wr,
                max_recv_wr: request.max_recv_wr,
                max_send_sge: request.max_send_sge,
                max_recv_sge: request.max_recv_sge,
                max_inline_data: request.max_inline_data,
            },
            signals_all: request.sq_sig_all != 0,
            flags: QpFlags::from_bits_retain(request.create_flags) - QpFlags::SOURCE_QPN,
            source_qpn: request.create_flags & QpFlags::SOURCE_QPN.bits() != 0,
            user_handle: request.user_handle,
            file: self.default_file.clone(),
            driver: command.driver_in,
            driver_room: command.driver_out.room(),
        })
    }

    fn make_qp(&mut self, wanted: &Wanted<'_>) -> Result<Made, Errno> {
        let core = Arc::clone(&self.core);
        if wanted.kind == u64::from(QpType::RAW_PACKET.0) && core.profile.no_net_raw {
            return Err(Errno::EPERM);
        }
        let known = QpFlags::BLOCK_MULTICAST_LOOPBACK
            | QpFlags::SCATTER_FCS
            | QpFlags::CVLAN_STRIPPING
            | QpFlags::PCI_WRITE_END_PADDING;
        if !(wanted.flags - known).is_empty() {
            return Err(Errno::EINVAL);
        }
        if wanted.source_qpn {
            return Err(Errno::EOPNOTSUPP);
        }
        let parts = if wanted.kind == u64::from(QpType::RAW_PACKET.0) {
            // Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `check_qp_type`: raw packets need completions of version 1.
            if wanted.srq.is_some() {
                return Err(Errno::EOPNOTSUPP);
            }
            if self.granted()?.cqe_version == 0 {
                return Err(Errno::EINVAL);
            }
            match wanted.table {
                Some(table) => self.make_rss(&core, wanted, table)?,
                None => self.make_raw(&core, wanted)?,
            }
        } else if wanted.table.is_some() {
            return Err(Errno::EOPNOTSUPP);
        } else {
            self.make_transport(&core, wanted)?
        };
        Ok(self.add_qp(wanted, parts))
    }

    /// Gives a queue pair that is on the device a handle, and has its events told.
    fn add_qp(&mut self, wanted: &Wanted<'_>, parts: Parts) -> Made {
        let Parts { body, qpn, cap, answer, register, parents } = parts;
        let qp = Qp {
            body,
            uid: self.uid(),
            state: QpState::RESET,
            cap,
            signals_all: wanted.signals_all,
            file: wanted.file.clone(),
            events: Count::default(),
            register,
            groups: Vec::new(),
        };
        for (kind, number) in qp.event_sources() {
            self.core.events.add_queue(
                kind,
                number,
                QueueTarget {
                    file: wanted.file.clone(),
                    user_handle: wanted.user_handle,
                    events: Arc::clone(&qp.events),
                    is_wq: false,
                },
            );
        }
        Made { handle: self.handles.add(qp, &parents), qpn, cap, answer }
    }

    /// `OPEN_QP`: one more handle of a receiver of XRC. Source: Linux `drivers/infiniband/core/verbs.c`, `ib_open_qp`.
    pub(crate) fn open_qp(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: OpenQp = command.request()?;
        if QpType(request.qp_type) != QpType::XRC_TGT {
            return Err(Errno::EINVAL);
        }
        // Of domains the older form says so.
        let xrcd = self.handles.get::<Xrcd>(request.pd_handle).map_err(|_| Errno::EINVAL)?;
        let domain = Arc::clone(&xrcd.domain);
        let qp = domain.receiver(request.qpn).ok_or(Errno::EINVAL)?;
        locked(&qp).handles += 1;
        let wanted = Wanted {
            kind: request.qp_type.into(),
            pd: None,
            xrcd: Some(request.pd_handle),
            send_cq: None,
            recv_cq: None,
            srq: None,
            table: None,
            cap: QpCap::default(),
            signals_all: false,
            flags: QpFlags::empty(),
            source_qpn: false,
            user_handle: request.user_handle,
            file: self.default_file.clone(),
            driver: &[],
            driver_room: 0,
        };
        let parts = Parts {
            body: Body::Transport { qp, domain: Some(domain) },
            qpn: request.qpn,
            cap: QpCap::default(),
            answer: CreateQpAnswer::default(),
            register: None,
            parents: vec![request.pd_handle],
        };
        let made = self.add_qp(&wanted, parts);
        command.core_out.write(told(&made).as_bytes());
        Ok(())
    }

    /// `QP/DESTROY`.
    pub(crate) fn destroy_qp(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let answer = self.end_qp(call.handle(id::qp::destroy::HANDLE)?)?;
        call.reply(id::qp::destroy::RESP, &answer)
    }

    /// `DESTROY_QP`.
    pub(crate) fn write_destroy_qp(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: DestroyQp = command.request()?;
        let answer = self.end_qp(request.qp_handle)?;
        command.core_out.write(answer.as_bytes());
        Ok(())
    }

    fn end_qp(&mut self, handle: u32) -> Result<DestroyQpResp, Errno> {
        if !self.handles.get::<Qp>(handle)?.groups.is_empty() {
            return Err(Errno::EBUSY);
        }
        let qp = self.destroy::<Qp>(handle)?;
        if let (Some(register), Some(granted)) = (qp.register, &mut self.granted)
            && let Some(registers) = &mut granted.registers
        {
            registers.give_back(register);
        }
        Ok(DestroyQpResp { events_reported: reported(qp.file.as_ref(), &qp.events) })
    }
}

fn told(made: &Made) -> CreateQpResp {
    CreateQpResp {
        qp_handle: made.handle,
        qpn: made.qpn,
        max_send_wr: made.cap.max_send_wr,
        max_recv_wr: made.cap.max_recv_wr,
        max_send_sge: made.cap.max_send_sge,
        max_recv_sge: made.cap.max_recv_sge,
        max_inline_data: made.cap.max_inline_data,
        reserved: 0,
    }
}
