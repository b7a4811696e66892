//! Which device leads to an address. Nobody waits for the wire's answer in a call: it is looked for while the manager works, for as long as
//! whoever asked said. Source: Linux `drivers/infiniband/core/addr.c`, `process_one_req`.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use pollux_verbs::{Errno, Path};

use super::address::BUSY;
use super::{Software, Stage};
use crate::error::CmError;
use crate::occurrence::What;
use crate::service::{gid_of, ip_of};

/// How long the nearest port is asked alone before the next one is asked as well: as long as a question of the kernel's own network waits.
const ALONE: Duration = Duration::from_millis(200);

/// A port that may lead there: its place, and its own GID with its index.
type Candidate = (usize, u8, [u8; 16]);

/// An address that is looked for.
#[derive(Debug)]
pub(super) struct Resolution {
    pub(super) id: u64,
    /// Nearest first; those that cannot lead there are taken out.
    candidates: Vec<Candidate>,
    /// Why none is left.
    why: Errno,
    begin: Duration,
    end: Duration,
}

/// Bits that two GIDs begin with alike.
fn alike(one: [u8; 16], other: [u8; 16]) -> u32 {
    (u128::from_be_bytes(one) ^ u128::from_be_bytes(other)).leading_zeros()
}

impl Software {
    /// Begins to look for the device that leads to an address, and for who answers for it: an event tells what came of it, after
    /// `timeout` at the latest.
    pub(crate) fn resolve_address(
        &mut self,
        id: u64,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
        let record = self.record(id)?;
        if !matches!(record.stage, Stage::New | Stage::Bound) {
            return Err(CmError::State { what: "resolve an address", why: BUSY });
        }
        let (space, local) = (record.space, record.local);
        self.look_at_ports();
        let bound = local.filter(|local| !local.ip().is_unspecified());
        let source = source.or(bound).filter(|source| !source.ip().is_unspecified());
        let candidates = self.candidates(source, destination)?;
        // The ID is bound, whatever comes of the rest.
        if local.is_none() {
            let place = source.and_then(|_| candidates.first().map(|(place, ..)| *place));
            let any: IpAddr = match destination {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let ip = source.map_or(any, |source| source.ip().to_canonical());
            let number = self.take_port(id, space, ip, source.map_or(0, |source| source.port()))?;
            let record = self.record(id)?;
            (record.local, record.port) = (Some(SocketAddr::new(ip, number)), place);
            record.stage = Stage::Bound;
        }
        let record = self.record(id)?;
        (record.peer, record.stage) = (Some(destination), Stage::Resolving);
        let begin = self.now();
        let end = begin.saturating_add(timeout);
        let why = Errno::ENETUNREACH;
        self.resolutions.push(Resolution { id, candidates, why, begin, end });
        // What is known already is told at once.
        self.resolve();
        Ok(())
    }

    /// The ports that may lead to an address, nearest first: subnets are not told, so that of two the one is tried that has more in common
    /// with the destination.
    fn candidates(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> Result<Vec<Candidate>, CmError> {
        if let Some(source) = source {
            let ip = source.ip().to_canonical();
            let none = || CmError::NoDevice { address: source, present: self.present() };
            let (port, index) = self.port_of(ip).ok_or_else(none)?;
            return Ok(vec![(port, index, gid_of(ip))]);
        }
        let kind = destination.is_ipv4();
        let all = self.ports.iter().enumerate().flat_map(|(place, port)| {
            port.management.gids().iter().map(move |(index, gid)| (place, *index, *gid))
        });
        let mut candidates: Vec<_> = all.filter(|(.., gid)| ip_of(*gid).is_ipv4() == kind).collect();
        let gid = gid_of(destination.ip());
        candidates.sort_by_key(|(.., own)| Reverse(alike(*own, gid)));
        Ok(candidates)
    }

    /// Looks for what is resolved by now, or has taken too long. Whether there was any.
    pub(super) fn resolve(&mut self) -> bool {
        if self.resolutions.is_empty() {
            return false;
        }
        let now = self.now();
        let mut any = false;
        let mut pending = std::mem::take(&mut self.resolutions);
        pending.retain_mut(|resolution| {
            let found = self.look_for(resolution, now);
            let is_over = found.is_some();
            if let Some(found) = found {
                self.resolved(resolution.id, found);
            }
            any |= is_over;
            !is_over
        });
        self.resolutions = pending;
        any
    }

    /// What came of it; `None` yet.
    fn look_for(
        &mut self,
        resolution: &mut Resolution,
        now: Duration,
    ) -> Option<Result<(Candidate, Path), Errno>> {
        let record = self.ids.get(&resolution.id)?;
        let (traffic_class, gid) = (record.options.type_of_service, gid_of(record.peer?.ip()));
        let mut found = None;
        let mut turn = resolution.begin;
        resolution.candidates.retain(|candidate| {
            let (place, index, _) = *candidate;
            if found.is_some() || now < turn {
                return true;
            }
            let management = &mut self.ports[place].management;
            let path = Path { port: management.port(), traffic_class, ..Path::new(gid, index) };
            match management.probe(&path) {
                Ok(()) => found = Some((*candidate, path)),
                Err(Errno::ETIMEDOUT) => turn += ALONE,
                Err(errno) => {
                    resolution.why = errno;
                    return false;
                }
            }
            true
        });
        match found {
            Some(found) => Some(Ok(found)),
            None if resolution.candidates.is_empty() => Some(Err(resolution.why)),
            None if now >= resolution.end => Some(Err(Errno::ETIMEDOUT)),
            None => None,
        }
    }

    fn resolved(&mut self, id: u64, found: Result<(Candidate, Path), Errno>) {
        let Some(record) = self.ids.get_mut(&id) else { return };
        match found {
            Ok(((place, _, own), path)) => {
                let number = record.local.map_or(0, |local| local.port());
                record.local = Some(SocketAddr::new(ip_of(own), number));
                (record.port, record.path) = (Some(place), Some(path));
                record.stage = Stage::AddressResolved;
                self.occur(id, What::AddressResolved);
            }
            Err(errno) => {
                record.stage = Stage::Bound;
                self.occur(id, What::AddressError(errno));
            }
        }
    }
}
