//! Receive work queues, and the tables that spread packets over them.

use zerocopy::IntoBytes;

use crate::abi::flags::{WqFlags, WqMask, WqState};
use crate::abi::queue::{
    ExCreateRwqIndTable, ExCreateRwqIndTableResp, ExCreateWq, ExCreateWqResp, ExDestroyRwqIndTable,
    ExDestroyWq, ExDestroyWqResp, ExModifyWq,
};
use crate::abi::{id, write};
use crate::call::Call;
use crate::context::filled;
use crate::handle::{CqHandle, PdHandle, RwqIndTableHandle, WqHandle};
use crate::{Context, Driver, Operation, UverbsError};

/// Logarithm of the most entries of an indirection table that the kernel takes. Source: `rdma/ib_user_verbs.h`,
/// `IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE`.
pub const LOG_IND_TABLE_MAX: u32 = 13;

/// What work queue to make. It receives; there is no other kind.
#[derive(Clone, Copy, Debug)]
pub struct WqRequest {
    /// Protection domain.
    pub pd: PdHandle,
    /// Where it completes.
    pub cq: CqHandle,
    /// Work requests, at least.
    pub max_wr: u32,
    /// Pieces of one.
    pub max_sge: u32,
    /// Options.
    pub flags: WqFlags,
    /// What events about it carry.
    pub user_handle: u64,
}

/// A work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wq {
    /// Its handle.
    pub handle: WqHandle,
    /// Its number.
    pub wqn: u32,
    /// Work requests that it has room for.
    pub max_wr: u32,
    /// Pieces of one.
    pub max_sge: u32,
}

/// What to change about a work queue: what is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct WqChange {
    /// The state to go to.
    pub state: Option<WqState>,
    /// The state that it is in, to be checked.
    pub current: Option<WqState>,
    /// Flags to set, and all those to change.
    pub flags: Option<(WqFlags, WqFlags)>,
}

/// An indirection table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RwqIndTable {
    /// Its handle.
    pub handle: RwqIndTableHandle,
    /// Its number.
    pub number: u32,
}

impl Context {
    /// Makes a work queue, in state RESET.
    ///
    /// # Errors
    /// What the kernel says: `EOPNOTSUPP` for options that the device lacks.
    pub fn create_wq(&self, request: &WqRequest, mut driver: Driver<'_>) -> Result<Wq, UverbsError> {
        use id::wq::create as a;
        let mut call = Call::new(id::wq::OBJECT, a::METHOD);
        call.new_object(a::HANDLE)
            .u64(a::USER_HANDLE, request.user_handle)
            .object(a::PD_HANDLE, request.pd.0)
            .object(a::CQ_HANDLE, request.cq.0)
            .u64(a::TYPE, 0)
            .u32(a::MAX_WR, request.max_wr)
            .u32(a::MAX_SGE, request.max_sge)
            .fd(a::EVENT_FD, self.event_fd())
            .u32(a::FLAGS, request.flags.bits())
            .answer(a::RESP_MAX_WR, 4)
            .answer(a::RESP_MAX_SGE, 4)
            .answer(a::RESP_WQ_NUM, 4);
        if self.native(&mut call, driver.reborrow())? {
            return Ok(Wq {
                handle: WqHandle(call.created(a::HANDLE)?),
                wqn: call.get(a::RESP_WQ_NUM)?,
                max_wr: call.get(a::RESP_MAX_WR)?,
                max_sge: call.get(a::RESP_MAX_SGE)?,
            });
        }
        drop(call);
        let request = ExCreateWq {
            comp_mask: 0,
            wq_type: 0,
            user_handle: request.user_handle,
            pd_handle: request.pd.0,
            cq_handle: request.cq.0,
            max_wr: request.max_wr,
            max_sge: request.max_sge,
            create_flags: request.flags.bits(),
            reserved: 0,
        };
        let answer: ExCreateWqResp = self.write(write::EX_CREATE_WQ, &request, driver)?;
        filled(write::EX_CREATE_WQ, answer.response_length, size_of::<ExCreateWqResp>())?;
        Ok(Wq {
            handle: WqHandle(answer.wq_handle),
            wqn: answer.wqn,
            max_wr: answer.max_wr,
            max_sge: answer.max_sge,
        })
    }

