//! What the device finds in a frame's headers, once, for checksums, steering, hashing and completions.

mod tunnel;

use pollux_wire::EtherType;
use pollux_wire::ptype::{self, PacketType, Parsed};

pub(crate) use tunnel::{Gre, Labels, Tunnels, VXLAN_PORTS_MAX};

/// Bytes of a VLAN tag; a send queue keeps room for one in front of a frame.
pub(crate) const TAG_BYTES: usize = 4;

/// The IP version of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ip {
    #[default]
    None,
    V4,
    V6,
}

/// The transport of a frame whose header is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    #[default]
    None,
    Tcp,
    Udp,
}

/// Headers of one frame, or of the frame inside its tunnel. Offsets count from the outer frame's first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) l2: usize,
    /// Type behind the tags.
    pub(crate) ether_type: u16,
    pub(crate) tags: u8,
    pub(crate) l3: usize,
    pub(crate) ip: Ip,
    pub(crate) options: bool,
    pub(crate) fragment: bool,
    pub(crate) protocol: u8,
    pub(crate) l4: usize,
    pub(crate) transport: Transport,
    pub(crate) payload: usize,
}

#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => 0,
    }
}

/// Whether a type is a VLAN tag's. Source: IEEE 802.1Q, table 9-1.
pub(crate) fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8)
}

impl Headers {
    /// Parses the frame that begins at `start`.
    #[inline]
    pub(crate) fn parse(frame: &[u8], start: usize) -> Self {
        let Some(inner) = frame.get(start..) else { return Self::default() };
        Self::at(frame, start, &ptype::parse(inner))
    }

    /// Parses the packet of that type whose IP header begins at `l3`. `None` when no such header stands there.
    pub(crate) fn parse_packet(frame: &[u8], l3: usize, ether_type: EtherType) -> Option<Self> {
        let parsed = ptype::parse_packet(frame.get(l3..)?, ether_type);
        let headers = Self { ether_type: ether_type.0, ..Self::at(frame, l3, &parsed) };
        (headers.ip != Ip::None).then_some(headers)
    }

    #[inline]
    fn at(frame: &[u8], start: usize, parsed: &Parsed) -> Self {
        let l3 = start + usize::from(parsed.l2_len);
        let l4 = l3 + usize::from(parsed.l3_len);
        let ip = if parsed.ptype.l3() == 0 {
            Ip::None
        } else if parsed.ptype.is_ipv4() {
            Ip::V4
        } else {
            Ip::V6
        };
        Self {
            l2: start,
            ether_type: if parsed.l2_len >= 2 { be16(frame, l3 - 2) } else { 0 },
            tags: (parsed.l2_len.saturating_sub(14) / 4) as u8,
            l3,
            ip,
            options: matches!(
                parsed.ptype.l3(),
                PacketType::L3_IPV4_OPTIONS | PacketType::L3_IPV6_EXTENSIONS
            ),
            fragment: parsed.ptype.l4() == PacketType::L4_FRAGMENT,
            protocol: parsed.protocol,
            l4,
            transport: match parsed.ptype.l4() {
                PacketType::L4_TCP => Transport::Tcp,
                PacketType::L4_UDP => Transport::Udp,
                _ => Transport::None,
            },
            payload: l4 + usize::from(parsed.l4_len),
        }
    }

    /// Where the IP packet ends as its own length says, at most where the frame does. `None` when it says more.
    #[inline]
    pub(crate) fn packet_end(&self, frame: &[u8]) -> Option<usize> {
        let end = match self.ip {
            Ip::None => return None,
            Ip::V4 => self.l3 + usize::from(be16(frame, self.l3 + 2)),
            Ip::V6 => self.l3 + 40 + usize::from(be16(frame, self.l3 + 4)),
        };
        (end <= frame.len() && end >= self.payload.min(frame.len()).min(self.l4)).then_some(end)
    }

    /// Source and destination address as bytes.
    #[inline]
    pub(crate) fn addresses<'f>(&self, frame: &'f [u8]) -> Option<(&'f [u8], &'f [u8])> {
        let (at, bytes) = match self.ip {
            Ip::None => return None,
            Ip::V4 => (self.l3 + 12, 4),
            Ip::V6 => (self.l3 + 8, 16),
        };
        Some((frame.get(at..at + bytes)?, frame.get(at + bytes..at + 2 * bytes)?))
    }

    /// Source and destination port of TCP and UDP.
    #[inline]
    pub(crate) fn ports(&self, frame: &[u8]) -> (u16, u16) {
        (be16(frame, self.l4), be16(frame, self.l4 + 2))
    }
}
