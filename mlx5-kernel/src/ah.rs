//! Address handles: the kernel tells the MAC to which a datagram goes. Source: Linux
//! `drivers/infiniband/core/uverbs_cmd.c`, `ib_uverbs_create_ah`; `drivers/infiniband/core/verbs.c`,
//! `rdma_create_user_ah`; `drivers/infiniband/hw/mlx5/ah.c`.

use std::mem::offset_of;
use std::sync::Arc;

use pollux_mlx5_abi::kernel::queue_pair::CreateAhAnswer;
use pollux_uverbs::abi::memory::{CreateAh, CreateAhResp, DestroyAh};
use pollux_uverbs::{Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::handle::{Object, ObjectKind};
use crate::pd::Pd;
use crate::qp::path;
use crate::session::Session;

/// An address handle. All it says stands in the program's send entries.
#[derive(Debug)]
pub(crate) struct Ah;

impl Object for Ah {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Ah
    }
}

impl Session {
    /// `CREATE_AH`.
    pub(crate) fn create_ah(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: CreateAh = command.request()?;
        let room = command.driver_out.room();
        let told = offset_of!(CreateAhAnswer, reserved);
        let port = request.attr.port_num;
        if !self.core.is_port(port) {
            return Err(Errno::EINVAL);
        }
        // RoCE has global addresses alone, and nobody has the GID of all zeros.
        if request.attr.is_global == 0 || request.attr.grh.dgid == [0; 16] {
            return Err(Errno::EINVAL);
        }
        let core = Arc::clone(&self.core);
        self.handles.get::<Pd>(request.pd_handle)?;
        if let Some(neighbours) = core.outlet(port.into())?.neighbours {
            neighbours.announce();
        }
        let dmac = core.destination(port, request.attr.grh.sgid_index, &request.attr.grh.dgid)?;
        // Linux's driver is asked last: `drivers/infiniband/core/verbs.c`, `rdma_create_user_ah`.
        path::rate(&core, request.attr.static_rate)?;
        if room < told {
            return Err(Errno::EINVAL);
        }
        let ah_handle = self.handles.add(Ah, &[request.pd_handle]);
        command.core_out.write(CreateAhResp { ah_handle }.as_bytes());
        let answer = CreateAhAnswer { response_length: told as u32, dmac, reserved: [0; 6] };
        command.driver_out.write(&answer.as_bytes()[..told]);
        Ok(())
    }

    /// `DESTROY_AH`.
    pub(crate) fn destroy_ah(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: DestroyAh = command.request()?;
        self.destroy::<Ah>(request.ah_handle).map(drop)
    }
}
