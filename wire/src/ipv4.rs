//! IPv4 header. Source: RFC 791; the type-of-service byte as of RFC 2474 and RFC 3168.

use std::net::Ipv4Addr;
use std::ops::Deref;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{self, Sum};
use crate::{IpProtocol, Layer, WireError, front, put};

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// IPv4 header without options.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Ipv4Header {
    /// Version, and header length in words of four bytes.
    pub version_ihl: u8,
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_bytes: U16,
    /// Identification, for reassembly.
    pub ident: U16,
    /// Flags and fragment offset in units of eight bytes.
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// What the payload is.
    pub protocol: u8,
    /// Checksum of the header.
    pub checksum: U16,
    /// Source.
    pub src: [u8; 4],
    /// Destination.
    pub dst: [u8; 4],
}
const _: () = assert!(size_of::<Ipv4Header>() == 20);

impl Ipv4Header {
    /// Bytes of the header without options.
    pub const BYTES: usize = size_of::<Ipv4Header>();

    /// 4, if the packet is what it claims to be.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Bytes of the header, options included: 0 to 60 (under 20 is invalid).
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        usize::from(self.version_ihl & 15) * 4
    }

    /// Differentiated services code point.
    #[must_use]
    pub fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Explicit congestion notification.
    #[must_use]
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// What the payload is.
    #[must_use]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.protocol)
    }

    /// Source.
    #[must_use]
    pub fn src(&self) -> Ipv4Addr {
        self.src.into()
    }

    /// Destination.
    #[must_use]
    pub fn dst(&self) -> Ipv4Addr {
        self.dst.into()
    }

    /// Whether routers may not fragment the packet.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.fragment.get() & DONT_FRAGMENT != 0
    }

    /// Whether more fragments follow.
    #[must_use]
    pub fn more_fragments(&self) -> bool {
        self.fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Where this fragment belongs, in bytes.
    #[must_use]
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.fragment.get() & 0x1fff) * 8
    }

    /// Whether this is a fragment, first or later.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & (MORE_FRAGMENTS | 0x1fff) != 0
    }

    /// Lowers the time to live by one and mends the checksum. `false`, and nothing changed, if it was 0 or 1.
    ///
    /// A word that is 0x100 less is a checksum that is 0x100 more, in ones' complement, whose sums are the same in either order of bytes. Source:
    /// RFC 1141; torvalds/linux `include/net/ip.h`, `ip_decrease_ttl`.
    #[inline]
    pub fn decrement_ttl(&mut self) -> bool {
        if self.ttl <= 1 {
            return false;
        }
        self.ttl -= 1;
        let sum = u32::from(u16::from_ne_bytes(self.checksum.to_bytes())) + u32::from(0x100_u16.to_be());
        // What comes out as 0xffff is 0.
        let sum = sum + u32::from(sum >= 0xffff);
        self.checksum = (sum as u16).to_ne_bytes().into();
        true
    }
}

/// A checked IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    header: &'a Ipv4Header,
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Views `bytes` as an IPv4 packet; what lies behind its total length (Ethernet padding) is cut off. The checksum
    /// is not looked at: see [`Ipv4::checksum_ok`].
    ///
    /// # Errors
    /// The version is not 4, the lengths contradict each other, or fewer bytes are there than the lengths say.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, rest): (&Ipv4Header, _) = front(Layer::Ipv4, bytes)?;
        let refuse =
            |field, value, allowed| Err(WireError::Field { layer: Layer::Ipv4, field, value, allowed });
        if header.version() != 4 {
            return refuse("version", header.version().into(), "4");
        }
        let (head, total) = (header.header_bytes(), usize::from(header.total_bytes.get()));
        if head < Ipv4Header::BYTES {
            return refuse("header length", head as u32, "20 to 60");
        }
        if total < head {
            return refuse("total length", total as u32, "at least the header's length");
        }
        let short = || WireError::truncated(Layer::Ipv4, total, bytes.len());
        let (packet, _) = rest.split_at_checked(total - Ipv4Header::BYTES).ok_or_else(short)?;
        let (options, payload) = packet.split_at_checked(head - Ipv4Header::BYTES).ok_or_else(short)?;
        Ok(Ipv4 { header, options, payload })
    }

    /// The layout.
    #[must_use]
    pub fn header(&self) -> &'a Ipv4Header {
        self.header
    }

    /// Options, 0 to 40 bytes.
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// What follows the header, up to the total length.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the header's checksum is right.
    #[must_use]
    pub fn checksum_ok(&self) -> bool {
        Sum::of(self.header.as_bytes()).add_bytes(self.options).is_valid()
    }

    /// The pseudo-header's part of a TCP or UDP checksum over this packet's payload.
    #[must_use]
    pub fn pseudo_sum(&self) -> Sum {
        checksum::pseudo_v4(self.src(), self.dst(), self.protocol(), self.payload.len() as u16)
    }

    /// The header as plain data; options are left out.
    #[must_use]
    pub fn repr(&self) -> Ipv4Repr {
        Ipv4Repr {
            src: self.src(),
            dst: self.dst(),
            protocol: self.protocol(),
            tos: self.tos,
            ident: self.ident.get(),
            dont_fragment: self.dont_fragment(),
            more_fragments: self.more_fragments(),
            fragment_offset: self.fragment_offset() as u16,
            ttl: self.ttl,
            payload_bytes: self.payload.len() as u16,
        }
    }
}

impl Deref for Ipv4<'_> {
    type Target = Ipv4Header;

    fn deref(&self) -> &Ipv4Header {
        self.header
    }
}

