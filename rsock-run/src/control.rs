//! What the library and the launcher say to each other: a request and its answer are one packet each, of a fixed length, over a unix
//! socket of packets.
//!
//! ```text
//!   Bind     an address that the kernel does not have    Stand: bind there in its place | Kernel
//!   Bound    where the socket stands, and what is meant  Done
//!   Listen   where the socket stands, of IPv4 as well     Done
//!   Connect  where the socket stands, and the peer       Stand: connect there in its place | Kernel | Refused
//!   Connected  the socket's address then                 Done
//!   Names    the socket's addresses                      Names: those to tell the program | Kernel
//! ```
//!
//! The answers to `Connect` and `Names` may come later: once a peer has answered, and once who was told to connect there has said `Connected`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The variable of the environment that has the path of the launcher's socket.
pub const VARIABLE: &str = "RSOCK_RUN";

/// Bytes of an address: family, IP, port.
const ADDRESS: usize = 19;
/// Bytes of a packet: kind, errno, two addresses.
pub const BYTES: usize = 5 + 2 * ADDRESS;

/// What the library asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The kernel has no such address to bind to. A loopback address is told to be the program's own choice.
    Bind(SocketAddr),
    /// The socket is bound to the first address, and the program means the second.
    Bound(SocketAddr, SocketAddr),
    /// The socket listens at this address of the kernel's. `true`: it is one of any address of IPv6, and takes those of IPv4 as well.
    Listen(SocketAddr, bool),
    /// The socket, which is bound to the first address if there is one, shall be connected to the second.
    Connect(Option<SocketAddr>, SocketAddr),
    /// The socket that was told where to connect has this address.
    Connected(SocketAddr),
    /// Which addresses a socket has that the kernel has at these, the second being its peer's.
    Names(SocketAddr, Option<SocketAddr>),
}

/// What the launcher answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Noted.
    Done,
    /// The launcher has nothing to do with it.
    Kernel,
    /// This address in place of the program's.
    Stand(SocketAddr),
    /// The call fails with this errno.
    Refused(i32),
    /// The addresses to tell the program: its own, and its peer's.
    Names(SocketAddr, Option<SocketAddr>),
}

/// Bytes that are no packet of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Request {
    /// As it goes over the socket.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        match *self {
            Self::Bind(address) => packet(1, 0, Some(address), None),
            Self::Bound(at, meant) => packet(2, 0, Some(at), Some(meant)),
            Self::Listen(at, false) => packet(3, 0, Some(at), None),
            Self::Listen(at, true) => packet(7, 0, Some(at), None),
            Self::Connect(at, peer) => packet(4, 0, at, Some(peer)),
            Self::Connected(at) => packet(5, 0, Some(at), None),
            Self::Names(at, peer) => packet(6, 0, Some(at), peer),
        }
    }

    /// Reads one, which may be a stranger's.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(match parts(bytes)? {
            (1, 0, Some(address), None) => Self::Bind(address),
            (2, 0, Some(at), Some(meant)) => Self::Bound(at, meant),
            (3, 0, Some(at), None) => Self::Listen(at, false),
            (7, 0, Some(at), None) => Self::Listen(at, true),
            (4, 0, at, Some(peer)) => Self::Connect(at, peer),
            (5, 0, Some(at), None) => Self::Connected(at),
            (6, 0, Some(at), peer) => Self::Names(at, peer),
            _ => return Err(Malformed),
        })
    }
}

impl Answer {
    /// As it goes over the socket.
    #[must_use]
    pub fn encode(&self) -> [u8; BYTES] {
        match *self {
            Self::Done => packet(11, 0, None, None),
            Self::Kernel => packet(12, 0, None, None),
            Self::Stand(address) => packet(13, 0, Some(address), None),
            Self::Refused(errno) => packet(14, errno, None, None),
            Self::Names(at, peer) => packet(15, 0, Some(at), peer),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        Ok(match parts(bytes)? {
            (11, 0, None, None) => Self::Done,
            (12, 0, None, None) => Self::Kernel,
            (13, 0, Some(address), None) => Self::Stand(address),
            (14, errno @ 1..=4095, None, None) => Self::Refused(errno),
            (15, 0, Some(at), peer) => Self::Names(at, peer),
            _ => return Err(Malformed),
        })
    }
}

fn packet(kind: u8, errno: i32, first: Option<SocketAddr>, second: Option<SocketAddr>) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[0] = kind;
    bytes[1..5].copy_from_slice(&errno.to_be_bytes());
    put(&mut bytes[5..5 + ADDRESS], first);
    put(&mut bytes[5 + ADDRESS..], second);
    bytes
}

