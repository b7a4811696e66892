//! Datagram sockets of RDMA, or of the kernel for comparison.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use pollux_cm::Manager;
use pollux_rsocket::{PollEntry, RsDatagramSocket, RsOptions, poll};

/// The longest datagram of UDP over IPv4.
const UDP_MAX: usize = 65_507;

/// A socket whose calls do not wait.
#[derive(Debug)]
pub enum Socket {
    /// Of RDMA.
    Rdma(RsDatagramSocket),
    /// Of the kernel.
    Udp(UdpSocket),
}

impl Socket {
    /// Binds one: of RDMA where there is a manager. `half` is librdmacm's `SO_SNDBUF` and `SO_RCVBUF`, of which sockets have the double.
    ///
    /// # Errors
    /// What the socket says.
    pub fn bind(manager: Option<&Manager>, local: SocketAddr, half: usize) -> io::Result<Self> {
        let Some(manager) = manager else {
            let socket = UdpSocket::bind(local)?;
            socket.set_nonblocking(true)?;
            return Ok(Self::Udp(socket));
        };
        let options = RsOptions::default().send_buffer(2 * half).receive_buffer(2 * half).nonblocking(true);
        Ok(Self::Rdma(RsDatagramSocket::bind_with(manager, local, &options)?))
    }

    /// Whether threads of the kernel do the work of its RDMA device.
    #[must_use]
    pub fn is_software(&self) -> bool {
        matches!(self, Self::Rdma(socket) if socket.is_software())
    }

    /// Sets the only peer.
    ///
    /// # Errors
    /// What the socket says.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        match self {
            Self::Rdma(socket) => socket.connect(peer),
            Self::Udp(socket) => socket.connect(peer),
        }
    }

    /// Its address.
    ///
    /// # Errors
    /// What the socket says.
    pub fn local(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Rdma(socket) => socket.local_addr(),
            Self::Udp(socket) => socket.local_addr(),
        }
    }

    /// Bytes of the longest datagram to the peer.
    ///
    /// # Errors
    /// It has none.
    pub fn longest(&self) -> io::Result<usize> {
        match self {
            Self::Rdma(socket) => socket.max_datagram(None),
            Self::Udp(_) => Ok(UDP_MAX),
        }
    }

    /// Of RDMA: how many datagrams were sent, by a queue pair and by UDP.
    #[must_use]
    pub fn sent(&self) -> Option<[u64; 2]> {
        match self {
            Self::Rdma(socket) => Some([socket.counts().sent, socket.counts().sent_by_udp]),
            Self::Udp(_) => None,
        }
    }

    /// Sends a datagram, to the only peer if none is given.
    ///
    /// # Errors
    /// [`WouldBlock`](ErrorKind::WouldBlock), or what is wrong.
    pub fn send(&self, data: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        match (self, to) {
            (Self::Rdma(socket), Some(to)) => socket.send_to(data, to),
            (Self::Rdma(socket), None) => socket.send(data),
            (Self::Udp(socket), Some(to)) => socket.send_to(data, to),
            (Self::Udp(socket), None) => socket.send(data),
        }
    }

    /// Receives a datagram.
    ///
    /// # Errors
    /// [`WouldBlock`](ErrorKind::WouldBlock), or what is wrong.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Self::Rdma(socket) => socket.recv_from(into),
            Self::Udp(socket) => socket.recv_from(into),
        }
    }

    /// Waits until a datagram can be received, or sent; whether that is so.
    ///
    /// # Errors
    /// What the socket says.
    pub fn wait(&self, receives: bool, time: Duration) -> io::Result<bool> {
        match self {
            Self::Rdma(socket) => {
                Ok(poll(&mut [PollEntry::datagrams(socket, receives, !receives)], Some(time))? > 0)
            }
            Self::Udp(socket) if receives => {
                socket.set_nonblocking(false)?;
                socket.set_read_timeout(Some(time))?;
                let seen = socket.peek_from(&mut [0]);
                socket.set_nonblocking(true)?;
                match seen {
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        Ok(false)
                    }
                    // Whoever looks has taken it.
                    Err(error) => Err(error),
                    Ok(_) => Ok(true),
                }
            }
            // The kernel's buffer is never full for long.
            Self::Udp(_) => Ok(true),
        }
    }
}
