//! Queue pairs: plain ones, and those that spread what comes over an indirection table.

use zerocopy::IntoBytes;

use crate::abi::flags::{QpFlags, QpMask, QpType};
use crate::abi::memory::AttachMcast;
use crate::abi::queue_pair::{
    CreateQp, CreateQpResp, DestroyQp, DestroyQpResp, ExCreateQp, ExCreateQpResp, ExModifyQp, ExModifyQpResp,
    ModifyQp, OpenQp, PostSend, PostSendResp, QpCap, QueryQp, QueryQpResp,
};
use crate::abi::{id, write};
use crate::call::Call;
use crate::context::filled;
use crate::handle::{CqHandle, PdHandle, QpHandle, RwqIndTableHandle, SrqHandle, XrcdHandle};
use crate::{Context, Driver, UverbsError};

/// What queue pair to make.
#[derive(Clone, Copy, Debug)]
pub struct QpRequest {
    /// Its kind.
    pub kind: QpType,
    /// Where it belongs.
    pub home: QpHome,
    /// Completion queue of the send side.
    pub send_cq: Option<CqHandle>,
    /// Completion queue of the receive side.
    pub recv_cq: Option<CqHandle>,
    /// Shared receive queue.
    pub srq: Option<SrqHandle>,
    /// Work queues that take what it receives, instead of a receive side of its own.
    pub ind_table: Option<RwqIndTableHandle>,
    /// Sizes.
    pub cap: QpCap,
    /// Whether each send completes.
    pub sq_sig_all: bool,
    /// Options; [`QpFlags::SQ_SIG_ALL`] and [`QpFlags::SOURCE_QPN`] are said by the fields for them.
    pub flags: QpFlags,
    /// Number to send under.
    pub source_qpn: Option<u32>,
    /// What events about it carry.
    pub user_handle: u64,
}

/// What a queue pair belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpHome {
    /// A protection domain.
    Pd(PdHandle),
    /// An XRC domain, for its receivers.
    Xrcd(XrcdHandle),
}

impl QpRequest {
    /// A queue pair of a kind, with nothing but its home.
    #[must_use]
    pub fn new(kind: QpType, home: QpHome) -> Self {
        Self {
            kind,
            home,
            send_cq: None,
            recv_cq: None,
            srq: None,
            ind_table: None,
            cap: QpCap::default(),
            sq_sig_all: false,
            flags: QpFlags::empty(),
            source_qpn: None,
            user_handle: 0,
        }
    }
}

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qp {
    /// Its handle.
    pub handle: QpHandle,
    /// Its number on the wire.
    pub qpn: u32,
    /// Sizes that it has.
    pub cap: QpCap,
}

impl Context {
    /// Makes a queue pair, in state RESET.
    ///
    /// # Errors
    /// What the kernel says: `EPERM` for a raw one without CAP_NET_RAW, `EOPNOTSUPP` for a kind that the device lacks.
    pub fn create_qp(&self, request: &QpRequest, mut driver: Driver<'_>) -> Result<Qp, UverbsError> {
        use id::qp::create as a;
        let mut flags = request.flags - QpFlags::SOURCE_QPN;
        flags.set(QpFlags::SQ_SIG_ALL, request.sq_sig_all);
        let mut call = Call::new(id::qp::OBJECT, a::METHOD);
        call.new_object(a::HANDLE);
        match request.home {
            QpHome::Pd(pd) => call.object(a::PD_HANDLE, pd.0),
            QpHome::Xrcd(xrcd) => call.object(a::XRCD_HANDLE, xrcd.0),
        };
        let objects = [
            (a::SEND_CQ_HANDLE, request.send_cq.map(|cq| cq.0)),
            (a::RECV_CQ_HANDLE, request.recv_cq.map(|cq| cq.0)),
            (a::SRQ_HANDLE, request.srq.map(|srq| srq.0)),
            (a::IND_TABLE_HANDLE, request.ind_table.map(|table| table.0)),
        ];
        for (id, handle) in objects {
            if let Some(handle) = handle {
                call.object(id, handle);
            }
        }
        call.u64(a::TYPE, u64::from(request.kind.0))
            .u64(a::USER_HANDLE, request.user_handle)
            .bytes(a::CAP, request.cap.as_bytes())
            .fd(a::EVENT_FD, self.event_fd());
        if !flags.is_empty() {
            call.u32(a::FLAGS, flags.bits());
        }
        if let Some(qpn) = request.source_qpn {
            call.u32(a::SOURCE_QPN, qpn);
        }
        call.answer(a::RESP_CAP, size_of::<QpCap>()).answer(a::RESP_QP_NUM, 4);
        if self.native(&mut call, driver.reborrow())? {
            return Ok(Qp {
                handle: QpHandle(call.created(a::HANDLE)?),
                qpn: call.get(a::RESP_QP_NUM)?,
                cap: call.get(a::RESP_CAP)?,
            });
        }
        drop(call);
        self.create_qp_by_write(request, driver)
    }

