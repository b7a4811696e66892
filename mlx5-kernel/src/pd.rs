//! Protection domains.

use std::sync::Arc;

use pollux_mlx5_abi::command::object::{AllocPdOut, DeallocPdIn};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::kernel::attribute::query_pd;
use pollux_uverbs::abi::memory::{AllocPdResp, DeallocPd};
use pollux_uverbs::{Call, Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::firmware::{SHORT, begin};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;
use crate::udata;

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) pdn: u32,
}

impl Object for Pd {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Pd
    }

    fn end(&mut self, core: &Core, uid: u16) -> Result<(), Errno> {
        let mut input: [u8; DeallocPdIn::BYTES] = begin(opcode::DEALLOC_PD, uid, 0);
        DeallocPdIn::PD.set(&mut input, self.pdn);
        core.execute(&input, &mut [0; SHORT])
    }
}

impl Session {
    /// `ALLOC_PD`; it has no newer form.
    pub(crate) fn alloc_pd(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let core = Arc::clone(&self.core);
        let input: [u8; SHORT] = begin(opcode::ALLOC_PD, self.uid(), 0);
        let mut output = AllocPdOut::ZERO;
        core.execute(&input, &mut output)?;
        let pdn = AllocPdOut::PD.get(&output);
        let handle = self.handles.add(Pd { pdn }, &[]);
        command.core_out.write(AllocPdResp { pd_handle: handle }.as_bytes());
        udata::answer(Some(&mut command.driver_out), pdn.as_bytes());
        Ok(())
    }

    /// `DEALLOC_PD`.
    pub(crate) fn dealloc_pd(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: DeallocPd = command.request()?;
        self.destroy::<Pd>(request.pd_handle).map(drop)
    }

    /// The driver's `PD/QUERY`.
    pub(crate) fn query_pd(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let pdn = self.handles.get::<Pd>(call.handle(query_pd::HANDLE)?)?.pdn;
        call.reply(query_pd::RESP_PDN, &pdn)
    }
}
