//! Where the IP header of a frame is, and what it says of fragments.

use pollux_wire::{EtherType, IpProtocol, Ipv4Header, Ipv6Header, vlan};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes of an IPv6 fragment header.
pub(crate) const FRAGMENT_BYTES: usize = 8;

/// Extension headers that are walked past.
const EXTENSIONS_MAX: usize = 8;

/// What tells the fragments of one datagram from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Datagram {
    src: [u8; 16],
    dst: [u8; 16],
    ident: u32,
    /// Of IPv4; IPv6 has 0, and no protocol: a datagram's fragments may disagree there, and the first one's counts (RFC 8200, 4.5).
    version: u16,
    protocol: u16,
}

/// Whether and how the packet is IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    /// `next_at`: the byte that names the header at `insert_at`, where a fragment header stands or belongs.
    V6 {
        next_at: usize,
        insert_at: usize,
    },
}

/// What a packet says of itself; places count from the front of the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) version: Version,
    /// Where the IP header begins.
    pub(crate) l3: usize,
    /// Where what may be cut begins: behind the header of IPv4, behind the fragment header of IPv6 if there is one.
    pub(crate) payload: usize,
    /// Where it ends. Padding may follow.
    pub(crate) end: usize,
    pub(crate) dont_fragment: bool,
    pub(crate) fragment: Option<Fragment>,
}

/// What a fragment says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub(crate) of: Datagram,
    /// Where its payload belongs.
    pub(crate) offset: usize,
    pub(crate) more: bool,
    /// IPv6: what stands behind the fragment header.
    pub(crate) next: u8,
}

/// Looks at a frame of `bytes`, whose `front` has all headers. Nothing where it is no IP packet, or contradicts itself.
pub(crate) fn look(front: &[u8], bytes: usize) -> Option<Packet> {
    let behind = vlan::skip_tags(front).ok()?;
    let packet = match behind.ether_type {
        EtherType::IPV4 => look_v4(front, behind.offset),
        EtherType::IPV6 => look_v6(front, behind.offset),
        _ => None,
    }?;
    (packet.payload <= packet.end && packet.payload <= front.len() && packet.end <= bytes).then_some(packet)
}

fn look_v4(front: &[u8], l3: usize) -> Option<Packet> {
    let (header, _) = Ipv4Header::ref_from_prefix(front.get(l3..)?).ok()?;
    let head = header.header_bytes();
    if header.version() != 4 || head < Ipv4Header::BYTES {
        return None;
    }
    let wide = |address: [u8; 4]| {
        let mut wide = [0; 16];
        wide[..4].copy_from_slice(&address);
        wide
    };
    let fragment = header.is_fragment().then(|| Fragment {
        of: Datagram {
            src: wide(header.src),
            dst: wide(header.dst),
            ident: header.ident.get().into(),
            version: 4,
            protocol: header.protocol.into(),
        },
        offset: header.fragment_offset(),
        more: header.more_fragments(),
        next: 0,
    });
    Some(Packet {
        version: Version::V4,
        l3,
        payload: l3 + head,
        end: l3 + usize::from(header.total_bytes.get()),
        dont_fragment: header.dont_fragment(),
        fragment,
    })
}

fn look_v6(front: &[u8], l3: usize) -> Option<Packet> {
    let (header, _) = Ipv6Header::ref_from_prefix(front.get(l3..)?).ok()?;
    if header.version() != 6 {
        return None;
    }
    let end = l3 + Ipv6Header::BYTES + usize::from(header.payload_bytes.get());
    let (mut next_at, mut at) = (l3 + 6, l3 + Ipv6Header::BYTES);
    // What every fragment repeats ends behind the headers that routers on the way look at: hop-by-hop options and routing.
    let mut insert = (next_at, at);
    for _ in 0..EXTENSIONS_MAX {
        match IpProtocol(*front.get(next_at)?) {
            next @ (IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DESTINATION) => {
                let length = usize::from(*front.get(at + 1)?);
                (next_at, at) = (at, at + 8 * (length + 1));
                if next != IpProtocol::DESTINATION {
                    insert = (next_at, at);
                }
            }
            IpProtocol::FRAGMENT => {
                let bytes: &[u8; FRAGMENT_BYTES] = front.get(at..)?.first_chunk()?;
                let [next, _, high, low, ident @ ..] = *bytes;
                let word = u16::from_be_bytes([high, low]);
                let of = Datagram {
                    src: header.src,
                    dst: header.dst,
                    ident: u32::from_be_bytes(ident),
                    version: 6,
                    protocol: 0,
                };
                let fragment = Fragment { of, offset: usize::from(word & !7), more: word & 1 != 0, next };
                return Some(Packet {
                    version: Version::V6 { next_at, insert_at: at },
                    l3,
                    payload: at + FRAGMENT_BYTES,
                    end,
                    dont_fragment: true,
                    fragment: Some(fragment),
                });
            }
            _ => break,
        }
    }
    let (next_at, insert_at) = insert;
    let version = Version::V6 { next_at, insert_at };
    Some(Packet { version, l3, payload: insert_at, end, dont_fragment: false, fragment: None })
}
