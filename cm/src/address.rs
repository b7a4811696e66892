//! Addresses by name, with what a connection to them or a listener at them takes. Source: rdma-core `librdmacm/addrinfo.c`,
//! `librdmacm/man/rdma_getaddrinfo.3`.
//!
//! Names are the system's affair (getaddrinfo(3)); whether a device leads to an address is found out by [`Id::resolve_address`] and
//! [`Id::bind`](crate::Id::bind). librdmacm asks `ibacm` besides, if that runs, for paths of InfiniBand: RoCE has none to be asked for.
//!
//! [`Id::resolve_address`]: crate::Id::resolve_address

use std::net::SocketAddr;

use dns_lookup::{AddrInfoHints, getaddrinfo};
use pollux_verbs::QpKind;

use crate::error::CmError;
use crate::service::PortSpace;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHints {
    /// Addresses to listen at, in the place of addresses to connect to.
    #[doc(alias = "RAI_PASSIVE")]
    pub passive: bool,
    /// The node is an address, and no name is looked up.
    #[doc(alias = "RAI_NUMERICHOST")]
    pub numeric_host: bool,
    /// Addresses of this family alone.
    #[doc(alias = "RAI_FAMILY")]
    pub family: Option<AddressFamily>,
    /// Connections, or datagrams.
    pub port_space: PortSpace,
    /// Where connections are to come from.
    pub source: Option<SocketAddr>,
}

impl AddressHints {
    /// Any address to connect to, from anywhere.
    #[must_use]
    pub fn new(port_space: PortSpace) -> Self {
        Self { passive: false, numeric_host: false, family: None, port_space, source: None }
    }
}

/// An address, with what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "rdma_addrinfo")]
pub struct AddressInfo {
    /// What its port is a port of: [`EventChannel::create_id`](crate::EventChannel::create_id).
    pub port_space: PortSpace,
    /// Of which kind queue pairs are.
    pub kind: QpKind,
    /// The local address: [`Id::bind`](crate::Id::bind), or the source of [`Id::resolve_address`](crate::Id::resolve_address).
    pub source: Option<SocketAddr>,
    /// The peer's; none of a listener.
    pub destination: Option<SocketAddr>,
}

/// Looks up the addresses of `node` (a host name or an address; this host, if it is not given) and `service` (a port's number or name; 0,
/// if it is not given), in the order in which they should be tried. Waits as long as the system does for its answer.
///
/// # Errors
/// [`CmError::Lookup`]: there is no such host, service or family of addresses; neither `node` nor `service` was given.
#[doc(alias = "rdma_getaddrinfo")]
pub fn address_info(
    node: Option<&str>,
    service: Option<&str>,
    hints: &AddressHints,
) -> Result<Vec<AddressInfo>, CmError> {
    let kind = match hints.port_space {
        PortSpace::Tcp => QpKind::Rc,
        PortSpace::Udp => QpKind::Ud,
    };
    let wanted = AddrInfoHints {
        flags: if hints.passive { libc::AI_PASSIVE } else { 0 }
            | if hints.numeric_host { libc::AI_NUMERICHOST } else { 0 },
        address: match hints.family {
            None => libc::AF_UNSPEC,
            Some(AddressFamily::V4) => libc::AF_INET,
            Some(AddressFamily::V6) => libc::AF_INET6,
        },
        socktype: match hints.port_space {
            PortSpace::Tcp => libc::SOCK_STREAM,
            PortSpace::Udp => libc::SOCK_DGRAM,
        },
        protocol: 0,
    };
    let failed = |source: std::io::Error| CmError::Lookup {
        node: node.unwrap_or_default().into(),
        service: service.unwrap_or_default().into(),
        source,
    };
    let found = getaddrinfo(node, service, Some(wanted)).map_err(|error| failed(error.into()))?;
    let mut all = Vec::new();
    for one in found {
        let address = one.map_err(failed)?.sockaddr;
        let (source, destination) =
            if hints.passive { (Some(address), None) } else { (hints.source, Some(address)) };
        let info = AddressInfo { port_space: hints.port_space, kind, source, destination };
        if !all.contains(&info) {
            all.push(info);
        }
    }
    if all.is_empty() { Err(failed(std::io::ErrorKind::NotFound.into())) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn look(node: Option<&str>, service: Option<&str>, hints: AddressHints) -> Vec<AddressInfo> {
        address_info(node, service, &hints).expect("addresses")
    }

    #[test]
    fn a_peer_is_a_destination_and_a_listener_a_source() {
        let peer: SocketAddr = "192.0.2.1:7174".parse().expect("an address");
        for (port_space, kind) in [(PortSpace::Tcp, QpKind::Rc), (PortSpace::Udp, QpKind::Ud)] {
            let hints = AddressHints { numeric_host: true, ..AddressHints::new(port_space) };
            let found = look(Some("192.0.2.1"), Some("7174"), hints);
            assert_eq!(found, [AddressInfo { port_space, kind, source: None, destination: Some(peer) }]);
            let from: SocketAddr = "192.0.2.9:0".parse().expect("an address");
            let found = look(Some("192.0.2.1"), Some("7174"), AddressHints { source: Some(from), ..hints });
            assert_eq!((found[0].source, found[0].destination), (Some(from), Some(peer)));
            let found = look(Some("192.0.2.1"), Some("7174"), AddressHints { passive: true, ..hints });
            assert_eq!((found[0].source, found[0].destination), (Some(peer), None));
        }
    }

    #[test]
    fn without_a_node_it_is_this_host() {
        let usual = AddressHints::new(PortSpace::Tcp);
        for (family, any, own) in [
            (AddressFamily::V4, Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into()),
            (AddressFamily::V6, Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()),
        ] {
            let hints = AddressHints { family: Some(family), ..usual };
            let listener = look(None, Some("18515"), AddressHints { passive: true, ..hints });
            assert_eq!(listener[0].source, Some(SocketAddr::new(any, 18515)));
            assert_eq!(look(None, Some("18515"), hints)[0].destination, Some(SocketAddr::new(own, 18515)));
        }
        let local = look(Some("localhost"), None, AddressHints { family: Some(AddressFamily::V4), ..usual });
        assert_eq!(local.len(), 1, "each address once: {local:?}");
        assert_eq!(local[0].destination, Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)));
    }

    #[test]
    fn what_is_not_found_is_one_line() {
        let usual = AddressHints::new(PortSpace::Tcp);
        let numeric = AddressHints { numeric_host: true, ..usual };
        let v6 = AddressHints { family: Some(AddressFamily::V6), numeric_host: true, ..usual };
        for (node, service, hints, named) in [
            (Some("localhost"), Some("1"), numeric, "localhost"),
            (Some("192.0.2.1"), Some("1"), v6, "192.0.2.1"),
            (Some("192.0.2.1"), Some("no-such-service"), usual, "no-such-service"),
            (Some("nul\0inside"), None, usual, "inside"),
            (None, None, usual, "neither"),
        ] {
            let error = address_info(node, service, &hints).expect_err(named).to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}
