//! What travels beside a frame: the checksum still to be computed, the size to cut segments to, the VLAN tag.
//!
//! Source of the header: `linux/virtio_net.h`, `struct virtio_net_hdr` (the 10-byte form, host byte order as packet
//! sockets and taps use it by default).

/// Length of the header in bytes.
pub const VNET_BYTES: usize = 10;

/// How the kernel wants a large frame cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Segmentation {
    /// Not at all: it is one frame.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of equal size, each with a header of its own (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    Udp,
    /// One UDP datagram, cut as IP fragments; long out of use (`VIRTIO_NET_HDR_GSO_UDP`).
    UdpFragments,
    /// A number that is not known here.
    Unknown(u8),
}

/// The checksum that is still to be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Where the bytes to be summed begin, from the start of the frame.
    pub start: u16,
    /// Where the sum goes, from `start`. The place holds the pseudo-header's sum now.
    pub offset: u16,
}

/// A `virtio_net_hdr` in plain words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VnetHeader {
    /// To be completed before the frame goes onto a wire.
    pub checksum: Option<PartialChecksum>,
    /// The receiver has checked the checksum.
    pub checksum_good: bool,
    /// Into what the frame is to be cut.
    pub segmentation: Segmentation,
    /// TCP's congestion bit is to be set on the first segment only.
    pub ecn: bool,
    /// Length of all headers; a hint when it comes from the kernel.
    pub header_bytes: u16,
    /// Payload bytes of each segment.
    pub segment_bytes: u16,
}

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const ECN: u8 = 0x80;

impl VnetHeader {
    /// Nothing to do beside sending the frame.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.checksum.is_none() && self.segmentation == Segmentation::None
    }

    /// From the kernel's bytes.
    #[inline]
    #[must_use]
    pub fn decode(bytes: [u8; VNET_BYTES]) -> Self {
        let [flags, kind, h0, h1, s0, s1, c0, c1, o0, o1] = bytes;
        Self {
            checksum: (flags & NEEDS_CHECKSUM != 0).then(|| PartialChecksum {
                start: u16::from_ne_bytes([c0, c1]),
                offset: u16::from_ne_bytes([o0, o1]),
            }),
            checksum_good: flags & CHECKSUM_VALID != 0,
            segmentation: match kind & !ECN {
                0 => Segmentation::None,
                1 => Segmentation::Tcp4,
                3 => Segmentation::UdpFragments,
                4 => Segmentation::Tcp6,
                5 => Segmentation::Udp,
                other => Segmentation::Unknown(other),
            },
            ecn: kind & ECN != 0,
            header_bytes: u16::from_ne_bytes([h0, h1]),
            segment_bytes: u16::from_ne_bytes([s0, s1]),
        }
    }

    /// To the kernel's bytes.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; VNET_BYTES] {
        let mut bytes = [0; VNET_BYTES];
        if let Some(checksum) = self.checksum {
            bytes[0] |= NEEDS_CHECKSUM;
            bytes[6..8].copy_from_slice(&checksum.start.to_ne_bytes());
            bytes[8..].copy_from_slice(&checksum.offset.to_ne_bytes());
        }
        if self.checksum_good {
            bytes[0] |= CHECKSUM_VALID;
        }
        bytes[1] = match self.segmentation {
            Segmentation::None => 0,
            Segmentation::Tcp4 => 1,
            Segmentation::UdpFragments => 3,
            Segmentation::Tcp6 => 4,
            Segmentation::Udp => 5,
            Segmentation::Unknown(other) => other,
        };
        if self.ecn {
            bytes[1] |= ECN;
        }
        bytes[2..4].copy_from_slice(&self.header_bytes.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.segment_bytes.to_ne_bytes());
        bytes
    }
}

/// A VLAN tag that the kernel took out of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// The tag's type: 0x8100, or 0x88a8 for the outer of two.
    pub tpid: u16,
    /// Priority, drop bit and VLAN number.
    pub tci: u16,
}

impl VlanTag {
    /// The four bytes as they stand in a frame, behind the two addresses.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> [u8; 4] {
        let [a, b] = self.tpid.to_be_bytes();
        let [c, d] = self.tci.to_be_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_tcp4_segments() {
        // NEEDS_CSUM, GSO_TCPV4 | ECN, hdr_len 54, gso_size 1448, csum_start 34, csum_offset 16 on a little-endian host.
        let bytes = [1, 0x81, 54, 0, 0xa8, 0x05, 34, 0, 16, 0];
        let expected = VnetHeader {
            checksum: Some(PartialChecksum { start: 34, offset: 16 }),
            checksum_good: false,
            segmentation: Segmentation::Tcp4,
            ecn: true,
            header_bytes: 54,
            segment_bytes: 1448,
        };
        if cfg!(target_endian = "little") {
            assert_eq!(VnetHeader::decode(bytes), expected);
            assert_eq!(expected.encode(), bytes);
        }
    }

    proptest! {
        #[test]
        fn decode_inverts_encode(bytes: [u8; VNET_BYTES]) {
            let header = VnetHeader::decode(bytes);
            prop_assert_eq!(VnetHeader::decode(header.encode()), header);
        }
    }
}
