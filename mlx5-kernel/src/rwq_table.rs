//! Tables of receive work queues. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `mlx5_ib_create_rwq_ind_table`.

use std::mem::offset_of;
use std::sync::Arc;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::rqt::{CreateRqtIn, RqtContext};
use pollux_mlx5_abi::kernel::work_queue::CreateRwqTableAnswer;
use pollux_uverbs::abi::queue::{ExCreateRwqIndTable, ExCreateRwqIndTableResp, ExDestroyRwqIndTable};
use pollux_uverbs::wq::LOG_IND_TABLE_MAX;
use pollux_uverbs::{Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::firmware::begin;
use crate::handle::{Object, ObjectKind};
use crate::pieces::Pieces;
use crate::session::Session;
use crate::udata;
use crate::wq::Wq;

/// A table.
#[derive(Debug)]
pub(crate) struct RwqTable {
    pub(crate) rqtn: u32,
    pub(crate) log_size: u32,
    pieces: Pieces,
}

impl Object for RwqTable {
    fn kind(&self) -> ObjectKind {
        ObjectKind::RwqTable
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        self.pieces.end(core)
    }

    fn parts(&self) -> Vec<(u16, u32)> {
        vec![(opcode::CREATE_RQT, self.rqtn)]
    }
}

impl Session {
    /// `EX_CREATE_RWQ_IND_TBL`.
    pub(crate) fn create_rwq_table(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExCreateRwqIndTable = command.request()?;
        if request.comp_mask != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let log_size = request.log_ind_tbl_size;
        if log_size > LOG_IND_TABLE_MAX {
            return Err(Errno::EINVAL);
        }
        let count = 1_usize << log_size;
        let list = &command.core_in[size_of::<ExCreateRwqIndTable>()..];
        let list = list.get(..count * 4).ok_or(Errno::ENOSPC)?;
        if !udata::is_cleared(command.driver_in) {
            return Err(Errno::EOPNOTSUPP);
        }
        let core = Arc::clone(&self.core);
        if log_size > core.caps.general(GeneralCaps::LOG_MAX_RQT_SIZE) {
            return Err(Errno::EINVAL);
        }
        let room = command.driver_out.room();
        if room != 0 && room < size_of::<CreateRwqTableAnswer>() {
            return Err(Errno::EINVAL);
        }
        let mut head: [u8; CreateRqtIn::BYTES] = begin(opcode::CREATE_RQT, self.uid(), 0);
        let context = CreateRqtIn::RQT_CONTEXT.of_mut(&mut head);
        RqtContext::RQT_ACTUAL_SIZE.set(context, count as u32);
        RqtContext::RQT_MAX_SIZE.set(context, count as u32);
        let mut input = head.to_vec();
        let mut parents = Vec::with_capacity(count);
        for raw in list.as_chunks::<4>().0 {
            let handle = u32::from_ne_bytes(*raw);
            input.extend_from_slice(&self.handles.get::<Wq>(handle)?.rqn.to_be_bytes());
            parents.push(handle);
        }
        let mut pieces = Pieces::default();
        let rqtn = pieces.make(&core, &input, opcode::DESTROY_RQT, self.uid())?;
        let handle = self.handles.add(RwqTable { rqtn, log_size, pieces }, &parents);
        let answer = ExCreateRwqIndTableResp {
            ind_tbl_handle: handle,
            ind_tbl_num: rqtn,
            ..ExCreateRwqIndTableResp::default()
        };
        let offset = offset_of!(ExCreateRwqIndTableResp, response_length);
        udata::answer_counted(&mut command.core_out, answer.as_bytes(), offset);
        let answer = CreateRwqTableAnswer { response_length: 4, reserved: 0 };
        udata::answer(Some(&mut command.driver_out), &answer.as_bytes()[..4]);
        Ok(())
    }

    /// `EX_DESTROY_RWQ_IND_TBL`.
    pub(crate) fn destroy_rwq_table(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExDestroyRwqIndTable = command.request()?;
        if request.comp_mask != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        self.destroy::<RwqTable>(request.ind_tbl_handle).map(drop)
    }
}
