//! What tells one flow of packets from another.

use std::fmt;
use std::net::SocketAddr;

use crate::IpProtocol;

/// The 5-tuple of a TCP or UDP packet: protocol, both addresses and both ports.
///
/// ```
/// use pollux_wire::build::Frame;
/// use pollux_wire::{FiveTuple, edit};
///
/// let mut frame = Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1024, 9).payload(b"");
/// let flow: FiveTuple = edit::ipv4_mut(&mut frame, false).and_then(|ip| ip.five_tuple()).expect("UDP");
/// assert_eq!(flow.to_string(), "UDP 10.0.0.1:1024 to 10.0.0.2:9");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiveTuple {
    /// TCP or UDP.
    pub protocol: IpProtocol,
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.protocol == IpProtocol::TCP { "TCP" } else { "UDP" };
        write!(f, "{protocol} {} to {}", self.src, self.dst)
    }
}
