//! net_udp: a driver. Each frame is the payload of a UDP datagram, from one address to another.
//!
//! It takes no privileges and loses frames where UDP does: when the other end is not there, or is slower.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use pollux::config::{ConfigError, KeyReader};
use pollux::port::PortError;
use pollux::prelude::*;
use pollux::soft::datagram::{DatagramPort, Datagrams};

/// What the device argument says: `net_udp0,local=127.0.0.1:4000,peer=127.0.0.1:4001`.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// `local`: where frames arrive.
    pub local: SocketAddr,
    /// `peer`: where they go, and who alone may send some.
    pub peer: SocketAddr,
}

impl UdpOptions {
    /// Reads them. Keys that are left over are refused by whoever calls.
    ///
    /// # Errors
    /// A key is missing, or its value is no address.
    pub fn read(keys: &mut KeyReader<'_>) -> Result<Self, ConfigError> {
        let local: SocketAddr = keys.parsed("local", "127.0.0.1:4000")?;
        let peer: SocketAddr = keys.parsed("peer", "127.0.0.1:4001")?;
        if local.is_ipv4() != peer.is_ipv4() {
            let problem = "is not of the same family as local=: give both IPv4 or both IPv6 addresses";
            return Err(keys.bad("peer", &peer.to_string(), problem));
        }
        Ok(Self { local, peer })
    }
}

/// The socket, connected.
#[derive(Debug)]
pub struct Udp(UdpSocket);

impl Datagrams for Udp {
    // The kernel tells here, too, that an earlier datagram found nobody: then the burst ends early.
    fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        self.0.recv(room)
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(drop)
    }
}

/// Opens a port.
///
/// # Errors
/// [`PortError::Device`], with what the kernel said.
pub fn open(name: &str, UdpOptions { local, peer }: UdpOptions) -> Result<DatagramPort<Udp>, PortError> {
    let socket = UdpSocket::bind(local).map_err(|why| PortError::device(format!("bind to {local}"), why))?;
    let connected = socket.connect(peer).and_then(|()| socket.set_nonblocking(true));
    connected.map_err(|why| PortError::device(format!("connect to {peer}"), why))?;
    let local = socket.local_addr().map_err(|why| PortError::device("read the address", why))?;
    // Locally administered (IEEE 802), and another for each UDP port of a machine: both ends may be called net_udp0.
    let [high, low] = local.port().to_be_bytes();
    let mac = MacAddress([0x02, b'u', b'd', b'p', high, low]);
    Ok(DatagramPort::new("net_udp", name, Udp(socket)).device(local.to_string()).mac(mac))
}

/// All drivers of Pollux, and this one.
///
/// # Errors
/// None: no other has the name.
pub fn drivers() -> Result<Drivers, BringupError> {
    let mut drivers = Drivers::new();
    drivers.add("net_udp", UdpOptions::read, |name, options, _| open(name, options))?;
    Ok(drivers)
}
