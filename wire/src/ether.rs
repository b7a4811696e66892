//! Ethernet II header. Source: IEEE 802.3, clause 3.1.1.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Layer, WireError, front, put};

/// A MAC address.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// `ff:ff:ff:ff:ff:ff`
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Whether this is the broadcast address.
    #[must_use]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether the group bit is set: multicast or broadcast.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether the address can belong to one station: not a group, not all zero.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self.0 != [0; 6]
    }

    /// The address in capitals, as DPDK writes it.
    #[must_use]
    pub fn to_uppercase(self) -> String {
        self.to_string().to_uppercase()
    }

    /// Whether the locally-administered bit is set.
    #[must_use]
    pub fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(bytes: [u8; 6]) -> Self {
        MacAddress(bytes)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an Ethernet address, such as 02:00:00:00:00:01")]
pub struct MacAddressError(String);

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || MacAddressError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part =
                parts.next().filter(|p| matches!(p.len(), 1 | 2) && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(MacAddress(bytes)) }
    }
}

/// What an Ethernet payload is. Values under 0x0600 are lengths (802.3), not types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType(0x0806);
    /// A customer VLAN tag, 802.1Q.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// A service VLAN tag, 802.1ad (QinQ).
    pub const QINQ: EtherType = EtherType(0x88a8);
    /// The service tag of equipment older than 802.1ad.
    pub const QINQ_OLD: EtherType = EtherType(0x9100);
    /// A whole Ethernet frame, in a tunnel. Source: RFC 1701; RFC 7637, section 3.2.
    pub const TRANSPARENT_ETHERNET: EtherType = EtherType(0x6558);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// Link layer discovery.
    pub const LLDP: EtherType = EtherType(0x88cc);
    /// Precision time protocol, 1588.
    pub const PTP: EtherType = EtherType(0x88f7);

    /// Whether a VLAN tag follows.
    #[must_use]
    pub fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::QINQ | EtherType::QINQ_OLD)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtherType(0x{:04x})", self.0)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

/// Ethernet header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct EtherHeader {
    /// Destination.
    pub dst: MacAddress,
    /// Source.
    pub src: MacAddress,
    /// Type (or length) of the payload.
    pub ether_type: U16,
}
const _: () = assert!(size_of::<EtherHeader>() == 14);

impl EtherHeader {
    /// Bytes of the header.
    pub const BYTES: usize = size_of::<EtherHeader>();

    /// What the payload is.
    #[must_use]
    pub fn ether_type(&self) -> EtherType {
        EtherType(self.ether_type.get())
    }
}

/// A checked Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct Ether<'a> {
    header: &'a EtherHeader,
    payload: &'a [u8],
}

impl<'a> Ether<'a> {
    /// Views `bytes` as an Ethernet frame.
    ///
    /// # Errors
    /// Fewer than 14 bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, payload) = front(Layer::Ether, bytes)?;
        Ok(Ether { header, payload })
    }

    /// The layout.
    #[must_use]
    pub fn header(&self) -> &'a EtherHeader {
        self.header
    }

    /// What follows the header, padding included.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header as plain data.
    #[must_use]
    pub fn repr(&self) -> EtherRepr {
        EtherRepr { dst: self.dst, src: self.src, ether_type: self.ether_type() }
    }
}

impl Deref for Ether<'_> {
    type Target = EtherHeader;

    fn deref(&self) -> &EtherHeader {
        self.header
    }
}

/// An Ethernet header as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherRepr {
    /// Destination.
    pub dst: MacAddress,
    /// Source.
    pub src: MacAddress,
    /// What the payload is.
    pub ether_type: EtherType,
}

impl EtherRepr {
    /// Writes the header to the front of `bytes`; gives back what is behind it.
    ///
    /// # Errors
    /// No room.
    pub fn emit<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], WireError> {
        let header = EtherHeader { dst: self.dst, src: self.src, ether_type: self.ether_type.0.into() };
        put(Layer::Ether, &header, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: [u8; 16] =
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x06, 0xaa, 0xbb];

    #[test]
    fn golden_bytes() {
        let frame = Ether::new(&GOLDEN).unwrap();
        assert!(frame.dst.is_broadcast() && frame.dst.is_multicast() && !frame.dst.is_unicast());
        assert!(frame.src.is_unicast() && frame.src.is_local());
        assert_eq!(frame.ether_type(), EtherType::ARP);
        assert_eq!(frame.payload(), [0xaa, 0xbb]);
        let mut out = [0; 16];
        frame.repr().emit(&mut out).unwrap().copy_from_slice(&[0xaa, 0xbb]);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn short_frame_says_what_is_missing() {
        let error = Ether::new(&GOLDEN[..9]).unwrap_err();
        assert_eq!(error.to_string(), "Ethernet: 14 bytes needed, 9 given (5 missing)");
    }

    #[test]
    fn mac_text_round_trips_and_refuses_junk() {
        let mac: MacAddress = "02:ab:CD:00:00:01".parse().unwrap();
        assert_eq!(mac.to_string(), "02:ab:cd:00:00:01");
        // A leading zero may be left out, as DPDK's programs allow.
        assert_eq!("2:ab:cd:0:0:1".parse(), Ok(mac));
        for bad in [
            "",
            "02:ab:cd:00:00",
            "02:ab:cd:00:00:01:02",
            "002:ab:cd:00:00:01",
            ":ab:cd:00:00:01",
            "+2:ab:cd:00:00:01",
            "zz:ab:cd:00:00:01",
        ] {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
    }
}
