//! What the kernel has: sockets of this host, routes, ports that are listened at.

use std::collections::HashSet;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// A listener on loopback, of the family of `ip`.
pub(crate) fn inlet(ip: IpAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(SocketAddr::new(ip, 0))?;
    listener.set_nonblocking(true)?;
    // Once more, with more room.
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Connects to an address of this host, from one of loopback if it is given, without waiting for it.
pub(crate) fn connect_here(to: SocketAddr, from: Option<Ipv4Addr>) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(from) = from {
        // A program may listen at the same port of any address.
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddr::new(from.into(), 0))?;
    }
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let socket = TcpStream::from(socket);
    // On this host a refusal is known already.
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Whether the kernel has a route to an address other than its default one.
pub(crate) fn leads_to(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => fs::read_to_string("/proc/net/route").is_ok_and(|table| has_route(&table, ip)),
        IpAddr::V6(ip) => {
            let probe = || -> io::Result<SocketAddr> {
                let socket = UdpSocket::bind("[::]:0")?;
                socket.connect(SocketAddr::new(ip.into(), 9))?;
                socket.local_addr()
            };
            let first = |ip: std::net::Ipv6Addr| ip.to_bits() >> 64;
            probe().is_ok_and(|local| matches!(local.ip(), IpAddr::V6(local) if first(local) == first(ip)))
        }
    }
}

/// Source: Linux `net/ipv4/fib_trie.c`, `fib_route_seq_show`.
fn has_route(table: &str, ip: Ipv4Addr) -> bool {
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::from_be);
    table.lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let destination = words.get(1).and_then(|text| number(text));
        let mask = words.get(7).and_then(|text| number(text));
        destination.zip(mask).is_some_and(|(to, mask)| mask != 0 && ip.to_bits() & mask == to)
    })
}

/// The ports at which anybody listens, which come first: other sockets may be thousands. Source: Linux `net/ipv4/tcp_ipv4.c`,
/// `tcp_get_idx` and `get_tcp4_sock`.
pub(crate) fn listened() -> HashSet<u16> {
    const LISTEN: &str = "0A";
    let mut ports = HashSet::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(table) = fs::File::open(path) else { continue };
        let listening = |line: String| {
            let mut words = line.split_whitespace();
            let local = words.nth(1)?;
            if words.nth(1)? != LISTEN {
                return None;
            }
            u16::from_str_radix(local.rsplit(':').next()?, 16).ok()
        };
        ports.extend(BufReader::new(table).lines().skip(1).map_while(Result::ok).map_while(listening));
    }
    ports
}
