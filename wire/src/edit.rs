//! Headers of a frame changed in place, with checksums that follow.
//!
//! ```text
//!   frame --ipv4_mut()--> Ipv4Mut --udp_mut()--> UdpMut        each setter updates the checksums that cover the field
//! ```
//!
//! A TCP or UDP checksum may be whole, open (the pseudo-header's part alone, completed by whoever sends the frame on) or absent; see
//! [`TransportSum`]. Whether it is open is told by who has the frame, as `pollux_port::PacketMut` does for an mbuf. Headers are
//! found behind VLAN tags. A fragment that is not the first has no transport header, and none is touched.
//!
//! ```
//! use pollux_wire::build::Frame;
//! use pollux_wire::{Ipv4, Udp, edit};
//!
//! let mut frame = Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1024, 9).payload(b"hello");
//! let mut ip = edit::ipv4_mut(&mut frame, false).expect("an IPv4 packet");
//! ip.set_src([192, 0, 2, 7]);
//! ip.udp_mut().expect("of UDP").set_src_port(5000);
//!
//! let ip = Ipv4::new(&frame[14..])?;
//! assert!(ip.checksum_ok() && Udp::new(ip.payload())?.checksum_ok(ip.pseudo_sum()));
//! # Ok::<(), pollux_wire::WireError>(())
//! ```

/// The views of TCP and UDP in a packet, which has `carried`, `upper_at`, `behind` and `open`.
macro_rules! transports {
    ($packet:ident) => {
        impl $packet<'_> {
            #[inline]
            fn upper(&mut self, protocol: IpProtocol) -> Option<&mut [u8]> {
                let at = self.upper_at(protocol)?;
                self.behind.get_mut(at..)
            }

            /// The ports, if it carries TCP or UDP.
            #[inline]
            #[must_use]
            pub fn ports_mut(&mut self) -> Option<super::PortsMut<'_>> {
                let (protocol, open) = (self.carried()?, self.open);
                super::PortsMut::new(self.upper(protocol)?, protocol, open)
            }

            /// What flow it belongs to, if it carries TCP or UDP.
            #[inline]
            #[must_use]
            pub fn five_tuple(&self) -> Option<crate::FiveTuple> {
                let protocol =
                    self.carried().filter(|one| matches!(*one, IpProtocol::TCP | IpProtocol::UDP))?;
                let &[a, b, c, d] = self.behind.get(self.upper_at(protocol)?..)?.first_chunk()?;
                let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                let (src, dst) = ((self.src(), from).into(), (self.dst(), to).into());
                Some(crate::FiveTuple { protocol, src, dst })
            }

            /// The UDP header.
            #[inline]
            #[must_use]
            pub fn udp_mut(&mut self) -> Option<super::UdpMut<'_>> {
                let open = self.open;
                super::UdpMut::new(self.upper(IpProtocol::UDP)?, open)
            }

            /// The TCP header.
            #[inline]
            #[must_use]
            pub fn tcp_mut(&mut self) -> Option<super::TcpMut<'_>> {
                let open = self.open;
                super::TcpMut::new(self.upper(IpProtocol::TCP)?, open)
            }
        }
    };
}

mod icmp;
mod ipv4;
mod ipv6;
mod link;
mod ports;
mod tcp;
mod udp;

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{Sum, TransportSum};
use crate::{EtherType, IpProtocol, vlan};

pub use icmp::{IcmpMut, Icmpv6Mut};
pub use ipv4::Ipv4Mut;
pub use ipv6::Ipv6Mut;
pub use link::{ArpMut, EtherMut, VlanMut, arp_mut, ether_mut, vlan_mut};
pub use ports::PortsMut;
pub use tcp::TcpMut;
pub use udp::UdpMut;

/// The IPv4 packet in a frame, to be changed; `open`: its TCP or UDP checksum is still to be completed.
///
/// `None`: there is no whole IPv4 header, or a transport header with a checksum over the addresses does not lie in `frame`, as in a
/// chain that is cut there.
#[inline]
#[must_use]
pub fn ipv4_mut(frame: &mut [u8], open: bool) -> Option<Ipv4Mut<'_>> {
    Ipv4Mut::new(behind_tags(frame, EtherType::IPV4)?, open)
}

