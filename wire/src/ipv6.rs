//! IPv6 header and a bounded walk over its extension headers. Sources: RFC 8200; RFC 4302 for the authentication header.

use std::net::Ipv6Addr;
use std::ops::Deref;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{self, Sum};
use crate::{IpProtocol, Layer, WireError, front, put};

/// Most extension headers that [`walk`] follows. RFC 8200 lists six kinds, one of which may come twice.
pub const EXTENSIONS_MAX: usize = 8;

/// IPv6 header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Ipv6Header {
    /// Version, traffic class, flow label.
    pub version_class_flow: U32,
    /// Bytes behind this header.
    pub payload_bytes: U16,
    /// What follows: an extension header or the payload.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Source.
    pub src: [u8; 16],
    /// Destination.
    pub dst: [u8; 16],
}
const _: () = assert!(size_of::<Ipv6Header>() == 40);

impl Ipv6Header {
    /// Bytes of the header.
    pub const BYTES: usize = size_of::<Ipv6Header>();

    /// 6, if the packet is what it claims to be.
    #[must_use]
    pub fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// Traffic class: DSCP and ECN.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// Flow label, 20 bits.
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0xf_ffff
    }

    /// What follows this header.
    #[must_use]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.next_header)
    }

    /// Source.
    #[must_use]
    pub fn src(&self) -> Ipv6Addr {
        self.src.into()
    }

    /// Destination.
    #[must_use]
    pub fn dst(&self) -> Ipv6Addr {
        self.dst.into()
    }
}

/// A checked IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    header: &'a Ipv6Header,
    payload: &'a [u8],
}

impl<'a> Ipv6<'a> {
    /// Views `bytes` as an IPv6 packet; what lies behind its payload length (Ethernet padding) is cut off.
    ///
    /// # Errors
    /// The version is not 6, or fewer bytes are there than the length says.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, rest): (&Ipv6Header, _) = front(Layer::Ipv6, bytes)?;
        if header.version() != 6 {
            return Err(WireError::Field {
                layer: Layer::Ipv6,
                field: "version",
                value: header.version().into(),
                allowed: "6",
            });
        }
        let len = usize::from(header.payload_bytes.get());
        let (payload, _) = rest
            .split_at_checked(len)
            .ok_or_else(|| WireError::truncated(Layer::Ipv6, Ipv6Header::BYTES + len, bytes.len()))?;
        Ok(Ipv6 { header, payload })
    }

    /// The layout.
    #[must_use]
    pub fn header(&self) -> &'a Ipv6Header {
        self.header
    }

    /// What follows the header: extension headers first, if there are any.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Walks the extension headers to the upper layer.
    ///
    /// # Errors
    /// As [`walk`].
    pub fn upper(&self) -> Result<Upper<'a>, WireError> {
        walk(self.next_header(), self.payload)
    }

    /// The header as plain data.
    #[must_use]
    pub fn repr(&self) -> Ipv6Repr {
        Ipv6Repr {
            src: self.src(),
            dst: self.dst(),
            next_header: self.next_header(),
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            hop_limit: self.hop_limit,
            payload_bytes: self.payload_bytes.get(),
        }
    }
}

impl Deref for Ipv6<'_> {
    type Target = Ipv6Header;

    fn deref(&self) -> &Ipv6Header {
        self.header
    }
}

/// What a fragment header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Where the fragment belongs, in bytes.
    pub offset: u16,
    /// Whether more follow.
    pub more: bool,
    /// Identification, for reassembly.
    pub ident: u32,
}

/// What stands behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'a> {
    /// What it is. In a fragment that is not the first, what the whole packet's next header was.
    pub protocol: IpProtocol,
    /// Bytes of all extension headers passed.
    pub extension_bytes: usize,
    /// The fragment header, if there was one.
    pub fragment: Option<Fragment>,
    /// Whether a routing header was among them: the destination in the IPv6 header may not be the last one then.
    pub routing: bool,
    /// The bytes from there on.
    pub payload: &'a [u8],
}

impl Upper<'_> {
    /// Whether the payload begins with the upper layer's header: not so in any fragment but the first.
    #[must_use]
    pub fn has_header(&self) -> bool {
        self.fragment.is_none_or(|fragment| fragment.offset == 0)
    }
}

/// Walks at most [`EXTENSIONS_MAX`] extension headers; `next_header` says what `bytes` begin with.
///
/// The walk stops behind the fragment header of a fragment that is not the first, since no header follows there.
///
/// # Errors
/// The bytes end inside an extension header, or there are more of them.
pub fn walk(next_header: IpProtocol, bytes: &[u8]) -> Result<Upper<'_>, WireError> {
    let mut upper =
        Upper { protocol: next_header, extension_bytes: 0, fragment: None, routing: false, payload: bytes };
    for _ in 0..=EXTENSIONS_MAX {
        let (unit, base) = match upper.protocol {
            // Length in units of eight bytes, the first not counted.
            IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DESTINATION | IpProtocol::MOBILITY => {
                (8, 8)
            }
            // Length in units of four bytes, the first two not counted.
            IpProtocol::AUTHENTICATION => (4, 8),
            // Always eight bytes; the second is reserved.
            IpProtocol::FRAGMENT => (0, 8),
            _ => return Ok(upper),
        };
        let given = upper.payload.len();
        let &[next, length, a, b, c, d, e, f, ..] = upper.payload else {
            return Err(WireError::truncated(Layer::Ipv6Extension, base, given));
        };
        let bytes = base + unit * usize::from(length);
        let behind = upper
            .payload
            .get(bytes..)
            .ok_or_else(|| WireError::truncated(Layer::Ipv6Extension, bytes, given))?;
        upper.routing |= upper.protocol == IpProtocol::ROUTING;
        let is_fragment = upper.protocol == IpProtocol::FRAGMENT;
        upper.protocol = IpProtocol(next);
        upper.extension_bytes += bytes;
        upper.payload = behind;
        if is_fragment {
            let word = u16::from_be_bytes([a, b]);
            let fragment =
                Fragment { offset: word & !7, more: word & 1 != 0, ident: u32::from_be_bytes([c, d, e, f]) };
            upper.fragment = Some(fragment);
            if fragment.offset != 0 {
                return Ok(upper);
            }
        }
    }
    Err(WireError::Field {
        layer: Layer::Ipv6Extension,
        field: "number of headers",
        value: EXTENSIONS_MAX as u32 + 1,
        allowed: "at most 8",
    })
}

