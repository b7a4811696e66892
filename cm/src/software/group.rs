//! Multicast groups. With RoCE an address of IP is the group's GID, and nobody has to be asked. Source: Linux
//! `drivers/infiniband/core/cma.c`, `cma_iboe_join_multicast`.

use std::net::IpAddr;

use pollux_verbs::Path;

use super::{Software, Stage, UDP_QKEY};
use crate::error::CmError;
use crate::occurrence::What;
use crate::service::{PortSpace, gid_of};

/// What stands for every queue pair of a group. Source: InfiniBand Architecture Specification, volume 1, 9.2.2.
const ALL: u32 = 0xff_ffff;

impl Software {
    /// Routers and switches are told nothing: who has queue pair 1 in a process has no interface of the kernel's that would.
    pub(crate) fn join(&mut self, id: u64, group: IpAddr) -> Result<(), CmError> {
        let refuse = |why| Err(CmError::State { what: "join", why });
        let record = self.record(id)?;
        if record.space != PortSpace::Udp {
            return refuse("the ID is of connections: make one of PortSpace::Udp");
        }
        let ready = matches!(record.stage, Stage::Bound | Stage::AddressResolved | Stage::RouteResolved);
        let (local, traffic_class) = (record.local.filter(|_| ready), record.options.type_of_service);
        let Some((place, index)) = local.and_then(|local| self.port_of(local.ip())) else {
            return refuse("bind the ID to an address, or resolve one, first");
        };
        let groups = &mut self.record(id)?.groups;
        if groups.contains(&group) {
            return refuse("the ID is in the group");
        }
        groups.push(group);
        let port = self.ports[place].management.port();
        let path = Path { port, traffic_class, ..Path::new(gid_of(group), index) };
        self.occur(id, What::MulticastJoined { path, qpn: ALL, qkey: UDP_QKEY });
        Ok(())
    }

    pub(crate) fn leave(&mut self, id: u64, group: IpAddr) -> Result<(), CmError> {
        let groups = &mut self.record(id)?.groups;
        let Some(place) = groups.iter().position(|other| *other == group) else {
            return Err(CmError::State { what: "leave", why: "the ID is not in the group" });
        };
        groups.swap_remove(place);
        // That it joined is no news any more.
        let channel = self.record(id)?.channel;
        let gid = gid_of(group);
        let is_of_group = |what: &What| matches!(what, What::MulticastJoined { path, .. } if path.gid == gid);
        if let Some(queue) = self.channels.get_mut(&channel) {
            queue.retain(|occurrence| occurrence.id != id || !is_of_group(&occurrence.what));
        }
        Ok(())
    }
}
