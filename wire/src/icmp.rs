//! ICMP. Source: RFC 792.

use std::ops::Deref;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Sum;
use crate::{Layer, WireError, front, put};

/// Echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// Echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Time to live ran out.
pub const TIME_EXCEEDED: u8 = 11;

/// ICMP header. The last four bytes have a meaning of their own per type; for echo they are identifier and sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IcmpHeader {
    /// Type.
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Checksum over header and payload.
    pub checksum: U16,
    /// Echo: identifier.
    pub ident: U16,
    /// Echo: sequence number.
    pub seq: U16,
}
const _: () = assert!(size_of::<IcmpHeader>() == 8);

impl IcmpHeader {
    /// Bytes of the header.
    pub const BYTES: usize = size_of::<IcmpHeader>();
}

/// A checked ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a> {
    header: &'a IcmpHeader,
    payload: &'a [u8],
}

impl<'a> Icmp<'a> {
    /// Views `bytes` as an ICMP message.
    ///
    /// # Errors
    /// Fewer than 8 bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, payload) = front(Layer::Icmp, bytes)?;
        Ok(Icmp { header, payload })
    }

    /// The layout.
    #[must_use]
    pub fn header(&self) -> &'a IcmpHeader {
        self.header
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the checksum is right.
    #[must_use]
    pub fn checksum_ok(&self) -> bool {
        Sum::of(self.header.as_bytes()).add_bytes(self.payload).is_valid()
    }

    /// The header as plain data.
    #[must_use]
    pub fn repr(&self) -> IcmpRepr {
        IcmpRepr { kind: self.kind, code: self.code, ident: self.ident.get(), seq: self.seq.get() }
    }
}

impl Deref for Icmp<'_> {
    type Target = IcmpHeader;

    fn deref(&self) -> &IcmpHeader {
        self.header
    }
}

/// An ICMP header as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpRepr {
    /// Type.
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Echo: identifier.
    pub ident: u16,
    /// Echo: sequence number.
    pub seq: u16,
}

impl IcmpRepr {
    /// Writes the header to the front of `bytes`, which must already hold the payload and end with it, and sums both.
    /// Gives back the payload.
    ///
    /// # Errors
    /// No room.
    pub fn emit<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], WireError> {
        let mut header = IcmpHeader {
            kind: self.kind,
            code: self.code,
            checksum: 0.into(),
            ident: self.ident.into(),
            seq: self.seq.into(),
        };
        let sum = Sum::of(header.as_bytes()).add_bytes(bytes.get(IcmpHeader::BYTES..).unwrap_or_default());
        header.checksum.set(sum.checksum());
        put(Layer::Icmp, &header, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: [u8; 12] = [8, 0, 0x08, 0xe3, 0x12, 0x34, 0, 1, b'p', b'o', b'l', b'x'];

    #[test]
    fn golden_echo() {
        let mut out = GOLDEN;
        out[..8].fill(0);
        let repr = IcmpRepr { kind: ECHO_REQUEST, code: 0, ident: 0x1234, seq: 1 };
        assert_eq!(repr.emit(&mut out).unwrap(), b"polx");
        // 0800 + 1234 + 0001 + 706f + 6c78 = f71c, complement 08e3
        assert_eq!(out, GOLDEN);
        let echo = Icmp::new(&out).unwrap();
        assert!(echo.checksum_ok());
        assert_eq!(echo.repr(), repr);
        out[11] ^= 1;
        assert!(!Icmp::new(&out).unwrap().checksum_ok());
        assert_eq!(
            Icmp::new(&GOLDEN[..3]).unwrap_err(),
            WireError::Truncated { layer: Layer::Icmp, needed: 8, given: 3 }
        );
        assert!(repr.emit(&mut [0; 7]).is_err());
    }
}