/// An IPv6 header as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
    /// What follows.
    pub next_header: IpProtocol,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits (the rest is cut).
    pub flow_label: u32,
    /// Hops left.
    pub hop_limit: u8,
    /// Bytes behind the header.
    pub payload_bytes: u16,
}

impl Ipv6Repr {
    /// A packet with a hop limit of 64.
    #[must_use]
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol, payload_bytes: u16) -> Self {
        Ipv6Repr { src, dst, next_header, traffic_class: 0, flow_label: 0, hop_limit: 64, payload_bytes }
    }

    /// The pseudo-header's part of a checksum over the payload, if no extension header stands between.
    #[must_use]
    pub fn pseudo_sum(&self) -> Sum {
        checksum::pseudo_v6(self.src, self.dst, self.next_header, self.payload_bytes.into())
    }

    /// Writes the header to the front of `bytes`; gives back what is behind it.
    ///
    /// # Errors
    /// No room.
    pub fn emit<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], WireError> {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let header = Ipv6Header {
            version_class_flow: word.into(),
            payload_bytes: self.payload_bytes.into(),
            next_header: self.next_header.0,
            hop_limit: self.hop_limit,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        put(Layer::Ipv6, &header, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: [u8; 48] = [
        0x6a, 0xb1, 0x23, 0x45, 0x00, 0x08, 0x11, 0x40, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 1, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 7, 0, 9, 0, 8, 0, 0,
    ];

    #[test]
    fn golden_header() {
        let ip = Ipv6::new(&GOLDEN).unwrap();
        assert_eq!((ip.traffic_class(), ip.flow_label(), ip.hop_limit), (0xab, 0x12345, 64));
        assert_eq!(
            (ip.src().to_string(), ip.dst().to_string()),
            ("2001:db8::1".into(), "2001:db8::2".into())
        );
        let upper = ip.upper().unwrap();
        assert_eq!(
            (upper.protocol, upper.extension_bytes, upper.payload),
            (IpProtocol::UDP, 0, &GOLDEN[40..])
        );
        let mut out = [0; 48];
        ip.repr().emit(&mut out).unwrap().copy_from_slice(&GOLDEN[40..]);
        assert_eq!(out, GOLDEN);
        assert_eq!(
            Ipv6::new(&GOLDEN[..47]).unwrap_err(),
            WireError::Truncated { layer: Layer::Ipv6, needed: 48, given: 47 }
        );
        assert!(matches!(Ipv6::new(&[0x45; 60]), Err(WireError::Field { field: "version", .. })));
    }

    #[test]
    fn extension_headers_of_all_lengths_are_walked() {
        let mut bytes = Vec::new();
        bytes.extend([60, 0, 1, 4, 0, 0, 0, 0]); // hop-by-hop, 8 bytes
        bytes.extend([51, 1]); // destination options, 16 bytes
        bytes.extend([0; 14]);
        bytes.extend([44, 4]); // authentication, 24 bytes
        bytes.extend([0; 22]);
        bytes.extend([6, 0xff, 0x00, 0x01, 1, 2, 3, 4]); // first fragment; the reserved byte is no length
        bytes.extend([9; 20]);
        let upper = walk(IpProtocol::HOP_BY_HOP, &bytes).unwrap();
        assert_eq!((upper.protocol, upper.extension_bytes), (IpProtocol::TCP, 8 + 16 + 24 + 8));
        assert_eq!(upper.fragment, Some(Fragment { offset: 0, more: true, ident: 0x0102_0304 }));
        assert!(upper.has_header());
        assert_eq!(upper.payload, [9; 20]);
        for cut in 0..56 {
            assert!(walk(IpProtocol::HOP_BY_HOP, &bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_later_fragment_ends_the_walk() {
        let bytes = [60, 0, 0x05, 0xc9, 0, 0, 0, 1, 60, 60, 60];
        let upper = walk(IpProtocol::FRAGMENT, &bytes).unwrap();
        assert_eq!(upper.fragment, Some(Fragment { offset: 1480, more: true, ident: 1 }));
        assert!(!upper.has_header());
        assert_eq!(upper.payload, [60, 60, 60]);
    }

    #[test]
    fn an_endless_chain_is_refused() {
        let eight = [[60u8, 0, 0, 0, 0, 0, 0, 0]; 7].concat();
        let end = [17u8, 0, 0, 0, 0, 0, 0, 0];
        let upper = [&eight[..], &end].concat();
        assert_eq!(walk(IpProtocol::DESTINATION, &upper).unwrap().extension_bytes, 64);
        let nine = [&eight[..8], &upper].concat();
        assert_eq!(
            walk(IpProtocol::DESTINATION, &nine).unwrap_err().to_string(),
            "IPv6 extension: number of headers is 9, allowed is at most 8"
        );
    }
}
