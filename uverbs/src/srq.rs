//! Shared receive queues: basic, XRC, and with tag matching.

use crate::abi::flags::SrqType;
use crate::abi::queue::{
    CreateSrq, CreateSrqResp, CreateXsrq, DestroySrq, DestroySrqResp, ModifySrq, QuerySrq, QuerySrqResp,
};
use crate::abi::{id, write};
use crate::call::Call;
use crate::handle::{CqHandle, PdHandle, SrqHandle, XrcdHandle};
use crate::{Context, Driver, UverbsError};

/// What shared receive queue to make.
#[derive(Clone, Copy, Debug)]
pub struct SrqRequest {
    /// Protection domain.
    pub pd: PdHandle,
    /// Its kind, with what belongs to it.
    pub kind: SrqKind,
    /// Work requests, at least.
    pub max_wr: u32,
    /// Pieces of one.
    pub max_sge: u32,
    /// Event below this many; 0 for none.
    pub limit: u32,
    /// What events about it carry.
    pub user_handle: u64,
}

/// Kind of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrqKind {
    /// For queue pairs of the same context.
    Basic,
    /// For XRC.
    Xrc {
        /// The domain.
        xrcd: XrcdHandle,
        /// Where it completes.
        cq: CqHandle,
    },
    /// With tag matching.
    TagMatching {
        /// Where it completes.
        cq: CqHandle,
        /// Tags of its list.
        max_tags: u32,
    },
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Srq {
    /// Its handle.
    pub handle: SrqHandle,
    /// Its number; of XRC ones alone.
    pub srqn: Option<u32>,
    /// Work requests that it has room for.
    pub max_wr: u32,
    /// Pieces of one.
    pub max_sge: u32,
}

impl Context {
    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create_srq(&self, request: &SrqRequest, mut driver: Driver<'_>) -> Result<Srq, UverbsError> {
        use id::srq::create as a;
        let (kind, xrcd, cq, tags) = match request.kind {
            SrqKind::Basic => (SrqType::BASIC, None, None, None),
            SrqKind::Xrc { xrcd, cq } => (SrqType::XRC, Some(xrcd), Some(cq), None),
            SrqKind::TagMatching { cq, max_tags } => (SrqType::TM, None, Some(cq), Some(max_tags)),
        };
        let mut call = Call::new(id::srq::OBJECT, a::METHOD);
        call.new_object(a::HANDLE)
            .u64(a::TYPE, u64::from(kind.0))
            .u64(a::USER_HANDLE, request.user_handle)
            .object(a::PD_HANDLE, request.pd.0)
            .u32(a::MAX_WR, request.max_wr)
            .u32(a::MAX_SGE, request.max_sge)
            .u32(a::LIMIT, request.limit)
            .fd(a::EVENT_FD, self.event_fd())
            .answer(a::RESP_MAX_WR, 4)
            .answer(a::RESP_MAX_SGE, 4);
        if let Some(xrcd) = xrcd {
            call.object(a::XRCD_HANDLE, xrcd.0).answer(a::RESP_SRQ_NUM, 4);
        }
        if let Some(cq) = cq {
            call.object(a::CQ_HANDLE, cq.0);
        }
        if let Some(tags) = tags {
            call.u32(a::MAX_NUM_TAGS, tags);
        }
        if self.native(&mut call, driver.reborrow())? {
            return Ok(Srq {
                handle: SrqHandle(call.created(a::HANDLE)?),
                srqn: xrcd.map(|_| call.get(a::RESP_SRQ_NUM)).transpose()?,
                max_wr: call.get(a::RESP_MAX_WR)?,
                max_sge: call.get(a::RESP_MAX_SGE)?,
            });
        }
        drop(call);
        let answer: CreateSrqResp = if kind == SrqType::BASIC {
            let request = CreateSrq {
                response: 0,
                user_handle: request.user_handle,
                pd_handle: request.pd.0,
                max_wr: request.max_wr,
                max_sge: request.max_sge,
                srq_limit: request.limit,
            };
            self.write(write::CREATE_SRQ, &request, driver)?
        } else {
            let request = CreateXsrq {
                response: 0,
                user_handle: request.user_handle,
                srq_type: kind.0,
                pd_handle: request.pd.0,
                max_wr: request.max_wr,
                max_sge: request.max_sge,
                srq_limit: request.limit,
                max_num_tags: tags.unwrap_or(0),
                xrcd_handle: xrcd.map_or(0, |xrcd| xrcd.0),
                cq_handle: cq.map_or(0, |cq| cq.0),
            };
            self.write(write::CREATE_XSRQ, &request, driver)?
        };
        Ok(Srq {
            handle: SrqHandle(answer.srq_handle),
            srqn: xrcd.map(|_| answer.srqn),
            max_wr: answer.max_wr,
            max_sge: answer.max_sge,
        })
    }

    /// Changes a shared receive queue: its size, or the count below which an event comes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn modify_srq(
        &self,
        srq: SrqHandle,
        max_wr: Option<u32>,
        limit: Option<u32>,
        driver: Driver<'_>,
    ) -> Result<(), UverbsError> {
        let request = ModifySrq {
            srq_handle: srq.0,
            attr_mask: u32::from(max_wr.is_some()) | u32::from(limit.is_some()) << 1,
            max_wr: max_wr.unwrap_or(0),
            srq_limit: limit.unwrap_or(0),
        };
        self.write_only(write::MODIFY_SRQ, &request, driver)
    }

    /// Asks for a shared receive queue's values.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn query_srq(&self, srq: SrqHandle) -> Result<QuerySrqResp, UverbsError> {
        let request = QuerySrq { response: 0, srq_handle: srq.0, reserved: 0 };
        self.write(write::QUERY_SRQ, &request, Driver::none())
    }

    /// Destroys a shared receive queue. The answer tells how many of its events were read.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while a queue pair uses it.
    pub fn destroy_srq(&self, srq: SrqHandle) -> Result<DestroySrqResp, UverbsError> {
        let command = (write::DESTROY_SRQ, DestroySrq { response: 0, srq_handle: srq.0, reserved: 0 });
        self.destroy_counted((id::srq::OBJECT, id::srq::destroy::METHOD), srq.0, command)
    }
}
