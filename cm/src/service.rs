//! Services: how ports of TCP and UDP, and addresses of IP, become what the connection manager knows.

use std::net::{IpAddr, SocketAddr};

use pollux_uverbs::abi::connection::space;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a port number is a port of. Source: Linux `include/uapi/rdma/rdma_user_cm.h`, `enum rdma_ucm_port_space`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "rdma_port_space")]
pub enum PortSpace {
    /// Connections: queue pairs of RC.
    Tcp,
    /// Datagrams: queue pairs of UD.
    Udp,
}

impl PortSpace {
    /// Its code.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Tcp => space::TCP,
            Self::Udp => space::UDP,
        }
    }

    /// The service of a port. Source: Linux `drivers/infiniband/core/cma.c`, `rdma_get_service_id`.
    #[must_use]
    pub const fn service(self, port: u16) -> u64 {
        (self.code() as u64) << 16 | port as u64
    }
}

/// Who connects to whom: the private data of a request begin with it. Source: Linux `drivers/infiniband/core/cma.c`, `struct cma_hdr`;
/// InfiniBand Architecture Specification, volume 1, annex A11.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub(crate) struct IpHeader {
    version: u8,
    /// 4 or 6, in the high 4 bits.
    ip_version: u8,
    /// Port of the source.
    port: U16,
    source: [u8; 16],
    destination: [u8; 16],
}

/// Its bytes.
pub(crate) const IP_HEADER_BYTES: usize = 36;
const _: () = assert!(size_of::<IpHeader>() == IP_HEADER_BYTES);

impl IpHeader {
    /// From one address to another of the same family.
    pub(crate) fn new(source: SocketAddr, destination: IpAddr) -> Self {
        let place = |address: IpAddr| match address {
            IpAddr::V4(address) => {
                let mut bytes = [0; 16];
                bytes[12..].copy_from_slice(&address.octets());
                bytes
            }
            IpAddr::V6(address) => address.octets(),
        };
        Self {
            version: 0,
            ip_version: if destination.is_ipv4() { 4 << 4 } else { 6 << 4 },
            port: source.port().into(),
            source: place(source.ip()),
            destination: place(destination),
        }
    }

    /// Reads one: the source, and the address that it asks for. `None` for another version.
    pub(crate) fn read(private: &[u8]) -> Option<(SocketAddr, IpAddr)> {
        let (header, _) = Self::read_from_prefix(private).ok()?;
        let place: fn([u8; 16]) -> IpAddr = match (header.version, header.ip_version >> 4) {
            (0, 4) => |bytes| IpAddr::from([bytes[12], bytes[13], bytes[14], bytes[15]]),
            (0, 6) => IpAddr::from,
            _ => return None,
        };
        Some((SocketAddr::new(place(header.source), header.port.get()), place(header.destination)))
    }
}

pub(crate) use pollux_verbs::roce_gid as gid_of;

/// The address that a GID stands for.
#[must_use]
pub(crate) fn ip_of(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_service() {
        // As `rping -p 7174` asks for it.
        assert_eq!(PortSpace::Tcp.service(7174), 0x0000_0000_0106_1c06);
        assert_eq!(PortSpace::Udp.service(1), 0x0111_0001);
    }

    #[test]
    fn both_addresses_are_told() {
        for (source, destination) in [("192.0.2.1:4000", "192.0.2.2"), ("[2001:db8::1]:65535", "2001:db8::2")]
        {
            let (source, destination): (SocketAddr, IpAddr) =
                (source.parse().expect("an address"), destination.parse().expect("an address"));
            let header = IpHeader::new(source, destination);
            assert_eq!(IpHeader::read(header.as_bytes()), Some((source, destination)));
            assert_eq!(ip_of(gid_of(destination)), destination);
        }
        let header = IpHeader::new("192.0.2.1:4000".parse().expect("one"), "192.0.2.2".parse().expect("one"));
        let bytes = header.as_bytes();
        assert_eq!(bytes[..4], [0, 0x40, 0x0f, 0xa0]);
        assert_eq!(bytes[16..20], [192, 0, 2, 1]);
        let mut other = [0; IP_HEADER_BYTES];
        other.copy_from_slice(bytes);
        other[0] = 1;
        assert_eq!(IpHeader::read(&other), None);
        other[..2].copy_from_slice(&[0, 0x50]);
        assert_eq!(IpHeader::read(&other), None);
        assert_eq!(IpHeader::read(&bytes[..35]), None);
    }
}
