//! A port's state, its MTU and its GIDs, as types.

use std::cmp::Reverse;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use pollux_uverbs::Gid;

use crate::event::port_state_str;
use crate::{Context, PortAttributes, VerbsError};

/// Longest packet of a path, without headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[doc(alias = "ibv_mtu")]
pub enum Mtu {
    /// 256 bytes.
    Bytes256 = 1,
    /// 512 bytes.
    Bytes512 = 2,
    /// 1024 bytes.
    Bytes1024 = 3,
    /// 2048 bytes.
    Bytes2048 = 4,
    /// 4096 bytes.
    Bytes4096 = 5,
}

impl Mtu {
    /// All of them, in order.
    pub const ALL: [Self; 5] =
        [Self::Bytes256, Self::Bytes512, Self::Bytes1024, Self::Bytes2048, Self::Bytes4096];

    /// The MTU of a code of verbs. Source: rdma-core `libibverbs/verbs.h`, `enum ibv_mtu`.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.code() == code)
    }

    /// The MTU of exactly so many bytes.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| u64::from(mtu.bytes()) == bytes)
    }

    /// What a port's attributes say that it has now; 256 bytes where they say none.
    #[must_use]
    pub fn active(attributes: &PortAttributes) -> Self {
        Self::from_code(attributes.legacy_resp.active_mtu).unwrap_or(Self::Bytes256)
    }

    /// The largest one of at most so many bytes; that of 256 for fewer.
    #[must_use]
    pub fn at_most(bytes: u64) -> Self {
        Self::ALL.into_iter().rfind(|mtu| u64::from(mtu.bytes()) <= bytes).unwrap_or(Self::Bytes256)
    }

    /// Its code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

/// State of a port. Source: rdma-core `libibverbs/verbs.h`, `enum ibv_port_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "ibv_port_state")]
pub enum PortState {
    /// No link.
    Down,
    /// A link, no addresses yet.
    Init,
    /// Ready, not active yet.
    Armed,
    /// It carries data.
    Active,
    /// Active, and the link is away for a moment.
    ActiveDefer,
    /// Another code.
    Other(u8),
}

impl PortState {
    /// The state of a code of verbs.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            other => Self::Other(other),
        }
    }

    /// Its code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Down => 1,
            Self::Init => 2,
            Self::Armed => 3,
            Self::Active => 4,
            Self::ActiveDefer => 5,
            Self::Other(other) => other,
        }
    }
}

impl fmt::Display for PortState {
    /// In the words of rdma-core.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(port_state_str(self.code()))
    }
}

/// How good a GID is for a connection by addresses of one kind.
fn score(gid: &Gid, ipv6: bool) -> u32 {
    let address = Ipv6Addr::from(gid.gid);
    let mapped = address.to_ipv4_mapped();
    let local = mapped.map_or(address.is_unicast_link_local(), |address| address.is_link_local());
    100 * u32::from(mapped.is_none() == ipv6) + 10 * u32::from(!local) + gid.kind.0
}

/// See [`Context::best_gid`].
fn best_of(gids: impl IntoIterator<Item = Gid>, port: u8, ipv6: bool) -> Option<Gid> {
    let own = gids.into_iter().filter(|gid| gid.port == u32::from(port));
    own.max_by_key(|gid| (score(gid, ipv6), Reverse(gid.index)))
}

/// An address as a GID of RoCE: one of IPv4 in its place in IPv6.
#[must_use]
pub fn roce_gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Of those of a port the one of an address, of the newest kind.
fn of_address(gids: impl IntoIterator<Item = Gid>, port: u8, address: IpAddr) -> Option<Gid> {
    let wanted = roce_gid(address);
    let own = gids.into_iter().filter(|gid| gid.port == u32::from(port) && gid.gid == wanted);
    own.max_by_key(|gid| (gid.kind.0, Reverse(gid.index)))
}

impl Context {
    /// State of a port, from 1.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a port that is not there.
    pub fn port_state(&self, port: u8) -> Result<PortState, VerbsError> {
        Ok(PortState::from_code(self.port(port)?.legacy_resp.state))
    }

    /// MTU of a port as it is set now. A code that is none counts as 256 bytes, which every port has.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a port that is not there.
    pub fn active_mtu(&self, port: u8) -> Result<Mtu, VerbsError> {
        Ok(Mtu::active(&self.port(port)?))
    }

