//! The command that says what became of pages that the device asked for.

use pollux_mlx5_abi::paging::{RESUME_ERROR, RESUME_TOKEN_31_0, RESUME_TOKEN_47_32};

use super::{Call, No, need, no};
use crate::device::core::Core;

impl Core {
    pub(super) fn paging_command(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        need!(call.uid == 0 && self.traits.on_demand_paging, BAD_OP_ERR, 16);
        let input: &[u8; 16] = call.input()?;
        let token = u64::from(RESUME_TOKEN_47_32.get(input)) << 32 | u64::from(RESUME_TOKEN_31_0.get(input));
        let answered = self.keys.absent.answered(token);
        let (absent, pairs) = answered.ok_or(no(pollux_mlx5_abi::command::status::BAD_RES_ERR, 17))?;
        self.rdma.paged(&pairs, absent, RESUME_ERROR.is_set(input));
        Ok(())
    }
}