/// The IPv6 packet in a frame; as [`ipv4_mut`]. `None` also where a routing header stands in front of a transport header, whose
/// checksum covers the last hop's address (RFC 8200, section 8.1).
#[inline]
#[must_use]
pub fn ipv6_mut(frame: &mut [u8], open: bool) -> Option<Ipv6Mut<'_>> {
    Ipv6Mut::new(behind_tags(frame, EtherType::IPV6)?, open)
}

/// What stands behind a frame's Ethernet header and tags, if it is of `kind`.
#[inline]
fn behind_tags(frame: &mut [u8], kind: EtherType) -> Option<&mut [u8]> {
    // Most frames have no tag.
    let at = if frame.get(12..14)? == kind.0.to_be_bytes() {
        14
    } else {
        let behind = vlan::skip_tags(frame).ok()?;
        if behind.ether_type != kind {
            return None;
        }
        behind.offset
    };
    frame.get_mut(at..)
}

/// The layout `H` at the front of `bytes` and what follows it.
#[inline]
fn front_mut<H>(bytes: &mut [u8]) -> Option<(&mut H, &mut [u8])>
where
    H: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
{
    H::mut_from_prefix(bytes).ok()
}

/// Where the checksum field of a transport header stands that covers the addresses; from the header's beginning.
#[inline]
fn checksum_at(protocol: IpProtocol) -> Option<usize> {
    /// DCCP (RFC 4340) and UDP-Lite (RFC 3828) have it where UDP has.
    const DCCP: IpProtocol = IpProtocol(33);
    const UDP_LITE: IpProtocol = IpProtocol(136);
    match protocol {
        IpProtocol::TCP => Some(16),
        IpProtocol::UDP | DCCP | UDP_LITE => Some(6),
        _ => None,
    }
}

/// Lets a TCP or UDP checksum follow a change of what it covers besides the addresses.
#[inline]
fn data_changed(field: &mut U16, protocol: IpProtocol, open: bool, old: &[u8], new: &[u8]) {
    let state = TransportSum::of(protocol, field.get(), open);
    field.set(state.data_changed(field.get(), old, new));
}

/// A transport checksum, among the bytes behind a header.
#[derive(Clone, Copy, Debug)]
struct Covering {
    at: usize,
    protocol: IpProtocol,
    open: bool,
}

impl Covering {
    /// Changes a port of the transport header at `upper` (its source port, or with `dst` the other), beside an address whose sum
    /// changed by `address`: one update for both. The header has ports; `false`, and nothing changed: it is cut off.
    #[inline]
    fn translate(self, behind: &mut [u8], upper: usize, dst: bool, port: u16, address: Sum) -> bool {
        let Some(header) = behind.get_mut(upper..self.at + 2) else { return false };
        // UDP's is the shortest of those with ports: they are its first 4 bytes, and its checksum the last two.
        let Some((before, field)) = header.split_last_chunk_mut::<2>() else { return false };
        let Some(ports) = before.first_chunk_mut::<4>() else { return false };
        let (at, new) = (if dst { 2 } else { 0 }, port.to_be_bytes());
        let data = Sum::of_change(&ports[at..at + 2], &new);
        ports[at..at + 2].copy_from_slice(&new);
        let sum = u16::from_be_bytes(*field);
        let state = TransportSum::of(self.protocol, sum, self.open);
        *field = state.changed(sum, address, data).to_be_bytes();
        true
    }

    /// Lets it follow a change of addresses.
    #[inline]
    fn follow(self, behind: &mut [u8], old: &[u8], new: &[u8]) {
        // It was there when this was made; nothing is cut off since.
        let Some(field) = behind.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) else { return };
        let sum = u16::from_be_bytes(*field);
        let state = TransportSum::of(self.protocol, sum, self.open);
        *field = state.address_changed(sum, old, new).to_be_bytes();
    }
}

#[cfg(test)]
mod tests;