    fn create_qp_by_write(&self, request: &QpRequest, driver: Driver<'_>) -> Result<Qp, UverbsError> {
        let pd_handle = match request.home {
            QpHome::Pd(pd) => pd.0,
            QpHome::Xrcd(xrcd) => xrcd.0,
        };
        let mut flags = request.flags - QpFlags::SQ_SIG_ALL;
        flags.set(QpFlags::SOURCE_QPN, request.source_qpn.is_some());
        let base = CreateQp {
            response: 0,
            user_handle: request.user_handle,
            pd_handle,
            send_cq_handle: request.send_cq.map_or(0, |cq| cq.0),
            recv_cq_handle: request.recv_cq.map_or(0, |cq| cq.0),
            srq_handle: request.srq.map_or(0, |srq| srq.0),
            max_send_wr: request.cap.max_send_wr,
            max_recv_wr: request.cap.max_recv_wr,
            max_send_sge: request.cap.max_send_sge,
            max_recv_sge: request.cap.max_recv_sge,
            max_inline_data: request.cap.max_inline_data,
            sq_sig_all: u8::from(request.sq_sig_all),
            qp_type: request.kind.0,
            is_srq: u8::from(request.srq.is_some()),
            reserved: 0,
        };
        let answer = if flags.is_empty() && request.ind_table.is_none() {
            self.write::<_, CreateQpResp>(write::CREATE_QP, &base, driver)?
        } else {
            let extended = ExCreateQp {
                user_handle: base.user_handle,
                pd_handle,
                send_cq_handle: base.send_cq_handle,
                recv_cq_handle: base.recv_cq_handle,
                srq_handle: base.srq_handle,
                max_send_wr: base.max_send_wr,
                max_recv_wr: base.max_recv_wr,
                max_send_sge: base.max_send_sge,
                max_recv_sge: base.max_recv_sge,
                max_inline_data: base.max_inline_data,
                sq_sig_all: base.sq_sig_all,
                qp_type: base.qp_type,
                is_srq: base.is_srq,
                reserved: 0,
                comp_mask: u32::from(request.ind_table.is_some()),
                create_flags: flags.bits(),
                rwq_ind_tbl_handle: request.ind_table.map_or(0, |table| table.0),
                source_qpn: request.source_qpn.unwrap_or(0),
            };
            let answer: ExCreateQpResp = self.write(write::EX_CREATE_QP, &extended, driver)?;
            filled(write::EX_CREATE_QP, answer.response_length, size_of::<CreateQpResp>())?;
            answer.base
        };
        Ok(made(&answer))
    }