type Parts = (u8, i32, Option<SocketAddr>, Option<SocketAddr>);

fn parts(bytes: &[u8]) -> Result<Parts, Malformed> {
    let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| Malformed)?;
    let errno = i32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
    Ok((bytes[0], errno, take(&bytes[5..5 + ADDRESS])?, take(&bytes[5 + ADDRESS..])?))
}

fn put(place: &mut [u8], address: Option<SocketAddr>) {
    let Some(address) = address else { return };
    match address.ip() {
        IpAddr::V4(ip) => {
            place[0] = 4;
            place[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            place[0] = 6;
            place[1..17].copy_from_slice(&ip.octets());
        }
    }
    place[17..].copy_from_slice(&address.port().to_be_bytes());
}

fn take(place: &[u8]) -> Result<Option<SocketAddr>, Malformed> {
    let place: &[u8; ADDRESS] = place.try_into().map_err(|_| Malformed)?;
    let mut ip = [0; 16];
    ip.copy_from_slice(&place[1..17]);
    let ip = match place[0] {
        0 => return if place[1..] == [0; ADDRESS - 1] { Ok(None) } else { Err(Malformed) },
        4 if ip[4..] == [0; 12] => Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]).into(),
        6 => Ipv6Addr::from(ip).into(),
        _ => return Err(Malformed),
    };
    Ok(Some(SocketAddr::new(ip, u16::from_be_bytes([place[17], place[18]]))))
}

/// An address with an IPv4 address in IPv6 as the IPv4 address that it is.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> [SocketAddr; 3] {
        ["10.0.0.1:5201", "[2001:db8::7]:65535", "[::ffff:127.0.0.1]:0"]
            .map(|text| text.parse().expect("one"))
    }

    #[test]
    fn packets_are_read_as_they_were_written() {
        for one in addresses() {
            for two in addresses() {
                for request in [
                    Request::Bind(one),
                    Request::Bound(one, two),
                    Request::Listen(one, false),
                    Request::Listen(one, true),
                    Request::Connect(None, one),
                    Request::Connect(Some(one), two),
                    Request::Connected(one),
                    Request::Names(one, None),
                    Request::Names(one, Some(two)),
                ] {
                    assert_eq!(Request::decode(&request.encode()), Ok(request));
                    assert_eq!(Answer::decode(&request.encode()), Err(Malformed));
                }
                for answer in [
                    Answer::Done,
                    Answer::Kernel,
                    Answer::Stand(one),
                    Answer::Refused(111),
                    Answer::Names(one, None),
                    Answer::Names(one, Some(two)),
                ] {
                    assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
                    assert_eq!(Request::decode(&answer.encode()), Err(Malformed));
                }
            }
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let good = Request::Connect(None, addresses()[0]).encode();
        for length in (0..BYTES).chain([BYTES + 1, 4096]) {
            let bytes: Vec<u8> = good.iter().copied().cycle().take(length).collect();
            assert_eq!(Request::decode(&bytes), Err(Malformed), "{length} bytes");
        }
        // Every byte at every place: what is read is written the same again.
        for at in 0..BYTES {
            for value in 0..=u8::MAX {
                let mut bytes = good;
                bytes[at] = value;
                if let Ok(request) = Request::decode(&bytes) {
                    assert_eq!(request.encode(), bytes);
                }
                if let Ok(answer) = Answer::decode(&bytes) {
                    assert_eq!(answer.encode(), bytes);
                }
            }
        }
    }
}
