//! Multicast groups that a datagram queue pair hears. Source: Linux `drivers/infiniband/core/uverbs_cmd.c`,
//! `ib_uverbs_attach_mcast`; `drivers/infiniband/core/verbs.c`, `ib_attach_mcast`; `drivers/infiniband/hw/mlx5/main.c`,
//! `mlx5_ib_mcg_attach`.

use std::sync::Arc;

use pollux_mlx5_abi::command::group::{AttachToMcgIn, DetachFromMcgIn};
use pollux_mlx5_abi::command::opcode;
use pollux_uverbs::abi::flags::QpType;
use pollux_uverbs::abi::memory::AttachMcast;
use pollux_uverbs::{Errno, WriteCall};

use super::shared::locked;
use super::{Body, Qp};
use crate::core::Core;
use crate::firmware::{SHORT, begin};
use crate::neighbour;
use crate::session::Session;

/// A group that a queue pair hears: its GID, and the local identifier that it was told with.
pub(super) type Group = ([u8; 16], u16);

impl Qp {
    /// Leaves all groups.
    pub(super) fn leave_groups(&mut self, core: &Core) -> Result<(), Errno> {
        while let Some((gid, _)) = self.groups.last() {
            let Body::Transport { qp, .. } = &self.body else { break };
            leave(core, self.uid, locked(qp).qpn, *gid)?;
            self.groups.pop();
        }
        Ok(())
    }
}

fn leave(core: &Core, uid: u16, qpn: u32, gid: [u8; 16]) -> Result<(), Errno> {
    let mut input: [u8; DetachFromMcgIn::BYTES] = begin(opcode::DETACH_FROM_MCG, uid, 0);
    DetachFromMcgIn::QPN.set(&mut input, qpn);
    DetachFromMcgIn::MULTICAST_GID.set(&mut input, gid);
    core.execute(&input, &mut [0; SHORT])
}

impl Session {
    /// `ATTACH_MCAST`.
    pub(crate) fn attach_mcast(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: AttachMcast = command.request()?;
        let core = Arc::clone(&self.core);
        let (qp, qpn) = self.datagrams(&request)?;
        let group = (request.gid, request.mlid);
        // Once is enough.
        if qp.groups.contains(&group) {
            return Ok(());
        }
        let mut input: [u8; AttachToMcgIn::BYTES] = begin(opcode::ATTACH_TO_MCG, qp.uid, 0);
        AttachToMcgIn::QPN.set(&mut input, qpn);
        AttachToMcgIn::MULTICAST_GID.set(&mut input, request.gid);
        core.execute(&input, &mut [0; SHORT])?;
        qp.groups.push(group);
        Ok(())
    }

    /// `DETACH_MCAST`.
    pub(crate) fn detach_mcast(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: AttachMcast = command.request()?;
        let core = Arc::clone(&self.core);
        let (qp, qpn) = self.datagrams(&request)?;
        let group = (request.gid, request.mlid);
        let place = qp.groups.iter().position(|other| *other == group).ok_or(Errno::EINVAL)?;
        leave(&core, qp.uid, qpn, request.gid)?;
        qp.groups.remove(place);
        Ok(())
    }

    /// The queue pair that a request is about, which must be of datagrams, with its number; the GID must be a group's, of
    /// IPv6 or of IPv4 in its place there: Linux `include/rdma/ib_addr.h`, `rdma_is_multicast_addr`.
    fn datagrams(&mut self, request: &AttachMcast) -> Result<(&mut Qp, u32), Errno> {
        let qp = self.handles.get_mut::<Qp>(request.qp_handle)?;
        let qpn = match &qp.body {
            Body::Transport { qp, .. } => {
                let inside = locked(qp);
                (inside.kind == QpType::UD).then_some(inside.qpn)
            }
            _ => None,
        };
        let qpn = qpn.filter(|_| neighbour::ip(&request.gid).is_multicast()).ok_or(Errno::EINVAL)?;
        Ok((qp, qpn))
    }
}