    /// Opens a queue pair that another process made in an XRC domain.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open_qp(
        &self,
        xrcd: XrcdHandle,
        qpn: u32,
        kind: QpType,
        user_handle: u64,
        driver: Driver<'_>,
    ) -> Result<Qp, UverbsError> {
        let request =
            OpenQp { response: 0, user_handle, pd_handle: xrcd.0, qpn, qp_type: kind.0, ..OpenQp::default() };
        self.write(write::OPEN_QP, &request, driver).map(|answer| made(&answer))
    }

    /// Changes a queue pair: the fields that `mask` names, `qp_handle` and `attr_mask` being filled in here.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a state that does not follow, or a mask that does not belong to the step.
    pub fn modify_qp(
        &self,
        qp: QpHandle,
        mask: QpMask,
        values: &ModifyQp,
        driver: Driver<'_>,
    ) -> Result<(), UverbsError> {
        let mask = mask - QpMask::RATE_LIMIT;
        let request = ModifyQp { qp_handle: qp.0, attr_mask: mask.bits(), ..*values };
        self.write_only(write::MODIFY_QP, &request, driver)
    }

    /// Changes a queue pair by the call that every kernel has; if a rate is given, by the extended one, which has a field for it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn change_qp(
        &self,
        qp: QpHandle,
        mask: QpMask,
        values: &ModifyQp,
        rate_limit: Option<u32>,
    ) -> Result<(), UverbsError> {
        match rate_limit {
            Some(_) => self.modify_qp_extended(qp, mask, values, rate_limit, Driver::none()),
            None => self.modify_qp(qp, mask, values, Driver::none()),
        }
    }

    /// Changes a queue pair, its rate (in kbit/s) or driver's values that want an answer among it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn modify_qp_extended(
        &self,
        qp: QpHandle,
        mask: QpMask,
        values: &ModifyQp,
        rate_limit: Option<u32>,
        driver: Driver<'_>,
    ) -> Result<(), UverbsError> {
        let mut mask = mask;
        mask.set(QpMask::RATE_LIMIT, rate_limit.is_some());
        let base = ModifyQp { qp_handle: qp.0, attr_mask: mask.bits(), ..*values };
        let request = ExModifyQp { base, rate_limit: rate_limit.unwrap_or(0), reserved: 0 };
        self.write::<_, ExModifyQpResp>(write::EX_MODIFY_QP, &request, driver).map(|_| ())
    }

    /// Tells the kernel that requests stand in a queue pair's ring that it shares with it, for devices whose doorbell is a call.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ring_qp(&self, qp: QpHandle) -> Result<(), UverbsError> {
        self.ring(qp.0).unwrap_or_else(|| {
            let answer: Result<PostSendResp, _> =
                self.write(write::POST_SEND, &PostSend::bell(qp.0), Driver::none());
            answer.map(drop)
        })
    }

    /// Asks for a queue pair's values.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn query_qp(&self, qp: QpHandle, mask: QpMask) -> Result<QueryQpResp, UverbsError> {
        let request = QueryQp { response: 0, qp_handle: qp.0, attr_mask: mask.bits() };
        self.write(write::QUERY_QP, &request, Driver::none())
    }

    /// Attaches a queue pair to a multicast group.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attach_mcast(&self, qp: QpHandle, gid: [u8; 16], mlid: u16) -> Result<(), UverbsError> {
        let request = AttachMcast { gid, qp_handle: qp.0, mlid, reserved: 0 };
        self.write_only(write::ATTACH_MCAST, &request, Driver::none())
    }

    /// Undoes [`attach_mcast`](Self::attach_mcast).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn detach_mcast(&self, qp: QpHandle, gid: [u8; 16], mlid: u16) -> Result<(), UverbsError> {
        let request = AttachMcast { gid, qp_handle: qp.0, mlid, reserved: 0 };
        self.write_only(write::DETACH_MCAST, &request, Driver::none())
    }

    /// Destroys a queue pair. The answer tells how many of its events were read.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while a rule or a multicast group leads to it.
    pub fn destroy_qp(&self, qp: QpHandle) -> Result<DestroyQpResp, UverbsError> {
        let command = (write::DESTROY_QP, DestroyQp { response: 0, qp_handle: qp.0, reserved: 0 });
        self.destroy_counted((id::qp::OBJECT, id::qp::destroy::METHOD), qp.0, command)
    }
}

fn made(answer: &CreateQpResp) -> Qp {
    Qp {
        handle: QpHandle(answer.qp_handle),
        qpn: answer.qpn,
        cap: QpCap {
            max_send_wr: answer.max_send_wr,
            max_recv_wr: answer.max_recv_wr,
            max_send_sge: answer.max_send_sge,
            max_recv_sge: answer.max_recv_sge,
            max_inline_data: answer.max_inline_data,
        },
    }
}
