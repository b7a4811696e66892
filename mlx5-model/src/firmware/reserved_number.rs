//! Numbers that no queue pair gets: programs have the device keep them free, to give them to somebody else.
//!
//! They are a general object each. Source: rdma-core `providers/mlx5/mlx5.c`, `reserved_qpn_blk_alloc`, and
//! `providers/mlx5/mlx5_ifc.h`, `MLX5_OBJ_TYPE_RESERVED_QPN`; that one object has one number is what
//! `log_reserved_qpn_granularity` says, which is 0 in the second block of capabilities. DPDK does not use them.

use pollux_mlx5_abi::command::user::{GeneralObjectIn, general_object};
use pollux_mlx5_abi::command::{opcode as op, status};

use super::{Call, No, need, no};
use crate::device::core::Core;

impl Core {
    pub(super) fn general_object_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        let input: &[u8; GeneralObjectIn::BYTES] = call.input()?;
        let number = GeneralObjectIn::OBJ_ID.get(input);
        need!(GeneralObjectIn::OBJ_TYPE.get(input) == general_object::RESERVED_QPN, BAD_PARAM_ERR, 16);
        if opcode == op::CREATE_GENERAL_OBJECT {
            need!(GeneralObjectIn::LOG_OBJ_RANGE.get(input) == 0, BAD_PARAM_ERR, 17);
            need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 18);
            let number = self.reserved_pairs.insert(call.uid, ()).ok_or(no(status::NO_RES_ERR, 19))?;
            return call.answer_number(number);
        }
        need!(call.may_change(self.reserved_pairs.owner(number)), BAD_RES_ERR, 20);
        self.reserved_pairs.remove(number);
        Ok(())
    }
}
