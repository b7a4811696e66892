//! UDP. Source: RFC 768.

use std::ops::Deref;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Sum;
use crate::{Layer, WireError, front, put};

/// UDP header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct UdpHeader {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Bytes of header and payload.
    pub bytes: U16,
    /// Checksum over pseudo-header, header and payload; 0 means none.
    pub checksum: U16,
}
const _: () = assert!(size_of::<UdpHeader>() == 8);

impl UdpHeader {
    /// Bytes of the header.
    pub const BYTES: usize = size_of::<UdpHeader>();
}

/// A checked UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    header: &'a UdpHeader,
    payload: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Views `bytes` as a UDP datagram; what lies behind its length is cut off.
    ///
    /// # Errors
    /// The length is under 8, or fewer bytes are there than it says.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, rest): (&UdpHeader, _) = front(Layer::Udp, bytes)?;
        let len = usize::from(header.bytes.get());
        let Some(payload) = len.checked_sub(UdpHeader::BYTES) else {
            return Err(WireError::Field {
                layer: Layer::Udp,
                field: "length",
                value: len as u32,
                allowed: "at least 8",
            });
        };
        let payload =
            rest.get(..payload).ok_or_else(|| WireError::truncated(Layer::Udp, len, bytes.len()))?;
        Ok(Udp { header, payload })
    }

    /// The layout.
    #[must_use]
    pub fn header(&self) -> &'a UdpHeader {
        self.header
    }

    /// What follows the header, up to the length.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the checksum is right or, with 0, absent (IPv6 does not allow that, RFC 8200 section 8.1).
    #[must_use]
    pub fn checksum_ok(&self, pseudo: Sum) -> bool {
        self.checksum.get() == 0
            || pseudo.add_bytes(self.header.as_bytes()).add_bytes(self.payload).is_valid()
    }

    /// The ports as plain data.
    #[must_use]
    pub fn repr(&self) -> UdpRepr {
        UdpRepr { src_port: self.src_port.get(), dst_port: self.dst_port.get() }
    }
}

impl Deref for Udp<'_> {
    type Target = UdpHeader;

    fn deref(&self) -> &UdpHeader {
        self.header
    }
}

/// A UDP header as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl UdpRepr {
    /// Writes the header to the front of `bytes`, which must already hold the payload and end with it, and sums both.
    /// Gives back the payload.
    ///
    /// # Errors
    /// No room, or over 65,535 bytes.
    pub fn emit<'a>(&self, bytes: &'a mut [u8], pseudo: Sum) -> Result<&'a mut [u8], WireError> {
        let len = u16::try_from(bytes.len()).map_err(|_| WireError::Field {
            layer: Layer::Udp,
            field: "length",
            value: bytes.len() as u32,
            allowed: "at most 65535",
        })?;
        let mut header = UdpHeader {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            bytes: len.into(),
            checksum: 0.into(),
        };
        let payload = bytes.get(UdpHeader::BYTES..).unwrap_or_default();
        header.checksum.set(pseudo.add_bytes(header.as_bytes()).add_bytes(payload).checksum_udp());
        put(Layer::Udp, &header, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IpProtocol, checksum};

    /// 10.0.0.1:1000 -> 10.0.0.2:53, "abcd". Sum: 0a00+0001+0a00+0002+0011+000c + 03e8+0035+000c + 6162+6364 = dd0f.
    const GOLDEN: [u8; 12] = [0x03, 0xe8, 0, 53, 0, 12, 0x22, 0xf0, b'a', b'b', b'c', b'd'];

    #[test]
    fn golden_datagram() {
        let pseudo = checksum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP, 12);
        let mut out = GOLDEN;
        out[..8].fill(0);
        let repr = UdpRepr { src_port: 1000, dst_port: 53 };
        assert_eq!(repr.emit(&mut out, pseudo).unwrap(), b"abcd");
        assert_eq!(out, GOLDEN);
        let udp = Udp::new(&out).unwrap();
        assert!(udp.checksum_ok(pseudo) && !udp.checksum_ok(pseudo.add_word(1)));
        assert_eq!((udp.repr(), udp.payload()), (repr, &b"abcd"[..]));
    }

    #[test]
    fn lengths_are_checked_and_padding_is_cut() {
        let mut bytes = GOLDEN.to_vec();
        bytes.extend([0; 10]);
        assert_eq!(Udp::new(&bytes).unwrap().payload(), b"abcd");
        assert_eq!(
            Udp::new(&bytes[..11]).unwrap_err(),
            WireError::Truncated { layer: Layer::Udp, needed: 12, given: 11 }
        );
        bytes[5] = 7;
        assert!(matches!(Udp::new(&bytes), Err(WireError::Field { value: 7, .. })));
        bytes[5] = 8;
        bytes[6..8].fill(0);
        assert!(Udp::new(&bytes).unwrap().checksum_ok(Sum::ZERO));
        assert!(UdpRepr { src_port: 1, dst_port: 2 }.emit(&mut vec![0; 65536], Sum::ZERO).is_err());
    }
}