    /// Changes a work queue: RESET to RDY starts it, ERR to RESET empties it.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a state that does not follow.
    pub fn modify_wq(&self, wq: WqHandle, change: &WqChange, driver: Driver<'_>) -> Result<(), UverbsError> {
        let mut mask = WqMask::empty();
        mask.set(WqMask::STATE, change.state.is_some());
        mask.set(WqMask::CURR_STATE, change.current.is_some());
        mask.set(WqMask::FLAGS, change.flags.is_some());
        let (flags, flags_mask) = change.flags.unwrap_or_default();
        let request = ExModifyWq {
            attr_mask: mask.bits(),
            wq_handle: wq.0,
            wq_state: change.state.map_or(0, |state| state.0),
            curr_wq_state: change.current.map_or(0, |state| state.0),
            flags: flags.bits(),
            flags_mask: flags_mask.bits(),
        };
        self.write_only(write::EX_MODIFY_WQ, &request, driver)
    }

    /// Destroys a work queue. The answer tells how many of its events were read.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while a table leads to it.
    pub fn destroy_wq(&self, wq: WqHandle) -> Result<u32, UverbsError> {
        let mut call = Call::new(id::wq::OBJECT, id::wq::destroy::METHOD);
        call.object(id::wq::destroy::HANDLE, wq.0).answer(id::wq::destroy::RESP, 4);
        if self.native(&mut call, Driver::none())? {
            return call.get(id::wq::destroy::RESP);
        }
        let request = ExDestroyWq { comp_mask: 0, wq_handle: wq.0 };
        let answer: ExDestroyWqResp = self.write(write::EX_DESTROY_WQ, &request, Driver::none())?;
        filled(write::EX_DESTROY_WQ, answer.response_length, 12)?;
        Ok(answer.events_reported)
    }

    /// Makes an indirection table of work queues, a power of two of them; one may stand there several times.
    ///
    /// # Errors
    /// [`UverbsError::TooLarge`] for more than 2^[`LOG_IND_TABLE_MAX`], [`UverbsError::Unexpected`] for a count that is no
    /// power of two, or what the kernel says.
    pub fn create_rwq_ind_table(
        &self,
        queues: &[WqHandle],
        driver: Driver<'_>,
    ) -> Result<RwqIndTable, UverbsError> {
        let operation = Operation::Write { command: write::EX_CREATE_RWQ_IND_TBL };
        if !queues.len().is_power_of_two() {
            return Err(UverbsError::Unexpected {
                operation,
                attribute: "count of work queues".into(),
                value: queues.len() as u64,
                allowed: "a power of two",
            });
        }
        let log = queues.len().ilog2();
        if log > LOG_IND_TABLE_MAX {
            let (value, limit) = (queues.len() as u64, 1 << LOG_IND_TABLE_MAX);
            return Err(UverbsError::TooLarge {
                operation,
                attribute: "count of work queues".into(),
                value,
                limit,
            });
        }
        let head = ExCreateRwqIndTable { comp_mask: 0, log_ind_tbl_size: log };
        let mut request = head.as_bytes().to_vec();
        for queue in queues {
            request.extend_from_slice(&queue.0.to_ne_bytes());
        }
        request.resize(request.len().next_multiple_of(8), 0);
        let answer: ExCreateRwqIndTableResp =
            self.write(write::EX_CREATE_RWQ_IND_TBL, request.as_slice(), driver)?;
        filled(write::EX_CREATE_RWQ_IND_TBL, answer.response_length, size_of::<ExCreateRwqIndTableResp>())?;
        Ok(RwqIndTable { handle: RwqIndTableHandle(answer.ind_tbl_handle), number: answer.ind_tbl_num })
    }

    /// Destroys an indirection table.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while a queue pair uses it.
    pub fn destroy_rwq_ind_table(&self, table: RwqIndTableHandle) -> Result<(), UverbsError> {
        let request = ExDestroyRwqIndTable { comp_mask: 0, ind_tbl_handle: table.0 };
        let method = (id::rwq_ind_table::OBJECT, id::rwq_ind_table::destroy::METHOD);
        self.destroy(method, table.0, (write::EX_DESTROY_RWQ_IND_TBL, request))
    }
}
