//! The function's life: enabling, pages, initialization, and what it says of itself.

use pollux_mlx5_abi::command::start::{
    AdapterParameters, InitHcaIn, ManagePagesIn, ManagePagesOut, QueryAdapterOut, QueryIssiOut, QueryPagesIn,
    QueryPagesOut, QuerySpecialContextsOut, SetIssiIn, TeardownHcaOut, page_phase, page_request,
};
use pollux_mlx5_abi::command::{opcode as op, pages};

use super::{Call, No, need};
use crate::device::core::Core;
use crate::device::function::{Function, Life, SoftwareId};
use crate::device::joint::Side;
use crate::memory_keys::{NULL_KEY, RESERVED_KEY};

/// The newest interface revision spoken: 1, as current firmware. Source: Linux `main.c`, `mlx5_core_set_issi`.
const ISSI: u32 = 1;
/// Pages wanted for booting and for work.
const BOOT_PAGES: u32 = 4;
const INIT_PAGES: u32 = 8;
/// Pages in one MANAGE_PAGES at most.
const PAGES_MAX: usize = 1 << 16;

impl Function {
    /// Commands on objects only run between INIT_HCA and TEARDOWN_HCA.
    pub(super) fn allows(&self, opcode: u16) -> Result<(), No> {
        let needed = match opcode {
            op::ENABLE_HCA | op::QUERY_ISSI => Life::Off,
            op::DISABLE_HCA
            | op::SET_ISSI
            | op::QUERY_PAGES
            | op::MANAGE_PAGES
            | op::QUERY_HCA_CAP
            | op::SET_HCA_CAP
            | op::INIT_HCA
            | op::SET_DRIVER_VERSION
            | op::QUERY_ADAPTER
            | op::ACCESS_REG
            | op::NOP => Life::Enabled,
            _ => Life::Running,
        };
        need!(self.life >= needed, BAD_SYS_STATE_ERR, 5);
        Ok(())
    }
}

impl Core {
    pub(super) fn function_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        match opcode {
            op::ENABLE_HCA => {
                need!(self.function.life == Life::Off, BAD_SYS_STATE_ERR, 16);
                self.function.life = Life::Enabled;
            }
            op::DISABLE_HCA => {
                need!(self.function.life == Life::Enabled, BAD_SYS_STATE_ERR, 16);
                self.function.life = Life::Off;
                self.function.software_id = SoftwareId::default();
                self.function.issi = 0;
            }
            op::INIT_HCA => {
                let number = InitHcaIn::SW_VHCA_ID.get(call.input()?);
                need!(self.function.life == Life::Enabled, BAD_SYS_STATE_ERR, 16);
                self.function.software_id.start(number)?;
                if let Some(joint) = self.joint.as_ref().filter(|joint| joint.side == Side::First) {
                    joint.set_software_id(number);
                }
                self.function.life = Life::Running;
            }
            op::TEARDOWN_HCA => {
                need!(self.function.life == Life::Running, BAD_SYS_STATE_ERR, 16);
                self.forget_objects();
                if let Some(joint) = &self.joint {
                    joint.reset();
                }
                self.function.life = Life::Enabled;
                TeardownHcaOut::STATE.set(call.output()?, 0);
            }
            op::QUERY_ISSI => {
                let issi = self.function.issi;
                let out = call.output()?;
                QueryIssiOut::CURRENT_ISSI.set(out, issi);
                QueryIssiOut::SUPPORTED_ISSI_DW0.set(out, (1 << (ISSI + 1)) - 1);
            }
            op::SET_ISSI => {
                let issi = SetIssiIn::CURRENT_ISSI.get(call.input()?);
                need!(issi <= ISSI, BAD_PARAM_ERR, 16);
                self.function.issi = issi;
            }
            op::QUERY_PAGES => self.query_pages(call)?,
            op::MANAGE_PAGES => self.manage_pages(call)?,
            op::QUERY_ADAPTER => {
                let out = QueryAdapterOut::QUERY_ADAPTER_STRUCT.of_mut(call.output()?);
                // Source: IEEE's list of vendors: Mellanox Technologies.
                AdapterParameters::IEEE_VENDOR_ID.set(out, 0x2c9);
                AdapterParameters::VSD_VENDOR_ID.set(out, 0x15b3);
                AdapterParameters::VSD_CONTD_PSID.set(out, self.traits.psid);
            }
            op::QUERY_SPECIAL_CONTEXTS => {
                let out = call.output()?;
                QuerySpecialContextsOut::RESD_LKEY.set(out, RESERVED_KEY);
                QuerySpecialContextsOut::NULL_MKEY.set(out, NULL_KEY);
                let fill = if self.traits.dump_fill_key { NULL_KEY } else { 0 };
                QuerySpecialContextsOut::DUMP_FILL_MKEY.set(out, fill);
            }
            _ => {}
        }
        Ok(())
    }

    fn query_pages(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        call.input::<{ QueryPagesIn::BYTES }>()?;
        let wanted = match call.op_mod {
            page_phase::BOOT => BOOT_PAGES,
            page_phase::INIT => INIT_PAGES,
            page_phase::REGULAR if self.function.life != Life::Running => {
                // On the way down it offers all back.
                0_u32.wrapping_sub(self.function.pages.len() as u32)
            }
            page_phase::REGULAR => 0,
            _ => return Err(super::no(pollux_mlx5_abi::command::status::BAD_PARAM_ERR, 16)),
        };
        QueryPagesOut::NUM_PAGES.set(call.output()?, wanted);
        Ok(())
    }

    fn manage_pages(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        let count = ManagePagesIn::INPUT_NUM_ENTRIES.get(call.input()?) as usize;
        match call.op_mod {
            page_request::CANNOT_GIVE => {}
            page_request::GIVE => {
                need!(count <= PAGES_MAX, BAD_PARAM_ERR, 16);
                let list = call.behind::<{ ManagePagesIn::BYTES }>();
                need!(list.len() >= count * 8, BAD_INP_LEN_ERR, 17);
                let given: Vec<u64> = pages(list).take(count).collect();
                need!(given.iter().all(|page| page.is_multiple_of(4096)), BAD_PARAM_ERR, 18);
                self.function.pages.extend(given);
            }
            page_request::TAKE => {
                let room = call.output.len().saturating_sub(ManagePagesOut::BYTES) / 8;
                let count = count.min(self.function.pages.len()).min(room);
                for index in 0..count {
                    let page = self.function.pages.pop().unwrap_or_default();
                    let at = ManagePagesOut::BYTES + index * 8;
                    call.output[at..at + 8].copy_from_slice(&page.to_be_bytes());
                }
                ManagePagesOut::OUTPUT_NUM_ENTRIES.set(call.output()?, count as u32);
            }
            _ => return Err(super::no(pollux_mlx5_abi::command::status::BAD_PARAM_ERR, 19)),
        }
        Ok(())
    }
}
