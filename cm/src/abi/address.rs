//! Addresses as the kernel has them: `struct sockaddr_in`, `struct sockaddr_in6` in the room of `struct sockaddr_storage`. Source: Linux
//! `include/uapi/linux/in.h`, `include/uapi/linux/in6.h`.

use std::net::{IpAddr, SocketAddr};

use pollux_uverbs::abi::connection::{ADDRESS_BYTES, IP_BYTES};

const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;
/// Source: Linux `include/linux/socket.h`, `AF_IB`; `include/rdma/ib.h`, `struct sockaddr_ib`.
pub(crate) const AF_IB: u16 = 27;
pub(crate) const IB_BYTES: usize = 48;

/// An address, and how many bytes of it count.
pub(crate) fn encode(address: SocketAddr) -> ([u8; ADDRESS_BYTES], u16) {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let (family, length) = match address {
        SocketAddr::V4(address) => {
            bytes[4..8].copy_from_slice(&address.ip().octets());
            (AF_INET, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(address) => {
            bytes[8..24].copy_from_slice(&address.ip().octets());
            bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            (AF_INET6, size_of::<libc::sockaddr_in6>())
        }
    };
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    (bytes, length as u16)
}

/// How many bytes an address of its family has; `None` of a family that is not known. Source: Linux `drivers/infiniband/core/addr.c`,
/// `rdma_addr_size`.
pub(crate) fn size(bytes: &[u8; ADDRESS_BYTES]) -> Option<u16> {
    let size = match u16::from_ne_bytes([bytes[0], bytes[1]]) {
        AF_INET => size_of::<libc::sockaddr_in>(),
        AF_INET6 => size_of::<libc::sockaddr_in6>(),
        AF_IB => IB_BYTES,
        _ => return None,
    };
    Some(size as u16)
}

/// One of IP in the room of any.
pub(crate) fn widen(bytes: &[u8; IP_BYTES]) -> [u8; ADDRESS_BYTES] {
    let mut wide = [0; ADDRESS_BYTES];
    wide[..IP_BYTES].copy_from_slice(bytes);
    wide
}

/// One of IP in a room for that alone.
pub(crate) fn narrow(wide: &[u8; ADDRESS_BYTES]) -> [u8; IP_BYTES] {
    let mut bytes = [0; IP_BYTES];
    bytes.copy_from_slice(&wide[..IP_BYTES]);
    bytes
}

/// The address; `None` of another family.
pub(crate) fn decode(bytes: &[u8; ADDRESS_BYTES]) -> Option<SocketAddr> {
    let ([family @ .., _, _], rest) = bytes.split_first_chunk::<4>()?;
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match u16::from_ne_bytes(*family) {
        AF_INET => IpAddr::from(*rest.first_chunk::<4>()?),
        AF_INET6 => IpAddr::from(*rest[4..].first_chunk::<16>()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_and_read() {
        for (text, bytes, family) in [("192.0.2.1:7174", 16, 2u16), ("[2001:db8::1]:1", 28, 10)] {
            let address: SocketAddr = text.parse().expect("an address");
            let (storage, told) = encode(address);
            assert_eq!((told, decode(&storage)), (bytes, Some(address)));
            assert_eq!(storage[..2], family.to_ne_bytes());
        }
        let (storage, _) = encode("192.0.2.1:7174".parse().expect("an address"));
        assert_eq!(storage[2..8], [0x1c, 0x06, 192, 0, 2, 1]);
        assert_eq!(decode(&[0; ADDRESS_BYTES]), None);
    }
}
