//! ICMPv6 and as much of neighbour discovery as it takes to see it. Sources: RFC 4443, RFC 4861.

use std::net::Ipv6Addr;
use std::ops::Deref;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Sum;
use crate::{Layer, MacAddress, WireError, front, put};

/// Echo request.
pub const ECHO_REQUEST: u8 = 128;
/// Echo reply.
pub const ECHO_REPLY: u8 = 129;
/// Router solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// Router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Neighbour solicitation.
pub const NEIGHBOR_SOLICITATION: u8 = 135;
/// Neighbour advertisement.
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// Redirect.
pub const REDIRECT: u8 = 137;

/// Option: the sender's link-layer address.
pub const OPTION_SOURCE_ADDRESS: u8 = 1;
/// Option: the target's link-layer address.
pub const OPTION_TARGET_ADDRESS: u8 = 2;

/// ICMPv6 header. The last four bytes have a meaning of their own per type.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Icmpv6Header {
    /// Type.
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Checksum over pseudo-header, header and payload.
    pub checksum: U16,
    /// Echo: identifier and sequence. Neighbour advertisement: flags in the top three bits.
    pub word: U32,
}
const _: () = assert!(size_of::<Icmpv6Header>() == 8);

impl Icmpv6Header {
    /// Bytes of the header.
    pub const BYTES: usize = size_of::<Icmpv6Header>();

    /// Echo: identifier.
    #[must_use]
    pub fn ident(&self) -> u16 {
        (self.word.get() >> 16) as u16
    }

    /// Echo: sequence number.
    #[must_use]
    pub fn seq(&self) -> u16 {
        self.word.get() as u16
    }
}

/// A checked ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6<'a> {
    header: &'a Icmpv6Header,
    payload: &'a [u8],
}

impl<'a> Icmpv6<'a> {
    /// Views `bytes` as an ICMPv6 message.
    ///
    /// # Errors
    /// Fewer than 8 bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, payload) = front(Layer::Icmpv6, bytes)?;
        Ok(Icmpv6 { header, payload })
    }

    /// The layout.
    #[must_use]
    pub fn header(&self) -> &'a Icmpv6Header {
        self.header
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the checksum is right; `pseudo` comes from [`checksum::pseudo_v6`](crate::checksum::pseudo_v6).
    #[must_use]
    pub fn checksum_ok(&self, pseudo: Sum) -> bool {
        pseudo.add_bytes(self.header.as_bytes()).add_bytes(self.payload).is_valid()
    }

    /// The address that a neighbour solicitation or advertisement or a redirect is about.
    #[must_use]
    pub fn target(&self) -> Option<Ipv6Addr> {
        match self.kind {
            NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT | REDIRECT => {
                self.payload.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
            }
            _ => None,
        }
    }

    /// The options of a neighbour discovery message; none in other messages.
    #[must_use]
    pub fn options(&self) -> Options<'a> {
        let skip = match self.kind {
            ROUTER_SOLICITATION => 0,
            ROUTER_ADVERTISEMENT => 8,
            NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT => 16,
            REDIRECT => 32,
            _ => self.payload.len(),
        };
        Options { rest: self.payload.get(skip..).unwrap_or_default() }
    }

    /// The link-layer address option of this kind, if the message has one.
    #[must_use]
    pub fn link_address(&self, option: u8) -> Option<MacAddress> {
        self.options()
            .find(|(kind, _)| *kind == option)
            .and_then(|(_, body)| body.first_chunk::<6>().map(|bytes| MacAddress(*bytes)))
    }

    /// The header as plain data.
    #[must_use]
    pub fn repr(&self) -> Icmpv6Repr {
        Icmpv6Repr { kind: self.kind, code: self.code, word: self.word.get() }
    }
}

impl Deref for Icmpv6<'_> {
    type Target = Icmpv6Header;

    fn deref(&self) -> &Icmpv6Header {
        self.header
    }
}

/// Iterates over `(type, body)` of neighbour discovery options; ends at the first that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let &[kind, units, ..] = self.rest else { return None };
        // A length of zero is invalid (RFC 4861, section 4.6) and would never end.
        let bytes = usize::from(units) * 8;
        let (option, rest) = self.rest.split_at_checked(bytes).filter(|_| bytes != 0)?;
        self.rest = rest;
        Some((kind, &option[2..]))
    }
}

/// An ICMPv6 header as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv6Repr {
    /// Type.
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// The last four bytes of the header.
    pub word: u32,
}

impl Icmpv6Repr {
    /// Writes the header to the front of `bytes`, which must already hold the payload and end with it, and sums both.
    /// Gives back the payload.
    ///
    /// # Errors
    /// No room.
    pub fn emit<'a>(&self, bytes: &'a mut [u8], pseudo: Sum) -> Result<&'a mut [u8], WireError> {
        let mut header =
            Icmpv6Header { kind: self.kind, code: self.code, checksum: 0.into(), word: self.word.into() };
        let payload = bytes.get(Icmpv6Header::BYTES..).unwrap_or_default();
        header.checksum.set(pseudo.add_bytes(header.as_bytes()).add_bytes(payload).checksum());
        put(Layer::Icmpv6, &header, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IpProtocol, checksum};

    fn solicitation() -> Vec<u8> {
        let mut bytes = vec![135, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        bytes.extend([1, 1, 2, 0, 0, 0, 0, 1]);
        bytes
    }

    #[test]
    fn neighbour_solicitation() {
        let mut bytes = solicitation();
        let (src, dst) = ("fe80::1".parse().unwrap(), "ff02::1:ff00:2".parse().unwrap());
        let pseudo = checksum::pseudo_v6(src, dst, IpProtocol::ICMPV6, bytes.len() as u32);
        Icmpv6Repr { kind: 135, code: 0, word: 0 }.emit(&mut bytes, pseudo).unwrap();
        // The words that are summed: addresses, length, next header, type, target, option.
        let words: u32 =
            [0xfe80, 1, 0xff02, 1, 0xff00, 2, 0x20, 0x3a, 0x8700, 0xfe80, 2, 0x0101, 0x0200, 0x0000, 0x0001]
                .iter()
                .sum();
        let folded = (words & 0xffff) + (words >> 16);
        assert_eq!(u32::from(u16::from_be_bytes([bytes[2], bytes[3]])), !folded & 0xffff);
        let message = Icmpv6::new(&bytes).unwrap();
        assert!(message.checksum_ok(pseudo) && !message.checksum_ok(Sum::ZERO));
        assert_eq!(message.target(), Some("fe80::2".parse().unwrap()));
        assert_eq!(message.link_address(OPTION_SOURCE_ADDRESS), Some([2, 0, 0, 0, 0, 1].into()));
        assert_eq!(message.link_address(OPTION_TARGET_ADDRESS), None);
    }

    #[test]
    fn options_end_at_what_does_not_fit() {
        let mut bytes = solicitation();
        bytes[25] = 0;
        assert_eq!(Icmpv6::new(&bytes).unwrap().options().count(), 0);
        bytes[25] = 2;
        assert_eq!(Icmpv6::new(&bytes).unwrap().options().count(), 0);
        bytes[25] = 1;
        bytes.push(2);
        assert_eq!(Icmpv6::new(&bytes).unwrap().options().count(), 1);
        bytes[0] = ECHO_REQUEST;
        let echo = Icmpv6::new(&bytes).unwrap();
        assert_eq!((echo.options().count(), echo.target()), (0, None));
        assert_eq!(echo.repr(), Icmpv6Repr { kind: 128, code: 0, word: 0 });
    }
}
