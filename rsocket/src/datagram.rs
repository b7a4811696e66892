//! Datagram sockets.

mod counts;
mod peers;
mod queue;
mod socket;
mod wire;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pollux_cm::Manager;

use crate::end::Readiness;
use crate::error::RsError;
use crate::options::RsOptions;
use crate::wait::{self, EventSource, Sleepers, Source};
use socket::Socket;

pub use counts::RsDatagramCounts;

/// A datagram socket over RDMA, as [`UdpSocket`](std::net::UdpSocket) is one of the kernel's. Calls go by a shared reference, from any thread.
///
/// Its address is that of a UDP socket of the kernel's, by which two sockets tell each other their queue pairs; what is sent before they have
/// goes that way as well. So the address must be one of the machine's and of an RDMA device: on a card's interface it is both. A device
/// model has to be given an address that the machine has, such as `ip=127.0.0.2/8`.
///
/// As with UDP, datagrams can be lost, and come in another order: those of a peer that is met first may overtake each other. Nobody checks
/// who sends: the protocol has neither secrets nor signatures.
///
/// A datagram has at most [`max_datagram`](Self::max_datagram) bytes.
///
/// ```
/// use pollux_cm::{ManagementPort, Manager};
/// use pollux_mlx5_kernel::DoorProfile;
/// use pollux_mlx5_model::{Model, wire::Cable};
/// use pollux_rsocket::RsDatagramSocket;
/// use pollux_verbs::{Context, Options, Provider};
///
/// # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// // Two devices and the cable between them.
/// let door = DoorProfile { management: true, ..DoorProfile::NEWEST };
/// let (near, far) = Cable::pair();
/// let model = |name, plug, ip: &str| -> Result<Model> {
///     Ok(Model::builder(name).door(door).plugged(plug).ip(ip.parse()?).build()?)
/// };
/// let (near, far) = (model("near", near, "127.0.0.1/8")?, model("far", far, "127.0.0.2/8")?);
/// let manager = |model: &Model| -> Result<Manager> {
///     let context = Context::open(model.open(), Provider::Mlx5, Options::default())?;
///     Ok(Manager::over(vec![ManagementPort::open(&context, 1)?]))
/// };
/// let server = RsDatagramSocket::bind(&manager(&far)?, "127.0.0.2:0".parse()?)?;
/// let client = RsDatagramSocket::bind(&manager(&near)?, "127.0.0.1:0".parse()?)?;
/// client.connect(server.local_addr()?)?;
/// client.send(b"ping")?;
/// let mut bytes = [0; 64];
/// let (length, peer) = server.recv_from(&mut bytes)?;
/// server.send_to(&bytes[..length], peer)?;
/// assert_eq!((client.recv(&mut bytes)?, &bytes[..4]), (4, &b"ping"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "rsocket")]
pub struct RsDatagramSocket(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: Mutex<Socket>,
    manager: Manager,
    sleepers: Sleepers,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Socket> {
        // A call leaves no change half done that another would believe.
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Shared {
    fn advance(&self, thorough: bool) {
        self.lock().advance(thorough);
    }

    fn arm(&self, events: &mut Vec<EventSource>) {
        self.lock().arm(events);
    }

    fn disarm(&self) -> bool {
        self.lock().disarm()
    }

    fn sleepers(&self) -> Option<&Sleepers> {
        Some(&self.sleepers)
    }

    fn is_software(&self) -> bool {
        self.lock().is_software()
    }

    fn nap(&self) -> Duration {
        wait::nap(&self.manager, self.lock().is_settled())
    }
}

impl RsDatagramSocket {
    /// Binds to an address with the default options; port 0 is any that is free, and an unspecified address any of the machine's.
    ///
    /// # Errors
    /// An address that the machine or its RDMA devices do not have, or a port in use.
    #[doc(alias = "rbind")]
    pub fn bind(manager: &Manager, address: SocketAddr) -> io::Result<Self> {
        Self::bind_with(manager, address, &RsOptions::default())
    }

    /// Binds to an address. Of the options, [`send_buffer`](RsOptions::send_buffer) and [`receive_buffer`](RsOptions::receive_buffer) hold
    /// datagrams in units of 2048 bytes, up to [`depth`](RsOptions::depth) many; `maps` and `keepalive` are of streams alone.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with(manager: &Manager, address: SocketAddr, options: &RsOptions) -> io::Result<Self> {
        let socket = Mutex::new(Socket::bind(manager, address, options)?);
        Ok(Self(Arc::new(Shared { socket, manager: manager.clone(), sleepers: Sleepers::new()? })))
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.0
    }

    /// What can be done now, as it was seen by the last call.
    pub(crate) fn readiness(&self) -> Readiness {
        self.0.lock().readiness()
    }

    pub(crate) fn spin(&self) -> Duration {
        self.0.lock().options.spin
    }

    /// Does something at once, or waits where that is allowed.
    fn done<T>(&self, mut attempt: impl FnMut(&mut Socket) -> io::Result<T>) -> io::Result<T> {
        let spin = {
            let mut socket = self.0.lock();
            socket.advance(false);
            match attempt(&mut socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && !socket.options.nonblocking => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && socket.has_to_look() => {
                    socket.advance(true);
                    return attempt(&mut socket);
                }
                other => return other,
            }
            socket.options.spin
        };
        let done = wait::until(&[&*self.0], spin, None, || match attempt(&mut self.0.lock()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            other => Some(other),
        });
        done.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
    }

    /// Sends a datagram to a peer, and returns its length. It waits while all send buffers are in use.
    ///
    /// # Errors
    /// More bytes than [`max_datagram`](Self::max_datagram), a peer of the other IP version, no RDMA device towards the peer, or what
    /// [`take_error`](Self::take_error) would tell.
    #[doc(alias = "rsendto")]
    pub fn send_to(&self, data: &[u8], peer: SocketAddr) -> io::Result<usize> {
        self.done(|socket| socket.send(Some(peer), data))
    }

    /// Receives a datagram, and returns its length and who sent it. What is longer than `into` is cut.
    ///
    /// # Errors
    /// What [`take_error`](Self::take_error) would tell.
    #[doc(alias = "rrecvfrom")]
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.done(|socket| socket.receive(into, false))
    }

    /// As [`recv_from`](Self::recv_from), but leaves the datagram where it is.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.done(|socket| socket.receive(into, true))
    }

    /// Sets the peer of [`send`](Self::send), whose datagrams alone are received from now on. Nothing is sent: whether anybody is there shows
    /// later. Once more to the same peer, it is met anew, as one has to be that began anew and does not say so.
    ///
    /// # Errors
    /// A peer of the other IP version, or no RDMA device towards the peer.
    #[doc(alias = "rconnect")]
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.0.lock().connect(peer)
    }

    /// Sends a datagram to the peer of [`connect`](Self::connect).
    ///
    /// # Errors
    /// No such peer ([`NotConnected`](ErrorKind::NotConnected)), nobody at its port as long as it was not met
    /// ([`ConnectionRefused`](ErrorKind::ConnectionRefused), told by a later call), or as [`send_to`](Self::send_to).
    #[doc(alias = "rsend")]
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.done(|socket| socket.send(None, data))
    }

    /// As [`recv_from`](Self::recv_from), of a socket that knows who sends.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from); nobody at the port of a peer that was not met ([`ConnectionRefused`](ErrorKind::ConnectionRefused)).
    #[doc(alias = "rrecv")]
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv_from(into)?.0)
    }

    /// The most bytes of a datagram to `peer`, or to the peer of [`connect`](Self::connect): what fits into a packet of the port's MTU, and
    /// at most 2032 bytes over IPv4, 2020 over IPv6, the buffers of librdmacm less its headers.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), or no peer.
    pub fn max_datagram(&self, peer: Option<SocketAddr>) -> io::Result<usize> {
        self.0.lock().data_max(peer)
    }

    /// Another handle of the same socket.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    /// Whether calls fail with [`WouldBlock`](ErrorKind::WouldBlock) where they would wait.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.lock().options.nonblocking = on;
        Ok(())
    }

    /// Whether a device that it has sent through or is bound to is one in software: as
    /// [`RsStream::is_software`](crate::RsStream::is_software).
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.0.lock().is_software()
    }

    /// Our address, unspecified as long as the socket is bound to any and not connected.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "rgetsockname")]
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.lock().local()
    }

    /// The peer of [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`NotConnected`](ErrorKind::NotConnected).
    #[doc(alias = "rgetpeername")]
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.lock().peer().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// What went wrong since the last call that told it, once. The socket goes on.
    ///
    /// # Errors
    /// None; it is `std`'s signature.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.lock().take_error().map(RsError::into))
    }

    /// What was sent, received and dropped so far.
    #[must_use]
    pub fn counts(&self) -> RsDatagramCounts {
        self.0.lock().counts()
    }
}