/// An IPv4 header without options as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Repr {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// What the payload is.
    pub protocol: IpProtocol,
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub ident: u16,
    /// Whether routers may not fragment.
    pub dont_fragment: bool,
    /// Whether more fragments follow.
    pub more_fragments: bool,
    /// Where this fragment belongs, in bytes; a multiple of 8 (the rest is cut).
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Bytes behind the header, at most 65,515.
    pub payload_bytes: u16,
}

impl Ipv4Repr {
    /// An unfragmented packet with a time to live of 64.
    #[must_use]
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, payload_bytes: u16) -> Self {
        Ipv4Repr {
            src,
            dst,
            protocol,
            tos: 0,
            ident: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            payload_bytes,
        }
    }

    /// Writes the header with its checksum to the front of `bytes`; gives back what is behind it.
    ///
    /// # Errors
    /// No room, or a payload over 65,515 bytes.
    pub fn emit<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], WireError> {
        let total = self.payload_bytes.checked_add(Ipv4Header::BYTES as u16).ok_or(WireError::Field {
            layer: Layer::Ipv4,
            field: "payload length",
            value: self.payload_bytes.into(),
            allowed: "at most 65515",
        })?;
        let mut fragment = self.fragment_offset / 8;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            fragment |= MORE_FRAGMENTS;
        }
        let mut header = Ipv4Header {
            version_ihl: 0x45,
            tos: self.tos,
            total_bytes: total.into(),
            ident: self.ident.into(),
            fragment: fragment.into(),
            ttl: self.ttl,
            protocol: self.protocol.0,
            checksum: 0.into(),
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        header.checksum.set(checksum::of(header.as_bytes()));
        put(Layer::Ipv4, &header, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header that Wikipedia and many courses work through; its checksum is b861.
    const GOLDEN: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];

    fn packet() -> Vec<u8> {
        let mut bytes = GOLDEN.to_vec();
        bytes.resize(0x73, 7);
        bytes
    }

    #[test]
    fn golden_header() {
        let bytes = packet();
        let ip = Ipv4::new(&bytes).unwrap();
        assert!(ip.checksum_ok());
        assert_eq!((ip.src(), ip.dst()), (Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(192, 168, 0, 199)));
        assert_eq!((ip.protocol(), ip.ttl, ip.payload().len()), (IpProtocol::UDP, 64, 95));
        assert!(ip.dont_fragment() && !ip.is_fragment());
        let mut out = [0; 20];
        ip.repr().emit(&mut out).unwrap();
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn padding_is_cut_and_options_are_seen() {
        let mut bytes = packet();
        bytes[0] = 0x46;
        bytes.resize(200, 0);
        let ip = Ipv4::new(&bytes).unwrap();
        assert_eq!((ip.options(), ip.payload().len()), (&[7u8; 4][..], 0x73 - 24));
        assert!(!ip.checksum_ok());
    }

    #[test]
    fn contradictions_are_refused() {
        let bytes = packet();
        assert_eq!(
            Ipv4::new(&bytes[..100]).unwrap_err().to_string(),
            "IPv4: 115 bytes needed, 100 given (15 missing)"
        );
        for (at, value, field) in [(0, 0x65, "version"), (0, 0x44, "header length"), (3, 19, "total length")]
        {
            let mut bad = bytes.clone();
            bad[at] = value;
            match Ipv4::new(&bad).unwrap_err() {
                WireError::Field { field: f, .. } => assert_eq!(f, field),
                other => panic!("{other}"),
            }
        }
        let repr = Ipv4Repr { payload_bytes: 65516, ..Ipv4::new(&bytes).unwrap().repr() };
        assert!(repr.emit(&mut [0; 64]).is_err());
    }

    #[test]
    fn each_checksum_is_mended() {
        for ident in 0..=u16::MAX {
            let mut bytes = GOLDEN;
            bytes[4..6].copy_from_slice(&ident.to_be_bytes());
            let whole = |mut bytes: [u8; 20]| {
                bytes[10..12].fill(0);
                let sum = checksum::of(&bytes);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
                bytes
            };
            let mut expected = bytes;
            expected[8] -= 1;
            bytes = whole(bytes);
            assert!(Ipv4Header::mut_from_prefix(&mut bytes).unwrap().0.decrement_ttl());
            assert_eq!(bytes, whole(expected), "{ident}");
        }
    }

    #[test]
    fn ttl_goes_down_and_the_checksum_stays_right() {
        let mut bytes = packet();
        for ttl in (1..64).rev() {
            let (header, _) = Ipv4Header::mut_from_prefix(&mut bytes).unwrap();
            assert!(header.decrement_ttl());
            assert_eq!(header.ttl, ttl);
            assert!(Ipv4::new(&bytes).unwrap().checksum_ok());
        }
        let before = bytes.clone();
        assert!(!Ipv4Header::mut_from_prefix(&mut bytes).unwrap().0.decrement_ttl());
        assert_eq!(bytes, before);
    }

    #[test]
    fn fragment_fields() {
        let repr = Ipv4Repr {
            more_fragments: true,
            fragment_offset: 1480,
            ..Ipv4Repr::new([1, 2, 3, 4].into(), [5, 6, 7, 8].into(), IpProtocol::UDP, 0)
        };
        let mut out = [0; 20];
        repr.emit(&mut out).unwrap();
        assert_eq!(out[6..8], [0x20, 185]);
        let ip = Ipv4::new(&out).unwrap();
        assert!(ip.is_fragment() && ip.more_fragments() && ip.fragment_offset() == 1480);
        assert_eq!(ip.repr(), repr);
    }
}