    /// The first port that carries data; `None`: none does.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn active_port(&self) -> Result<Option<u8>, VerbsError> {
        for port in 1..=self.device()?.base.phys_port_cnt {
            if self.port_state(port)? == PortState::Active {
                return Ok(Some(port));
            }
        }
        Ok(None)
    }

    /// The GID to connect by where none is chosen: of an IPv4 address if there is one (with `ipv6`, of an IPv6 one), not of this link
    /// alone if possible, RoCE v2 before v1, the first of the best. `None`: the port has none. Source: linux-rdma/perftest
    /// `src/perftest_communication.c`, `compute_gid_score`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn best_gid(&self, port: u8, ipv6: bool) -> Result<Option<Gid>, VerbsError> {
        Ok(best_of(self.gids()?, port, ipv6))
    }

    /// The GID of a port that stands for an IP address, RoCE v2 before v1, the first of the best. `None`: the port has none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn gid_of(&self, port: u8, address: IpAddr) -> Result<Option<Gid>, VerbsError> {
        Ok(of_address(self.gids()?, port, address))
    }
}

#[cfg(test)]
mod tests {
    use pollux_uverbs::abi::flags::GidType;

    use super::*;

    #[test]
    fn codes_and_bytes_belong_together() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            let mtu = Mtu::from_code(code).expect("an MTU");
            assert_eq!((mtu.code(), mtu.bytes(), Mtu::at_most(bytes.into())), (code, bytes, mtu));
            assert_eq!(Mtu::at_most(u64::from(bytes) + 1), mtu);
            assert_eq!(
                (Mtu::from_bytes(bytes.into()), Mtu::from_bytes(u64::from(bytes) + 1)),
                (Some(mtu), None)
            );
        }
        assert_eq!((Mtu::from_code(0), Mtu::from_code(6)), (None, None));
        assert_eq!((Mtu::at_most(0), Mtu::at_most(u64::MAX)), (Mtu::Bytes256, Mtu::Bytes4096));
        assert!((0..=9).all(|code| PortState::from_code(code).code() == code));
        assert_eq!(PortState::from_code(4), PortState::Active);
    }

    #[test]
    fn the_best_gid_is_of_the_wanted_kind_then_far_reaching_then_v2_then_first() {
        const LINK: &str = "fe80::1";
        const GLOBAL: &str = "2001:db8::1";
        const V4: &str = "::ffff:192.0.2.1";
        const V4_LINK: &str = "::ffff:169.254.0.1";
        let (v1, v2) = (GidType::ROCE_V1, GidType::ROCE_V2);
        let gid = |index, (address, kind): (&str, GidType)| Gid {
            gid: address.parse::<Ipv6Addr>().expect("an address").octets(),
            index,
            port: 1,
            kind,
            ifindex: None,
        };
        for (gids, best) in [
            // An IPv4 address, even one of the link, before any other; an IPv6 one where that is wanted.
            (&[(GLOBAL, v2), (V4_LINK, v1)][..], [1, 0]),
            // One that reaches beyond the link, by whichever version.
            (&[(LINK, v2), (GLOBAL, v1)], [1, 1]),
            (&[(V4_LINK, v2), (V4, v1)], [1, 1]),
            // Version 2.
            (&[(V4, v1), (V4, v2)], [1, 1]),
            // The first of two alike.
            (&[(V4, v2), (V4, v2)], [0, 0]),
        ] {
            let all: Vec<Gid> = (0..).zip(gids).map(|(index, one)| gid(index, *one)).collect();
            for (ipv6, best) in [false, true].into_iter().zip(best) {
                let other = Gid { port: 2, ..gid(9, if ipv6 { (GLOBAL, v2) } else { (V4, v2) }) };
                let found = best_of(all.iter().copied().chain([other]), 1, ipv6);
                assert_eq!(found.map(|gid| gid.index), Some(best), "{gids:?}, IPv6 {ipv6}");
            }
        }
        assert_eq!(best_of([gid(0, (V4, v2))], 2, false), None);
        let all: Vec<Gid> = (0..)
            .zip([(LINK, v2), (V4, v1), (V4, v2), (V4, v2), (GLOBAL, v1)])
            .map(|(index, one)| gid(index, one))
            .collect();
        let of = |port, text: &str| {
            let address = text.parse().expect("an address");
            of_address(all.iter().copied(), port, address).map(|gid| gid.index)
        };
        assert_eq!([of(1, "192.0.2.1"), of(1, GLOBAL), of(1, LINK)], [Some(2), Some(4), Some(0)]);
        assert_eq!([of(1, "192.0.2.2"), of(2, "192.0.2.1")], [None; 2]);
    }
}
