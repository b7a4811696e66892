//! Memory windows: keys that are free until a work request binds them. Source: Linux
//! `drivers/infiniband/hw/mlx5/mr.c`, `mlx5_ib_alloc_mw`.

use std::sync::Arc;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::mkey::{CreateMkeyIn, MkeyContext, access_mode};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::kernel::queue_pair;
use pollux_uverbs::abi::memory::{AllocMw, AllocMwResp, DeallocMw};
use pollux_uverbs::{Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::firmware::begin;
use crate::handle::{Object, ObjectKind};
use crate::mkey::{destroy_key, make_key};
use crate::pd::Pd;
use crate::session::Session;
use crate::udata;

/// Pieces of a window: as many as fit into one unit of the firmware's.
const PIECES: u32 = 4;

/// The two kinds. Source: Linux `include/uapi/rdma/ib_user_verbs.h`, `enum ib_uverbs_wr_opcode` users; the values are
/// `enum ib_mw_type` of `include/rdma/ib_verbs.h`.
const TYPE_1: u8 = 1;
/// See [`TYPE_1`].
const TYPE_2: u8 = 2;

/// A memory window.
#[derive(Debug)]
pub(crate) struct Mw {
    /// Index of the key in the device; none once that is ended.
    index: Option<u32>,
}

impl Object for Mw {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Mw
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        if let Some(index) = self.index {
            destroy_key(core, index)?;
            self.index = None;
        }
        Ok(())
    }
}

impl Session {
    /// `ALLOC_MW`.
    pub(crate) fn alloc_mw(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: AllocMw = command.request()?;
        let driver: queue_pair::AllocMw = udata::lenient(command.driver_in);
        if driver.comp_mask != 0 || driver.reserved1 != 0 || driver.reserved2 != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if !matches!(request.mw_type, TYPE_1 | TYPE_2) {
            return Err(Errno::EINVAL);
        }
        let core = Arc::clone(&self.core);
        if !core.caps.has(GeneralCaps::IMAICL) {
            return Err(Errno::EOPNOTSUPP);
        }
        let pdn = self.handles.get::<Pd>(request.pd_handle)?.pdn;
        let mut input: [u8; CreateMkeyIn::BYTES] = begin(opcode::CREATE_MKEY, 0, 0);
        let context = CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
        MkeyContext::FREE.set(context, 1);
        MkeyContext::TRANSLATIONS_OCTWORD_SIZE
            .set(context, u32::from(driver.num_klms).max(1).next_multiple_of(PIECES));
        MkeyContext::PD.set(context, pdn);
        MkeyContext::UMR_EN.set(context, 1);
        MkeyContext::LR.set(context, 1);
        MkeyContext::ACCESS_MODE_1_0.set(context, access_mode::KLM);
        MkeyContext::EN_RINVAL.set(context, u32::from(request.mw_type == TYPE_2));
        MkeyContext::QPN.set(context, 0xff_ffff);
        let (index, rkey) = make_key(&core, &mut input, &[])?;
        let mw_handle = self.handles.add(Mw { index: Some(index) }, &[request.pd_handle]);
        command.core_out.write(AllocMwResp { mw_handle, rkey }.as_bytes());
        Ok(())
    }

    /// `DEALLOC_MW`.
    pub(crate) fn dealloc_mw(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: DeallocMw = command.request()?;
        self.destroy::<Mw>(request.mw_handle).map(drop)
    }
}
