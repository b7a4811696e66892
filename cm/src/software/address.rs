//! Which address an ID has.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Record, Software, Stage};
use crate::error::CmError;
use crate::occurrence::What;
use crate::service::{PortSpace, gid_of, ip_of};

/// Requests that may wait for who says 0. Source: Linux `drivers/infiniband/core/ucma.c`, `max_backlog`.
const BACKLOG: u32 = 1024;

pub(super) const BUSY: &str = "a connection is under way: make another ID";

/// Whether an ID with that address cannot have the local port of another one. Source: Linux `drivers/infiniband/core/cma.c`, `cma_check_port`.
fn collides(other: &Record, address: IpAddr, own_family_only: bool) -> bool {
    let Some(held) = other.local.map(|local| local.ip()) else { return false };
    let share_none = own_family_only && other.options.own_family_only && address.is_ipv4() != held.is_ipv4();
    !share_none && (address.is_unspecified() || held.is_unspecified() || address == held)
}

impl Software {
    /// Tells the agents what their ports are now.
    pub(super) fn look_at_ports(&mut self) {
        for port in &mut self.ports {
            let refreshed = port.management.refresh().and_then(|()| port.management.mtu());
            match refreshed {
                Ok(mtu) => {
                    let gids = port.management.gids().iter().map(|(_, gid)| *gid).collect();
                    port.agent.set_port(gids, mtu);
                }
                Err(error) => {
                    tracing::warn!(target: "lib.cm", "{}: {error}", port.management.context().name());
                }
            }
        }
    }

    /// Takes a local port for an ID with an address: this one, or any for 0.
    pub(super) fn take_port(
        &mut self,
        id: u64,
        space: PortSpace,
        address: IpAddr,
        port: u16,
    ) -> Result<u16, CmError> {
        let ids = &self.ids;
        let reuses =
            |id: &u64| ids.get(id).is_some_and(|it| it.options.reuse_address && it.stage != Stage::Listening);
        let only = ids.get(&id).is_some_and(|record| record.options.own_family_only);
        let shares = |other: &u64| {
            reuses(&id) && reuses(other)
                || !ids.get(other).is_some_and(|other| collides(other, address, only))
        };
        let taken = self.held.take(space, port, id, shares);
        taken.ok_or(CmError::PortInUse { space, port })
    }

    /// Whether an ID holds a local port on all addresses.
    pub(crate) fn is_held_for_all(&self, space: PortSpace, port: u16) -> bool {
        let mut holders = self.held.holders(space, port).iter().filter_map(|id| self.ids.get(id));
        holders.any(|record| record.local.is_some_and(|local| local.ip().is_unspecified()))
    }

    /// The port of a device that has the address.
    pub(super) fn port_of(&self, address: IpAddr) -> Option<(usize, u8)> {
        let gid = gid_of(address);
        self.ports.iter().enumerate().find_map(|(place, port)| {
            let found = port.management.gids().iter().find(|(_, own)| *own == gid);
            found.map(|(index, _)| (place, *index))
        })
    }

    pub(super) fn present(&self) -> String {
        let all = self.ports.iter().flat_map(|port| port.management.gids());
        let all: Vec<String> = all.map(|(_, gid)| ip_of(*gid).to_string()).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }

    pub(crate) fn bind(&mut self, id: u64, address: SocketAddr) -> Result<(), CmError> {
        let record = self.record(id)?;
        let space = record.space;
        if record.stage != Stage::New {
            return Err(CmError::State { what: "bind", why: "the ID has an address" });
        }
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        self.look_at_ports();
        let port = if address.ip().is_unspecified() {
            None
        } else {
            let found = self.port_of(address.ip());
            let none = || CmError::NoDevice { address, present: self.present() };
            Some(found.ok_or_else(none)?.0)
        };
        let number = self.take_port(id, space, address.ip(), address.port())?;
        let record = self.record(id)?;
        record.local = Some(SocketAddr::new(address.ip(), number));
        (record.port, record.stage) = (port, Stage::Bound);
        Ok(())
    }

    pub(crate) fn listen(&mut self, id: u64, backlog: u32) -> Result<(), CmError> {
        if self.record(id)?.stage == Stage::New {
            self.bind(id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        let record = self.record(id)?;
        let Some(local) = record.local.filter(|_| record.stage == Stage::Bound) else {
            return Err(CmError::State { what: "listen", why: BUSY });
        };
        let (space, port, only) = (record.space, record.port, record.options.own_family_only);
        let others = self.held.holders(space, local.port()).iter().filter(|other| **other != id);
        let mut others = others.filter_map(|other| self.ids.get(other));
        if others.any(|other| collides(other, local.ip(), only)) {
            return Err(CmError::PortInUse { space, port: local.port() });
        }
        let record = self.record(id)?;
        record.stage = Stage::Listening;
        record.backlog = if backlog == 0 { BACKLOG } else { backlog };
        let service = space.service(local.port());
        for (place, at) in self.ports.iter_mut().enumerate() {
            if port.is_none_or(|port| port == place) {
                at.agent.listen(service, id);
            }
        }
        Ok(())
    }

    /// With RoCE the address says it all, but for the flow label, by which switches tell flows apart. Source: Linux
    /// `drivers/infiniband/core/cma.c`, `cma_get_roce_udp_flow_label`.
    pub(crate) fn resolve_route(&mut self, id: u64) -> Result<(), CmError> {
        let record = self.record(id)?;
        if record.stage != Stage::AddressResolved {
            return Err(CmError::State { what: "resolve a route", why: "resolve the address first" });
        }
        let ports = record.local.zip(record.peer).map(|(local, peer)| (local.port(), peer.port()));
        if let (Some(path), Some((local, peer))) = (&mut record.path, ports) {
            path.flow_label = (u32::from(local) * 31 + u32::from(peer)) & 0xf_ffff;
        }
        record.stage = Stage::RouteResolved;
        self.occur(id, What::RouteResolved);
        Ok(())
    }
}
