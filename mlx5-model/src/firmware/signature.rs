//! Commands on signature variables.

use pollux_mlx5_abi::command::psv::{CreatePsvIn, CreatePsvOut, PSVS_MAX};
use pollux_mlx5_abi::command::{opcode as op, status};

use super::{Call, No, need, no};
use crate::device::core::Core;

impl Core {
    pub(super) fn signature_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        need!(self.traits.signatures, BAD_OP_ERR, 16);
        let variables = &mut self.keys.signatures.variables;
        if opcode == op::DESTROY_PSV {
            let number = call.named()?;
            need!(call.may_change(variables.owner(number)), BAD_RES_ERR, 17);
            variables.remove(number);
            return Ok(());
        }
        let input: &[u8; CreatePsvIn::BYTES] = call.input()?;
        let (count, domain) = (CreatePsvIn::NUM_PSV.get(input), CreatePsvIn::PD.get(input));
        need!((1..=PSVS_MAX).contains(&count), BAD_PARAM_ERR, 18);
        need!(call.may_work_in(self.domains.owner(domain)), BAD_RES_ERR, 19);
        let uid = call.uid;
        let out: &mut [u8; CreatePsvOut::BYTES] = call.output()?;
        let fields = [
            CreatePsvOut::PSV0_INDEX,
            CreatePsvOut::PSV1_INDEX,
            CreatePsvOut::PSV2_INDEX,
            CreatePsvOut::PSV3_INDEX,
        ];
        for (made, field) in fields.iter().take(count as usize).enumerate() {
            let Some(number) = self.keys.signatures.make(uid, domain) else {
                // All or none.
                for field in &fields[..made] {
                    self.keys.signatures.variables.remove(field.get(out));
                }
                return Err(no(status::NO_RES_ERR, 20));
            };
            field.set(out, number);
        }
        Ok(())
    }
}
