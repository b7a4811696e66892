//! TCP. Source: RFC 9293; the ECN flags are RFC 3168's.

use std::ops::{BitOr, Deref};

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Sum;
use crate::{Layer, WireError, front, put};

/// The flags of a TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: TcpFlags = TcpFlags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: TcpFlags = TcpFlags(0x02);
    /// Reset.
    pub const RST: TcpFlags = TcpFlags(0x04);
    /// Push.
    pub const PSH: TcpFlags = TcpFlags(0x08);
    /// The acknowledgement number counts.
    pub const ACK: TcpFlags = TcpFlags(0x10);
    /// The urgent pointer counts.
    pub const URG: TcpFlags = TcpFlags(0x20);
    /// ECN echo.
    pub const ECE: TcpFlags = TcpFlags(0x40);
    /// Congestion window reduced.
    pub const CWR: TcpFlags = TcpFlags(0x80);

    /// Whether all of `flags` are set.
    #[must_use]
    pub fn contains(self, flags: TcpFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether a segment opens a connection: SYN without ACK.
    #[must_use]
    pub fn opens(self) -> bool {
        self.contains(Self::SYN) && !self.contains(Self::ACK)
    }

    /// Whether nothing comes after it from its sender, or of the connection: FIN or RST.
    #[must_use]
    pub fn closes(self) -> bool {
        self.0 & (Self::FIN.0 | Self::RST.0) != 0
    }
}

impl BitOr for TcpFlags {
    type Output = TcpFlags;

    fn bitor(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
}

/// TCP header without options.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Sequence number of the first byte.
    pub seq: U32,
    /// Next sequence number expected from the other side.
    pub ack: U32,
    /// Header length in words of four bytes, in the upper half.
    pub data_offset: u8,
    /// Flags.
    pub flags: u8,
    /// Receive window.
    pub window: U16,
    /// Checksum over pseudo-header, header and payload.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}
const _: () = assert!(size_of::<TcpHeader>() == 20);

impl TcpHeader {
    /// Bytes of the header without options.
    pub const BYTES: usize = size_of::<TcpHeader>();

    /// Bytes of the header, options included: 0 to 60 (under 20 is invalid).
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        usize::from(self.data_offset >> 4) * 4
    }

    /// Flags.
    #[must_use]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.flags)
    }
}

/// A checked TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    header: &'a TcpHeader,
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Views `bytes` as a TCP segment. TCP has no length of its own: the payload is all that follows, so hand in what the
    /// IP layer cut.
    ///
    /// # Errors
    /// The header length is under 20, or fewer bytes are there than it says.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, rest): (&TcpHeader, _) = front(Layer::Tcp, bytes)?;
        let head = header.header_bytes();
        let Some(options) = head.checked_sub(TcpHeader::BYTES) else {
            return Err(WireError::Field {
                layer: Layer::Tcp,
                field: "header length",
                value: head as u32,
                allowed: "20 to 60",
            });
        };
        let (options, payload) = rest
            .split_at_checked(options)
            .ok_or_else(|| WireError::truncated(Layer::Tcp, head, bytes.len()))?;
        Ok(Tcp { header, options, payload })
    }

    /// The layout.
    #[must_use]
    pub fn header(&self) -> &'a TcpHeader {
        self.header
    }

    /// Options, 0 to 40 bytes.
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the checksum is right.
    #[must_use]
    pub fn checksum_ok(&self, pseudo: Sum) -> bool {
        let sum = pseudo.add_bytes(self.header.as_bytes()).add_bytes(self.options);
        sum.add_bytes(self.payload).is_valid()
    }

    /// The header as plain data; options are left out.
    #[must_use]
    pub fn repr(&self) -> TcpRepr {
        TcpRepr {
            src_port: self.src_port.get(),
            dst_port: self.dst_port.get(),
            seq: self.seq.get(),
            ack: self.ack.get(),
            flags: self.flags(),
            window: self.window.get(),
            urgent: self.urgent.get(),
        }
    }
}

impl Deref for Tcp<'_> {
    type Target = TcpHeader;

    fn deref(&self) -> &TcpHeader {
        self.header
    }
}

/// A TCP header without options as plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Next sequence number expected from the other side.
    pub ack: u32,
    /// Flags.
    pub flags: TcpFlags,
    /// Receive window.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
}

impl TcpRepr {
    /// Writes the header to the front of `bytes`, which must already hold the payload and end with it, and sums both.
    /// Gives back the payload.
    ///
    /// # Errors
    /// No room.
    pub fn emit<'a>(&self, bytes: &'a mut [u8], pseudo: Sum) -> Result<&'a mut [u8], WireError> {
        let mut header = TcpHeader {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            seq: self.seq.into(),
            ack: self.ack.into(),
            data_offset: 5 << 4,
            flags: self.flags.0,
            window: self.window.into(),
            checksum: 0.into(),
            urgent: self.urgent.into(),
        };
        let payload = bytes.get(TcpHeader::BYTES..).unwrap_or_default();
        header.checksum.set(pseudo.add_bytes(header.as_bytes()).add_bytes(payload).checksum());
        put(Layer::Tcp, &header, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IpProtocol, checksum};

    const GOLDEN: [u8; 26] = [
        0x30, 0x39, 0x00, 0x50, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x60, 0x18, 0xff, 0xff, 0x00,
        0x00, 0x00, 0x00, 1, 1, 1, 0, b'h', b'i',
    ];

    #[test]
    fn golden_segment() {
        let tcp = Tcp::new(&GOLDEN).unwrap();
        assert_eq!((tcp.src_port.get(), tcp.dst_port.get(), tcp.window.get()), (12345, 80, 65535));
        assert_eq!((tcp.seq.get(), tcp.ack.get()), (0x0102_0304, 0x0506_0708));
        assert!(tcp.flags().contains(TcpFlags::PSH | TcpFlags::ACK) && !tcp.flags().contains(TcpFlags::FIN));
        assert_eq!((tcp.options(), tcp.payload()), (&[1u8, 1, 1, 0][..], &b"hi"[..]));
        let mut out = [0; 22];
        out[20..].copy_from_slice(b"hi");
        let pseudo = checksum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::TCP, 22);
        assert_eq!(tcp.repr().emit(&mut out, pseudo).unwrap(), b"hi");
        assert_eq!(out[..12], GOLDEN[..12]);
        assert_eq!(out[12..16], [0x50, 0x18, 0xff, 0xff]);
        let words: u32 = [
            0x0a00, 1, 0x0a00, 2, 6, 22, 0x3039, 0x50, 0x0102, 0x0304, 0x0506, 0x0708, 0x5018, 0xffff, 0x6869,
        ]
        .iter()
        .sum();
        let folded = (words & 0xffff) + (words >> 16);
        assert_eq!(u32::from(u16::from_be_bytes([out[16], out[17]])), !folded & 0xffff);
        assert!(Tcp::new(&out).unwrap().checksum_ok(pseudo));
    }

    #[test]
    fn header_length_is_checked() {
        let mut bytes = GOLDEN;
        bytes[12] = 0x40;
        assert!(matches!(Tcp::new(&bytes), Err(WireError::Field { value: 16, .. })));
        bytes[12] = 0xf0;
        assert_eq!(
            Tcp::new(&bytes).unwrap_err(),
            WireError::Truncated { layer: Layer::Tcp, needed: 60, given: 26 }
        );
    }
}
