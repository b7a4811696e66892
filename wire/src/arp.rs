//! ARP for IPv4 over Ethernet. Source: RFC 826.

use std::net::Ipv4Addr;
use std::ops::Deref;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{EtherType, Layer, MacAddress, WireError, front, put};

/// "Who has?"
pub const REQUEST: u16 = 1;
/// "It is at ..."
pub const REPLY: u16 = 2;

/// ARP packet for IPv4 over Ethernet.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ArpHeader {
    /// 1: Ethernet.
    pub hardware: U16,
    /// 0x0800: IPv4.
    pub protocol: U16,
    /// 6.
    pub hardware_bytes: u8,
    /// 4.
    pub protocol_bytes: u8,
    /// [`REQUEST`], [`REPLY`] or another.
    pub operation: U16,
    /// Sender's MAC address.
    pub sender_mac: MacAddress,
    /// Sender's IPv4 address.
    pub sender_ip: [u8; 4],
    /// Target's MAC address; zero in a request.
    pub target_mac: MacAddress,
    /// Target's IPv4 address.
    pub target_ip: [u8; 4],
}
const _: () = assert!(size_of::<ArpHeader>() == 28);

impl ArpHeader {
    /// Bytes of the packet.
    pub const BYTES: usize = size_of::<ArpHeader>();

    /// Sender's IPv4 address.
    #[must_use]
    pub fn sender_ip(&self) -> Ipv4Addr {
        self.sender_ip.into()
    }

    /// Target's IPv4 address.
    #[must_use]
    pub fn target_ip(&self) -> Ipv4Addr {
        self.target_ip.into()
    }
}

/// A checked ARP packet.
#[derive(Clone, Copy, Debug)]
pub struct Arp<'a> {
    header: &'a ArpHeader,
}

impl<'a> Arp<'a> {
    /// Views `bytes` as an ARP packet for IPv4 over Ethernet.
    ///
    /// # Errors
    /// Fewer than 28 bytes, or other kinds of addresses.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, _): (&ArpHeader, _) = front(Layer::Arp, bytes)?;
        let refuse =
            |field, value, allowed| Err(WireError::Field { layer: Layer::Arp, field, value, allowed });
        if header.hardware.get() != 1 {
            return refuse("hardware type", header.hardware.get().into(), "1 (Ethernet)");
        }
        if header.protocol.get() != EtherType::IPV4.0 {
            return refuse("protocol type", header.protocol.get().into(), "2048 (IPv4)");
        }
        if header.hardware_bytes != 6 {
            return refuse("hardware address length", header.hardware_bytes.into(), "6");
        }
        if header.protocol_bytes != 4 {
            return refuse("protocol address length", header.protocol_bytes.into(), "4");
        }
        Ok(Arp { header })
    }

    /// The packet as plain data.
    #[must_use]
    pub fn repr(&self) -> ArpRepr {
        ArpRepr {
            operation: self.operation.get(),
            sender_mac: self.sender_mac,
            sender_ip: self.sender_ip(),
            target_mac: self.target_mac,
            target_ip: self.target_ip(),
        }
    }
}

impl Deref for Arp<'_> {
    type Target = ArpHeader;

    fn deref(&self) -> &ArpHeader {
        self.header
    }
}

/// An ARP packet as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpRepr {
    /// [`REQUEST`], [`REPLY`] or another.
    pub operation: u16,
    /// Sender's MAC address.
    pub sender_mac: MacAddress,
    /// Sender's IPv4 address.
    pub sender_ip: Ipv4Addr,
    /// Target's MAC address; zero in a request.
    pub target_mac: MacAddress,
    /// Target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl ArpRepr {
    /// The answer that the owner of `mac` gives to this request.
    #[must_use]
    pub fn reply(&self, mac: MacAddress) -> ArpRepr {
        ArpRepr {
            operation: REPLY,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Writes the packet to the front of `bytes`; gives back what is behind it.
    ///
    /// # Errors
    /// No room.
    pub fn emit<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], WireError> {
        let header = ArpHeader {
            hardware: 1.into(),
            protocol: EtherType::IPV4.0.into(),
            hardware_bytes: 6,
            protocol_bytes: 4,
            operation: self.operation.into(),
            sender_mac: self.sender_mac,
            sender_ip: self.sender_ip.octets(),
            target_mac: self.target_mac,
            target_ip: self.target_ip.octets(),
        };
        put(Layer::Arp, &header, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

    #[test]
    fn golden_request_and_its_reply() {
        let request = Arp::new(&GOLDEN).unwrap().repr();
        assert_eq!(request.operation, REQUEST);
        assert_eq!(request.sender_mac, [2, 0, 0, 0, 0, 1].into());
        assert_eq!(request.target_ip, Ipv4Addr::new(10, 0, 0, 2));
        let mut out = [0; 28];
        assert!(request.emit(&mut out).unwrap().is_empty());
        assert_eq!(out, GOLDEN);
        let reply = request.reply([2, 0, 0, 0, 0, 2].into());
        assert_eq!(
            (reply.operation, reply.sender_ip, reply.target_ip),
            (REPLY, request.target_ip, request.sender_ip)
        );
        assert_eq!(reply.target_mac, request.sender_mac);
    }

    #[test]
    fn other_address_kinds_are_refused() {
        for (at, value) in [(1, 6u8), (2, 9), (4, 8), (5, 16)] {
            let mut bytes = GOLDEN;
            bytes[at] = value;
            assert!(matches!(Arp::new(&bytes), Err(WireError::Field { .. })), "byte {at}");
        }
        assert_eq!(
            Arp::new(&GOLDEN[..27]).unwrap_err(),
            WireError::Truncated { layer: Layer::Arp, needed: 28, given: 27 }
        );
    }
}
