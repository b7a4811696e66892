//! Addresses of sockets as programs give and get them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// Room for either family.
#[repr(C)]
pub(super) union Raw {
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

/// Reads an address of IP. `None` for any other.
///
/// # Safety
/// `address` is null, or leads to `bytes` bytes.
pub(super) unsafe fn read(address: *const sockaddr, bytes: socklen_t) -> Option<SocketAddr> {
    let bytes = bytes as usize;
    if address.is_null() || bytes < size_of::<sa_family_t>() {
        return None;
    }
    // SAFETY: so many bytes are there; programs align them as they like.
    let family = i32::from(unsafe { ptr::read_unaligned(address.cast::<sa_family_t>()) });
    match family {
        libc::AF_INET if bytes >= size_of::<sockaddr_in>() => {
            // SAFETY: as above, and any bytes are one.
            let raw = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in>()) };
            let ip = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(raw.sin_port)))
        }
        libc::AF_INET6 if bytes >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above, and any bytes are one.
            let raw = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in6>()) };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, 0).into())
        }
        _ => None,
    }
}

impl Raw {
    /// An address for a socket of a family, in which an address of IPv4 has its place in IPv6. `None` for one that the family has not.
    pub(super) fn new(address: SocketAddr, is_v6: bool) -> Option<(Self, socklen_t)> {
        let port = address.port().to_be();
        match (address.ip().to_canonical(), is_v6) {
            (IpAddr::V4(ip), false) => {
                let sin_addr = libc::in_addr { s_addr: u32::from(ip).to_be() };
                let v4 = sockaddr_in {
                    sin_family: libc::AF_INET as sa_family_t,
                    sin_port: port,
                    sin_addr,
                    sin_zero: [0; 8],
                };
                Some((Self { v4 }, size_of::<sockaddr_in>() as socklen_t))
            }
            (ip, true) => {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                let v6 = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as sa_family_t,
                    sin6_port: port,
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                    sin6_scope_id: 0,
                };
                Some((Self { v6 }, size_of::<sockaddr_in6>() as socklen_t))
            }
            (IpAddr::V6(_), false) => None,
        }
    }

    pub(super) fn as_ptr(&self) -> *const sockaddr {
        ptr::from_ref(self).cast()
    }
}

/// Writes an address where the C library has written one, cut to the room that the program gave.
///
/// # Safety
/// `into` has room for `room` bytes, and `bytes` is the program's place for the length.
pub(super) unsafe fn write(
    address: SocketAddr,
    is_v6: bool,
    into: *mut sockaddr,
    room: socklen_t,
    bytes: *mut socklen_t,
) {
    let Some((raw, length)) = Raw::new(address, is_v6) else { return };
    // SAFETY: not more than either has; the place for the length is there, as the caller says.
    unsafe {
        ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), into.cast::<u8>(), length.min(room) as usize);
        *bytes = length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written_and_cut_where_room_ends() {
        for (text, is_v6, back) in [
            ("10.0.0.1:80", false, "10.0.0.1:80"),
            ("10.0.0.1:80", true, "[::ffff:10.0.0.1]:80"),
            ("[2001:db8::1]:65535", true, "[2001:db8::1]:65535"),
        ] {
            let address = text.parse().expect("an address");
            let (raw, length) = Raw::new(address, is_v6).expect("of the family");
            // SAFETY: so many bytes are there.
            assert_eq!(unsafe { read(raw.as_ptr(), length) }, Some(back.parse().expect("an address")));
            // SAFETY: fewer than there are.
            assert_eq!(unsafe { read(raw.as_ptr(), length - 1) }, None);
            let (mut room, mut told) = ([0xaa_u8; 64], 0);
            // SAFETY: the room is larger than what may be written.
            unsafe { write(address, is_v6, room.as_mut_ptr().cast(), 3, &raw mut told) };
            assert_eq!((told, room[3..].iter().all(|byte| *byte == 0xaa)), (length, true));
        }
        assert!(Raw::new("[2001:db8::1]:1".parse().expect("one"), false).is_none());
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(ptr::null(), 16) }, None);
    }
}
